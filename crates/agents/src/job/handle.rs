//! Starting a job and waiting for it, also for one that another supervisor started.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use everloop_core::event::Exit;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep};

use super::error::Error;
use super::files;
use super::recover::{Found, inspect};
use super::{JOB_VAR, SHIM_ARG};
use crate::process::Identity;

/// How long a shim may take from its lock to saying who it is; normally milliseconds.
const REPORT_PATIENCE: Duration = Duration::from_secs(5);

/// The program that becomes a shim, and the arguments before the job's folder.
#[derive(Clone, Debug)]
pub struct Shim {
    /// An absolute path.
    pub exe: PathBuf,
    /// For the main binary: [`SHIM_ARG`].
    pub args: Vec<OsString>,
}

impl Shim {
    /// This program, also when its file was replaced by a newer version meanwhile.
    pub fn current() -> io::Result<Self> {
        let exe = std::env::current_exe()?;
        let exe = if exe.exists() { exe } else { PathBuf::from("/proc/self/exe") };
        Ok(Self { exe, args: vec![SHIM_ARG.into()] })
    }
}

/// A job that was started. Dropping it lets the job go on.
#[derive(Debug)]
pub struct Running {
    dir: PathBuf,
    /// Readable when the shim ended; `None` when it already has.
    ended: Option<OwnedFd>,
    /// The shim, when it is our child.
    child: Option<Child>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It left its record.
    Exited(Exit),
    /// Its shim was killed, or refused because the job had been cancelled. Nothing of it runs.
    Gone,
}

/// Starts the shim of a prepared job. `env` is all that shim and command see, besides [`JOB_VAR`].
pub fn start(shim: &Shim, dir: &Path, env: Vec<(OsString, OsString)>) -> Result<Running, Error> {
    let dir = fs::canonicalize(dir).map_err(Error::io("resolve", dir))?;
    let mut command = Command::new(&shim.exe);
    command.args(&shim.args).arg(&dir).env_clear().envs(env).env(JOB_VAR, &dir);
    // Not in our folder, which somebody may want to unmount or remove while a job outlives us.
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    in_own_session(&mut command);
    let child = command.spawn().map_err(Error::io("start", &shim.exe))?;
    let ended = match Identity::of(child.id() as i32) {
        // Our own child keeps its number until we wait for it.
        Some(identity) => identity.open().map_err(Error::io("watch the shim of", &dir))?,
        None => None,
    };
    Ok(Running { dir, ended, child: Some(child) })
}

#[expect(unsafe_code, reason = "pre_exec is the only way to run code between fork and exec")]
fn in_own_session(command: &mut Command) {
    // SAFETY: one system call, nothing is allocated.
    unsafe { command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(io::Error::from)) };
}

#[expect(unsafe_code, reason = "registering a descriptor has no safe form")]
fn register(fd: BorrowedFd<'_>) -> io::Result<AsyncFd<BorrowedFd<'_>>> {
    // SAFETY: a borrowed descriptor stays open, and the same, for as long as the borrow lives.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// A handle for a job whose shim was started by a supervisor that is no more.
pub async fn adopt(dir: &Path) -> Result<Running, Error> {
    let dir = fs::canonicalize(dir).map_err(Error::io("resolve", dir))?;
    let end = Instant::now() + REPORT_PATIENCE;
    loop {
        if let Found::Exited(_) | Found::Gone = inspect_aside(&dir).await? {
            return Ok(Running { dir, ended: None, child: None });
        }
        if let Some(started) = files::started(&dir)? {
            let ended = started.shim.open().map_err(Error::io("watch the shim of", &dir))?;
            return Ok(Running { dir, ended, child: None });
        }
        if Instant::now() >= end {
            return Err(Error::Silent { dir });
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// Looks at a job without holding up other tasks: cleaning up after a killed shim may take a while.
async fn inspect_aside(dir: &Path) -> Result<Found, Error> {
    // By far the usual case, and not worth a thread.
    if let Ok(Some(record)) = files::record(dir) {
        return Ok(Found::Exited(record.exit));
    }
    let aside = dir.to_owned();
    let found = tokio::task::spawn_blocking(move || inspect(&aside)).await;
    found.map_err(|e| Error::io("inspect", dir)(io::Error::other(e)))?
}

impl Running {
    /// The job's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Waits for the end. May be dropped and called again; costs nothing while it waits. Needs a tokio runtime.
    pub async fn wait(&mut self) -> Result<Ended, Error> {
        if let Some(fd) = &self.ended {
            let watched = register(fd.as_fd()).map_err(Error::io("watch the shim of", &self.dir))?;
            watched.readable().await.map_err(Error::io("wait for the shim of", &self.dir))?.retain_ready();
        }
        if let Some(mut child) = self.child.take() {
            // It has ended: this only takes it off the process table.
            child.wait().map_err(Error::io("wait for the shim of", &self.dir))?;
        }
        match inspect_aside(&self.dir).await? {
            Found::Exited(exit) => Ok(Ended::Exited(exit)),
            Found::Gone => Ok(Ended::Gone),
            Found::Alive { .. } => Err(Error::Taken { dir: self.dir.clone() }),
        }
    }
}
