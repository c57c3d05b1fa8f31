//! The smoothed rate of signals of a persona, against its own noise floor. A persona that gets more
//! than usual looks sooner; one with sources that fell silent looks later.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// Memory of the recent rate: an hour is the scale of what people and builds do.
const RECENT: Duration = Duration::from_secs(3600);
/// Memory of the noise floor: a day, so that the time of day is no news.
const FLOOR: Duration = Duration::from_secs(86_400);
/// Rate that is added to both: one signal a day is no news and no silence.
const PRIOR_PER_HOUR: f64 = 1.0 / 24.0;
/// Above this rate signals do not raise it further: a storm must not pass for the usual for weeks.
const MOST_PER_HOUR: f64 = 60.0;
/// Lower bound of the factor.
pub const FACTOR_LEAST: f64 = 0.25;
/// Upper bound of the factor.
pub const FACTOR_MOST: f64 = 4.0;

/// Signals per hour, smoothed twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SignalRate {
    pub recent: f64,
    pub floor: f64,
    pub at: Time,
}

impl SignalRate {
    /// Both rates as they have decayed until `now`.
    #[must_use]
    pub fn at(self, now: Time) -> Self {
        let elapsed = now.since(self.at);
        let decayed = |rate: f64, memory: Duration| {
            let kept = rate * (-elapsed.as_secs_f64() / memory.as_secs_f64()).exp();
            // What is left after months is no number to keep.
            if kept < 1e-9 { 0.0 } else { kept }
        };
        Self { recent: decayed(self.recent, RECENT), floor: decayed(self.floor, FLOOR), at: self.at.max(now) }
    }

    /// Counts a signal.
    pub fn add(&mut self, now: Time) {
        let mut rate = self.at(now);
        if rate.recent < MOST_PER_HOUR {
            rate.recent += 3600.0 / RECENT.as_secs_f64();
            rate.floor += 3600.0 / FLOOR.as_secs_f64();
        }
        *self = rate;
    }

    /// The factor of the interval.
    pub fn factor(self, now: Time) -> f64 {
        let rate = self.at(now);
        let factor = (rate.floor + PRIOR_PER_HOUR) / (rate.recent + PRIOR_PER_HOUR);
        if factor.is_finite() { factor.clamp(FACTOR_LEAST, FACTOR_MOST) } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rhythm::tests_support::minutes;

    const NOW: Time = Time(1_000_000_000_000);

    fn is(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 1e-9
    }

    #[test]
    fn more_than_usual_shortens_and_silence_lengthens() {
        let mut rate = SignalRate::default();
        assert!(is(rate.factor(NOW), 1.0), "nothing ever arrived");
        // A day with one signal every ten minutes becomes the floor.
        let mut now = NOW;
        for _ in 0..3 * 144 {
            rate.add(now);
            now = now + minutes(10);
        }
        let usual = rate.factor(now);
        assert!((0.7..1.4).contains(&usual), "{usual}");
        let mut storm = rate;
        for _ in 0..30 {
            storm.add(now);
        }
        assert!(is(storm.factor(now), FACTOR_LEAST));
        assert!(is(rate.factor(now + minutes(300)), FACTOR_MOST), "its sources fell silent");
        assert!((rate.factor(now + minutes(60 * 24 * 30)) - 1.0).abs() < 0.01, "in the end silence is usual");
    }

    #[test]
    fn a_storm_is_forgotten_within_days() {
        let mut rate = SignalRate::default();
        for n in 0..10_000 {
            rate.add(NOW + Duration::from_millis(6 * n));
        }
        assert!(rate.recent <= MOST_PER_HOUR + 1.0 && rate.floor < 3.0, "{rate:?}");
        assert!(rate.factor(NOW + minutes(60 * 24 * 7)) < 1.2);
    }

    #[test]
    fn the_factor_is_always_within_its_bounds() {
        for bad in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            for other in [f64::NAN, 0.0, 5.0] {
                let rate = SignalRate { recent: bad, floor: other, at: NOW };
                let factor = rate.factor(NOW + minutes(1));
                assert!((FACTOR_LEAST..=FACTOR_MOST).contains(&factor), "{rate:?}: {factor}");
            }
        }
    }
}
