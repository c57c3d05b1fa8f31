//! `everloop generate completions`: completions for the user's shell.

use clap::CommandFactory;
use clap_complete::Shell;
use everloop_engine::error::{Code, Failure};
use serde_json::json;

use crate::cli::{Cli, VerbSession};

const HELP: &str = "Examples:
  everloop generate completions bash > ~/.local/share/bash-completion/completions/everloop
  everloop generate completions zsh > ~/.zfunc/_everloop
  everloop generate completions fish > ~/.config/fish/completions/everloop.fish";

/// Prints a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct CompletionsArgs {
    /// Name of the shell
    shell: Shell,
}

pub fn completions(args: &CompletionsArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "everloop", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let content = json!({ "shell": args.shell.to_string(), "script": script });
    session.ui.answer(&[script.trim_end().to_owned()], &content)?;
    Ok(Code::Ok)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_completes_in_every_shell() {
        Cli::command().debug_assert();
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "everloop", &mut script);
            assert!(String::from_utf8_lossy(&script).contains("guard"), "{shell}");
        }
    }
}
