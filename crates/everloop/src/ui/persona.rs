//! Personas: a line each, one with every factor of its next look, and their steps in the journal.

use everloop_core::rhythm::metabolism::{Channel, TurnOutcome};
use everloop_core::rhythm::next::WakeCause;
use everloop_core::rhythm::state::{Effect, RhythmStep};
use everloop_core::time::Time;
use everloop_engine::services::persona::{NextLook, PersonaView};

use super::quantities::{moment, relative};
use super::status::StatusStyle;
use super::table::Table;
use super::text::{clean, count};

/// Personas as a table.
pub fn list_lines(found: &[PersonaView], look: &StatusStyle) -> Vec<String> {
    if found.is_empty() {
        return vec![
            "no personas; add `[persona.NAME]` to everloop.toml, then: everloop persona start NAME".to_owned(),
        ];
    }
    let mut table = Table::new(&["NAME", "LOOP", "STATE", "MOOD", "TURNS", "WAITING", "NEXT LOOK", "CHARTER"]);
    for persona in found {
        table.row([
            clean(&persona.name),
            persona.id.to_string(),
            persona.state.to_owned(),
            persona.mood.to_owned(),
            persona.turns.to_string(),
            persona.waiting.to_string(),
            persona.next.as_ref().map_or("-".to_owned(), |next| relative(next.at.max(look.now), look.now)),
            clean(&persona.charter),
        ]);
    }
    table.lines(look.width)
}

/// One persona, in several lines.
pub fn lines(persona: &PersonaView, look: &StatusStyle) -> Vec<String> {
    let yields = persona.yields;
    let mut lines = vec![
        format!("persona {} (loop {}): {}, {}", clean(&persona.name), persona.id, persona.state, persona.mood),
        format!("  charter: {}", clean(&persona.charter)),
        format!(
            "  {}, {} with work; {} ({} ignored), {} waiting; {}",
            count(yields.looks, "look"),
            yields.worked,
            count(yields.signals, "signal"),
            yields.ignored,
            persona.waiting,
            count(u64::from(persona.turns), "turn"),
        ),
    ];
    if let Some(next) = &persona.next {
        lines.push(format!("  next look {}:", moment(next.at.max(look.now), look.now, &look.zone)));
        lines.extend(factors(next, look).into_iter().map(|factor| format!("    {factor}")));
    }
    lines
}

/// Every factor of a next look, as sentences.
pub fn factors(next: &NextLook, look: &StatusStyle) -> Vec<String> {
    let clock = |at: Time| moment(at, look.now, &look.zone);
    next.because.iter().map(|factor| clean(&factor.describe(&clock))).collect()
}

/// A step of a persona, for a line of the journal.
pub fn step_line(step: &RhythmStep) -> String {
    match step {
        RhythmStep::Received { key, effect, .. } => {
            let effect = match effect {
                Effect::Ignored => "is ignored and waits for the next turn".to_owned(),
                Effect::Faint => "waits; a second one of class low wakes".to_owned(),
                Effect::Wakes { class } => format!("of class {} wakes", class.as_str()),
            };
            format!("signal {key} {effect}")
        }
        RhythmStep::Arrived { channel, .. } => match channel {
            Channel::Signal => "a signal wakes".to_owned(),
            Channel::Message => "a message wakes".to_owned(),
            Channel::Task => "a task wakes".to_owned(),
            Channel::Monitor => "what a monitor saw wakes".to_owned(),
        },
        RhythmStep::Summoned { .. } => "a person wants it to look".to_owned(),
        RhythmStep::Looked { .. } => "looked: nothing to do".to_owned(),
        RhythmStep::Began { cause, taken, .. } => {
            let cause = match cause {
                Some(WakeCause::Signal { class }) => format!(", woken by something of class {}", class.as_str()),
                Some(WakeCause::Person) => ", woken by a person".to_owned(),
                Some(WakeCause::Backlog { left }) => format!(", because {} waited", count(*left, "signal")),
                None => String::new(),
            };
            format!("begins with {}{cause}", count(*taken, "signal"))
        }
        RhythmStep::Rested { outcome, wish, .. } => {
            let end = match outcome {
                TurnOutcome::Good => "rests",
                TurnOutcome::Failed => "rests after a turn that failed",
            };
            wish.as_ref().map_or_else(|| end.to_owned(), |wish| format!("{end}; the agent wants to be woken {wish}"))
        }
    }
}
