//! What a supervisor can do to a running job: stop it, interrupt it, kill it. Nothing here waits
//! for a file of the job: a job that this process started is reached by its descriptor.

use std::path::Path;
use std::time::{Duration, Instant};

use everloop_core::event::StopCause;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::os::fd::AsFd;

use super::cgroup::Cgroup;
use super::error::JobError;
use super::job_log::{self, Cancelled, JobLog, JobLogEntry, Started};
use super::link::{self, LiveJob};
use super::recover::{JobTrace, bury, inspect};
use super::tree::ProcessTree;
use crate::process::SignalResult;

/// SIGKILL works within milliseconds, or the process hangs in the kernel and does not end at all.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes the shim end the job: SIGTERM to everything, SIGKILL after the job's grace period; a
/// second call skips the grace period.
pub fn stop(dir: &Path, cause: StopCause) -> Result<SignalResult, JobError> {
    let logged = job_log::add(dir, &JobLogEntry::Stop(cause));
    let live = LiveJob::find(dir);
    if let Some(live) = &live {
        live.stops(cause);
    }
    match (known_start(dir), live, logged) {
        (Ok(Some(started)), _, _) => {
            let sent = started.shim.signal(Signal::SIGTERM).map_err(JobError::io("signal the shim of", dir))?;
            // A shim that its command has stopped would not read it.
            started.shim.signal(Signal::SIGCONT).map_err(JobError::io("signal the shim of", dir))?;
            Ok(sent)
        }
        // It finds the request before it begins.
        (_, _, Ok(())) => Ok(SignalResult::NotThere),
        // It could not find it, so it must not begin.
        (_, Some(live), Err(_)) => live.signal(Signal::SIGKILL).map_err(JobError::io("signal the shim of", dir)),
        (_, None, Err(error)) => Err(error),
    }
}

/// Sends SIGINT to the command, which may end its turn in its own way.
pub fn interrupt(dir: &Path) -> Result<SignalResult, JobError> {
    match known_start(dir)? {
        Some(started) => started.shim.signal(Signal::SIGINT).map_err(JobError::io("signal the shim of", dir)),
        None => Ok(SignalResult::NotThere),
    }
}

/// Sends SIGKILL to everything, shim included, for a shim that does not respond. Blocks for some
/// seconds at worst.
pub fn kill(dir: &Path) -> Result<JobTrace, JobError> {
    // Without the line a shim that is not there yet could begin; one that is there is killed, and a
    // log that cannot be written holds no job.
    job_log::add(dir, &JobLogEntry::Cancelled(Cancelled {})).ok();
    let live = LiveJob::find(dir);
    let started = known_start(dir).ok().flatten();
    let shim = started.as_ref().map(|s| &s.shim).or_else(|| live.as_ref().map(|live| &live.shim));
    if let Some(shim) = shim.filter(|shim| shim.is_alive()) {
        // The command first: without its shim the tree below it could no longer be found.
        let cgroup = started.as_ref().and_then(|s| Cgroup::recorded(s.cgroup.as_deref()?));
        let tree = ProcessTree { root: shim.pid, cgroup };
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
    match inspect(dir)? {
        // The lock is held by a process that is not the shim, or by a shim without a report.
        JobTrace::Alive { shim: None } => {
            bury(dir, started.as_ref());
            Ok(JobTrace::Gone)
        }
        other => Ok(other),
    }
}

/// Kills the jobs below a folder that this process started, and starts no others there: the process
/// is about to end, and its successor runs them again. Blocks for some seconds at worst.
pub fn close(below: &Path) {
    for dir in link::close(below) {
        // Best effort: a job that cannot be killed has a shim with a limit of its own.
        kill(&dir).ok();
    }
}

/// The report of the shim: at first hand where this process started it, else as it is signed in the
/// log.
pub(super) fn known_start(dir: &Path) -> Result<Option<Started>, JobError> {
    if let Some(started) = LiveJob::find(dir).and_then(|live| live.started()) {
        return Ok(Some(started));
    }
    Ok(JobLog::read(dir)?.started)
}

#[cfg(test)]
mod tests {
    use super::super::spec::{Spec, prepare};
    use super::*;
    use crate::process::Identity;
    use everloop_core::time::Time;
    use std::process::{Command, Stdio};

    #[test]
    fn a_reused_number_is_not_signalled() {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path(), &Spec::new(vec!["true".to_owned()], "/")).unwrap();
        let mut stranger = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let real = Identity::of(stranger.id() as i32).unwrap();
        let (later, other) = (real.start_ticks + 1, "another".to_owned());
        for shim in [Identity { start_ticks: later, ..real.clone() }, Identity { boot: other, ..real.clone() }] {
            let started = Started { shim: shim.clone(), cgroup: None, started_at: Time(0), tmp: None };
            job_log::add(dir.path(), &JobLogEntry::Started(started)).unwrap();
            // The last report of a shim's identity counts.
            assert_eq!(job_log::started(dir.path()).unwrap().unwrap().shim, shim);
            assert_eq!(stop(dir.path(), StopCause::Person).unwrap(), SignalResult::NotThere);
            assert_eq!(interrupt(dir.path()).unwrap(), SignalResult::NotThere);
            kill(dir.path()).unwrap();
            assert!(real.is_alive());
        }
        drop(stranger.stdin.take());
        assert!(stranger.wait().unwrap().success());
    }
}
