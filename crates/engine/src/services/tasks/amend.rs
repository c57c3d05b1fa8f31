//! Changes of a task that are not its end: block, retry, cancel.

use everloop_core::event::Event;
use everloop_core::ids::{Fence, TaskId};
use everloop_core::op::{Amendment, Op, Refusal};
use everloop_core::rhythm::row::WAITING;
use everloop_core::watch::KEEPALIVE;
use everloop_store::{Error, Ledger};
use serde::Serialize;

use super::{Change, held_by_caller, no_task, note};
use crate::error::Failure;
use crate::services::ServiceContext;

/// What is done to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskChange {
    /// It cannot be taken until it is retried; the holder of a held one gives it back, under its
    /// fence.
    Block { held: Option<Fence> },
    /// Back into the queue, with its failures forgotten.
    Retry,
    /// Gives it up; only a retry brings it back.
    Cancel,
}

impl TaskChange {
    fn amendment(self) -> Amendment {
        match self {
            TaskChange::Block { .. } => Amendment::Block,
            TaskChange::Retry => Amendment::Retry,
            TaskChange::Cancel => Amendment::Cancel,
        }
    }

    fn verb(self) -> &'static str {
        match self {
            TaskChange::Block { .. } => "blocked",
            TaskChange::Retry => "retried",
            TaskChange::Cancel => "cancelled",
        }
    }

    fn fence(self) -> Option<Fence> {
        match self {
            TaskChange::Block { held } => held,
            TaskChange::Retry | TaskChange::Cancel => None,
        }
    }
}

/// Change a task.
#[derive(Clone, Debug)]
pub struct AmendTask {
    pub task: TaskId,
    pub change: TaskChange,
    /// Why, for the journal.
    pub reason: String,
}

/// Where a task is after a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskAmended {
    pub task: TaskId,
    pub state: String,
}

/// Changes a task; the result of its holder is kept beside it.
pub fn amend(context: &ServiceContext, request: &AmendTask) -> Result<TaskAmended, Failure> {
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let (id, change) = (&request.task, request.change);
    let row = ledger.task(id)?.ok_or_else(|| no_task(id))?;
    if row.task.kind == KEEPALIVE {
        return Err(Failure::usage(format!("task `{id}` drives the monitors of its loop and is the loop's own")).hint(
            "`everloop pause` or `everloop stop` ends the watch, and so does an everloop.toml without monitors",
        ));
    }
    if row.task.kind == WAITING {
        return Err(Failure::usage(format!("task `{id}` is a signal that waits for its persona"))
            .hint("the persona's next turn takes it; `everloop persona list` shows what waits"));
    }
    match change.fence() {
        Some(_) => held_by_caller(&row, context)?,
        // An agent may take back what it put on the board itself.
        None if row.task.author == context.caller.name() => {}
        None => context.for_a_person(&format!("that a task of {} is {}", row.task.author, change.verb()))?,
    }
    let why = if request.reason.is_empty() { String::new() } else { format!(": {}", request.reason) };
    let give_back = |fence| Op::Release { task: id.clone(), fence, ready_at: context.now(), failed: false };
    let mut ops: Vec<Op> = change.fence().map(give_back).into_iter().collect();
    ops.push(Op::Amend { task: id.clone(), change: change.amendment() });
    let mut events = vec![note(format!("task {id} was {} by {}{why}", change.verb(), context.caller.name()))];
    // A person dealt with the task, so its ticket is closed.
    let key = format!("task.dead:{id}");
    if change.amendment() != Amendment::Block && ticket_is_open(&ledger, &key)? {
        ops.push(Op::CloseTicket {
            key: key.clone(),
            answer: format!("{} by {}", change.verb(), context.caller.name()),
        });
        events.push(Event::TicketClosed { key });
    }
    let written = Change { owner: row.task.owner.as_ref(), ops: &ops, events: &events };
    written.commit(&mut ledger, context).map_err(|e| refused(e, change))?;
    home.wake();
    let state = ledger.task(id)?.map_or("gone", |row| row.state.label()).to_owned();
    Ok(TaskAmended { task: id.clone(), state })
}

fn ticket_is_open(ledger: &impl Ledger, key: &str) -> Result<bool, Failure> {
    Ok(ledger.tickets(everloop_store::Tickets::Open)?.iter().any(|t| t.key == key))
}

fn refused(error: Error, change: TaskChange) -> Failure {
    match error {
        Error::Refused(Refusal::WrongState { task, state }) => {
            let failure = Failure::failed(format!("task `{task}` is {state}, so it cannot be {}", change.verb()));
            match (&change.amendment(), state.as_str()) {
                (Amendment::Block, "leased") => {
                    failure.hint(format!("take it from its holder first: everloop task retry {task}"))
                }
                (_, "done") => failure.hint("add a new one: everloop task add TITLE"),
                _ => failure,
            }
        }
        other => other.into(),
    }
}
