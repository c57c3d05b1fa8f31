//! `everloop task`: the board on the command line. The ledger defines tasks and their changes.
//!
//! - `add`, `list`: putting tasks on the board and listing it
//! - `claim`: taking a task; `finish`: ending one that is held; `amend`: a person's changes

use everloop_core::event::Event;
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::op::{Op, Refusal, Reply, TaskRow, TaskState};
use everloop_store::{Error, Ledger, Sqlite};

use super::Invocation;
use crate::error::{Code, Failure};
use crate::record::record;

mod add;
mod amend;
mod claim;
mod finish;
mod list;

pub(super) use list::state;

const HELP: &str = "Examples:
  everloop task add \"port the parser\" --loop k3f9 --priority 5
  everloop task list
  everloop task next --lease 10m          # prints the task and the fence that `done` needs
  everloop task done x7k2m --fence 1 --result \"ported\"";

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
    /// Keep a queued task from being taken until `retry`
    Block(amend::BlockArgs),
    /// Put a blocked, dead or leased task back into the queue, with its failures forgotten
    Retry(amend::TaskAmendArgs),
    /// Give up a task
    Cancel(amend::TaskAmendArgs),
}

pub fn task(args: TaskArgs, session: &mut Invocation) -> Result<Code, Failure> {
    match args.what {
        What::Add(args) => add::add(args, session),
        What::List(args) => list::list(&args, session),
        What::Show { task } => super::show::task_by_id(&task, session),
        What::Next(args) => claim::next(&args, session),
        What::Claim(args) => claim::claim(&args, session),
        What::Done(args) => finish::done(args, session),
        What::Fail(args) => finish::fail(args, session),
        What::Block(args) => amend::block(&args, session),
        What::Retry(args) => amend::retry(&args, session),
        What::Cancel(args) => amend::cancel(&args, session),
    }
}

/// The loop's supervisor may write at the same time; then the new state is read and the change is
/// tried again.
const MAX_CONFLICT_RETRIES: u32 = 8;

/// A change to tasks with its journal events; one transaction.
pub(super) struct TaskChange<'a> {
    /// The loop that the task belongs to.
    pub(super) owner: Option<&'a LoopId>,
    pub(super) ops: &'a [Op],
    pub(super) events: &'a [Event],
}

impl TaskChange<'_> {
    /// Writes the change; the supervisor notices the new version and reads again.
    pub(super) fn commit(&self, ledger: &mut Sqlite, session: &Invocation) -> Result<Vec<Reply>, Error> {
        for _ in 1..MAX_CONFLICT_RETRIES {
            match self.try_once(ledger, session) {
                Err(Error::Refused(Refusal::Conflict { .. })) => {}
                other => return other,
            }
        }
        self.try_once(ledger, session)
    }

    fn try_once(&self, ledger: &mut Sqlite, session: &Invocation) -> Result<Vec<Reply>, Error> {
        let now = session.now();
        let mut batch = self.ops.to_vec();
        batch.extend(record(ledger, self.owner, self.events, now)?);
        ledger.transact(now, &batch)
    }
}

pub(super) fn note(text: String) -> Event {
    Event::Note { text }
}

/// Finds the loop of `--loop`.
pub(super) fn named_loop(session: &Invocation, ledger: &Sqlite, word: Option<&str>) -> Result<Option<LoopId>, Failure> {
    match word {
        None => Ok(None),
        Some(word) => Ok(Some(session.find_loop(ledger, Some(word))?.0.id)),
    }
}

/// Refuses an agent that would end a task that it did not take: the board shows fences to all
/// agents.
fn held_by_caller(row: &TaskRow, session: &Invocation) -> Result<(), Failure> {
    match &row.state {
        TaskState::Leased { node, .. } if !session.caller.is_person() && node.as_str() != session.caller.name() => {
            let said = format!("task `{}` is held by {node}, and the caller is {}", row.task.id, session.caller.name());
            Err(Failure::usage(said).hint("take another task: everloop task next"))
        }
        _ => Ok(()),
    }
}

pub(super) fn no_task(task: &TaskId) -> Failure {
    Failure::usage(format!("there is no task `{task}`")).hint("`everloop task list` shows them")
}
