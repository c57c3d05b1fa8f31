//! The shell around the pure loop. One task owns everything; the `select!` in [`Supervisor::run`]
//! is all there is.
//!
//! Per input: read the guards, decide, commit, then perform. Nothing has happened before the
//! commit; whatever happens after it may happen twice, because a crash may follow. Readers never
//! come here: they read the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use everloop_agents::clock::machine_period;
use everloop_agents::environment::Outside;
use everloop_agents::job::{self, ShimProgram};
use everloop_agents::otlp::OtlpReceiver;
use everloop_agents::process;
use everloop_agents::workspace::Workspace;
use everloop_core::action::{Input, LoopCommand, TurnTrace};
use everloop_core::correlated_stalls::CorrelatedStalls;
use everloop_core::event::Event;
use everloop_core::ids::{LoopId, NodeId};
use everloop_core::reason::RuleId;
use everloop_core::state::{LoopState, Phase, TurnStage};
use everloop_core::time::Time;
use everloop_core::watch::MonitorRounds;
use everloop_store::{Ledger, LoopRow, Sqlite};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::error::Failure;
use crate::figures::Wake;
use crate::membership::Membership;
use crate::port::{Listen, Port, ServePort};
use crate::projects::Projects;
use crate::record::read_state;
use crate::state_folder::{Ownership, StateFolder, node_id};

mod action_run;
mod audit;
mod boards;
mod census;
mod clock;
mod commit;
mod completion;
mod configuration;
mod diff;
mod first_look;
mod hook_files;
mod inbox;
mod judge;
mod liveness;
mod memory_files;
pub mod mesh;
pub mod mirror;
mod notify;
mod otlp;
mod outbound;
mod pane;
mod pane_watch;
mod perform;
mod places;
pub mod prompt;
mod prune;
mod reply_listener;
mod reports;
mod research;
mod signal_files;
mod sleepers;
mod stream;
mod turn;
mod wake_pipe;
mod watch;
mod watchdog;

pub use inbox::{Notice, SUPERVISOR};

/// Longest sleep: `Instant` stands still while the machine is suspended, so the wall clock is read
/// again.
const NAP: Duration = Duration::from_secs(30);
/// Results of actions under way; each loop has at most a few.
const INPUTS: usize = 64;

/// Which loops are supervised.
#[derive(Clone, Debug)]
pub enum LoopSelection {
    /// All that are not over.
    All,
    Only(BTreeSet<LoopId>),
}

/// When the supervisor ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// On a signal.
    Told,
    /// When all loops in reach are over.
    LoopsEnd,
    /// When the mailbox is empty and nothing is under way; starts no turn.
    Idle,
}

/// Everything a supervisor is started with.
pub struct SupervisorOptions {
    pub home: StateFolder,
    pub reach: LoopSelection,
    pub until: Until,
    /// This binary, to run jobs with.
    pub shim: ShimProgram,
    /// Whether and where its port is served.
    pub listen: Listen,
    /// Serves the port; without one there is none.
    pub port: Option<Box<dyn ServePort>>,
    /// The configuration of folders.
    pub projects: Arc<dyn Projects>,
    /// The collector that gets spans and figures; without one nothing leaves.
    pub collector: Option<OtlpReceiver>,
}

/// Sees every commit; the only view of a supervisor from inside its own process.
pub trait Watcher {
    /// Events were committed.
    fn committed(&mut self, state: &LoopState, events: &[Event], at: Time);
    /// Time passed; `evidence` is the age of the last activity of a running turn.
    fn beat(&mut self, state: &LoopState, evidence: Option<Duration>, now: Time);
    /// How often `beat` is wanted.
    fn beats(&self) -> Option<Duration>;
    /// The next step of the stop ladder was taken by a signal.
    fn stopping(&mut self, _step: StopStep) {}
    /// Whether the supervisor may end now, whatever is left.
    fn wants_to_go(&self) -> bool {
        false
    }
}

/// A signal from outside, in the order of the stop ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    Int,
    Term,
}

/// The steps of the stop ladder: each interrupt takes the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopStep {
    /// The loop ends after its turn.
    AfterTurn,
    /// The agent is stopped.
    Agent,
    /// The process leaves at once.
    Leave,
}

impl StopStep {
    /// The step of this many interrupts.
    pub fn of(interrupts: u32) -> Self {
        match interrupts {
            0 | 1 => Self::AfterTurn,
            2 => Self::Agent,
            _ => Self::Leave,
        }
    }

    /// The command to the loop, if it is one.
    pub fn command(self) -> Option<LoopCommand> {
        match self {
            Self::AfterTurn => Some(LoopCommand::Stop { now: false }),
            Self::Agent => Some(LoopCommand::Stop { now: true }),
            Self::Leave => None,
        }
    }
}

/// A loop in memory.
struct LiveLoop {
    state: LoopState,
    version: u64,
    wake_at: Option<Time>,
    liveness: Option<liveness::Liveness>,
    /// Action runs under way.
    action_runs: u32,
    /// Kept here between action runs; a run takes it along.
    workspace: Option<Workspace>,
    /// Polls its monitors.
    rounds: MonitorRounds,
}

impl LiveLoop {
    /// Whether a turn runs that is not being stopped; it needs no supervisor to go on.
    fn goes_on(&self) -> bool {
        matches!(&self.state.phase, Phase::Turn(t) if t.stage == TurnStage::Running && t.stopping.is_none())
    }
}

/// The result of an action run, or of a poll of monitors.
struct Answer {
    id: LoopId,
    input: Input,
    workspace: Option<Workspace>,
}

/// The one owner of all loops on this machine.
pub struct Supervisor {
    projects: Arc<dyn Projects>,
    home: StateFolder,
    /// Old records are looked for again then.
    prune_at: Time,
    ledger: Sqlite,
    _ownership: Ownership,
    reach: LoopSelection,
    /// The loops that a `run` waits for, each with the environment that it brought.
    attended: BTreeMap<LoopId, Option<Outside>>,
    /// The loops that a `run` was started for; others it only supervises as long as it runs.
    own: Option<BTreeSet<LoopId>>,
    until: Until,
    /// The environment of this process.
    ours: Outside,
    shim: ShimProgram,
    node: NodeId,
    clock: clock::Clock,
    /// The loops that are awake.
    slots: BTreeMap<LoopId, LiveLoop>,
    sleepers: sleepers::Sleepers,
    census: census::Census,
    /// Turns that look stuck, over all loops.
    stalls: CorrelatedStalls,
    decisions: u64,
    draining: bool,
    interrupts: u32,
    ended_by: Option<Interrupt>,
    /// Here while it runs, so that a wait in the middle of a step can end, too.
    signals: Option<Signals>,
    looked_around: Time,
    answers: mpsc::Sender<Answer>,
    inputs: mpsc::Receiver<Answer>,
    port: Port,
    boards: boards::Boards,
    outbound: outbound::Outbound,
    /// This machine as a node of a mesh, while it is one.
    mesh: Option<mesh::Mesh>,
    /// What is in force in the folders of loops.
    configuration: configuration::Configuration,
    /// The files of hooks that were examined.
    hook_files: hook_files::HookFiles,
    /// The file mirror; absent in a process that only delivers a message.
    mirror: Option<mirror::Follower>,
    /// Sends telemetry, while there is a collector for it.
    collector: Option<OtlpReceiver>,
    exporter: Option<otlp::Exporter>,
    /// Signals to personas that are files.
    signal_files: signal_files::SignalFiles,
    watchdog: watchdog::Watchdog,
}

impl Supervisor {
    /// Takes over a state folder that the caller owns.
    pub fn new(options: SupervisorOptions, ledger: Sqlite, ownership: Ownership) -> Self {
        let (answers, inputs) = mpsc::channel(INPUTS);
        let draining = options.until == Until::Idle;
        let own = match &options.reach {
            LoopSelection::All => None,
            LoopSelection::Only(ids) => Some(ids.clone()),
        };
        let role = if options.until == Until::Told { "up" } else { "run" };
        let port = Port::new(options.listen, options.port, role, node_id(), &options.home);
        Self {
            home: options.home,
            projects: options.projects,
            ledger,
            prune_at: Time::default(),
            _ownership: ownership,
            reach: options.reach,
            attended: BTreeMap::new(),
            ours: Outside::ours(),
            own,
            until: options.until,
            shim: options.shim,
            node: node_id(),
            clock: clock::Clock::new(),
            slots: BTreeMap::new(),
            sleepers: sleepers::Sleepers::default(),
            census: census::Census::default(),
            stalls: CorrelatedStalls::default(),
            decisions: 0,
            draining,
            interrupts: 0,
            ended_by: None,
            signals: None,
            looked_around: Time::default(),
            answers,
            inputs,
            port,
            boards: boards::Boards::default(),
            outbound: outbound::Outbound::default(),
            mesh: None,
            configuration: configuration::Configuration::default(),
            hook_files: hook_files::HookFiles::default(),
            mirror: None,
            collector: options.collector,
            exporter: None,
            signal_files: signal_files::SignalFiles::default(),
            watchdog: watchdog::Watchdog::new(),
        }
    }

    /// Where its port is, if it has one from the beginning.
    pub fn address(&self) -> Option<std::net::SocketAddr> {
        self.port.address()
    }

    /// Supervises the loops until nothing is left to do. Returns the signal that ended it, if one
    /// did.
    pub async fn run(mut self, watcher: &mut impl Watcher) -> Result<Option<Interrupt>, Failure> {
        process::hide_memory();
        let mut wake_pipe = wake_pipe::WakePipe::hang(&self.home)?;
        self.signals = Some(Signals::listen()?);
        self.port.serve();
        if self.until != Until::Idle {
            let role = if self.until == Until::Told { "up" } else { "run" };
            self.mirror = mirror::Follower::start(&self.home, role);
            self.exporter = self.collector.take().and_then(|to| otlp::Exporter::start(&self.home, to));
        }
        let _panes = (self.until != Until::Idle).then(|| pane_watch::PaneWatch::start(&self.home)).flatten();
        let audit = if self.until == Until::Idle { None } else { audit::Audit::start(&self.home) };
        self.look_around(watcher).await?;
        // A loop that was held before changes nothing now; its watcher still has to see it.
        for slot in self.slots.values() {
            watcher.beat(&slot.state, None, self.clock.now());
        }
        self.watchdog.ready();
        while !self.is_done()? && !watcher.wants_to_go() {
            self.watchdog.alive();
            self.keep_outbound();
            let nap = self.nap(watcher);
            self.port.figures().beat(nap, self.next_wake());
            tokio::select! {
                Some(answer) = self.inputs.recv() => self.answered(answer, watcher).await?,
                report = self.outbound.report() => self.reported(report, watcher).await?,
                () = wake_pipe.rung() => self.woken(watcher).await?,
                () = self.signal_files.arrived() => self.woken(watcher).await?,
                () = sleep(machine_period(nap)) => self.tick(watcher).await?,
                Some(interrupt) = next_signal(self.signals.as_mut()) => self.interrupted(interrupt, watcher).await?,
            }
            self.settle();
        }
        self.watchdog.stopping();
        if let Some(mesh) = self.mesh.take() {
            mesh.gone().await;
        }
        self.last_words().await;
        if let Some(audit) = audit {
            audit.finished().await;
        }
        if let Some(mirror) = self.mirror.take() {
            mirror.gone().await;
        }
        if let Some(exporter) = self.exporter.take() {
            exporter.gone().await;
        }
        Ok(self.ended_by)
    }

    fn is_done(&self) -> Result<bool, Failure> {
        let is_own = |id: &LoopId| self.own.as_ref().is_none_or(|own| own.contains(id));
        let mut own = self.slots.iter().filter(|(id, _)| is_own(id)).map(|(_, slot)| slot);
        Ok(match self.until {
            // After a signal: turns were interrupted, and their ends are awaited.
            _ if self.draining && self.until != Until::Idle => self.slots.values().all(|s| s.action_runs == 0),
            Until::Told => false,
            Until::LoopsEnd => own.all(|s| s.action_runs == 0 && s.state.is_over()),
            Until::Idle => self.slots.values().all(|s| s.action_runs == 0 || s.goes_on()) && self.inbox_is_empty()?,
        })
    }

    /// Time until the next timer.
    fn nap(&self, watcher: &impl Watcher) -> Duration {
        let now = self.clock.now();
        let timers = self.slots.values().filter_map(|s| s.wake_at).map(|at| at.since(now));
        let phase_liveness = self.slots.values().filter_map(|s| s.liveness.as_ref()).map(|l| l.next_look().since(now));
        // A millisecond late is in time; a millisecond early would be a second wake for nothing.
        let tell = self.outbound.wake_at.map(|at| at.since(now));
        let beats = self.slots.values().filter_map(|s| s.rounds.next(&s.state, now)).map(|at| at.since(now));
        let beats = beats.filter(|_| !self.draining);
        let all = timers.chain(phase_liveness).chain(tell).chain(beats).chain(self.census_nap(now));
        let next = all.map(|d| d + Duration::from_millis(1)).min().unwrap_or(NAP);
        next.min(watcher.beats().unwrap_or(NAP)).min(self.watchdog.nap().unwrap_or(NAP)).min(NAP)
    }

    /// The next timer of a loop, for the HTTP port.
    fn next_wake(&self) -> Option<Wake> {
        let awake = self.slots.values().filter_map(|s| Some((s.wake_at?, s))).min_by_key(|(at, _)| *at);
        let asleep = self.sleepers.next().filter(|(at, _)| awake.is_none_or(|(first, _)| *at < first));
        if let Some((at, id)) = asleep {
            return Some(Wake { at, owner: id.clone(), why: RuleId::Resting.to_string() });
        }
        let (at, slot) = awake?;
        let why = match &slot.state.phase {
            Phase::Waiting { reason, .. } => reason.rule.to_string(),
            other => other.label().to_owned(),
        };
        Some(Wake { at, owner: slot.state.id.clone(), why })
    }

    /// Another process changed something: a command, a new loop, the guard, a task.
    async fn woken(&mut self, watcher: &mut impl Watcher) -> Result<(), Failure> {
        self.look_around(watcher).await?;
        self.census.waiting_wanted = true;
        self.tick_wanted(watcher).await
    }

    /// Lets the other workers of a run decide again, as far as they wait: what one of them finds
    /// concerns all.
    async fn tick_team(&mut self, id: &LoopId, watcher: &mut impl Watcher) -> Result<(), Failure> {
        let Some(run) = self.slots.get(id).and_then(|slot| slot.state.shared_run().cloned()) else { return Ok(()) };
        let waits = |state: &LoopState| match state.phase {
            Phase::New => state.is_helper(),
            Phase::Waiting { .. } => true,
            Phase::Ready | Phase::Turn(_) | Phase::Ended { .. } => false,
        };
        let is_mate = |state: &LoopState| state.shared_run() == Some(&run) && state.id != *id && waits(state);
        let mates: Vec<LoopId> =
            self.slots.values().filter(|s| is_mate(&s.state)).map(|s| s.state.id.clone()).collect();
        for mate in mates {
            self.handle(&mate, &Input::Tick, watcher).await?;
        }
        Ok(())
    }

    /// Reads the mailbox and picks up new loops.
    async fn look_around(&mut self, watcher: &mut impl Watcher) -> Result<(), Failure> {
        self.looked_around = self.clock.now();
        self.tell_mirror();
        self.look_at_mesh();
        let called = self.read_notices()?;
        self.read_configuration();
        if let LoopSelection::Only(ids) = &self.reach {
            let ids = ids.clone();
            let loops = self.ledger.loops()?;
            self.find_homes(&loops);
            self.find_notifiers();
            for row in loops.iter().filter(|row| ids.contains(&row.id)) {
                if !self.slots.contains_key(&row.id) {
                    self.pick_up(row, watcher).await?;
                }
            }
        } else {
            self.find_loops(watcher).await?;
            self.find_notifiers();
        }
        if self.until != Until::Idle {
            self.read_signal_files()?;
        }
        self.read_commands(watcher).await?;
        for id in called {
            self.attend(&id, watcher).await?;
        }
        self.report_configuration();
        self.report_hook_files();
        self.keep_boards().await;
        Ok(())
    }

    /// A loop that was left alone goes on.
    async fn attend(&mut self, id: &LoopId, watcher: &mut impl Watcher) -> Result<(), Failure> {
        self.rouse(id)?;
        let input = match self.slots.get(id).map(|slot| (&slot.state.phase, slot.action_runs)) {
            Some((Phase::New, 0)) => Input::Recovered { found: TurnTrace::Idle },
            Some((Phase::Waiting { .. }, _)) => Input::Tick,
            _ => return Ok(()),
        };
        self.handle(id, &input, watcher).await
    }

    /// Reports writes of other processes and running turns to the mirror.
    fn tell_mirror(&mut self) {
        if let Some(exporter) = &self.exporter {
            exporter.changed();
        }
        let Some(mirror) = &mut self.mirror else { return };
        mirror.look(self.ledger.data_version().ok());
        if self.slots.values().any(|slot| matches!(slot.state.phase, Phase::Turn(_))) {
            mirror.alive();
        }
    }

    /// A supervisor of all loops is a node as long as its state folder belongs to a mesh.
    fn look_at_mesh(&mut self) {
        if self.until != Until::Told || self.draining {
            return;
        }
        // A node that could not begin, or broke, is started again.
        self.mesh = self.mesh.take().filter(mesh::Mesh::is_there);
        match (Membership::read(&self.home), &self.mesh) {
            (Ok(Some(_)), Some(mesh)) => mesh.wake(),
            (Ok(Some(membership)), None) => {
                self.mesh = mesh::Mesh::start(&self.home, &self.shim, &membership, self.port.figures());
            }
            (Ok(None), Some(mesh)) => {
                mesh.dismiss();
                self.mesh = None;
            }
            (Ok(None), None) => {}
            (Err(failure), _) => tracing::warn!(error = failure.message, "cannot read mesh membership"),
        }
    }

    async fn pick_up(&mut self, row: &LoopRow, watcher: &mut impl Watcher) -> Result<(), Failure> {
        let state = read_state(row)?;
        let found = self.find_turn(&state);
        let rounds = MonitorRounds::default();
        let slot = LiveLoop {
            state,
            version: row.version,
            wake_at: None,
            liveness: None,
            action_runs: 0,
            workspace: None,
            rounds,
        };
        // A process that only delivers a message leaves everything else to the next supervisor,
        // except a turn that it may stop.
        let concerned = self.until != Until::Idle || slot.goes_on();
        self.outbound.notifiers.add_home(&row.id, Path::new(&slot.state.spec.workspace.dir));
        let over = slot.state.is_over();
        self.slots.insert(row.id.clone(), slot);
        if concerned && !over {
            let input = Input::Recovered { found };
            self.look_for_signs(&row.id, &input)?;
            self.handle(&row.id, &input, watcher).await?;
        }
        Ok(())
    }

    async fn answered(&mut self, answer: Answer, watcher: &mut impl Watcher) -> Result<(), Failure> {
        if let Input::Beat { looks, .. } = answer.input {
            // Not an action run: a poll takes no workspace along.
            self.take_looks(&answer.id, looks, watcher).await?;
        } else {
            if let Some(slot) = self.slots.get_mut(&answer.id) {
                slot.action_runs = slot.action_runs.saturating_sub(1);
                slot.workspace = answer.workspace;
            }
            if self.draining && self.until != Until::Idle && is_cut_off(&answer.input) {
                // The next supervisor finds the action in the ledger and performs it again.
                return Ok(());
            }
            let signs = self.look_for_signs(&answer.id, &answer.input)?;
            self.handle(&answer.id, &answer.input, watcher).await?;
            self.tick_team(&answer.id, watcher).await?;
            if signs {
                self.read_commands(watcher).await?;
            }
        }
        if self.until == Until::Told {
            self.slots.retain(|_, s| s.action_runs > 0 || !s.state.is_over());
        }
        self.report_configuration();
        self.keep_boards().await;
        // Another loop may now start its turn (`max_parallel_turns`).
        self.tick_held_by_slots(watcher).await
    }

    async fn tick(&mut self, watcher: &mut impl Watcher) -> Result<(), Failure> {
        let now = self.clock.now();
        self.prune_records();
        let due: Vec<LoopId> = self
            .slots
            .iter()
            .filter(|(_, s)| s.wake_at.is_some_and(|at| at <= now))
            .map(|(id, _)| id.clone())
            .take(census::DUE_AT_ONCE)
            .collect();
        for id in due {
            self.handle(&id, &Input::Tick, watcher).await?;
        }
        self.rouse_due(now, watcher).await?;
        if self.census.messages_left {
            self.read_commands(watcher).await?;
        }
        self.tick_wanted(watcher).await?;
        self.look_at_turns(watcher).await?;
        self.beat(watcher).await?;
        // The wake pipe is a hint; a client that died between its commit and its wake-up must not
        // wait for the next one.
        if now.since(self.looked_around) >= NAP {
            self.look_around(watcher).await?;
        }
        for slot in self.slots.values() {
            watcher.beat(&slot.state, slot.liveness.as_ref().map(|l| l.silent(now)), now);
        }
        Ok(())
    }

    /// Ends checks and setup commands, which may run as long as they like; nothing of them counts.
    fn end_checks(&self) {
        for (id, _) in self.slots.iter().filter(|(_, slot)| slot.action_runs > 0) {
            for folder in [self.home.checks(id), self.home.setup(id)] {
                tokio::task::spawn_blocking(move || job::close(&folder));
            }
        }
    }

    /// The stop ladder: end after this turn, stop the agent, go at once.
    async fn interrupted(&mut self, interrupt: Interrupt, watcher: &mut impl Watcher) -> Result<(), Failure> {
        self.interrupts += 1;
        self.ended_by = Some(interrupt);
        let gentle = interrupt == Interrupt::Int && self.until == Until::LoopsEnd;
        if gentle {
            watcher.stopping(StopStep::of(self.interrupts));
        }
        self.draining |= !gentle || self.interrupts > 2;
        if let Some(mesh) = self.mesh.as_ref().filter(|_| self.draining) {
            mesh.dismiss();
        }
        if self.draining {
            self.end_checks();
        }
        let own = |id: &&LoopId| self.draining || self.own.as_ref().is_none_or(|own| own.contains(*id));
        let ids: Vec<LoopId> = self.slots.keys().filter(own).cloned().collect();
        for id in ids {
            let input = match self.interrupts {
                1 | 2 if gentle => inbox::stop_command(self.interrupts == 2),
                _ => Input::Shutdown,
            };
            self.handle(&id, &input, watcher).await?;
        }
        if self.draining && self.interrupts > 2 {
            // The jobs go on under their own shims and are found again by the next supervisor.
            self.slots.values_mut().for_each(|s| s.action_runs = 0);
        }
        Ok(())
    }
}

/// Whether an answer is about commands that the end of the supervisor cut off.
fn is_cut_off(input: &Input) -> bool {
    match input {
        Input::Baselined { .. } | Input::Judged { .. } | Input::Measured { .. } | Input::Replayed { .. } => true,
        Input::Exited { exit, .. } => exit.spawn_error.is_some(),
        _ => false,
    }
}

/// The next signal; never without a listener.
async fn next_signal(signals: Option<&mut Signals>) -> Option<Interrupt> {
    match signals {
        Some(signals) => signals.next().await,
        None => std::future::pending().await,
    }
}

/// The signals that end a process which supervises or follows a loop.
pub struct Signals {
    int: Signal,
    term: Signal,
    hup: Signal,
}

impl Signals {
    /// From now on none of them ends the process by itself.
    pub fn listen() -> Result<Self, Failure> {
        let on = |kind| signal(kind).map_err(|e| Failure::failed("cannot install signal handlers").because(&e));
        Ok(Self {
            int: on(SignalKind::interrupt())?,
            term: on(SignalKind::terminate())?,
            hup: on(SignalKind::hangup())?,
        })
    }

    /// A closed terminal (SIGHUP) ends nothing: the loop goes on.
    pub async fn next(&mut self) -> Option<Interrupt> {
        loop {
            tokio::select! {
                Some(()) = self.int.recv() => return Some(Interrupt::Int),
                Some(()) = self.term.recv() => return Some(Interrupt::Term),
                Some(()) = self.hup.recv() => {}
            }
        }
    }
}
