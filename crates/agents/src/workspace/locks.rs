//! Locks that a killed git left in a git folder of everloop. Locks in a person's worktree are
//! reported elsewhere and never removed.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep};

use super::WorkspaceError;

/// A live git holds its lock for moments; after this long without a git process its owner is dead.
const STALE_AFTER: Duration = Duration::from_secs(10);

/// How long to wait for a lock with a living owner.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Removes `lock`, which guards an index of the files in `tree`, if its owner is dead; waits for a
/// living one.
pub(super) async fn clear_stale(lock: &Path, tree: &Path) -> Result<(), WorkspaceError> {
    let until = Instant::now() + WAIT_TIMEOUT;
    while let Ok(meta) = fs::symlink_metadata(lock) {
        let touched = meta.modified().map_err(WorkspaceError::files("look at", lock))?;
        let age = SystemTime::now().duration_since(touched).unwrap_or_default();
        if age >= STALE_AFTER && !git_runs_in(tree) {
            fs::remove_file(lock).map_err(WorkspaceError::files("remove", lock))?;
        } else if Instant::now() >= until {
            return Err(WorkspaceError::Locked { path: lock.to_owned() });
        } else {
            sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

/// Whether a git process works in `tree`. Where there is no `/proc`, age alone decides.
fn git_runs_in(tree: &Path) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    processes.flatten().map(|p| p.path()).any(|process| {
        fs::read_to_string(process.join("comm")).is_ok_and(|name| name.starts_with("git"))
            && fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(tree))
    })
}
