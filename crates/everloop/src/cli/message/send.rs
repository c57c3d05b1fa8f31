//! `everloop message send`: leaves a message for a loop, a task, a person or a named mailbox.
//!
//! Other verbs use [`send`] to leave a command for a loop, and [`show`] to print what became of it.

use everloop_core::ids::LoopId;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::loops::CommandAnswer;
use everloop_engine::services::messages::{self, SendAnswer, SendRequest};

use crate::cli::VerbSession;
use crate::cli::ticket::show_answer;
pub use everloop_engine::caller::person;
pub use everloop_engine::services::loops::{Taker, send};

const HELP: &str = "Examples:
  everloop message send green \"the API is back\"        # the loop's next turn reads it
  everloop message send x7k2m \"see also issue 12\"      # a comment; each turn on the task reads it
  everloop message send @reviewer \"please look\"        # a mailbox of that name
  everloop message send person \"may I drop Python 3.8?\" # a ticket";

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

pub fn verb(args: SendArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let request = SendRequest { to: args.to, text: args.text, about: args.about };
    let sent = messages::send(session, &request)?;
    match &sent {
        SendAnswer::Asked { ticket } => session.ui.said(&format!("opened ticket {ticket}"), &sent)?,
        SendAnswer::Answered(answer) => show_answer(session, answer)?,
        SendAnswer::Boxed { to, .. } => session.ui.said(&format!("sent to {to}"), &sent)?,
        SendAnswer::Commented(written) => session.ui.said(&format!("commented on task {}", written.to), &sent)?,
        SendAnswer::Steered(answer) => show(session, answer)?,
    }
    Ok(Code::Ok)
}

/// Prints what became of a command.
pub fn show(session: &VerbSession, answer: &CommandAnswer) -> Result<(), Failure> {
    let text = format!("loop {}: {}{}", answer.id, answer.done, away(answer.supervisor));
    session.ui.said(&text, answer)
}

/// What follows when no supervisor took a command.
pub fn away(supervisor: bool) -> &'static str {
    if supervisor { "" } else { " (no supervisor is running; `everloop up` starts one)" }
}

/// As [`show`], for a command that was just sent.
pub fn tell(session: &VerbSession, id: &LoopId, what: &str, taker: Taker) -> Result<(), Failure> {
    show(session, &CommandAnswer::new(id, what, taker))
}
