//! Change detection for a mirror: which rows of a ledger changed, without reading them all.

use std::hash::{DefaultHasher, Hash, Hasher};

use everloop_core::ids::{LoopId, TaskId};

use crate::{Error, Ledger};

/// A ledger that can be mirrored. A mark is a number that differs when the row does.
pub trait MirrorSource: Ledger {
    /// Every loop with its version.
    fn loop_marks(&self) -> Result<Vec<(LoopId, u64)>, Error>;

    /// Every document's kind, key and version.
    fn doc_marks(&self) -> Result<Vec<(String, String, u64)>, Error>;

    /// Every task that is not over, and the newest `completed` of those that are.
    fn task_marks(&self, completed: usize) -> Result<Vec<TaskMark>, Error>;

    /// Numbers and tasks of the late results after this number.
    fn late_results_after(&self, number: u64) -> Result<Vec<(u64, TaskId)>, Error>;
}

/// A task with its mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskMark {
    /// Id of the task.
    pub id: TaskId,
    /// The folder of the queue that it belongs to.
    pub folder: &'static str,
    /// Differs when the task changed.
    pub mark: u64,
}

impl TaskMark {
    /// Computes the mark from the columns that may change: state, `updated_at`, fence, failures and
    /// the end of the lease.
    pub(crate) fn new(id: String, state: &str, numbers: [i64; 4]) -> Self {
        let folder = match state {
            "leased" => "claimed",
            "done" | "dead" => "completed",
            _ => "pending",
        };
        let mut hasher = DefaultHasher::new();
        (state, numbers).hash(&mut hasher);
        Self { id: TaskId::new(id), folder, mark: hasher.finish() }
    }
}
