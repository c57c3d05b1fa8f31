//! `everloop replay`: rebuilds every state from the journal and compares it with the stored one.
//! Changes nothing.

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::replay::{ReplayAnswer, replay as compare};
use serde_json::json;

use super::VerbSession;
use crate::ui::text::{clean, count};

const HELP: &str = "Examples:
  everloop replay
  everloop replay k3f9 --json

Exits with 0 when every state is equal, with 1 when one differs or a journal record is damaged.";

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
    let Some(ReplayAnswer { events, loops, guards, differences }) = compare(session, args.id.as_deref())? else {
        let none = json!({ "equal": true, "events": 0, "loops": 0, "guards": 0, "differences": [] });
        session.ui.answer(&["equal: nothing was written yet".to_owned()], &none)?;
        return Ok(Code::Ok);
    };
    let equal = differences.is_empty();
    let content =
        json!({ "equal": equal, "events": events, "loops": loops, "guards": guards, "differences": differences });
    let sum = format!("{}, {}, {}", count(events, "event"), count(loops as u64, "loop"), count(guards as u64, "guard"));
    let mut lines = vec![format!("{}: {sum}", if equal { "equal" } else { "different" })];
    lines.extend(differences.iter().take(SHOWN).map(|d| format!("  {}", clean(d))));
    if differences.len() > SHOWN {
        lines.push(format!("  … {} more", differences.len() - SHOWN));
    }
    session.ui.answer(&lines, &content)?;
    Ok(if equal { Code::Ok } else { Code::Failed })
}
