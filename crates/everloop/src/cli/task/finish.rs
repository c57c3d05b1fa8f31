//! `everloop task done` and `everloop task fail`: the end of a task that the caller holds.

use std::time::Duration;

use everloop_core::event::Event;
use everloop_core::ids::{Fence, TaskId};
use everloop_core::op::{Op, Refusal, TaskEnd, TaskRow, TaskState};
use everloop_core::state::POISON;
use everloop_core::time::parse_duration;
use everloop_store::{Error, Ledger, Sqlite};
use serde_json::json;

use super::{Invocation, TaskChange, held_by_caller, no_task, note};
use crate::error::{Code, Failure};

/// Finishes a task that you hold.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  everloop task done x7k2m --fence 1 --result \"ported, 14 tests added\"")]
pub struct DoneArgs {
    /// Id of the task
    task: String,
    /// The fence under which you took it
    #[arg(long, value_name = "N")]
    fence: u64,
    /// Result of the task
    #[arg(long, default_value = "", value_name = "TEXT")]
    result: String,
}

/// Gives a task back; after three failures it is dead and opens a ticket.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  everloop task fail x7k2m --fence 1 --reason \"no network\" --retry-in 10m")]
pub struct FailArgs {
    /// Id of the task
    task: String,
    /// The fence under which you took it
    #[arg(long, value_name = "N")]
    fence: u64,
    /// What went wrong
    #[arg(long, default_value = "", value_name = "TEXT")]
    reason: String,
    /// Time before the task may be taken again
    #[arg(long, default_value = "0", value_name = "TIME", value_parser = parse_duration)]
    retry_in: Duration,
}

pub fn done(args: DoneArgs, session: &mut Invocation) -> Result<Code, Failure> {
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    let (id, fence) = (TaskId::new(args.task), Fence(args.fence));
    let row = ledger.task(&id)?.ok_or_else(|| no_task(&id))?;
    held_by_caller(&row, session)?;
    let finish = Op::Finish { task: id.clone(), fence, state: TaskEnd::Done, result: args.result.clone() };
    let said = format!("task {id} was done by {}{}", session.caller.name(), colon(&args.result));
    let change = TaskChange { owner: row.task.owner.as_ref(), ops: &[finish], events: &[note(said)] };
    change.commit(&mut ledger, session).map_err(|e| too_late(e, &mut ledger, session, (&id, fence, &args.result)))?;
    home.wake();
    session.ui.answer(&[format!("task {id} is done")], &json!({ "task": id, "state": "done" }))?;
    Ok(Code::Ok)
}

pub fn fail(args: FailArgs, session: &mut Invocation) -> Result<Code, Failure> {
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    let (id, fence) = (TaskId::new(args.task), Fence(args.fence));
    let row = ledger.task(&id)?.ok_or_else(|| no_task(&id))?;
    held_by_caller(&row, session)?;
    let result = format!("failed{}", colon(&args.reason));
    let failures = row.failures + 1;
    let poisoned = failures >= POISON;
    let (ops, events) = if poisoned {
        give_up(&row, fence, &result)
    } else {
        let ready_at = session.now() + args.retry_in;
        let said =
            format!("task {id} {result}, given back by {} ({failures} of {POISON} failures)", session.caller.name());
        (vec![Op::Release { task: id.clone(), fence, ready_at, failed: true }], vec![note(said)])
    };
    let change = TaskChange { owner: row.task.owner.as_ref(), ops: &ops, events: &events };
    change.commit(&mut ledger, session).map_err(|e| too_late(e, &mut ledger, session, (&id, fence, &result)))?;
    home.wake();
    let (state, said) = if poisoned {
        ("dead", format!("task {id} failed {failures} times and is given up; try again: everloop task retry {id}"))
    } else {
        ("queued", format!("task {id} is back in the queue ({failures} of {POISON} failures)"))
    };
    session.ui.answer(&[said], &json!({ "task": id, "state": state, "failures": failures }))?;
    Ok(Code::Ok)
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

/// Another holder has the task, or ended it: the result is kept as a late result and does not
/// count.
fn too_late(error: Error, ledger: &mut Sqlite, session: &Invocation, late: (&TaskId, Fence, &str)) -> Failure {
    let (id, fence, result) = late;
    let Error::Refused(Refusal::Fenced { .. }) = &error else { return error.into() };
    let shelve = Op::Shelve { task: id.clone(), fence, result: result.to_owned() };
    let owner = ledger.task(id).ok().flatten();
    let late_result = ledger.transact(session.now(), &[shelve]);
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
