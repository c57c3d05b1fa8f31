//! Code is a cost: a small gain with much code is discarded, and less code at the same metric is
//! kept.

/// A gain below this share of the champion is small.
const SMALL_GAIN: f64 = 0.001;
/// Lines and share of the scope from which on a change is large.
pub const MANY_LINES: u32 = 20;
const LARGE_SHARE: f64 = 0.02;

/// Size of a change, in lines that are not blank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeSize {
    pub added: u32,
    pub removed: u32,
    /// Lines in scope before it.
    pub scope: u32,
}

impl ChangeSize {
    fn net(self) -> i64 {
        i64::from(self.added) - i64::from(self.removed)
    }
}

/// Whether a gain is not worth its code.
pub fn is_not_worth_it(gain: f64, champion: f64, sigma: f64, size: ChangeSize) -> bool {
    let small = gain < SMALL_GAIN * champion.abs() || gain < sigma;
    let net = size.net();
    small && net > i64::from(MANY_LINES) && net as f64 > LARGE_SHARE * f64::from(size.scope)
}

/// Whether less code is as good as the champion: within the noise, and at least one line shorter.
pub fn is_simpler(gain: f64, sigma: f64, size: ChangeSize) -> bool {
    gain.abs() <= sigma && size.net() <= -1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(added: u32, removed: u32) -> ChangeSize {
        ChangeSize { added, removed, scope: 1000 }
    }

    #[test]
    fn a_small_gain_with_much_code_is_not_worth_it() {
        assert!(is_not_worth_it(0.0005, 1.0, 0.0, size(30, 0)));
        assert!(!is_not_worth_it(0.0005, 1.0, 0.0, size(20, 0)), "few lines");
        assert!(!is_not_worth_it(0.0005, 1.0, 0.0, ChangeSize { scope: 10_000, ..size(30, 0) }), "a small share");
        assert!(!is_not_worth_it(0.01, 1.0, 0.0, size(30, 0)), "a large gain");
        assert!(is_not_worth_it(0.01, 1.0, 0.05, size(30, 0)), "below one deviation");
    }

    #[test]
    fn less_code_at_the_same_metric_is_simpler() {
        assert!(is_simpler(0.0, 0.0, size(0, 1)));
        assert!(is_simpler(-0.04, 0.05, size(3, 10)));
        assert!(!is_simpler(-0.06, 0.05, size(3, 10)), "worse");
        assert!(!is_simpler(0.0, 0.0, size(1, 1)), "not shorter");
    }
}
