//! `everloop pane type`: types text into a pane.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use everloop_agents::tmux::{Finish, SafeText};
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::pane::{Panes, read_text};
use serde_json::json;

use super::VerbSession;

const HELP: &str = "Examples:
  everloop pane type helper \"what is left to do?\"
  everloop pane type helper --file prompt.md
  git diff | everloop pane type helper --file - --no-enter

Control characters are taken out and counted, whatever is in the text: nothing in it is a key. Several lines are one
prompt for programs that know bracketed paste, as agents do.";

/// Types text into a pane and presses Enter. Refused when the pane is no longer what everloop
/// started or adopted.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct PaneTypingArgs {
    /// Name of the pane
    name: String,
    /// Text to type
    #[arg(allow_hyphen_values = true, required_unless_present = "file", conflicts_with = "file")]
    text: Option<OsString>,
    /// Take the text from this file; `-` is stdin
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Leave the text in the input line
    #[arg(long)]
    no_enter: bool,
}

pub fn type_text(args: &PaneTypingArgs, panes: &Panes, session: &VerbSession) -> Result<Code, Failure> {
    let pane = panes.pane(&args.name)?;
    let text = match (&args.text, &args.file) {
        (Some(text), _) => SafeText::clean(text.as_bytes()),
        (None, Some(file)) => read_text(file)?,
        (None, None) => return Err(Failure::usage("no text is given").hint("everloop pane type NAME TEXT")),
    };
    if let Some(changes) = text.changes() {
        session.ui.warn(&changes);
    }
    let finish = if args.no_enter { Finish::Nothing } else { Finish::Enter };
    let typed = panes.type_text(&pane, &text, finish)?;
    let stripped: serde_json::Map<_, _> =
        text.stripped().iter().map(|(c, n)| (format!("U+{:04X}", u32::from(*c)), json!(n))).collect();
    let content = json!({ "typed": {
        "pane": pane.name, "bytes": typed.bytes, "enters": typed.enters, "shown": typed.shown,
        "stripped": stripped, "replaced": text.replaced(),
    }});
    session.ui.said(&format!("{} bytes were typed into `{}`", typed.bytes, pane.name), &content)?;
    Ok(Code::Ok)
}
