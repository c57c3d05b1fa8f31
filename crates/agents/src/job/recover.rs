//! What is left of a job after a crash, and the guarantee that no process of a lost job lives on.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use everloop_core::event::Exit;
use nix::sys::signal::Signal;

use super::cgroup::Cgroup;
use super::control::kill;
use super::error::JobError;
use super::inside::job_of_shim;
use super::job_log::{self, Cancelled, JobLog, JobLogEntry, Started};
use super::link::LiveJob;
use super::{JOB_VAR, brand, key, temporary};
use crate::process::{self, Identity, Stat};

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
    if let Some(live) = LiveJob::find(dir) {
        if live.shim.is_alive() {
            return Ok(JobTrace::Alive { shim: Some(live.shim.clone()) });
        }
        if let Some(record) = live.ended() {
            return Ok(JobTrace::Exited(record.exit));
        }
    }
    let Ok(JobLog { ended, started, .. }) = JobLog::read(dir) else {
        // Something else in the place of the log: nothing in it counts.
        bury(dir, None);
        job_log::remove_strange(dir)?;
        return Ok(JobTrace::Gone);
    };
    if let Some(record) = ended {
        return Ok(JobTrace::Exited(record.exit));
    }
    let lock = job_log::try_lock(dir)?;
    if lock.is_none() && started.as_ref().is_none_or(|started| started.shim.is_alive()) {
        return Ok(JobTrace::Alive { shim: started.map(|s| s.shim) });
    }
    // It may have ended between the two reads above.
    let JobLog { ended, started, .. } = JobLog::read(dir)?;
    if let Some(record) = ended {
        return Ok(JobTrace::Exited(record.exit));
    }
    // Under the lock: a shim that was forked and has not come this far finds the line and runs
    // nothing. A lock that is held although the shim is dead is held by one of its leftovers.
    job_log::add(dir, &JobLogEntry::Cancelled(Cancelled {}))?;
    bury(dir, started.as_ref());
    Ok(JobTrace::Gone)
}

/// Ends every process of a job without a shim, and removes what the shim would have removed.
pub(super) fn bury(dir: &Path, started: Option<&Started>) {
    if let Some(cgroup) = started.and_then(|s| Cgroup::recorded(s.cgroup.as_deref()?)) {
        empty(&cgroup);
    }
    reap_job(dir);
    if let Some(tmp) = started.and_then(|s| s.tmp.as_deref()) {
        temporary::remove(tmp);
    }
}

/// Kills every process that is of a job for certain: by its mark, by the number that it inherited,
/// as its shim; and, where this process started it, by its session and by having been seen below
/// the shim.
fn reap_job(dir: &Path) {
    let Ok(dir) = dir.canonicalize() else { return };
    let Ok(mark) = key::mark(&dir) else { return };
    let number = key::number(&mark);
    // An earlier release marked them with the folder.
    let marks = [mark.as_bytes(), dir.as_os_str().as_bytes()].map(|value| [JOB_VAR.as_bytes(), b"=", value].concat());
    let live = LiveJob::find(&dir);
    let seen = live.as_ref().map(|live| live.seen()).unwrap_or_default();
    // Its number is no other's as long as its owner has not waited for it.
    let session =
        live.filter(|live| process::stat(live.shim.pid).is_some_and(|s| s.start_ticks == live.shim.start_ticks));
    let session = session.map(|live| live.shim.pid);
    reap(|stat| {
        Some(stat.session) == session
            || seen.contains(&(stat.pid, stat.start_ticks))
            || number.is_some() && brand::of(stat.pid) == number
            || marks.iter().any(|mark| has_variable(stat.pid, mark))
            || job_of_shim(stat.pid).is_some_and(|job| job == dir)
    });
}

/// Makes the folder ready for another job. The folder of an ended job is reused, which saves
/// creating one; any other job is ended first and removed, so that it cannot be started late.
pub fn clear(dir: &Path) -> Result<(), JobError> {
    job_log::remove_strange(dir)?;
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
    reap(|stat| has_variable(stat.pid, &mark))
}

fn reap(is_ours: impl Fn(&Stat) -> bool) -> usize {
    let spared = process::with_ancestors(std::process::id() as i32);
    let end = Instant::now() + WAIT_TIMEOUT;
    let mut killed = BTreeSet::new();
    let mut quiet_looks = 0;
    // Two empty scans: a process is invisible for a moment while it executes another program.
    while quiet_looks < 2 && Instant::now() < end {
        // The identity of each is read before anything else about it, so that a reused pid cannot
        // be mistaken for it.
        let alive = process::all().into_iter().filter(|pid| !spared.contains(pid)).filter_map(process::stat);
        let found: Vec<Identity> =
            alive.filter(Stat::is_alive).filter(|stat| is_ours(stat)).map(|stat| stat.identity()).collect();
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

fn has_variable(pid: i32, entry: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|b| *b == 0).any(|variable| variable == entry)
}
