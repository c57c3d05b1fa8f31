//! `everloop pane start`: starts a program in a new pane.

use everloop_agents::tmux::PaneProgram;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::pane::{Panes, StartPane};

use super::{KindName, VerbSession, view};

const HELP: &str = "Examples:
  everloop pane start helper -- claude --permission-mode acceptEdits
  everloop pane start codex --env OPENAI_API_KEY -- codex
  everloop -C ../other pane start shell -- bash

No shell reads the command. It sees PATH, HOME, LANG and the like, and what --env names.";

/// Starts a program in a new pane, in this folder (or the one of -C).
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct PaneStartArgs {
    /// Name of the pane
    name: String,
    /// Kind of the program; decides how its screen is read [default: by the name of the command]
    #[arg(long)]
    kind: Option<KindName>,
    /// A variable passed to it; with `=VALUE` it is set and remembered, so name secrets without a
    /// value
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    argv: Vec<String>,
}

pub fn start(args: PaneStartArgs, panes: &Panes, session: &VerbSession) -> Result<Code, Failure> {
    let PaneStartArgs { name, kind, env, argv } = args;
    let pane = panes.start(StartPane { name, kind: kind.map(PaneProgram::from), env, argv })?;
    let said =
        format!("`{}` runs as process {}; `everloop pane attach {}` shows it", pane.name, pane.process.pid, pane.name);
    session.ui.said(&said, &view(&pane))?;
    Ok(Code::Ok)
}
