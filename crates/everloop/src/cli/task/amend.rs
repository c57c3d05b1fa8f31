//! `everloop task block`, `retry` and `cancel`: a person's changes to a task, whether or not it is
//! held.

use everloop_core::event::Event;
use everloop_core::ids::{Fence, TaskId};
use everloop_core::op::{Amendment, Op, Refusal};
use everloop_core::watch::KEEPALIVE;
use everloop_store::{Error, Ledger};
use serde_json::json;

use super::{Invocation, TaskChange, held_by_caller, no_task, note};
use crate::error::{Code, Failure};

/// Changes a task, whether or not it is held; a holder's result is kept as a late result.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  everloop task block x7k2m --reason \"needs a decision\"\n  everloop task retry x7k2m"
)]
pub struct TaskAmendArgs {
    /// Id of the task
    task: String,
    /// The reason, for the journal
    #[arg(long, default_value = "", value_name = "TEXT")]
    reason: String,
}

/// Keeps a task from being taken until `retry`; one that is held only with its holder's fence.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  everloop task block x7k2m --fence 1 --reason \"needs a decision\"")]
pub struct BlockArgs {
    #[command(flatten)]
    which: TaskAmendArgs,
    /// Fence under which you hold it; gives it back
    #[arg(long, value_name = "N")]
    fence: Option<u64>,
}

/// A change and its words.
struct TaskAmendment {
    change: Amendment,
    verb: &'static str,
    now: &'static str,
    /// The fence under which the caller holds the task.
    held: Option<Fence>,
}

pub fn block(args: &BlockArgs, session: &mut Invocation) -> Result<Code, Failure> {
    let held = args.fence.map(Fence);
    let now = "waits for `everloop task retry`";
    amend(&args.which, &TaskAmendment { change: Amendment::Block, verb: "blocked", now, held }, session)
}

pub fn retry(args: &TaskAmendArgs, session: &mut Invocation) -> Result<Code, Failure> {
    amend(
        args,
        &TaskAmendment { change: Amendment::Retry, verb: "retried", now: "is back in the queue", held: None },
        session,
    )
}

pub fn cancel(args: &TaskAmendArgs, session: &mut Invocation) -> Result<Code, Failure> {
    amend(
        args,
        &TaskAmendment { change: Amendment::Cancel, verb: "cancelled", now: "is given up", held: None },
        session,
    )
}

fn amend(args: &TaskAmendArgs, action: &TaskAmendment, session: &Invocation) -> Result<Code, Failure> {
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    let id = TaskId::new(&args.task);
    let row = ledger.task(&id)?.ok_or_else(|| no_task(&id))?;
    if row.task.kind == KEEPALIVE {
        return Err(Failure::usage(format!("task `{id}` drives the monitors of its loop and is the loop's own")).hint(
            "`everloop pause` or `everloop stop` ends the watch, and so does an everloop.toml without monitors",
        ));
    }
    match action.held {
        Some(_) => held_by_caller(&row, session)?,
        // An agent may take back a task that it added.
        None if row.task.author == session.caller.name() => {}
        None => session.for_a_person(&format!("have a task of {} {}", row.task.author, action.verb))?,
    }
    let why = if args.reason.is_empty() { String::new() } else { format!(": {}", args.reason) };
    let give_back = |fence| Op::Release { task: id.clone(), fence, ready_at: session.now(), failed: false };
    let mut ops: Vec<Op> = action.held.map(give_back).into_iter().collect();
    ops.push(Op::Amend { task: id.clone(), change: action.change.clone() });
    let mut events = vec![note(format!("task {id} was {} by {}{why}", action.verb, session.caller.name()))];
    // A person dealt with the task, so its ticket is closed.
    let key = format!("task.dead:{id}");
    if action.change != Amendment::Block && ticket_is_open(&ledger, &key)? {
        ops.push(Op::CloseTicket { key: key.clone(), answer: format!("{} by {}", action.verb, session.caller.name()) });
        events.push(Event::TicketClosed { key });
    }
    let change = TaskChange { owner: row.task.owner.as_ref(), ops: &ops, events: &events };
    change.commit(&mut ledger, session).map_err(|e| refused(e, action))?;
    home.wake();
    let state = ledger.task(&id)?.map_or("gone", |row| row.state.label());
    session.ui.answer(&[format!("task {id} {}", action.now)], &json!({ "task": id, "state": state }))?;
    Ok(Code::Ok)
}

fn ticket_is_open(ledger: &impl Ledger, key: &str) -> Result<bool, Failure> {
    Ok(ledger.tickets(everloop_store::Tickets::Open)?.iter().any(|t| t.key == key))
}

fn refused(error: Error, action: &TaskAmendment) -> Failure {
    match error {
        Error::Refused(Refusal::WrongState { task, state }) => {
            let failure = Failure::failed(format!("task `{task}` is {state}, so it cannot be {}", action.verb));
            match (&action.change, state.as_str()) {
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
