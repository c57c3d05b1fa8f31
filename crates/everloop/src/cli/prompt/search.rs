//! `everloop prompt list` and `search`: the prompts of people in their sessions and of everloop in
//! its turns.

use everloop_core::event::Event;
use everloop_core::hook::SessionAct;
use everloop_core::journal::JournalRecord;
use everloop_core::time::Time;
use everloop_engine::error::{Code, Failure};
use everloop_engine::state_folder::StateFolder;
use everloop_store::{Ledger, Sqlite};
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::json;

use crate::cli::{VerbSession, logs};
use crate::ui::quantities::moment;
use crate::ui::text::{clean, fit};

/// Printed below the help of both.
pub const HELP: &str = "Examples:
  everloop prompt list -n 10
  everloop prompt search parser
  everloop prompt search 'flaky test' --since 2d --loop main --json

Prompts of people are kept without secrets; prompts of everloop's own turns are kept for the last 50.";

/// Records read at once.
const CHUNK: usize = 1000;
/// Prompts shown by default.
const MOST: usize = 50;

/// Which prompts are of interest.
#[derive(Debug, clap::Args)]
pub struct PromptFilter {
    /// Only of this loop, by name or id
    #[arg(long = "loop", value_name = "LOOP")]
    owner: Option<String>,
    /// Only after this: `2h` (ago), `21:00`, `2026-11-15`
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Most prompts to show
    #[arg(short = 'n', long, default_value_t = MOST, value_name = "N")]
    lines: usize,
}

/// A prompt of an agent.
#[derive(Debug, Serialize)]
struct Prompt {
    at: Time,
    /// The session or the turn.
    to: String,
    name: String,
    text: String,
}

/// Prints the newest prompts that have all of these words in them, whatever their case.
pub fn search(words: &[String], filter: &PromptFilter, session: &VerbSession) -> Result<Code, Failure> {
    let PromptFilter { owner, since, lines } = filter;
    let home = session.home()?;
    let since = since.as_deref().map(|text| logs::past(text, session)).transpose()?;
    let mut found = match session.reader(&home)? {
        Some(ledger) => all(&ledger, &home)?,
        None => Vec::new(),
    };
    let words: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
    found.retain(|prompt| {
        let text = prompt.text.to_lowercase();
        let turn_of = |id: &str| prompt.to.split('-').next() == Some(id);
        words.iter().all(|word| text.contains(word))
            && since.is_none_or(|since| prompt.at >= since)
            && owner.as_deref().is_none_or(|owner| prompt.name == owner || turn_of(owner))
    });
    found.drain(..found.len().saturating_sub(*lines));
    let (zone, now, width) = (TimeZone::system(), session.now(), session.ui.width());
    let line = |prompt: &Prompt| {
        let said = prompt.text.lines().find(|line| {
            let line = line.to_lowercase();
            !line.trim().is_empty() && words.first().is_none_or(|word| line.contains(word))
        });
        let said = said.unwrap_or(prompt.text.as_str());
        fit(&clean(&format!("{} {} ({}) {said}", moment(prompt.at, now, &zone), prompt.to, prompt.name)), width)
    };
    let shown: Vec<String> = found.iter().map(line).collect();
    if shown.is_empty() {
        session.ui.talk("nothing was found");
    }
    session.ui.answer(&shown, &json!({ "prompts": found }))?;
    Ok(Code::Ok)
}

/// All prompts, oldest first.
fn all(ledger: &Sqlite, home: &StateFolder) -> Result<Vec<Prompt>, Failure> {
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let records = ledger.journal(after, None, CHUNK)?;
        let Some(last) = records.last() else { return Ok(found) };
        after = last.seq;
        found.extend(records.into_iter().filter_map(|record| prompt_of(record, home)));
    }
}

fn prompt_of(record: JournalRecord, home: &StateFolder) -> Option<Prompt> {
    let (to, name, text) = match record.event {
        Event::InSession { session, name, did: SessionAct::Prompted { text } } => (session, name, text),
        // The folders of older turns were removed.
        Event::TurnStarted { turn, .. } => {
            let text = std::fs::read_to_string(home.turn(&turn).join("prompt.md")).ok()?;
            (turn.to_string(), record.owner?.to_string(), text)
        }
        Event::Steered { message, .. } => {
            let owner = record.owner?.to_string();
            (owner.clone(), owner, message)
        }
        _ => return None,
    };
    Some(Prompt { at: record.at, to, name, text })
}
