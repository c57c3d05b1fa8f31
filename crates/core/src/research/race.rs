//! Whether a candidate is better than the champion. A single look at a noisy metric takes luck for
//! progress, so both are measured again until one is ahead beyond the noise.

use super::sample::Contender;
use super::{Direction, KeepRule};
use crate::planted::{self, Bug};

/// Measurements of a candidate at most.
pub const CANDIDATE_MOST: usize = 4;
/// Measurements of a champion at most.
pub const CHAMPION_MOST: usize = 8;
/// Standard errors by which a candidate has to be ahead.
const AHEAD: f64 = 1.64;
/// Measurements of a candidate from which on it can be kept: the first look chose it.
const CANDIDATE_LEAST: usize = 2;
/// Measurements of the baseline.
const BASELINE_LEAST: usize = 3;
const BASELINE_MOST: usize = 10;
/// The spread of the baseline is known when one more measurement changes it by less than this.
const SPREAD_SETTLED: f64 = 0.25;

/// The next step of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Measure(Contender),
    Keep,
    Discard,
}

/// Everything a comparison reads.
#[derive(Clone, Copy, Debug)]
pub struct Race<'a> {
    pub rule: KeepRule,
    pub direction: Direction,
    /// Values of the champion since it is one.
    pub champion: &'a [f64],
    /// Values of the candidate, in their order.
    pub candidate: &'a [f64],
    /// All values of the baseline were equal.
    pub exact: bool,
    /// Standard deviation of the metric, from all that was measured more than once.
    pub sigma: f64,
}

impl Race<'_> {
    /// How much better the candidate is; negative when it is worse.
    pub fn gain(&self) -> f64 {
        self.direction.gain(mean(unbiased(self.candidate)), mean(self.champion))
    }

    /// The next step.
    pub fn next(&self) -> Look {
        let decided = |keep: bool| if keep { Look::Keep } else { Look::Discard };
        let gain = self.gain();
        match self.rule {
            KeepRule::Exact | KeepRule::Single => decided(gain > 0.0),
            KeepRule::Race if self.exact => decided(gain > 0.0),
            KeepRule::Sigma2 => decided(gain > 2.0 * self.sigma && gain > 0.0),
            KeepRule::Race => self.race(gain),
        }
    }

    fn race(&self, gain: f64) -> Look {
        if gain <= 0.0 {
            return Look::Discard;
        }
        let (ours, theirs) = (self.candidate.len(), self.champion.len());
        let error = self.sigma * (1.0 / unbiased(self.candidate).len() as f64 + 1.0 / theirs.max(1) as f64).sqrt();
        let least = if planted::is(Bug::KeepsOnFirstLook) { 1 } else { CANDIDATE_LEAST };
        if ours >= least && gain >= AHEAD * error {
            return Look::Keep;
        }
        // Alternating: what drifts, drifts for both.
        let champion_next = theirs < CHAMPION_MOST && ours > 1 && (ours + theirs) % 2 == 1;
        if champion_next {
            Look::Measure(Contender::Champion)
        } else if ours < CANDIDATE_MOST {
            Look::Measure(Contender::Candidate)
        } else if theirs < CHAMPION_MOST {
            Look::Measure(Contender::Champion)
        } else {
            Look::Discard
        }
    }
}

/// The values of a candidate without the first look, which chose it for being good; that alone, if
/// there is no other.
pub fn unbiased(values: &[f64]) -> &[f64] {
    if planted::is(Bug::CountsTheFirstLook) {
        return values;
    }
    values.get(1..).filter(|own| !own.is_empty()).unwrap_or(values)
}

/// Whether the baseline was measured often enough for its spread to be known.
pub fn baseline_suffices(values: &[f64]) -> bool {
    let n = values.len();
    if n < BASELINE_LEAST {
        return false;
    }
    if n >= BASELINE_MOST || is_exact(values) {
        return true;
    }
    let (now, before) = (deviation(values), deviation(&values[..n - 1]));
    n > BASELINE_LEAST && (now - before).abs() < SPREAD_SETTLED * now
}

/// Whether all values are equal.
pub fn is_exact(values: &[f64]) -> bool {
    values.windows(2).all(|pair| pair[0].to_bits() == pair[1].to_bits())
}

/// The mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// The standard deviation of a sample; 0 of less than two values.
pub fn deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>();
    (squares / (values.len() - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn race<'a>(champion: &'a [f64], candidate: &'a [f64], exact: bool) -> Race<'a> {
        let sigma = deviation(champion);
        Race { rule: KeepRule::Race, direction: Direction::Lower, champion, candidate, exact, sigma }
    }

    #[test]
    fn a_metric_that_never_varies_costs_no_extra_measurement() {
        assert_eq!(race(&[5.0, 5.0, 5.0], &[4.999], true).next(), Look::Keep);
        assert_eq!(race(&[5.0, 5.0, 5.0], &[5.0], true).next(), Look::Discard);
        assert!(baseline_suffices(&[5.0, 5.0, 5.0]) && !baseline_suffices(&[5.0, 5.0]));
    }

    #[test]
    fn a_lucky_look_is_measured_again_and_refused() {
        let champion = [5.0, 5.2, 4.8, 5.1];
        assert_eq!(race(&champion, &[5.5], false).next(), Look::Discard, "worse at the first look");
        assert_eq!(race(&champion, &[4.0], false).next(), Look::Measure(Contender::Candidate), "however good");
        assert_eq!(race(&champion, &[4.7, 5.6], false).next(), Look::Discard);
        assert_eq!(race(&champion, &[1.0, 5.1], false).next(), Look::Discard, "the first look does not count");
        assert_eq!(race(&champion, &[4.0, 4.1], false).next(), Look::Keep);
        assert!(matches!(race(&champion, &[4.9, 5.0], false).next(), Look::Measure(_)));
    }

    #[test]
    fn a_race_ends() {
        let (mut champion, mut candidate) = (vec![5.0, 5.4, 4.6], vec![4.9]);
        for _ in 0..20 {
            match race(&champion, &candidate, false).next() {
                Look::Measure(Contender::Champion) => champion.push(if champion.len() % 2 == 0 { 5.4 } else { 4.6 }),
                Look::Measure(Contender::Candidate) => candidate.push(if candidate.len() % 2 == 0 { 5.3 } else { 4.5 }),
                Look::Keep | Look::Discard => {
                    assert!(candidate.len() <= CANDIDATE_MOST && champion.len() <= CHAMPION_MOST);
                    return;
                }
            }
        }
        panic!("it goes on");
    }

    #[test]
    fn the_baseline_is_measured_until_its_spread_is_known() {
        assert!(!baseline_suffices(&[5.0, 5.1, 4.9]));
        assert!(baseline_suffices(&[5.0, 5.1, 4.9, 5.05]));
        assert!(!baseline_suffices(&[5.0, 5.0, 5.0001, 9.0]));
        assert!(baseline_suffices(&[1.0, 9.0, 1.0, 90.0, 1.0, 900.0, 1.0, 9000.0, 1.0, 90_000.0]));
    }

    #[test]
    fn the_other_rules_look_once() {
        let champion = [5.0, 5.2, 4.8];
        let with = |rule, candidate: &[f64]| Race { rule, ..race(&champion, candidate, false) }.next();
        let sigma =
            |candidate: &[f64]| Race { rule: KeepRule::Sigma2, sigma: 0.2, ..race(&champion, candidate, false) }.next();
        assert_eq!(with(KeepRule::Single, &[4.99]), Look::Keep);
        assert_eq!(with(KeepRule::Single, &[5.01]), Look::Discard);
        assert_eq!((sigma(&[4.7]), sigma(&[4.5])), (Look::Discard, Look::Keep));
    }
}
