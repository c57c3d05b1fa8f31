//! Which task of a loop's board is next. Its own tasks (`batch`) are not on the board: it makes them itself.

use everloop_core::ids::LoopId;
use everloop_core::op::{TaskRow, TaskState};
use everloop_core::time::Time;
use everloop_store::{Ledger, Owner, Sqlite, StateName, TaskFilter};

use crate::error::Failure;

/// Tasks that are looked at; a longer queue is looked at from its newest end.
const LOOK: usize = 200;

/// The most urgent ready task that somebody left for a loop: queued and due, or with its lease over.
pub fn most_urgent(ledger: &Sqlite, owner: &LoopId, now: Time) -> Result<Option<TaskRow>, Failure> {
    let states = vec![StateName::Queued, StateName::Leased];
    let mut rows = ledger.tasks(&TaskFilter { owner: Owner::Loop(owner.clone()), states, limit: LOOK })?;
    rows.retain(|row| row.task.kind != "batch" && is_due(row, now));
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

fn is_due(row: &TaskRow, now: Time) -> bool {
    match &row.state {
        TaskState::Queued => row.task.ready_at <= now,
        TaskState::Leased { until, .. } => *until <= now,
        TaskState::Done | TaskState::Dead | TaskState::Blocked => false,
    }
}
