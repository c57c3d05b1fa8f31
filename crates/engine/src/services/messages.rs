//! Messages to loops, tasks, people and named boxes. What an agent writes is handed on as data.

use everloop_core::action::LoopCommand;
use everloop_core::event::Event;
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::op::Op;
use everloop_store::{Ledger, Sqlite};
use serde::Serialize;

use super::ServiceContext;
use super::loops::{self, CommandAnswer};
use super::tasks::{Change, no_task, note};
use super::tickets::{self, TicketAnswer};
use crate::error::Failure;
use crate::mailbox;

/// The recipient that makes a message a ticket.
pub const PERSON: &str = "person";
/// Longest name of a box.
const MAX_BOX_NAME: usize = 40;

/// Leave a message.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// A loop (id or name), a task id, `@NAME`, [`PERSON`], or the key of a question.
    pub to: String,
    pub text: String,
    /// The loop that a question to a person is about.
    pub about: Option<String>,
}

/// Where a message went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum SendAnswer {
    /// A ticket stands in `status` until a person deals with it.
    Asked { ticket: String },
    /// A question to a person was answered.
    Answered(TicketAnswer),
    /// It lies in a box.
    Boxed { to: String, by: String, how: &'static str },
    /// It is a comment of a task.
    Commented(CommentAnswer),
    /// The loop's next turn reads it.
    Steered(CommandAnswer),
}

/// A comment that was written to a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommentAnswer {
    pub to: TaskId,
    pub by: String,
}

/// Leaves a message.
pub fn send(context: &ServiceContext, request: &SendRequest) -> Result<SendAnswer, Failure> {
    let text = mailbox::checked(&request.text)?;
    let to = request.to.as_str();
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    if to == PERSON {
        let about = match &request.about {
            // A question of a turn is its loop's: only so does the answer reach a next turn.
            None => context.own_loop(&ledger)?.map(|state| state.id),
            named => context.named_loop(&ledger, named.as_deref())?,
        };
        return ask(context, &mut ledger, about.as_ref(), &text);
    }
    if to.starts_with(mailbox::QUESTION) {
        drop(ledger);
        return tickets::answer(context, to, &text).map(SendAnswer::Answered);
    }
    if to.starts_with('@') {
        let letter = mailbox::letter(&ledger, named_box(to)?, &text, &context.caller)?;
        ledger.transact(context.now(), &[letter])?;
        return Ok(SendAnswer::Boxed { to: to.to_owned(), by: context.caller.name(), how: "box" });
    }
    if ledger.task(&TaskId::new(to))?.is_some() {
        return write_comment(context, &mut ledger, &TaskId::new(to), &text).map(SendAnswer::Commented);
    }
    let found = context.find_loop(&ledger, Some(to)).map_err(|_| no_recipient(to))?;
    drop(ledger);
    let command = LoopCommand::Steer { message: text, trust: context.caller.trust() };
    let (state, taker) = loops::send(context, Some(found.0.id.as_str()), &command)?;
    Ok(SendAnswer::Steered(CommandAnswer::new(&state.id, "will read it in its next turn", taker)))
}

/// Writes a comment to a task. It stays there, and every turn on the task reads it as data.
pub fn comment(context: &ServiceContext, task: &TaskId, text: &str) -> Result<CommentAnswer, Failure> {
    let text = mailbox::checked(text)?;
    let mut ledger = context.writer(&context.home()?)?;
    write_comment(context, &mut ledger, task, &text)
}

/// The comment and its line in the journal are one transaction.
fn write_comment(
    context: &ServiceContext,
    ledger: &mut Sqlite,
    id: &TaskId,
    text: &str,
) -> Result<CommentAnswer, Failure> {
    let row = ledger.task(id)?.ok_or_else(|| no_task(id))?;
    let by = context.caller.name();
    let ops = [mailbox::letter(ledger, mailbox::comments_of(id), text, &context.caller)?];
    let events = [note(format!("{by} commented on task {id}: {text}"))];
    Change { owner: row.task.owner.as_ref(), ops: &ops, events: &events }.commit(ledger, context)?;
    Ok(CommentAnswer { to: id.clone(), by })
}

/// A question to a person is a ticket.
fn ask(
    context: &ServiceContext,
    ledger: &mut Sqlite,
    about: Option<&LoopId>,
    text: &str,
) -> Result<SendAnswer, Failure> {
    let key = mailbox::question(about, text);
    let text = format!("question from {}: {text}", context.caller.name());
    let ops = [Op::OpenTicket { key: key.clone(), owner: about.cloned(), text: text.clone() }];
    let events = [Event::TicketOpened { key: key.clone(), text }];
    Change { owner: about, ops: &ops, events: &events }.commit(ledger, context)?;
    context.home()?.wake();
    Ok(SendAnswer::Asked { ticket: key })
}

pub(super) fn named_box(to: &str) -> Result<String, Failure> {
    let name = &to[1..];
    let good = !name.is_empty()
        && name.len() <= MAX_BOX_NAME
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if good {
        return Ok(to.to_owned());
    }
    Err(Failure::usage(format!("invalid mailbox name `{to}`"))
        .hint("`@` and up to 40 letters, digits, `-`, `_` or `.`: everloop message send @reviewer \"TEXT\""))
}

fn no_recipient(to: &str) -> Failure {
    Failure::usage(format!("there is neither a loop nor a task `{to}`")).hint(format!(
        "`everloop status` and `everloop task list` show them; `@{}` is a named mailbox, `person` opens a ticket",
        to.trim_start_matches('@')
    ))
}
