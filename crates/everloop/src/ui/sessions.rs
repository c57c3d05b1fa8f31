//! A session that everloop did not start: its hook's last decision, and why.

use everloop_core::hook::HookSession as Record;

use super::events::in_session;
use super::quantities::score;
use super::quantities::{moment, relative};
use super::status::StatusStyle;
use super::text::{clean, times};

/// The last decision about it, in one line.
pub fn line(id: &str, record: &Record, look: &StatusStyle) -> String {
    let decided = record.last.as_ref().map_or_else(
        || "has not called a hook that decides yet".to_owned(),
        |(at, did)| {
            format!("{} ({})", in_session(did, &|at| moment(*at, look.now, &look.zone)), relative(*at, look.now))
        },
    );
    let asked = record.asked.as_ref().map(|asked| {
        let (failing, at) = (asked.failing.join(", "), relative(asked.at, look.now));
        format!("wanted to stop and was held ({} in a row): {failing} fails ({at})", asked.holds)
    });
    clean(&format!("Session {id} of {} {}.", record.agent, asked.unwrap_or(decided)))
}

/// All that is known of one.
pub fn lines(id: &str, record: &Record, look: &StatusStyle) -> Vec<String> {
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
        lines.push(format!("It was held {} in all since the last message of a person.", times(record.holds_in_all)));
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
