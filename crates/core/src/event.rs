//! Events are the only thing that changes a state; the journal keeps them for ever.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use serde::{Deserialize, Serialize};

use crate::guard::{Permit, Scope, Spend};
use crate::hook::SessionAct;
use crate::ids::{Fence, TaskId, TurnId};
use crate::immune;
use crate::op::Trust;
use crate::reason::Reason;
use crate::research::judge::Inspection;
use crate::research::state::ExperimentStep;
use crate::rhythm::state::RhythmStep;
use crate::rhythm::wish::WishLine;
use crate::scoreboard::Scoreboard;
use crate::spec::{Bounds, Budget, LoopSpec};
use crate::stream::{LimitClass, TurnReport, VendorLimit};
use crate::telemetry::UsageSource;
use crate::time::Time;

/// Version of the event format. Old journals stay readable: see the fixtures of the store.
pub const EVENT_VERSION: u32 = 11;

/// A change of a loop or of the guard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A loop was made.
    LoopCreated { name: String, spec: Box<LoopSpec> },
    /// A person changed the specification.
    SpecChanged { spec: Box<LoopSpec> },
    /// The checks were run before the first turn.
    Baselined {
        board: Scoreboard,
        /// The commit they were run on; `None` without git.
        work: Option<String>,
    },
    /// Nothing may start now.
    Waiting {
        /// The rule, its inputs, and until when.
        reason: Reason,
    },
    /// A turn begins; journaled before its process exists.
    TurnStarted {
        turn: TurnId,
        task: TaskId,
        fence: Fence,
        /// Counts from 1, over all tasks of the loop.
        number: u32,
        /// What the guard granted.
        permit: Permit,
        #[serde(default)]
        agent: String,
        #[serde(default)]
        account: String,
        /// The session that the turn continues.
        #[serde(default)]
        resume: Option<String>,
        /// Why this agent was chosen, where the loop has several.
        #[serde(default)]
        chosen: Option<Reason>,
    },
    /// Another listed agent or account takes over.
    AgentSwitched {
        /// `agent@account` before.
        from: String,
        /// `agent@account` now.
        to: String,
        /// What holds the previous one, or that the preferred one is free again.
        reason: Reason,
    },
    /// The vendor refused an agent's request itself (an unknown model, a bad parameter): the agent
    /// starts again only after a person changed or resumed something.
    AgentRefused {
        agent: String,
        account: String,
        /// The refusal as the CLI reported it.
        limit: VendorLimit,
    },
    /// An agent reports tokens without dollars, and no price is known for its model.
    PriceUnknown { agent: String, model: String },
    /// The agent's process ended.
    TurnExited { turn: TurnId, exit: Exit },
    /// The work was inspected and the checks were run on it.
    TurnJudged { turn: TurnId, judgement: Judgement },
    /// The target moved under the work, which is judged again on the new base.
    TurnReturned { turn: TurnId, why: String },
    /// The turn is over and counted.
    TurnEnded {
        turn: TurnId,
        outcome: Outcome,
        /// Charge to the scopes of the permit.
        settled: Settled,
        /// New head of the loop's work; `None` when it did not move.
        work: Option<String>,
        /// How the work reached the target branch, if it did.
        integrated: Option<Integrated>,
    },
    /// The loop belongs to a `run` in a terminal: without one, no turn starts.
    Attached { by: String },
    /// The loop goes on without a terminal.
    Detached { by: String },
    /// A person or a signal made the loop decide again.
    Woken { by: String },
    /// No turn starts until resumed, or until a time.
    Paused {
        by: String,
        reason: String,
        /// The pause ends by itself at this time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Time>,
    },
    /// The pause is over, or an ended loop goes on.
    Resumed {
        by: String,
        /// New bounds, if the old ones had ended the loop.
        bounds: Option<Bounds>,
        /// A new budget, likewise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<Budget>,
        /// Whether time that the loop used before it ended still counts.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        keeps_clock: bool,
    },
    /// The loop has to end.
    StopAsked {
        by: String,
        /// Whether the running turn is stopped too.
        now: bool,
    },
    /// A message for the next turn.
    Steered {
        by: String,
        /// Text for the prompt; data.
        message: String,
        /// Trust of the author: decides whether the prompt presents the message as an instruction.
        #[serde(default, skip_serializing_if = "Trust::is_operator")]
        trust: Trust,
    },
    /// A person brought the work of the loop to the branch or the folder.
    WorkTaken {
        by: String,
        /// The commit that holds the work.
        commit: String,
    },
    /// The running turn is being stopped.
    Stopping { turn: TurnId, cause: StopCause },
    /// Frosty cools the scope down.
    Cooldown {
        scope: Scope,
        until: Time,
        /// Cooldowns in a row.
        level: u32,
    },
    /// An agent failed; the next start waits.
    Backoff {
        scope: Scope,
        until: Time,
        /// `failure: …`, or the delay that the agent requested.
        why: String,
        /// Whether the agent requested it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        requested: bool,
    },
    /// A person ended a delay that an agent requested.
    DelayLifted { scope: Scope, by: String },
    /// A CLI was started beside the turns: a session of a person, or by a command in a turn.
    CliStarted {
        /// All scopes in which it counts as a start.
        scopes: Vec<Scope>,
        /// `claude`, `codex`, `gemini`, `opencode`.
        agent: String,
        /// The session, or the turn.
        by: String,
    },
    /// The vendor does not serve an account now.
    Limited {
        scope: Scope,
        /// The limit as the CLI reported it.
        limit: VendorLimit,
        /// No turn starts before this time.
        until: Time,
        /// Limits in a row without a success.
        strikes: u32,
    },
    /// Really Chill Willy, a wall, or a person holds the scope completely.
    Frozen {
        scope: Scope,
        /// The whole record of why.
        freeze: crate::guard::Freeze,
    },
    /// The hold is over.
    Released {
        scope: Scope,
        /// A person's name, `canary`, or `booked`.
        by: String,
        reason: String,
    },
    /// A pattern repeats that should not: no-op turns, the same error, ping-pong, stagnation.
    Noticed {
        pattern: Pattern,
        /// Length of the pattern in turns.
        turns: u32,
    },
    /// Too long without progress: the next turns follow another strategy, before a ticket is
    /// opened.
    StrategyChanged {
        /// The threshold that was exceeded without progress.
        reason: Reason,
        /// The agent so far; other listed agents come first from now on.
        agent: String,
    },
    /// A ticket for a person was opened.
    TicketOpened {
        /// Deduplication key: one ticket per cause.
        key: String,
        text: String,
    },
    /// The cause of a ticket is gone.
    TicketClosed { key: String },
    /// A loop that was over is no longer stored, nor are its tasks; its records stay.
    Forgotten,
    /// The loop is over; it can be resumed unless it reached its goal.
    Ended { ending: LoopEnd },
    /// The supervisor restarted and found the turn in this state.
    Recovered {
        /// `alive`, `exited`, `gone` or `idle`.
        found: String,
    },
    /// Something happened in an agent's session that everloop did not start.
    InSession {
        /// The id that the CLI gave to the session.
        session: String,
        /// Name of the loop that provides the checks.
        name: String,
        did: SessionAct,
    },
    /// A step of the immune system: a charge, a smaller share, a quarantine or a trial.
    Immune {
        /// What was done.
        step: Box<immune::ImmuneStep>,
    },
    /// A step of an experiment: the baseline, a measurement, a crash, a decision.
    Experiment { step: Box<ExperimentStep> },
    /// A step of a persona: a signal, a look, a rest.
    Rhythm { step: Box<RhythmStep> },
    /// A monitor saw a change.
    Signalled {
        monitor: String,
        /// The new known state of the monitored source.
        cursor: String,
        /// The task about the change; `None` for the first probe.
        task: Option<TaskId>,
        /// The change in one line; data.
        what: String,
    },
    /// A new keepalive replaces the one before.
    Keepalive {
        /// Counts from 1, per loop.
        number: u32,
        /// What ended the one before.
        after: String,
    },
    /// A person put the everloop.toml of a folder in force, as it was at that moment.
    ConfigAccepted {
        dir: String,
        /// SHA-256 of the file, in hexadecimal digits.
        hash: String,
        by: String,
        /// The verb that did it: `run`, `init`, `config apply` or `trust`.
        via: String,
    },
    /// A person took that back: nothing of the folder's file is in force.
    ConfigRevoked { dir: String, by: String },
    /// A journal line that changes no state.
    Note { text: String },
}

/// How an agent's process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code, unless a signal ended it.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// Why the process could not be started.
    pub spawn_error: Option<String>,
    pub started_at: Time,
    pub ended_at: Time,
    /// Bytes written, including those that were not kept.
    pub out_bytes: u64,
    /// End of the output, capped and redacted.
    pub tail: String,
    /// Delay requested with `<BACKOFF …>`, in milliseconds.
    pub backoff_ms: Option<u64>,
    /// Set when everloop stopped the process.
    pub stopped: Option<StopCause>,
    /// Processes that were left behind and had to be killed.
    pub leftovers: u32,
    /// Summary of the agent's stream; `None` for an agent without one.
    #[serde(default)]
    pub report: Option<Box<TurnReport>>,
    /// The commit that the turn started from; `None` without git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// When the agent wants to be woken, from its last line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wish: Option<WishLine>,
}

impl Exit {
    /// Whether the agent reported success. An agent with a stream must have reported a good end:
    /// exit code 0 alone also comes from a CLI that was interrupted, ran out of tokens or was
    /// refused a tool.
    pub fn ok(&self) -> bool {
        let lingered = self.stopped == Some(StopCause::Lingers);
        let ended = self.code == Some(0) && self.stopped.is_none() || lingered;
        let said = self.report.as_ref().map_or(!lingered, |r| r.ok == Some(true));
        ended && said && self.spawn_error.is_none()
    }

    /// What the agent said last: its stream's last text, or the end of a plain command's output.
    pub fn last_words(&self) -> &str {
        self.report.as_ref().map_or(self.tail.as_str(), |report| &report.last_text)
    }

    /// The limit that ended it.
    pub fn limit(&self) -> Option<&VendorLimit> {
        let report = self.report.as_ref().filter(|_| !self.ok())?;
        match self.stopped {
            Some(StopCause::Announced) => report.announced.as_ref().or(report.limit.as_ref()),
            _ => report.limit.as_ref(),
        }
    }

    /// `exit 1`, `signal 9`, `could not start: …`, `stopped: …`.
    pub fn describe(&self) -> String {
        // A process that lingered after its final record did not end because it was stopped.
        let limit = self.limit().filter(|l| l.class != LimitClass::Request);
        if let (Some(limit), None | Some(StopCause::Lingers | StopCause::Announced)) = (limit, self.stopped) {
            return format!("limit ({}): {}", limit.class, limit.text);
        }
        match (&self.spawn_error, self.stopped, self.signal, self.code) {
            (Some(e), _, _, _) => format!("could not start: {e}"),
            (_, Some(cause), _, _) => format!("stopped: {}", cause.describe()),
            (_, _, Some(s), _) => self.explained(format!("signal {s}")),
            (_, _, _, Some(0)) if !self.ok() => match self.error() {
                Some(error) => format!("exit 0: {error}"),
                None => "exit 0 without a final record".to_owned(),
            },
            (_, _, _, Some(c)) => self.explained(format!("exit {c}")),
            (None, None, None, None) => "ended without a trace".to_owned(),
        }
    }

    /// The CLI's own sentence about its failure.
    pub fn error(&self) -> Option<&str> {
        if self.ok() { None } else { self.report.as_ref()?.error.as_deref() }
    }

    fn explained(&self, how: String) -> String {
        match self.error() {
            Some(error) => format!("{how}: {error}"),
            None => how,
        }
    }
}

/// Why everloop stopped a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// The turn exceeded its time limit.
    Wall,
    /// No sign of life.
    Stuck,
    /// The same steps repeat without end.
    Spinning,
    /// Tokens were used for long without a change in the workspace.
    NoDiff,
    /// The agent finished and its process did not end.
    Lingers,
    /// The loop's budget was used up within the turn.
    Budget,
    /// The CLI announced that it waits long for the vendor, which everloop does without it.
    Announced,
    /// A person stopped it.
    Person,
    /// The supervisor shut down.
    Shutdown,
}

impl StopCause {
    /// The cause as a clause for messages.
    pub fn describe(self) -> &'static str {
        match self {
            StopCause::Wall => "its time was up",
            StopCause::Stuck => "no sign of life",
            StopCause::Spinning => "it did the same again and again",
            StopCause::NoDiff => "it went on for long and changed nothing",
            StopCause::Lingers => "it had finished and did not end",
            StopCause::Budget => "the budget was used up",
            StopCause::Announced => "it announced a long wait for its vendor",
            StopCause::Person => "by a person",
            StopCause::Shutdown => "the supervisor went down",
        }
    }
}

/// Result of inspecting and checking a turn's work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The tree differs from where the turn began.
    pub changed: bool,
    /// The commit that holds the work (merged with the target where that moved); `None` without git
    /// or change.
    pub commit: Option<String>,
    /// Ref that pins the attempt for ever, if it was worth pinning.
    pub pin: Option<String>,
    /// The commit of the target against which the work was inspected: the target moves from here or
    /// not at all. `None` without git or commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Files, insertions and deletions as text.
    pub diffstat: String,
    /// Protected files that the turn changed.
    pub violations: Vec<String>,
    pub board: Scoreboard,
    /// Of a research run: the change and the first look at its metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<Box<Inspection>>,
    /// Why the work could not be inspected: conflict, broken workspace.
    pub error: Option<String>,
}

/// The result of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Outcome {
    /// All checks pass.
    Reached,
    /// More checks pass than before.
    Progress,
    /// Work was done, no further check passes yet.
    NotYet,
    /// Nothing was changed.
    NoOp,
    /// Protected files were changed; the work is pinned, not used.
    Refused { paths: Vec<String> },
    /// Fewer checks pass than before; the work is pinned, not used.
    Regressed {
        /// Checks that no longer pass.
        lost: Vec<String>,
    },
    /// The experiment is not kept; the work is pinned, not used.
    Discarded { why: String },
    /// The agent could not take or finish the turn; the task is not charged.
    AgentFailed {
        why: String,
        /// Its partial work is good enough to continue from.
        kept: bool,
    },
    /// The turn broke its workspace or exceeded its time limit; the task is charged.
    TaskFailed { why: String },
    /// The vendor did not serve the account; the session continues when it does and nothing is
    /// counted.
    Limited {
        /// Which kind of limit.
        class: LimitClass,
        /// The work so far is kept for the turn that continues.
        kept: bool,
    },
    /// Stopped by a person or by a shutdown; the task is tried again and nothing is counted.
    Interrupted,
    /// The process vanished with its node or its runner; the task is tried again and nothing is
    /// counted. A second one in a row is a failure of the agent.
    Lost,
}

impl Outcome {
    /// Whether the turn counts against the loop's bounds.
    pub fn counts(&self) -> bool {
        !matches!(self, Outcome::Interrupted | Outcome::Lost | Outcome::Limited { .. })
    }

    /// Whether the same task is tried again.
    pub fn retries(&self) -> bool {
        match self {
            // Work that is kept carries the id of its task; further work needs another task.
            Outcome::AgentFailed { kept, .. } | Outcome::Limited { kept, .. } => !kept,
            Outcome::TaskFailed { .. } | Outcome::Interrupted | Outcome::Lost => true,
            Outcome::Reached
            | Outcome::Progress
            | Outcome::NotYet
            | Outcome::NoOp
            | Outcome::Refused { .. }
            | Outcome::Regressed { .. }
            | Outcome::Discarded { .. } => false,
        }
    }

    /// Name of the outcome in one or two words.
    pub fn label(&self) -> &'static str {
        match self {
            Outcome::Reached => "reached",
            Outcome::Progress => "progress",
            Outcome::NotYet => "not yet",
            Outcome::NoOp => "no-op",
            Outcome::Refused { .. } => "refused",
            Outcome::Regressed { .. } => "regressed",
            Outcome::Discarded { .. } => "discarded",
            Outcome::AgentFailed { .. } => "agent failed",
            Outcome::TaskFailed { .. } => "task failed",
            Outcome::Limited { .. } => "limited",
            Outcome::Interrupted => "interrupted",
            Outcome::Lost => "lost",
        }
    }
}

/// Charge to the scopes of a turn when it ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// Actual usage; replaces the reservation.
    pub spend: Spend,
    /// A figure is an estimate of everloop, not the agent's report.
    pub estimated: bool,
    /// The estimate concerns dollars only: the agent reported the tokens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tokens_exact: bool,
    pub failed: bool,
    /// It failed soon after its start.
    pub died_young: bool,
    /// More checks pass than before.
    pub progress: bool,
    /// A limit ended it.
    #[serde(default)]
    pub limited: bool,
    /// Where the figures come from.
    #[serde(default, skip_serializing_if = "UsageSource::is_stream")]
    pub source: UsageSource,
}

/// How work reached the target branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Integrated {
    /// The target branch contains it (also if an earlier attempt landed it before a crash).
    Landed {
        /// The commit on the target.
        commit: String,
    },
    /// The person's working tree is in the way; the work waits under a ref.
    Aside {
        commit: String,
        /// What is in the way.
        why: String,
        /// Command that lands the work by hand.
        command: String,
    },
    /// The loop has no branch: the work is in the folder.
    InPlace,
}

/// A pattern over several turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Turns that change nothing.
    NoOps,
    /// The same failure again and again.
    SameError,
    /// Two states alternate.
    PingPong,
    /// No progress for long.
    Stagnation,
}

impl Pattern {
    /// Name of the pattern in messages.
    pub fn label(self) -> &'static str {
        match self {
            Pattern::NoOps => "no-op turns",
            Pattern::SameError => "the same error",
            Pattern::PingPong => "ping-pong between two states",
            Pattern::Stagnation => "no progress",
        }
    }
}

/// The bound that ended a loop, as a fragment about the loop.
pub fn used_up(bound: &str) -> String {
    match bound {
        "deadline" => "deadline has passed".to_owned(),
        "time" => "time is used up".to_owned(),
        "patience" => "patience is used up".to_owned(),
        bound => format!("{bound} are used up"),
    }
}

/// How a loop ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum LoopEnd {
    /// All checks pass.
    Reached,
    /// Turns, time or budget ended first.
    Exhausted {
        /// `turns`, `time`, `deadline`, `calls`, `tokens` or `dollars`.
        bound: String,
    },
    /// A person stopped it.
    Stopped { by: String },
    /// It cannot go on: the workspace or the checks are gone.
    Failed { why: String },
}
