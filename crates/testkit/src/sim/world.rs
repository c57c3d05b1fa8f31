//! The world: virtual time, the heap of future occurrences, numbered steps, crashes.
//!
//! Nothing here is concurrent. Whatever happens later stands on the heap; a crash of the supervisor
//! makes what it had planned void (its incarnation is over), a power loss also what shims and
//! agents had planned (the boot is over).

use std::collections::{BTreeMap, BTreeSet};

use everloop_core::event::StopCause;
use everloop_core::ids::{LoopId, NodeId, TaskId, TurnId};
use everloop_core::time::Time;

use super::agent::Meter;
use super::check::Watch;
use super::fault::{Fault, FaultPlan, Faults, Loss};
use super::git::{Repository, Tree};
use super::ledger::Ledger;
use super::process::{Record, Shim};
use super::scenario::{LoopSetup, Scenario};
use super::shell::Supervisor;
use super::trace::Trace;
use crate::random::Random;

/// When every simulation begins: 2026-01-01.
pub const BEGIN: Time = Time(1_767_225_600_000);
/// More than any healthy run needs; a loop that spins is found by this.
const MOST_OCCURRENCES: u64 = 400_000;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one, as in FAULTS.md, or a word of its own.
    pub invariant: &'static str,
    pub text: String,
}

/// Why an occurrence ends early.
#[derive(Debug)]
pub enum Halt {
    Kill,
    /// It gave up by itself: the ledger answered with an error, so that nothing is known any more.
    GiveUp,
    Power(Loss),
    /// The simulation is over.
    Violated(Violation),
}

/// An occurrence may end early.
pub type Flow<T = ()> = Result<T, Halt>;

/// An error that was injected instead of a step's effect.
#[derive(Debug)]
pub struct Injected;

/// Something on the heap: what it does to the world.
type Occurrence = Box<dyn FnOnce(&mut World) -> Flow>;

/// Which process planned it, and until when the plan holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plans {
    Supervisor(u64),
    /// An action that the supervisor has under way: it stands still while the machine sleeps.
    Action(u64),
    Machine(u64),
    World,
}

/// A loop's repository and agent.
#[derive(Clone, Debug)]
pub struct Site {
    /// How it was set up; the script may change when the world heals.
    pub setup: LoopSetup,
    pub git: Repository,
    /// The operator's folder, for loops that work in place.
    pub folder: Tree,
    /// Its checks did not always give the right result.
    pub(super) was_flaky: bool,
    /// What the folder held when a turn began.
    pub(super) began: BTreeMap<TurnId, Tree>,
    /// Lines that were added to what its monitor watches.
    pub(super) news: u64,
    /// How often the agent took up a task.
    pub(super) runs: BTreeMap<TaskId, u32>,
}

impl Site {
    /// What the operator has in the end.
    pub fn result(&self) -> Tree {
        if self.setup.in_place() { self.folder.clone() } else { self.git.tree(&self.git.target) }
    }
}

/// Everything there is.
#[derive(Default)]
pub struct World {
    pub(super) seed: u64,
    pub(super) random: Random,
    pub(super) now_ms: u64,
    pub(super) wall_ms: i64,
    /// What is to come, by time and by the order in which it was planned.
    heap: BTreeMap<(u64, u64), (Plans, Occurrence)>,
    planned: u64,
    pub(super) incarnation: u64,
    /// Decisions so far, for their seeds.
    pub(super) decisions: u64,
    pub(super) boot: u64,
    pub(super) late_ms: u64,
    pub(super) ledger: Ledger,
    pub(super) sites: BTreeMap<LoopId, Site>,
    pub(super) shims: BTreeMap<TurnId, Shim>,
    pub(super) records: BTreeMap<TurnId, Record>,
    /// What vendors count, by account.
    pub(super) meters: BTreeMap<String, Meter>,
    /// Lock files of turns: no other process may run them.
    pub(super) locked: BTreeSet<TurnId>,
    /// Stop requests in turn folders.
    pub(super) stops: BTreeMap<TurnId, StopCause>,
    pub(super) supervisor: Option<Supervisor>,
    pub(super) faults: Faults,
    pub(super) trace: Trace,
    pub(super) watch: Watch,
    /// A person is about to write between a decision and its commit.
    pub(super) meddling: bool,
    pub(super) finishing: bool,
    pub(super) finished: bool,
    pub(super) to_come: usize,
    pub(super) limit_ms: u64,
    pub(super) occurrences: u64,
}

impl World {
    /// A world before its first second.
    pub fn new(scenario: &Scenario, plan: FaultPlan, seed: u64) -> Self {
        let site = |setup: &LoopSetup| Site {
            git: Repository::new(setup.tree.clone()),
            folder: setup.tree.clone(),
            was_flaky: setup.flaky.is_some(),
            setup: setup.clone(),
            began: BTreeMap::new(),
            news: 0,
            runs: BTreeMap::new(),
        };
        let mut world = Self {
            seed,
            random: Random::new(seed),
            sites: scenario.loops.iter().map(|l| (l.id.clone(), site(l))).collect(),
            faults: Faults::new(plan, seed),
            to_come: scenario.happenings.len(),
            limit_ms: scenario.limit_ms,
            ..Self::default()
        };
        for (at, happening) in &scenario.happenings {
            let happening = happening.clone();
            world.plan_at(*at, Plans::World, |w| w.happen(happening));
        }
        world.plan(0, Plans::World, Self::start_up);
        world
    }

    pub(super) fn run(&mut self) -> Result<(), Violation> {
        self.submit();
        while let Some(((at, _), (plans, what))) = self.heap.pop_first() {
            self.occurrences += 1;
            if !self.holds(plans) {
                continue;
            }
            self.late_ms = self.now_ms.saturating_sub(at);
            self.now_ms = self.now_ms.max(at);
            match what(self) {
                Ok(()) => {}
                Err(Halt::Kill) => self.die(),
                Err(Halt::GiveUp) => {
                    self.ledger.doubt = true;
                    self.die();
                }
                Err(Halt::Power(loss)) => self.lose_power(loss),
                Err(Halt::Violated(violation)) => return Err(violation),
            }
            self.check()?;
            if self.finished {
                return self.check_end();
            }
            if self.now_ms > self.limit_ms {
                return Err(self.never_ended());
            }
            if self.occurrences > MOST_OCCURRENCES {
                return Err(Violation { invariant: "I5", text: "it spins".to_owned() });
            }
        }
        Err(Violation { invariant: "I5", text: "nothing is left to come and not all loops have ended".to_owned() })
    }

    fn holds(&self, plans: Plans) -> bool {
        match plans {
            Plans::Supervisor(incarnation) | Plans::Action(incarnation) => {
                self.supervisor.is_some() && incarnation == self.incarnation
            }
            Plans::Machine(boot) => boot == self.boot,
            Plans::World => true,
        }
    }

    pub(super) fn plan(&mut self, in_ms: u64, plans: Plans, what: impl FnOnce(&mut Self) -> Flow + 'static) {
        self.plan_at(self.now_ms + in_ms, plans, what);
    }

    fn plan_at(&mut self, at: u64, plans: Plans, what: impl FnOnce(&mut Self) -> Flow + 'static) {
        self.planned += 1;
        self.heap.insert((at, self.planned), (plans, Box::new(what)));
    }

    /// Something the supervisor of now will do.
    pub(super) fn mine(&mut self, in_ms: u64, what: impl FnOnce(&mut Self) -> Flow + 'static) {
        self.plan(in_ms, Plans::Supervisor(self.incarnation), what);
    }

    /// Everything that a sleeping machine does not do is late by this much; timers of the
    /// supervisor count boot time.
    pub(super) fn sleep_ms(&mut self, ms: u64) {
        for ((at, order), (plans, what)) in std::mem::take(&mut self.heap) {
            let late = matches!(plans, Plans::Machine(_) | Plans::Action(_));
            self.heap.insert((at + if late { ms } else { 0 }, order), (plans, what));
        }
        self.stand_still(ms);
    }

    /// Time passes without any activity; this counts as a stall of no loop.
    pub(super) fn stand_still(&mut self, ms: u64) {
        self.now_ms += ms;
        self.watch.stood_still(ms);
    }

    pub(super) fn wall(&self) -> Time {
        Time(BEGIN.0 + self.now_ms as i64 + self.wall_ms)
    }

    pub(super) fn say(&mut self, what: &str, detail: &str) {
        self.trace.say(self.now_ms, what, detail);
    }

    /// A numbered step of the supervisor: the place where it can be killed, and where the step can
    /// fail.
    pub(super) fn step<T>(
        &mut self,
        name: &str,
        detail: &str,
        effect: impl FnOnce(&mut Self) -> T,
    ) -> Flow<Result<T, Injected>> {
        self.struck((name, detail), |_| Err(Halt::Kill), effect)
    }

    /// The same of a step without which the supervisor cannot go on.
    pub(super) fn must<T>(&mut self, name: &str, detail: &str, effect: impl FnOnce(&mut Self) -> T) -> Flow<T> {
        self.step(name, detail, effect)?.map_err(|Injected| Halt::GiveUp)
    }

    /// A numbered step of another process: a kill of the supervisor at this moment does not stop
    /// it.
    pub(super) fn step_beside(&mut self, name: &str, detail: &str, effect: impl FnOnce(&mut Self)) -> Flow<bool> {
        let kill = |world: &mut Self| {
            world.die();
            Ok(())
        };
        Ok(self.struck((name, detail), kill, effect)?.is_ok())
    }

    /// Counts a step, lets the fault strike that is planned for it, and has its effect.
    fn struck<T>(
        &mut self,
        (name, detail): (&str, &str),
        kill: impl Fn(&mut Self) -> Flow,
        effect: impl FnOnce(&mut Self) -> T,
    ) -> Flow<Result<T, Injected>> {
        self.say(name, detail);
        let fault = self.faults.meet(Fault::draw);
        if let Some(fault) = fault {
            self.say("fault", &format!("{fault:?} at step {}", self.faults.steps));
        }
        match fault {
            Some(Fault::KillBefore) => kill(self)?,
            Some(Fault::PowerBefore(loss)) => return Err(Halt::Power(loss)),
            Some(Fault::Error) => return Ok(Err(Injected)),
            Some(Fault::Delay(ms)) => self.stand_still(ms),
            Some(Fault::KillAfter | Fault::PowerAfter(_)) | None => {}
        }
        let done = effect(self);
        match fault {
            Some(Fault::KillAfter) => kill(self)?,
            Some(Fault::PowerAfter(loss)) => return Err(Halt::Power(loss)),
            _ => {}
        }
        Ok(Ok(done))
    }

    /// The supervisor's process is gone. Shims and agents go on; the supervisor is started again.
    pub(super) fn die(&mut self) {
        if self.supervisor.is_some() {
            self.fall();
            let pause = self.random.between(500, 3_000);
            self.plan(pause, Plans::Machine(self.boot), Self::start_up);
        }
    }

    fn fall(&mut self) {
        self.say("the supervisor is gone", "");
        self.supervisor = None;
        self.incarnation += 1;
        self.watch.crashes += 1;
    }

    fn lose_power(&mut self, loss: Loss) {
        self.say("power loss", &format!("{loss:?}"));
        self.watch.mark("power loss");
        if self.ledger.power_loss(loss, &mut self.random) {
            self.watch.mark("power loss with unsynced data");
        }
        self.lose_records(loss);
        self.fall();
        self.boot += 1;
        for shim in self.shims.values_mut() {
            shim.alive = false;
            shim.agent = false;
        }
        let pause = self.random.between(20_000, 60_000);
        self.plan(pause, Plans::Machine(self.boot), Self::start_up);
    }
}

/// The simulated machine.
pub(super) fn here() -> NodeId {
    NodeId::new("here")
}

/// The simulation ends here.
pub(super) fn violated<T>(invariant: &'static str, text: impl Into<String>) -> Flow<T> {
    Err(Halt::Violated(Violation { invariant, text: text.into() }))
}
