//! `everloop task`: the board, as people type it. What the verbs do is in `services::tasks`.
//!
//! - `add`, `list`: putting tasks on the board and listing it
//! - `claim`: taking a task; `finish`: ending one that is held; `amend`: a person's changes
//! - `edit`: its text; `board`: all tasks as a file

use everloop_engine::error::{Code, Failure};

use super::VerbSession;

mod add;
mod amend;
mod board;
mod claim;
mod edit;
mod finish;
mod list;

pub(super) use list::{state, task_json};

const HELP: &str = "Examples:
  everloop task add \"port the parser\" --loop k3f9 --priority 5
  everloop task list
  everloop task next --lease 10m          # prints the task and the fence that `done` needs
  everloop task done x7k2m --fence 1 --result \"ported\"
  everloop task board write               # tasks/board.json from the ledger";

/// Tasks of a loop are worked on by its agent, highest priority first; others are free to claim.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct TaskArgs {
    /// What to do with tasks
    #[command(subcommand)]
    what: What,
}

/// Subcommands of `task`.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Put a task on the board
    Add(add::TaskAddArgs),
    /// List tasks, newest first
    List(list::TaskListArgs),
    /// Show one task with its late results
    #[command(visible_alias = "inspect")]
    Show {
        /// Id of the task
        task: String,
    },
    /// Take the most urgent task that is ready; exits with 3 when there is none
    Next(claim::NextArgs),
    /// Take a certain task
    Claim(claim::ClaimArgs),
    /// Finish a task that you hold
    Done(finish::DoneArgs),
    /// Give back a task that you hold, as failed
    Fail(finish::FailArgs),
    /// Change the title, text, priority or dependencies of a task
    Edit(edit::TaskEditArgs),
    /// Keep a queued task from being taken until `retry`
    Block(amend::BlockArgs),
    /// Put a blocked, dead or leased task back into the queue, with its failures forgotten
    Retry(amend::TaskAmendArgs),
    /// Give up a task
    Cancel(amend::TaskAmendArgs),
    /// Write, import, export or merge the board as a file; print the agents' instructions for it
    Board(board::BoardArgs),
}

impl TaskArgs {
    /// Whether it concerns the board's file, which is the project's and no turn's.
    pub(super) fn is_board(&self) -> bool {
        matches!(self.what, What::Board(_))
    }
}

pub fn task(args: TaskArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    match args.what {
        What::Add(args) => add::add(args, session),
        What::List(args) => list::list(&args, session),
        What::Show { task } => super::show::task_by_id(&task, session),
        What::Next(args) => claim::next(args, session),
        What::Claim(args) => claim::claim(args, session),
        What::Done(args) => finish::done(args, session),
        What::Fail(args) => finish::fail(args, session),
        What::Edit(args) => edit::edit(args, session),
        What::Block(args) => amend::block(args, session),
        What::Retry(args) => amend::retry(args, session),
        What::Cancel(args) => amend::cancel(args, session),
        What::Board(args) => board::board(args, session),
    }
}
