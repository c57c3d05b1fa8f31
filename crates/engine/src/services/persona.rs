//! Personas: their states, every factor of their next look, and what they did in the last day.

use std::time::Duration;

use everloop_agents::redact::without_secrets;
use everloop_core::action::LoopCommand;
use everloop_core::ids::LoopId;
use everloop_core::rhythm::cadence::LONGEST_MOST;
use everloop_core::rhythm::factor::Factor;
use everloop_core::rhythm::inward::memory::LINE_MAX_CHARS;
use everloop_core::rhythm::next::{Hints, next};
use everloop_core::rhythm::state::Yields;
use everloop_core::rhythm::strip::{Stretch, StripFold};
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_store::{Ledger, LocalLedger, Sqlite};
use serde::Serialize;

use super::ServiceContext;
use super::journal::{self, JournalRange};
use super::loops::{CommandAnswer, send};
use crate::calendar::Zones;
use crate::error::Failure;
use crate::record::read_state;
use crate::text::nearest;

/// The period of a strip. What a persona does at its beginning may have begun as much earlier as a
/// nap may last.
const PERIOD: Duration = Duration::from_secs(24 * 3600);

/// A persona as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct PersonaView {
    pub name: String,
    #[serde(rename = "loop")]
    pub id: LoopId,
    /// One word; a persona that is over has the word of its loop.
    pub state: &'static str,
    pub mood: &'static str,
    pub charter: String,
    /// Signals that wait for the next turn.
    pub waiting: u64,
    pub turns: u32,
    pub yields: Yields,
    /// The next look; `None` for one that is over or at work.
    pub next: Option<NextLook>,
}

/// When a persona looks next, and every factor that counted.
#[derive(Clone, Debug, Serialize)]
pub struct NextLook {
    pub at: Time,
    pub because: Vec<Factor>,
}

/// What a persona did in a period, and what its waking was good for.
#[derive(Clone, Debug, Serialize)]
pub struct RhythmView {
    pub name: String,
    #[serde(rename = "loop")]
    pub id: LoopId,
    pub state: &'static str,
    pub mood: &'static str,
    pub since: Time,
    pub until: Time,
    pub stretches: Vec<Stretch>,
    pub yields: Yields,
    /// Looks with work, of a hundred.
    pub worked_percent: Option<u64>,
    /// Changes of its turns that were kept.
    pub kept: u32,
    /// Tokens of reflections and dreams for each of them.
    pub inward_tokens_per_kept: Option<u64>,
}

/// The rhythm of one persona, or of all that are not over, in the last day.
pub fn rhythm(context: &ServiceContext, name: Option<&str>) -> Result<Vec<RhythmView>, Failure> {
    let home = context.home()?;
    let Some(ledger) = context.reader(&home)? else {
        return name.map_or(Ok(Vec::new()), |name| Err(unknown(name, &[])));
    };
    let mut states = match name {
        Some(name) => vec![find(&ledger, name)?],
        None => personas(&ledger)?.into_iter().filter(|state| !state.is_over()).collect(),
    };
    states.sort_by_key(|state| state.name.clone());
    let now = context.now();
    states.iter().filter_map(|state| rhythm_of(&ledger, state, now).transpose()).collect()
}

fn rhythm_of(ledger: &Sqlite, state: &LoopState, now: Time) -> Result<Option<RhythmView>, Failure> {
    let Some(view) = view(state, now) else { return Ok(None) };
    let since = now - PERIOD;
    let mut fold = StripFold::new(since);
    let range = JournalRange { owner: Some(&state.id), lines: None, since: Some(since - LONGEST_MOST) };
    journal::read(ledger, &range, |records| {
        for record in records {
            fold.take(&record.event, record.at);
        }
        Ok(())
    })?;
    let (yields, kept) = (view.yields, state.progress.kept_count);
    Ok(Some(RhythmView {
        name: view.name,
        id: view.id,
        state: view.state,
        mood: view.mood,
        since,
        until: now,
        stretches: fold.finish(now),
        yields,
        worked_percent: (yields.worked * 100).checked_div(yields.looks),
        kept,
        inward_tokens_per_kept: yields.inward.tokens.checked_div(u64::from(kept)),
    }))
}

/// Adds a line to the memory of a persona, which no dream may drop.
pub fn remember(context: &ServiceContext, name: &str, line: &str) -> Result<CommandAnswer, Failure> {
    context.for_a_person("add to the memory of a persona")?;
    let line = without_secrets(line.trim());
    let chars = line.chars().count();
    if !(1..=LINE_MAX_CHARS).contains(&chars) || line.contains(char::is_control) {
        let what = format!("this is no line for a memory: it has {chars} characters, or control characters");
        return Err(Failure::usage(what).hint(format!("one line of 1 to {LINE_MAX_CHARS} characters")));
    }
    let state = find(&context.writer(&context.home()?)?, name)?;
    let (state, taker) = send(context, Some(state.id.as_str()), &LoopCommand::Remember { line })?;
    Ok(CommandAnswer::new(&state.id, "remembers the line", taker))
}

/// The view of a loop; `None` if it is no persona.
pub fn view(state: &LoopState, now: Time) -> Option<PersonaView> {
    let (spec, persona) = (state.spec.persona.as_deref()?, state.persona.as_deref()?);
    let (status, hold) = (state.persona_status(), state.hold());
    let hints = Hints { calendar: &Zones, hold: hold.as_ref() };
    let rests = !state.is_over() && persona.work.is_none();
    let look = rests.then(|| next(&spec.cadence, &persona.history, &hints, now));
    Some(PersonaView {
        name: state.name.clone(),
        id: state.id.clone(),
        state: status.map_or(state.phase.label(), |status| status.as_str()),
        mood: persona.mood(hold.as_ref(), now).as_str(),
        charter: state.spec.goal.clone(),
        waiting: persona.waiting,
        turns: state.task.turns,
        yields: persona.yields,
        next: look.map(|look| NextLook { at: look.at, because: look.because }),
    })
}

/// All personas by name, those that are not over first.
pub fn list(context: &ServiceContext) -> Result<Vec<PersonaView>, Failure> {
    let home = context.home()?;
    let Some(ledger) = context.reader(&home)? else { return Ok(Vec::new()) };
    let now = context.now();
    let mut states = personas(&ledger)?;
    states.sort_by_key(|state| (state.is_over(), state.name.clone()));
    Ok(states.iter().filter_map(|state| view(state, now)).collect())
}

/// The persona of a name or an id.
pub fn show(context: &ServiceContext, name: &str) -> Result<PersonaView, Failure> {
    let home = context.home()?;
    let Some(ledger) = context.reader(&home)? else { return Err(unknown(name, &[])) };
    let state = find(&ledger, name)?;
    view(&state, context.now()).ok_or_else(|| unknown(name, &[]))
}

/// Whether there is a persona of a name or an id.
pub fn is_known(context: &ServiceContext, name: &str) -> Result<bool, Failure> {
    let Some(ledger) = context.reader(&context.home()?)? else { return Ok(false) };
    Ok(personas(&ledger)?.iter().any(|state| state.name == name || state.id.as_str() == name))
}

pub(super) fn personas(ledger: &Sqlite) -> Result<Vec<LoopState>, Failure> {
    let all: Vec<LoopState> = ledger.loops()?.iter().map(read_state).collect::<Result<_, _>>()?;
    Ok(all.into_iter().filter(LoopState::is_persona).collect())
}

/// The persona of a name or an id: the latest that is not over, else the latest.
pub(super) fn find(ledger: &Sqlite, name: &str) -> Result<LoopState, Failure> {
    let mut rows = ledger.named(name)?;
    rows.extend(ledger.get_loop(&LoopId::new(name))?);
    let named: Vec<LoopState> = rows.iter().map(read_state).collect::<Result<_, _>>()?;
    let personas = named.into_iter().filter(LoopState::is_persona);
    match personas.max_by_key(|state| (!state.is_over(), state.created_at)) {
        Some(state) => Ok(state),
        None => Err(unknown(name, &self::personas(ledger)?)),
    }
}

fn unknown(name: &str, all: &[LoopState]) -> Failure {
    let mut names: Vec<&str> = all.iter().map(|state| state.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let hint = match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if names.is_empty() => {
            format!("add `[persona.{name}]` to everloop.toml, then: everloop persona start {name}")
        }
        None => format!("there are: {}", names.join(", ")),
    };
    Failure::usage(format!("there is no persona `{name}`")).hint(hint)
}
