//! The binary as a user meets it: one file per verb, and `tidy` for the tree itself. `env` is the world of a test.

mod config;
mod doctor;
mod env;
mod guard;
mod init;
mod logs;
mod replay;
mod show;
mod status;
mod task;
mod tidy;
