//! `everloop show`: a loop, a task or a turn, in full.

use everloop_core::ids::TaskId;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::show::{self as service, ShowAnswer};

use super::VerbSession;
use one_turn::OutputStyle;

mod one_loop;
mod one_task;
mod one_turn;

const HELP: &str = "Examples:
  everloop show k3f9          # a loop: scoreboard, turns, kept work, spending
  everloop show k3f9-3        # a task
  everloop show k3f9-3.1      # a turn: its end, its files, what its agent said and did last";

/// Shows everything that is known about a loop, a task or a turn.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct ShowArgs {
    /// Loop id or name, task id, or turn id [default: the loop in this folder]
    id: Option<String>,
    /// Of a turn: the end of its output as it was written
    #[arg(long)]
    raw: bool,
}

pub fn show(args: &ShowArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    match service::show(session, args.id.as_deref())? {
        ShowAnswer::Loop(found) => one_loop::show(&found, session),
        ShowAnswer::Task(found) => one_task::show(&found, session),
        ShowAnswer::Turn(found) => one_turn::show(&found, OutputStyle::of(args.raw), session),
    }
}

/// A task by its id, for `everloop task show`.
pub fn task_by_id(word: &str, session: &VerbSession) -> Result<Code, Failure> {
    one_task::show(&service::task(session, &TaskId::new(word))?, session)
}
