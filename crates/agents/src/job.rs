//! One mechanism for everything that everloop runs: agents, checks, setup commands.
//!
//! A job lives in a folder of its own. The supervisor does not run the command: it starts a *shim* (its own binary)
//! that runs the command, reads its output, enforces its limits, kills what it leaves behind and writes down how it
//! ended. The shim survives the supervisor, so a killed supervisor loses nothing: the next one looks into the folder.
//!
//! - `spec`: what to run; `job_log`: what is written down about it
//! - `shim`: the shim itself; `capture`, `marker`, `text`: what it does with output; `output`, `tail`: reading it back
//! - `handle`: start, wait, adopt; `recover`: what is left after a crash; `control`: stop, interrupt, kill
//! - `sample`: signs of life; `cgroup`, `tree`: finding and killing everything that belongs to a job

mod capture;
mod cgroup;
mod control;
mod error;
mod handle;
mod job_log;
mod marker;
mod output;
mod recover;
mod sample;
mod shim;
mod spec;
mod tail;
mod text;
mod tree;

pub use capture::Stream;
pub use control::{interrupt, kill, stop};
pub use error::JobError;
pub use handle::{JobEnd, Running, ShimProgram, adopt, start};
pub use job_log::{JobRecord, Started, record, started};
pub use output::{both_ends, output};
pub use recover::{JobTrace, clear, inspect, is_clear, reap_marked};
pub use sample::{LivenessSample, sample};
pub use shim::run_shim;
pub use spec::{Confine, Errors, OutputCaps, Spec, prepare};
pub use tail::{Tail, TailChunk};
pub use text::plain;

/// Variables that begin so are for the shim alone: it takes their values out of the output and hides them from the command.
pub const HIDE_PREFIX: &str = "EVERLOOP_HIDE_";

/// The argument with which the main binary becomes a shim.
pub const SHIM_ARG: &str = "__job";

/// Set by [`start`] to the job's folder; by it everything a job started is found even when its shim was killed.
pub const JOB_VAR: &str = "EVERLOOP_JOB";
