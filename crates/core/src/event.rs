//! What happened. Events are the only thing that changes a state; they are kept for ever in the journal.

use serde::{Deserialize, Serialize};

use crate::guard::{Permit, Scope, Spend};
use crate::hook::SessionAct;
use crate::ids::{Fence, TaskId, TurnId};
use crate::immune;
use crate::op::Trust;
use crate::reason::Reason;
use crate::scoreboard::Scoreboard;
use crate::spec::{Bounds, LoopSpec};
use crate::stream::{LimitClass, TurnReport, VendorLimit};
use crate::telemetry::UsageSource;
use crate::time::Time;

/// Version of the event format. Old journals stay readable: see the fixtures of the store.
pub const EVENT_VERSION: u32 = 6;

/// Something that happened to a loop or to the guard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A loop was made.
    LoopCreated {
        /// What people call it.
        name: String,
        /// What it is to do.
        spec: Box<LoopSpec>,
    },
    /// The operator changed what the loop is to do.
    SpecChanged {
        /// What it is to do from now on.
        spec: Box<LoopSpec>,
    },
    /// The checks were run before the first turn.
    Baselined {
        /// What they said.
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
        /// `<task>.<fence>`.
        turn: TurnId,
        /// The task it works on.
        task: TaskId,
        /// Under which fence.
        fence: Fence,
        /// Counts from 1, over all tasks of the loop.
        number: u32,
        /// What the guard granted.
        permit: Permit,
        /// Who takes it.
        #[serde(default)]
        agent: String,
        /// Under which account.
        #[serde(default)]
        account: String,
        /// The conversation that it goes on with.
        #[serde(default)]
        resume: Option<String>,
        /// Why this agent, where the loop has several.
        #[serde(default)]
        chosen: Option<Reason>,
    },
    /// Another agent or account of the operator's list takes over.
    AgentSwitched {
        /// `agent@account` before.
        from: String,
        /// `agent@account` now.
        to: String,
        /// What holds the one before, or that the preferred one is free again.
        reason: Reason,
    },
    /// The agent's process is gone.
    TurnExited {
        /// Which turn.
        turn: TurnId,
        /// How it ended.
        exit: Exit,
    },
    /// The work was looked at and the checks were run on it.
    TurnJudged {
        /// Which turn.
        turn: TurnId,
        /// What was found.
        judgement: Judgement,
    },
    /// The target moved under the work: it is judged again on the new base.
    TurnReturned {
        /// Which turn.
        turn: TurnId,
        /// What moved.
        why: String,
    },
    /// The turn is over and counted.
    TurnEnded {
        /// Which turn.
        turn: TurnId,
        /// What it amounts to.
        outcome: Outcome,
        /// What its scopes are charged.
        settled: Settled,
        /// The loop's work stands here now; `None` when it did not move.
        work: Option<String>,
        /// How the work reached the operator, if it did.
        integrated: Option<Integrated>,
    },
    /// A person or a signal wants the loop to look again.
    Woken {
        /// Who.
        by: String,
    },
    /// No turn starts until resumed, or until a time.
    Paused {
        /// Who.
        by: String,
        /// Why.
        reason: String,
        /// It goes on by itself then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Time>,
    },
    /// The pause is over, or an ended loop goes on.
    Resumed {
        /// Who.
        by: String,
        /// New bounds, if the old ones had ended the loop.
        bounds: Option<Bounds>,
    },
    /// The loop is to end.
    StopAsked {
        /// Who.
        by: String,
        /// Whether the running turn is stopped too.
        now: bool,
    },
    /// A message for the next turn.
    Steered {
        /// Who.
        by: String,
        /// The message; data for the prompt.
        message: String,
        /// Whose word it is.
        #[serde(default, skip_serializing_if = "Trust::is_operator")]
        trust: Trust,
    },
    /// The running turn is being stopped.
    Stopping {
        /// Which turn.
        turn: TurnId,
        /// Why.
        cause: StopCause,
    },
    /// Frosty: the scope cools down.
    Cooldown {
        /// Who.
        scope: Scope,
        /// Until when.
        until: Time,
        /// How often in a row.
        level: u32,
    },
    /// An agent failed; the next start waits.
    Backoff {
        /// Who.
        scope: Scope,
        /// Until when.
        until: Time,
        /// `failure` or `asked` (a marker in the agent's output).
        why: String,
    },
    /// The vendor will not serve an account now.
    Limited {
        /// The account.
        scope: Scope,
        /// What its CLI said.
        limit: VendorLimit,
        /// Nothing starts before.
        until: Time,
        /// How often in a row without a success.
        strikes: u32,
    },
    /// Really Chill Willy, a wall, or a person: a full hold.
    Frozen {
        /// Who.
        scope: Scope,
        /// The whole record of why.
        freeze: crate::guard::Freeze,
    },
    /// The hold is over.
    Released {
        /// Who.
        scope: Scope,
        /// A person's name, `canary`, or `booked`.
        by: String,
        /// Why.
        reason: String,
    },
    /// Something repeats that should not: no-op turns, the same error, ping-pong, stagnation.
    Noticed {
        /// Which pattern.
        pattern: Pattern,
        /// For how many turns.
        turns: u32,
    },
    /// Nothing got better for too long: the next turns try another way, before a person is told.
    StrategyChanged {
        /// What passed without progress.
        reason: Reason,
        /// Who had been at work; others of the operator's list are asked first now.
        agent: String,
    },
    /// A person should look.
    TicketOpened {
        /// One ticket per cause.
        key: String,
        /// What it says.
        text: String,
    },
    /// Solved.
    TicketClosed {
        /// Which cause.
        key: String,
    },
    /// The loop is over (and can be resumed unless it was reached).
    Ended {
        /// How.
        ending: LoopEnd,
    },
    /// The supervisor came back and found this.
    Recovered {
        /// `alive`, `exited`, `gone` or `idle`.
        found: String,
    },
    /// Something happened in an agent's session that everloop did not start.
    InSession {
        /// As its CLI calls it.
        session: String,
        /// The loop whose checks hold it, by name.
        name: String,
        /// What happened.
        did: SessionAct,
    },
    /// A step of the immune system: who failed, who is charged, who gets less work, none, or a trial.
    Immune {
        /// What was done.
        step: Box<immune::ImmuneStep>,
    },
    /// A monitor saw something that was not known.
    Signalled {
        /// Which monitor.
        monitor: String,
        /// What is known from here on.
        cursor: String,
        /// The task that is about it; `None` for the first look.
        task: Option<TaskId>,
        /// What changed, in one line; data.
        what: String,
    },
    /// The next keepalive is the one that counts.
    Keepalive {
        /// Which.
        number: u32,
        /// What ended the one before.
        after: String,
    },
    /// Something worth a line that changes no state.
    Note {
        /// The line.
        text: String,
    },
}

/// How an agent's process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// Signal number.
    pub signal: Option<i32>,
    /// It never started: the reason.
    pub spawn_error: Option<String>,
    /// When it started.
    pub started_at: Time,
    /// When it ended.
    pub ended_at: Time,
    /// Bytes it wrote, also those not kept.
    pub out_bytes: u64,
    /// End of its output, capped and redacted.
    pub tail: String,
    /// Delay it asked for with `<BACKOFF …>`, in milliseconds.
    pub backoff_ms: Option<u64>,
    /// It was stopped by everloop.
    pub stopped: Option<StopCause>,
    /// Processes that were left behind and had to be killed.
    pub leftovers: u32,
    /// What its stream said, summed up; `None` for an agent without one.
    #[serde(default)]
    pub report: Option<Box<TurnReport>>,
}

impl Exit {
    /// The agent itself says that all went well. One with a stream must have said so and have ended well: exit code 0
    /// alone also comes from a CLI that was interrupted, ran out of tokens or was refused a tool.
    pub fn ok(&self) -> bool {
        let lingered = self.stopped == Some(StopCause::Lingers);
        let ended = self.code == Some(0) && self.stopped.is_none() || lingered;
        let said = self.report.as_ref().map_or(!lingered, |r| r.ok == Some(true));
        ended && said && self.spawn_error.is_none()
    }

    /// The limit that ended it.
    pub fn limit(&self) -> Option<&VendorLimit> {
        if self.ok() { None } else { self.report.as_ref()?.limit.as_ref() }
    }

    /// `exit 1`, `signal 9`, `could not start: …`, `stopped: …`.
    pub fn describe(&self) -> String {
        // Whoever had said its last word before it was stopped did not end because of that.
        if let (Some(limit), None | Some(StopCause::Lingers)) = (self.limit(), self.stopped) {
            return format!("limit ({}): {}", limit.class, limit.text);
        }
        match (&self.spawn_error, self.stopped, self.signal, self.code) {
            (Some(e), _, _, _) => format!("could not start: {e}"),
            (_, Some(cause), _, _) => format!("stopped: {}", cause.describe()),
            (_, _, Some(s), _) => format!("signal {s}"),
            (_, _, _, Some(0)) if !self.ok() => "exit 0 without a final word".to_owned(),
            (_, _, _, Some(c)) => format!("exit {c}"),
            (None, None, None, None) => "ended without a trace".to_owned(),
        }
    }
}

/// Why everloop stopped a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// It ran out its wall budget.
    Wall,
    /// No sign of life.
    Stuck,
    /// The same again and again.
    Spinning,
    /// It used tokens for long and changed nothing in its workspace.
    NoDiff,
    /// It said its last word and did not end.
    Lingers,
    /// A person said so.
    Person,
    /// The supervisor goes down.
    Shutdown,
}

impl StopCause {
    /// In words.
    pub fn describe(self) -> &'static str {
        match self {
            StopCause::Wall => "its time was up",
            StopCause::Stuck => "no sign of life",
            StopCause::Spinning => "it did the same again and again",
            StopCause::NoDiff => "it went on for long and changed nothing",
            StopCause::Lingers => "it had finished and did not end",
            StopCause::Person => "by a person",
            StopCause::Shutdown => "the supervisor went down",
        }
    }
}

/// What was found when a turn's work was looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The tree differs from where the turn began.
    pub changed: bool,
    /// The commit that holds the work (merged with the target where that moved); `None` without git or change.
    pub commit: Option<String>,
    /// Where the attempt is pinned for ever, if it was worth pinning.
    pub pin: Option<String>,
    /// Files, insertions, deletions in words.
    pub diffstat: String,
    /// Protected files that the turn changed.
    pub violations: Vec<String>,
    /// What the checks said about the work.
    pub board: Scoreboard,
    /// The work could not be looked at: conflict, broken workspace.
    pub error: Option<String>,
}

/// What a turn amounts to.
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
    Refused {
        /// Which.
        paths: Vec<String>,
    },
    /// Fewer checks pass than before; the work is pinned, not used.
    Regressed {
        /// Checks that no longer pass.
        lost: Vec<String>,
    },
    /// The agent could not take or finish the turn; nobody's fault but the agent's.
    AgentFailed {
        /// How.
        why: String,
        /// Its partial work was good enough to go on from.
        kept: bool,
    },
    /// The turn broke its workspace or ran out its wall budget; counts on the task.
    TaskFailed {
        /// How.
        why: String,
    },
    /// The vendor would not serve the account; the conversation goes on when it does and nothing is counted.
    Limited {
        /// Which kind of limit.
        class: LimitClass,
        /// The work so far is there for the turn that goes on.
        kept: bool,
    },
    /// Stopped by a person or by a shutdown; the task is tried again and nothing is counted.
    Interrupted,
    /// The process vanished with its machine or its runner; the task is tried again and nothing is counted.
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
            // Work that is kept carries the task's name; a second piece of work needs another one.
            Outcome::AgentFailed { kept, .. } | Outcome::Limited { kept, .. } => !kept,
            Outcome::TaskFailed { .. } | Outcome::Interrupted | Outcome::Lost => true,
            Outcome::Reached
            | Outcome::Progress
            | Outcome::NotYet
            | Outcome::NoOp
            | Outcome::Refused { .. }
            | Outcome::Regressed { .. } => false,
        }
    }

    /// One or two words.
    pub fn label(&self) -> &'static str {
        match self {
            Outcome::Reached => "reached",
            Outcome::Progress => "progress",
            Outcome::NotYet => "not yet",
            Outcome::NoOp => "no-op",
            Outcome::Refused { .. } => "refused",
            Outcome::Regressed { .. } => "regressed",
            Outcome::AgentFailed { .. } => "agent failed",
            Outcome::TaskFailed { .. } => "task failed",
            Outcome::Limited { .. } => "limited",
            Outcome::Interrupted => "interrupted",
            Outcome::Lost => "lost",
        }
    }
}

/// What a turn's scopes are charged when it ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// What it used; replaces the reservation.
    pub spend: Spend,
    /// The figures are our estimate, not the agent's report.
    pub estimated: bool,
    /// It failed.
    pub failed: bool,
    /// It failed soon after its start.
    pub died_young: bool,
    /// It brought progress.
    pub progress: bool,
    /// A limit ended it.
    #[serde(default)]
    pub limited: bool,
    /// Where the figures come from.
    #[serde(default, skip_serializing_if = "UsageSource::is_stream")]
    pub source: UsageSource,
}

/// How work reached the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Integrated {
    /// The target branch holds it now (or did already, after a crash).
    Landed {
        /// The commit on the target.
        commit: String,
    },
    /// The operator's tree is in the way; the work waits under a ref.
    Aside {
        /// The commit.
        commit: String,
        /// What is in the way.
        why: String,
        /// What the operator can type.
        command: String,
    },
    /// There is no branch: the work is in the folder.
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
    /// Two states in turn.
    PingPong,
    /// No progress for long.
    Stagnation,
}

impl Pattern {
    /// In words.
    pub fn label(self) -> &'static str {
        match self {
            Pattern::NoOps => "no-op turns",
            Pattern::SameError => "the same error",
            Pattern::PingPong => "ping-pong between two states",
            Pattern::Stagnation => "no progress",
        }
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
    Stopped {
        /// Who.
        by: String,
    },
    /// It cannot go on: the workspace or the checks are gone.
    Failed {
        /// Why.
        why: String,
    },
}
