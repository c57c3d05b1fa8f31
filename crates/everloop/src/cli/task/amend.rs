//! `everloop task block`, `retry` and `cancel`: what a person can do to a task, whoever holds it.

use everloop_core::event::Event;
use everloop_core::ids::TaskId;
use everloop_core::op::{Amendment, Op, Refusal};
use everloop_store::{Error, Ledger};
use serde_json::json;

use super::{Change, Session, caller, no_task, note};
use crate::error::{Code, Failure};

/// Changes a task, whoever holds it; a holder's result goes on the shelf.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  everloop task block x7k2m --reason \"needs a decision\"\n  everloop task retry x7k2m"
)]
pub struct Args {
    /// Task id
    task: String,
    /// Why, for the journal
    #[arg(long, default_value = "", value_name = "TEXT")]
    reason: String,
}

/// A change and its words.
struct Deed {
    change: Amendment,
    verb: &'static str,
    now: &'static str,
}

pub fn block(args: &Args, session: &mut Session) -> Result<Code, Failure> {
    amend(args, &Deed { change: Amendment::Block, verb: "blocked", now: "waits for `everloop task retry`" }, session)
}

pub fn retry(args: &Args, session: &mut Session) -> Result<Code, Failure> {
    amend(args, &Deed { change: Amendment::Retry, verb: "retried", now: "is back in the queue" }, session)
}

pub fn cancel(args: &Args, session: &mut Session) -> Result<Code, Failure> {
    amend(args, &Deed { change: Amendment::Cancel, verb: "cancelled", now: "is given up" }, session)
}

fn amend(args: &Args, deed: &Deed, session: &Session) -> Result<Code, Failure> {
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    let id = TaskId::new(&args.task);
    let row = ledger.task(&id)?.ok_or_else(|| no_task(&id))?;
    let why = if args.reason.is_empty() { String::new() } else { format!(": {}", args.reason) };
    let mut ops = vec![Op::Amend { task: id.clone(), change: deed.change.clone() }];
    let mut events = vec![note(format!("task {id} was {} by {}{why}", deed.verb, caller()))];
    // A person dealt with the task, so the question that it opened is answered.
    let key = format!("task.dead:{id}");
    if deed.change != Amendment::Block && ticket_is_open(&ledger, &key)? {
        ops.push(Op::CloseTicket { key: key.clone(), answer: format!("{} by {}", deed.verb, caller()) });
        events.push(Event::TicketClosed { key });
    }
    let change = Change { owner: row.task.owner.as_ref(), ops: &ops, events: &events };
    change.commit(&mut ledger, session).map_err(|e| refused(e, deed))?;
    home.knock();
    let state = ledger.task(&id)?.map_or("gone", |row| row.state.label());
    session.ui.answer(&[format!("task {id} {}", deed.now)], &json!({ "task": id, "state": state }))?;
    Ok(Code::Ok)
}

fn ticket_is_open(ledger: &impl Ledger, key: &str) -> Result<bool, Failure> {
    Ok(ledger.tickets(everloop_store::Tickets::Open)?.iter().any(|t| t.key == key))
}

fn refused(error: Error, deed: &Deed) -> Failure {
    match error {
        Error::Refused(Refusal::WrongState { task, state }) => {
            let failure = Failure::failed(format!("task `{task}` is {state}, so it cannot be {}", deed.verb));
            match (&deed.change, state.as_str()) {
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
