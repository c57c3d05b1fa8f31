//! `everloop prompt`: the prompt that the next turn would get; `search` finds earlier ones.

use everloop_core::ids::TaskId;
use everloop_core::op::{TaskRow, TaskState};
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::Time;
use everloop_engine::board;
use everloop_engine::error::{Code, Failure};
use everloop_engine::mailbox;
use everloop_engine::supervisor::prompt::render;
use everloop_store::{Ledger, Sqlite};
use serde_json::json;

use super::VerbSession;
use search::PromptFilter;

mod search;

const HELP: &str = "Examples:
  everloop prompt
  everloop prompt k3f9 | my-agent
  everloop prompt search parser --since 2d";

/// Goal, scoreboard, failing output, earlier attempts, messages, remaining budget. While a turn
/// runs: that turn's prompt.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP, args_conflicts_with_subcommands = true)]
pub struct PromptArgs {
    /// What to do with prompts [default: show]
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    shown: ShowArgs,
}

/// The loop of a prompt.
#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// Loop id or name [default: the one in this folder]
    id: Option<String>,
}

/// Subcommands of `prompt`.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Show the prompt that the next turn would get
    Show(ShowArgs),
    /// List the newest prompts of sessions and turns
    #[command(after_help = search::HELP)]
    List(PromptFilter),
    /// Find the newest prompts that have all of these words in them, whatever their case
    #[command(after_help = search::HELP)]
    Search {
        /// Words to find
        #[arg(required = true)]
        words: Vec<String>,
        #[command(flatten)]
        filter: PromptFilter,
    },
}

pub fn prompt(args: &PromptArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    match &args.what {
        None => show(&args.shown, session),
        Some(What::Show(args)) => show(args, session),
        Some(What::List(filter)) => search::search(&[], filter, session),
        Some(What::Search { words, filter }) => search::search(words, filter, session),
    }
}

fn show(args: &ShowArgs, session: &VerbSession) -> Result<Code, Failure> {
    let home = session.home()?;
    let Some(ledger) = session.reader(&home)? else { return Err(super::no_loops()) };
    let (_, mut state) = session.find_loop(&ledger, args.id.as_deref())?;
    let now = session.now();
    let task = match &state.phase {
        Phase::Turn(turn) => ledger.task(&turn.task)?,
        Phase::New | Phase::Ready | Phase::Waiting { .. } | Phase::Ended { .. } => {
            let task = next_task(&ledger, &state, now)?;
            look_ahead(&mut state, task.as_ref());
            task
        }
    };
    let comments = task.as_ref().map(|row| mailbox::comments(&ledger, &row.task.id)).transpose()?.unwrap_or_default();
    let text = render(&state, task.as_ref(), comments, now)?;
    session.ui.answer(&[text.trim_end().to_owned()], &json!({ "loop": state.id, "prompt": text }))?;
    Ok(Code::Ok)
}

/// The task of the next turn, unless it is one that the loop will make for itself.
fn next_task(ledger: &Sqlite, state: &LoopState, now: Time) -> Result<Option<TaskRow>, Failure> {
    if let (true, Some(task)) = (state.retry, &state.task) {
        let row = ledger.task(task)?;
        if row.as_ref().is_some_and(|r| matches!(r.state, TaskState::Queued | TaskState::Leased { .. })) {
            return Ok(row);
        }
    }
    let (_, immune) = everloop_engine::immune::read(ledger)?;
    Ok(board::most_urgent(ledger, &state.id, &immune.kinds_out(now), now)?)
}

/// Sets the number and the task of the next turn.
fn look_ahead(state: &mut LoopState, task: Option<&TaskRow>) {
    state.started += 1;
    let own = TaskId::of_loop(&state.id, state.task_number + 1);
    state.task = Some(task.map_or(own, |row| row.task.id.clone()));
}
