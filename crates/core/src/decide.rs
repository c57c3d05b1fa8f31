//! The loop: state, input and time in; events, ledger operations and actions out.
//!
//! A decision is made on a copy of the state to which each event is applied as it is emitted, so
//! that one input can carry a loop through several steps (a turn ends, the next one starts) in one
//! transaction.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::collections::BTreeMap;
use std::time::Duration;

use crate::action::{Action, Input};
use crate::event::Event;
use crate::guard::{Guards, Scope, Versioned};
use crate::ids::{Fence, LoopId, NodeId, TaskId};
use crate::immune::{DOC, FLEET, Immune};
use crate::op::{NewTask, Op, TaskRow};
use crate::research::shared::{self, SharedRun};
use crate::rhythm::calendar::Calendar;
use crate::rhythm::inward::memory::StoredMemory;
use crate::rhythm::row::WaitingSignal;
use crate::rhythm::signal::PersonaName;
use crate::state::{LoopState, Phase};
use crate::time::Time;

mod advance;
mod command;
pub(crate) mod immune;
mod inward;
mod research;
mod rhythm;
mod stalled;
mod turn;
mod watch;

use rhythm::LastTurn;

/// Everything a decision reads besides the loop's state.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    pub now: Time,
    /// Seed of the jitter, a different one for every decision.
    pub seed: u64,
    pub node: &'a NodeId,
    /// Stored guard states.
    pub guards: &'a Guards,
    /// Quarantines and reduced shares, with the version under which the document was read.
    pub immune: (u64, &'a Immune),
    /// What the workers of the loop's run found, with the version under which the document was read;
    /// `None` for a loop that shares none.
    pub shared: Option<(u64, &'a SharedRun)>,
    /// Time for which a task is held without renewal.
    pub lease: Duration,
    /// The supervisor shuts down: start nothing.
    pub draining: bool,
    /// A `run` waits for this loop, or did when this supervisor began with it.
    pub attended: bool,
    /// Variables of the `run` that the loop was started with, and that this supervisor does not have.
    pub missing: Vec<String>,
    /// The loop's current task; `None` when it cannot be taken again (a person ended or blocked
    /// it).
    pub current_task: Option<Ready>,
    /// The most urgent queued task of this loop that another author created.
    pub board_task: Option<Ready>,
    /// The current keepalive, as long as it is open.
    pub keepalive: Option<Ready>,
    /// What a persona's decision reads besides.
    pub persona: PersonaContext<'a>,
}

/// What the decision of a persona reads besides the loop's state.
#[derive(Clone, Debug)]
pub struct PersonaContext<'a> {
    pub calendar: &'a dyn Calendar,
    /// The oldest signals that wait.
    pub waiting: Vec<WaitingSignal>,
    /// Whether the signal of the input has a row already.
    pub known: bool,
    /// The personas that a signal may be passed on to.
    pub related: Vec<(PersonaName, LoopId)>,
    /// What it remembers, where the input may change that.
    pub memory: StoredMemory,
}

impl<'a> PersonaContext<'a> {
    /// For a loop that is none, and for a persona without signals.
    pub fn quiet(calendar: &'a dyn Calendar) -> Self {
        Self { calendar, waiting: Vec::new(), known: false, related: Vec::new(), memory: StoredMemory::default() }
    }
}

/// A task that can be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    pub id: TaskId,
    /// The stored fence.
    pub fence: Fence,
    pub kind: String,
    /// Higher is sooner; above 0 is urgent.
    pub priority: i32,
}

impl From<&TaskRow> for Ready {
    fn from(row: &TaskRow) -> Self {
        let NewTask { id, kind, priority, .. } = &row.task;
        Self { id: id.clone(), fence: row.fence, kind: kind.clone(), priority: *priority }
    }
}

/// Events, operations and actions to commit. Nothing has happened until [`Decision::batch`] is
/// committed.
#[derive(Clone, Debug)]
pub struct Decision {
    pub events: Vec<Event>,
    /// Changes to tasks and tickets that belong to the events.
    pub ops: Vec<Op>,
    /// What the shell performs once the batch is committed.
    pub actions: Vec<Action>,
    /// The state after the events.
    pub state: LoopState,
    /// The guard after the events.
    pub guards: Guards,
    /// The immune system after the events.
    pub immune: Immune,
    /// The findings of the run's workers after the events.
    pub shared: Option<SharedRun>,
    /// Time of the next decision if no other input comes.
    pub wake_at: Option<Time>,
    touched: BTreeMap<Scope, u64>,
    /// The version of the immune system's document, if a step changed it.
    stepped: Option<u64>,
    /// The version of the findings' document, if an event changed it.
    found: Option<u64>,
}

impl Decision {
    /// The single transaction of this decision; empty when nothing happened. `version` is that of
    /// the stored loop.
    pub fn batch(&self, version: u64) -> Vec<Op> {
        if self.events.is_empty() {
            return Vec::new();
        }
        let mut ops = self.ops.clone();
        for (scope, version) in &self.touched {
            let state = Box::new(self.guards.get(scope).map(|v| v.state.clone()).unwrap_or_default());
            ops.push(Op::SaveGuard { scope: scope.clone(), version: *version, state });
        }
        if let Some(version) = self.stepped {
            let body = serde_json::to_string(&self.immune).expect("it is plain data and always has a JSON form");
            ops.push(Op::SaveDoc { kind: DOC.to_owned(), key: FLEET.to_owned(), version, body });
        }
        if let (Some(version), Some(run), Some(shared)) = (self.found, self.state.shared_run(), &self.shared) {
            let (kind, key) = (shared::DOC.to_owned(), run.to_string());
            ops.push(Op::SaveDoc { kind, key, version, body: shared.text() });
        }
        ops.push(Op::Append { owner: Some(self.state.id.clone()), events: self.events.clone() });
        ops.push(self.state.save(version));
        ops
    }
}

/// Decides what an input means for a loop.
pub fn decide(state: &LoopState, input: &Input, ctx: &Context<'_>) -> Decision {
    let mut step = Step::new(state, ctx);
    match input {
        Input::Tick => step.tick(),
        Input::Recovered { found } => {
            step.recovering = true;
            step.recovered(found);
        }
        Input::Baselined { result, notes, samples } => step.baselined(result, notes, samples),
        Input::Exited { turn, exit } => step.exited(turn, exit),
        Input::Vanished { turn } => step.vanished(turn),
        Input::Evidence { turn, sample } => step.evidence(turn, sample),
        Input::Judged { turn, judgement } => step.judged(turn, judgement),
        Input::Measured { turn, subject, sample } => step.measured(turn, *subject, sample),
        Input::Replayed { turn, onto, result } => step.replayed(turn, onto, result),
        Input::Integrated { turn, result } => step.integrated(turn, result),
        Input::Beat { looks, empty } => step.beat(looks, *empty),
        Input::Command { by, command } => step.command(by, command),
        Input::Shutdown => step.shutdown(),
    }
    step.done()
}

/// A decision in the making.
struct Step<'a> {
    ctx: &'a Context<'a>,
    out: Decision,
    /// The first task about a change that this decision recorded.
    signalled: Option<Ready>,
    /// Reason for ending the keepalive and starting the next one.
    renew: Option<String>,
    /// Beats in a row without news, when they suffice to park the loop.
    in_vain: Option<u32>,
    /// The supervisor just restarted.
    recovering: bool,
    /// How the turn that just ended left off.
    last: LastTurn,
}

impl<'a> Step<'a> {
    fn new(state: &LoopState, ctx: &'a Context<'a>) -> Self {
        let shared = ctx.shared.map(|(_, shared)| shared.clone());
        let mut state = state.clone();
        if let Some(shared) = &shared {
            state.research = shared.view(&state.id);
        }
        let out = Decision {
            events: Vec::new(),
            ops: Vec::new(),
            actions: Vec::new(),
            state,
            guards: ctx.guards.clone(),
            immune: ctx.immune.1.clone(),
            shared,
            wake_at: None,
            touched: BTreeMap::new(),
            stepped: None,
            found: None,
        };
        Self { ctx, out, signalled: None, renew: None, in_vain: None, recovering: false, last: LastTurn::default() }
    }

    fn done(mut self) -> Decision {
        self.keep_alive();
        // Whatever was decided, a waiting loop has a timer: derived from the state, so that no path
        // can forget it.
        self.out.wake_at = self.wake_time();
        self.out
    }

    fn state(&self) -> &LoopState {
        &self.out.state
    }

    /// Applies an event to the copies and keeps it for the journal.
    fn emit(&mut self, event: Event) {
        let at = self.ctx.now;
        self.out.state.apply(&event, at);
        for scope in scopes_of(&event, &self.out.guards) {
            let entry = self.out.guards.entry(scope.clone()).or_default();
            self.out.touched.entry(scope.clone()).or_insert(entry.version);
            entry.state.apply(&scope, &event, at);
        }
        if let Event::Immune { step } = &event {
            self.out.immune.apply(step, at);
            self.out.stepped = Some(self.ctx.immune.0);
        }
        self.share(&event);
        self.out.events.push(event);
    }

    /// Applies an event to the findings of the run's workers.
    fn share(&mut self, event: &Event) {
        let Decision { state, shared: Some(shared), found, .. } = &mut self.out else { return };
        let Some(spec) = state.spec.research.as_deref() else { return };
        if shared.apply(spec, &state.id, event) {
            *found = self.ctx.shared.map(|(version, _)| version);
            state.research = shared.view(&state.id);
        }
    }

    fn act(&mut self, action: Action) {
        self.out.actions.push(action);
    }

    /// One ticket per cause: opened once, reported once.
    fn ticket(&mut self, key: String, text: String) {
        if self.state().people.tickets.contains(&key) && !crate::planted::is(crate::planted::Bug::TicketEveryTime) {
            return;
        }
        self.out.ops.push(Op::OpenTicket {
            key: key.clone(),
            owner: Some(self.state().id.clone()),
            text: text.clone(),
        });
        self.emit(Event::TicketOpened { key: key.clone(), text: text.clone() });
        self.act(Action::Tell { key, text });
    }

    fn close_ticket(&mut self, key: &str, answer: &str) {
        if self.state().people.tickets.iter().any(|k| k == key) {
            self.out.ops.push(Op::CloseTicket { key: key.to_owned(), answer: answer.to_owned() });
            self.emit(Event::TicketClosed { key: key.to_owned() });
        }
    }

    fn tick(&mut self) {
        match self.state().phase {
            Phase::Ready | Phase::Waiting { .. } => self.advance(),
            Phase::New if self.state().is_helper() => self.join_run(),
            _ => {}
        }
    }
}

/// The guards that an event is about.
pub fn scopes_of(event: &Event, guards: &Guards) -> Vec<Scope> {
    match event {
        Event::TurnStarted { permit, .. } => permit.scopes.clone(),
        Event::TurnEnded { turn, .. } => {
            guards.iter().filter(|(_, v)| v.state.reserved.contains_key(turn)).map(|(s, _)| s.clone()).collect()
        }
        Event::TurnExited { turn, exit } if exit.report.is_some() => {
            let learns = |(scope, v): &(&Scope, &Versioned)| {
                matches!(scope, Scope::Account(_)) && v.state.reserved.contains_key(turn)
            };
            guards.iter().filter(learns).map(|(s, _)| s.clone()).collect()
        }
        Event::CliStarted { scopes, .. } => scopes.clone(),
        Event::Cooldown { scope, .. }
        | Event::Limited { scope, .. }
        | Event::Backoff { scope, .. }
        | Event::DelayLifted { scope, .. }
        | Event::Frozen { scope, .. }
        | Event::Released { scope, .. } => vec![scope.clone()],
        Event::LoopCreated { .. }
        | Event::SpecChanged { .. }
        | Event::Baselined { .. }
        | Event::Waiting { .. }
        | Event::AgentSwitched { .. }
        | Event::AgentRefused { .. }
        | Event::PriceUnknown { .. }
        | Event::TurnExited { .. }
        | Event::TurnJudged { .. }
        | Event::TurnReturned { .. }
        | Event::Attached { .. }
        | Event::Detached { .. }
        | Event::Woken { .. }
        | Event::Paused { .. }
        | Event::Resumed { .. }
        | Event::StopAsked { .. }
        | Event::Steered { .. }
        | Event::WorkTaken { .. }
        | Event::Stopping { .. }
        | Event::Noticed { .. }
        | Event::StrategyChanged { .. }
        | Event::TicketOpened { .. }
        | Event::TicketClosed { .. }
        | Event::Forgotten
        | Event::Ended { .. }
        | Event::Recovered { .. }
        | Event::InSession { .. }
        | Event::ConfigAccepted { .. }
        | Event::ConfigRevoked { .. }
        | Event::Immune { .. }
        | Event::Experiment { .. }
        | Event::Rhythm { .. }
        | Event::Signalled { .. }
        | Event::Keepalive { .. }
        | Event::Note { .. } => Vec::new(),
    }
}
