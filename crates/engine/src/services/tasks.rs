//! The board: adding, taking, ending and changing tasks. What tasks are and which changes they
//! allow is the ledger's.
//!
//! - here: a change with its line in the journal, as one transaction
//! - `add`: new tasks; `claim`: taking one; `finish`: ending a held one; `edit`: its text; `amend`:
//!   other changes; `board`: all of them as a file

use everloop_core::event::Event;
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::op::{Op, Refusal, Reply, TaskRow, TaskState};
use everloop_store::{Error, Ledger, Sqlite};

use super::ServiceContext;
use crate::error::Failure;
use crate::record::record;

mod add;
mod amend;
pub mod board;
mod claim;
mod edit;
mod finish;

pub use add::{AddOnce, AddTask, MAX_PROMPT_BYTES, add, add_once};
pub use amend::{AmendTask, TaskAmended, TaskChange, amend};
pub use claim::{ClaimTask, NextTask, TaskHold, claim, next};
pub use edit::{EditTask, TaskEdited, edit, editable};
pub use finish::{FailTask, FinishTask, done, fail};

/// The supervisor may write the loop at the same time; then its new state is read and the change
/// made again.
const MAX_CONFLICT_RETRIES: u32 = 8;

/// A change to tasks with its journal events; one transaction.
pub struct Change<'a> {
    /// The loop that the task belongs to.
    pub owner: Option<&'a LoopId>,
    pub ops: &'a [Op],
    pub events: &'a [Event],
}

impl Change<'_> {
    /// Writes it; the supervisor sees that another process wrote and reads again.
    pub fn commit(&self, ledger: &mut Sqlite, context: &ServiceContext) -> Result<Vec<Reply>, Error> {
        for _ in 1..MAX_CONFLICT_RETRIES {
            match self.try_once(ledger, context) {
                Err(Error::Refused(Refusal::Conflict { .. })) => {}
                other => return other,
            }
        }
        self.try_once(ledger, context)
    }

    fn try_once(&self, ledger: &mut Sqlite, context: &ServiceContext) -> Result<Vec<Reply>, Error> {
        let now = context.now();
        let mut batch = self.ops.to_vec();
        batch.extend(record(ledger, self.owner, self.events, now)?);
        ledger.transact(now, &batch)
    }
}

/// A line of the journal that changes no state.
pub fn note(text: String) -> Event {
    Event::Note { text }
}

/// Refuses an agent that would end a task it did not take: every caller can read a fence on the
/// board.
fn held_by_caller(row: &TaskRow, context: &ServiceContext) -> Result<(), Failure> {
    match &row.state {
        TaskState::Leased { node, .. } if !context.caller.is_person() && node.as_str() != context.caller.name() => {
            let why = format!("task `{}` is held by {node}, and you are {}", row.task.id, context.caller.name());
            Err(Failure::usage(why).hint("take one of your own: everloop task next"))
        }
        _ => Ok(()),
    }
}

/// The failure for an id that is not on the board.
pub fn no_task(task: &TaskId) -> Failure {
    Failure::usage(format!("there is no task `{task}`")).hint("`everloop task list` shows them")
}
