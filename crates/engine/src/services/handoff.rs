//! What one session leaves for the next. One per project folder; the latest counts.

use std::path::{Path, PathBuf};
use std::process::Command;

use everloop_agents::redact::without_secrets;
use everloop_core::hook::Handoff;
use everloop_core::op::Op;
use everloop_core::scoreboard::Scoreboard;
use everloop_store::{Ledger, Sqlite};

use super::{ServiceContext, sessions};
use crate::error::Failure;
use crate::handoffs::HandoffOf;
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
    let Some(word) = of else {
        return HandoffOf::Folder(&context.projects.root(&context.dir)).read(ledger);
    };
    if let Some(left) = HandoffOf::Session(word).read(ledger)? {
        return Ok(Some(left));
    }
    if let Some((id, _)) = sessions::find(ledger, word)? {
        return HandoffOf::Session(&id).read(ledger);
    }
    let dir = PathBuf::from(context.find_loop(ledger, Some(word))?.1.spec.workspace.dir);
    HandoffOf::Folder(&context.projects.root(&dir)).read(ledger)
}

/// Leaves a text of an agent for the next session in this folder; cuts it. From a turn it is for the
/// next turns of its loop, and for sessions in the loop's folder.
pub fn write(context: &ServiceContext, session: &str, text: &str) -> Result<(), Failure> {
    let text = cut(without_secrets(text.trim()), MAX_BYTES);
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    // A turn leaves its own, whatever session it names.
    let session = context.caller.turn().unwrap_or(session);
    let left = Handoff { handoff_version: 1, session: session.to_owned(), at: context.now(), text, by_agent: true };
    let own = context.own_loop(&ledger)?;
    let dir = own.as_ref().map_or_else(|| context.dir.clone(), |state| state.spec.workspace.dir.clone().into());
    let mut ops = save(&ledger, &left, &context.projects.root(&dir))?;
    if let Some(state) = &own {
        ops.push(HandoffOf::Loop(&state.id).save(&ledger, &left)?);
    }
    ledger.transact(context.now(), &ops)?;
    Ok(())
}

/// Replaces the handoff of this folder and of its session.
pub fn save(ledger: &Sqlite, left: &Handoff, dir: &Path) -> Result<Vec<Op>, Failure> {
    let own = Some(HandoffOf::Session(&left.session)).filter(|_| !left.session.is_empty());
    own.into_iter().chain([HandoffOf::Folder(dir)]).map(|of| of.save(ledger, left)).collect()
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
    let status = Command::new("git").arg("-C").arg(dir).args(["status", "--short"]).output();
    if let Some(status) = status.ok().filter(|out| out.status.success() && !out.stdout.is_empty()) {
        let text = String::from_utf8_lossy(&status.stdout).into_owned();
        let lines: Vec<&str> = text.lines().take(STATUS_LINES).collect();
        parts.push(format!("Not committed:\n{}", lines.join("\n")));
    }
    cut(parts.join("\n\n"), MAX_BYTES)
}
