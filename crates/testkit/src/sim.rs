//! A world in memory around the real core: same seed, same trace.
//!
//! - [`scenario`]: what is simulated: loops, agents, people, faults
//! - [`fault`]: what goes wrong at which step
//! - [`run`](mod@run): runs a scenario under a plan of faults and reports
//! - [`world`]: virtual time, the heap of future occurrences, crashes
//! - `shell`, `perform`, `watch`: the supervisor, step by step as the real one does it
//! - `process`, `people`: shims and agents that outlive it; persons, clocks, the operator's own
//!   commits
//! - [`ledger`], [`git`], [`agent`]: the models
//! - [`mesh`]: many machines around one hub
//! - [`check`]: the invariants, asserted after everything that happens
//! - [`trace`]: the hash of all steps

pub mod agent;
pub mod check;
pub mod fault;
pub mod git;
pub mod ledger;
pub mod mesh;
mod people;
mod perform;
mod process;
pub mod run;
pub mod scenario;
mod shell;
pub mod trace;
mod watch;
pub mod world;
