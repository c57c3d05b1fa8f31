//! `everloop handoff`: what one session leaves for the next. One per project folder; the latest
//! counts.

use std::io::Read;

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::handoff as service;
use serde_json::json;

use super::VerbSession;
use crate::ui::quantities;
use crate::ui::text::{clean, clean_lines};

const HELP: &str = "Examples:
  everloop handoff show
  everloop handoff show main       # of a loop
  everloop handoff show 27832923   # what that session left
  printf 'done: parser\\nnext: the printer\\n' | everloop handoff write";

/// Lines that are printed at once.
const SHOWN_LINES: usize = 400;

/// Shows or writes what the next session in this project must know.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct HandoffArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Show the latest one here, of a loop, or of a session
    Show {
        /// Loop id or name, or the id of a session [default: this folder]
        of: Option<String>,
    },
    /// Write one; the text comes on stdin
    Write {
        /// Id of the session that leaves it
        #[arg(long, value_name = "ID", default_value = "")]
        session: String,
    },
}

pub fn handoff(args: &HandoffArgs, session: &VerbSession) -> Result<Code, Failure> {
    match &args.what {
        What::Show { of } => show(of.as_deref(), session),
        What::Write { session: id } => write(id, session),
    }
}

fn show(of: Option<&str>, session: &VerbSession) -> Result<Code, Failure> {
    let Some(left) = service::show(session, of)? else {
        let whose = of.map_or("here".to_owned(), |word| format!("under `{}`", clean(word)));
        return Err(Failure::failed(format!("no session left a handoff {whose}"))
            .hint("`everloop init` lets sessions leave one; `everloop status` names them"));
    };
    let mut lines = vec![format!("left {} by session {}:", quantities::here(left.at), clean(&left.session))];
    lines.extend(clean_lines(&left.text, SHOWN_LINES));
    session.ui.answer(&lines, &json!({ "handoff": left }))?;
    Ok(Code::Ok)
}

fn write(id: &str, session: &VerbSession) -> Result<Code, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().take(service::MAX_BYTES as u64 * 4).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    if text.trim().is_empty() {
        return Err(
            Failure::usage("there is nothing on stdin").hint("printf 'done: …\\nnext: …\\n' | everloop handoff write")
        );
    }
    service::write(session, id, &text)?;
    session.ui.said("the next session here starts with it", &json!({ "written": true }))?;
    Ok(Code::Ok)
}
