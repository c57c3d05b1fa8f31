//! The parts of the tests; never part of a release.
//!
//! - [`sim`]: a whole world in memory (clock, disk, processes, git, agents, people) in which the
//!   real core is run, crashed at every step and held to its invariants
//! - [`browser`]: a real Chromium, for pages that people open
//! - [`budget`]: as much simulation as a given time allows
//! - [`chaos`]: three real nodes in networks of their own, a real hub, and faults
//! - [`docs`]: files of `docs/` that are made from code
//! - [`fake_model`]: a model server on loopback that plays a script, for the real agent programs
//! - [`fleet`]: many nodes, accounts and kinds of tasks of which one is bad: which one is blamed
//! - [`clis`]: the real agent programs, how they are started against that server
//! - [`offline`]: a test in a network namespace with nothing but loopback
//! - [`planted`]: deliberate mistakes, where each shows, and the invariant that catches it
//! - [`post_office`]: servers that take messages for people, like Telegram's
//! - [`postgres`]: a private PostgreSQL server, and a pooler in front of it; [`proxy`]: stands
//!   before it and cuts
//! - [`random`]: numbers that depend on nothing but a seed
//! - [`sample`]: loop states to print
//! - [`processes`]: which processes belong to a state folder
//! - [`tamper`]: changes to a ledger behind everloop's back
//! - [`wait`]: waiting for something that happens, with a deadline

pub mod browser;
pub mod budget;
pub mod chaos;
pub mod clis;
pub mod docs;
pub mod fake_model;
pub mod fleet;
pub mod offline;
pub mod planted;
pub mod post_office;
pub mod postgres;
pub mod processes;
pub mod proxy;
pub mod random;
pub mod sample;
pub mod sim;
pub mod tamper;
pub mod wait;
