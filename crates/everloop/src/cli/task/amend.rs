//! `everloop task block`, `retry` and `cancel`: a person's changes to a task, whether or not it is
//! held.

use everloop_core::ids::{Fence, TaskId};
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::tasks::{self, AmendTask, TaskChange};

use super::VerbSession;

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

pub fn block(args: BlockArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let held = args.fence.map(Fence);
    amend(args.which, TaskChange::Block { held }, "waits for `everloop task retry`", session)
}

pub fn retry(args: TaskAmendArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    amend(args, TaskChange::Retry, "is back in the queue", session)
}

pub fn cancel(args: TaskAmendArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    amend(args, TaskChange::Cancel, "is given up", session)
}

fn amend(args: TaskAmendArgs, change: TaskChange, now: &str, session: &VerbSession) -> Result<Code, Failure> {
    let request = AmendTask { task: TaskId::new(args.task), change, reason: args.reason };
    let amended = tasks::amend(session, &request)?;
    session.ui.answer(&[format!("task {} {now}", amended.task)], &amended)?;
    Ok(Code::Ok)
}
