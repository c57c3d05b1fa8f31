//! The end of a task that the caller holds.

use std::time::Duration;

use everloop_core::event::Event;
use everloop_core::ids::{Fence, TaskId};
use everloop_core::op::{Op, Refusal, TaskEnd, TaskRow, TaskState};
use everloop_core::state::POISON;
use everloop_store::{Error, Ledger, Sqlite};
use serde::Serialize;

use super::{Change, TaskAmended, held_by_caller, no_task, note};
use crate::error::Failure;
use crate::services::ServiceContext;

/// End a task that the caller holds.
#[derive(Clone, Debug)]
pub struct FinishTask {
    pub task: TaskId,
    /// The fence under which it is held.
    pub fence: Fence,
    /// What came of it.
    pub result: String,
}

/// Give a task back that the caller holds.
#[derive(Clone, Debug)]
pub struct FailTask {
    pub task: TaskId,
    /// The fence under which it is held.
    pub fence: Fence,
    /// What went wrong.
    pub reason: String,
    /// It cannot be taken again before this time has passed.
    pub retry_in: Duration,
}

/// What became of a task that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskFailed {
    pub task: TaskId,
    pub state: &'static str,
    /// How often it has failed by now.
    pub failures: u32,
}

/// Ends a task: it is done.
pub fn done(context: &ServiceContext, request: &FinishTask) -> Result<TaskAmended, Failure> {
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let (id, fence, result) = (&request.task, request.fence, &request.result);
    let row = ledger.task(id)?.ok_or_else(|| no_task(id))?;
    held_by_caller(&row, context)?;
    let finish = Op::Finish { task: id.clone(), fence, state: TaskEnd::Done, result: result.clone() };
    let text = format!("task {id} was done by {}{}", context.caller.name(), colon(result));
    let change = Change { owner: row.task.owner.as_ref(), ops: &[finish], events: &[note(text)] };
    change.commit(&mut ledger, context).map_err(|e| too_late(e, &mut ledger, context, (id, fence, result)))?;
    home.wake();
    Ok(TaskAmended { task: id.clone(), state: "done".to_owned() })
}

/// Gives a task back; after [`POISON`] failures it is set aside with a ticket.
pub fn fail(context: &ServiceContext, request: &FailTask) -> Result<TaskFailed, Failure> {
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let (id, fence) = (&request.task, request.fence);
    let row = ledger.task(id)?.ok_or_else(|| no_task(id))?;
    held_by_caller(&row, context)?;
    let result = format!("failed{}", colon(&request.reason));
    let failures = row.failures + 1;
    let poisoned = failures >= POISON;
    let (ops, events) = if poisoned {
        give_up(&row, fence, &result)
    } else {
        let ready_at = context.now() + request.retry_in;
        let by = context.caller.name();
        let text = format!("task {id} {result}, given back by {by} ({failures} of {POISON} failures)");
        (vec![Op::Release { task: id.clone(), fence, ready_at, failed: true }], vec![note(text)])
    };
    let change = Change { owner: row.task.owner.as_ref(), ops: &ops, events: &events };
    change.commit(&mut ledger, context).map_err(|e| too_late(e, &mut ledger, context, (id, fence, &result)))?;
    home.wake();
    Ok(TaskFailed { task: id.clone(), state: if poisoned { "dead" } else { "queued" }, failures })
}

fn give_up(row: &TaskRow, fence: Fence, result: &str) -> (Vec<Op>, Vec<Event>) {
    let id = &row.task.id;
    let key = format!("task.dead:{id}");
    let text =
        format!("task {id} failed {POISON} times ({result}); it was given up; try again: everloop task retry {id}");
    let ops = vec![
        Op::Finish { task: id.clone(), fence, state: TaskEnd::Dead, result: result.to_owned() },
        Op::OpenTicket { key: key.clone(), owner: row.task.owner.clone(), text: text.clone() },
    ];
    (ops, vec![Event::TicketOpened { key, text }])
}

/// The task is held under another fence, or ended: the result is kept beside it and does not count.
fn too_late(error: Error, ledger: &mut Sqlite, context: &ServiceContext, late: (&TaskId, Fence, &str)) -> Failure {
    let (id, fence, result) = late;
    let Error::Refused(Refusal::Fenced { .. }) = &error else { return error.into() };
    let shelve = Op::Shelve { task: id.clone(), fence, result: result.to_owned() };
    let owner = ledger.task(id).ok().flatten();
    let late_result = ledger.transact(context.now(), &[shelve]);
    let now = match owner.as_ref().map(|row| (&row.state, row.fence)) {
        Some((TaskState::Leased { node, .. }, fence)) => format!("{node} holds it under fence {fence}"),
        Some((state, _)) => format!("it is {}", state.label()),
        None => "it is gone".to_owned(),
    };
    let failure = Failure::failed(format!("task `{id}` is not held under fence {fence} any more: {now}"));
    match late_result {
        Ok(_) => failure.hint(format!("the result does not count but was kept: everloop task show {id}")),
        Err(e) => failure.because(&e),
    }
}

fn colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}
