//! What one session leaves for the next. One per project folder; the latest counts.

use std::path::{Path, PathBuf};
use std::process::Command;

use everloop_core::hook::{HANDOFF, Handoff};
use everloop_core::op::Op;
use everloop_core::scoreboard::Scoreboard;
use everloop_store::{Ledger, Sqlite};

use super::{ServiceContext, sessions};
use crate::error::Failure;
use crate::hook::text::cut;

/// A handoff is for reading, not an archive.
pub const MAX_BYTES: usize = 6 << 10;
/// Lines of `git status` in it.
const STATUS_LINES: usize = 30;

/// The handoff of this folder, of a session, or of a loop's folder; `None` when none was left.
pub fn show(context: &ServiceContext, of: Option<&str>) -> Result<Option<Handoff>, Failure> {
    let home = context.home()?;
    match context.reader(&home)? {
        Some(ledger) => find(&ledger, of, context),
        None => Ok(None),
    }
}

fn find(ledger: &Sqlite, of: Option<&str>, context: &ServiceContext) -> Result<Option<Handoff>, Failure> {
    let Some(word) = of else { return read(ledger, &context.projects.root(&context.dir)) };
    if let Some(left) = by_key(ledger, &of_session(word))? {
        return Ok(Some(left));
    }
    if let Some((id, _)) = sessions::find(ledger, word)? {
        return by_key(ledger, &of_session(&id));
    }
    let dir = PathBuf::from(context.find_loop(ledger, Some(word))?.1.spec.workspace.dir);
    read(ledger, &context.projects.root(&dir))
}

/// Leaves a text of an agent for the next session in this folder; cuts it.
pub fn write(context: &ServiceContext, session: &str, text: &str) -> Result<(), Failure> {
    let text = cut(text.trim().to_owned(), MAX_BYTES);
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let left = Handoff { handoff_version: 1, session: session.to_owned(), at: context.now(), text, by_agent: true };
    let ops = save(&ledger, &left, &context.projects.root(&context.dir))?;
    ledger.transact(context.now(), &ops)?;
    Ok(())
}

/// The document key of a folder's handoff.
pub fn key(dir: &Path) -> String {
    dir.display().to_string()
}

/// The document key of a session's handoff.
fn of_session(id: &str) -> String {
    format!("session:{id}")
}

/// The handoff of a folder.
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
