//! When a persona looks next: one pure function. Every factor that counted is named in the answer,
//! in the order in which it was applied, so that `why` can read it out.
//!
//! The order: what the last look brought, empty looks, the rate of signals, the metabolism, the
//! bounds; then the agent's wish or cron in place of that; then what wakes it at once; then the
//! wake budget, what the guard holds, and quiet hours, each of which only delays. So nothing that
//! hastens a look comes after a hold.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bucket::{Demand, WakeBucket};
use super::cadence::Cadence;
use super::calendar::{Calendar, cron_due};
use super::factor::{Factor, Hold};
use super::metabolism::{self, Arrivals, TurnOutcomes, Vitals};
use super::rate::SignalRate;
use super::signal::SignalClass;
use super::wish::WakeWish;
use crate::planted::{self, Bug};
use crate::time::Time;

/// A look by cron is at most this far away: an expression may match once in years, and a look costs
/// nothing.
const CRON_MOST: Duration = Duration::from_secs(366 * 86_400);

/// What the last look brought.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Brought {
    #[default]
    Nothing,
    Tasks {
        count: u32,
        urgent: bool,
    },
}

/// Why a persona is to look at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum WakeCause {
    Signal {
        class: SignalClass,
    },
    /// A person, by `everloop wake`.
    Person,
    /// More waited than the last look took.
    Backlog {
        left: u64,
    },
}

impl WakeCause {
    /// Whether it may overdraw the wake budget and passes through quiet hours.
    pub fn is_urgent(&self) -> bool {
        match self {
            WakeCause::Signal { class } => *class == SignalClass::High,
            WakeCause::Person => true,
            WakeCause::Backlog { .. } => false,
        }
    }

    /// Of two causes the one that decides: people, then what is urgent.
    #[must_use]
    pub fn stronger(self, other: Self) -> Self {
        let rank = |cause: &Self| match cause {
            WakeCause::Person => 4,
            WakeCause::Signal { class: SignalClass::High } => 3,
            WakeCause::Signal { class: SignalClass::Medium } => 2,
            WakeCause::Signal { class: SignalClass::Low } => 1,
            WakeCause::Backlog { .. } => 0,
        };
        if rank(&other) > rank(&self) { other } else { self }
    }
}

/// What the next look depends on; a part of the persona's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct History {
    /// When the last look and its work ended.
    pub rested_at: Option<Time>,
    pub brought: Brought,
    /// Looks in a row without work.
    pub empty: u32,
    /// Something wakes it at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<WakeCause>,
    /// The agent's wish, until the next look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wish: Option<WakeWish>,
    pub bucket: WakeBucket,
    pub rate: SignalRate,
    pub arrivals: Arrivals,
    pub outcomes: TurnOutcomes,
}

impl History {
    /// The parts of the metabolism at a moment.
    pub fn vitals(&self, now: Time) -> Vitals {
        Vitals::of(&self.arrivals, self.rate, &self.outcomes, now)
    }
}

/// Facts from outside of the persona's state.
#[derive(Clone, Copy)]
pub struct Hints<'a> {
    pub calendar: &'a dyn Calendar,
    /// What the guard holds it with.
    pub hold: Option<&'a Hold>,
}

/// The next look.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Next {
    pub at: Time,
    /// It looks earlier if this flag is raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flag: Option<String>,
    /// It looks earlier if a signal of this topic arrives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    pub because: Vec<Factor>,
}

impl Next {
    /// All factors in one sentence each.
    pub fn describe(&self, clock: &dyn Fn(Time) -> String) -> Vec<String> {
        self.because.iter().map(|factor| factor.describe(clock)).collect()
    }
}

/// When a persona looks next, from `now` on. When that time has come it is called again, and the
/// look begins only if the answer is still `now`: a hold or a clock may have changed meanwhile.
pub fn next(cadence: &Cadence, history: &History, hints: &Hints<'_>, now: Time) -> Next {
    let next = Next { at: now, flag: None, topic: None, because: Vec::new() };
    let mut planner = Planner { cadence, history, hints: *hints, now, next };
    planner.schedule();
    planner.wake();
    planner.spend();
    planner.hold();
    planner.rest();
    planner.next
}

struct Planner<'a> {
    cadence: &'a Cadence,
    history: &'a History,
    hints: Hints<'a>,
    now: Time,
    next: Next,
}

impl Planner<'_> {
    fn because(&mut self, factor: Factor) {
        self.next.because.push(factor);
    }

    /// The look that comes by itself.
    fn schedule(&mut self) {
        let Some(rested) = self.history.rested_at else { return self.because(Factor::First) };
        // A clock that went back must not make a nap longer than the cadence allows.
        let rested = if planted::is(Bug::RhythmClockJumpLosesWake) { rested } else { rested.min(self.now) };
        let by_cron = self.cron(rested);
        let wished = self.wish(rested);
        let at = match (by_cron, wished) {
            (Some(cron), Some(wished)) => cron.min(wished),
            (Some(at), None) | (None, Some(at)) => at,
            (None, None) => rested + self.interval(rested),
        };
        if at < self.now {
            self.because(Factor::Overdue { since: at });
        }
        self.next.at = if planted::is(Bug::RhythmMissedWakesPileUp) { at } else { at.max(self.now) };
    }

    /// The interval after the last look, within the bounds. As it was at that moment: a nap that goes
    /// on without news has one end, so nothing is written about it.
    fn interval(&mut self, rested: Time) -> Duration {
        let window = self.cadence.window(self.hints.calendar, rested).copied();
        if let Some(window) = window {
            self.because(Factor::Window { hours: window.hours });
        }
        let pace = window.map_or(self.cadence.pace, |window| window.pace);
        if self.cadence.fixed {
            self.because(Factor::Fixed { interval: pace.nothing });
            return self.bounded(pace.nothing);
        }
        let (tasks, urgent) = match self.history.brought {
            Brought::Nothing => (0, false),
            Brought::Tasks { count, urgent } => (count, urgent),
        };
        let interval = match (tasks, urgent) {
            (0, false) => pace.nothing,
            (1..=2, false) => pace.few,
            (3.., _) | (_, true) => pace.many,
        };
        self.because(Factor::Brought { tasks, urgent, interval });
        let interval = self.stretched(interval);
        let interval = self.weighted(interval, rested);
        let interval = self.metabolic(interval, rested);
        self.bounded(interval)
    }

    /// Looks without work, again and again: the first one is the pace itself.
    fn stretched(&mut self, interval: Duration) -> Duration {
        let times = self.history.empty;
        if times < 2 {
            return interval;
        }
        let percent = self.cadence.stretch_percent;
        let factor = (f64::from(percent) / 100.0).powf(f64::from(times.min(1_000) - 1));
        let interval = scaled(interval, factor);
        self.because(Factor::Empty { times, percent, interval });
        interval
    }

    fn weighted(&mut self, interval: Duration, rested: Time) -> Duration {
        let factor = self.history.rate.factor(rested);
        if !self.cadence.weighted || (factor - 1.0).abs() < 0.005 {
            return interval;
        }
        let rate = self.history.rate.at(rested);
        let interval = scaled(interval, factor);
        self.because(Factor::Signals {
            recent_per_day: rate.recent * 24.0,
            usual_per_day: rate.floor * 24.0,
            factor_percent: percent(factor),
            interval,
        });
        interval
    }

    fn metabolic(&mut self, interval: Duration, rested: Time) -> Duration {
        if !self.cadence.metabolic {
            return interval;
        }
        let vitals = self.history.vitals(rested);
        let m = vitals.metabolism();
        let interval = scaled(interval, metabolism::factor(m));
        self.because(Factor::Metabolism {
            percent: percent(m),
            failed_percent: percent(vitals.failures),
            beat: metabolism::beat(m),
            interval,
        });
        interval
    }

    fn bounded(&mut self, wanted: Duration) -> Duration {
        let interval = self.within(wanted);
        if interval > wanted {
            self.because(Factor::Shortest { wanted, interval });
        }
        if interval < wanted {
            self.because(Factor::Longest { wanted, interval });
        }
        interval
    }

    fn within(&self, wanted: Duration) -> Duration {
        let longest = if planted::is(Bug::RhythmStretchesPastLongest) { Duration::MAX } else { self.cadence.longest };
        wanted.min(longest).max(self.cadence.shortest)
    }

    /// The agent's wish, within the bounds.
    fn wish(&mut self, rested: Time) -> Option<Time> {
        let wish = self.history.wish.clone()?;
        let text = wish.to_string();
        let moment = wish.moment(self.hints.calendar, &self.cadence.zone, self.cadence.morning, rested);
        let latest = rested + self.cadence.longest;
        match (&wish, moment) {
            (WakeWish::When { flag }, _) => {
                self.next.flag = Some(flag.clone());
                self.because(Factor::Flag { flag: flag.clone(), latest });
                return Some(if planted::is(Bug::RhythmFlagWithoutEnd) { Time(i64::MAX) } else { latest });
            }
            (WakeWish::On { topic, .. }, None) => {
                self.next.topic = Some(topic.clone());
                self.because(Factor::Topic { topic: topic.clone(), latest });
                return Some(latest);
            }
            (WakeWish::At { .. } | WakeWish::Tomorrow, None) => {
                self.because(Factor::WishUnknown { text });
                return None;
            }
            (WakeWish::In { .. } | WakeWish::At { .. } | WakeWish::Tomorrow | WakeWish::On { .. }, _) => {}
        }
        let wanted = moment.unwrap_or(latest);
        let uncut = planted::is(Bug::RhythmWishUncut);
        let at = if uncut { wanted } else { wanted.min(latest).max(rested + self.cadence.shortest) };
        let factor = if at == wanted { Factor::Wish { text, at } } else { Factor::WishCut { text, wanted, at } };
        self.because(factor);
        if let WakeWish::On { topic, .. } = wish {
            self.because(Factor::Topic { topic: topic.clone(), latest: at });
            self.next.topic = Some(topic);
        }
        Some(at)
    }

    fn cron(&mut self, rested: Time) -> Option<Time> {
        let expression = self.cadence.cron.clone()?;
        let Some(due) = cron_due(self.hints.calendar, &self.cadence.zone, &expression, (rested, self.now)) else {
            self.because(Factor::CronUnknown { expression });
            return None;
        };
        let at = due.at.min(self.now + CRON_MOST);
        self.because(Factor::Cron { expression, at });
        if due.missed > 0 {
            self.because(Factor::Missed { times: due.missed });
        }
        Some(at)
    }

    /// What ends a nap.
    fn wake(&mut self) {
        let Some(cause) = self.history.pending.clone() else { return };
        self.next.at = self.now;
        self.because(match cause {
            WakeCause::Signal { class } => Factor::Woken { class },
            WakeCause::Person => Factor::Person,
            WakeCause::Backlog { left } => Factor::Backlog { left },
        });
    }

    fn is_urgent(&self) -> bool {
        self.history.pending.as_ref().is_some_and(WakeCause::is_urgent)
    }

    /// The wake budget. A person's wake is not charged and needs none.
    fn spend(&mut self) {
        let Some(allowance) = self.cadence.wakes else { return };
        if self.history.pending == Some(WakeCause::Person) {
            return;
        }
        let demand = if self.is_urgent() { Demand::Urgent } else { Demand::Ordinary };
        let (bucket, at) = (self.history.bucket, self.next.at);
        let until = bucket.allows_at(allowance, demand, at);
        let balance_milli = bucket.balance_milli(allowance, at);
        if until > at {
            self.because(Factor::Budget { balance_milli, until });
            self.next.at = until;
        } else if balance_milli < 1_000 {
            self.because(Factor::Overdraft { balance_milli });
        }
    }

    /// What the guard holds: a signal ends a nap, never this.
    fn hold(&mut self) {
        let Some(hold) = self.hints.hold else { return };
        if self.history.pending.is_some() && planted::is(Bug::RhythmSignalEndsCooldown) {
            return;
        }
        // Without an end by itself it is looked at again as rarely as the cadence allows.
        let until = hold.until().unwrap_or(self.now + self.cadence.longest);
        if until > self.next.at {
            self.because(Factor::Held { hold: hold.clone() });
            self.next.at = until;
        }
    }

    /// Quiet hours only delay what is not urgent.
    fn rest(&mut self) {
        let Some(hours) = self.cadence.quiet.filter(|_| !self.is_urgent()) else { return };
        if let Some(until) = hours.ends(self.hints.calendar, &self.cadence.zone, self.next.at) {
            self.because(Factor::Quiet { hours, until });
            self.next.at = until;
        }
    }
}

/// An interval times a factor; far above every bound rather than an overflow.
fn scaled(interval: Duration, factor: f64) -> Duration {
    const MOST_SECS: f64 = 1e9;
    Duration::from_millis(((interval.as_secs_f64() * factor).clamp(0.0, MOST_SECS) * 1000.0).round() as u64)
}

fn percent(factor: f64) -> u32 {
    (factor * 100.0).round() as u32
}

#[cfg(test)]
mod tests;
