//! `everloop task done` and `everloop task fail`: the end of a task that the caller holds.

use std::time::Duration;

use everloop_core::ids::{Fence, TaskId};
use everloop_core::state::POISON;
use everloop_core::time::parse_duration;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::tasks::{self, FailTask, FinishTask};

use super::VerbSession;

/// Finishes a task that you hold.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  everloop task done x7k2m --fence 1 --result \"ported, 14 tests added\"")]
pub struct DoneArgs {
    /// Id of the task
    task: String,
    /// The fence under which you took it
    #[arg(long, value_name = "N")]
    fence: u64,
    /// Result of the task
    #[arg(long, default_value = "", value_name = "TEXT")]
    result: String,
}

/// Gives a task back; after three failures it is dead and opens a ticket.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  everloop task fail x7k2m --fence 1 --reason \"no network\" --retry-in 10m")]
pub struct FailArgs {
    /// Id of the task
    task: String,
    /// The fence under which you took it
    #[arg(long, value_name = "N")]
    fence: u64,
    /// What went wrong
    #[arg(long, default_value = "", value_name = "TEXT")]
    reason: String,
    /// Time before the task may be taken again
    #[arg(long, default_value = "0", value_name = "TIME", value_parser = parse_duration)]
    retry_in: Duration,
}

pub fn done(args: DoneArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let request = FinishTask { task: TaskId::new(args.task), fence: Fence(args.fence), result: args.result };
    let done = tasks::done(session, &request)?;
    session.ui.answer(&[format!("task {} is done", done.task)], &done)?;
    Ok(Code::Ok)
}

pub fn fail(args: FailArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let FailArgs { task, fence, reason, retry_in } = args;
    let request = FailTask { task: TaskId::new(task), fence: Fence(fence), reason, retry_in };
    let failed = tasks::fail(session, &request)?;
    let (id, failures) = (&failed.task, failed.failures);
    let line = if failures >= POISON {
        format!("task {id} failed {failures} times and is set aside; try again: everloop task retry {id}")
    } else {
        format!("task {id} is back in the queue ({failures} of {POISON} failures)")
    };
    session.ui.answer(&[line], &failed)?;
    Ok(Code::Ok)
}
