//! Commands to loops: left in the ledger, then taken by the running supervisor or by this process.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use everloop_core::action::LoopCommand;
use everloop_core::event::Event;
use everloop_core::ids::LoopId;
use everloop_core::op::Op;
use everloop_core::state::LoopState;
use everloop_core::time::{Time, human};
use everloop_store::Ledger;
use serde::Serialize;

use super::ServiceContext;
use super::runtime::{block_on, own_shim};
use crate::error::Failure;
use crate::port::Listen;
use crate::supervisor::{LoopSelection, Supervisor, SupervisorOptions, Until, Watcher};

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

/// Sends a command to a loop, found by `word`.
pub fn send(
    context: &ServiceContext,
    word: Option<&str>,
    command: &LoopCommand,
) -> Result<(LoopState, Taker), Failure> {
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let (row, _) = context.find_loop(&ledger, word)?;
    let body = serde_json::to_string(command).expect("a command is plain data and always has a JSON form");
    let signal = Op::Signal { to: row.id.to_string(), by: context.caller.name(), body };
    ledger.transact(context.now(), &[signal])?;
    drop(ledger);
    let taker = deliver(context, &row.id)?;
    let ledger = context.writer(&home)?;
    let (_, state) = context.find_loop(&ledger, Some(row.id.as_str()))?;
    Ok((state, taker))
}

/// Has the messages in a loop's box taken.
pub fn deliver(context: &ServiceContext, id: &LoopId) -> Result<Taker, Failure> {
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
            let reach = LoopSelection::Only(BTreeSet::from([id.clone()]));
            let (shim, listen) = (own_shim()?, Listen::Off);
            let options = SupervisorOptions {
                home,
                reach,
                until: Until::Idle,
                shim,
                listen,
                port: None,
                projects: Arc::clone(&context.projects),
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
