//! `everloop comment`: adds a comment to a task. It stays there, and every turn on the task reads
//! it as data.

use everloop_core::ids::TaskId;
use everloop_store::{Ledger, Sqlite};
use serde_json::json;

use super::Invocation;
use super::task::{TaskChange, no_task, note};
use crate::error::{Code, Failure};
use crate::mailbox;

/// Adds a comment to a task. `everloop inbox TASK` shows it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  everloop comment x7k2m \"the parser is in src/read.rs\"")]
pub struct CommentArgs {
    /// Id of the task
    task: String,
    /// Text of the comment
    text: String,
}

pub fn comment(args: &CommentArgs, session: &mut Invocation) -> Result<Code, Failure> {
    let text = mailbox::checked(&args.text)?;
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    write(&mut ledger, &TaskId::new(&args.task), text, session)
}

/// The comment and its line in the journal are one transaction.
pub(super) fn write(ledger: &mut Sqlite, id: &TaskId, text: &str, session: &Invocation) -> Result<Code, Failure> {
    let row = ledger.task(id)?.ok_or_else(|| no_task(id))?;
    let ops = [mailbox::letter(ledger, mailbox::comments_of(id), text, &session.caller)?];
    let events = [note(format!("{} commented on task {id}: {text}", session.caller.name()))];
    TaskChange { owner: row.task.owner.as_ref(), ops: &ops, events: &events }.commit(ledger, session)?;
    session.ui.said(&format!("comment added to task {id}"), &json!({ "to": id, "by": session.caller.name() }))?;
    Ok(Code::Ok)
}
