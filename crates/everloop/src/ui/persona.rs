//! Personas: a line each, one with every factor of its next look, and their steps in the journal.

use everloop_core::rhythm::inward::Inward;
use everloop_core::rhythm::inward::memory::MemoryChange;
use everloop_core::rhythm::inward::plan::PlanUse;
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
        RhythmStep::Began { cause, taken, plan, .. } => {
            let cause = match cause {
                Some(WakeCause::Signal { class }) => format!(", woken by something of class {}", class.as_str()),
                Some(WakeCause::Person) => ", woken by a person".to_owned(),
                Some(WakeCause::Backlog { left }) => format!(", because {} waited", count(*left, "signal")),
                None => String::new(),
            };
            let plan = match plan {
                Some(PlanUse::Hit { plan }) => format!(", plan {} is for it", plan + 1),
                Some(PlanUse::Miss) => ", no plan is for it".to_owned(),
                None => String::new(),
            };
            format!("begins with {}{cause}{plan}", count(*taken, "signal"))
        }
        RhythmStep::Rested { outcome, wish, .. } => {
            let end = match outcome {
                TurnOutcome::Good => "rests",
                TurnOutcome::Failed => "rests after a turn that failed",
            };
            wish.as_ref().map_or_else(|| end.to_owned(), |wish| format!("{end}; the agent wants to be woken {wish}"))
        }
        RhythmStep::TurnedInward { .. }
        | RhythmStep::Reflected { .. }
        | RhythmStep::Dreamed { .. }
        | RhythmStep::Unanswered { .. }
        | RhythmStep::Remembered { .. } => inward_line(step),
    }
}

/// A step of a reflection or a dream.
fn inward_line(step: &RhythmStep) -> String {
    match step {
        RhythmStep::TurnedInward { inward: Inward::Reflection { on }, .. } => format!("reflects [{}]", on.as_str()),
        RhythmStep::TurnedInward { inward: Inward::Dream, .. } => "dreams".to_owned(),
        RhythmStep::Reflected { reflection, .. } => {
            let worth = match reflection.worth {
                Some(true) => "; waking was worth it",
                Some(false) => "; waking was not worth it",
                None => "",
            };
            let wish =
                reflection.wish.as_ref().map_or_else(String::new, |wish| format!("; it wants to be woken {wish}"));
            let notes = list("notes", &reflection.notes);
            let corrections = list("corrections", &reflection.corrections);
            let dropped = list("dropped", &reflection.dropped);
            format!("reflected [{}]{worth}{wish}{notes}{corrections}{dropped}", reflection.on.as_str())
        }
        RhythmStep::Dreamed { memory, plans, dropped, .. } => {
            let memory = match memory {
                MemoryChange::Kept => "the memory stays as it is".to_owned(),
                MemoryChange::Compacted { number, chars } => {
                    format!("version {number} of the memory has {chars} characters")
                }
                MemoryChange::Refused { lost } => {
                    format!("the new memory is refused, because it lacks protected lines: {}", lost.join("; "))
                }
            };
            let plans =
                plans.as_ref().map_or_else(String::new, |plans| format!("; {}", count(plans.len() as u64, "plan")));
            format!("dreamed: {memory}{plans}{}", list("dropped", dropped))
        }
        RhythmStep::Unanswered { inward, why, .. } => format!("a {} had no answer: {why}", inward.as_str()),
        RhythmStep::Remembered { by, line, .. } => format!("{by} added to the memory: {line}"),
        RhythmStep::Received { .. }
        | RhythmStep::Arrived { .. }
        | RhythmStep::Summoned { .. }
        | RhythmStep::Looked { .. }
        | RhythmStep::Began { .. }
        | RhythmStep::Rested { .. } => step_line(step),
    }
}

fn list(what: &str, texts: &[String]) -> String {
    if texts.is_empty() { String::new() } else { format!("; {what}: {}", texts.join("; ")) }
}
