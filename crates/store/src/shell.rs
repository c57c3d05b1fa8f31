//! The shell around `decide`: reads what a decision needs, commits it, and only then performs its
//! actions.
//!
//! The supervisor and the simulator run this code on their own ledgers. They implement
//! [`ShellEffects`] and decide nothing there.

use std::sync::LazyLock;
use std::time::Duration;

use everloop_core::action::{Action, Input, LoopCommand};
use everloop_core::decide::{Context, Decision, PersonaContext, Ready, decide};
use everloop_core::event::Event;
use everloop_core::guard::Guards;
use everloop_core::guard::permit::concerned;
use everloop_core::ids::{LoopId, NodeId, TaskId};
use everloop_core::immune::Immune;
use everloop_core::op::{Message, Op, Refusal, Reply, TaskRow, TaskState, shelve_late};
use everloop_core::planted::{self, Bug};
use everloop_core::research::shared::{self, SharedRun};
use everloop_core::rhythm::calendar::{Calendar, TableCalendar};
use everloop_core::rhythm::inward;
use everloop_core::rhythm::inward::memory::StoredMemory;
use everloop_core::rhythm::row::{self, TAKEN_AT_ONCE, WAITING, WaitingSignal};
use everloop_core::rhythm::signal::{PersonaName, Signal, SignalClass};
use everloop_core::state::{LoopState, Phase, Turn};
use everloop_core::time::Time;
use everloop_core::watch::{self, KEEPALIVE, NEVER, SIGNAL};

use crate::{Error, Ledger, LoopRow};

/// The lease of a task without renewal.
pub const LEASE: Duration = Duration::from_secs(90);
/// How often an input is decided again after a write conflict.
pub const MAX_CONFLICT_RETRIES: u32 = 8;
/// Ready tasks that are read first; more only where all of these are the loop's own.
const FIRST_PAGE: u32 = 16;

static UTC: LazyLock<TableCalendar> = LazyLock::new(TableCalendar::new);

/// A ledger that a supervisor owns.
pub trait LocalLedger: Ledger {
    /// Up to `n` tasks that `Claim` would take, in its order, without taking them.
    fn ready(&self, now: Time, owner: Option<&LoopId>, n: u32) -> Result<Vec<TaskRow>, Error>;
    /// The loops with this name, in the order of their ids.
    fn named(&self, name: &str) -> Result<Vec<LoopRow>, Error>;
}

/// The circumstances of one decision.
#[derive(Clone, Debug)]
pub struct Circumstances {
    /// The supervisor's clock.
    pub now: Time,
    /// Seed of the jitter.
    pub seed: u64,
    /// The node that the supervisor runs on.
    pub node: NodeId,
    /// The supervisor shuts down.
    pub draining: bool,
}

/// A decision after its commit, apart from its actions.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The state after the events.
    pub state: LoopState,
    /// Its version in the ledger.
    pub version: u64,
    /// Time of the next decision if no other input comes.
    pub wake_at: Option<Time>,
    /// What was written to the journal.
    pub events: Vec<Event>,
    /// When it was decided.
    pub at: Time,
}

/// Why a batch took no effect.
#[derive(Debug)]
pub enum Rejected<E> {
    /// The ledger's rules.
    Refused(Refusal),
    /// No room on the disk; the same batch may fit later.
    Full,
    /// Any other error.
    Failed(E),
}

/// What the shell needs from its host.
pub trait ShellEffects {
    /// The ledger that decisions read.
    type Ledger: LocalLedger;
    /// An error of the host.
    type Error: From<Error>;

    /// The ledger that decisions read.
    fn ledger(&self) -> &Self::Ledger;
    /// A loop in memory, with its version.
    fn live(&self, id: &LoopId) -> Option<(&LoopState, u64)>;
    /// The record of the immune system, with its version.
    fn immune(&self) -> Result<(u64, Immune), Self::Error>;
    /// Called once for each decision.
    fn circumstances(&mut self) -> Circumstances;
    /// One durable transaction.
    fn transact(&mut self, now: Time, batch: &[Op]) -> Result<Vec<Reply>, Rejected<Self::Error>>;
    /// Whether a `run` in a terminal waits for this loop.
    fn attends(&self, _id: &LoopId) -> bool {
        true
    }
    /// Variables that a loop was started with and that are not there any more.
    fn missing(&self, _id: &LoopId) -> Vec<String> {
        Vec::new()
    }
    /// Zones and cron expressions of personas; without one, UTC is the only zone.
    fn calendar(&self) -> &dyn Calendar {
        &*UTC
    }
    /// Replaces the loop in memory by the stored one.
    fn read_again(&mut self, id: &LoopId) -> Result<(), Self::Error>;
    /// A decision counts from now on: keeps its state and its timer.
    fn committed(&mut self, committed: Committed);
    /// Begins an action.
    fn perform(&mut self, id: &LoopId, action: Action) -> Result<(), Self::Error>;
}

/// How far an input came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It took effect, or there is no such loop any more.
    Done,
    /// The disk is full: to be tried again when there may be room. Nothing is lost.
    Full,
    /// Another process wrote first again and again.
    Conflicts,
}

/// An input on its way: decided, committed, then performed.
#[derive(Debug)]
pub struct InputRun<'a> {
    id: &'a LoopId,
    input: &'a Input,
    /// Operations that belong into the same transaction.
    extra: &'a [Op],
    /// A decision that waits for room on the disk.
    pending: Option<Pending>,
}

/// A decision that is not committed yet.
#[derive(Debug)]
struct Pending {
    decision: Decision,
    version: u64,
    batch: Vec<Op>,
    at: Time,
}

impl<'a> InputRun<'a> {
    /// An input of a loop, with operations that belong into the same transaction.
    pub fn new(id: &'a LoopId, input: &'a Input, extra: &'a [Op]) -> Self {
        Self { id, input, extra, pending: None }
    }

    /// Decides and commits, again after a write conflict, and performs the actions.
    pub fn go<S: ShellEffects>(&mut self, shell: &mut S) -> Result<Progress, S::Error> {
        for _ in 0..MAX_CONFLICT_RETRIES {
            let Some(mut pending) = self.next(shell)? else { return Ok(Progress::Done) };
            let later = torn_off(&mut pending.batch);
            if planted::is(Bug::PerformsBeforeCommit) {
                perform(shell, self.id, std::mem::take(&mut pending.decision.actions))?;
            }
            match commit(shell, pending.at, &mut pending.batch) {
                Ok(saved) => {
                    // Refused or not: only a planted mistake writes twice.
                    commit(shell, pending.at, &mut { later }).or_else(tolerated)?;
                    take_effect(shell, pending, saved)?;
                    return Ok(Progress::Done);
                }
                Err(Rejected::Refused(Refusal::Conflict { .. })) if blind(shell, &mut pending)? => {
                    self.pending = Some(pending);
                }
                // A write conflict: a person changed a task, the guard or the loop, or another worker
                // the findings. The current state decides.
                Err(Rejected::Refused(_)) => shell.read_again(self.id)?,
                Err(Rejected::Full) => {
                    self.pending = Some(pending);
                    return Ok(Progress::Full);
                }
                Err(Rejected::Failed(error)) => return Err(error),
            }
        }
        Ok(Progress::Conflicts)
    }

    fn next<S: ShellEffects>(&mut self, shell: &mut S) -> Result<Option<Pending>, S::Error> {
        if let Some(pending) = self.pending.take() {
            return Ok(Some(pending));
        }
        let circumstances = shell.circumstances();
        let Some((state, version)) = shell.live(self.id) else { return Ok(None) };
        let decision = decide_on(shell, state, self.input, &circumstances)?;
        let batch = self.extra.iter().cloned().chain(decision.batch(version)).collect();
        Ok(Some(Pending { decision, version, batch, at: circumstances.now }))
    }
}

fn take_effect<S: ShellEffects>(shell: &mut S, pending: Pending, saved: Option<u64>) -> Result<(), S::Error> {
    let Pending { decision, version, at, .. } = pending;
    let Decision { state, wake_at, events, actions, .. } = decision;
    let id = state.id.clone();
    shell.committed(Committed { state, version: saved.unwrap_or(version), wake_at, events, at });
    perform(shell, &id, actions)
}

fn perform<S: ShellEffects>(shell: &mut S, id: &LoopId, actions: Vec<Action>) -> Result<(), S::Error> {
    actions.into_iter().try_for_each(|action| shell.perform(id, action))
}

/// One durable transaction; returns the loop's new version. The result of a turn that lost its task
/// is kept as a late result.
fn commit<S: ShellEffects>(shell: &mut S, now: Time, batch: &mut Vec<Op>) -> Result<Option<u64>, Rejected<S::Error>> {
    while !batch.is_empty() {
        match shell.transact(now, batch) {
            Ok(replies) => return Ok(replies.iter().rev().find_map(Reply::version)),
            Err(Rejected::Refused(Refusal::Fenced { task, fence })) if shelve_late(batch, &task, fence) => {}
            Err(rejected) => return Err(rejected),
        }
    }
    Ok(None)
}

fn tolerated<E>(rejected: Rejected<E>) -> Result<Option<u64>, E> {
    match rejected {
        Rejected::Failed(error) => Err(error),
        Rejected::Refused(_) | Rejected::Full => Ok(None),
    }
}

/// The planted mistakes: after a conflict over the findings of a run nothing is decided again.
fn blind<S: ShellEffects>(shell: &S, pending: &mut Pending) -> Result<bool, S::Error> {
    let is_found = |op: &Op| matches!(op, Op::SaveDoc { kind, .. } if kind == shared::DOC);
    if planted::is(Bug::CountsAfterConflict) {
        let before = pending.batch.len();
        pending.batch.retain(|op| !is_found(op));
        return Ok(pending.batch.len() < before);
    }
    if planted::is(Bug::OverwritesFindings)
        && let Some((now, _)) = shared_run(shell.ledger(), &pending.decision.state)?
    {
        for op in pending.batch.iter_mut().filter(|op| is_found(op)) {
            if let Op::SaveDoc { version, .. } = op {
                *version = now;
            }
        }
        return Ok(pending.batch.iter().any(is_found));
    }
    Ok(false)
}

/// The planted mistakes: what belongs together is written in two transactions.
fn torn_off(batch: &mut Vec<Op>) -> Vec<Op> {
    let kind = if planted::is(Bug::KeepaliveInTwoWrites) {
        KEEPALIVE
    } else if planted::is(Bug::SignalInTwoWrites) {
        SIGNAL
    } else {
        return Vec::new();
    };
    let taken = |id: &TaskId| batch.iter().any(|op| matches!(op, Op::Take { task, .. } if task == id));
    let later = |op: &Op| matches!(op, Op::Enqueue(task) if task.kind == kind && !taken(&task.id));
    let torn: Vec<Op> = batch.iter().filter(|op| later(op)).cloned().collect();
    batch.retain(|op| !torn.contains(op));
    torn
}

fn decide_on<S: ShellEffects>(
    shell: &S,
    state: &LoopState,
    input: &Input,
    circumstances: &Circumstances,
) -> Result<Decision, S::Error> {
    let (ledger, Circumstances { now, seed, node, draining }) = (shell.ledger(), circumstances);
    let guards = guards_of(ledger, state, node)?;
    let (version, immune) = shell.immune()?;
    let shared = shared_run(ledger, state)?;
    let ctx = Context {
        now: *now,
        seed: *seed,
        node,
        guards: &guards,
        immune: (version, &immune),
        shared: shared.as_ref().map(|(version, shared)| (*version, shared)),
        lease: LEASE,
        draining: *draining,
        attended: shell.attends(&state.id),
        missing: shell.missing(&state.id),
        current_task: current_task(ledger, state, *now)?,
        board_task: board_task(ledger, state, &immune.kinds_out(*now), *now)?.as_ref().map(Ready::from),
        keepalive: keepalive(ledger, state)?,
        persona: persona(shell, state, input)?,
    };
    Ok(decide(state, input, &ctx))
}

/// What the workers of a loop's run found, with the version of the document; `None` for a loop that
/// shares none.
pub fn shared_run(ledger: &impl Ledger, state: &LoopState) -> Result<Option<(u64, SharedRun)>, Error> {
    let Some(run) = state.shared_run() else { return Ok(None) };
    let Some(row) = ledger.doc(shared::DOC, run.as_str())? else { return Ok(Some((0, SharedRun::default()))) };
    let shared =
        SharedRun::read(&row.body).map_err(|why| Error::Unreadable { what: format!("findings of run {run}"), why })?;
    Ok(Some((row.version, shared)))
}

/// The guards that concern a loop on this node.
pub fn guards_of(ledger: &impl Ledger, state: &LoopState, node: &NodeId) -> Result<Guards, Error> {
    concerned(state, node).into_iter().map(|scope| Ok((scope.clone(), ledger.guard(&scope)?))).collect()
}

/// The loop's current task, if the loop holds it or it is free.
fn current_task(ledger: &impl Ledger, state: &LoopState, now: Time) -> Result<Option<Ready>, Error> {
    let Some(row) = state.task.id.as_ref().map(|t| ledger.task(t)).transpose()?.flatten() else {
        return Ok(None);
    };
    let held = matches!(&state.phase, Phase::Turn(turn) if turn.fence == row.fence);
    let free = match &row.state {
        TaskState::Queued => true,
        TaskState::Leased { until, .. } => held || *until <= now,
        TaskState::Done | TaskState::Dead | TaskState::Blocked => false,
    };
    Ok(free.then(|| Ready::from(&row)))
}

/// The most urgent ready task on the board for a loop: queued and due, or with its lease over; none
/// of `kinds_out`. A loop's own tasks are not on the board.
pub fn most_urgent(
    ledger: &impl LocalLedger,
    owner: &LoopId,
    kinds_out: &[&str],
    now: Time,
) -> Result<Option<TaskRow>, Error> {
    first_ready(ledger, owner, now, |row| is_offered(row, kinds_out))
}

/// The same, except the task of the turn under way: when its lease is over, and no other node took
/// it, the turn still holds it.
fn board_task(
    ledger: &impl LocalLedger,
    state: &LoopState,
    kinds_out: &[&str],
    now: Time,
) -> Result<Option<TaskRow>, Error> {
    let holds = |row: &TaskRow| matches!(&state.phase, Phase::Turn(t) if t.task == row.task.id && t.fence == row.fence);
    first_ready(ledger, &state.id, now, |row| is_offered(row, kinds_out) && !holds(row))
}

fn is_offered(row: &TaskRow, kinds_out: &[&str]) -> bool {
    let kind = row.task.kind.as_str();
    let own = ["batch", KEEPALIVE, WAITING, inward::REFLECTION, inward::DREAM];
    !own.contains(&kind) && !kinds_out.contains(&kind)
}

fn first_ready(
    ledger: &impl LocalLedger,
    owner: &LoopId,
    now: Time,
    wanted: impl Fn(&TaskRow) -> bool,
) -> Result<Option<TaskRow>, Error> {
    let mut look = FIRST_PAGE;
    loop {
        let rows = ledger.ready(now, Some(owner), look)?;
        let all = (rows.len() as u64) < u64::from(look);
        match rows.into_iter().find(&wanted) {
            None if !all => look = look.saturating_mul(8),
            found => return Ok(found),
        }
    }
}

/// What the decision of a persona reads besides.
fn persona<'a, S: ShellEffects>(
    shell: &'a S,
    state: &LoopState,
    input: &Input,
) -> Result<PersonaContext<'a>, S::Error> {
    let mut found = PersonaContext::quiet(shell.calendar());
    let (Some(spec), Some(persona)) = (&state.spec.persona, &state.persona) else { return Ok(found) };
    if let Input::Command { command: LoopCommand::Signal { signal }, .. } = input {
        found.known = is_taken(shell.ledger(), &state.id, signal)?;
        if signal.class == SignalClass::High && signal.passed_by.is_none() {
            found.related = personas(shell.ledger(), &spec.reflex.related)?;
        }
    }
    let keeps = matches!(input, Input::Command { command: LoopCommand::Remember { .. }, .. });
    if keeps || persona.inward.under_way.is_some() {
        found.memory = memory(shell.ledger(), &state.id)?;
    }
    if persona.waiting > 0 {
        found.waiting = waiting_signals(shell.ledger(), &state.id)?;
    }
    Ok(found)
}

/// What a persona remembers, with the version of the document.
pub fn memory(ledger: &impl Ledger, owner: &LoopId) -> Result<StoredMemory, Error> {
    let Some(row) = ledger.doc(inward::memory::DOC, owner.as_str())? else { return Ok(StoredMemory::default()) };
    let memory = serde_json::from_str(&row.body)
        .map_err(|e| Error::Unreadable { what: format!("memory of persona {owner}"), why: e.to_string() })?;
    Ok(StoredMemory { version: row.version, memory })
}

/// Whether a persona has had a signal.
pub fn is_taken(ledger: &impl Ledger, owner: &LoopId, signal: &Signal) -> Result<bool, Error> {
    Ok(ledger.task(&row::row_id(owner, signal))?.is_some())
}

/// The loops of these personas that are not over.
fn personas(ledger: &impl LocalLedger, names: &[PersonaName]) -> Result<Vec<(PersonaName, LoopId)>, Error> {
    let mut found = Vec::new();
    for name in names {
        for row in ledger.named(name.as_str())? {
            let state: LoopState = serde_json::from_str(&row.state)
                .map_err(|e| Error::Unreadable { what: format!("loop {}", row.id), why: e.to_string() })?;
            if state.is_persona() && !state.is_over() {
                found.push((name.clone(), row.id));
            }
        }
    }
    Ok(found)
}

/// The oldest signals that wait for a persona. Their rows are never due, so this looks at the end of
/// time.
fn waiting_signals(ledger: &impl LocalLedger, owner: &LoopId) -> Result<Vec<WaitingSignal>, Error> {
    let mut look = TAKEN_AT_ONCE as u32 + FIRST_PAGE;
    loop {
        let rows = ledger.ready(NEVER, Some(owner), look)?;
        let all = (rows.len() as u64) < u64::from(look);
        let found: Vec<WaitingSignal> = rows.iter().filter_map(WaitingSignal::read).collect();
        if all || found.len() >= TAKEN_AT_ONCE {
            return Ok(found);
        }
        look = look.saturating_mul(8);
    }
}

/// The keepalive that counts, if it is open.
fn keepalive(ledger: &impl Ledger, state: &LoopState) -> Result<Option<Ready>, Error> {
    let Some(id) = watch::keepalive_of(state) else { return Ok(None) };
    let open = ledger.task(&id)?.filter(|row| matches!(row.state, TaskState::Queued | TaskState::Leased { .. }));
    Ok(open.as_ref().map(Ready::from))
}

/// Whether the last change that a monitor saw still waits to be worked on.
pub fn is_told(ledger: &impl Ledger, state: &LoopState, monitor: &watch::MonitorSpec) -> Result<bool, Error> {
    let Some(task) = watch::latest_task(state, monitor) else { return Ok(false) };
    Ok(ledger.task(task)?.is_some_and(|row| row.state == TaskState::Queued))
}

/// The operation that prolongs the lease of a running turn.
pub fn renew(turn: &Turn) -> Op {
    Op::Renew { task: turn.task.clone(), fence: turn.fence, lease: LEASE }
}

/// A message to a loop as its input, and the removal of the message, which belongs into the same
/// transaction.
pub fn obey(message: &Message) -> (Result<Input, serde_json::Error>, Op) {
    let command = serde_json::from_str::<LoopCommand>(&message.body);
    let input = command.map(|command| Input::Command { by: message.by.clone(), command });
    (input, Op::Consume { ids: vec![message.id] })
}
