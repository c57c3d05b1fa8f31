//! What a supervisor can do to a running job: stop it, interrupt it, kill it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use everloop_core::event::StopCause;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::os::fd::AsFd;

use super::cgroup::Cgroup;
use super::error::Error;
use super::files::{self, Started};
use super::recover::{Found, inspect};
use super::tree::Tree;
use crate::process::Reach;

/// SIGKILL works within milliseconds, or the process sits in the kernel and does not end at all.
const KILL_PATIENCE: Duration = Duration::from_secs(2);

/// Tells the shim to end the job: SIGTERM to everything, SIGKILL after the job's grace; asked twice, at once.
pub fn stop(dir: &Path, cause: StopCause) -> Result<Reach, Error> {
    let path = dir.join(files::STOP);
    let text = serde_json::to_vec(&cause).map_err(|source| Error::Damaged { path: path.clone(), source })?;
    // The first cause stays: it is the one that stopped the job.
    if !path.exists() {
        files::write_whole(dir, files::STOP, &text).map_err(Error::io("write", &path))?;
    }
    signal(dir, Signal::SIGTERM)
}

/// SIGINT to the command, which may end its turn in its own way.
pub fn interrupt(dir: &Path) -> Result<Reach, Error> {
    signal(dir, Signal::SIGINT)
}

/// SIGKILL to everything, shim included, for a shim that does not obey. Blocks for some seconds at worst.
pub fn kill(dir: &Path) -> Result<Found, Error> {
    let path = dir.join(files::CANCELLED);
    files::write_whole(dir, files::CANCELLED, b"").map_err(Error::io("write", &path))?;
    if let Some(Started { shim, cgroup, .. }) = files::started(dir)?.filter(|s| s.shim.is_alive()) {
        // The command first: without its shim the tree below it could no longer be found.
        let tree = Tree { root: shim.pid, cgroup: cgroup.as_deref().and_then(Cgroup::recorded) };
        let end = Instant::now() + KILL_PATIENCE;
        while !tree.kill().is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let watched = shim.open().map_err(Error::io("open the shim of", dir))?;
        shim.signal(Signal::SIGKILL).map_err(Error::io("kill the shim of", dir))?;
        if let Some(fd) = watched {
            let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
            // Whether it ended is found out by `inspect`.
            poll(&mut fds, PollTimeout::try_from(KILL_PATIENCE).unwrap_or(PollTimeout::MAX)).ok();
        }
    }
    inspect(dir)
}

/// Why somebody wants the job to stop; `None` when nobody does.
pub(super) fn stop_cause(dir: &Path) -> Option<StopCause> {
    let text = fs::read(dir.join(files::STOP)).ok()?;
    // A file that cannot be read as a cause is still a wish to stop.
    Some(serde_json::from_slice(&text).unwrap_or(StopCause::Shutdown))
}

fn signal(dir: &Path, signal: Signal) -> Result<Reach, Error> {
    match files::started(dir)? {
        Some(started) => started.shim.signal(signal).map_err(Error::io("signal the shim of", dir)),
        None => Ok(Reach::NotThere),
    }
}
