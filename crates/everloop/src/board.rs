//! The board: which task of a loop is next, and what may come onto it. A loop's own tasks (`batch`) are not on the board: it
//! makes them itself.
//!
//! - `board/file.rs`: the board as a file; `board/merge.rs`: two such files into one; `board/import.rs`: tasks from a file
//! - `board/place.rs`: where the file is; `board/intents.rs`: what agents without another way leave in the inbox folder

pub mod file;
pub mod import;
pub mod intents;
pub mod merge;
pub mod place;

use everloop_core::entry;
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::op::{NewTask, TaskRow, TaskState, Trust};
use everloop_core::time::Time;
use everloop_store::{Ledger, Owner, Sqlite, StateName, TaskFilter};

use crate::error::Failure;

/// Tasks that are looked at; a longer queue is looked at from its newest end.
const LOOK: usize = 200;
/// Open tasks that are counted; a board with more of them has room for no agent's.
const OPEN_LOOK: usize = 5_000;

/// The most urgent ready task that somebody left for a loop: queued and due, or with its lease over; none of `kinds_out`.
pub fn most_urgent(ledger: &Sqlite, owner: &LoopId, kinds_out: &[&str], now: Time) -> Result<Option<TaskRow>, Failure> {
    let states = vec![StateName::Queued, StateName::Leased];
    let mut rows = ledger.tasks(&TaskFilter { owner: Owner::Loop(owner.clone()), states, limit: LOOK })?;
    let wanted = |kind: &str| kind != "batch" && !kinds_out.contains(&kind);
    rows.retain(|row| wanted(&row.task.kind) && is_due(row, now));
    rows.sort_by_key(|row| (-row.task.priority, row.created_at, row.task.id.clone()));
    for row in rows {
        let mut ready = true;
        for dep in &row.task.deps {
            ready &= ledger.task(dep)?.is_some_and(|d| d.state == TaskState::Done);
        }
        if ready {
            return Ok(Some(row));
        }
    }
    Ok(None)
}

/// Refuses what an agent may not put onto the board.
pub fn admit(ledger: &impl Ledger, task: &NewTask) -> Result<(), Failure> {
    if task.trust == Trust::Operator {
        return Ok(());
    }
    let states = vec![StateName::Queued, StateName::Leased, StateName::Blocked];
    let open = ledger.tasks(&TaskFilter { owner: Owner::Any, states, limit: OPEN_LOOK })?;
    let known = Known { ledger, open: open.into_iter().filter(|row| row.task.trust == Trust::Agent).collect() };
    entry::admit(task, &known)
        .map_err(|refused| Failure::usage(format!("the task cannot be added: {}", refused.why)).hint(refused.instead))
}

struct Known<'a, L> {
    ledger: &'a L,
    open: Vec<TaskRow>,
}

impl<L: Ledger> entry::Board for Known<'_, L> {
    fn task(&self, id: &TaskId) -> Option<NewTask> {
        self.ledger.task(id).ok().flatten().map(|row| row.task)
    }

    fn open(&self, author: &str) -> (usize, usize) {
        (self.open.iter().filter(|row| row.task.author == author).count(), self.open.len())
    }
}

fn is_due(row: &TaskRow, now: Time) -> bool {
    match &row.state {
        TaskState::Queued => row.task.ready_at <= now,
        TaskState::Leased { until, .. } => *until <= now,
        TaskState::Done | TaskState::Dead | TaskState::Blocked => false,
    }
}
