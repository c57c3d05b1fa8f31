//! The folder of the panes: one private file per pane, written atomically, and locks so that two
//! processes do not type at once.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::{Pane, PaneError, PaneName};

/// Typing takes well under a second; a longer hold means that the holder hangs.
const LOCK_LIMIT: Duration = Duration::from_secs(30);
/// Poll interval for the lock.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A look at the lock of a turn holds it for an instant; whatever holds it for longer is a turn.
const PROBE_LIMIT: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
pub(super) struct PaneFiles {
    dir: PathBuf,
}

impl PaneFiles {
    /// Creates the folder if missing, and verifies that it is private to this user.
    pub(super) fn open(dir: PathBuf) -> Result<Self, PaneError> {
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(PaneError::io("make", &dir))?;
        // Does not follow a link: a folder that another user put in its place is not used.
        let there = fs::symlink_metadata(&dir).map_err(PaneError::io("look at", &dir))?;
        let us = fs::metadata("/proc/self").map_err(PaneError::io("look at", Path::new("/proc/self")))?.uid();
        if !there.is_dir() || there.uid() != us {
            return Err(PaneError::io("use", &dir)(io::Error::other("it is not a folder of this user")));
        }
        if there.mode() & 0o077 != 0 {
            let private = fs::Permissions::from_mode(0o700);
            fs::set_permissions(&dir, private).map_err(PaneError::io("protect", &dir))?;
        }
        Ok(Self { dir })
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.dir.join("tmux.sock")
    }

    fn path(&self, name: &PaneName, ending: &str) -> PathBuf {
        self.dir.join(format!("{name}.{ending}"))
    }

    /// Records a pane.
    pub(super) fn write(&self, pane: &Pane) -> Result<(), PaneError> {
        let path = self.path(&pane.name, "json");
        let aside = self.path(&pane.name, &format!("new.{}", std::process::id()));
        let text = serde_json::to_vec(pane).expect("a pane is plain data and always has a JSON form");
        let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside);
        let written = opened.and_then(|mut f| f.write_all(&text).and_then(|()| f.sync_all()));
        let done = written.and_then(|()| fs::rename(&aside, &path));
        if done.is_err() {
            // Best effort: the first error is the one to report.
            fs::remove_file(&aside).ok();
        }
        done.map_err(PaneError::io("write", &path))
    }

    /// A pane by its name.
    pub(super) fn read(&self, name: &PaneName) -> Result<Option<Pane>, PaneError> {
        let path = self.path(name, "json");
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|source| PaneError::Damaged { path, source }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(PaneError::io("read", &path)(e)),
        }
    }

    /// All recorded panes, by name.
    pub(super) fn all(&self) -> Result<Vec<Pane>, PaneError> {
        let mut panes = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(PaneError::io("read", &self.dir))? {
            let path = entry.map_err(PaneError::io("read", &self.dir))?.path();
            let stem = path.file_stem().and_then(|s| s.to_str()).and_then(|s| s.parse::<PaneName>().ok());
            if let Some(name) = stem.filter(|_| path.extension().is_some_and(|e| e == "json")) {
                panes.extend(self.read(&name)?);
            }
        }
        panes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(panes)
    }

    /// Removes the record of a pane.
    pub(super) fn forget(&self, name: &PaneName) -> Result<(), PaneError> {
        let path = self.path(name, "json");
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(PaneError::io("remove", &path)(e)),
            _ => Ok(()),
        }
    }

    /// Waits for the lock that is needed to change a pane or to type into it.
    pub(super) fn lock(&self, name: &PaneName) -> Result<Flock<File>, PaneError> {
        let end = Instant::now() + LOCK_LIMIT;
        loop {
            match self.try_lock(name, "lock", "using") {
                Err(PaneError::Busy { .. }) if Instant::now() < end => std::thread::sleep(LOCK_POLL_INTERVAL),
                other => return other,
            }
        }
    }

    /// The lock for running a turn in a pane; two at once would read each other's answer.
    pub(super) fn lock_turn(&self, name: &PaneName) -> Result<Flock<File>, PaneError> {
        let end = Instant::now() + PROBE_LIMIT;
        loop {
            match self.try_turn(name) {
                Err(PaneError::Busy { .. }) if Instant::now() < end => std::thread::sleep(LOCK_POLL_INTERVAL),
                other => return other,
            }
        }
    }

    fn try_turn(&self, name: &PaneName) -> Result<Flock<File>, PaneError> {
        self.try_lock(name, "turn", "running a turn in")
    }

    /// Whether a turn runs in a pane.
    pub(super) fn in_turn(&self, name: &PaneName) -> bool {
        matches!(self.try_turn(name), Err(PaneError::Busy { .. }))
    }

    /// When something was typed into a pane last.
    pub(super) fn typed_at(&self, name: &PaneName) -> Option<SystemTime> {
        fs::metadata(self.path(name, "lock")).and_then(|about| about.modified()).ok()
    }

    fn try_lock(&self, name: &PaneName, ending: &str, what: &'static str) -> Result<Flock<File>, PaneError> {
        let path = self.path(name, ending);
        let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        match Flock::lock(opened.map_err(PaneError::io("open", &path))?, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(lock),
            Err((_, Errno::EWOULDBLOCK)) => Err(PaneError::Busy { what, name: name.to_string() }),
            Err((_, e)) => Err(PaneError::io("lock", &path)(e.into())),
        }
    }
}

/// Remembers the time of typing: it is that of the lock's file, so that no write can be half done.
pub(super) fn mark_typed(lock: &File) {
    // Best effort: without it, work on a prompt may count as one start more.
    lock.set_modified(SystemTime::now()).ok();
}

/// Whether a program can be started in this folder; tmux would silently take another one.
pub(super) fn is_folder(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_dir())
}
