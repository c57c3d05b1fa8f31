//! Metabolism: how much arrives for a persona, from 0 to 1, and the beat that follows from it.
//! Failures only ever lower it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rate::SignalRate;
use crate::planted::{self, Bug};
use crate::time::Time;

/// After this time what arrived is fresh by 1/e.
const FRESH: Duration = Duration::from_secs(3600);
/// A channel counts for this long after something arrived on it.
const ACTIVE: Duration = Duration::from_secs(86_400);
/// Arrivals per hour that are full volume.
const FULL_PER_HOUR: f64 = 30.0;
/// The beat without any metabolism, and with all of it.
const SLOWEST_BEAT_SECS: f64 = 300.0;
const QUICKEST_BEAT_SECS: f64 = 30.0;
/// Latest turns of which the outcome counts.
const OUTCOMES_KEPT: usize = 10;

/// The way on which something arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    Signal,
    Message,
    Task,
    Monitor,
}

impl Channel {
    /// All four channels.
    pub const ALL: [Channel; 4] = [Channel::Signal, Channel::Message, Channel::Task, Channel::Monitor];
}

/// When something last arrived, by channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Arrivals(BTreeMap<Channel, Time>);

impl Arrivals {
    /// Notes an arrival.
    pub fn add(&mut self, channel: Channel, now: Time) {
        let last = self.0.entry(channel).or_insert(now);
        *last = (*last).max(now);
    }
}

/// How the latest turns ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TurnOutcomes(Vec<TurnOutcome>);

/// How a turn ended, as far as rhythm is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnOutcome {
    Good,
    Failed,
}

impl TurnOutcomes {
    /// Adds the latest one.
    pub fn add(&mut self, outcome: TurnOutcome) {
        self.0.push(outcome);
        let extra = self.0.len().saturating_sub(OUTCOMES_KEPT);
        self.0.drain(..extra);
    }

    /// Share of failures; 0 before the first turn.
    pub fn failure_ratio(&self) -> f64 {
        let failed = self.0.iter().filter(|outcome| **outcome == TurnOutcome::Failed).count();
        if self.0.is_empty() { 0.0 } else { failed as f64 / self.0.len() as f64 }
    }
}

/// What the metabolism is made of; each part is from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Vitals {
    pub freshness: f64,
    pub diversity: f64,
    pub volume: f64,
    pub failures: f64,
}

impl Vitals {
    /// The parts at a moment.
    pub fn of(arrivals: &Arrivals, rate: SignalRate, outcomes: &TurnOutcomes, now: Time) -> Self {
        let newest = arrivals.0.values().max();
        let freshness = newest.map_or(0.0, |at| (-now.since(*at).as_secs_f64() / FRESH.as_secs_f64()).exp());
        let active = arrivals.0.values().filter(|at| now.since(**at) <= ACTIVE).count();
        let diversity = active as f64 / Channel::ALL.len() as f64;
        let volume = rate.at(now).recent / FULL_PER_HOUR;
        Self { freshness, diversity, volume, failures: outcomes.failure_ratio() }
    }

    /// The metabolism M.
    pub fn metabolism(self) -> f64 {
        let part = |value: f64| if value.is_finite() { value.clamp(0.0, 1.0) } else { 0.0 };
        let arrives = 0.4 * part(self.freshness) + 0.4 * part(self.diversity) + 0.2 * part(self.volume);
        let failures = if self.failures.is_finite() { self.failures.clamp(0.0, 1.0) } else { 1.0 };
        if planted::is(Bug::RhythmFailuresSpeedUp) {
            return (arrives * (1.0 + failures)).clamp(0.0, 1.0);
        }
        arrives * (1.0 - failures)
    }
}

/// The beat at a metabolism: 300 s without any, 30 s at most.
pub fn beat(metabolism: f64) -> Duration {
    let m = if metabolism.is_finite() { metabolism.clamp(0.0, 1.0) } else { 0.0 };
    Duration::from_secs_f64(SLOWEST_BEAT_SECS * (QUICKEST_BEAT_SECS / SLOWEST_BEAT_SECS).powf(m))
}

/// What an interval is multiplied with: the beat against the slowest one. So without metabolism an
/// interval stays as it is, and with all of it a tenth is left.
pub fn factor(metabolism: f64) -> f64 {
    beat(metabolism).as_secs_f64() / SLOWEST_BEAT_SECS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rhythm::tests_support::minutes;

    #[test]
    fn the_formula() {
        let vitals = |freshness, diversity, volume, failures| Vitals { freshness, diversity, volume, failures };
        for (vitals, m, secs) in [
            (vitals(0.0, 0.0, 0.0, 0.0), 0.0, 300.0),
            (vitals(1.0, 1.0, 1.0, 0.0), 1.0, 30.0),
            (vitals(1.0, 0.0, 0.5, 0.0), 0.5, 94.868),
            (vitals(1.0, 1.0, 1.0, 0.5), 0.5, 94.868),
            (vitals(1.0, 1.0, 1.0, 1.0), 0.0, 300.0),
            (vitals(9.0, -1.0, f64::NAN, 0.0), 0.4, 119.432),
            (vitals(1.0, 1.0, 1.0, f64::NAN), 0.0, 300.0),
        ] {
            let found = vitals.metabolism();
            assert!((found - m).abs() < 1e-9, "{vitals:?}: {found}");
            assert!((beat(found).as_secs_f64() - secs).abs() < 0.001, "{vitals:?}: {:?}", beat(found));
        }
    }

    #[test]
    fn failures_never_speed_it_up() {
        for n in 0_u32..=10 {
            let failures = f64::from(n) / 10.0;
            let with = Vitals { freshness: 0.5, diversity: 0.4, volume: 0.1, failures };
            let without = Vitals { failures: 0.0, ..with };
            assert!(beat(with.metabolism()) >= beat(without.metabolism()), "{failures}");
        }
    }

    #[test]
    fn parts_come_from_what_arrived() {
        let now = Time(1_000_000_000_000);
        let (mut arrivals, mut outcomes) = (Arrivals::default(), TurnOutcomes::default());
        assert_eq!(Vitals::of(&arrivals, SignalRate::default(), &outcomes, now), Vitals::default());
        arrivals.add(Channel::Signal, now - minutes(60 * 25));
        arrivals.add(Channel::Task, now - minutes(60));
        for _ in 0..12 {
            outcomes.add(TurnOutcome::Good);
        }
        outcomes.add(TurnOutcome::Failed);
        outcomes.add(TurnOutcome::Failed);
        let vitals = Vitals::of(&arrivals, SignalRate { recent: 15.0, floor: 1.0, at: now }, &outcomes, now);
        assert!((vitals.freshness - (-1.0_f64).exp()).abs() < 1e-9);
        assert_eq!((vitals.diversity, vitals.volume, vitals.failures), (0.25, 0.5, 0.2));
    }
}
