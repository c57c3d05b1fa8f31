//! `everloop show`: a loop, a task or a turn, in full.

use everloop_core::ids::{TaskId, TurnId};
use everloop_engine::error::{Code, Failure};
use everloop_engine::membership::Membership;
use everloop_store::{Ledger, Sqlite};

use super::{VerbSession, task};

mod one_loop;
mod one_task;
mod one_turn;

const HELP: &str = "Examples:
  everloop show k3f9          # a loop: scoreboard, turns, kept work, spending
  everloop show k3f9-3        # a task
  everloop show k3f9-3.1      # a turn: its end, its files, the end of its output";

/// Shows everything that is known about a loop, a task or a turn.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct ShowArgs {
    /// Loop id or name, task id, or turn id [default: the loop in this folder]
    id: Option<String>,
}

pub fn show(args: &ShowArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let home = session.home()?;
    let Some(ledger) = session.reader(&home)? else { return Err(super::no_loops()) };
    let Some(word) = &args.id else {
        let (_, state) = session.find_loop(&ledger, None)?;
        return one_loop::show(&state, &ledger, session);
    };
    // Loop ids have no dot and no dash, task ids no dot, so the three cannot be confused.
    if let Some(row) = ledger.task(&TaskId::new(word))? {
        return one_task::show(&row, &ledger, session);
    }
    if let Some(turn) = turn_of(word, &ledger)? {
        return one_turn::show(&turn, &ledger, session);
    }
    let (_, state) = session.find_loop(&ledger, Some(word)).map_err(|failure| unknown(word, failure))?;
    one_loop::show(&state, &ledger, session)
}

/// A task by its id, for `everloop task show`.
pub fn task_by_id(word: &str, session: &VerbSession) -> Result<Code, Failure> {
    let id = TaskId::new(word);
    let home = session.home()?;
    if let Some(ledger) = session.reader(&home)?
        && let Some(row) = ledger.task(&id)?
    {
        return one_task::show(&row, &ledger, session);
    }
    // Tasks of the mesh are in the hub.
    let Some(membership) = Membership::read(&home)? else { return Err(task::no_task(&id)) };
    let hub = membership.open()?;
    let row = hub.task(&id)?.ok_or_else(|| task::no_task(&id))?;
    one_task::show(&row, &hub, session)
}

/// The turn, if the word is `<task>.<fence>` of an existing task.
fn turn_of(word: &str, ledger: &Sqlite) -> Result<Option<TurnId>, Failure> {
    let Ok(turn) = word.parse::<TurnId>() else { return Ok(None) };
    Ok(ledger.task(turn.task())?.map(|_| turn))
}

fn unknown(word: &str, failure: Failure) -> Failure {
    if failure.message == format!("there is no loop `{word}`") {
        return Failure { message: format!("there is no loop, task or turn `{word}`"), ..failure };
    }
    failure
}
