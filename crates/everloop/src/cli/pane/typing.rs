//! `everloop pane type`: types text into a pane.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use everloop_agents::tmux::{Finish, SafeText, TmuxServer};
use everloop_engine::error::{Code, Failure};
use serde_json::json;

use super::{VerbSession, failure};

/// A prompt of more than this is a mistake; agents take a few hundred thousand characters.
const LARGEST: u64 = 16 << 20;

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

pub fn type_text(args: &PaneTypingArgs, server: &TmuxServer, session: &VerbSession) -> Result<Code, Failure> {
    let pane = server.pane(&args.name).map_err(failure)?;
    let text = match (&args.text, &args.file) {
        (Some(text), _) => SafeText::clean(text.as_bytes()),
        (None, Some(file)) => read_text(file)?,
        (None, None) => return Err(Failure::usage("no text is given").hint("everloop pane type NAME TEXT")),
    };
    if let Some(changes) = text.changes() {
        session.ui.warn(&changes);
    }
    let finish = if args.no_enter { Finish::Nothing } else { Finish::Enter };
    let typed = server.type_text(&pane, &text, finish).map_err(failure)?;
    let stripped: serde_json::Map<_, _> =
        text.stripped().iter().map(|(c, n)| (format!("U+{:04X}", u32::from(*c)), json!(n))).collect();
    let content = json!({ "typed": {
        "pane": pane.name, "bytes": typed.bytes, "enters": typed.enters, "shown": typed.shown,
        "stripped": stripped, "replaced": text.replaced(),
    }});
    session.ui.said(&format!("{} bytes were typed into `{}`", typed.bytes, pane.name), &content)?;
    Ok(Code::Ok)
}

/// The text of a file, or of stdin, without keys.
pub fn read_text(file: &Path) -> Result<SafeText, Failure> {
    let cannot = |e: std::io::Error| Failure::usage(format!("cannot read `{}`", file.display())).because(&e);
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().take(LARGEST + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|f| f.take(LARGEST + 1).read_to_end(&mut bytes))
    };
    read.map_err(cannot)?;
    if bytes.len() as u64 > LARGEST {
        return Err(Failure::usage(format!("`{}` is longer than {} MB", file.display(), LARGEST >> 20)));
    }
    Ok(SafeText::clean(&bytes))
}
