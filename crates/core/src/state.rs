//! State of a loop: the fold of its events. Bounded in size, because it is written with every
//! commit.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::{Event, Exit, Integrated, Judgement, LoopEnd, Outcome, StopCause};
use crate::guard::{Permit, Spend};
use crate::ids::{Fence, LoopId, TaskId, TurnId};
use crate::op::Op;
use crate::reason::{Reason, RuleId};
use crate::research::sample::{Contender, Sample};
use crate::research::state::{ExperimentStep, ResearchState};
use crate::rhythm::state::PersonaState;
use crate::scoreboard::Scoreboard;
use crate::spec::{AgentSpec, LoopSpec, WorkspaceMode};
use crate::stream::Usage;
use crate::telemetry::UsageSource;
use crate::time::{Time, millis};
use crate::watch::{self, WatchState};

mod apply;

/// Version of the stored state. A newer one is refused, never guessed at.
pub const STATE_VERSION: u32 = 1;

/// Maximum number of remembered turns for the prompt and for patterns; older ones are in the
/// journal.
pub const TRIES_KEPT: usize = 12;
/// Maximum number of remembered commits for the summary; older ones are in the journal and on the
/// branch.
pub const KEPT_LISTED: usize = 50;
/// Maximum number of messages waiting for the next turn.
pub const NOTES_KEPT: usize = 20;

/// A task that breaks its workspace or exceeds its time limit this often is set aside, with a
/// ticket.
pub const POISON: u32 = 3;

/// The full state of a loop. Its parts are stored side by side in one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoopState {
    /// Format of this state.
    pub state_version: u32,
    pub id: LoopId,
    pub name: String,
    pub spec: LoopSpec,
    pub phase: Phase,
    pub created_at: Time,
    pub updated_at: Time,
    /// Number of applied events.
    pub events: u64,
    #[serde(flatten)]
    pub progress: LoopProgress,
    #[serde(flatten)]
    pub task: LoopTask,
    #[serde(flatten)]
    pub spend: LoopSpend,
    #[serde(flatten)]
    pub people: LoopPeople,
    /// Memory of its monitors.
    #[serde(default, skip_serializing_if = "WatchState::is_empty")]
    pub watch: WatchState,
    /// What a research run has found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub research: Option<Box<ResearchState>>,
    /// What is remembered of a persona.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persona: Option<Box<PersonaState>>,
}

/// The work of a loop and what its checks say about it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopProgress {
    /// The checks before the first turn.
    pub baseline: Option<Scoreboard>,
    /// The checks on the loop's work as it stands.
    pub board: Scoreboard,
    /// The checks on what has landed: the target branch, or a commit left aside for a person.
    pub landed: Scoreboard,
    /// The commit of the work; `None` without git.
    pub work: Option<String>,
    /// Latest turns, oldest first.
    pub tries: Vec<Try>,
    /// Number of turns by outcome.
    pub tally: TurnTally,
    /// Work that was kept, newest last.
    pub kept: Vec<KeptWork>,
    /// All of them, including those no longer listed.
    pub kept_count: u32,
    /// The work that a person took last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<String>,
    /// Turns since the last progress.
    pub since_progress: u32,
    /// Time in turns and money at the last progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<Box<Then>>,
    /// Set while another strategy is tried, until there is progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Box<StrategyChange>>,
    /// No-op turns in a row.
    pub noops: u32,
    /// Equal failures in a row.
    pub same_error: u32,
}

impl LoopProgress {
    /// Whether the last work is kept for a person who has not taken it: aside, or on a ref of the
    /// loop because it found no branch.
    pub fn waits_to_be_taken(&self, mode: &WorkspaceMode) -> bool {
        let WorkspaceMode::Git { target } = mode else { return false };
        let Some(last) = self.kept.last() else { return false };
        match &last.integrated {
            Some(Integrated::Aside { .. }) => true,
            Some(Integrated::Landed { commit }) => {
                !target.starts_with("refs/heads/") && self.taken.as_ref() != Some(commit)
            }
            Some(Integrated::InPlace) | None => false,
        }
    }
}

/// The current task of a loop and what takes its turns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopTask {
    /// The current or latest task.
    #[serde(rename = "task")]
    pub id: Option<TaskId>,
    /// Fence of that task.
    pub fence: Fence,
    /// Number of the latest task that the loop created for itself.
    #[serde(rename = "task_number")]
    pub number: u32,
    /// The current task continues (it was given back), instead of a new one being created.
    pub retry: bool,
    /// Failed attempts at the current task.
    #[serde(rename = "task_failures")]
    pub failures: u32,
    /// Turns started, including lost ones.
    pub started: u32,
    /// Turns that ended and count against the bounds.
    pub turns: u32,
    /// The session that the next turn may continue.
    #[serde(default)]
    pub session: Option<AgentSession>,
    /// The agent's last words, for a turn that begins a fresh session.
    #[serde(default)]
    pub handoff: String,
    /// `agent@account` of the latest turn.
    #[serde(default)]
    pub worker: String,
    /// Agents (`agent@account`) that the vendor refuses as they are configured, with its words.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, String>,
}

/// Models without a price that a loop reports; further ones are not worth a line each.
pub const UNPRICED_MOST: usize = 8;

/// What a loop has used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopSpend {
    /// The time from which `max_time` counts.
    pub clock_from: Time,
    /// Total usage so far.
    pub spent: Spend,
    /// Whether figures in `spent` are estimates.
    #[serde(rename = "spent_estimated")]
    pub estimated: bool,
    /// Whether all estimates so far concern dollars only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tokens_exact: bool,
    /// Models without a known price that were reported.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unpriced: BTreeSet<String>,
    /// Maximum usage of one turn so far; the next reservation.
    #[serde(default)]
    pub dearest: Spend,
    /// Time spent waiting.
    #[serde(with = "millis")]
    pub asleep: Duration,
    /// Time spent in turns.
    #[serde(with = "millis")]
    pub in_turns: Duration,
}

/// Instructions of people to a loop, and its open requests to them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopPeople {
    /// No turn starts while this is set.
    pub paused: Option<Pause>,
    /// Set when the loop has to end.
    pub stop: Option<StopWish>,
    /// Messages for the next turn.
    pub notes: Vec<Note>,
    /// Keys of tickets this loop opened and that are still open.
    pub tickets: Vec<String>,
    /// The loop belongs to a `run` in a terminal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attached: bool,
}

/// Usage at the last progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Then {
    /// Time spent in turns.
    #[serde(with = "millis")]
    pub in_turns: Duration,
    /// Money and tokens.
    pub spent: Spend,
}

/// A change of strategy after too long without progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StrategyChange {
    /// The threshold that was exceeded.
    pub reason: Reason,
    /// Number of the first turn with the new strategy.
    pub from_turn: u32,
    /// The agent before; others come first from now on.
    pub agent: String,
    /// Turns without progress until then.
    pub turns: u32,
    /// Usage until then.
    pub then: Then,
}

/// A resumable session with an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSession {
    /// `agent@account`, the only one that can continue it.
    pub worker: String,
    /// The id that the CLI gave to it.
    pub id: String,
    /// Turns in it.
    pub turns: u32,
    pub context_percent: Option<u32>,
    /// Total usage of the session, for CLIs that only report this.
    pub in_all: Option<Usage>,
}

/// What attaches a new loop to a terminal.
const ATTACHED_BY: &str = "run";

/// Labels of the phases in which a loop is over.
pub const OVER: [&str; 4] = ["reached", "exhausted", "stopped", "failed"];

impl LoopState {
    /// Whether it works in this folder, around it or below it.
    pub fn is_in(&self, dir: &Path) -> bool {
        let own = Path::new(&self.spec.workspace.dir);
        dir.starts_with(own) || own.starts_with(dir)
    }

    /// The operation that stores the state, unless it changed since `version`.
    pub fn save(&self, version: u64) -> Op {
        Op::SaveLoop { id: self.id.clone(), version, phase: self.label().to_owned(), state: self.text() }
    }

    /// What it is doing, in one word; a reflection or a dream is not work.
    pub fn label(&self) -> &'static str {
        match (&self.phase, self.inward()) {
            (Phase::Turn(_), Some(inward)) => inward.doing(),
            (phase, _) => phase.label(),
        }
    }

    /// The state as it is stored: what several workers found together is no part of it.
    fn text(&self) -> String {
        let words = "a state is plain data and always has a JSON form";
        if self.research.is_some() && self.shared_run().is_some() {
            return serde_json::to_string(&Self { research: None, ..self.clone() }).expect(words);
        }
        serde_json::to_string(self).expect(words)
    }

    /// The run that the loop shares with other workers.
    pub fn shared_run(&self) -> Option<&LoopId> {
        self.spec.research.as_ref()?.run.as_ref()
    }

    /// Whether the loop is a further worker of another loop's run.
    pub fn is_helper(&self) -> bool {
        self.spec.research.as_ref().is_some_and(|research| research.serves(&self.id))
    }

    /// The loops that a person means by this one: all workers of its run, or itself.
    pub fn team(&self) -> Vec<LoopId> {
        let team = self.spec.research.as_ref().map(|research| research.team()).unwrap_or_default();
        if team.is_empty() { vec![self.id.clone()] } else { team }
    }

    /// The loop, made by a `run` in a terminal.
    #[must_use]
    pub fn attached(mut self) -> Self {
        let at = self.created_at;
        self.apply(&Event::Attached { by: ATTACHED_BY.to_owned() }, at);
        self
    }

    /// The operations that create a loop.
    pub fn birth(&self) -> Vec<Op> {
        let created = Event::LoopCreated { name: self.name.clone(), spec: Box::new(self.spec.clone()) };
        let attached = self.people.attached.then(|| Event::Attached { by: ATTACHED_BY.to_owned() });
        let seeded = self
            .research
            .clone()
            .map(|research| Event::Experiment { step: Box::new(ExperimentStep::Seeded { research }) });
        let events = std::iter::once(created).chain(attached).chain(seeded).collect();
        let mut ops = vec![Op::Append { owner: Some(self.id.clone()), events }, self.save(0)];
        ops.extend(watch::at_birth(self));
        ops
    }

    /// Turns, time in them and money since the last progress, or since the change of strategy.
    pub fn since_then(&self) -> (u32, Duration, Spend) {
        let (turns, then) = match &self.progress.strategy {
            Some(change) => (change.turns, change.then.clone()),
            None => (0, self.progress.then.as_deref().cloned().unwrap_or_default()),
        };
        let Spend { calls, tokens, microusd } = self.spend.spent;
        let spent = Spend {
            calls: calls.saturating_sub(then.spent.calls),
            tokens: tokens.saturating_sub(then.spent.tokens),
            microusd: microusd.saturating_sub(then.spent.microusd),
        };
        (self.progress.since_progress.saturating_sub(turns), self.spend.in_turns.saturating_sub(then.in_turns), spent)
    }

    /// The agents for a task, in the configured order. While another strategy is tried, those after
    /// the previous agent come first; another account of that agent is no other strategy.
    pub fn candidates(&self, kind: &str, priority: i32) -> Vec<&AgentSpec> {
        let mut candidates: Vec<_> = self.spec.agents().filter(|a| a.tasks.include(kind, priority)).collect();
        if let Some(change) = &self.progress.strategy
            && let Some(last) = candidates.iter().rposition(|a| a.name == change.agent)
        {
            candidates.rotate_left(last + 1);
            candidates.sort_by_key(|a| a.name == change.agent);
        }
        candidates
    }

    /// Time that counts against the loop's bound; the time between an end and a resumption does not.
    pub fn time_used(&self, now: Time) -> Duration {
        let until = if let Phase::Ended { at, .. } = &self.phase { *at } else { now };
        until.since(self.spend.clock_from)
    }

    /// What `max_turns` limits: experiments of a research run, turns of any other loop.
    pub fn counted(&self) -> u32 {
        self.research.as_ref().map_or(self.task.turns, |research| research.number)
    }

    /// Experiments that a research run still has; `None` without a bound.
    pub fn experiments_left(&self) -> Option<u32> {
        self.spec.bounds.max_turns.map(|most| {
            let others = self.research.as_ref().map_or(0, |research| research.others());
            most.saturating_sub(self.counted()).saturating_sub(others)
        })
    }

    /// The commit that the next turn starts from; `None` without git.
    pub fn next_base(&self) -> Option<&String> {
        self.research.as_ref().and_then(|research| research.base()).or(self.progress.work.as_ref())
    }

    /// Whether the loop is over; it may be resumed unless its goal was reached.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ended { .. })
    }
}

/// Phase of a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Phase {
    /// Created; its checks have not been run yet.
    New,
    /// Between turns, before the guard's decision.
    Ready,
    /// Between turns, and nothing may start.
    Waiting {
        /// The rule, its inputs, and until when.
        reason: Reason,
        since: Time,
    },
    /// A turn is under way.
    Turn(Box<Turn>),
    Ended {
        ending: LoopEnd,
        at: Time,
    },
}

impl Phase {
    /// Name of the phase in listings.
    pub fn label(&self) -> &'static str {
        match self {
            Phase::New => "baseline",
            Phase::Ready => "ready",
            Phase::Waiting { reason, .. } => match &reason.rule {
                RuleId::Watching => "watching",
                RuleId::Parked => "parked",
                RuleId::Resting => "asleep",
                _ => "waiting",
            },
            Phase::Turn(turn) => match turn.stage {
                TurnStage::Running => "running",
                TurnStage::Judging => "judging",
                TurnStage::Integrating => "integrating",
                TurnStage::Measuring => "measuring",
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
    pub id: TurnId,
    pub task: TaskId,
    pub fence: Fence,
    pub number: u32,
    /// When the permit was granted.
    pub started_at: Time,
    pub permit: Permit,
    pub stage: TurnStage,
    /// Set while the turn is being stopped.
    pub stopping: Option<StopCause>,
    pub exit: Option<Exit>,
    pub judgement: Option<Judgement>,
    /// How often the target moved under it.
    pub returned: u32,
    /// Number of the loop's messages in its prompt.
    pub told: usize,
    #[serde(default)]
    pub agent: String,
    #[serde(default)]
    pub account: String,
    /// The session that it continues.
    #[serde(default)]
    pub resume: Option<String>,
    /// Why this agent was chosen, where the loop has several.
    #[serde(default)]
    pub chosen: Option<Reason>,
    /// Usage, once its agent reported it.
    #[serde(default)]
    pub used: Option<Usage>,
    /// Source of these figures.
    #[serde(default, skip_serializing_if = "UsageSource::is_stream")]
    pub source: UsageSource,
    /// Of an experiment: measurements after the first look.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<(Contender, Sample)>,
}

/// The worker's name, `agent@account`.
pub fn worker(agent: &str, account: &str) -> String {
    format!("{agent}@{account}")
}

/// Progress of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnStage {
    /// The agent works.
    Running,
    /// The checks run.
    Judging,
    /// The work is moved onto the target.
    Integrating,
    /// Candidate and champion of an experiment are measured again.
    Measuring,
}

/// The author of pauses of loops whose agents cannot start.
pub const PREFLIGHT: &str = "preflight";

/// A pause: no turn starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    pub by: String,
    pub reason: String,
    pub at: Time,
    /// The pause ends by itself at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// A message for the next turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Note {
    /// A person's instruction.
    Operator(String),
    /// From any other author: data, never instructions.
    Mail { by: String, text: String },
}

impl Note {
    /// The text of the message.
    pub fn text(&self) -> &str {
        match self {
            Note::Operator(text) | Note::Mail { text, .. } => text,
        }
    }
}

/// A request to end the loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopWish {
    pub by: String,
    /// Stop the running turn, too.
    pub now: bool,
}

/// A finished turn, as the next prompt describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Try {
    pub turn: TurnId,
    pub number: u32,
    pub outcome: Outcome,
    /// What it changed.
    pub diffstat: String,
    /// Ref that pins the work.
    pub pin: Option<String>,
    /// Names of the checks that pass after it.
    pub passing: Vec<String>,
    /// Fingerprint of the failures after it.
    pub fingerprint: u64,
    #[serde(with = "millis")]
    pub took: Duration,
    /// How the process ended.
    pub exit: String,
    /// The last line of output.
    pub last_line: String,
    #[serde(default)]
    pub agent: String,
    /// Why this agent was chosen, where the loop has several.
    #[serde(default)]
    pub chosen: Option<Reason>,
    /// Checks whose pass was suspicious, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
}

/// Number of turns by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Experiments that were not kept.
    #[serde(default, skip_serializing_if = "is_none")]
    pub discarded: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_none(n: &u32) -> bool {
    *n == 0
}

/// Work that was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptWork {
    /// By which task.
    pub task: TaskId,
    pub commit: Option<String>,
    pub diffstat: String,
    /// How it reached the target branch.
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
