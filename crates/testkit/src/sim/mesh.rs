//! A mesh in memory around the real rules of [`everloop_core::mesh`] and the model ledger: nodes
//! that die, sleep and lose their hub, a repository between them, agents that do well or not, and
//! people. Same seed, same trace.
//!
//! - [`run`](fn@run): one seed, from the first step to the end of the last loop after all faults
//!   were repaired
//! - `world`: virtual time and future events; [`faults`]: what goes wrong; `people`: interventions
//!   of people
//! - `node`: a machine, on which the product's own [`everloop_core::mesh::node`] runs; `host`: its
//!   effects; `hub`: its calls
//! - `stranger`: writes to the hub without a trusted key
//! - `research`: loops whose tasks are experiments
//! - `git`: the shared repository; `facts`, `limits`: the invariants

mod facts;
pub mod faults;
mod git;
mod host;
mod hub;
mod limits;
mod node;
mod people;
mod research;
mod stranger;
mod sum;
mod world;

use std::time::Duration;

use super::fault::FaultPlan;
use super::world::Violation;
use crate::random::Random;
use faults::MeshFault;
pub use stranger::Stranger;
pub use sum::{Sum, Tally};

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Setup {
    pub nodes: u64,
    /// So many of them, the last ones, have the login of a worker.
    pub workers: u64,
    /// Tasks that each of them works on at once.
    pub slots: u64,
    /// Checks of a loop, each of which wants its own file.
    pub checks: u64,
    /// Loops, one after the other.
    pub loops: u64,
    /// Between two of them; so long the mesh has nothing to do.
    pub rest: Duration,
    /// For how long things go wrong; then everything is mended.
    pub bad: Duration,
    /// The average time between two faults; `None`: nothing goes wrong.
    pub fault_every: Option<Duration>,
    /// Of so many calls to the hub and writes to a disk, one goes wrong.
    pub one_in: u64,
    /// Whether clocks are wrong and run at different rates.
    pub drift: bool,
    /// How long an agent works at most.
    pub work: Duration,
    /// How long a clone takes at most.
    pub clone: Duration,
    /// How long a push takes at most.
    pub push: Duration,
    /// How long the answer to a heartbeat is on its way; the whole mesh waits for it.
    pub answer: Duration,
    pub ill: Ill,
    /// Experiments of each loop; 0 for loops with checks.
    pub experiments: u32,
    /// What a stranger does that can write to the hub.
    pub stranger: Stranger,
}

impl Setup {
    /// The faults that it meets at calls and writes.
    pub fn chance(&self) -> FaultPlan<MeshFault> {
        let random = FaultPlan::Random { one_in: self.one_in, most: u32::MAX };
        if self.fault_every.is_some() { random } else { FaultPlan::Calm }
    }
}

/// Which work never succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ill {
    /// All work can succeed.
    Nobody,
    /// That of the first machine.
    Machine,
    /// That on the first check.
    Check,
    /// No work succeeds: all agents die as soon as they are started.
    All,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct MeshReport {
    /// The first invariant that did not hold.
    pub violation: Option<Violation>,
    pub tally: Tally,
    /// Places at which something can go wrong: calls to the hub, writes to a disk, moves of the
    /// branch.
    pub points: u64,
    /// The last steps in words.
    pub tail: Vec<String>,
}

const fn minutes(n: u64) -> Duration {
    Duration::from_secs(n * 60)
}

/// A setup that depends only on its seed: hours with many faults.
pub fn random(seed: u64) -> Setup {
    let mut dice = Random::new(seed ^ 0x006d_6573_6800);
    let setup = Setup {
        nodes: dice.pick(&[1, 2, 3, 3, 5, 5, 8, 20]),
        slots: dice.pick(&[1, 1, 2]),
        checks: dice.between(2, 12),
        loops: dice.pick(&[1, 1, 2]),
        rest: minutes(dice.between(1, 60)),
        bad: minutes(dice.between(10, 120)),
        fault_every: Some(Duration::from_secs(dice.between(20, 600))),
        one_in: dice.pick(&[100, 400, 2_000]),
        drift: dice.one_in(4),
        work: Duration::from_secs(dice.pick(&[20, 100, 400])),
        clone: Duration::from_secs(dice.pick(&[2, 2, 2, 300])),
        ill: dice.pick(&[Ill::Nobody, Ill::Nobody, Ill::Nobody, Ill::Machine, Ill::Check, Ill::All]),
        workers: dice.pick(&[0, 0, 1, 2, 4]),
        ..small()
    };
    Setup { push: setup.clone / 2, ..setup }
}

/// Days of a mesh of `nodes` machines in normal use: occasional work and occasional faults.
pub fn days(seed: u64, nodes: u64) -> Setup {
    let mut dice = Random::new(seed ^ 0x6461_7973);
    Setup {
        nodes,
        slots: dice.pick(&[1, 2]),
        checks: dice.between(2, 12),
        loops: dice.between(3, 6),
        rest: minutes(dice.between(120, 720)),
        bad: minutes(60 * dice.between(12, 72)),
        fault_every: Some(minutes(dice.between(10, 180))),
        one_in: dice.pick(&[2_000, 20_000]),
        drift: dice.one_in(4),
        work: minutes(dice.pick(&[2, 15, 45])),
        ill: dice.pick(&[Ill::Nobody, Ill::Nobody, Ill::Nobody, Ill::Machine, Ill::Check]),
        ..small()
    }
}

/// A setup in which much happens in a short time, also to clocks: for mistakes that only rare
/// coincidences reveal.
pub fn violent(seed: u64) -> Setup {
    Setup {
        nodes: 3,
        slots: 1 + seed % 3 / 2,
        checks: 12,
        bad: minutes(30),
        fault_every: Some(Duration::from_secs(15)),
        one_in: 150,
        drift: seed.is_multiple_of(2),
        work: Duration::from_secs(20),
        ..small()
    }
}

/// The same for a research run.
pub fn experiments(seed: u64) -> Setup {
    Setup { experiments: 12, ..violent(seed) }
}

/// One of three machines fails at everything, and the others have much to do.
pub fn one_is_ill(seed: u64) -> Setup {
    Setup {
        loops: 6,
        rest: minutes(1),
        bad: minutes(360),
        fault_every: Some(minutes(3)),
        one_in: 2_000,
        drift: false,
        work: Duration::from_secs(400),
        ill: Ill::Machine,
        ..violent(seed)
    }
}

/// A small setup without random faults, for faults at chosen places.
pub fn small() -> Setup {
    Setup {
        nodes: 2,
        workers: 0,
        slots: 1,
        checks: 2,
        loops: 1,
        rest: Duration::ZERO,
        bad: Duration::ZERO,
        fault_every: None,
        one_in: 0,
        drift: false,
        work: Duration::from_secs(5),
        clone: Duration::from_secs(2),
        push: Duration::from_secs(1),
        answer: Duration::ZERO,
        ill: Ill::Nobody,
        experiments: 0,
        stranger: Stranger::Absent,
    }
}

/// Runs one seed with the faults of its setup.
pub fn run(setup: &Setup, seed: u64) -> MeshReport {
    run_with(setup, seed, setup.chance())
}

/// Runs one seed with these faults.
pub fn run_with(setup: &Setup, seed: u64, plan: FaultPlan<MeshFault>) -> MeshReport {
    world::World::new(setup, seed, plan).run()
}
