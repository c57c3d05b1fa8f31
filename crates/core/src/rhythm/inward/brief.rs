//! What an inward turn is about: content of its prompt. Everything in it that an agent wrote is
//! data.

use serde::Serialize;

use super::form::Reflection;
use super::memory::{MEMORY_MAX_CHARS, Memory};
use super::plan::{PLAN_MAX_CHARS, PLANS_MAX};
use super::{Inward, ReflectOn};
use crate::state::LoopState;

/// Reflections that one on itself reads, and those that a dream reads: about those of two days.
const ON_SELF_READS: usize = 4;
const DREAM_READS: usize = 20;
/// Turns that are listed: about those of a day.
const TURNS_LISTED: usize = 10;

/// Everything the template of inward turns can use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InwardPrompt {
    pub charter: String,
    /// `reflection` or `dream`.
    pub kind: &'static str,
    /// The tag of a reflection.
    pub on: Option<&'static str>,
    /// What waking brought, in a sentence.
    pub yields: String,
    /// The latest turns, newest first.
    pub turns: Vec<String>,
    /// The present memory.
    pub memory: String,
    /// The oldest one first.
    pub reflections: Vec<String>,
    pub plans: Vec<String>,
    pub memory_chars: usize,
    pub plans_most: usize,
    pub plan_chars: usize,
}

/// The prompt of the inward turn under way; `None` in any other turn.
pub fn inward_prompt(state: &LoopState, memory: &Memory) -> Option<InwardPrompt> {
    let inward = state.inward()?;
    let persona = state.persona.as_deref()?;
    let on = match inward {
        Inward::Reflection { on } => Some(on),
        Inward::Dream => None,
    };
    let read = match on {
        Some(ReflectOn::OnCycle) => 0,
        Some(ReflectOn::OnSelf) => ON_SELF_READS,
        None => DREAM_READS,
    };
    let from = memory.reflections.len().saturating_sub(read);
    let yields = persona.yields;
    let turns = state.progress.tries.iter().rev().take(TURNS_LISTED);
    Some(InwardPrompt {
        charter: state.spec.goal.clone(),
        kind: inward.as_str(),
        on: on.map(ReflectOn::as_str),
        yields: format!(
            "{} looks, {} of them with work; {} signals, {} of them ignored; {} changes kept; plans used {} times, not \
             used {} times",
            yields.looks,
            yields.worked,
            yields.signals,
            yields.ignored,
            state.progress.kept_count,
            yields.plan_hits,
            yields.plan_misses
        ),
        turns: turns.map(|t| format!("turn {}: {}; {}", t.number, t.outcome.label(), t.last_line)).collect(),
        memory: memory.text().to_owned(),
        reflections: memory.reflections[from..].iter().map(line).collect(),
        plans: persona.inward.plans.iter().map(|plan| format!("{}: {}", plan.describe(), plan.text)).collect(),
        memory_chars: MEMORY_MAX_CHARS,
        plans_most: PLANS_MAX,
        plan_chars: PLAN_MAX_CHARS,
    })
}

fn line(reflection: &Reflection) -> String {
    let worth = match reflection.worth {
        Some(true) => "worth it",
        Some(false) => "not worth it",
        None => "no verdict",
    };
    let parts = reflection.notes.iter().chain(&reflection.corrections).map(String::as_str);
    let parts: Vec<&str> = std::iter::once(worth).chain(parts).collect();
    format!("[{}] {}", reflection.on.as_str(), parts.join("; "))
}
