//! The job log: one file in the job's folder to which supervisor and shim append lines. Output
//! files belong to [`super::capture`].
//!
//! The command, its shim, a stop request, the exit: each is one line, written by one call and never
//! changed. The shim holds the file's lock for its whole life. It is one file because an idle turn
//! should cost nothing: each further file is one more inode to create and remove.
//!
//! Lines are not synced: after a power cut a missing line means that the job is gone, which
//! recovery handles anyway, while a sync per check would cost more than the check. A torn line
//! counts as absent, except the first.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use everloop_core::event::{Exit, StopCause};
use everloop_core::time::Time;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::error::JobError;
use super::spec::Spec;
use crate::process::Identity;

const BOOK: &str = "job.jsonl";

/// Version of its lines.
const VERSION: u32 = 1;

/// A line with its version.
#[derive(Serialize, Deserialize)]
struct Line<T> {
    version: u32,
    #[serde(flatten)]
    entry: T,
}

/// The content of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum JobLogEntry {
    /// What to run.
    Job(Box<Spec>),
    /// The shim that runs it; appended again when its details change.
    Started(Started),
    /// A request to stop; the first one counts.
    Stop(StopCause),
    /// A shim that finds this runs nothing.
    Cancelled(Cancelled),
    /// How it ended.
    Ended(Box<JobRecord>),
}

/// Carries no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cancelled {}

/// The shim of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    #[serde(flatten)]
    pub shim: Identity,
    /// The control group of the command, if there is one.
    pub cgroup: Option<PathBuf>,
    pub started_at: Time,
    /// The command's folder for temporary files, which goes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tmp: Option<PathBuf>,
}

/// How a job ended, and what it used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    #[serde(flatten)]
    pub exit: Exit,
    /// CPU of the command and of all its descendants that were waited for.
    pub cpu_ms: u64,
    /// Peak memory of a single process of it.
    pub max_rss_kb: u64,
    /// Peak memory of the shim.
    pub shim_rss_kb: u64,
    /// Processes that SIGKILL did not end in time.
    pub survivors: u32,
    /// Why output is missing: a full disk, for example.
    pub capture_error: Option<String>,
}

/// Everything that the log of a job contains.
#[derive(Debug, Default)]
pub(super) struct JobLog {
    pub(super) spec: Option<Spec>,
    pub(super) started: Option<Started>,
    pub(super) stop: Option<StopCause>,
    /// It must not be started any more.
    pub(super) cancelled: bool,
    pub(super) ended: Option<JobRecord>,
    /// The first line that could not be parsed.
    damage: Option<serde_json::Error>,
}

impl JobLog {
    /// Reads the log; empty when there is none.
    pub(super) fn read(dir: &Path) -> Result<Self, JobError> {
        let path = dir.join(BOOK);
        match fs::read(&path) {
            Ok(bytes) => Ok(Self::parse(&bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(JobError::io("read", &path)(e)),
        }
    }

    fn parse(bytes: &[u8]) -> Self {
        let mut book = Self::default();
        for line in bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice::<Line<JobLogEntry>>(line) {
                Ok(Line { version: VERSION, entry }) => book.take(entry),
                Ok(Line { version, .. }) => book.harm(serde::de::Error::custom(format!("version {version}"))),
                Err(e) => book.harm(e),
            }
        }
        book
    }

    fn take(&mut self, entry: JobLogEntry) {
        match entry {
            JobLogEntry::Job(spec) => self.spec = Some(*spec),
            JobLogEntry::Started(started) => self.started = Some(started),
            JobLogEntry::Stop(cause) => self.stop = self.stop.or(Some(cause)),
            JobLogEntry::Cancelled(_) => self.cancelled = true,
            JobLogEntry::Ended(record) => self.ended = Some(*record),
        }
    }

    fn harm(&mut self, error: serde_json::Error) {
        self.damage.get_or_insert(error);
    }

    /// Whether a job was already started here: a folder is used once.
    pub(super) fn is_used(&self) -> bool {
        self.started.is_some() || self.ended.is_some() || self.cancelled
    }

    /// What to run, or why that cannot be determined.
    pub(super) fn into_spec(self, dir: &Path) -> Result<Spec, String> {
        self.spec.ok_or_else(|| match self.damage {
            Some(source) => JobError::Damaged { path: dir.join(BOOK), source }.to_string(),
            None => "there is no job here".to_owned(),
        })
    }
}

/// The shim of the job; `None` before it has reported.
pub fn started(dir: &Path) -> Result<Option<Started>, JobError> {
    Ok(JobLog::read(dir)?.started)
}

/// How the job ended; `None` while it runs or when it left no record.
pub fn record(dir: &Path) -> Result<Option<JobRecord>, JobError> {
    Ok(JobLog::read(dir)?.ended)
}

/// Appends a line by one call, so that lines of several writers do not mix. After a line that a
/// full disk tore, the next one still begins on its own.
pub(super) fn add(dir: &Path, entry: &JobLogEntry) -> Result<(), JobError> {
    let path = dir.join(BOOK);
    let line = text(&path, entry)?;
    let mut file = open(&path).map_err(JobError::io("open", &path))?;
    file.write_all(&line).map_err(JobError::io("write", &path))
}

fn text(path: &Path, entry: &JobLogEntry) -> Result<Vec<u8>, JobError> {
    let mut line = vec![b'\n'];
    serde_json::to_writer(&mut line, &Line { version: VERSION, entry })
        .map_err(|source| JobError::Damaged { path: path.to_owned(), source })?;
    line.push(b'\n');
    Ok(line)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Records what is to be run; when repeated, the last one counts. An earlier stop request stays in
/// force. False when the folder was used.
pub(super) fn begin(dir: &Path, spec: &Spec) -> Result<bool, JobError> {
    let Some(file) = try_lock(dir)? else { return Ok(false) };
    if file.metadata().is_ok_and(|m| m.len() > 0) && JobLog::read(dir)?.is_used() {
        return Ok(false);
    }
    let path = dir.join(BOOK);
    let line = text(&path, &JobLogEntry::Job(Box::new(spec.clone())))?;
    (&*file).write_all(&line).map_err(JobError::io("write", &path))?;
    Ok(true)
}

/// Whether the log is empty.
pub(super) fn is_blank(dir: &Path) -> bool {
    fs::metadata(dir.join(BOOK)).is_ok_and(|m| m.len() == 0)
}

/// Empties the folder of an ended job, so that it can hold another one. False when it did not end.
pub(super) fn wipe(dir: &Path) -> Result<bool, JobError> {
    let path = dir.join(BOOK);
    let Some(file) = try_lock(dir)? else { return Ok(false) };
    if file.metadata().is_ok_and(|m| m.len() == 0) {
        return Ok(true);
    }
    if JobLog::read(dir)?.ended.is_none() {
        return Ok(false);
    }
    for entry in fs::read_dir(dir).map_err(JobError::io("read", dir))?.flatten() {
        if entry.file_name() != BOOK {
            fs::remove_file(entry.path()).map_err(JobError::io("remove", &entry.path()))?;
        }
    }
    file.set_len(0).map_err(JobError::io("clear", &path))?;
    Ok(true)
}

/// Takes the job's lock; `None` when it is held: then a shim is alive, whatever its pid.
pub(super) fn try_lock(dir: &Path) -> Result<Option<Flock<File>>, JobError> {
    let path = dir.join(BOOK);
    let file = open(&path).map_err(JobError::io("open", &path))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, e)) => Err(JobError::io("lock", &path)(e.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log of the first version.
    const OLD: &str = r#"
{"version":1,"job":{"argv":["sh","-c","true"],"cwd":"/tmp","stdin":null,"wall_ms":7200000,"grace_ms":10000,"caps":{"head_bytes":33554432,"tail_bytes":16777216},"secrets":[],"backoff_word":"BACKOFF","confine":"cgroup"}}

{"version":1,"started":{"pid":7,"start_ticks":9,"boot":"b","cgroup":null,"started_at":1000}}
{"version":1,"stop":"person"}
{"version":1,"stop":"wall"}
{"version":1,"ended":{"code":null,"signal":15,"spawn_error":null,"started_at":1000,"ended_at":2500,"out_bytes":7,"tail":"bye","backoff_ms":90000,"stopped":"person","leftovers":2,"cpu_ms":40,"max_rss_kb":1024,"shim_rss_kb":3000,"survivors":0,"capture_error":null}}
"#;

    #[test]
    fn the_first_version_of_a_book_stays_readable() {
        let book = JobLog::parse(OLD.as_bytes());
        assert!(book.damage.is_none(), "{:?}", book.damage);
        assert_eq!(book.stop, Some(StopCause::Person), "the first wish counts");
        assert_eq!(book.started.unwrap().shim.pid, 7);
        let record = book.ended.unwrap();
        assert_eq!(record.exit.stopped, Some(StopCause::Person));
        assert_eq!((record.exit.backoff_ms, record.exit.leftovers, record.cpu_ms), (Some(90_000), 2, 40));
        assert_eq!(book.spec, Some(Spec::new(["sh", "-c", "true"].map(str::to_owned).to_vec(), "/tmp")));
        let newer = JobLog::parse(OLD.replace("\"version\":1", "\"version\":9").as_bytes());
        assert!(newer.damage.is_some() && newer.spec.is_none() && newer.ended.is_none());
    }

    #[test]
    fn a_torn_line_takes_nothing_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(BOOK);
        add(dir.path(), &JobLogEntry::Stop(StopCause::Person)).unwrap();
        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() - 1 {
            fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(JobLog::read(dir.path()).unwrap().stop, None, "{cut}");
            add(dir.path(), &JobLogEntry::Cancelled(Cancelled {})).unwrap();
            assert!(JobLog::read(dir.path()).unwrap().cancelled, "{cut}");
        }
    }

    #[test]
    fn a_wish_to_stop_outlives_a_late_beginning() {
        let dir = tempfile::tempdir().unwrap();
        add(dir.path(), &JobLogEntry::Stop(StopCause::Person)).unwrap();
        for program in ["false", "true"] {
            assert!(begin(dir.path(), &Spec::new(vec![program.to_owned()], "/")).unwrap());
        }
        let book = JobLog::read(dir.path()).unwrap();
        assert_eq!((book.stop, book.spec.unwrap().argv), (Some(StopCause::Person), vec!["true".to_owned()]));
    }

    #[test]
    fn only_a_job_that_ended_is_wiped() {
        let dir = tempfile::tempdir().unwrap();
        let spec = Spec::new(vec!["true".to_owned()], "/");
        assert!(begin(dir.path(), &spec).unwrap());
        assert!(!wipe(dir.path()).unwrap());
        add(dir.path(), &JobLogEntry::Ended(Box::default())).unwrap();
        fs::write(dir.path().join("out.head"), "x").unwrap();
        assert!(!begin(dir.path(), &spec).unwrap(), "a folder is used once");
        assert!(wipe(dir.path()).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(begin(dir.path(), &spec).unwrap());
    }

    #[test]
    fn a_lock_is_held_once() {
        let dir = tempfile::tempdir().unwrap();
        let held = try_lock(dir.path()).unwrap();
        assert!(held.is_some());
        assert!(try_lock(dir.path()).unwrap().is_none());
        assert!(!begin(dir.path(), &Spec::new(vec!["true".to_owned()], "/")).unwrap());
        drop(held);
        assert!(try_lock(dir.path()).unwrap().is_some());
    }
}
