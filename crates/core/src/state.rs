//! What is known about a loop: the fold of its events. Bounded in size, because it is written with every commit.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::{Event, Exit, Integrated, Judgement, LoopEnd, Outcome, StopCause};
use crate::guard::{Permit, Spend};
use crate::ids::{Fence, LoopId, TaskId, TurnId};
use crate::op::Op;
use crate::reason::{Reason, RuleId};
use crate::scoreboard::Scoreboard;
use crate::spec::{AgentSpec, LoopSpec};
use crate::stream::Usage;
use crate::telemetry::UsageSource;
use crate::time::{Time, millis};
use crate::watch::{self, WatchState};

mod apply;

/// Version of the stored state. A newer one is refused, never guessed at.
pub const STATE_VERSION: u32 = 1;

/// Turns remembered for the prompt and for patterns; older ones are in the journal.
pub const TRIES_KEPT: usize = 12;
/// Kept commits remembered for the summary; older ones are in the journal and on the branch.
pub const KEPT_LISTED: usize = 50;
/// Messages waiting for the next turn.
pub const NOTES_KEPT: usize = 20;

/// A task that breaks its workspace or runs out its time this often is set aside, with a ticket.
pub const POISON: u32 = 3;

/// A loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoopState {
    /// Format of this state.
    pub state_version: u32,
    /// Which loop.
    pub id: LoopId,
    /// What people call it.
    pub name: String,
    /// What it is to do.
    pub spec: LoopSpec,
    /// Where it is.
    pub phase: Phase,
    /// Nothing starts while this is set.
    pub paused: Option<Pause>,
    /// It is to end.
    pub stop: Option<StopWish>,
    /// When it was made.
    pub created_at: Time,
    /// When it last changed.
    pub updated_at: Time,
    /// The time from which `max_time` counts.
    pub clock_from: Time,
    /// Events applied.
    pub events: u64,
    /// Turns started, also those that were lost.
    pub started: u32,
    /// Turns that ended and count against the bounds.
    pub turns: u32,
    /// The number of the latest task that the loop made for itself.
    pub task_number: u32,
    /// The current or latest task.
    pub task: Option<TaskId>,
    /// Its fence.
    pub fence: Fence,
    /// The current task goes on (it was given back), instead of a new one being made.
    pub retry: bool,
    /// Failed attempts at the current task.
    pub task_failures: u32,
    /// The checks before the first turn.
    pub baseline: Option<Scoreboard>,
    /// The checks on the loop's work as it stands.
    pub board: Scoreboard,
    /// The checks on what has reached the operator: his branch, or a commit left aside for him.
    pub landed: Scoreboard,
    /// The commit where the work stands; `None` without git.
    pub work: Option<String>,
    /// What was tried lately, oldest first.
    pub tries: Vec<Try>,
    /// How many turns ended how.
    pub tally: TurnTally,
    /// Work that was kept, newest last.
    pub kept: Vec<KeptWork>,
    /// All of them, also those no longer listed.
    pub kept_count: u32,
    /// Turns since the last progress.
    pub since_progress: u32,
    /// Time in turns and money as they stood then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<Box<Then>>,
    /// Another way is tried, until there is progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Box<StrategyChange>>,
    /// No-op turns in a row.
    pub noops: u32,
    /// The same failure in a row.
    pub same_error: u32,
    /// Messages for the next turn.
    pub notes: Vec<Note>,
    /// What was used in all.
    pub spent: Spend,
    /// Whether the figures in `spent` are estimates.
    pub spent_estimated: bool,
    /// Time spent waiting.
    #[serde(with = "millis")]
    pub asleep: Duration,
    /// Time spent in turns.
    #[serde(with = "millis")]
    pub in_turns: Duration,
    /// Keys of tickets this loop opened and that are still open.
    pub tickets: Vec<String>,
    /// The conversation that the next turn may go on with.
    #[serde(default)]
    pub session: Option<AgentSession>,
    /// The agent's last words, for a turn that begins a fresh conversation.
    #[serde(default)]
    pub handoff: String,
    /// `agent@account` of the latest turn.
    #[serde(default)]
    pub worker: String,
    /// The most that one turn used so far; what the next one sets aside.
    #[serde(default)]
    pub dearest: Spend,
    /// What its monitors saw.
    #[serde(default, skip_serializing_if = "WatchState::is_empty")]
    pub watch: WatchState,
}

/// What had been used when there was progress last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Then {
    /// Time spent in turns.
    #[serde(with = "millis")]
    pub in_turns: Duration,
    /// Money and tokens.
    pub spent: Spend,
}

/// Nothing got better for too long, so that another way is tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StrategyChange {
    /// What had passed without progress.
    pub reason: Reason,
    /// The number of the first turn that tries it.
    pub from_turn: u32,
    /// Who had been at work before; others are asked first now.
    pub agent: String,
    /// Turns without progress until then.
    pub turns: u32,
    /// What had been used until then.
    pub then: Then,
}

/// A conversation with an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSession {
    /// `agent@account`: nobody else can go on with it.
    pub worker: String,
    /// As its CLI calls it.
    pub id: String,
    /// Turns in it.
    pub turns: u32,
    /// How full it is.
    pub context_percent: Option<u32>,
    /// What it used in all, for CLIs that only count so.
    pub in_all: Option<Usage>,
}

/// Labels of the phases in which a loop is over.
pub const OVER: [&str; 4] = ["reached", "exhausted", "stopped", "failed"];

impl LoopState {
    /// The operation that keeps it, if nobody else wrote since `version`.
    pub fn save(&self, version: u64) -> Op {
        Op::SaveLoop {
            id: self.id.clone(),
            version,
            phase: self.phase.label().to_owned(),
            state: serde_json::to_string(self).expect("a state is plain data and always has a JSON form"),
        }
    }

    /// The operations with which a new one begins.
    pub fn birth(&self) -> Vec<Op> {
        let created = Event::LoopCreated { name: self.name.clone(), spec: Box::new(self.spec.clone()) };
        let mut ops = vec![Op::Append { owner: Some(self.id.clone()), events: vec![created] }, self.save(0)];
        ops.extend(watch::at_birth(self));
        ops
    }

    /// Turns, time in them and money since the last progress, or since another way is tried.
    pub fn since_then(&self) -> (u32, Duration, Spend) {
        let (turns, then) = match &self.strategy {
            Some(change) => (change.turns, change.then.clone()),
            None => (0, self.then.as_deref().cloned().unwrap_or_default()),
        };
        let Spend { calls, tokens, microusd } = self.spent;
        let spent = Spend {
            calls: calls.saturating_sub(then.spent.calls),
            tokens: tokens.saturating_sub(then.spent.tokens),
            microusd: microusd.saturating_sub(then.spent.microusd),
        };
        (self.since_progress.saturating_sub(turns), self.in_turns.saturating_sub(then.in_turns), spent)
    }

    /// Everybody who may take a task, as they are asked: in the operator's order, and while another way is tried those first
    /// who come after the one that had been at work. Another account of that one is no other way.
    pub fn candidates(&self, kind: &str, priority: i32) -> Vec<&AgentSpec> {
        let mut candidates: Vec<_> = self.spec.agents().filter(|a| a.tasks.include(kind, priority)).collect();
        if let Some(change) = &self.strategy
            && let Some(last) = candidates.iter().rposition(|a| a.name == change.agent)
        {
            candidates.rotate_left(last + 1);
            candidates.sort_by_key(|a| a.name == change.agent);
        }
        candidates
    }

    /// Whether the loop is over; it may be resumed unless it was reached.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ended { .. })
    }
}

/// Where a loop is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Phase {
    /// Made; its checks have not been run yet.
    New,
    /// Between turns, about to ask the guard.
    Ready,
    /// Between turns, and nothing may start.
    Waiting {
        /// The rule, its inputs, and until when.
        reason: Reason,
        /// Since when.
        since: Time,
    },
    /// A turn is under way.
    Turn(Box<Turn>),
    /// Over.
    Ended {
        /// How.
        ending: LoopEnd,
        /// When.
        at: Time,
    },
}

impl Phase {
    /// One word, for listings.
    pub fn label(&self) -> &'static str {
        match self {
            Phase::New => "baseline",
            Phase::Ready => "ready",
            Phase::Waiting { reason, .. } => match &reason.rule {
                RuleId::Watching => "watching",
                RuleId::Parked => "parked",
                _ => "waiting",
            },
            Phase::Turn(turn) => match turn.stage {
                TurnStage::Running => "running",
                TurnStage::Judging => "judging",
                TurnStage::Integrating => "integrating",
            },
            Phase::Ended { ending, .. } => match ending {
                LoopEnd::Reached => "reached",
                LoopEnd::Exhausted { .. } => "exhausted",
                LoopEnd::Stopped { .. } => "stopped",
                LoopEnd::Failed { .. } => "failed",
            },
        }
    }
}

/// A turn under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// `<task>.<fence>`.
    pub id: TurnId,
    /// Its task.
    pub task: TaskId,
    /// Its fence.
    pub fence: Fence,
    /// Its number.
    pub number: u32,
    /// When it was granted.
    pub started_at: Time,
    /// What was granted.
    pub permit: Permit,
    /// How far it is.
    pub stage: TurnStage,
    /// It is being stopped.
    pub stopping: Option<StopCause>,
    /// How its process ended.
    pub exit: Option<Exit>,
    /// What was found.
    pub judgement: Option<Judgement>,
    /// How often the target moved under it.
    pub returned: u32,
    /// How many of the loop's messages are in its prompt.
    pub told: usize,
    /// Who has it.
    #[serde(default)]
    pub agent: String,
    /// Under which account.
    #[serde(default)]
    pub account: String,
    /// The conversation that it goes on with.
    #[serde(default)]
    pub resume: Option<String>,
    /// Why this agent, where the loop has several.
    #[serde(default)]
    pub chosen: Option<Reason>,
    /// What it used, once its agent said so.
    #[serde(default)]
    pub used: Option<Usage>,
    /// Which way it said so.
    #[serde(default, skip_serializing_if = "UsageSource::is_stream")]
    pub source: UsageSource,
}

/// `agent@account`.
pub fn worker(agent: &str, account: &str) -> String {
    format!("{agent}@{account}")
}

/// How far a turn is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnStage {
    /// The agent has it.
    Running,
    /// The checks have it.
    Judging,
    /// It is moved onto the target.
    Integrating,
}

/// Nothing starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Who.
    pub by: String,
    /// Why.
    pub reason: String,
    /// Since when.
    pub at: Time,
    /// It goes on by itself then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// A message for the next turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Note {
    /// The operator's word.
    Operator(String),
    /// From somebody else: data, never instructions.
    Mail {
        /// Who.
        by: String,
        /// What.
        text: String,
    },
}

impl Note {
    /// What it says.
    pub fn text(&self) -> &str {
        match self {
            Note::Operator(text) | Note::Mail { text, .. } => text,
        }
    }
}

/// The loop is to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopWish {
    /// Who.
    pub by: String,
    /// The running turn too.
    pub now: bool,
}

/// A turn that is over, as the next one is told about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Try {
    /// Which.
    pub turn: TurnId,
    /// Its number.
    pub number: u32,
    /// What it amounts to.
    pub outcome: Outcome,
    /// What it changed.
    pub diffstat: String,
    /// Where it is pinned.
    pub pin: Option<String>,
    /// The checks after it.
    pub passing: Vec<String>,
    /// Fingerprint of the failures after it.
    pub fingerprint: u64,
    /// How long it took.
    #[serde(with = "millis")]
    pub took: Duration,
    /// How the process ended.
    pub exit: String,
    /// The last line the agent wrote.
    pub last_line: String,
    /// Who had it.
    #[serde(default)]
    pub agent: String,
    /// Why this agent, where the loop has several.
    #[serde(default)]
    pub chosen: Option<Reason>,
}

/// How many turns ended how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of the outcomes")]
pub struct TurnTally {
    pub progress: u32,
    pub not_yet: u32,
    pub no_op: u32,
    pub refused: u32,
    pub regressed: u32,
    pub agent_failed: u32,
    pub task_failed: u32,
    pub interrupted: u32,
    pub lost: u32,
    #[serde(default)]
    pub limited: u32,
}

/// Work that was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptWork {
    /// By which task.
    pub task: TaskId,
    /// Where.
    pub commit: Option<String>,
    /// What it changed.
    pub diffstat: String,
    /// How it reached the operator.
    pub integrated: Option<Integrated>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_has_a_label_that_says_over() {
        let endings = [
            LoopEnd::Reached,
            LoopEnd::Exhausted { bound: String::new() },
            LoopEnd::Stopped { by: String::new() },
            LoopEnd::Failed { why: String::new() },
        ];
        let labels = endings.map(|ending| Phase::Ended { ending, at: Time(0) }.label());
        assert_eq!(labels, OVER);
        assert!(!OVER.contains(&Phase::New.label()) && !OVER.contains(&Phase::Ready.label()));
    }
}
