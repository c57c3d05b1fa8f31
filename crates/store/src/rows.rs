//! What reads of a ledger answer and how they are narrowed. Tasks, messages and tickets have their types in the core.

use everloop_core::ids::{LoopId, NodeId};
use everloop_core::op::TaskState;
use everloop_core::state::OVER;
use everloop_core::time::Time;

/// A loop as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopRow {
    /// Which.
    pub id: LoopId,
    /// Grows by one with every save; 1 after the first.
    pub version: u64,
    /// A short name of its phase.
    pub phase: String,
    /// When it was last saved.
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

/// A document as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocRow {
    /// Which of its kind.
    pub key: String,
    /// Grows by one with every save; 1 after the first.
    pub version: u64,
    /// When it was last saved.
    pub updated_at: Time,
    /// What it says, as JSON; it carries its own format version.
    pub body: String,
}

/// A node's last sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Who.
    pub node: NodeId,
    /// Process identity and version, for people.
    pub info: String,
    /// When.
    pub seen_at: Time,
}

/// Who is supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Who.
    pub node: NodeId,
    /// Under which epoch.
    pub term: u64,
    /// Until when.
    pub until: Time,
}

/// Which tasks are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFilter {
    /// Whose.
    pub owner: TaskOwner,
    /// In which states; empty means in any.
    pub states: Vec<StateName>,
    /// How many at most.
    pub limit: usize,
}

/// Whose tasks are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskOwner {
    /// Everybody's.
    Any,
    /// Those that belong to no loop.
    Nobody,
    /// Those of one loop.
    Loop(LoopId),
}

/// A [`TaskState`] without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are those of the states")]
pub enum StateName {
    Queued,
    Leased,
    Done,
    Dead,
    Blocked,
}

impl StateName {
    /// All of them.
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

    /// One word, as it stands in listings and in the database; the same as [`TaskState::label`].
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

/// Whose messages are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipients<'a> {
    /// Everybody's.
    All,
    /// Those of these recipients.
    These(&'a [String]),
}

/// Which tickets are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tickets {
    /// All that wait for a person.
    Open,
    /// This many of the newest, open or closed.
    Newest(usize),
}
