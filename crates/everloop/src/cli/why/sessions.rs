//! A session that everloop did not start: its hook's last decision, and why.

use std::time::Duration;

use everloop_core::hook::{HookSession as Record, SESSION};
use everloop_core::state::LoopState;
use everloop_store::{Ledger, Sqlite};
use serde_json::json;

use crate::cli::Invocation;
use crate::cli::hook::read_record;
use crate::error::{Code, Failure};
use crate::ui::events::in_session;
use crate::ui::quantities::score;
use crate::ui::quantities::{moment, relative};
use crate::ui::status::StatusStyle;
use crate::ui::text::clean;

/// A session that was silent for longer counts as gone.
const SHOWN: Duration = Duration::from_secs(24 * 3600);

/// Finds a session by its id, or by the beginning of one.
pub fn find(ledger: &Sqlite, word: &str) -> Result<Option<(String, Record)>, Failure> {
    if let Some(row) = ledger.doc(SESSION, word)? {
        return Ok(Some((row.key, read_record(&row.body)?)));
    }
    let mut begun = ledger.docs(SESSION)?.into_iter().filter(|row| row.key.starts_with(word));
    match (begun.next(), begun.next()) {
        (Some(row), None) => Ok(Some((row.key, read_record(&row.body)?))),
        (None, _) => Ok(None),
        (Some(one), Some(other)) => Err(Failure::usage(format!("`{word}` matches several sessions")).hint(format!(
            "there are: {}, {}",
            clean(&one.key),
            clean(&other.key)
        ))),
    }
}

pub fn explain(id: &str, record: &Record, session: &Invocation) -> Result<Code, Failure> {
    let look = session.ui.look(session.now());
    let lines = lines(id, record, &look);
    session.ui.answer(&lines, &json!({ "session": id, "record": record, "why": lines.join(" ") }))?;
    Ok(Code::Ok)
}

/// Sessions that work on a loop now.
pub fn of(ledger: &Sqlite, state: &LoopState, look: &StatusStyle) -> Result<Vec<(String, Record)>, Failure> {
    let mut found = Vec::new();
    for row in ledger.docs(SESSION)? {
        // Most belong to another loop, or are long gone; an unreadable one is skipped.
        let Ok(record) = read_record(&row.body) else { continue };
        let here = record.owner.as_ref() == Some(&state.id);
        if here && !record.ended && look.now.since(record.seen_at) < SHOWN {
            found.push((row.key, record));
        }
    }
    Ok(found)
}

/// The last decision about it, in one line.
pub fn line(id: &str, record: &Record, look: &StatusStyle) -> String {
    let decided = record.last.as_ref().map_or_else(
        || "has not called a hook that decides yet".to_owned(),
        |(at, did)| {
            format!("{} ({})", in_session(did, &|at| moment(*at, look.now, &look.zone)), relative(*at, look.now))
        },
    );
    clean(&format!("Session {id} of {} {decided}.", record.agent))
}

fn lines(id: &str, record: &Record, look: &StatusStyle) -> Vec<String> {
    let over = if record.ended { ", and is over" } else { "" };
    let mut lines = vec![
        clean(&format!(
            "Session {id} of {} works in {} for the loop `{}`. It began {} and was last seen {}{over}.",
            record.agent,
            record.dir,
            record.name,
            relative(record.started_at, look.now),
            relative(record.seen_at, look.now)
        )),
        line(id, record, look),
    ];
    if let Some(verdict) = &record.verdict {
        let said = format!("Its checks: {} ({}).", score(&verdict.board), relative(verdict.at, look.now));
        lines.push(clean(&said));
    }
    if record.holds_in_all > 0 {
        lines.push(format!(
            "It was held {} in all since the last prompt of a person.",
            crate::ui::text::times(record.holds_in_all)
        ));
    }
    if !record.pending.is_empty() {
        lines.push(clean(&format!("It waits for {}, by its own account.", record.pending.join(", "))));
    }
    if let Some(until) = record.parked_until.filter(|until| *until > look.now) {
        lines.push(format!("Its vendor limits it until {}.", moment(until, look.now, &look.zone)));
    }
    if let Some(percent) = record.context_percent {
        lines.push(format!("Its context is {percent} % full."));
    }
    lines
}
