//! Locks: the one that keeps two loops from creating worktrees at once, and those that a killed git
//! left in a private worktree. Locks in a person's worktree are reported elsewhere and never
//! removed.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep};

use super::WorkspaceError;

/// A live git holds its lock for moments; after this long without a git process its owner is dead.
const STALE_AFTER: Duration = Duration::from_secs(10);

/// How long to wait for a lock with a living owner.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Creating a worktree of a large repository takes minutes, and others queue behind it.
const SHARED_LOCK_TIMEOUT: Duration = Duration::from_secs(900);

/// Poll interval for both kinds of locks.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A lock between all loops that keep their worktrees in the same folder.
#[derive(Clone, Debug)]
pub(super) struct Shared(PathBuf);

impl Shared {
    /// The lock file; created when it is first held.
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Waits for the lock; it is held until the file is dropped, also when this process is killed.
    pub async fn hold(&self) -> Result<File, WorkspaceError> {
        let file =
            File::options().create(true).append(true).open(&self.0).map_err(WorkspaceError::files("open", &self.0))?;
        let until = Instant::now() + SHARED_LOCK_TIMEOUT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < until => sleep(POLL_INTERVAL).await,
                Err(TryLockError::WouldBlock) => return Err(WorkspaceError::Locked { path: self.0.clone() }),
                Err(TryLockError::Error(source)) => return Err(WorkspaceError::files("lock", &self.0)(source)),
            }
        }
    }
}

/// Removes locks in the git folder `admin` of the private worktree `tree` whose owner is dead;
/// waits for a living one.
pub(super) async fn clear_stale(admin: &Path, tree: &Path) -> Result<(), WorkspaceError> {
    let until = Instant::now() + WAIT_TIMEOUT;
    for name in ["index.lock", "HEAD.lock"] {
        let lock = admin.join(name);
        while let Ok(meta) = fs::symlink_metadata(&lock) {
            let touched = meta.modified().map_err(WorkspaceError::files("look at", &lock))?;
            let age = SystemTime::now().duration_since(touched).unwrap_or_default();
            if age >= STALE_AFTER && !git_runs_in(tree) {
                fs::remove_file(&lock).map_err(WorkspaceError::files("remove", &lock))?;
            } else if Instant::now() >= until {
                return Err(WorkspaceError::Locked { path: lock });
            } else {
                sleep(POLL_INTERVAL).await;
            }
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
