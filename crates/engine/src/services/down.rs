//! Stops the supervisor, and removes its unit of a service manager.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::ServiceContext;
use super::up::perform;
use crate::error::Failure;
use crate::unit::{Manager, is_ours};

/// How often to check whether the process is gone.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A unit that was removed.
#[derive(Clone, Debug)]
pub struct RemovedUnit {
    pub path: PathBuf,
    /// Commands of the service manager that worked.
    pub done: Vec<String>,
    pub failed: Vec<String>,
    /// Whether a supervisor runs all the same.
    pub is_supervised: bool,
}

/// Stops the supervisor of the state folder and waits until it is gone; returns its process.
pub fn stop(context: &ServiceContext, timeout: Duration) -> Result<i32, Failure> {
    context.for_a_person("stop the supervisor")?;
    let home = context.home()?;
    let Some(owner) = home.owner() else {
        return Err(Failure::away("no supervisor is running").hint("`everloop status` shows the loops"));
    };
    let sent = owner.process.signal(Signal::SIGTERM);
    sent.map_err(|e| Failure::failed(format!("cannot stop process {}", owner.process.pid)).because(&e))?;
    let begun = Instant::now();
    // The lock is free a moment before the process is gone.
    while home.is_owned() || owner.process.is_alive() {
        if begun.elapsed() > timeout {
            return Err(Failure::failed(format!("process {} is still there after {timeout:?}", owner.process.pid))
                .hint(format!("inspect it, or kill it: kill -9 {}; nothing is lost by that", owner.process.pid)));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(owner.process.pid)
}

/// Stops the service and removes its unit, if it is ours.
pub fn uninstall(context: &ServiceContext) -> Result<RemovedUnit, Failure> {
    context.for_a_person("stop the supervisor")?;
    let home = context.home()?;
    let manager = Manager::here();
    let path = manager.path()?;
    let ours = std::fs::read_to_string(&path).is_ok_and(|text| is_ours(&text));
    if !ours {
        return Err(Failure::failed(format!("`{}` is missing, or was not written by everloop", path.display()))
            .hint("without --uninstall the supervisor is stopped and nothing is removed"));
    }
    let (done, failed) = perform(manager.end(&path));
    std::fs::remove_file(&path)
        .map_err(|e| Failure::failed(format!("cannot remove `{}`", path.display())).because(&e))?;
    Ok(RemovedUnit { path, done, failed, is_supervised: home.is_owned() })
}
