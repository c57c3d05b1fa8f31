//! The part of everloop that acts: processes, checks, git workspaces.
//!
//! - [`job`]: one mechanism to run an agent, a check or a setup command so that nothing leaks
//! - [`environment`]: what such a command may see; [`redact`]: what its output must not show
//! - [`workspace`]: where turns work and how their work reaches the operator; [`git`]: how git is called
//! - [`check`]: the commands that say whether the goal is reached; [`protect`]: what a turn may not change for that
//! - [`process`]: who a process is; [`clock`]: the clocks of this machine

pub mod check;
pub mod clock;
pub mod environment;
pub mod git;
pub mod job;
pub mod process;
pub mod protect;
pub mod redact;
pub mod workspace;
