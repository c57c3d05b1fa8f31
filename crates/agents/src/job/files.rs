//! The files in a job's folder: names, formats, how they are written. Output files are [`super::capture`]'s.
//!
//! Files appear whole (written aside and renamed) but are not synced: after a power cut a missing record means that
//! the job is gone, which recovery handles anyway, while a sync per check would cost more than the check.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use everloop_core::event::Exit;
use everloop_core::time::Time;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::Error;
use crate::process::Identity;

/// What to run.
pub(super) const JOB: &str = "job.json";
/// Held by the shim for its whole life.
pub(super) const LOCK: &str = "lock";
/// Who the shim is.
pub(super) const STARTED: &str = "shim.json";
/// How it ended.
pub(super) const EXIT: &str = "exit.json";
/// A shim that finds this runs nothing.
pub(super) const CANCELLED: &str = "cancelled";
/// Why the job is being stopped.
pub(super) const STOP: &str = "stop";

/// Version of every file written here.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u32,
    #[serde(flatten)]
    body: T,
}

/// Who runs a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The shim.
    #[serde(flatten)]
    pub shim: Identity,
    /// The control group of the command, if there is one.
    pub cgroup: Option<PathBuf>,
    /// When the shim started.
    pub started_at: Time,
}

/// How a job ended, with what it used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// How it ended.
    #[serde(flatten)]
    pub exit: Exit,
    /// CPU of the command and of all it started, as far as it was waited for.
    pub cpu_ms: u64,
    /// Most memory that one of its processes used.
    pub max_rss_kb: u64,
    /// Most memory that the shim used.
    pub shim_rss_kb: u64,
    /// Processes that not even SIGKILL ended in time.
    pub survivors: u32,
    /// Why output is missing: the disk was full, for example.
    pub capture_error: Option<String>,
}

/// Who runs the job; `None` before the shim said so.
pub fn started(dir: &Path) -> Result<Option<Started>, Error> {
    read_json(dir, STARTED)
}

/// How the job ended; `None` while it runs or when it left no record.
pub fn record(dir: &Path) -> Result<Option<Record>, Error> {
    read_json(dir, EXIT)
}

/// Writes a file so that it is there whole or not at all.
pub(super) fn write_whole(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let aside = dir.join(format!(".{name}.{}", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&aside)
        .and_then(|mut f| f.write_all(bytes))
        .and_then(|()| fs::rename(&aside, dir.join(name)));
    if written.is_err() {
        // Best effort: the first error is the one worth telling.
        fs::remove_file(&aside).ok();
    }
    written
}

/// Writes a versioned file.
pub(super) fn write_json<T: Serialize>(dir: &Path, name: &str, body: &T) -> Result<(), Error> {
    let path = dir.join(name);
    let bytes = serde_json::to_vec(&Versioned { version: VERSION, body })
        .map_err(|source| Error::Damaged { path: path.clone(), source })?;
    write_whole(dir, name, &bytes).map_err(Error::io("write", &path))
}

/// Reads a versioned file; `None` when it is not there.
pub(super) fn read_json<T: DeserializeOwned>(dir: &Path, name: &str) -> Result<Option<T>, Error> {
    let path = dir.join(name);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("read", &path)(e)),
    };
    let damaged = |source| Error::Damaged { path: path.clone(), source };
    let file: Versioned<T> = serde_json::from_slice(&bytes).map_err(damaged)?;
    if file.version != VERSION {
        return Err(damaged(serde::de::Error::custom(format!("version {}", file.version))));
    }
    Ok(Some(file.body))
}

/// Takes the job's lock; `None` when somebody holds it: then a shim is alive, whatever its number.
pub(super) fn try_lock(dir: &Path) -> Result<Option<Flock<File>>, Error> {
    let path = dir.join(LOCK);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(Error::io("open", &path))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, e)) => Err(Error::io("lock", &path)(e.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everloop_core::event::StopCause;

    #[test]
    fn the_first_version_of_a_record_stays_readable() {
        let old = r#"{"version":1,"code":null,"signal":15,"spawn_error":null,"started_at":1000,"ended_at":2500,
            "out_bytes":7,"tail":"bye","backoff_ms":90000,"stopped":"person","leftovers":2,"cpu_ms":40,
            "max_rss_kb":1024,"shim_rss_kb":3000,"survivors":0,"capture_error":null}"#;
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(EXIT), old).unwrap();
        let record = record(dir.path()).unwrap().unwrap();
        assert_eq!(record.exit.stopped, Some(StopCause::Person));
        assert_eq!((record.exit.backoff_ms, record.exit.leftovers, record.cpu_ms), (Some(90_000), 2, 40));
        fs::write(dir.path().join(EXIT), old.replace("\"version\":1", "\"version\":9")).unwrap();
        assert!(matches!(super::record(dir.path()), Err(Error::Damaged { .. })));
    }

    #[test]
    fn a_lock_is_held_once() {
        let dir = tempfile::tempdir().unwrap();
        let held = try_lock(dir.path()).unwrap();
        assert!(held.is_some());
        assert!(try_lock(dir.path()).unwrap().is_none());
        drop(held);
        assert!(try_lock(dir.path()).unwrap().is_some());
    }
}
