//! A mesh in memory around the real rules of [`everloop_core::mesh`] and the model ledger: nodes that die, sleep and lose
//! their hub, a repository between them, and agents that do well or not. Same seed, same trace.
//!
//! - [`run`](fn@run): one seed, from the first step to the end of the loop after everything was mended
//! - `world`: virtual time and faults; `node`: what the thread of a node does, step by step as the real one does it;
//!   `alone`: the same without a hub
//! - `git`: the shared repository; `facts`: the invariants

mod alone;
mod facts;
mod git;
mod node;
mod world;

use std::time::Duration;

use super::world::Violation;

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Machines.
    pub nodes: u64,
    /// Checks, each of which wants its own file.
    pub checks: u64,
    /// For how long things go wrong; then everything is mended.
    pub bad: Duration,
    /// The average time between two faults; `None`: nothing goes wrong.
    pub fault_every: Option<Duration>,
    /// Whether clocks run at different rates.
    pub drift: bool,
    /// How long an agent works at most.
    pub work: Duration,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Report {
    /// The first invariant that did not hold.
    pub violation: Option<Violation>,
    /// Simulated time.
    pub time: Duration,
    /// Steps of nodes.
    pub steps: u64,
    /// Things that went wrong.
    pub faults: u64,
    /// Tasks that landed.
    pub landed: u64,
    /// Results that came too late.
    pub shelved: u64,
    /// Times that a node became supervisor.
    pub epochs: u64,
    /// The longest time for which a free task waited while a healthy node had nothing to do.
    pub longest_stall: Duration,
    /// All steps as one number.
    pub trace_hash: u64,
    /// The last ones in words.
    pub tail: Vec<String>,
}

/// A setup that depends on its seed alone.
pub fn random(seed: u64) -> Setup {
    let mut dice = super::random::Random::new(seed ^ 0x006d_6573_6800);
    let minutes = |n: u64| Duration::from_secs(n * 60);
    Setup {
        nodes: dice.pick(&[1, 2, 3, 3, 5, 5, 8]),
        checks: dice.between(2, 12),
        bad: minutes(dice.between(10, 120)),
        fault_every: Some(Duration::from_secs(dice.between(20, 600))),
        drift: dice.one_in(4),
        work: Duration::from_secs(dice.pick(&[20, 100, 400])),
    }
}

/// A setup in which much happens in a short time, also to clocks: for mistakes that need bad luck to show.
pub fn violent(seed: u64) -> Setup {
    let secs = Duration::from_secs;
    let drift = seed.is_multiple_of(2);
    Setup { nodes: 3, checks: 12, bad: secs(1_800), fault_every: Some(secs(15)), drift, work: secs(20) }
}

/// Runs one seed.
pub fn run(setup: &Setup, seed: u64) -> Report {
    world::World::new(setup, seed).run()
}
