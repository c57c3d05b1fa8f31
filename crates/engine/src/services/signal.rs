//! Signals to personas: what wakes them, as data for their next turn.

use std::collections::BTreeSet;

use everloop_agents::redact::without_secrets;
use everloop_core::action::LoopCommand;
use everloop_core::ids::LoopId;
use everloop_core::rhythm::signal::{PersonaName, ReplyTo, Signal, SignalClass, SignalError};
use everloop_store::shell;
use serde::Serialize;

use super::create::draw;
use super::loops::{Taker, send};
use super::persona::find;
use super::{ServiceContext, loops};
use crate::caller::Caller;
use crate::error::Failure;

/// The source of signals that turns send.
pub(super) const TURN: &str = "turn";

/// A signal to be sent.
#[derive(Clone, Debug, Default)]
pub struct SignalRequest {
    pub persona: String,
    pub text: String,
    pub class: SignalClass,
    pub tags: BTreeSet<String>,
    pub topic: String,
    /// Unique at its source; without one it is drawn.
    pub id: Option<String>,
    /// The sender as the source names it; without one the caller.
    pub from: Option<String>,
}

/// What became of a signal.
#[derive(Clone, Debug, Serialize)]
pub struct SignalAnswer {
    pub persona: PersonaName,
    #[serde(rename = "loop")]
    pub owner: LoopId,
    pub id: String,
    pub class: SignalClass,
    /// The persona has had this id before, so nothing was sent.
    pub repeated: bool,
    /// Whether a supervisor took it.
    pub supervisor: bool,
}

/// Sends a signal. What a turn sends is no more than medium, and not to itself: its persona has a
/// wake of its own choice.
pub fn signal(context: &ServiceContext, request: SignalRequest) -> Result<SignalAnswer, Failure> {
    let SignalRequest { persona, text, class, tags, topic, id, from } = request;
    let home = context.home()?;
    let ledger = context.writer(&home)?;
    let state = find(&ledger, &persona)?;
    let source = source(&context.caller);
    if class == SignalClass::High && source == TURN {
        context.for_a_person("send a signal of class high")?;
    }
    if context.own_loop(&ledger)?.is_some_and(|own| own.id == state.id) {
        return Err(Failure::usage("a turn may not signal its own persona")
            .hint("end your last message with a line that holds nothing but <WAKE in 15m>, with the time to wait"));
    }
    let to: PersonaName = state.name.parse().map_err(|e| refused(&e))?;
    let (from, id) = (from.unwrap_or_else(|| context.caller.name()), drawn(id));
    let (to_name, source) = (to.clone(), source.to_owned());
    let signal = compose(context, Draft { to: to_name, class, tags, topic, text, from, source, id, reply_to: None })?;
    let (owner, id) = (state.id.clone(), signal.id.clone());
    if shell::is_taken(&ledger, &owner, &signal)? {
        return Ok(SignalAnswer { persona: to, owner, id, class, repeated: true, supervisor: home.is_owned() });
    }
    drop(ledger);
    let command = LoopCommand::Signal { signal: Box::new(signal) };
    let (_, taker) = send(context, Some(owner.as_str()), &command)?;
    let supervisor = taker == Taker::Supervisor;
    Ok(SignalAnswer { persona: to, owner, id, class, repeated: false, supervisor })
}

/// A signal before its limits are checked.
pub(super) struct Draft {
    pub to: PersonaName,
    pub class: SignalClass,
    pub tags: BTreeSet<String>,
    pub topic: String,
    pub text: String,
    pub from: String,
    pub source: String,
    pub id: String,
    pub reply_to: Option<ReplyTo>,
}

/// A signal within all limits, without secrets: it is kept in the ledger and handed on to models.
pub(super) fn compose(context: &ServiceContext, draft: Draft) -> Result<Signal, Failure> {
    let Draft { to, class, tags, topic, text, from, source, id, reply_to } = draft;
    let (body, at) = (without_secrets(&text), context.now());
    let signal = Signal { id, to, class, tags, topic, body, from, at, source, passed_by: None, reply_to };
    signal.validate().map_err(|e| refused(&e))?;
    Ok(signal)
}

/// The id at the source, or one that is drawn.
pub(super) fn drawn(id: Option<String>) -> String {
    id.unwrap_or_else(|| format!("{}{}{}", draw(), draw(), draw()))
}

/// Where signals of a caller come in.
pub(super) fn source(caller: &Caller) -> &'static str {
    match caller {
        Caller::Turn(_) => TURN,
        Caller::Client(_) if caller.turn().is_some() => TURN,
        Caller::Client(_) => "http",
        Caller::Person(_) => "cli",
    }
}

pub(super) fn refused(error: &SignalError) -> Failure {
    let said = error.to_string();
    match said.split_once("; hint: ") {
        Some((what, hint)) => Failure::usage(what).hint(hint),
        None => Failure::usage(said),
    }
}

/// Ends a persona after its turn, or now; it stays resumable.
pub fn stop(context: &ServiceContext, name: &str, now: bool) -> Result<loops::CommandAnswer, Failure> {
    context.for_a_person("stop a persona")?;
    let state = find(&context.writer(&context.home()?)?, name)?;
    let (state, taker) = send(context, Some(state.id.as_str()), &LoopCommand::Stop { now })?;
    let done = if now { "stops now" } else { "stops after the running turn, if any" };
    Ok(loops::CommandAnswer::new(&state.id, done, taker))
}
