//! Personas: what each of them does, what waits for it, and when and why it looks next.

use everloop_core::time::Time;
use serde::Serialize;

use super::{clock, line};
use crate::error::Failure;
use crate::services::{ServiceContext, persona};

/// All personas of this machine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RhythmView {
    pub personas: Vec<PersonaCard>,
}

/// A persona with its next look.
#[derive(Clone, Debug, Serialize)]
pub struct PersonaCard {
    pub name: String,
    #[serde(rename = "loop")]
    pub id: String,
    pub state: &'static str,
    pub mood: &'static str,
    pub charter: String,
    pub waiting: u64,
    pub turns: u32,
    /// Looks, and those of them that found work.
    pub looks: u64,
    pub worked: u64,
    pub next: Option<Time>,
    /// Every factor of the next look, as a sentence.
    pub because: Vec<String>,
}

/// Reads all personas.
pub fn rhythm(context: &ServiceContext) -> Result<RhythmView, Failure> {
    let personas = persona::list(context)?.into_iter().map(|found| PersonaCard {
        name: line(&found.name),
        id: found.id.to_string(),
        state: found.state,
        mood: found.mood,
        charter: line(&found.charter),
        waiting: found.waiting,
        turns: found.turns,
        looks: found.yields.looks,
        worked: found.yields.worked,
        next: found.next.as_ref().map(|next| next.at),
        because: found
            .next
            .map(|next| next.because.iter().map(|factor| line(&factor.describe(&clock))).collect())
            .unwrap_or_default(),
    });
    Ok(RhythmView { personas: personas.collect() })
}
