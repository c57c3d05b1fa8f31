//! More turns, time or budget for a loop: its limits afterwards, or the one that would end it at
//! once.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::time::Duration;

use crate::event::LoopEnd;
use crate::research::shared;
use crate::spec::{Bounds, Budget};
use crate::state::{LoopState, Phase};
use crate::time::Time;

/// What a loop may use beyond what it has used; `None` leaves a limit as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raise {
    pub turns: Option<u32>,
    pub time: Option<Duration>,
    pub deadline: Option<Time>,
    pub calls: Option<u64>,
    pub tokens: Option<u64>,
    pub microusd: Option<u64>,
}

/// The limits of a loop.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunLimits {
    pub bounds: Bounds,
    pub budget: Budget,
}

impl RunLimits {
    /// The limits that hold now.
    pub fn of(state: &LoopState) -> Self {
        Self { bounds: state.spec.bounds.clone(), budget: state.spec.guard.budget.clone() }
    }

    /// The limit that this loop has used up under these limits, by its name.
    pub fn used_up(&self, state: &LoopState, now: Time) -> Option<&'static str> {
        let spent = &state.spend.spent;
        let over = |limit: Option<u64>, used: u64| limit.is_some_and(|limit| used >= limit);
        let rows = [
            ("turns", self.bounds.max_turns.is_some_and(|n| state.counted() >= n)),
            ("time", self.bounds.max_time.is_some_and(|time| state.time_used(now) >= time)),
            ("deadline", self.bounds.deadline.is_some_and(|at| at <= now)),
            ("calls", over(self.budget.calls, spent.calls)),
            ("tokens", over(self.budget.tokens, spent.tokens)),
            ("dollars", over(self.budget.microusd, spent.microusd)),
        ];
        rows.into_iter().find_map(|(name, is_over)| is_over.then_some(name))
    }

    /// The bound that ended a loop, when these limits have it as it was.
    pub fn still_ended(&self, state: &LoopState) -> Option<&'static str> {
        let Phase::Ended { ending: LoopEnd::Exhausted { bound }, .. } = &state.phase else { return None };
        let (old, new) = (Self::of(state), self);
        let rows = [
            ("turns", old.bounds.max_turns == new.bounds.max_turns),
            ("time", old.bounds.max_time == new.bounds.max_time),
            ("deadline", old.bounds.deadline == new.bounds.deadline),
            ("calls", old.budget.calls == new.budget.calls),
            ("tokens", old.budget.tokens == new.budget.tokens),
            ("dollars", old.budget.microusd == new.budget.microusd),
        ];
        rows.into_iter().find_map(|(name, same)| (name == bound && same).then_some(name))
    }
}

impl Raise {
    /// Whether nothing is raised.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What each of so many workers gets: all turns and the whole time, and an even part of the rest.
    #[must_use]
    pub fn share(&self, workers: usize) -> Self {
        let workers = u32::try_from(workers).unwrap_or(u32::MAX);
        let Raise { calls, tokens, microusd, .. } = *self;
        let Budget { calls, tokens, microusd } = shared::share(&Budget { calls, tokens, microusd }, workers);
        Self { calls, tokens, microusd, ..*self }
    }

    /// The limits of the loop with this much more.
    pub fn limits(&self, state: &LoopState, now: Time) -> RunLimits {
        let RunLimits { bounds, budget } = RunLimits::of(state);
        let further = |limit: Option<u64>, used: u64, more: Option<u64>| more.map(|n| used.saturating_add(n)).or(limit);
        RunLimits {
            bounds: Bounds {
                max_turns: self.turns.map(|n| state.counted().saturating_add(n)).or(bounds.max_turns),
                max_time: self.time.map(|time| state.time_used(now) + time).or(bounds.max_time),
                deadline: self.deadline.or(bounds.deadline),
            },
            budget: Budget {
                calls: further(budget.calls, state.spend.spent.calls, self.calls),
                tokens: further(budget.tokens, state.spend.spent.tokens, self.tokens),
                microusd: further(budget.microusd, state.spend.spent.microusd, self.microusd),
            },
        }
    }
}
