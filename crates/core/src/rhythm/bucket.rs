//! The wake budget of a persona: a bucket that refills steadily. An empty one waits for its refill;
//! a high signal may overdraw it by one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::planted::{self, Bug};
use crate::time::{Time, millis, parse_duration};

/// One wake in the bucket's unit: fine enough that rounding down loses no wake in a year.
const WAKE: i64 = 1_000_000;
/// Most wakes and longest period of a budget.
const WAKES_MOST: u32 = 10_000;
const PER_MOST: Duration = Duration::from_secs(7 * 86_400);

/// So many wakes in such a time; also the size of the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeAllowance {
    pub wakes: u32,
    #[serde(with = "millis")]
    pub per: Duration,
}

impl WakeAllowance {
    /// Reads `4/h`, `20/day` or `3/90m`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is no wake budget; hint: write it like `4/h` or `20/day`");
        let (wakes, per) = text.split_once('/').ok_or_else(bad)?;
        let per = match per.trim() {
            "m" | "min" | "minute" => Duration::from_secs(60),
            "h" | "hour" => Duration::from_secs(3600),
            "d" | "day" => Duration::from_secs(86_400),
            other => parse_duration(other).map_err(|_| bad())?,
        };
        let allowance = Self { wakes: wakes.trim().parse().map_err(|_| bad())?, per };
        if allowance.is_valid() { Ok(allowance) } else { Err(bad()) }
    }

    /// Whether it allows anything, within limits.
    pub fn is_valid(self) -> bool {
        (1..=WAKES_MOST).contains(&self.wakes) && self.per >= Duration::from_secs(1) && self.per <= PER_MOST
    }

    fn capacity(self) -> i64 {
        i64::from(self.wakes) * WAKE
    }

    fn per_ms(self) -> i128 {
        i128::try_from(self.per.as_millis()).unwrap_or(i128::MAX).max(1)
    }

    fn refill(self, elapsed: Duration) -> i64 {
        let elapsed = i128::try_from(elapsed.as_millis()).unwrap_or(i128::MAX);
        let amount = elapsed.saturating_mul(i128::from(self.capacity())) / self.per_ms();
        i64::try_from(amount).unwrap_or(i64::MAX)
    }
}

/// The bucket; full before the first wake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WakeBucket {
    /// What is missing to a full bucket, in millionths of a wake.
    missing: i64,
    at: Time,
}

/// Whether a wake is ordinary or may overdraw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Needs a whole wake in the bucket.
    Ordinary,
    /// May leave the bucket one wake below empty.
    Urgent,
}

impl WakeBucket {
    /// The balance in thousandths of a wake.
    pub fn balance_milli(self, allowance: WakeAllowance, now: Time) -> i64 {
        self.balance(allowance, now).div_euclid(1_000)
    }

    fn balance(self, allowance: WakeAllowance, now: Time) -> i64 {
        let missing = self.missing.saturating_sub(allowance.refill(now.since(self.at))).max(0);
        allowance.capacity().saturating_sub(missing)
    }

    /// The first moment from `now` on at which the wake is allowed.
    pub fn allows_at(self, allowance: WakeAllowance, demand: Demand, now: Time) -> Time {
        let needed = match demand {
            Demand::Ordinary => WAKE,
            Demand::Urgent if planted::is(Bug::RhythmOverdraftUnbounded) => i64::MIN,
            Demand::Urgent => 0,
        };
        let short = i128::from(needed) - i128::from(self.balance(allowance, now));
        if short <= 0 {
            return now;
        }
        // Rounded up, so that the wake is allowed at that moment. The refill counts from the last
        // wake; a part of a unit of it may be gone by rounding.
        let wait = (short + 1) * allowance.per_ms() / i128::from(allowance.capacity()) + 1;
        // After a clock that went back the refill goes on where it was; a clock that is wrong by
        // days must not hold a persona for days.
        let from = self.at.max(now).min(now + allowance.per);
        from + Duration::from_millis(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    /// Takes one wake.
    pub fn take(&mut self, allowance: WakeAllowance, now: Time) {
        let balance = self.balance(allowance, now) - WAKE;
        self.missing = allowance.capacity() - balance;
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rhythm::tests_support::minutes;

    const FOUR: WakeAllowance = WakeAllowance { wakes: 4, per: Duration::from_secs(3600) };
    const NOW: Time = Time(1_000_000_000);

    #[test]
    fn budgets_are_read() {
        for (text, wakes, secs) in [("4/h", 4, 3600), ("20/day", 20, 86_400), (" 3 / 90m ", 3, 5400), ("1/min", 1, 60)]
        {
            assert_eq!(
                WakeAllowance::parse(text),
                Ok(WakeAllowance { wakes, per: Duration::from_secs(secs) }),
                "{text}"
            );
        }
        for bad in ["", "4", "0/h", "-1/h", "4/", "4/fortnight", "99999/h", "1/9d", "1/0"] {
            assert!(WakeAllowance::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_empty_bucket_waits_for_its_refill() {
        let mut bucket = WakeBucket::default();
        for left in [3_000, 2_000, 1_000, 0] {
            assert_eq!(bucket.allows_at(FOUR, Demand::Ordinary, NOW), NOW);
            bucket.take(FOUR, NOW);
            assert_eq!(bucket.balance_milli(FOUR, NOW), left);
        }
        let at = bucket.allows_at(FOUR, Demand::Ordinary, NOW);
        let exact = NOW + minutes(15);
        assert!(at >= exact && at <= exact + Duration::from_millis(10), "{:?}", at.since(NOW));
        assert_eq!(bucket.allows_at(FOUR, Demand::Ordinary, at), at, "it is allowed at the moment it names");
        assert_eq!(bucket.balance_milli(FOUR, NOW + minutes(600)), 4_000, "it is never more than full");
    }

    #[test]
    fn urgent_wakes_overdraw_by_one() {
        let mut bucket = WakeBucket::default();
        for _ in 0..4 {
            bucket.take(FOUR, NOW);
        }
        assert_eq!(bucket.allows_at(FOUR, Demand::Urgent, NOW), NOW);
        bucket.take(FOUR, NOW);
        assert_eq!(bucket.balance_milli(FOUR, NOW), -1_000);
        let again = bucket.allows_at(FOUR, Demand::Urgent, NOW);
        assert!(again >= NOW + minutes(15) && again < NOW + minutes(16), "a second one waits");
        let ordinary = bucket.allows_at(FOUR, Demand::Ordinary, NOW);
        assert!(ordinary >= NOW + minutes(30) && ordinary < NOW + minutes(31));
    }

    #[test]
    fn a_year_of_wakes_stays_within_the_budget() {
        let (mut bucket, mut now, mut wakes) = (WakeBucket::default(), NOW, 0_u64);
        let end = NOW + Duration::from_secs(30 * 86_400);
        while now < end {
            now = bucket.allows_at(FOUR, Demand::Ordinary, now);
            bucket.take(FOUR, now);
            wakes += 1;
        }
        assert!((30 * 24 * 4..=30 * 24 * 4 + 5).contains(&wakes), "{wakes}");
    }

    #[test]
    fn a_clock_that_goes_back_refills_nothing() {
        let mut bucket = WakeBucket::default();
        for _ in 0..4 {
            bucket.take(FOUR, NOW);
        }
        bucket.take(FOUR, NOW - minutes(60));
        assert_eq!(bucket.balance_milli(FOUR, NOW), -1_000);
        let back = NOW - minutes(30);
        let at = bucket.allows_at(FOUR, Demand::Urgent, back);
        assert!(at >= NOW + minutes(15) && at < NOW + minutes(16), "{:?}", at.since(NOW));
        assert!(bucket.allows_at(FOUR, Demand::Urgent, Time(0)) < Time(0) + minutes(76));
    }
}
