//! What is remembered of a persona: the fold of its steps. Bounded in size; the bodies of signals
//! that wait are rows of the ledger, the state only counts them.

use serde::{Deserialize, Serialize};

use super::cadence::Cadence;
use super::factor::Hold;
use super::inward::form::Reflection;
use super::inward::memory::MemoryChange;
use super::inward::plan::{IfWoken, PlanUse};
use super::inward::{Inward, InwardCost, InwardSpec, InwardState};
use super::metabolism::{Channel, TurnOutcome};
use super::next::{Brought, History, WakeCause};
use super::reflex::{Reflex, ReflexSpec, reflex};
use super::signal::{ReplyTo, Signal, SignalClass};
use super::wish::WakeWish;
use super::{glob, mood};
use crate::planted::{self, Bug};
use crate::time::Time;

/// A step of a persona, as an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum RhythmStep {
    /// A signal was taken in; its row is written in the same transaction.
    Received { at: Time, key: String, effect: Effect },
    /// Something arrived that wakes by itself: a task, a message.
    Arrived { at: Time, channel: Channel },
    /// A person wakes it.
    Summoned { at: Time },
    /// A look that found nothing to do.
    Looked { at: Time },
    /// A look found work, and a turn begins with so many of the signals that waited.
    Began {
        at: Time,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<WakeCause>,
        taken: u64,
        /// Those of them that are no reason for a turn.
        #[serde(default)]
        ignored: u64,
        /// Whether a plan of a dream was for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        plan: Option<PlanUse>,
        /// Where its end is answered.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        replies: Vec<ReplyTo>,
    },
    /// The work of a look is over.
    Rested {
        at: Time,
        outcome: TurnOutcome,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wish: Option<WakeWish>,
    },
    /// A reflection or a dream begins.
    TurnedInward { at: Time, inward: Inward },
    /// A reflection has ended with an answer.
    Reflected { at: Time, reflection: Box<Reflection>, used: InwardCost },
    /// A dream has ended with an answer.
    Dreamed {
        at: Time,
        memory: MemoryChange,
        /// `None` leaves those before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        plans: Option<Vec<IfWoken>>,
        /// What was dropped of the answer, as sentences.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        dropped: Vec<String>,
        used: InwardCost,
    },
    /// A reflection or a dream has ended without an answer that could be read.
    Unanswered { at: Time, inward: Inward, why: String, used: InwardCost },
    /// A person added a line to the memory.
    Remembered { at: Time, by: String, line: String },
}

/// What a signal did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Effect {
    Ignored,
    Faint,
    Wakes { class: SignalClass },
}

/// The state that everything shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum PersonaStatus {
    Working,
    Looking,
    Reflecting,
    Dreaming,
    Asleep,
    Cooling { until: Time },
    Frozen,
    Parked,
    Blocked { flag: String },
}

impl PersonaStatus {
    /// The state in one word.
    pub fn as_str(&self) -> &'static str {
        match self {
            PersonaStatus::Working => "working",
            PersonaStatus::Looking => "looking",
            PersonaStatus::Reflecting => "reflecting",
            PersonaStatus::Dreaming => "dreaming",
            PersonaStatus::Asleep => "asleep",
            PersonaStatus::Cooling { .. } => "cooling",
            PersonaStatus::Frozen => "frozen",
            PersonaStatus::Parked => "parked",
            PersonaStatus::Blocked { .. } => "blocked",
        }
    }
}

/// What waking brought so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Yields {
    pub looks: u64,
    /// Looks that found work.
    pub worked: u64,
    pub signals: u64,
    pub ignored: u64,
    pub taken: u64,
    pub reflections: u64,
    pub dreams: u64,
    /// What reflections and dreams used.
    pub inward: InwardCost,
    /// Wakes with signals for which a dream had a plan, and those for which its plans were not.
    pub plan_hits: u64,
    pub plan_misses: u64,
}

/// The work of a look that is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Signals, messages or tasks in it.
    pub count: u32,
    pub urgent: bool,
}

/// The state of a persona.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PersonaState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
    pub history: History,
    /// The latest signal of class low since the last look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_low: Option<Time>,
    /// Signals that wait for a look, ignored ones included.
    pub waiting: u64,
    /// Those of them that are no reason for a turn.
    pub waiting_ignored: u64,
    pub yields: Yields,
    #[serde(skip_serializing_if = "InwardState::is_new")]
    pub inward: InwardState,
    /// Answers that the work under way owes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replies: Vec<ReplyTo>,
}

impl PersonaState {
    /// What a new signal does, and the copies for related personas.
    pub fn receive(&self, spec: &ReflexSpec, signal: &Signal, now: Time) -> (Effect, Vec<Signal>) {
        match reflex(spec, self.last_low, signal, now) {
            Reflex::Ignored { .. } => (Effect::Ignored, Vec::new()),
            // The agent waits for just this.
            Reflex::Faint { .. } if self.waits_for(&signal.topic) => {
                (Effect::Wakes { class: signal.class }, Vec::new())
            }
            Reflex::Faint { .. } => (Effect::Faint, Vec::new()),
            Reflex::Wakes { class, pass_on } => (Effect::Wakes { class }, pass_on),
        }
    }

    /// Whether the agent wants to be woken by this topic.
    fn waits_for(&self, topic: &str) -> bool {
        match &self.history.wish {
            Some(WakeWish::On { topic: wanted, .. }) => !topic.is_empty() && glob::matches(wanted, topic),
            Some(WakeWish::When { flag }) => flag == topic,
            Some(WakeWish::In { .. } | WakeWish::At { .. } | WakeWish::Tomorrow) | None => false,
        }
    }

    /// Whether signals wait that are a reason for a turn. Ignored ones are, once a person wakes it.
    pub fn has_signals(&self) -> bool {
        let summoned = self.history.pending == Some(WakeCause::Person);
        self.waiting > self.waiting_ignored || summoned && self.waiting > 0
    }

    /// Applies a step.
    pub fn apply(&mut self, step: &RhythmStep, cadence: &Cadence, inward: &InwardSpec) {
        self.inward.apply(step, inward);
        match step {
            RhythmStep::Received { at, effect, .. } => {
                self.received(*effect, *at);
                self.history.rate.add(*at);
                self.history.arrivals.add(Channel::Signal, *at);
            }
            RhythmStep::Arrived { at, channel } => {
                self.history.arrivals.add(*channel, *at);
                self.wake(WakeCause::Signal { class: SignalClass::Medium });
            }
            RhythmStep::Summoned { .. } => self.wake(WakeCause::Person),
            RhythmStep::Looked { at } => {
                let cause = self.history.pending.take();
                self.woke(cause.as_ref(), *at, cadence);
                self.history.empty = self.history.empty.saturating_add(1);
                self.history.brought = Brought::Nothing;
                self.history.rested_at = Some(*at);
            }
            RhythmStep::Began { at, cause, taken, ignored, plan, replies } => {
                self.replies.extend(replies.iter().cloned());
                self.woke(cause.as_ref(), *at, cadence);
                self.yields.worked += 1;
                self.yields.taken += taken;
                match plan {
                    Some(PlanUse::Hit { .. }) => self.yields.plan_hits += 1,
                    Some(PlanUse::Miss) => self.yields.plan_misses += 1,
                    None => {}
                }
                self.waiting = self.waiting.saturating_sub(*taken);
                self.waiting_ignored = self.waiting_ignored.saturating_sub(*ignored).min(self.waiting);
                let count = u32::try_from(*taken).unwrap_or(u32::MAX).max(1);
                let urgent = cause.as_ref().is_some_and(WakeCause::is_urgent);
                self.work = Some(Work { count, urgent });
            }
            RhythmStep::Rested { at, outcome, wish } => self.rested(*at, *outcome, wish.clone()),
            RhythmStep::TurnedInward { inward: Inward::Reflection { .. }, .. } => self.yields.reflections += 1,
            RhythmStep::TurnedInward { inward: Inward::Dream, .. } => self.yields.dreams += 1,
            RhythmStep::Reflected { reflection, used, .. } => {
                self.pay(*used);
                if reflection.wish.is_some() {
                    self.history.wish.clone_from(&reflection.wish);
                }
            }
            RhythmStep::Dreamed { used, .. } | RhythmStep::Unanswered { used, .. } => self.pay(*used),
            RhythmStep::Remembered { .. } => {}
        }
    }

    fn pay(&mut self, used: InwardCost) {
        self.yields.inward.tokens += used.tokens;
        self.yields.inward.microusd += used.microusd;
    }

    fn received(&mut self, effect: Effect, at: Time) {
        self.yields.signals += 1;
        match effect {
            Effect::Ignored => {
                self.yields.ignored += 1;
                if planted::is(Bug::RhythmIgnoredIsLost) {
                    return;
                }
                self.waiting_ignored += 1;
            }
            Effect::Faint => self.last_low = Some(at),
            Effect::Wakes { class } => self.wake(WakeCause::Signal { class }),
        }
        self.waiting += 1;
    }

    fn wake(&mut self, cause: WakeCause) {
        let pending = self.history.pending.take();
        self.history.pending = Some(pending.map_or(cause.clone(), |before| before.stronger(cause)));
    }

    fn woke(&mut self, cause: Option<&WakeCause>, at: Time, cadence: &Cadence) {
        self.yields.looks += 1;
        self.last_low = None;
        self.history.pending = None;
        self.history.wish = None;
        if let Some(allowance) = cadence.wakes.filter(|_| cause != Some(&WakeCause::Person)) {
            self.history.bucket.take(allowance, at);
        }
    }

    fn rested(&mut self, at: Time, outcome: TurnOutcome, wish: Option<WakeWish>) {
        let work = self.work.take().unwrap_or(Work { count: 0, urgent: false });
        self.history.outcomes.add(outcome);
        self.replies.clear();
        if !planted::is(Bug::RhythmNeverSnapsBack) {
            self.history.empty = 0;
        }
        self.history.rested_at = Some(at);
        self.history.brought = Brought::Tasks { count: work.count, urgent: work.urgent };
        self.history.wish = wish;
        let left = self.waiting - self.waiting_ignored;
        if left > 0 && !planted::is(Bug::RhythmBacklogForgotten) {
            self.wake(WakeCause::Backlog { left });
        }
    }

    /// The state of one that has no turn under way.
    pub fn status(&self, cadence: &Cadence, hold: Option<&Hold>) -> PersonaStatus {
        match (hold, &self.history.wish) {
            (Some(Hold::Frozen { .. }), _) => PersonaStatus::Frozen,
            (Some(Hold::Cooling { until } | Hold::Limited { until }), _) => PersonaStatus::Cooling { until: *until },
            (None, Some(WakeWish::When { flag })) => PersonaStatus::Blocked { flag: flag.clone() },
            (None, _) if cadence.park_after > 0 && self.history.empty >= cadence.park_after => PersonaStatus::Parked,
            (None, _) => PersonaStatus::Asleep,
        }
    }

    /// The word for its mood.
    pub fn mood(&self, hold: Option<&Hold>, now: Time) -> mood::Mood {
        let holding = if hold.is_some() { mood::Holding::Held } else { mood::Holding::Free };
        mood::mood(self.history.vitals(now).metabolism(), mood::ease(&self.history.outcomes, holding))
    }
}

#[cfg(test)]
mod tests;
