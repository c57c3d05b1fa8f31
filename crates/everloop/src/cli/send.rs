//! `everloop send`: leaves a message for a loop, a task, a person or a named mailbox.
//!
//! Other verbs use [`send`] to leave a command for a loop and to make sure that it is taken: by the
//! running supervisor, or by this process.

use std::collections::BTreeSet;
use std::sync::Arc;

use everloop_core::action::LoopCommand;
use everloop_core::event::Event;
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::op::Op;
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_store::{Ledger, Sqlite};
use serde_json::json;

use super::Invocation;
use super::task::{TaskChange, named_loop};
use crate::api::Listen;
pub use crate::caller::person;
use crate::config::FileProjects;
use crate::error::{Code, Failure};
use crate::mailbox;
use crate::supervisor::{LoopSelection, Supervisor, SupervisorOptions, Until, Watcher};

const HELP: &str = "Examples:
  everloop send green \"the API is back\"        # the loop's next turn reads it
  everloop send x7k2m \"see also issue 12\"      # a comment; each turn on the task reads it
  everloop send @reviewer \"please look\"        # a mailbox of that name: everloop inbox @reviewer
  everloop send person \"may I drop Python 3.8?\" # a ticket";

/// Leaves a message. What an agent writes is handed on as data, never as an instruction.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct SendArgs {
    /// A loop (id or name), a task id, `@NAME`, `person`, or the key of a question
    to: String,
    /// Text of the message
    text: String,
    /// The loop that a question to a person is about
    #[arg(long = "about", value_name = "LOOP")]
    about: Option<String>,
}

/// The process that takes the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taker {
    /// A running supervisor was woken.
    Supervisor,
    /// No supervisor runs; the command took effect in the stored state.
    Ourselves,
    /// No supervisor runs; the next one takes it.
    Later,
}

pub fn verb(args: &SendArgs, session: &mut Invocation) -> Result<Code, Failure> {
    let text = mailbox::checked(&args.text)?.to_owned();
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    if args.to == "person" {
        let about = named_loop(session, &ledger, args.about.as_deref())?;
        return ask(&mut ledger, about.as_ref(), &text, session);
    }
    if args.to.starts_with(mailbox::QUESTION) {
        drop(ledger);
        return super::ticket::answer(&args.to, &text, session);
    }
    if args.to.starts_with('@') {
        let letter = mailbox::letter(&ledger, named_box(&args.to)?, &text, &session.caller)?;
        ledger.transact(session.now(), &[letter])?;
        return said(session, &args.to, "box");
    }
    if ledger.task(&TaskId::new(&args.to))?.is_some() {
        return super::comment::write(&mut ledger, &TaskId::new(&args.to), &text, session);
    }
    let found = session.find_loop(&ledger, Some(&args.to)).map_err(|_| nobody(&args.to))?;
    drop(ledger);
    let command = LoopCommand::Steer { message: text, trust: session.caller.trust() };
    let (state, taker) = send(session, Some(found.0.id.as_str()), &command)?;
    tell(session, &state.id, "will read it in its next turn", taker)?;
    Ok(Code::Ok)
}

fn named_box(to: &str) -> Result<String, Failure> {
    let name = &to[1..];
    let good =
        !name.is_empty() && name.len() <= 40 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if good {
        return Ok(to.to_owned());
    }
    Err(Failure::usage(format!("invalid mailbox name `{to}`"))
        .hint("`@` and up to 40 letters, digits, `-`, `_` or `.`: everloop send @reviewer \"TEXT\""))
}

fn nobody(to: &str) -> Failure {
    Failure::usage(format!("there is neither a loop nor a task `{to}`")).hint(format!(
        "`everloop status` and `everloop task list` show them; `@{}` is a named mailbox, `person` opens a ticket",
        to.trim_start_matches('@')
    ))
}

/// A question to a person is a ticket: `status` lists it until it is closed.
fn ask(ledger: &mut Sqlite, about: Option<&LoopId>, text: &str, session: &Invocation) -> Result<Code, Failure> {
    let key = mailbox::question(about, text);
    let text = format!("question from {}: {text}", session.caller.name());
    let ops = [Op::OpenTicket { key: key.clone(), owner: about.cloned(), text: text.clone() }];
    let events = [Event::TicketOpened { key: key.clone(), text }];
    TaskChange { owner: about, ops: &ops, events: &events }.commit(ledger, session)?;
    session.home()?.wake();
    session.ui.said(&format!("question: {key}"), &json!({ "ticket": key }))?;
    Ok(Code::Ok)
}

fn said(session: &Invocation, to: &str, how: &str) -> Result<Code, Failure> {
    session.ui.said(&format!("sent to {to}"), &json!({ "to": to, "by": session.caller.name(), "how": how }))?;
    Ok(Code::Ok)
}

/// Sends a command to a loop, found by `word`.
pub fn send(session: &Invocation, word: Option<&str>, command: &LoopCommand) -> Result<(LoopState, Taker), Failure> {
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    let (row, _) = session.find_loop(&ledger, word)?;
    let body = serde_json::to_string(command).expect("a command is plain data and always has a JSON form");
    let signal = Op::Signal { to: row.id.to_string(), by: session.caller.name(), body };
    ledger.transact(session.now(), &[signal])?;
    drop(ledger);
    let taker = deliver(session, &row.id)?;
    let ledger = session.writer(&home)?;
    let (_, state) = session.find_loop(&ledger, Some(row.id.as_str()))?;
    Ok((state, taker))
}

/// Makes sure that the messages of a loop are taken.
pub fn deliver(session: &Invocation, id: &LoopId) -> Result<Taker, Failure> {
    let home = session.home()?;
    // A protocol server leaves loops to supervisors: becoming one for a moment would mean to take
    // over signals.
    if !session.caller.has_stdin() && !home.is_owned() {
        return Ok(Taker::Later);
    }
    match home.own("command", session.now())? {
        Err(_) => {
            home.wake();
            Ok(Taker::Supervisor)
        }
        Ok(ownership) => {
            let ledger = session.writer(&home)?;
            let reach = LoopSelection::Only(BTreeSet::from([id.clone()]));
            let options = SupervisorOptions {
                home,
                reach,
                until: Until::Idle,
                shim: super::up::own_shim()?,
                listen: Listen::Off,
                projects: Arc::new(FileProjects),
            };
            let supervisor = Supervisor::new(options, ledger, ownership);
            super::up::block_on(supervisor.run(&mut Silent))??;
            Ok(Taker::Ourselves)
        }
    }
}

/// Prints what became of a command.
pub fn tell(session: &Invocation, id: &LoopId, what: &str, taker: Taker) -> Result<(), Failure> {
    let text = match taker {
        Taker::Supervisor => format!("loop {id}: {what}"),
        Taker::Ourselves | Taker::Later => {
            format!("loop {id}: {what} (no supervisor is running; `everloop up` starts one)")
        }
    };
    let told = json!({ "loop": id, "done": what, "supervisor": taker == Taker::Supervisor });
    session.ui.said(&text, &told)
}

/// Ignores all events.
pub struct Silent;

impl Watcher for Silent {
    fn committed(&mut self, _: &LoopState, _: &[Event], _: Time) {}
    fn beat(&mut self, _: &LoopState, _: Option<std::time::Duration>, _: Time) {}
    fn beats(&self) -> Option<std::time::Duration> {
        None
    }
}
