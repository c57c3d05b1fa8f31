//! `everloop handoff`: what one session leaves for the next. One per project folder; the latest
//! counts.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use everloop_core::hook::{HANDOFF, Handoff};
use everloop_core::op::Op;
use everloop_core::scoreboard::Scoreboard;
use everloop_engine::error::{Code, Failure};
use everloop_engine::hook::text::cut;
use everloop_engine::services::sessions;
use everloop_store::{Ledger, Sqlite};
use serde_json::json;

use super::VerbSession;
use crate::config;
use crate::ui::quantities;
use crate::ui::text::{clean, clean_lines};

const HELP: &str = "Examples:
  everloop handoff show
  everloop handoff show main       # of a loop
  everloop handoff show 27832923   # what that session left
  printf 'done: parser\\nnext: the printer\\n' | everloop handoff write";

/// A handoff is for reading, not an archive.
const MAX_BYTES: usize = 6 << 10;
/// Lines of `git status` in it.
const STATUS_LINES: usize = 30;
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
    let home = session.home()?;
    let left = match session.reader(&home)? {
        Some(ledger) => find(&ledger, of, session)?,
        None => None,
    };
    let Some(left) = left else {
        let whose = of.map_or("here".to_owned(), |word| format!("under `{}`", clean(word)));
        return Err(Failure::failed(format!("no session left a handoff {whose}"))
            .hint("`everloop init` lets sessions leave one; `everloop status` names them"));
    };
    let mut lines = vec![format!("left {} by session {}:", quantities::here(left.at), clean(&left.session))];
    lines.extend(clean_lines(&left.text, SHOWN_LINES));
    session.ui.answer(&lines, &json!({ "handoff": left }))?;
    Ok(Code::Ok)
}

/// The handoff of this folder, of a session, or of a loop's folder.
fn find(ledger: &Sqlite, of: Option<&str>, session: &VerbSession) -> Result<Option<Handoff>, Failure> {
    let Some(word) = of else { return read(ledger, folder(session)) };
    if let Some(left) = by_key(ledger, &of_session(word))? {
        return Ok(Some(left));
    }
    if let Some((id, _)) = sessions::find(ledger, word)? {
        return by_key(ledger, &of_session(&id));
    }
    let dir = PathBuf::from(session.find_loop(ledger, Some(word))?.1.spec.workspace.dir);
    read(ledger, config::find(&dir).unwrap_or(&dir))
}

fn write(id: &str, session: &VerbSession) -> Result<Code, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().take(MAX_BYTES as u64 * 4).read_to_end(&mut bytes)?;
    let text = cut(String::from_utf8_lossy(&bytes).trim().to_owned(), MAX_BYTES);
    if text.is_empty() {
        return Err(
            Failure::usage("there is nothing on stdin").hint("printf 'done: …\\nnext: …\\n' | everloop handoff write")
        );
    }
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    let left = Handoff { handoff_version: 1, session: id.to_owned(), at: session.now(), text, by_agent: true };
    let ops = save(&ledger, &left, folder(session))?;
    ledger.transact(session.now(), &ops)?;
    session.ui.said("the next session here starts with it", &json!({ "written": true }))?;
    Ok(Code::Ok)
}

fn folder(session: &VerbSession) -> &Path {
    config::find(&session.dir).unwrap_or(&session.dir)
}

/// The document key of a folder's handoff.
pub fn key(dir: &Path) -> String {
    dir.display().to_string()
}

/// The document key of a session's handoff.
fn of_session(id: &str) -> String {
    format!("session:{id}")
}

pub fn read(ledger: &Sqlite, dir: &Path) -> Result<Option<Handoff>, Failure> {
    by_key(ledger, &key(dir))
}

fn by_key(ledger: &Sqlite, key: &str) -> Result<Option<Handoff>, Failure> {
    let Some(row) = ledger.doc(HANDOFF, key)? else { return Ok(None) };
    let left = serde_json::from_str(&row.body);
    Ok(Some(left.map_err(|e| Failure::failed("cannot read the handoff").because(&e))?))
}

/// Replaces the handoff of this folder and of its session.
pub fn save(ledger: &Sqlite, left: &Handoff, dir: &Path) -> Result<Vec<Op>, Failure> {
    let body = serde_json::to_string(left).expect("a handoff is plain data and always has a JSON form");
    let own = Some(of_session(&left.session)).filter(|_| !left.session.is_empty());
    let mut ops = Vec::new();
    for key in own.into_iter().chain([key(dir)]) {
        let version = ledger.doc(HANDOFF, &key)?.map_or(0, |row| row.version);
        ops.push(Op::SaveDoc { kind: HANDOFF.to_owned(), key, version, body: body.clone() });
    }
    Ok(ops)
}

/// Composes a handoff from the session's last words, the scoreboard and uncommitted changes. Empty
/// when there is none of these.
pub fn compose(words: &str, board: Option<&Scoreboard>, dir: &Path) -> String {
    let mut parts = Vec::new();
    if !words.trim().is_empty() {
        parts.push(format!("Last words:\n{}", words.trim()));
    }
    if let Some(board) = board.filter(|b| !b.0.is_empty()) {
        let rows: Vec<String> = board.0.iter().map(|r| format!("- {}: {}", r.name, r.verdict)).collect();
        parts.push(format!("Checks, when it last wanted to stop:\n{}", rows.join("\n")));
    }
    let status = Command::new("git").args(["-C", &key(dir), "status", "--short"]).output();
    if let Some(status) = status.ok().filter(|out| out.status.success() && !out.stdout.is_empty()) {
        let text = String::from_utf8_lossy(&status.stdout).into_owned();
        let lines: Vec<&str> = text.lines().take(STATUS_LINES).collect();
        parts.push(format!("Not committed:\n{}", lines.join("\n")));
    }
    cut(parts.join("\n\n"), MAX_BYTES)
}
