//! What the tests are made of; never part of a release.
//!
//! - [`sim`]: a whole world in memory (clock, disk, processes, git, agents, people) in which the real core is run,
//!   crashed at every step and held to its invariants

pub mod sim;
