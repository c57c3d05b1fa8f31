//! The board: tasks by what they wait for.

use everloop_core::ids::TaskId;
use everloop_core::op::{TaskRow, TaskState};
use everloop_core::time::Time;
use everloop_store::{Ledger, Sqlite, StateName, TaskFilter, TaskOwner};
use serde::Serialize;

use super::{ledger, line};
use crate::error::Failure;
use crate::services::ServiceContext;

/// Tasks of a state; `everloop task list` has all.
const SHOWN: usize = 60;

/// Tasks by state, newest first.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BoardView {
    pub columns: Vec<BoardColumn>,
}

/// The tasks of one state.
#[derive(Clone, Debug, Serialize)]
pub struct BoardColumn {
    pub state: &'static str,
    pub tasks: Vec<TaskCard>,
    /// Whether there are more.
    pub more: bool,
}

/// A task in a column.
#[derive(Clone, Debug, Serialize)]
pub struct TaskCard {
    pub id: TaskId,
    pub title: String,
    pub kind: String,
    /// Its loop, if it has one.
    pub owner: String,
    pub author: String,
    pub priority: i32,
    pub deps: Vec<String>,
    /// Its holder and the end of the lease.
    pub lease: Option<(String, Time)>,
    pub failures: u32,
    /// What became of it.
    pub status: &'static str,
    pub since: Time,
    pub may_retry: bool,
    pub may_cancel: bool,
}

/// Reads the board.
pub fn board(context: &ServiceContext) -> Result<BoardView, Failure> {
    let Some(ledger) = ledger(context)? else { return Ok(BoardView::default()) };
    let columns = StateName::ALL.iter().map(|state| column(&ledger, *state)).collect::<Result<_, _>>()?;
    Ok(BoardView { columns })
}

fn column(ledger: &Sqlite, state: StateName) -> Result<BoardColumn, Failure> {
    let filter = TaskFilter { owner: TaskOwner::Any, states: vec![state], limit: SHOWN + 1 };
    let mut rows = ledger.tasks(&filter)?;
    let more = rows.len() > SHOWN;
    rows.truncate(SHOWN);
    Ok(BoardColumn { state: state.label(), tasks: rows.iter().map(card).collect(), more })
}

fn card(row: &TaskRow) -> TaskCard {
    let task = &row.task;
    // These follow their loop; a person changes the loop.
    let is_loops = crate::board::OWN_KINDS.contains(&task.kind.as_str());
    TaskCard {
        id: task.id.clone(),
        title: line(&task.title),
        kind: line(&task.kind),
        owner: task.owner.as_ref().map(ToString::to_string).unwrap_or_default(),
        author: line(&task.author),
        priority: task.priority,
        deps: task.deps.iter().map(|dep| line(dep.as_str())).collect(),
        lease: match &row.state {
            TaskState::Leased { node, until, .. } => Some((line(node.as_str()), *until)),
            TaskState::Queued | TaskState::Done | TaskState::Dead | TaskState::Blocked => None,
        },
        failures: row.failures,
        status: row.status(),
        since: row.updated_at,
        may_retry: !is_loops && matches!(row.state, TaskState::Dead | TaskState::Blocked),
        may_cancel: !is_loops && matches!(row.state, TaskState::Queued | TaskState::Blocked),
    }
}
