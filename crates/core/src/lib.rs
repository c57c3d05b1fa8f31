//! The part of everloop that decides. Pure: no clock, no files, no processes, no randomness of its own.
//!
//! - [`ids`], [`time`]: the small words everything else is made of
//! - [`spec`]: what an operator asked for: goal, checks, agent, limits, guard
//! - [`event`]: what happened, the only thing that changes a [`state`]
//! - [`decide`](mod@decide): state + input + time in; events, ledger operations and actions out
//! - [`action`]: what the shell is asked to do, and the inputs with which it answers
//! - [`guard`]: who may start a turn now, and if not, when and why
//! - [`immune`]: who is to blame when turns fail, and who gets less work, none, or a trial
//! - [`hook`]: an agent's session that everloop did not start, and whether it may stop
//! - [`mesh`]: a loop that many machines work on
//! - [`notify`]: who is told of a ticket, when and how often
//! - [`op`]: what a ledger can be asked to do atomically
//! - [`scoreboard`]: verdicts of checks, and which scoreboard is better
//! - [`entry`]: what an agent may put on the board of tasks
//! - [`tracker`]: what others are still to be told
//! - [`completion`]: signs of being complete, as signals
//! - [`judge`]: what a finished turn amounts to
//! - [`evidence`]: slow, stuck or healthy
//! - [`correlated_stalls`]: several that look stuck at once, which is our own fault
//! - [`phase`]: what an agent with a stream is busy with, and whether it is stuck or spinning
//! - [`stream`]: what an agent's CLI says while it works, in one model
//! - [`telemetry`]: what its telemetry says it used, as a second source
//! - [`pacing`]: how fast an allowance is used, and where that leads
//! - [`recovery`]: what a restarted supervisor does about a turn it finds
//! - [`prompt`]: what the next turn must be told
//! - [`watch`]: what a loop watches, and when
//! - [`why`]: any state in one paragraph
//! - [`journal`]: records with checksums

pub mod action;
pub mod completion;
pub mod correlated_stalls;
pub mod decide;
pub mod entry;
pub mod event;
pub mod evidence;
pub mod guard;
pub mod hook;
pub mod ids;
pub mod immune;
pub mod jitter;
pub mod journal;
pub mod judge;
pub mod mesh;
pub mod notify;
pub mod op;
pub mod pacing;
pub mod phase;
pub mod planted;
pub mod prompt;
pub mod reason;
pub mod recovery;
pub mod scoreboard;
pub mod spec;
pub mod state;
pub mod stream;
pub mod telemetry;
pub mod time;
pub mod tracker;
pub mod watch;
pub mod why;
