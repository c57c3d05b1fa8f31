//! `everloop message comment`: adds a comment to a task. It stays there, and every turn on the task
//! reads it as data.

use everloop_core::ids::TaskId;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::messages;

use crate::cli::VerbSession;

/// Adds a comment to a task. `everloop message inbox TASK` shows it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  everloop message comment x7k2m \"the parser is in src/read.rs\"")]
pub struct CommentArgs {
    /// Id of the task
    task: String,
    /// Text of the comment
    text: String,
}

pub fn comment(args: &CommentArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let written = messages::comment(session, &TaskId::new(&args.task), &args.text)?;
    session.ui.said(&format!("commented on task {}", written.to), &written)?;
    Ok(Code::Ok)
}
