//! A session that everloop did not start: what its hook decided last, and why.

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

/// A session that was silent for longer is taken for gone.
const SHOWN: Duration = Duration::from_secs(24 * 3600);

/// The session that a word means: its id, or the beginning of one.
pub fn find(ledger: &Sqlite, word: &str) -> Result<Option<(String, Record)>, Failure> {
    if let Some(row) = ledger.doc(SESSION, word)? {
        return Ok(Some((row.key, read_record(&row.body)?)));
    }
    let mut begun = ledger.docs(SESSION)?.into_iter().filter(|row| row.key.starts_with(word));
    match (begun.next(), begun.next()) {
        (Some(row), None) => Ok(Some((row.key, read_record(&row.body)?))),
        (None, _) => Ok(None),
        (Some(one), Some(other)) => Err(Failure::usage(format!("`{word}` fits several sessions")).hint(format!(
            "there are: {}, {}",
            clean(&one.key),
            clean(&other.key)
        ))),
    }
}

/// Explains one.
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
        // Most are another loop's, or long gone; one that cannot be read is no reason to say nothing.
        let Ok(record) = read_record(&row.body) else { continue };
        let here = record.owner.as_ref() == Some(&state.id);
        if here && !record.ended && look.now.since(record.seen_at) < SHOWN {
            found.push((row.key, record));
        }
    }
    Ok(found)
}

/// What was last decided about it, in one line.
pub fn line(id: &str, record: &Record, look: &StatusStyle) -> String {
    let decided = record.last.as_ref().map_or_else(
        || "was not asked to stop or to go on yet".to_owned(),
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
            "Session {id} of {} works in {} for the loop `{}`. It began {} and was last heard of {}{over}.",
            record.agent,
            record.dir,
            record.name,
            relative(record.started_at, look.now),
            relative(record.seen_at, look.now)
        )),
        line(id, record, look),
    ];
    if let Some(verdict) = &record.verdict {
        let said = format!("Its checks said {} ({}).", score(&verdict.board), relative(verdict.at, look.now));
        lines.push(clean(&said));
    }
    if record.holds_in_all > 0 {
        lines.push(format!(
            "It was held {} in all since a person last spoke.",
            crate::ui::text::times(record.holds_in_all)
        ));
    }
    if !record.pending.is_empty() {
        lines.push(clean(&format!("It says that it waits for {}.", record.pending.join(", "))));
    }
    if let Some(until) = record.parked_until.filter(|until| *until > look.now) {
        lines.push(format!("Its vendor does not serve it until {}.", moment(until, look.now, &look.zone)));
    }
    if let Some(percent) = record.context_percent {
        lines.push(format!("Its context is {percent} % full."));
    }
    lines
}
