//! `everloop generate`: files that are made from the command line's own description.

use everloop_engine::error::{Code, Failure};

use super::VerbSession;

mod commands;
mod completions;
mod man;

/// Prints what other programs and readers need: completions, manual pages, the reference.
#[derive(Debug, clap::Args)]
pub struct GenerateArgs {
    /// What to generate
    #[command(subcommand)]
    what: What,
}

/// Subcommands of `generate`.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Print shell completions
    Completions(completions::CompletionsArgs),
    /// Print the manual page
    Man(man::ManArgs),
    /// Print the reference of all commands, in Markdown
    Commands(commands::CommandsArgs),
}

pub fn generate(args: &GenerateArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    match &args.what {
        What::Completions(args) => completions::completions(args, session),
        What::Man(args) => man::man(args, session),
        What::Commands(args) => commands::commands(args, session),
    }
}
