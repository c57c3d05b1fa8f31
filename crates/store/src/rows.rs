//! Row types and filters of a ledger's reads. Tasks, messages and tickets have their types in the
//! core.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::collections::BTreeMap;

use everloop_core::ids::{LoopId, NodeId, TaskId};
use everloop_core::op::TaskState;
use everloop_core::op::streams::{GroupState, StreamEnds};
use everloop_core::state::OVER;
use everloop_core::time::Time;

/// A loop as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopRow {
    pub id: LoopId,
    /// Grows by one with every save; 1 after the first.
    pub version: u64,
    /// Short name of the phase.
    pub phase: String,
    pub updated_at: Time,
    /// The state as JSON; it carries its own format version.
    pub state: String,
}

impl LoopRow {
    /// Whether the loop is over, by the name of its phase.
    pub fn is_over(&self) -> bool {
        OVER.contains(&self.phase.as_str())
    }
}

/// A loop without its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopMark {
    pub id: LoopId,
    pub version: u64,
}

/// The loop that was made last, by its place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewestLoop {
    pub(crate) row: i64,
    pub(crate) id: LoopId,
}

/// A document as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocRow {
    /// Unique within its kind.
    pub key: String,
    /// Grows by one with every save; 1 after the first.
    pub version: u64,
    pub updated_at: Time,
    /// Content as JSON; it carries its own format version.
    pub body: String,
}

/// A stream as it is stored, without its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRow {
    pub name: String,
    pub ends: StreamEnds,
    /// Groups by their names.
    pub groups: BTreeMap<String, GroupState>,
}

impl StreamRow {
    /// How many entries are kept.
    pub fn kept(&self) -> u64 {
        self.ends.last - self.ends.trimmed
    }
}

/// Latest heartbeat of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    pub node: NodeId,
    /// Process identity and version, for people.
    pub info: String,
    pub seen_at: Time,
}

/// Holder of the leader lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    pub node: NodeId,
    /// Term of the lease.
    pub term: u64,
    pub until: Time,
}

/// A person's edit of a task; what is `None` stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEdit {
    pub task: TaskId,
    pub title: Option<String>,
    pub prompt: Option<String>,
    pub priority: Option<i32>,
    pub deps: Option<Vec<TaskId>>,
}

impl TaskEdit {
    /// Whether the task means the same afterwards.
    pub fn is_priority_only(&self) -> bool {
        self.title.is_none() && self.prompt.is_none() && self.deps.is_none()
    }
}

/// Filter of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFilter {
    pub owner: TaskOwner,
    /// Accepted states; empty accepts any.
    pub states: Vec<StateName>,
    pub limit: usize,
}

/// Filter by the owner of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskOwner {
    /// Tasks of all loops and of none.
    Any,
    /// Tasks that belong to no loop.
    Nobody,
    /// Tasks of one loop.
    Loop(LoopId),
}

/// A [`TaskState`] without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StateName {
    Queued,
    Leased,
    Done,
    Dead,
    Blocked,
}

impl StateName {
    /// All states, in the order of the lifecycle.
    pub const ALL: [StateName; 5] =
        [StateName::Queued, StateName::Leased, StateName::Done, StateName::Dead, StateName::Blocked];

    /// The name of this state.
    pub fn of(state: &TaskState) -> Self {
        match state {
            TaskState::Queued => StateName::Queued,
            TaskState::Leased { .. } => StateName::Leased,
            TaskState::Done => StateName::Done,
            TaskState::Dead => StateName::Dead,
            TaskState::Blocked => StateName::Blocked,
        }
    }

    /// The state in one word, as in listings and in the database; equals [`TaskState::label`].
    pub fn label(self) -> &'static str {
        match self {
            StateName::Queued => "queued",
            StateName::Leased => "leased",
            StateName::Done => "done",
            StateName::Dead => "dead",
            StateName::Blocked => "blocked",
        }
    }
}

/// Filter of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipients<'a> {
    /// Messages to any recipient.
    All,
    /// Messages to these recipients.
    These(&'a [String]),
}

/// Filter of tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tickets {
    /// All that wait for a person.
    Open,
    /// This many of the newest, open or closed.
    Newest(usize),
}
