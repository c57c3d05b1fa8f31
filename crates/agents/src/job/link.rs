//! The line between a supervisor and the shim that it started: a pair of sockets without a name.
//! The shim reports its start and its end there, so that no file decides how a job ended while its
//! supervisor lives.
//!
//! Also the jobs that this process started, by folder: they can be stopped and killed without a
//! file of theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use everloop_core::event::StopCause;
use nix::sys::signal::Signal;

use super::job_log::{JobLogEntry, JobRecord, Started, entry};
use super::key::JobKey;
use crate::process::{Identity, SignalResult, Stat, pidfd_send_signal};

/// Number of the descriptor in the shim.
pub(super) const FD: RawFd = 4;

/// A shim sends three lines of some kilobytes; more is not kept.
const MAX_BYTES: u64 = 1 << 20;

/// Processes of a job that are remembered; a fork bomb has more, and is found by its group.
const SEEN_MAX: usize = 4096;

/// The shim's end; absent under a supervisor of the first version.
#[derive(Debug)]
pub(super) struct ShimLink(Option<File>);

impl ShimLink {
    /// Takes the descriptor that [`super::start`] put there.
    #[expect(unsafe_code, reason = "the descriptor is known by its number only")]
    pub(super) fn take() -> Self {
        // SAFETY: only looked at; a number without a descriptor is an error of the call.
        let fd = unsafe { BorrowedFd::borrow_raw(FD) };
        if nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_GETFD).is_err() {
            return Self(None);
        }
        // SAFETY: `start` put the descriptor there, and nothing else in this process owns it.
        Self(Some(unsafe { File::from_raw_fd(FD) }))
    }

    /// A supervisor that is gone reads the log instead.
    pub(super) fn send(&self, line: &[u8]) {
        if let Some(mut file) = self.0.as_ref() {
            file.write_all(line).ok();
        }
    }
}

/// A job that this process started.
#[derive(Debug)]
pub(super) struct LiveJob {
    pub(super) shim: Identity,
    pidfd: OwnedFd,
    key: JobKey,
    received: Mutex<Received>,
}

/// What is known of it at first hand.
#[derive(Debug)]
struct Received {
    stream: UnixStream,
    bytes: Vec<u8>,
    started: Option<Started>,
    ended: Option<JobRecord>,
    stop: Option<StopCause>,
    seen: BTreeSet<(i32, u64)>,
}

static LIVE: Mutex<BTreeMap<PathBuf, Weak<LiveJob>>> = Mutex::new(BTreeMap::new());

/// Folders below which this process starts nothing any more.
static CLOSED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Starts no further job below a folder; returns the folders of those that run there.
pub(super) fn close(below: &Path) -> Vec<PathBuf> {
    let Ok(below) = below.canonicalize() else { return Vec::new() };
    CLOSED.lock().unwrap_or_else(PoisonError::into_inner).insert(below.clone());
    let all = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    all.keys().filter(|dir| dir.starts_with(&below)).cloned().collect()
}

/// Whether nothing is started any more in a folder.
pub(super) fn is_closed(dir: &Path) -> bool {
    CLOSED.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|below| dir.starts_with(below))
}

impl LiveJob {
    pub(super) fn new(shim: Identity, pidfd: OwnedFd, stream: UnixStream, key: JobKey) -> Arc<Self> {
        let received =
            Received { stream, bytes: Vec::new(), started: None, ended: None, stop: None, seen: BTreeSet::new() };
        Arc::new(Self { shim, pidfd, key, received: Mutex::new(received) })
    }

    /// Makes it known under its folder, unless another shim runs there.
    pub(super) fn register(self: &Arc<Self>, dir: &Path) {
        let mut all = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, live| live.strong_count() > 0);
        let other = all.get(dir).and_then(Weak::upgrade).is_some_and(|live| live.shim.is_alive());
        if !other {
            all.insert(dir.to_owned(), Arc::downgrade(self));
        }
    }

    /// The job of this process in a folder.
    pub(super) fn find(dir: &Path) -> Option<Arc<Self>> {
        let dir = dir.canonicalize().ok()?;
        LIVE.lock().unwrap_or_else(PoisonError::into_inner).get(&dir)?.upgrade()
    }

    pub(super) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<SignalResult> {
        pidfd_send_signal(&self.pidfd, signal)
    }

    /// The shim's report of its start.
    pub(super) fn started(&self) -> Option<Started> {
        self.listen().started.clone()
    }

    /// The shim's report of its end.
    pub(super) fn ended(&self) -> Option<JobRecord> {
        self.listen().ended.clone()
    }

    /// Remembers why it is to stop; the first cause counts.
    pub(super) fn stops(&self, cause: StopCause) {
        self.listen().stop.get_or_insert(cause);
    }

    pub(super) fn stop_cause(&self) -> Option<StopCause> {
        self.listen().stop
    }

    /// Remembers processes below its shim: without the shim they could no longer be found.
    pub(super) fn see(&self, processes: &[Stat]) {
        let mut received = self.listen();
        let room = SEEN_MAX.saturating_sub(received.seen.len());
        received.seen.extend(processes.iter().take(room).map(|stat| (stat.pid, stat.start_ticks)));
    }

    /// Processes that were seen below its shim: pid and start time.
    pub(super) fn seen(&self) -> BTreeSet<(i32, u64)> {
        self.listen().seen.clone()
    }

    fn listen(&self) -> MutexGuard<'_, Received> {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.read(&self.key);
        received
    }
}

impl Received {
    /// Takes what has arrived; never waits.
    fn read(&mut self, key: &JobKey) {
        let mut new = Vec::new();
        // The end of what has arrived is an error of a stream that does not wait, and no other
        // matters: what was read before it is there.
        (&self.stream).take(MAX_BYTES).read_to_end(&mut new).ok();
        if new.is_empty() || self.bytes.len() as u64 > MAX_BYTES {
            return;
        }
        self.bytes.extend(new);
        while let Some(end) = self.bytes.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.bytes.drain(..=end).collect();
            match entry(&line[..end], key) {
                Some(JobLogEntry::Started(started)) => self.started = Some(started),
                Some(JobLogEntry::Ended(record)) => self.ended = Some(*record),
                Some(JobLogEntry::Job(_) | JobLogEntry::Stop(_) | JobLogEntry::Cancelled(_)) | None => {}
            }
        }
    }
}
