//! The board: the next task of a loop, and the rules for new tasks. A loop's own tasks (`batch`)
//! are not on the board: it makes them itself.
//!
//! - `board/file.rs`: the board as a file; `board/merge.rs`: two such files into one;
//!   `board/import.rs`: tasks from a file
//! - `board/place.rs`: where the file is; `board/intents.rs`: the inbox folder, for agents without
//!   another way

pub mod board_folder;
pub mod file;
pub mod import;
pub mod intents;
pub mod merge;

use everloop_core::entry;
use everloop_core::ids::TaskId;
use everloop_core::op::{NewTask, TaskRow, Trust};
use everloop_core::rhythm::{inward, row};
use everloop_core::watch;
pub use everloop_store::shell::most_urgent;
use everloop_store::{Ledger, StateName, TaskFilter, TaskOwner};

use crate::error::Failure;

/// Kinds of tasks that only everloop makes and works on. They are no part of the board as a file: a
/// loop that watches that file would see its own signals there.
pub const OWN_KINDS: [&str; 7] =
    ["batch", intents::KIND, watch::KEEPALIVE, watch::SIGNAL, row::WAITING, inward::REFLECTION, inward::DREAM];

/// Open tasks that are counted; a fuller board takes no task from an agent.
const OPEN_TASKS_LIMIT: usize = 5_000;

/// Refuses what an agent may not put onto the board.
pub fn admit(ledger: &impl Ledger, task: &NewTask) -> Result<(), Failure> {
    if task.trust == Trust::Operator {
        return Ok(());
    }
    let states = vec![StateName::Queued, StateName::Leased, StateName::Blocked];
    let open = ledger.tasks(&TaskFilter { owner: TaskOwner::Any, states, limit: OPEN_TASKS_LIMIT })?;
    let known = Known { ledger, open: open.into_iter().filter(|row| row.task.trust == Trust::Agent).collect() };
    entry::admit(task, &known)
        .map_err(|refused| Failure::usage(format!("cannot add the task: {}", refused.why)).hint(refused.instead))
}

struct Known<'a, L> {
    ledger: &'a L,
    open: Vec<TaskRow>,
}

impl<L: Ledger> entry::EntryContext for Known<'_, L> {
    fn task(&self, id: &TaskId) -> Option<NewTask> {
        self.ledger.task(id).ok().flatten().map(|row| row.task)
    }

    fn open(&self, author: &str) -> (usize, usize) {
        (self.open.iter().filter(|row| row.task.author == author).count(), self.open.len())
    }
}

#[cfg(test)]
mod tests {
    use everloop_core::ids::LoopId;
    use everloop_core::op::Op;
    use everloop_core::time::Time;
    use everloop_store::Sqlite;

    use super::*;

    fn task(id: &str, kind: &str, priority: i32, deps: &[&str]) -> Op {
        Op::Enqueue(NewTask {
            id: TaskId::new(id),
            owner: Some(LoopId::new("k")),
            kind: kind.to_owned(),
            title: id.to_owned(),
            prompt: String::new(),
            priority,
            deps: deps.iter().copied().map(TaskId::new).collect(),
            author: "me".to_owned(),
            trust: Trust::Operator,
            ready_at: Time(1),
        })
    }

    #[test]
    fn an_urgent_task_is_found_behind_any_number_of_newer_ones() {
        let mut ledger = Sqlite::in_memory().expect("memory is enough");
        let mut put = |at: i64, op: Op| drop(ledger.transact(Time(at), &[op]).expect("a task can be queued"));
        put(1, task("old", "task", 5, &[]));
        put(2, task("waits", "task", 9, &["old"]));
        for n in 0..300 {
            put(3, task(&format!("n{n}"), "task", 0, &[]));
        }
        // The loop's own tasks are not on the board, however many there are.
        for n in 0..40 {
            put(4, task(&format!("b{n}"), "batch", 7, &[]));
        }
        let found = most_urgent(&ledger, &LoopId::new("k"), &[], Time(5)).expect("it can be read");
        assert_eq!(found.map(|row| row.task.id), Some(TaskId::new("old")));
        assert!(most_urgent(&ledger, &LoopId::new("other"), &[], Time(5)).expect("it can be read").is_none());
    }
}
