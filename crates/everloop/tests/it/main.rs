//! The binary as a user meets it: one file per verb, and `tidy` for the tree itself. `env` is the world of a test.

mod agents;
mod api;
mod config;
mod demo;
mod doctor;
mod env;
mod guard;
mod hostile;
mod hub;
mod init;
mod kill;
mod logs;
mod pace;
mod pane;
mod readme;
mod replay;
mod run;
mod secrets;
mod show;
mod status;
mod storm;
mod task;
mod tidy;
mod triage;
mod untouched;
mod usage;
