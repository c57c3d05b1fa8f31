//! Starting a job and waiting for it, also for one that another supervisor started.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use everloop_core::event::{Exit, StopCause};
use everloop_core::planted::{self, Bug};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::control::kill;
use super::error::JobError;
use super::job_log::{Cancelled, JobLog, JobLogEntry, add};
use super::key::{self, JobKey};
use super::link::{self, LiveJob};
use super::recover::{JobTrace, bury, inspect};
use super::shim::REFUSED;
use super::spec::Spec;
use super::{JOB_VAR, SHIM_ARG, carried, fork_server};
use crate::clock::machine_period;
use crate::isolation::SharedRules;
use crate::process::{Identity, pidfd_open};

/// How long a shim may take from its lock to its report; normally milliseconds.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a shim may take beyond the limit and the grace period of its job. It needs
/// milliseconds; more only when a process of the job hangs in the kernel.
const SHIM_MARGIN: Duration = Duration::from_secs(8);

/// Descriptors on their way to a shim have numbers from here on, so that putting one into its place
/// does not close another.
const CARRIED_FROM: i32 = 16;

/// The program that becomes a shim, and the arguments before the job's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShimProgram {
    /// An absolute path.
    pub exe: PathBuf,
    /// For the main binary: [`SHIM_ARG`].
    pub args: Vec<OsString>,
}

impl ShimProgram {
    /// This program, also when its file was replaced by a newer version meanwhile.
    pub fn current() -> io::Result<Self> {
        let exe = std::env::current_exe()?;
        let exe = if exe.exists() { exe } else { PathBuf::from("/proc/self/exe") };
        Ok(Self { exe, args: vec![SHIM_ARG.into()] })
    }
}

/// A started job. Dropping it does not end the job.
#[derive(Debug)]
pub struct Running {
    dir: PathBuf,
    /// Its shim, and what this process knows about it; `None` when it had ended before.
    watched: Option<Watched>,
    /// When its shim has to be over.
    deadline: Instant,
    /// The cleaning up after it, which goes on when a wait is given up.
    aside: Option<JoinHandle<Result<(), JobError>>>,
    end: Option<JobEnd>,
}

#[derive(Debug)]
enum Watched {
    /// A child of this process, until it was waited for.
    Child { live: Arc<LiveJob>, pid: Pid },
    /// The shim of an earlier supervisor: readable once it ended.
    Adopted(OwnedFd),
}

impl Watched {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Child { live, .. } => live.pidfd(),
            Self::Adopted(fd) => fd.as_fd(),
        }
    }
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// Its shim reported the end.
    Exited(Exit),
    /// Its shim was killed, or refused because the job had been cancelled. No process of it runs.
    Gone,
    /// Its shim did not end it in time, and was killed with everything below it.
    Overdue,
}

/// Starts the shim of a prepared job. `env` is all that the command sees, besides [`JOB_VAR`]; its
/// secrets are never in the environment of the shim.
pub fn start(shim: &ShimProgram, dir: &Path, env: Vec<(OsString, OsString)>) -> Result<Running, JobError> {
    let dir = fs::canonicalize(dir).map_err(JobError::io("resolve", dir))?;
    if link::is_closed(&dir) {
        return Err(JobError::Closed { dir });
    }
    let key = JobKey::of(&dir).map_err(JobError::io("find the key of", &dir))?;
    let mark = key::mark(&dir).map_err(JobError::io("find the key of", &dir))?;
    let spec = JobLog::read(&dir).ok().and_then(|log| log.spec);
    let own = [(JOB_VAR, mark), (carried::KEY_VAR, key.to_text())].map(|(name, value)| (name.into(), value.into()));
    let is_own = |name: &OsStr| [JOB_VAR, carried::KEY_VAR, carried::RULES_VAR].iter().any(|own| name == *own);
    let shared = spec.as_ref().and_then(|spec| SharedRules::of(spec.isolation.as_ref()?));
    let closed = shared.as_ref().map(|shared| (carried::RULES_VAR.into(), shared.closed_text()));
    let variables = env.into_iter().filter(|(name, _)| !is_own(name)).chain(own).chain(closed).collect();
    let rules = shared.as_ref().map(|shared| shared.rules.as_fd());
    let (child, stream) = spawn(shim, &dir, variables, rules).map_err(JobError::io("start", &shim.exe))?;
    // A child keeps its pid until it is waited for.
    let watched = || -> io::Result<(Identity, OwnedFd)> {
        let identity = Identity::of(child.as_raw()).ok_or(io::ErrorKind::NotFound)?;
        Ok((identity, pidfd_open(child.as_raw())?))
    };
    let (identity, pidfd) = watched().map_err(JobError::io("watch the shim of", &dir))?;
    let live = LiveJob::new(identity, pidfd, stream, key);
    live.register(&dir);
    let deadline = deadline(spec.as_ref());
    Ok(Running { dir, watched: Some(Watched::Child { live, pid: child }), deadline, aside: None, end: None })
}

/// When the shim of a job that begins now has to be over. Counted with the monotonic clock, as the
/// shim counts: a suspended machine does not use up a turn.
fn deadline(spec: Option<&Spec>) -> Instant {
    // A job that cannot be read is not run, which takes no time.
    let limit = spec.map_or(Duration::ZERO, |spec| spec.wall.saturating_add(spec.grace));
    let far = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + machine_period(limit).saturating_add(SHIM_MARGIN).min(far)
}

/// The shim: forked by a server where there is one, else executed.
fn spawn(
    shim: &ShimProgram,
    dir: &Path,
    variables: Vec<(OsString, OsString)>,
    rules: Option<BorrowedFd<'_>>,
) -> io::Result<(Pid, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    // Neither end waits for the other: what a shim sends fits into the buffer of a socket.
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    let carrier = carried::pack(&variables)?;
    let mut placed = vec![(carrier.as_fd(), carried::FD), (theirs.as_fd(), link::FD)];
    placed.extend(rules.map(|rules| (rules, carried::RULES_FD)));
    let mark = variables.iter().find(|(name, _)| name == JOB_VAR).map_or(OsStr::new(""), |(_, mark)| mark);
    if let Some(pid) = fork_server::fork_shim(shim, (dir, mark), &placed) {
        return Ok((pid, ours));
    }
    let planted = planted::POSSIBLE.then(|| std::env::var_os(planted::VARIABLE)).flatten();
    let planted = planted.map(|names| (planted::VARIABLE.into(), names));
    let open = variables.into_iter().filter(|(name, _)| carried::is_open(name)).chain(planted);
    let pid = execute(shim, dir.as_os_str(), &placed, open)?;
    fork_server::expect_more(shim, dir);
    Ok((pid, ours))
}

/// A descriptor, and its number in a new process.
pub(super) type Placed<'a> = (BorrowedFd<'a>, RawFd);

/// The program as a process in a session of its own, without input and output. Not by
/// `std::process::Command`, which can create a session only with a fork, and a fork copies the
/// memory map of the supervisor for nothing.
pub(super) fn execute(
    shim: &ShimProgram,
    last: &OsStr,
    placed: &[Placed<'_>],
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> io::Result<Pid> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let mut files = PosixSpawnFileActions::init()?;
    for standard in 0..=2 {
        files.add_dup2(null.as_raw_fd(), standard)?;
    }
    let away: Vec<OwnedFd> = placed.iter().map(|(fd, _)| out_of_the_way(fd)).collect::<io::Result<_>>()?;
    for (fd, (_, place)) in away.iter().zip(placed) {
        files.add_dup2(fd.as_raw_fd(), *place)?;
    }
    let mut attributes = PosixSpawnAttr::init()?;
    let session = PosixSpawnFlags::from_bits_retain(libc::POSIX_SPAWN_SETSID.into());
    // As `Command` does: no signal is blocked, and SIGPIPE, which every Rust program ignores, is
    // reset.
    let signals = PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF;
    attributes.set_flags(session | signals)?;
    attributes.set_sigmask(&SigSet::empty())?;
    attributes.set_sigdefault(&SigSet::from(Signal::SIGPIPE))?;
    let words = [shim.exe.as_os_str()].into_iter().chain(shim.args.iter().map(OsString::as_os_str));
    let argv: Vec<CString> = words.chain([last]).map(|w| c_string(&[w])).collect::<io::Result<_>>()?;
    let text = |(name, value): (OsString, OsString)| c_string(&[&name, OsStr::new("="), &value]);
    let envp: Vec<CString> = variables.into_iter().map(text).collect::<io::Result<_>>()?;
    Ok(posix_spawn(&shim.exe, &files, &attributes, &argv, &envp)?)
}

/// The same descriptor under a number that is no place of one in the shim.
#[expect(unsafe_code, reason = "a new descriptor is a number until it has an owner")]
pub(super) fn out_of_the_way(fd: &impl AsFd) -> io::Result<OwnedFd> {
    let number = fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(CARRIED_FROM))?;
    // SAFETY: the kernel just made it, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn c_string(parts: &[&OsStr]) -> io::Result<CString> {
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.as_bytes()).copied().collect();
    CString::new(bytes).map_err(io::Error::other)
}

#[expect(unsafe_code, reason = "registering a descriptor has no safe form")]
fn register(fd: BorrowedFd<'_>) -> io::Result<AsyncFd<BorrowedFd<'_>>> {
    // SAFETY: a borrowed descriptor stays open, and the same, for as long as the borrow lives.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// A handle for a job with a shim that an earlier supervisor started. A shim without a signed
/// report is killed.
pub async fn adopt(dir: &Path) -> Result<Running, JobError> {
    let dir = fs::canonicalize(dir).map_err(JobError::io("resolve", dir))?;
    let end = Instant::now() + REPORT_TIMEOUT;
    loop {
        let found = inspect_aside(&dir).await?;
        let log = JobLog::read(&dir)?;
        // The time that it has left is not known: it may have been suspended with the machine.
        let deadline = deadline(log.spec.as_ref());
        if let JobTrace::Exited(_) | JobTrace::Gone = found {
            return Ok(Running { dir, watched: None, deadline, aside: None, end: None });
        }
        if let Some(started) = log.started {
            let ended = started.shim.open().map_err(JobError::io("watch the shim of", &dir))?;
            return Ok(Running { dir, watched: ended.map(Watched::Adopted), deadline, aside: None, end: None });
        }
        if Instant::now() >= end || log.unsigned.is_some() {
            kill_aside(&dir).await?;
            return Err(JobError::Silent { dir });
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// Inspects a job without blocking other tasks: cleaning up after a killed shim may take a while.
async fn inspect_aside(dir: &Path) -> Result<JobTrace, JobError> {
    // By far the usual case, and not worth a thread.
    if LiveJob::find(dir).is_none()
        && let Ok(JobLog { ended: Some(record), .. }) = JobLog::read(dir)
    {
        return Ok(JobTrace::Exited(record.exit));
    }
    let aside = dir.to_owned();
    let found = tokio::task::spawn_blocking(move || inspect(&aside)).await;
    found.map_err(|e| JobError::io("inspect", dir)(io::Error::other(e)))?
}

async fn kill_aside(dir: &Path) -> Result<JobTrace, JobError> {
    let aside = dir.to_owned();
    let killed = tokio::task::spawn_blocking(move || kill(&aside)).await;
    killed.map_err(|e| JobError::io("kill", dir)(io::Error::other(e)))?
}

impl Running {
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Waits for the end, until the job's own limit and some seconds are over. May be dropped and
    /// called again; costs nothing while it waits. Needs a tokio runtime.
    pub async fn wait(&mut self) -> Result<JobEnd, JobError> {
        if let Some(end) = &self.end {
            return Ok(end.clone());
        }
        let end = match &self.watched {
            Some(watched) if self.is_overdue(watched).await? => {
                let dir = self.dir.clone();
                self.clean_up(move || kill(&dir).map(drop)).await?;
                JobEnd::Overdue
            }
            Some(Watched::Child { live, pid }) => {
                let (live, pid) = (live.clone(), *pid);
                self.end_of(&live, pid).await?
            }
            Some(Watched::Adopted(_)) | None => self.left_behind().await?,
        };
        self.forget_child()?;
        self.end = Some(end.clone());
        Ok(end)
    }

    /// Waits for the end of the shim; true when it does not come in time.
    async fn is_overdue(&self, watched: &Watched) -> Result<bool, JobError> {
        let ended = register(watched.fd()).map_err(JobError::io("watch the shim of", &self.dir))?;
        if planted::is(Bug::WaitsForEver) {
            ended.readable().await.map_err(JobError::io("wait for the shim of", &self.dir))?.retain_ready();
            return Ok(false);
        }
        match timeout_at(self.deadline, ended.readable()).await {
            Ok(ready) => ready.map_err(JobError::io("wait for the shim of", &self.dir))?.retain_ready(),
            Err(_) => return Ok(true),
        }
        Ok(false)
    }

    /// How a job ended, after the end of its shim, which was not waited for yet: as the shim
    /// reported. Without a report nothing counts, unless the shim refused to run the job.
    async fn end_of(&mut self, live: &Arc<LiveJob>, pid: Pid) -> Result<JobEnd, JobError> {
        if let Some(record) = live.ended() {
            return Ok(JobEnd::Exited(with_cause(record.exit, live.stop_cause())));
        }
        let failed = |e: nix::Error| JobError::io("wait for the shim of", &self.dir)(e.into());
        let status = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).map_err(failed)?;
        let refused = matches!(status, WaitStatus::Exited(_, code) if code == REFUSED);
        if refused || planted::is(Bug::BelievesTheLog) {
            return self.left_behind().await;
        }
        // Before it is waited for: until then its session's number is no other's.
        let (dir, started) = (self.dir.clone(), live.started());
        self.clean_up(move || {
            bury(&dir, started.as_ref());
            // A second shim, which comes late, runs nothing.
            add(&dir, &JobLogEntry::Cancelled(Cancelled {})).ok();
            Ok(())
        })
        .await?;
        Ok(JobEnd::Gone)
    }

    /// Cleans up without blocking other tasks; begun once, however often its end is awaited.
    async fn clean_up(&mut self, work: impl FnOnce() -> Result<(), JobError> + Send + 'static) -> Result<(), JobError> {
        let done = self.aside.get_or_insert_with(|| tokio::task::spawn_blocking(work)).await;
        self.aside = None;
        done.map_err(|e| JobError::io("clean up after", &self.dir)(io::Error::other(e)))?
    }

    /// How a job ended according to its folder.
    async fn left_behind(&self) -> Result<JobEnd, JobError> {
        match inspect_aside(&self.dir).await? {
            JobTrace::Exited(exit) => Ok(JobEnd::Exited(exit)),
            JobTrace::Gone => Ok(JobEnd::Gone),
            JobTrace::Alive { .. } => Err(JobError::Taken { dir: self.dir.clone() }),
        }
    }

    /// Removes the ended shim from the process table.
    fn forget_child(&mut self) -> Result<(), JobError> {
        if let Some(Watched::Child { pid, .. }) = self.watched.take() {
            waitpid(pid, None).map_err(|e| JobError::io("wait for the shim of", &self.dir)(e.into()))?;
        }
        Ok(())
    }
}

/// A shim that could not read why it was to stop took it for a shutdown.
fn with_cause(mut exit: Exit, requested: Option<StopCause>) -> Exit {
    if exit.stopped == Some(StopCause::Shutdown) {
        exit.stopped = requested.or(exit.stopped);
    }
    exit
}
