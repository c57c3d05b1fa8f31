//! What is left of a job after a crash, and the certainty that nothing of a lost one lives on.

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
use super::error::Error;
use super::files;
use crate::process::{self, Identity};

/// SIGKILL works within milliseconds, or the process sits in the kernel and does not end at all.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks at the process table.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What was found of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Its shim runs.
    Alive {
        /// Who it is; `None` when it has only just begun.
        shim: Option<Identity>,
    },
    /// It ended and left its record.
    Exited(Exit),
    /// No shim and no record. Nothing of it runs and it will never be started.
    Gone,
}

/// Finds out what became of a job. Only for the job's owner: a job that is not alive is cancelled for good, and
/// whatever its killed shim left behind is killed (which may block for some seconds at worst).
pub fn inspect(dir: &Path) -> Result<Found, Error> {
    if !dir.exists() {
        return Ok(Found::Gone);
    }
    if let Some(exit) = readable_exit(dir)? {
        return Ok(Found::Exited(exit));
    }
    let Some(_lock) = files::try_lock(dir)? else {
        return Ok(Found::Alive { shim: readable(files::started(dir))?.map(|s| s.shim) });
    };
    // It may have ended between the two looks above.
    if let Some(exit) = readable_exit(dir)? {
        return Ok(Found::Exited(exit));
    }
    // Under the lock: a shim that was forked and has not come this far finds the file and runs nothing.
    let path = dir.join(files::CANCELLED);
    files::write_whole(dir, files::CANCELLED, b"").map_err(Error::io("write", &path))?;
    let started = readable(files::started(dir))?;
    if let Some(cgroup) = started.and_then(|s| s.cgroup).as_deref().and_then(Cgroup::recorded) {
        empty(&cgroup);
    }
    let mark = fs::canonicalize(dir).map_err(Error::io("resolve", dir))?;
    reap_marked(JOB_VAR, mark.as_os_str());
    Ok(Found::Gone)
}

/// After a power cut a file may be there without its content: then it is as good as absent.
fn readable<T>(read: Result<Option<T>, Error>) -> Result<Option<T>, Error> {
    match read {
        Err(Error::Damaged { .. }) => Ok(None),
        other => other,
    }
}

fn readable_exit(dir: &Path) -> Result<Option<Exit>, Error> {
    Ok(readable(files::record(dir))?.map(|r| r.exit))
}

fn empty(cgroup: &Cgroup) {
    let end = Instant::now() + PATIENCE;
    while !cgroup.is_empty() && Instant::now() < end {
        cgroup.kill();
        std::thread::sleep(LOOK_AGAIN);
    }
    cgroup.remove();
}

/// Kills every process whose environment says `name=value`, except us and our ancestors; returns how many.
///
/// The last resort: finds grandchildren that left their session and whose shim was killed. Commands get
/// `EVERLOOP_TURN` from the supervisor and [`JOB_VAR`] from [`super::start`].
pub fn reap_marked(name: &str, value: &OsStr) -> usize {
    let mark = [name.as_bytes(), b"=", value.as_bytes()].concat();
    let spared = process::with_ancestors(std::process::id() as i32);
    let end = Instant::now() + PATIENCE;
    let mut killed = BTreeSet::new();
    let mut quiet_looks = 0;
    // Twice nothing: a process is invisible for a moment while it executes another program.
    while quiet_looks < 2 && Instant::now() < end {
        let found: Vec<Identity> = process::all()
            .into_iter()
            .filter(|pid| !spared.contains(pid))
            .filter_map(|pid| marked(pid, &mark))
            .collect();
        quiet_looks = if found.is_empty() { quiet_looks + 1 } else { 0 };
        for process in found {
            // Best effort: who may not be signalled by us is found again until the patience ends.
            process.signal(Signal::SIGKILL).ok();
            killed.insert((process.pid, process.start_ticks));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    killed.len()
}

/// The process, if it is alive and carries the mark. Looked up before its environment is read, so that a number that
/// is reused meanwhile cannot be mistaken.
fn marked(pid: i32, mark: &[u8]) -> Option<Identity> {
    let stat = process::stat(pid).filter(process::Stat::is_alive)?;
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    environment.split(|b| *b == 0).any(|entry| entry == mark).then(|| stat.identity())
}
