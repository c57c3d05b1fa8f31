//! Personas: their states, and every factor of their next look.

use everloop_core::ids::LoopId;
use everloop_core::rhythm::factor::Factor;
use everloop_core::rhythm::next::{Hints, next};
use everloop_core::rhythm::state::Yields;
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_store::{Ledger, LocalLedger, Sqlite};
use serde::Serialize;

use super::ServiceContext;
use crate::calendar::Zones;
use crate::error::Failure;
use crate::record::read_state;
use crate::text::nearest;

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
