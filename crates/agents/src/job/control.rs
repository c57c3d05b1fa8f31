//! What a supervisor can do to a running job: stop it, interrupt it, kill it.

use std::path::Path;
use std::time::{Duration, Instant};

use everloop_core::event::StopCause;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::os::fd::AsFd;

use super::cgroup::Cgroup;
use super::error::JobError;
use super::job_log::{self, Cancelled, JobLog, JobLogEntry, Started};
use super::recover::{JobTrace, inspect};
use super::tree::ProcessTree;
use crate::process::SignalResult;

/// SIGKILL works within milliseconds, or the process hangs in the kernel and does not end at all.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes the shim end the job: SIGTERM to everything, SIGKILL after the job's grace period; a
/// second call skips the grace period.
pub fn stop(dir: &Path, cause: StopCause) -> Result<SignalResult, JobError> {
    job_log::add(dir, &JobLogEntry::Stop(cause))?;
    signal(dir, Signal::SIGTERM)
}

/// Sends SIGINT to the command, which may end its turn in its own way.
pub fn interrupt(dir: &Path) -> Result<SignalResult, JobError> {
    signal(dir, Signal::SIGINT)
}

/// Sends SIGKILL to everything, shim included, for a shim that does not respond. Blocks for some
/// seconds at worst.
pub fn kill(dir: &Path) -> Result<JobTrace, JobError> {
    job_log::add(dir, &JobLogEntry::Cancelled(Cancelled {}))?;
    if let Some(Started { shim, cgroup, .. }) = job_log::started(dir)?.filter(|s| s.shim.is_alive()) {
        // The command first: without its shim the tree below it could no longer be found.
        let tree = ProcessTree { root: shim.pid, cgroup: cgroup.as_deref().and_then(Cgroup::recorded) };
        let end = Instant::now() + KILL_TIMEOUT;
        while !tree.kill().is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let watched = shim.open().map_err(JobError::io("open the shim of", dir))?;
        shim.signal(Signal::SIGKILL).map_err(JobError::io("kill the shim of", dir))?;
        if let Some(fd) = watched {
            let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
            // Whether it ended is determined by `inspect`.
            poll(&mut fds, PollTimeout::try_from(KILL_TIMEOUT).unwrap_or(PollTimeout::MAX)).ok();
        }
    }
    inspect(dir)
}

/// The recorded stop request; `None` when there is none.
pub(super) fn stop_cause(dir: &Path) -> Option<StopCause> {
    JobLog::read(dir).ok()?.stop
}

fn signal(dir: &Path, signal: Signal) -> Result<SignalResult, JobError> {
    match job_log::started(dir)? {
        Some(started) => started.shim.signal(signal).map_err(JobError::io("signal the shim of", dir)),
        None => Ok(SignalResult::NotThere),
    }
}
