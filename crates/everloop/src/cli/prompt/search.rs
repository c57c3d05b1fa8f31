//! `everloop prompt list` and `search`: the prompts of people in their sessions and of everloop in
//! its turns.

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::prompts::{self, KeptPrompt, PromptSearch};
use jiff::tz::TimeZone;
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

/// Prints the newest prompts that have all of these words in them, whatever their case.
pub fn search(words: &[String], filter: &PromptFilter, session: &VerbSession) -> Result<Code, Failure> {
    let PromptFilter { owner, since, lines } = filter;
    let since = since.as_deref().map(|text| logs::past(text, session)).transpose()?;
    let wanted = PromptSearch { words: words.to_vec(), owner: owner.clone(), since, max: *lines };
    let found = prompts::search(session, &wanted)?;
    let first = words.first().map(|word| word.to_lowercase());
    let (zone, now, width) = (TimeZone::system(), session.now(), session.ui.width());
    let line = |prompt: &KeptPrompt| {
        let said = prompt.text.lines().find(|line| {
            let line = line.to_lowercase();
            !line.trim().is_empty() && first.as_ref().is_none_or(|word| line.contains(word))
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
