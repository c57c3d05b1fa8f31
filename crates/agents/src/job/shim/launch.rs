//! Starts the command of a job: own process group, own control group, dies with the shim.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{getpid, getppid, pipe2};

use super::super::cgroup::Cgroup;
use super::super::spec::Spec;

/// Bigger pipes mean fewer switches between command and shim; the kernel's usual upper limit.
const PIPE_BYTES: i32 = 1 << 20;

/// A command that runs.
#[derive(Debug)]
pub(super) struct Launched {
    /// Its number, and that of its process group.
    pub(super) pid: i32,
    /// It is in the control group.
    pub(super) grouped: bool,
    /// Where its output comes from.
    pub(super) out: OwnedFd,
    /// Where its errors come from.
    pub(super) err: OwnedFd,
}

/// Starts the command; if it cannot be put into the group it runs without.
pub(super) fn launch(spec: &Spec, cgroup: Option<&Cgroup>) -> Result<Launched, String> {
    if !spec.cwd.is_dir() {
        return Err(format!("`{}` is not a folder", spec.cwd.display()));
    }
    if let Some(cgroup) = cgroup
        && let Ok(door) = cgroup.door()
        && let Ok(launched) = try_launch(spec, Some(door))
    {
        return Ok(launched);
    }
    // Also after a failure that had nothing to do with the group: the second one is then the one that is told.
    try_launch(spec, None)
}

fn try_launch(spec: &Spec, door: Option<File>) -> Result<Launched, String> {
    let (program, args) = spec.argv.split_first().ok_or("the command is empty")?;
    let stdin = match &spec.stdin {
        Some(path) => OpenOptions::new().read(true).open(path).map_err(|e| format!("`{}`: {e}", path.display()))?,
        None => File::open("/dev/null").map_err(|e| format!("`/dev/null`: {e}"))?,
    };
    let (out, out_writer) = pipe().map_err(|e| format!("pipe: {e}"))?;
    let (err, err_writer) = pipe().map_err(|e| format!("pipe: {e}"))?;
    let grouped = door.is_some();
    let mut command = Command::new(program);
    command.args(args).current_dir(&spec.cwd).process_group(0);
    command.stdin(Stdio::from(stdin)).stdout(Stdio::from(out_writer)).stderr(Stdio::from(err_writer));
    before_exec(&mut command, door);
    // The child is waited for with all other orphans, never through this handle. Dropping `command` closes our
    // copies of the writing ends.
    let child = command.spawn().map_err(|e| format!("`{program}`: {e}"))?;
    Ok(Launched { pid: child.id() as i32, grouped, out, err })
}

#[expect(unsafe_code, reason = "pre_exec is the only way to run code between fork and exec")]
fn before_exec(command: &mut Command, door: Option<File>) {
    let shim = getpid();
    let prepare = move || -> io::Result<()> {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        // The shim blocks the signals it reads from a descriptor; its command must not inherit that.
        SigSet::empty().thread_set_mask()?;
        if getppid() != shim {
            // The shim died before the line above: nobody would ever kill us.
            return Err(Errno::ESRCH.into());
        }
        if let Some(door) = &door {
            nix::unistd::write(door, b"0")?;
        }
        Ok(())
    };
    // SAFETY: only system calls; nothing is allocated and no lock is taken between fork and exec.
    unsafe { command.pre_exec(prepare) };
}

/// A pipe whose reading end does not block.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    // Not allowed for everybody; the usual 64 KB work as well.
    fcntl(&reader, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES)).ok();
    Ok((reader, writer))
}
