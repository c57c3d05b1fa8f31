//! `everloop replay`: rebuilds every state from the journal and compares it with the stored one.
//! Changes nothing.

use everloop_engine::error::{Code, Failure};
use everloop_engine::services;
use serde_json::json;

use super::VerbSession;
use crate::ui::text::{clean, count};

const HELP: &str = "Examples:
  everloop replay
  everloop replay k3f9 --json

Exits with 0 when every state is equal, with 1 when one differs, a journal record is damaged, or something other than
everloop wrote it. The supervisor does the same at every start and opens a ticket.";

/// Differences that are shown; the first ones point to the cause.
const SHOWN: usize = 20;

/// Walks the whole journal, checks every record, and proves that the stored states follow from it.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct ReplayArgs {
    /// Compare only this loop [default: all loops and the guard's state]
    id: Option<String>,
}

pub fn replay(args: &ReplayArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let report = services::replay::replay(session, args.id.as_deref())?;
    let equal = report.differences.is_empty();
    let content = json!({
        "equal": equal,
        "events": report.events,
        "signed_from": report.signed_from,
        "loops": report.loops,
        "guards": report.guards,
        "differences": report.differences,
    });
    if report.events == 0 && equal {
        session.ui.answer(&["equal: nothing was written yet".to_owned()], &content)?;
        return Ok(Code::Ok);
    }
    let counts = [
        count(report.events, "event"),
        count(report.loops as u64, "loop"),
        count(report.guards as u64, "guard"),
        match report.signed_from {
            Some(1) => "signed".to_owned(),
            Some(from) => format!("signed from record {from} on"),
            None => "not signed".to_owned(),
        },
    ];
    let mut lines = vec![format!("{}: {}", if equal { "equal" } else { "different" }, counts.join(", "))];
    lines.extend(report.differences.iter().take(SHOWN).map(|d| format!("  {}", clean(d))));
    if report.differences.len() > SHOWN {
        lines.push(format!("  … {} more", report.differences.len() - SHOWN));
    }
    session.ui.answer(&lines, &content)?;
    Ok(if equal { Code::Ok } else { Code::Failed })
}
