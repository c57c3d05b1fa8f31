//! `everloop generate completions`: completions for the user's shell. For bash, zsh and fish the
//! script calls `everloop` itself (`cli::complete`); the others get the words of today.

use clap::CommandFactory;
use clap_complete::Shell;
use everloop_engine::error::{Code, Failure};
use serde_json::json;

use crate::cli::{Cli, VerbSession};

const HELP: &str = "Examples:
  everloop generate completions bash > ~/.local/share/bash-completion/completions/everloop
  everloop generate completions zsh > ~/.zfunc/_everloop
  everloop generate completions fish > ~/.config/fish/completions/everloop.fish

In bash, zsh and fish the ids and names of loops, tasks, tickets and agents complete, too.";

/// Prints a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct CompletionsArgs {
    /// Name of the shell
    shell: Shell,
}

pub fn completions(args: &CompletionsArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let script = script(args.shell);
    let content = json!({ "shell": args.shell.to_string(), "script": script });
    session.ui.answer(&[script.trim_end().to_owned()], &content)?;
    Ok(Code::Ok)
}

fn script(shell: Shell) -> String {
    match shell {
        Shell::Bash => include_str!("completions/bash").to_owned(),
        Shell::Zsh => include_str!("completions/zsh").to_owned(),
        Shell::Fish => include_str!("completions/fish").to_owned(),
        other => {
            let mut script = Vec::new();
            clap_complete::generate(other, &mut Cli::command(), "everloop", &mut script);
            String::from_utf8_lossy(&script).into_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_completes_in_every_shell() {
        Cli::command().debug_assert();
        for shell in Shell::value_variants() {
            let script = script(*shell);
            assert!(script.contains("guard") || script.contains("COMPLETE="), "{shell}");
        }
    }
}
