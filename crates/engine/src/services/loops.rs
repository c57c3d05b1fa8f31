//! Commands to loops: left in the ledger, then taken by the running supervisor or by this process.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use everloop_core::action::LoopCommand;
use everloop_core::event::{Event, LoopEnd};
use everloop_core::ids::LoopId;
use everloop_core::op::Op;
use everloop_core::raise::{Raise, RunLimits};
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::{Time, human};
use everloop_store::{Ledger, LoopRow, Sqlite};
use serde::Serialize;

use super::ServiceContext;
use super::runtime::{block_on, own_shim};
use crate::brought;
use crate::caller::person;
use crate::error::Failure;
use crate::port::Listen;
use crate::quantities::{ceiling, flag_of, used_up};
use crate::record::read_state;
use crate::research::with_findings;
use crate::state_folder::StateFolder;
use crate::supervisor::{LoopSelection, Notice, SUPERVISOR, Supervisor, SupervisorOptions, Until, Watcher};

/// A longer sleep of an agent is for a person to grant.
const MAX_AGENT_PAUSE: Duration = Duration::from_secs(24 * 3600);

/// What takes a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taker {
    /// A running supervisor was woken.
    Supervisor,
    /// None was there; it took effect in the stored state.
    Ourselves,
    /// None was there; the next supervisor takes it.
    Later,
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommandAnswer {
    #[serde(rename = "loop")]
    pub id: LoopId,
    pub done: String,
    /// Whether a supervisor took it.
    pub supervisor: bool,
}

impl CommandAnswer {
    /// For a command that this taker got.
    pub fn new(id: &LoopId, done: impl Into<String>, taker: Taker) -> Self {
        Self { id: id.clone(), done: done.into(), supervisor: taker == Taker::Supervisor }
    }
}

/// Pause a loop.
#[derive(Clone, Debug, Default)]
pub struct PauseRequest {
    /// Its id or name; without one the loop of the caller's folder.
    pub word: Option<String>,
    pub reason: String,
    /// When it goes on by itself.
    pub until: Option<Time>,
}

/// Starts no further turn of a loop. An agent's pause has an end, within a day.
pub fn pause(context: &ServiceContext, request: PauseRequest) -> Result<CommandAnswer, Failure> {
    let (now, until) = (context.now(), request.until);
    match until {
        Some(at) if at <= now => {
            return Err(Failure::usage("that time has passed").hint("everloop pause --for 10m"));
        }
        None if !context.caller.is_person() => {
            return Err(Failure::usage("an agent's pause needs an end").hint("name one: everloop pause --for 10m"));
        }
        Some(at) if !context.caller.is_person() && at.since(now) > MAX_AGENT_PAUSE => {
            return Err(Failure::usage("an agent may not pause a loop for more than a day")
                .hint("let a person decide: everloop message send person \"TEXT\""));
        }
        _ => {}
    }
    let command = LoopCommand::Pause { reason: request.reason, until };
    let (state, taker) = send(context, request.word.as_deref(), &command)?;
    let done = match until {
        None => "pauses after the running turn, if any".to_owned(),
        Some(at) => format!("starts no turn for {}", human(at.since(context.now()))),
    };
    Ok(CommandAnswer::new(&state.id, done, taker))
}

/// Makes a waiting loop look again now.
pub fn wake(context: &ServiceContext, word: Option<&str>) -> Result<CommandAnswer, Failure> {
    if !context.home()?.is_owned() {
        return Err(Failure::away("there is no supervisor to wake").hint("everloop up"));
    }
    let (state, taker) = send(context, word, &LoopCommand::Wake)?;
    Ok(CommandAnswer::new(&state.id, "looks again now", taker))
}

/// Continues a paused, stopped or exhausted loop, with more of what it used up.
pub fn resume(context: &ServiceContext, word: Option<&str>, raise: &Raise) -> Result<CommandAnswer, Failure> {
    context.for_a_person("resume a loop")?;
    let home = context.home()?;
    let ledger = context.writer(&home)?;
    let (row, state) = find_one(context, &ledger, word)?;
    drop(ledger);
    let raise = &raise.share(state.team().len());
    let limits = new_limits(&state, raise, context.now())?;
    let taker = send_each(context, &state, |mate| {
        let own = limits.as_ref().map(|limits| (limits.bounds.clone(), raise.limits(mate, context.now()).budget));
        let (bounds, budget) = own.unzip();
        LoopCommand::Resume { bounds, budget }
    })?;
    let done = match limits {
        Some(limits) => format!("goes on; at most {}", ceiling(&state, &limits, context.now())),
        None => "goes on".to_owned(),
    };
    Ok(CommandAnswer::new(&row.id, done, taker))
}

/// The limits from now on; `None` leaves all of them. Limits that would end the loop at once are
/// refused.
fn new_limits(state: &LoopState, raise: &Raise, now: Time) -> Result<Option<RunLimits>, Failure> {
    if let Phase::Ended { ending: LoopEnd::Reached, .. } = &state.phase {
        return Err(Failure::usage(format!("loop `{}` has reached its goal", state.id))
            .hint("start a new one with `everloop run`"));
    }
    let limits = raise.limits(state, now);
    if let Some(bound) = limits.still_ended(state).or_else(|| limits.used_up(state, now)) {
        return Err(Failure::usage(format!("loop `{}`: its {}", state.id, used_up(bound))).hint(format!(
            "give it more: everloop resume {} {}",
            state.id,
            flag_of(bound)
        )));
    }
    Ok((!raise.is_empty()).then_some(limits))
}

/// Loops that are not over, as a supervisor of all loops meets them.
#[derive(Clone, Debug, Default)]
pub struct Unfinished {
    /// Detached or configured: these go on.
    pub going_on: Vec<LoopState>,
    /// Of terminals that are gone: these are left alone.
    pub left: Vec<LoopState>,
}

/// The loops that are not over, besides one.
pub fn unfinished(ledger: &Sqlite, besides: Option<&LoopId>) -> Result<Unfinished, Failure> {
    let states: Vec<LoopState> = ledger.loops()?.iter().map(read_state).collect::<Result<_, _>>()?;
    let other = |state: &LoopState| Some(&state.id) != besides && !state.is_helper();
    let open = states.into_iter().filter(|state| !state.is_over() && other(state));
    let (left, going_on) = open.partition(|state| state.people.attached);
    Ok(Unfinished { going_on, left })
}

/// Lets a loop go on without its terminal, before its supervisor begins.
pub fn detach(context: &ServiceContext, ledger: &mut Sqlite, id: &LoopId) -> Result<(), Failure> {
    record(context, ledger, id, Event::Detached { by: context.caller.name() })
}

/// Records an event of a loop that no supervisor attends.
pub(super) fn record(context: &ServiceContext, ledger: &mut Sqlite, id: &LoopId, event: Event) -> Result<(), Failure> {
    let Some(row) = ledger.get_loop(id)? else { return Ok(()) };
    let mut state = read_state(&row)?;
    state.apply(&event, context.now());
    let append = Op::Append { owner: Some(id.clone()), events: vec![event] };
    ledger.transact(context.now(), &[append, state.save(row.version)])?;
    Ok(())
}

/// Leaves a command in the box of a loop, for the supervisor that attends it.
pub fn leave(context: &ServiceContext, home: &StateFolder, id: &LoopId, command: &LoopCommand) -> Result<(), Failure> {
    let body = serde_json::to_string(command).expect("a command is plain data and always has a JSON form");
    let signal = Op::Signal { to: id.to_string(), by: context.caller.name(), body };
    context.writer(home)?.transact(context.now(), &[signal])?;
    home.wake();
    Ok(())
}

/// Leaves a loop and its environment to the supervisor that runs, or to the next one.
pub fn hand_over(
    context: &ServiceContext,
    home: &StateFolder,
    ledger: &mut Sqlite,
    state: &LoopState,
) -> Result<(), Failure> {
    let mut notices = Vec::new();
    for id in state.team() {
        brought::leave(home, &id, &state.spec)?;
        let body = serde_json::to_string(&Notice::Attend { id }).expect("a notice always has a JSON form");
        notices.push(Op::Signal { to: SUPERVISOR.to_owned(), by: person(), body });
    }
    ledger.transact(context.now(), &notices)?;
    home.wake();
    Ok(())
}

/// Refuses a command that an ended loop would never take.
fn need_unfinished(state: &LoopState, command: &LoopCommand) -> Result<(), Failure> {
    let Phase::Ended { ending, .. } = &state.phase else { return Ok(()) };
    let what = match command {
        LoopCommand::Pause { .. } => "pause",
        LoopCommand::Stop { .. } => "stop",
        LoopCommand::Steer { .. } if *ending == LoopEnd::Reached => "steer",
        _ => return Ok(()),
    };
    let ended = match ending {
        LoopEnd::Reached => "has reached its goal".to_owned(),
        LoopEnd::Exhausted { bound } => format!("has ended: its {}", used_up(bound)),
        LoopEnd::Stopped { by } => format!("was stopped by {by}"),
        LoopEnd::Failed { why } => format!("has failed: {why}"),
    };
    let hint = match ending {
        LoopEnd::Reached => "start a new one with `everloop run`".to_owned(),
        _ => format!("`everloop resume {}` lets it go on", state.id),
    };
    Err(Failure::usage(format!("loop `{}` {ended}: there is nothing to {what}", state.id)).hint(hint))
}

/// Sends a command to a loop, found by `word`.
pub fn send(
    context: &ServiceContext,
    word: Option<&str>,
    command: &LoopCommand,
) -> Result<(LoopState, Taker), Failure> {
    let home = context.home()?;
    let ledger = context.writer(&home)?;
    let (row, state) = find_one(context, &ledger, word)?;
    drop(ledger);
    if context.caller.is_person() {
        need_unfinished(&state, command)?;
    }
    let taker = send_each(context, &state, |_| command.clone())?;
    let ledger = context.writer(&home)?;
    let (_, state) = context.find_loop(&ledger, Some(row.id.as_str()))?;
    Ok((state, taker))
}

/// Sends a command to a loop; to all workers of a research run, in one transaction.
fn send_each(
    context: &ServiceContext,
    state: &LoopState,
    command: impl Fn(&LoopState) -> LoopCommand,
) -> Result<Taker, Failure> {
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let (mut signals, mut ids) = (Vec::new(), BTreeSet::new());
    for id in state.team() {
        let Some(row) = ledger.get_loop(&id)? else { continue };
        let command = command(&with_findings(&ledger, read_state(&row)?)?);
        let body = serde_json::to_string(&command).expect("a command is plain data and always has a JSON form");
        // The work of a run belongs to its first worker.
        if id == state.id || !matches!(command, LoopCommand::Taken { .. }) {
            signals.push(Op::Signal { to: id.to_string(), by: context.caller.name(), body });
            ids.insert(id);
        }
    }
    ledger.transact(context.now(), &signals)?;
    drop(ledger);
    deliver_to(context, ids)
}

/// The loop that a command is for: as [`ServiceContext::find_loop`], unless several loops that are
/// not over have the name.
pub fn find_one(
    context: &ServiceContext,
    ledger: &Sqlite,
    word: Option<&str>,
) -> Result<(LoopRow, LoopState), Failure> {
    let (row, state) = context.find_loop(ledger, word)?;
    if let Some(word) = word.filter(|word| *word != row.id.as_str()) {
        need_one(&called(ledger, word, |state| !state.is_over())?, word)?;
    }
    Ok((row, state))
}

/// The loops that are called `name`, of those that count.
pub fn called(ledger: &Sqlite, name: &str, counts: impl Fn(&LoopState) -> bool) -> Result<Vec<LoopState>, Failure> {
    let states: Vec<LoopState> = ledger.loops()?.iter().map(read_state).collect::<Result<_, _>>()?;
    Ok(states.into_iter().filter(|state| state.name == name && counts(state)).collect())
}

/// The loops among which a command to the loop `name` has to choose: those that are not over, where
/// there are several.
pub fn rivals(context: &ServiceContext, name: &str) -> Result<Vec<LoopState>, Failure> {
    let home = context.home()?;
    let Some(ledger) = context.reader(&home)? else { return Ok(Vec::new()) };
    if ledger.get_loop(&LoopId::new(name))?.is_some() {
        return Ok(Vec::new());
    }
    let mut open = called(&ledger, name, |state| !state.is_over())?;
    open.sort_by_key(|state| std::cmp::Reverse(state.created_at));
    Ok(if open.len() > 1 { open } else { Vec::new() })
}

/// Refuses a name that several loops have: a command is for one of them.
pub fn need_one(named: &[LoopState], name: &str) -> Result<(), Failure> {
    if named.len() < 2 {
        return Ok(());
    }
    let ids: Vec<String> = named.iter().map(|s| format!("{} (in {})", s.id, s.spec.workspace.dir)).collect();
    Err(Failure::usage(format!("{} loops are called `{name}`", named.len()))
        .hint(format!("name one by its id: {}", ids.join(", "))))
}

/// Has the messages in a loop's box taken.
pub fn deliver(context: &ServiceContext, id: &LoopId) -> Result<Taker, Failure> {
    deliver_to(context, BTreeSet::from([id.clone()]))
}

fn deliver_to(context: &ServiceContext, ids: BTreeSet<LoopId>) -> Result<Taker, Failure> {
    let home = context.home()?;
    // A server of a protocol leaves loops to supervisors: to become one for a moment means to take
    // over signals.
    if !context.caller.has_stdin() && !home.is_owned() {
        return Ok(Taker::Later);
    }
    match home.own("command", context.now())? {
        Err(_) => {
            home.wake();
            Ok(Taker::Supervisor)
        }
        Ok(ownership) => {
            let ledger = context.writer(&home)?;
            let reach = LoopSelection::Only(ids);
            let (shim, listen) = (own_shim()?, Listen::Off);
            let options = SupervisorOptions {
                home,
                reach,
                until: Until::Idle,
                shim,
                listen,
                port: None,
                projects: Arc::clone(&context.projects),
                collector: None,
            };
            let supervisor = Supervisor::new(options, ledger, ownership);
            block_on(supervisor.run(&mut Silent))??;
            Ok(Taker::Ourselves)
        }
    }
}

/// Ignores all events.
pub struct Silent;

impl Watcher for Silent {
    fn committed(&mut self, _: &LoopState, _: &[Event], _: Time) {}
    fn beat(&mut self, _: &LoopState, _: Option<Duration>, _: Time) {}
    fn beats(&self) -> Option<Duration> {
        None
    }
}
