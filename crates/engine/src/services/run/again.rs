//! The same command again: its settings hold for the loop that goes on.

use std::time::Duration;

use everloop_core::action::LoopCommand;
use everloop_core::event::LoopEnd;
use everloop_core::op::Op;
use everloop_core::raise::RunLimits;
use everloop_core::reason::RuleId;
use everloop_core::research::shared;
use everloop_core::spec::{AgentSpec, Bounds, Budget, LoopSpec};
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::Time;
use everloop_store::{Ledger, Sqlite};

use crate::caller::person;
use crate::error::{Code, Failure};
use crate::quantities::{flag_of, used_up};
use crate::record::read_state;
use crate::services::ServiceContext;
use crate::services::create::Attachment;

/// The same command, typed again.
#[derive(Clone, Copy, Debug)]
pub struct RunAgain<'a> {
    /// The settings of the command.
    pub wanted: &'a LoopSpec,
    pub attachment: Attachment,
}

/// What the loop takes over.
#[derive(Clone, Debug)]
pub struct TakenOver {
    /// The settings from now on.
    pub spec: LoopSpec,
    /// What differs, by the names of flags and keys.
    pub changes: Vec<&'static str>,
}

/// Takes over what differs and lets a paused, stopped or exhausted loop go on.
pub fn take_over(
    context: &ServiceContext,
    ledger: &mut Sqlite,
    state: &LoopState,
    again: RunAgain<'_>,
) -> Result<TakenOver, Failure> {
    let spec = with_flags(state, again.wanted, context.now());
    let limits = RunLimits { bounds: spec.bounds.clone(), budget: spec.guard.budget.clone() };
    if let Some(bound) = limits.still_ended(state).or_else(|| limits.used_up(state, context.now())) {
        return Err(Failure::new(Code::NotReached, format!("loop `{}`: its {}", state.id, used_up(bound)))
            .hint(format!("give it more: everloop resume {} {}", state.id, flag_of(bound))));
    }
    let mut commands = Vec::new();
    let changes = changes(&state.spec, &spec);
    // Before it goes on: its next turn begins at once, and has the new settings.
    if !changes.is_empty() {
        commands.push(LoopCommand::Reconfigure { spec: Box::new(spec.clone()) });
    }
    let exhausted = matches!(&state.phase, Phase::Ended { ending: LoopEnd::Exhausted { .. }, .. });
    let goes_on = exhausted && !changes.is_empty();
    if !goes_on && matches!(state.phase, Phase::Ended { .. }) || state.people.paused.is_some() {
        let (bounds, budget) = (Some(limits.bounds), Some(limits.budget));
        commands.push(LoopCommand::Resume { bounds, budget });
    }
    if matches!(&state.phase, Phase::Waiting { reason, .. } if reason.rule == RuleId::ChecksBroken) {
        commands.push(LoopCommand::Wake);
    }
    if again.attachment == Attachment::Background {
        commands.push(LoopCommand::Detach);
    }
    let mut ops = Vec::new();
    for id in state.team() {
        let mate = ledger.get_loop(&id)?.map(|row| read_state(&row)).transpose()?;
        let Some(mate) = mate else { continue };
        let own = mate_spec(&mate, &spec, again.wanted);
        ops.extend(commands.iter().map(|command| signal(&mate, &adapted(command, &own))));
    }
    if !ops.is_empty() {
        ledger.transact(context.now(), &ops)?;
    }
    Ok(TakenOver { spec, changes })
}

fn signal(state: &LoopState, command: &LoopCommand) -> Op {
    let body = serde_json::to_string(command).expect("a command is plain data and always has a JSON form");
    Op::Signal { to: state.id.to_string(), by: person(), body }
}

/// The settings of one worker of a run: those of the run, with a budget that fits what it has used.
fn mate_spec(mate: &LoopState, run: &LoopSpec, wanted: &LoopSpec) -> LoopSpec {
    let mut spec = run.clone();
    if mate.is_helper() {
        spec.guard.budget = budget(mate, &shared_budget(mate, wanted));
        spec.workspace.clone_from(&mate.spec.workspace);
    }
    spec
}

/// A command to the run as its worker with these settings gets it.
fn adapted(command: &LoopCommand, own: &LoopSpec) -> LoopCommand {
    match command {
        LoopCommand::Resume { bounds, budget } => {
            LoopCommand::Resume { bounds: bounds.clone(), budget: budget.as_ref().map(|_| own.guard.budget.clone()) }
        }
        LoopCommand::Reconfigure { .. } => LoopCommand::Reconfigure { spec: Box::new(own.clone()) },
        other => other.clone(),
    }
}

/// The wanted budget, or a worker's part of it.
fn shared_budget(state: &LoopState, wanted: &LoopSpec) -> Budget {
    shared::share(&wanted.guard.budget, u32::try_from(state.team().len()).unwrap_or(u32::MAX))
}

/// The loop's settings with those of this command. What was found in the folder when the loop was
/// made (pins, judge files, origin) stays.
fn with_flags(state: &LoopState, wanted: &LoopSpec, now: Time) -> LoopSpec {
    let mut spec = state.spec.clone();
    spec.agent = wanted.agent.clone();
    spec.others.clone_from(&wanted.others);
    spec.guard.clone_from(&wanted.guard);
    spec.watch.clone_from(&wanted.watch);
    spec.isolation.clone_from(&wanted.isolation);
    if wanted.persona.is_some() {
        spec.goal.clone_from(&wanted.goal);
        spec.persona.clone_from(&wanted.persona);
    }
    spec.guard.budget = budget(state, &shared_budget(state, wanted));
    let workers = u32::try_from(state.team().len()).unwrap_or(u32::MAX);
    spec.guard.max_parallel_turns = spec.guard.max_parallel_turns.max(if workers > 1 { workers } else { 0 });
    spec.bounds = bounds(state, &wanted.bounds, state.time_used(now));
    spec
}

/// The same command after its turns or its time were used up means as many again; otherwise they
/// are those of the whole loop.
fn bounds(state: &LoopState, wanted: &Bounds, used: Duration) -> Bounds {
    let old = &state.spec.bounds;
    let ended_by = |name: &str| match &state.phase {
        Phase::Ended { ending: LoopEnd::Exhausted { bound }, .. } => bound == name,
        _ => false,
    };
    let max_turns = match wanted.max_turns {
        Some(n) if n <= state.counted() && ended_by("turns") => Some(n.max(1).saturating_add(state.counted())),
        n => raised(n, old.max_turns, state.counted()),
    };
    let max_time = match wanted.max_time {
        Some(time) if time <= used && ended_by("time") => Some(used + time),
        time => raised(time, old.max_time, used),
    };
    Bounds { max_turns, max_time, deadline: wanted.deadline }
}

fn budget(state: &LoopState, wanted: &Budget) -> Budget {
    let (old, spent) = (&state.spec.guard.budget, &state.spend.spent);
    Budget {
        calls: raised(wanted.calls, old.calls, spent.calls),
        tokens: raised(wanted.tokens, old.tokens, spent.tokens),
        microusd: raised(wanted.microusd, old.microusd, spent.microusd),
    }
}

/// The wanted limit, unless it is used up and `everloop resume` gave more than that.
fn raised<T: PartialOrd + Copy>(wanted: Option<T>, old: Option<T>, used: T) -> Option<T> {
    match &wanted {
        Some(limit) if *limit <= used && old.as_ref().is_none_or(|old| *old > used) => old,
        _ => wanted,
    }
}

/// What differs, for a person; the names are those of the flags and keys.
fn changes(old: &LoopSpec, new: &LoopSpec) -> Vec<&'static str> {
    let agents = |spec: &LoopSpec| spec.agents().cloned().collect::<Vec<AgentSpec>>();
    let (was, is) = (&old.guard.budget, &new.guard.budget);
    let mut guard = old.guard.clone();
    guard.budget.clone_from(is);
    let rows = [
        ("max-turns", old.bounds.max_turns != new.bounds.max_turns),
        ("max-time", old.bounds.max_time != new.bounds.max_time),
        ("deadline", old.bounds.deadline != new.bounds.deadline),
        ("max-usd", was.microusd != is.microusd),
        ("max-tokens", was.tokens != is.tokens),
        ("max-calls", was.calls != is.calls),
        ("guard", guard != new.guard),
        ("agent", agents(old) != agents(new)),
        ("watch", old.watch != new.watch),
        ("isolation", old.isolation != new.isolation),
        ("charter", old.goal != new.goal),
        ("rhythm", old.persona != new.persona),
    ];
    rows.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
}
