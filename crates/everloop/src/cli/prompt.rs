//! `everloop prompt`: the prompt that the next turn would get; `search` finds earlier ones.

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::prompts;

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
    let next = prompts::next(session, args.id.as_deref())?;
    session.ui.answer(&[next.text.trim_end().to_owned()], &next)?;
    Ok(Code::Ok)
}
