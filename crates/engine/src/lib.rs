//! The engine: everything that runs, behind typed requests and answers. No command line, no
//! printing, no HTTP: front ends parse, call a function of this crate, and show its answer.
//!
//! - [`services`]: what verbs of the command line, tools of MCP and HTTP handlers do
//! - [`supervisor`]: the shell around the pure loop of `everloop-core`, with the mesh node
//! - [`board`]: which task of a loop is next, and the board as a file; [`mailbox`]: messages;
//!   [`tickets`]: answers to questions for a person; [`outboxes`]: what channels were sent
//! - [`hook`]: sessions that everloop did not start; [`handoffs`]: what they leave; [`completion`]: signs of being complete;
//!   [`install`]: what makes their CLIs know of everloop; [`unit`]: service managers
//! - [`hold`]: freezes by a person; [`immune`]: quarantine rules; [`record`]: stored states, and
//!   events beside a supervisor; [`recover`]: a ledger from its mirror; [`tally`]: usage of turns;
//!   [`replay`]: whether states follow from the journal; [`research`]: the table of experiments
//! - [`state_folder`]: the state folder and its lock; [`membership`]: the mesh this node is in,
//!   [`node_keys`]: its keys there; [`projects`]: the configuration of folders, as typed answers;
//!   [`trust`]: the one in force; [`account`]: variables of accounts; [`brought`]: the environment
//!   of a `run` that joins; [`caller`]: the person or agent that acts; [`calendar`]: zones
//! - [`isolation`]: what a loop's commands may reach on this machine; [`gate`]: the guard before CLIs
//!   that a command starts
//! - [`figures`], [`telemetry`], [`port`], [`token`]: what a supervisor publishes, and where
//! - [`error`]: failures with hints and exit codes; [`diagnostic`]: mistakes in files; [`text`],
//!   [`quantities`]: safe text, times and money in words

pub mod account;
pub mod board;
pub mod brought;
pub mod calendar;
pub mod caller;
pub mod completion;
pub mod diagnostic;
pub mod error;
pub mod figures;
pub mod gate;
pub mod handoffs;
pub mod hold;
pub mod hook;
pub mod immune;
pub mod install;
pub mod isolation;
pub mod mailbox;
pub mod membership;
pub mod node_files;
pub mod node_keys;
pub mod outboxes;
pub mod permissions;
pub mod port;
pub mod projects;
pub mod quantities;
pub mod record;
pub mod recover;
pub mod replay;
pub mod research;
pub mod services;
pub mod state_folder;
pub mod supervisor;
pub mod tally;
pub mod telemetry;
pub mod text;
pub mod tickets;
pub mod token;
pub mod trust;
pub mod unit;
