//! What is left of a job after a crash, and the guarantee that no process of a lost job lives on.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use everloop_core::event::Exit;
use nix::sys::signal::Signal;

use super::JOB_VAR;
use super::cgroup::Cgroup;
use super::control::kill;
use super::error::JobError;
use super::job_log::{self, Cancelled, JobLog, JobLogEntry};
use super::temporary;
use crate::process::{self, Identity};

/// SIGKILL works within milliseconds, or the process hangs in the kernel and does not end at all.
const WAIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Poll interval for the process table.
const RECHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobTrace {
    /// Its shim runs.
    Alive {
        /// `None` when it has only just begun.
        shim: Option<Identity>,
    },
    /// It ended and left its record.
    Exited(Exit),
    /// No shim and no record. No process of it runs and it will never be started.
    Gone,
}

/// Determines the state of a job. Only for the job's owner: a job that is not alive is cancelled
/// for good, and whatever its killed shim left behind is killed (which may block for some seconds
/// at worst).
pub fn inspect(dir: &Path) -> Result<JobTrace, JobError> {
    if !dir.exists() {
        return Ok(JobTrace::Gone);
    }
    if let Some(record) = job_log::record(dir)? {
        return Ok(JobTrace::Exited(record.exit));
    }
    let Some(_lock) = job_log::try_lock(dir)? else {
        return Ok(JobTrace::Alive { shim: job_log::started(dir)?.map(|s| s.shim) });
    };
    // It may have ended between the two reads above.
    let JobLog { ended, started, .. } = JobLog::read(dir)?;
    if let Some(record) = ended {
        return Ok(JobTrace::Exited(record.exit));
    }
    // Under the lock: a shim that was forked and has not come this far finds the line and runs
    // nothing.
    job_log::add(dir, &JobLogEntry::Cancelled(Cancelled {}))?;
    let (cgroup, tmp) = started.map_or((None, None), |s| (s.cgroup, s.tmp));
    if let Some(cgroup) = cgroup.as_deref().and_then(Cgroup::recorded) {
        empty(&cgroup);
    }
    let mark = fs::canonicalize(dir).map_err(JobError::io("resolve", dir))?;
    reap_marked(JOB_VAR, mark.as_os_str());
    if let Some(tmp) = tmp {
        temporary::remove(&tmp);
    }
    Ok(JobTrace::Gone)
}

/// Makes the folder ready for another job. The folder of an ended job is reused, which saves
/// creating one; any other job is ended first and removed, so that it cannot be started late.
pub fn clear(dir: &Path) -> Result<(), JobError> {
    if job_log::wipe(dir)? {
        return Ok(());
    }
    if let JobTrace::Alive { .. } = inspect(dir)? {
        kill(dir)?;
    }
    fs::remove_dir_all(dir).map_err(JobError::io("remove", dir))
}

/// Whether there is nothing to clear.
pub fn is_clear(dir: &Path) -> bool {
    job_log::is_blank(dir)
}

fn empty(cgroup: &Cgroup) {
    let end = Instant::now() + WAIT_TIMEOUT;
    while !cgroup.is_empty() && Instant::now() < end {
        cgroup.kill();
        std::thread::sleep(RECHECK_INTERVAL);
    }
    cgroup.remove();
}

/// Kills every process with `name=value` in its environment, except this one and its ancestors;
/// returns how many.
///
/// The last resort: finds grandchildren that left their session and lost their shim. Commands get
/// `EVERLOOP_TURN` from the supervisor and [`JOB_VAR`] from [`super::start`].
pub fn reap_marked(name: &str, value: &OsStr) -> usize {
    let mark = [name.as_bytes(), b"=", value.as_bytes()].concat();
    let spared = process::with_ancestors(std::process::id() as i32);
    let end = Instant::now() + WAIT_TIMEOUT;
    let mut killed = BTreeSet::new();
    let mut quiet_looks = 0;
    // Two empty scans: a process is invisible for a moment while it executes another program.
    while quiet_looks < 2 && Instant::now() < end {
        let found: Vec<Identity> = process::all()
            .into_iter()
            .filter(|pid| !spared.contains(pid))
            .filter_map(|pid| marked(pid, &mark))
            .collect();
        quiet_looks = if found.is_empty() { quiet_looks + 1 } else { 0 };
        for process in found {
            // Best effort: a process that cannot be signalled is found again until the timeout.
            process.signal(Signal::SIGKILL).ok();
            killed.insert((process.pid, process.start_ticks));
        }
        std::thread::sleep(RECHECK_INTERVAL);
    }
    killed.len()
}

/// The process, if it is alive and carries the mark. Its identity is read before its environment,
/// so that a reused pid cannot be mistaken for it.
fn marked(pid: i32, mark: &[u8]) -> Option<Identity> {
    let stat = process::stat(pid).filter(process::Stat::is_alive)?;
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    environment.split(|b| *b == 0).any(|entry| entry == mark).then(|| stat.identity())
}
