//! How fast an allowance of an account is used, and where that leads by its reset. Pure figures; nothing is held back here.

use std::time::Duration;

use serde::Serialize;

use crate::stream::Quota;
use crate::time::Time;

/// Before this much of a window has passed, a pace says more about chance than about the work.
const LEAST_PERMILLE: u64 = 20;

/// What an allowance looks like now, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pace {
    /// Thousandths of the window's time that had passed when its use was last told.
    pub elapsed_permille: u32,
    /// Thousandths of the allowance that are used at the reset if it goes on like this; above 1000 it ends before.
    pub at_reset_permille: u32,
    /// When it is used up if it goes on like this, if that is before the reset.
    pub empty_at: Option<Time>,
}

/// How long a window is; the vendor says so, or its name does.
pub fn length(quota: &Quota) -> Option<Duration> {
    let named = match quota.window.as_str() {
        "five_hour" => Some(Duration::from_secs(5 * 3600)),
        "seven_day" => Some(Duration::from_secs(7 * 86_400)),
        _ => None,
    };
    quota.length_ms.filter(|ms| *ms > 0).map(Duration::from_millis).or(named)
}

/// The pace since the window began, from what was told at `seen`. `None` when that cannot be known: no end, no length, a
/// window that is over at `now`, or one that has hardly begun.
pub fn pace(quota: &Quota, seen: Time, now: Time) -> Option<Pace> {
    let (reset, length) = (quota.reset_at?, length(quota)?);
    if reset <= now {
        return None;
    }
    let whole = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let left = u64::try_from(reset.since(seen).as_millis()).unwrap_or(u64::MAX);
    let elapsed = whole.checked_sub(left).filter(|elapsed| *elapsed > 0)?;
    let elapsed_permille = share(elapsed, 1000, whole);
    if elapsed_permille < LEAST_PERMILLE {
        return None;
    }
    let used = u64::from(quota.used_permille);
    let at_reset = share(used, whole, elapsed);
    // The time from the beginning of the window at which all of it is used.
    let until_empty = (used > 0).then(|| share(elapsed, 1000, used)).filter(|ms| *ms < whole);
    let begin = reset - length;
    Some(Pace {
        elapsed_permille: small(elapsed_permille),
        at_reset_permille: small(at_reset),
        empty_at: until_empty.map(|ms| begin + Duration::from_millis(ms)),
    })
}

/// `a * b / c`, without a way to overflow.
fn share(a: u64, b: u64, c: u64) -> u64 {
    let exact = u128::from(a) * u128::from(b) / u128::from(c.max(1));
    u64::try_from(exact).unwrap_or(u64::MAX)
}

fn small(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    /// A window of five hours that resets at 5 h, seen at `seen` hours with this much used.
    fn of(used_permille: u32, seen: i64) -> Option<Pace> {
        let quota =
            Quota { window: "five_hour".into(), used_permille, reset_at: Some(Time(5 * HOUR)), length_ms: None };
        pace(&quota, Time(seen * HOUR), Time(seen * HOUR))
    }

    #[test]
    fn the_pace_goes_on_to_the_reset() {
        let slow = of(400, 2).unwrap();
        assert_eq!((slow.elapsed_permille, slow.at_reset_permille, slow.empty_at), (400, 1000, None));
        let fast = of(800, 2).unwrap();
        assert_eq!((fast.at_reset_permille, fast.empty_at), (2000, Some(Time(5 * HOUR / 2))));
        let idle = of(0, 2).unwrap();
        assert_eq!((idle.at_reset_permille, idle.empty_at), (0, None));
        assert_eq!(of(1000, 4).unwrap().empty_at, Some(Time(4 * HOUR)));
    }

    #[test]
    fn what_cannot_be_known_is_not_guessed() {
        assert_eq!(of(10, 0), None, "it has not begun");
        assert_eq!(of(10, 6), None, "it is over");
        let quota = |window: &str, reset_at, length_ms| Quota {
            window: window.to_owned(),
            used_permille: 500,
            reset_at,
            length_ms,
        };
        let at = |quota: &Quota| pace(quota, Time(HOUR), Time(HOUR));
        assert_eq!(at(&quota("primary", Some(Time(2 * HOUR)), None)), None, "no length");
        assert_eq!(at(&quota("five_hour", None, None)), None, "no end");
        assert_eq!(at(&quota("primary", Some(Time(2 * HOUR)), Some(0))), None, "no length");
        assert_eq!(at(&quota("five_hour", Some(Time(9 * HOUR)), None)), None, "it begins in the future");
        let known = at(&quota("primary", Some(Time(2 * HOUR)), Some(u64::try_from(2 * HOUR).unwrap()))).unwrap();
        assert_eq!(known.at_reset_permille, 1000);
    }

    #[test]
    fn a_window_that_ended_since_it_was_seen_has_no_pace() {
        let quota =
            Quota { window: "five_hour".into(), used_permille: 500, reset_at: Some(Time(5 * HOUR)), length_ms: None };
        assert!(pace(&quota, Time(4 * HOUR), Time(4 * HOUR + 1)).is_some());
        assert_eq!(pace(&quota, Time(4 * HOUR), Time(5 * HOUR)), None);
    }

    #[test]
    fn no_figures_overflow() {
        let quota = Quota {
            window: "x".into(),
            used_permille: u32::MAX,
            reset_at: Some(Time(i64::MAX)),
            length_ms: Some(u64::MAX),
        };
        assert!(pace(&quota, Time(0), Time(0)).is_some());
    }
}
