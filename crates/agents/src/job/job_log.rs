//! The job log: one file in the job's folder to which supervisor and shim append lines. Output
//! files belong to [`super::capture`].
//!
//! The command, its shim, a stop request, the exit: each is one line, written by one call and never
//! changed. The shim holds the file's lock for its whole life, and writes through the file that it
//! locked. It is one file because an idle turn should cost nothing: each further file is one more
//! inode to create and remove.
//!
//! Each line ends with its signature by the job's key, because a command without isolation can
//! write here too. A line without a valid one is counted and has no effect. While the supervisor
//! lives it learns the end from the shim itself ([`super::link`]); the log is the copy for its
//! successor.
//!
//! Lines are not synced: after a power cut a missing line means that the job is gone, which
//! recovery handles anyway, while a sync per check would cost more than the check. A torn line
//! counts as absent, except the first.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use everloop_core::event::{Exit, StopCause};
use everloop_core::planted::{self, Bug};
use everloop_core::time::Time;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::error::JobError;
use super::files;
use super::key::JobKey;
use super::spec::Spec;
use crate::process::Identity;

const BOOK: &str = "job.jsonl";

/// Version of signed lines.
const VERSION: u32 = 2;
/// Version of lines without a signature, of earlier releases: shown to people, never believed.
const UNSIGNED: u32 = 1;

/// What comes before and after the signature, at the end of a line.
const SIGNATURE: (&[u8], &[u8]) = (b",\"mac\":\"", b"\"}");
/// Digits of a signature.
const SIGNATURE_BYTES: usize = 64;

/// More of a log is not read. Its lines are bounded by the arguments of a command (2 MB at most on
/// Linux); whatever is beyond was not written by everloop.
const MAX_BYTES: u64 = 8 << 20;

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
    /// What an earlier release wrote without signatures.
    pub(super) unsigned: Option<Box<JobLog>>,
    /// Lines of that kind.
    unsigned_lines: u32,
    /// Lines that are neither: torn, or not written by everloop.
    pub(super) foreign: u32,
    /// The first line that could not be parsed.
    damage: Option<serde_json::Error>,
}

impl JobLog {
    /// Reads the log; empty when there is none.
    pub(super) fn read(dir: &Path) -> Result<Self, JobError> {
        let path = dir.join(BOOK);
        let file = match files::read(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(e) => return Err(JobError::io("read", &path)(e)),
        };
        let key = JobKey::of(dir).map_err(JobError::io("find the key of", dir))?;
        let bytes = all_of(&file).map_err(JobError::io("read", &path))?;
        Ok(Self::parse(&bytes, Some(&key)))
    }

    /// Without a key, lines of the first version count: this shim was started by a supervisor of
    /// that version.
    fn parse(bytes: &[u8], key: Option<&JobKey>) -> Self {
        let mut book = Self::default();
        for line in bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            book.take_line(line, key);
        }
        book
    }

    fn take_line(&mut self, line: &[u8], key: Option<&JobKey>) {
        if let Some(body) = key.and_then(|key| signed_part(line, key)) {
            match serde_json::from_slice::<Line<JobLogEntry>>(&[body, b"}"].concat()) {
                Ok(Line { version: VERSION, entry }) => self.take(entry),
                Ok(Line { version, .. }) => self.harm(serde::de::Error::custom(format!("version {version}"))),
                Err(e) => self.harm(e),
            }
            return;
        }
        match (serde_json::from_slice::<Line<JobLogEntry>>(line), key) {
            (Ok(Line { version: UNSIGNED, entry }), None) => self.take(entry),
            (Ok(Line { entry, .. }), Some(_)) if planted::is(Bug::BelievesUnsignedLines) => self.take(entry),
            (Ok(Line { version: UNSIGNED, entry }), Some(_)) => {
                self.unsigned_lines += 1;
                self.unsigned.get_or_insert_default().take(entry);
            }
            (Ok(Line { version, .. }), _) => {
                self.foreign += 1;
                self.harm(serde::de::Error::custom(format!("a line of version {version} is not signed")));
            }
            (Err(e), _) => {
                self.foreign += 1;
                self.harm(e);
            }
        }
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
        let used = self.started.is_some() || self.ended.is_some() || self.cancelled;
        used || self.unsigned.as_ref().is_some_and(|before| before.is_used())
    }

    /// What to run, or why that cannot be determined.
    pub(super) fn into_spec(self, dir: &Path) -> Result<Spec, String> {
        self.spec.ok_or_else(|| match self.damage {
            Some(source) => JobError::Damaged { path: dir.join(BOOK), source }.to_string(),
            None => "there is no job here".to_owned(),
        })
    }
}

/// The part of a line before its signature, if that is valid.
fn signed_part<'a>(line: &'a [u8], key: &JobKey) -> Option<&'a [u8]> {
    let rest = line.strip_suffix(SIGNATURE.1)?;
    let (rest, signature) = rest.split_at_checked(rest.len().checked_sub(SIGNATURE_BYTES)?)?;
    let body = rest.strip_suffix(SIGNATURE.0)?;
    key.verifies(body, signature).then_some(body)
}

/// The shim of the job; `None` before it has reported. To be shown: that of an earlier release
/// counts too, although it is not signed.
pub fn started(dir: &Path) -> Result<Option<Started>, JobError> {
    let log = JobLog::read(dir)?;
    Ok(log.started.or_else(|| log.unsigned.and_then(|before| before.started)))
}

/// How the job ended; `None` while it runs or when it left no record. To be shown, as above.
pub fn record(dir: &Path) -> Result<Option<JobRecord>, JobError> {
    let log = JobLog::read(dir)?;
    Ok(log.ended.or_else(|| log.unsigned.and_then(|before| before.ended)))
}

/// Lines in the log that neither supervisor nor shim wrote.
pub fn foreign_lines(dir: &Path) -> u32 {
    // Something else in the place of the log is foreign as a whole. No release mixes both versions.
    JobLog::read(dir).map_or(1, |log| log.foreign + if log.spec.is_some() { log.unsigned_lines } else { 0 })
}

/// Appends a line by one call, so that lines of several writers do not mix. After a line that a
/// full disk tore, the next one still begins on its own.
pub(super) fn add(dir: &Path, entry: &JobLogEntry) -> Result<(), JobError> {
    let path = dir.join(BOOK);
    let key = JobKey::of(dir).map_err(JobError::io("find the key of", dir))?;
    let line = text(entry, Some(&key));
    let mut file = files::append(&path).map_err(JobError::io("open", &path))?;
    file.write_all(&line).map_err(JobError::io("write", &path))
}

/// A line with its signature.
pub(super) fn text(entry: &JobLogEntry, key: Option<&JobKey>) -> Vec<u8> {
    let version = if key.is_some() { VERSION } else { UNSIGNED };
    let mut line =
        serde_json::to_vec(&Line { version, entry }).expect("an entry is plain data and always has a JSON form");
    if let Some(key) = key {
        line.pop();
        let signature = key.sign(&line);
        line = [&line, SIGNATURE.0, signature.as_bytes(), SIGNATURE.1].concat();
    }
    [b"\n", &line[..], b"\n"].concat()
}

/// The entry of a line, if its signature is valid.
pub(super) fn entry(line: &[u8], key: &JobKey) -> Option<JobLogEntry> {
    let body = signed_part(line, key)?;
    serde_json::from_slice::<Line<JobLogEntry>>(&[body, b"}"].concat()).ok().map(|line| line.entry)
}

fn all_of(mut file: &File) -> io::Result<Vec<u8>> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The log in the hands of the shim: the file that it locked, whatever is under its name later.
#[derive(Debug)]
pub(super) struct ShimLog {
    file: Flock<File>,
    key: Option<JobKey>,
}

impl ShimLog {
    /// Takes the lock; `None` when it is held.
    pub(super) fn lock(dir: &Path, key: Option<JobKey>) -> Result<Option<Self>, JobError> {
        Ok(try_lock(dir)?.map(|file| Self { file, key }))
    }

    pub(super) fn read(&self) -> io::Result<JobLog> {
        Ok(JobLog::parse(&all_of(&self.file)?, self.key.as_ref()))
    }

    pub(super) fn add(&self, line: &[u8]) -> io::Result<()> {
        (&*self.file).write_all(line)
    }

    /// A line about this job.
    pub(super) fn line(&self, entry: &JobLogEntry) -> Vec<u8> {
        text(entry, self.key.as_ref())
    }

    /// The recorded stop request; `None` when there is none.
    pub(super) fn stop_cause(&self) -> Option<StopCause> {
        self.read().ok()?.stop
    }
}

/// Records what is to be run; when repeated, the last one counts. An earlier stop request stays in
/// force. False when the folder was used. What is in the place of the log, if it is no file of this
/// user, is removed.
pub(super) fn begin(dir: &Path, spec: &Spec) -> Result<bool, JobError> {
    remove_strange(dir)?;
    let Some(file) = try_lock(dir)? else { return Ok(false) };
    if file.metadata().is_ok_and(|m| m.len() > 0) && JobLog::read(dir)?.is_used() {
        return Ok(false);
    }
    let path = dir.join(BOOK);
    let key = JobKey::of(dir).map_err(JobError::io("find the key of", dir))?;
    let line = text(&JobLogEntry::Job(Box::new(spec.clone())), Some(&key));
    (&*file).write_all(&line).map_err(JobError::io("write", &path))?;
    Ok(true)
}

/// Removes what is in the place of the log, unless it is a plain file of this user.
pub(super) fn remove_strange(dir: &Path) -> Result<(), JobError> {
    let path = dir.join(BOOK);
    match files::read(&path) {
        Err(e) if files::is_strange(&e) => {
            let folder = fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir());
            let removed = if folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(JobError::io("remove", &path))
        }
        _ => Ok(()),
    }
}

/// Whether the log is empty.
pub(super) fn is_blank(dir: &Path) -> bool {
    files::size(&dir.join(BOOK)) == Some(0)
}

/// Empties the folder of an ended job, so that it can hold another one. False when it did not end,
/// or when something is there that no job made.
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
        if entry.file_name() != BOOK && fs::remove_file(entry.path()).is_err() {
            return Ok(false);
        }
    }
    file.set_len(0).map_err(JobError::io("clear", &path))?;
    Ok(true)
}

/// Takes the job's lock; `None` when it is held: then a shim is alive, whatever its pid.
pub(super) fn try_lock(dir: &Path) -> Result<Option<Flock<File>>, JobError> {
    let path = dir.join(BOOK);
    let file = files::append(&path).map_err(JobError::io("open", &path))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, e)) => Err(JobError::io("lock", &path)(e.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log of the first version, which was not signed.
    const OLD: &str = r#"
{"version":1,"job":{"argv":["sh","-c","true"],"cwd":"/tmp","stdin":null,"wall_ms":7200000,"grace_ms":10000,"caps":{"head_bytes":33554432,"tail_bytes":16777216},"secrets":[],"backoff_word":"BACKOFF","confine":"cgroup"}}

{"version":1,"started":{"pid":7,"start_ticks":9,"boot":"b","cgroup":null,"started_at":1000}}
{"version":1,"stop":"person"}
{"version":1,"stop":"wall"}
{"version":1,"ended":{"code":null,"signal":15,"spawn_error":null,"started_at":1000,"ended_at":2500,"out_bytes":7,"tail":"bye","backoff_ms":90000,"stopped":"person","leftovers":2,"cpu_ms":40,"max_rss_kb":1024,"shim_rss_kb":3000,"survivors":0,"capture_error":null}}
"#;

    fn key() -> JobKey {
        JobKey::from_text(&"ab".repeat(32)).unwrap()
    }

    /// It is shown, and a shim that such a supervisor started goes by it; no verdict does.
    #[test]
    fn the_first_version_of_a_book_stays_readable() {
        let signed = JobLog::parse(OLD.as_bytes(), Some(&key()));
        assert!(signed.spec.is_none() && signed.started.is_none() && signed.stop.is_none() && signed.ended.is_none());
        assert_eq!((signed.foreign, signed.is_used()), (0, true));
        for book in [*signed.unsigned.unwrap(), JobLog::parse(OLD.as_bytes(), None)] {
            assert!(book.damage.is_none(), "{:?}", book.damage);
            assert_eq!(book.stop, Some(StopCause::Person), "the first wish counts");
            assert_eq!(book.started.unwrap().shim.pid, 7);
            let record = book.ended.unwrap();
            assert_eq!(record.exit.stopped, Some(StopCause::Person));
            assert_eq!((record.exit.backoff_ms, record.exit.leftovers, record.cpu_ms), (Some(90_000), 2, 40));
            assert_eq!(book.spec, Some(Spec::new(["sh", "-c", "true"].map(str::to_owned).to_vec(), "/tmp")));
        }
        let newer = JobLog::parse(OLD.replace("\"version\":1", "\"version\":9").as_bytes(), Some(&key()));
        assert!(newer.damage.is_some() && newer.unsigned.is_none() && newer.ended.is_none() && newer.foreign > 0);
    }

    #[test]
    fn a_line_without_the_right_signature_is_nothing() {
        let (entry, other) = (JobLogEntry::Ended(Box::default()), JobKey::from_text(&"cd".repeat(32)).unwrap());
        let right = text(&entry, Some(&key()));
        assert!(JobLog::parse(&right, Some(&key())).ended.is_some());
        let moved = [&right[..], &text(&JobLogEntry::Cancelled(Cancelled {}), Some(&key()))].concat();
        assert!(JobLog::parse(&moved, Some(&key())).cancelled);
        let words = String::from_utf8(right.clone()).unwrap();
        let forged = [
            String::from_utf8(text(&entry, Some(&other))).unwrap(),
            words.replace("\"cpu_ms\":0", "\"cpu_ms\":1"),
            words.replace(&words[words.len() - 68..words.len() - 3], "0"),
            "{\"version\":2,\"ended\":{}}".to_owned(),
            words.replace(",\"mac\"", ",\"mac\":\"\",\"mac\""),
        ];
        for line in forged {
            let book = JobLog::parse(line.as_bytes(), Some(&key()));
            assert!(book.ended.is_none() && book.foreign == 1, "{line}");
        }
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
