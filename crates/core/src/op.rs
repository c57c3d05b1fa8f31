//! What a ledger can be asked to do. Every batch of operations is one transaction: all or nothing.
//!
//! The types live here so that `decide` can ask for them and so that every ledger means the same by them. A ledger
//! gives atomicity and durability, never logic.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::guard::{GuardState, Scope};
use crate::ids::{Fence, LoopId, NodeId, TaskId};
use crate::time::{Time, millis};

/// One operation on the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    /// Puts a task into the queue. A task whose id is there already is left as it is.
    Enqueue(NewTask),
    /// Takes up to `n` ready tasks (queued and due, or leased with the lease over), highest priority first, then oldest,
    /// then smallest id; tasks with unfinished dependencies are not ready.
    Claim {
        /// Who takes them.
        node: NodeId,
        /// How many at most.
        n: u32,
        /// Only tasks of this loop; `None` takes tasks that belong to no loop.
        owner: Option<LoopId>,
        /// For how long.
        #[serde(with = "millis")]
        lease: Duration,
    },
    /// Takes this very task under this very fence, which must be the next one.
    Take {
        /// Which.
        task: TaskId,
        /// Must be one above the task's fence.
        fence: Fence,
        /// Who.
        node: NodeId,
        /// For how long.
        #[serde(with = "millis")]
        lease: Duration,
    },
    /// Holds on to a task.
    Renew {
        /// Which.
        task: TaskId,
        /// Under which fence.
        fence: Fence,
        /// For how long from now.
        #[serde(with = "millis")]
        lease: Duration,
    },
    /// Ends a task. Only the holder of the latest fence can; anybody else is [`Refusal::Fenced`].
    Finish {
        /// Which.
        task: TaskId,
        /// Under which fence.
        fence: Fence,
        /// `Done` or `Dead`.
        state: TaskEnd,
        /// What came of it.
        result: String,
    },
    /// Gives a task back to the queue.
    Release {
        /// Which.
        task: TaskId,
        /// Under which fence.
        fence: Fence,
        /// Not before this.
        ready_at: Time,
        /// Whether the attempt counts as a failure of the task.
        failed: bool,
    },
    /// Keeps a result that came too late to count.
    Shelve {
        /// Which task.
        task: TaskId,
        /// Under which lost fence.
        fence: Fence,
        /// What came of it.
        result: String,
    },
    /// A person's change to a task, whoever holds it.
    Amend {
        /// Which.
        task: TaskId,
        /// What.
        change: Amendment,
    },
    /// This node is there.
    Heartbeat {
        /// Who.
        node: NodeId,
        /// Process identity and version, for people.
        info: String,
    },
    /// Asks to be the supervisor: granted when nobody is, the lease is over, or it is the caller already.
    Elect {
        /// Who.
        node: NodeId,
        /// For how long.
        #[serde(with = "millis")]
        lease: Duration,
    },
    /// The rest of the batch counts only while `node` is the supervisor under `term`; else [`Refusal::NotLeader`].
    Lead {
        /// Who.
        node: NodeId,
        /// Under which epoch.
        #[serde(rename = "epoch")]
        term: u64,
    },
    /// Ends its own time as supervisor, so that nobody has to wait for the end of the lease. Nothing when it was over.
    Resign {
        /// Who.
        node: NodeId,
        /// Under which epoch.
        #[serde(rename = "epoch")]
        term: u64,
    },
    /// Writes a guard's state if nobody else did since `version` was read.
    SaveGuard {
        /// Whose.
        scope: Scope,
        /// The version that was read; 0 for none.
        version: u64,
        /// The new state.
        state: Box<GuardState>,
    },
    /// Writes a loop's state if nobody else did since `version` was read.
    SaveLoop {
        /// Which.
        id: LoopId,
        /// The version that was read; 0 for none.
        version: u64,
        /// A short name of its phase, for listings.
        phase: String,
        /// The state as JSON.
        state: String,
    },
    /// Writes a document if nobody else did since `version` was read. What its body means is the writer's business.
    SaveDoc {
        /// What sort of document: `session`.
        kind: String,
        /// Which of them.
        key: String,
        /// The version that was read; 0 for none.
        version: u64,
        /// What it says, as JSON.
        body: String,
    },
    /// Leaves a message for a loop (or for the supervisor, with `to` = `*`).
    Signal {
        /// To whom.
        to: String,
        /// From whom.
        by: String,
        /// What, as JSON.
        body: String,
    },
    /// Takes messages out of the box; refused ([`Refusal::Gone`]) when one is not there any more.
    Consume {
        /// Which.
        ids: Vec<u64>,
    },
    /// Opens a ticket; one per open key.
    OpenTicket {
        /// The cause.
        key: String,
        /// Which loop, if any.
        owner: Option<LoopId>,
        /// What it says.
        text: String,
    },
    /// Closes the open ticket of that key, if there is one.
    CloseTicket {
        /// The cause.
        key: String,
        /// How it was solved.
        answer: String,
    },
    /// Writes events to the journal.
    Append {
        /// Which loop; `None` for the guard and the supervisor.
        owner: Option<LoopId>,
        /// What happened.
        events: Vec<Event>,
    },
}

/// A task to be queued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewTask {
    /// Chosen by whoever makes it.
    pub id: TaskId,
    /// The loop it belongs to.
    pub owner: Option<LoopId>,
    /// `batch` for a loop's own; free text otherwise.
    pub kind: String,
    /// One line.
    pub title: String,
    /// What the agent is told; data.
    pub prompt: String,
    /// Higher is sooner.
    pub priority: i32,
    /// Tasks that must be done before.
    pub deps: Vec<TaskId>,
    /// Who made it.
    pub author: String,
    /// How far its text is trusted.
    pub trust: Trust,
    /// Not before this.
    pub ready_at: Time,
}

/// How far a task's text is trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Written by the operator or by everloop itself.
    #[default]
    Operator,
    /// Written by an agent.
    Agent,
}

impl Trust {
    /// Whether it is the operator's word.
    pub fn is_operator(&self) -> bool {
        *self == Trust::Operator
    }
}

/// Where a task is; each task is in exactly one of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum TaskState {
    /// Waiting to be taken.
    Queued,
    /// Held by a node.
    Leased {
        /// By whom.
        node: NodeId,
        /// Until when.
        until: Time,
    },
    /// Finished.
    Done,
    /// Given up: failed too often, or cancelled.
    Dead,
    /// Waiting for a person.
    Blocked,
}

impl TaskState {
    /// One word, as it stands in listings and in the database.
    pub fn label(&self) -> &'static str {
        match self {
            TaskState::Queued => "queued",
            TaskState::Leased { .. } => "leased",
            TaskState::Done => "done",
            TaskState::Dead => "dead",
            TaskState::Blocked => "blocked",
        }
    }
}

/// How a holder ends a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskEnd {
    /// Finished.
    Done,
    /// Given up.
    Dead,
}

/// What a person can do to a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amendment {
    /// Queued → Blocked.
    Block,
    /// Blocked, Dead or Leased → Queued, with attempts forgotten. The fence grows, so a holder loses it.
    Retry,
    /// Anything not done → Dead. The fence grows.
    Cancel,
}

/// A task as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRow {
    /// As it was made.
    #[serde(flatten)]
    pub task: NewTask,
    /// Where it is.
    pub state: TaskState,
    /// Its latest fence.
    pub fence: Fence,
    /// Attempts that failed.
    pub failures: u32,
    /// What came of it.
    pub result: Option<String>,
    /// When it was made.
    pub created_at: Time,
    /// When it last changed.
    pub updated_at: Time,
}

/// A result that came too late to count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateResult {
    /// Which task.
    pub task: TaskId,
    /// Under which fence.
    pub fence: Fence,
    /// When.
    pub at: Time,
    /// What.
    pub result: String,
}

/// A message in the box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Grows.
    pub id: u64,
    /// When.
    pub at: Time,
    /// To whom.
    pub to: String,
    /// From whom.
    pub by: String,
    /// What, as JSON.
    pub body: String,
}

/// A question or alarm for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// Grows.
    pub id: u64,
    /// The cause.
    pub key: String,
    /// Which loop, if any.
    pub owner: Option<LoopId>,
    /// What it says.
    pub text: String,
    /// When it was opened.
    pub opened_at: Time,
    /// When and how it was solved.
    pub closed: Option<(Time, String)>,
}

/// What an operation answers. Same operations, same answers, in every ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Done, nothing to tell.
    Ok,
    /// Whether something new was made (a task, a ticket).
    Made(bool),
    /// Tasks that were taken, with their new fences.
    Claimed(Vec<TaskRow>),
    /// The epoch under which the caller is supervisor; `None` when somebody else is.
    Elected(Option<u64>),
    /// The sequence number of the last event written.
    Appended(u64),
    /// The new version of a loop, guard or document.
    Saved(u64),
    /// The id of a message.
    Sent(u64),
}

impl Reply {
    /// The new version of a loop, guard or document, if this is about one.
    pub fn version(&self) -> Option<u64> {
        match self {
            Reply::Saved(version) => Some(*version),
            _ => None,
        }
    }
}

/// Somebody took the task away (a person cancelled it): the turn's end is kept, its result goes on the shelf. False when
/// there is nothing to shelve, so that the refusal stands.
pub fn shelve_late(batch: &mut Vec<Op>, task: &TaskId, fence: Fence) -> bool {
    let mut results = Vec::new();
    batch.retain(|op| match op {
        Op::Finish { task: t, fence: f, result, .. } if t == task && *f == fence => {
            results.push(result.clone());
            false
        }
        Op::Release { task: t, fence: f, .. } if t == task && *f == fence => {
            results.push("given back".to_owned());
            false
        }
        _ => true,
    });
    let found = !results.is_empty();
    batch.extend(results.into_iter().map(|result| Op::Shelve { task: task.clone(), fence, result }));
    found
}

/// Why a batch was refused; nothing of it happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The caller no longer holds the task.
    #[error("task `{task}` is not held under fence {fence} any more")]
    Fenced {
        /// Which.
        task: TaskId,
        /// Under which fence it was tried.
        fence: Fence,
    },
    /// Somebody else wrote first: read again, decide again.
    #[error("`{what}` was changed by somebody else")]
    Conflict {
        /// Loop, guard or document.
        what: String,
    },
    /// No such task or message.
    #[error("`{what}` is not there")]
    Gone {
        /// What was asked for.
        what: String,
    },
    /// The task is in a state in which this cannot be done.
    #[error("task `{task}` is {state}, so this cannot be done")]
    WrongState {
        /// Which.
        task: TaskId,
        /// Where it is.
        state: String,
    },
    /// Somebody else is the supervisor, or nobody is.
    #[error("this node is not the supervisor under epoch {term} any more")]
    #[serde(rename = "deposed")]
    NotLeader {
        /// Under which epoch it was tried.
        #[serde(rename = "epoch")]
        term: u64,
    },
    /// The new task's dependencies form a cycle or name unknown tasks.
    #[error("task `{task}`: {why}")]
    BadDependency {
        /// Which.
        task: TaskId,
        /// What is wrong.
        why: String,
    },
}
