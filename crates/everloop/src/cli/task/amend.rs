//! `everloop task block`, `retry` and `cancel`: what a person can do to a task, whoever holds it.

use everloop_core::ids::{Fence, TaskId};

use super::Invocation;
use crate::error::{Code, Failure};
use crate::services::tasks::{self, AmendTask, TaskChange};

/// Changes a task, whoever holds it; a holder's result goes on the shelf.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  everloop task block x7k2m --reason \"needs a decision\"\n  everloop task retry x7k2m"
)]
pub struct TaskAmendArgs {
    /// Task id
    task: String,
    /// Why, for the journal
    #[arg(long, default_value = "", value_name = "TEXT")]
    reason: String,
}

/// Lets nobody take a task until `retry`; a held one by its holder only.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  everloop task block x7k2m --fence 1 --reason \"needs a decision\"")]
pub struct BlockArgs {
    #[command(flatten)]
    which: TaskAmendArgs,
    /// You hold it under this fence, and give it back so
    #[arg(long, value_name = "N")]
    fence: Option<u64>,
}

pub fn block(args: BlockArgs, session: &mut Invocation) -> Result<Code, Failure> {
    let held = args.fence.map(Fence);
    amend(args.which, TaskChange::Block { held }, "waits for `everloop task retry`", session)
}

pub fn retry(args: TaskAmendArgs, session: &mut Invocation) -> Result<Code, Failure> {
    amend(args, TaskChange::Retry, "is back in the queue", session)
}

pub fn cancel(args: TaskAmendArgs, session: &mut Invocation) -> Result<Code, Failure> {
    amend(args, TaskChange::Cancel, "is given up", session)
}

fn amend(args: TaskAmendArgs, change: TaskChange, now: &str, session: &Invocation) -> Result<Code, Failure> {
    let request = AmendTask { task: TaskId::new(args.task), change, reason: args.reason };
    let amended = tasks::amend(session, &request)?;
    session.ui.answer(&[format!("task {} {now}", amended.task)], &amended)?;
    Ok(Code::Ok)
}
