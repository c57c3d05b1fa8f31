//! One mechanism for everything that everloop runs: agents, checks, setup commands.
//!
//! A job has a folder of its own. The supervisor does not run the command: it starts a *shim* (its
//! own binary) that runs the command, reads its output, enforces its limits, kills what it leaves
//! behind and records how it ended. The shim outlives the supervisor, so a killed supervisor loses
//! nothing: the next one reads the folder.
//!
//! - `spec`: what to run; `job_log`: the job log
//! - `shim`: the shim itself; `capture`, `marker`, `text`: how it processes output; `output`,
//!   `tail`: reading it back
//! - `key`: what its lines are signed with; `link`: the line between supervisor and shim, and the
//!   jobs of this process; `files`: how its files are opened
//! - `brand`, `inside`: how processes of a job are recognised, from outside and by themselves
//! - `carried`: how the variables reach the shim; `temporary`: the command's own folder for such
//!   files; `turn_socket`: how `everloop` inside of a turn reaches the outside
//! - `fork_server`: a process that forks shims; `clone`: forks that the standard library has not
//! - `handle`: start, wait, adopt; `recover`: what is left after a crash; `control`: stop,
//!   interrupt, kill
//! - `sample`: liveness; `cgroup`, `tree`: finding and killing everything that belongs to a job

mod brand;
mod capture;
mod carried;
mod cgroup;
mod clone;
mod control;
mod error;
mod files;
mod fork_server;
mod handle;
mod inside;
mod job_log;
mod key;
mod link;
mod marker;
mod output;
mod recover;
mod sample;
mod shim;
mod spec;
mod tail;
pub(crate) mod temporary;
mod text;
mod tree;
pub mod turn_socket;

pub use capture::Stream;
pub use control::{close, interrupt, kill, stop};
pub use error::JobError;
pub use files::create_private;
pub use handle::{JobEnd, Running, ShimProgram, adopt, start};
pub use inside::{InsideJob, inside_job, job_of_process};
pub use job_log::{JobRecord, Started, foreign_lines, record, started};
pub use output::{both_ends, output};
pub use recover::{JobTrace, clear, inspect, is_clear, reap_marked};
pub use sample::{LivenessSample, sample};
pub use shim::run_shim;
pub use spec::{Confine, Errors, OutputCaps, Spec, prepare};
pub use tail::{Tail, TailChunk};
pub use text::plain;

/// Variables with this prefix are for the shim alone: it redacts their values from the output and
/// does not pass them to the command.
pub const HIDE_PREFIX: &str = "EVERLOOP_HIDE_";

/// The argument with which the main binary becomes a shim.
pub const SHIM_ARG: &str = "__job";

/// Set by [`start`] to the job's mark. It identifies all processes of a job, even when the shim was
/// killed. It is no path: a command does not learn its job's folder from it.
pub const JOB_VAR: &str = "EVERLOOP_JOB";

/// The mark of the job in this folder.
pub fn mark(dir: &std::path::Path) -> std::io::Result<String> {
    key::mark(dir)
}

/// The beginning of the marks of all jobs in a state folder.
pub fn state_mark(root: &std::path::Path) -> std::io::Result<String> {
    key::state_mark(root)
}
