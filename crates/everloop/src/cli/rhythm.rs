//! `everloop rhythm`: what personas did in the last day, and what their waking was good for.

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::persona;
use serde_json::json;

use super::VerbSession;
use crate::ui::rhythm::lines;

const HELP: &str = "Examples:
  everloop rhythm          # all personas
  everloop rhythm echo
  everloop rhythm echo --json";

/// A strip of the last 24 hours for each persona: when it slept, looked, worked, reflected and
/// dreamt; and how often waking found work.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct RhythmArgs {
    /// Name or loop id of a persona; without it all that are not over
    persona: Option<String>,
}

pub fn rhythm(args: &RhythmArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let found = persona::rhythm(session, args.persona.as_deref())?;
    let look = session.ui.look(session.now());
    session.ui.answer(&lines(&found, &look), &json!({ "personas": found }))?;
    Ok(Code::Ok)
}
