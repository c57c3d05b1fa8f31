//! `everloop pane key`: presses keys in a pane, the explicit answer to a dialog.

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::pane::Panes;
use serde_json::json;

use super::VerbSession;
use super::list::describe;

const HELP: &str = "Examples:
  everloop pane key helper enter          # takes the marked choice
  everloop pane key helper down enter
  everloop pane key helper 2
  everloop pane key helper escape         # interrupts, or closes a dialog

Keys are enter, escape, tab, space, backspace, up, down, left, right, a digit, a letter, and ctrl-LETTER. Look first:
`everloop pane read NAME`.";

/// Presses keys in a pane, whatever its screen shows.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct PaneKeyArgs {
    /// Name of the pane
    name: String,
    /// Keys, in their order
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,
}

pub fn press(args: &PaneKeyArgs, panes: &Panes, session: &VerbSession) -> Result<Code, Failure> {
    let (pane, state) = panes.press(&args.name, &args.keys)?;
    let said = format!("{} pressed; `{}` is {}", args.keys.join(" "), pane.name, describe(&state, session.ui.paint()));
    session
        .ui
        .said(&said, &json!({ "pane": pane.name, "keys": args.keys, "state": state.label(), "detail": state }))?;
    Ok(Code::Ok)
}
