//! `everloop task next` and `everloop task claim`: takes a task, for a time and under a fence.

use std::time::Duration;

use everloop_core::ids::TaskId;
use everloop_core::op::TaskRow;
use everloop_core::time::{human, parse_duration};
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::tasks::{self, ClaimTask, NextTask, TaskHold};
use serde_json::json;

use super::VerbSession;
use crate::ui::text::clean;

/// How a task is held.
#[derive(Debug, clap::Args)]
struct HoldArgs {
    /// Name of the holder [default: this machine's name]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Duration of the lease; afterwards the task is free to take
    #[arg(long, default_value = "90s", value_name = "TIME", value_parser = parse_duration)]
    lease: Duration,
}

impl From<HoldArgs> for TaskHold {
    fn from(args: HoldArgs) -> Self {
        Self { node: args.node, lease: args.lease }
    }
}

/// Takes the most urgent task that is ready and prints its id and its fence.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  everloop task next --lease 10m --json")]
pub struct NextArgs {
    /// A task of this loop [default: one that belongs to no loop]
    #[arg(long = "loop", value_name = "ID")]
    owner: Option<String>,
    #[command(flatten)]
    hold: HoldArgs,
}

/// Takes this task, if it is free and what it waits for is done.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  everloop task claim x7k2m --lease 10m")]
pub struct ClaimArgs {
    /// Id of the task
    task: String,
    #[command(flatten)]
    hold: HoldArgs,
}

pub fn next(args: NextArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let lease = args.hold.lease;
    let request = NextTask { owner: args.owner, hold: args.hold.into() };
    let Some(row) = tasks::next(session, &request)? else {
        session.ui.answer(&["no task is ready".to_owned()], &json!({ "task": null }))?;
        return Ok(Code::NotReached);
    };
    show(&row, lease, session)
}

pub fn claim(args: ClaimArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let lease = args.hold.lease;
    let request = ClaimTask { task: TaskId::new(args.task), hold: args.hold.into() };
    show(&tasks::claim(session, &request)?, lease, session)
}

fn show(row: &TaskRow, lease: Duration, session: &VerbSession) -> Result<Code, Failure> {
    let (id, fence) = (&row.task.id, row.fence);
    let mut lines = vec![format!("{id} --fence {fence}"), clean(&row.task.title)];
    lines.extend(row.task.prompt.lines().map(clean));
    session.ui.answer(&lines, &json!({ "task": row }))?;
    session.ui.talk(&format!("held for {}; end it with: everloop task done {id} --fence {fence}", human(lease)));
    Ok(Code::Ok)
}
