//! Starting a job and waiting for it, also for one that another supervisor started.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_core::event::Exit;
use everloop_core::planted;
use nix::libc;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep};

use super::carried;
use super::error::JobError;
use super::job_log;
use super::recover::{JobTrace, inspect};
use super::{JOB_VAR, SHIM_ARG};
use crate::process::pidfd_open;

/// How long a shim may take from its lock to its report; normally milliseconds.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// The program that becomes a shim, and the arguments before the job's folder.
#[derive(Clone, Debug)]
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
    /// Readable once the shim ended; `None` when it already has.
    ended: Option<OwnedFd>,
    /// The shim, when it is a child of this process.
    child: Option<Pid>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// It left its record.
    Exited(Exit),
    /// Its shim was killed, or refused because the job had been cancelled. No process of it runs.
    Gone,
}

/// Starts the shim of a prepared job. `env` is all that the command sees, besides [`JOB_VAR`]; its
/// secrets are never in the environment of the shim.
pub fn start(shim: &ShimProgram, dir: &Path, env: Vec<(OsString, OsString)>) -> Result<Running, JobError> {
    let dir = fs::canonicalize(dir).map_err(JobError::io("resolve", dir))?;
    let child = spawn(shim, &dir, env).map_err(JobError::io("start", &shim.exe))?;
    // A child keeps its pid until it is waited for.
    let ended = pidfd_open(child.as_raw()).map_err(JobError::io("watch the shim of", &dir))?;
    Ok(Running { dir, ended: Some(ended), child: Some(child) })
}

/// The shim as a process in a session of its own, without input and output. Not by
/// `std::process::Command`, which can create a session only with a fork, and a fork copies the
/// memory map of the supervisor for nothing.
fn spawn(shim: &ShimProgram, dir: &Path, env: Vec<(OsString, OsString)>) -> io::Result<Pid> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let mut files = PosixSpawnFileActions::init()?;
    for standard in 0..=2 {
        files.add_dup2(null.as_raw_fd(), standard)?;
    }
    let job = (JOB_VAR.into(), dir.as_os_str().to_owned());
    let variables: Vec<(OsString, OsString)> =
        env.into_iter().filter(|(name, _)| name != JOB_VAR).chain([job]).collect();
    let carrier = carried::pack(&variables)?;
    files.add_dup2(carrier.as_raw_fd(), carried::FD)?;
    let mut attributes = PosixSpawnAttr::init()?;
    let session = PosixSpawnFlags::from_bits_retain(libc::POSIX_SPAWN_SETSID.into());
    // As `Command` does: no signal is blocked, and SIGPIPE, which every Rust program ignores, is
    // reset.
    let signals = PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF;
    attributes.set_flags(session | signals)?;
    attributes.set_sigmask(&SigSet::empty())?;
    attributes.set_sigdefault(&SigSet::from(Signal::SIGPIPE))?;
    let words = [shim.exe.as_os_str()].into_iter().chain(shim.args.iter().map(OsString::as_os_str));
    let argv: Vec<CString> = words.chain([dir.as_os_str()]).map(|w| c_string(&[w])).collect::<io::Result<_>>()?;
    let planted = planted::POSSIBLE.then(|| std::env::var_os(planted::VARIABLE)).flatten();
    let planted = planted.map(|names| (planted::VARIABLE.into(), names));
    let open = variables.into_iter().filter(|(name, _)| carried::is_open(name)).chain(planted);
    let envp: Vec<CString> =
        open.map(|(name, value)| c_string(&[&name, OsStr::new("="), &value])).collect::<io::Result<_>>()?;
    Ok(posix_spawn(&shim.exe, &files, &attributes, &argv, &envp)?)
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

/// A handle for a job with a shim that an earlier supervisor started.
pub async fn adopt(dir: &Path) -> Result<Running, JobError> {
    let dir = fs::canonicalize(dir).map_err(JobError::io("resolve", dir))?;
    let end = Instant::now() + REPORT_TIMEOUT;
    loop {
        if let JobTrace::Exited(_) | JobTrace::Gone = inspect_aside(&dir).await? {
            return Ok(Running { dir, ended: None, child: None });
        }
        if let Some(started) = job_log::started(&dir)? {
            let ended = started.shim.open().map_err(JobError::io("watch the shim of", &dir))?;
            return Ok(Running { dir, ended, child: None });
        }
        if Instant::now() >= end {
            return Err(JobError::Silent { dir });
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// Inspects a job without blocking other tasks: cleaning up after a killed shim may take a while.
async fn inspect_aside(dir: &Path) -> Result<JobTrace, JobError> {
    // By far the usual case, and not worth a thread.
    if let Ok(Some(record)) = job_log::record(dir) {
        return Ok(JobTrace::Exited(record.exit));
    }
    let aside = dir.to_owned();
    let found = tokio::task::spawn_blocking(move || inspect(&aside)).await;
    found.map_err(|e| JobError::io("inspect", dir)(io::Error::other(e)))?
}

impl Running {
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Waits for the end. May be dropped and called again; costs nothing while it waits. Needs a
    /// tokio runtime.
    pub async fn wait(&mut self) -> Result<JobEnd, JobError> {
        if let Some(fd) = &self.ended {
            let watched = register(fd.as_fd()).map_err(JobError::io("watch the shim of", &self.dir))?;
            watched.readable().await.map_err(JobError::io("wait for the shim of", &self.dir))?.retain_ready();
        }
        if let Some(child) = self.child.take() {
            // It has ended: this only removes it from the process table.
            waitpid(child, None).map_err(|e| JobError::io("wait for the shim of", &self.dir)(e.into()))?;
        }
        match inspect_aside(&self.dir).await? {
            JobTrace::Exited(exit) => Ok(JobEnd::Exited(exit)),
            JobTrace::Gone => Ok(JobEnd::Gone),
            JobTrace::Alive { .. } => Err(JobError::Taken { dir: self.dir.clone() }),
        }
    }
}
