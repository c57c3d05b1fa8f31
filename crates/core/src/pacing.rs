//! Pace of an account's allowance: how fast it is used, where that leads by its reset, and how long
//! a start has to wait so that it lasts until then. Pure figures; the guard applies them only where
//! the configuration enables it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::stream::{Quota, SAME_RESET};
use crate::time::Time;

/// Before this share of a window has passed, a pace is mostly chance.
const LEAST_PERMILLE: u64 = 20;
/// How far ahead of the line a start may be, in thousandths of the allowance: enough for a first
/// turn in a fresh window, and in the last twentieth of a window everything that is left may be
/// used.
pub const AHEAD_PERMILLE: u32 = 50;
/// The same for an urgent task.
pub const AHEAD_URGENT_PERMILLE: u32 = 200;

/// State and trend of an allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AllowancePace {
    /// Thousandths of the window's time that had passed at the latest report.
    pub elapsed_permille: u32,
    /// Projected use at the reset, in thousandths of the allowance; above 1000 it ends before.
    pub at_reset_permille: u32,
    /// Projected time at which it is used up, if that is before the reset.
    pub empty_at: Option<Time>,
}

/// The latest report about an allowance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// As the CLI reported it.
    pub quota: Quota,
    /// Time of the report.
    pub seen: Time,
}

impl Window {
    /// Whether the window has been reset since.
    pub fn is_over(&self, now: Time) -> bool {
        self.quota.reset_at.is_some_and(|at| at <= now)
    }

    /// How fast it is used.
    pub fn pace(&self, now: Time) -> Option<AllowancePace> {
        pace(&self.quota, self.seen, now)
    }

    /// Applies a newer report. Within one window use only grows: of two turns that ran in parallel,
    /// the one that ends last may have the older report.
    pub fn renew(&mut self, quota: &Quota, seen: Time) {
        let same = match (self.quota.reset_at, quota.reset_at) {
            (Some(known), Some(new)) => known.0.abs_diff(new.0) <= SAME_RESET.as_millis() as u64,
            _ => false,
        };
        if !same || quota.used_permille >= self.quota.used_permille {
            *self = Self { quota: quota.clone(), seen };
        }
    }

    /// Until when a start has to wait so that the allowance lasts to the reset: until the line from
    /// nothing at the beginning to all of it at the reset has come up to what is used, less
    /// `ahead_permille`. Never beyond the reset. `None`: it may start now, or the window's end or
    /// length is unknown, or it is not the current window.
    pub fn hold(&self, ahead_permille: u32, now: Time) -> Option<Time> {
        let (reset, length) = (self.quota.reset_at?, length(&self.quota)?);
        let begin = reset - length;
        if reset <= now || begin > now {
            return None;
        }
        let until = if self.quota.used_permille >= 1000 {
            reset
        } else {
            let due = u128::from(self.quota.used_permille.saturating_sub(ahead_permille));
            let ms = (due * length.as_millis()).div_ceil(1000);
            begin + Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
        };
        Some(until.min(reset)).filter(|until| *until > now)
    }
}

/// Length of a window, as reported or derived from its name.
pub fn length(quota: &Quota) -> Option<Duration> {
    let named = match quota.window.as_str() {
        "five_hour" => Some(Duration::from_secs(5 * 3600)),
        "seven_day" => Some(Duration::from_secs(7 * 86_400)),
        _ => None,
    };
    quota.length_ms.filter(|ms| *ms > 0).map(Duration::from_millis).or(named)
}

/// The pace since the window began, from the report at `seen`. `None` when it cannot be known: no
/// end, no length, a window that is over at `now`, or one that has hardly begun.
pub fn pace(quota: &Quota, seen: Time, now: Time) -> Option<AllowancePace> {
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
    Some(AllowancePace {
        elapsed_permille: small(elapsed_permille),
        at_reset_permille: small(at_reset),
        empty_at: until_empty.map(|ms| begin + Duration::from_millis(ms)),
    })
}

/// `a * b / c`, without overflow.
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
    use crate::jitter::mix;

    const HOUR: i64 = 3_600_000;

    /// A window of five hours that resets at 5 h, seen at `seen` hours with this much used.
    fn of(used_permille: u32, seen: i64) -> Option<AllowancePace> {
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

    fn window(used_permille: u32, reset_at: Option<Time>, length_ms: Option<u64>) -> Window {
        Window { quota: Quota { window: "w".into(), used_permille, reset_at, length_ms }, seen: Time(0) }
    }

    #[test]
    fn a_start_waits_until_the_line_has_come_up_to_what_is_used() {
        let five = |used| window(used, Some(Time(5 * HOUR)), Some(5 * HOUR as u64));
        let hold = |used, now| five(used).hold(AHEAD_PERMILLE, Time(now));
        assert_eq!(hold(0, 0), None);
        assert_eq!(hold(50, 0), None, "a first turn in a fresh window");
        assert_eq!(hold(450, HOUR), Some(Time(2 * HOUR)));
        assert_eq!(hold(450, 2 * HOUR), None);
        assert_eq!(hold(999, 5 * HOUR * 19 / 20), None, "what is left near the end may be used");
        assert_eq!(hold(1000, 4 * HOUR), Some(Time(5 * HOUR)), "nothing is left");
        assert_eq!(hold(2000, 4 * HOUR), Some(Time(5 * HOUR)));
        assert_eq!(hold(1000, 5 * HOUR), None, "it starts anew");
        assert_eq!(five(450).hold(AHEAD_URGENT_PERMILLE, Time(5 * HOUR / 4)), None, "an urgent task goes ahead");
    }

    #[test]
    fn without_an_end_or_a_length_nothing_is_held() {
        let at = Some(Time(5 * HOUR));
        for quota in [window(900, None, Some(1)), window(900, at, None), window(900, at, Some(0))] {
            assert_eq!(quota.hold(AHEAD_PERMILLE, Time(HOUR)), None, "{quota:?}");
        }
        let ahead = window(900, Some(Time(9 * HOUR)), Some(5 * HOUR as u64));
        assert_eq!(ahead.hold(AHEAD_PERMILLE, Time(HOUR)), None, "it begins in the future");
        let odd = window(u32::MAX, Some(Time(i64::MAX)), Some(u64::MAX));
        assert_eq!(odd.hold(0, Time(0)), Some(Time(i64::MAX)), "and no figures overflow");
    }

    #[test]
    fn a_busy_account_is_near_empty_at_its_reset_and_never_far_ahead_of_the_line() {
        for seed in 0..500 {
            let length = 60_000 + mix(seed, 1) % (7 * 86_400_000);
            let most = 1 + mix(seed, 2) % 20;
            // Fast enough that without a pace it would be empty long before.
            let slowest = (length * most / 1000 * 4 / 5).max(1);
            let reset = Time(length as i64);
            let (mut now, mut used, mut turns) = (Time(0), 0_u32, 0_u64);
            while now < reset {
                turns += 1;
                assert!(turns < 10_000, "seed {seed}: it spins");
                if let Some(until) = window(used, Some(reset), Some(length)).hold(AHEAD_PERMILLE, now) {
                    assert!(until > now && until <= reset, "seed {seed}: {until:?}");
                    now = until;
                    continue;
                }
                let line = now.0 as u64 * 1000 / length;
                assert!(used < 1000 && u64::from(used) <= line + 50, "seed {seed}: {used} at {line}");
                used += most as u32;
                now = now + Duration::from_millis(mix(seed, turns) % slowest);
            }
            assert!(used >= 900, "seed {seed}: only {used} were used, {most} at a time");
        }
    }

    #[test]
    fn within_a_window_use_only_grows() {
        let quota = |used_permille, reset| Quota {
            window: "five_hour".into(),
            used_permille,
            reset_at: Some(Time(reset)),
            length_ms: None,
        };
        let mut window = Window { quota: quota(600, 5 * HOUR), seen: Time(1) };
        window.renew(&quota(300, 5 * HOUR + 900), Time(2));
        assert_eq!((window.quota.used_permille, window.seen), (600, Time(1)), "it ran in parallel and reports less");
        window.renew(&quota(700, 5 * HOUR), Time(3));
        assert_eq!(window.quota.used_permille, 700);
        window.renew(&quota(10, 10 * HOUR), Time(4));
        assert_eq!((window.quota.used_permille, window.seen), (10, Time(4)), "a new window");
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
