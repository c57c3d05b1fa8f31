//! Starts the command of a job: own process group, own control group, dies with the shim.
//!
//! Not by `std::process::Command`, because only `clone3` can create a process inside a control
//! group. The shim has one thread, so the child may run any code between fork and exec; still it
//! only makes system calls.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::unistd::{
    ForkResult, Pid, chdir, dup2_stderr, dup2_stdin, dup2_stdout, execvpe, fork, getpid, getppid, pipe2, setpgid,
};

use super::super::cgroup::Cgroup;
use super::super::spec::{Errors, Spec};
use super::super::{HIDE_PREFIX, JOB_VAR, brand, clone, files, key, turn_socket};
use crate::isolation::{Confined, Confinement, SharedRules};

/// Bigger pipes mean fewer switches between command and shim; the kernel's usual upper limit.
const PIPE_BYTES: i32 = 1 << 20;

/// A running command.
#[derive(Debug)]
pub(super) struct Launched {
    /// Its pid, which is also its process group.
    pub(super) pid: i32,
    /// Whether it is in the control group.
    pub(super) grouped: bool,
    /// The reading end of its standard output.
    pub(super) out: OwnedFd,
    /// The reading end of its standard error.
    pub(super) err: OwnedFd,
}

/// Everything that the child needs, prepared before the fork.
struct Plan {
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: CString,
    stdin: File,
    out: OwnedFd,
    err: OwnedFd,
    /// Closed by a successful exec; else it carries the error.
    report: OwnedFd,
    errors: Errors,
    shim: Pid,
    confinement: Confinement,
    /// Marks all processes of the job.
    number: Option<u64>,
}

/// What the shim made for the command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around<'a> {
    pub(super) vars: &'a [(OsString, OsString)],
    /// The folder for its temporary files, if it is isolated.
    pub(super) tmp: Option<&'a Path>,
    /// Where `everloop` inside of it reaches the shim.
    pub(super) socket: Option<&'a Path>,
    pub(super) cgroup: Option<&'a Cgroup>,
    /// Rules that the command enters before its own.
    pub(super) shared: Option<&'a SharedRules>,
}

/// Starts the command; without the group if it cannot be put into it.
pub(super) fn launch(spec: &Spec, around: Around<'_>) -> Result<Launched, String> {
    if !spec.cwd.is_dir() {
        return Err(format!("`{}` is not a folder", spec.cwd.display()));
    }
    let program = spec.argv.first().ok_or("the command is empty")?;
    let pipe_failed = |e: io::Error| format!("pipe: {e}");
    let (out, out_writer) = pipe().map_err(pipe_failed)?;
    let (err, err_writer) = pipe().map_err(pipe_failed)?;
    let (report, report_writer) = pipe2(OFlag::O_CLOEXEC).map_err(|e| format!("pipe: {e}"))?;
    let confinement = confinement(spec, around)?;
    let plan = Plan {
        argv: confinement.argv.iter().map(|a| c_string(a.as_bytes())).collect::<Result<_, _>>()?,
        env: environment(around)?,
        cwd: c_string(spec.cwd.as_os_str().as_bytes())?,
        stdin: stdin(spec)?,
        out: out_writer,
        err: err_writer,
        report: report_writer,
        errors: spec.errors,
        shim: getpid(),
        confinement,
        number: number(around),
    };
    let door = around.cgroup.and_then(|group| group.door().ok());
    let (pid, grouped) = make_child(&plan, door.as_ref()).map_err(|e| format!("fork: {e}"))?;
    // Closes the shim's copies of the writing ends, so that both pipes end with the command.
    drop(plan);
    let mut failure = [0; 4];
    if File::from(report).read_exact(&mut failure).is_err() {
        // The exec closed the pipe: the command runs.
        return Ok(Launched { pid, grouped, out, err });
    }
    nix::sys::wait::waitpid(Pid::from_raw(pid), None).ok();
    let why = io::Error::from_raw_os_error(i32::from_ne_bytes(failure));
    Err(format!("`{program}`: {why}"))
}

/// The number in the job's mark.
fn number(around: Around<'_>) -> Option<u64> {
    let (_, mark) = around.vars.iter().find(|(name, _)| name == JOB_VAR)?;
    key::number(mark.to_str()?)
}

/// The isolation of the command, with everything opened that it needs.
fn confinement(spec: &Spec, around: Around<'_>) -> Result<Confinement, String> {
    match (&spec.isolation, around.tmp) {
        (Some(isolation), Some(tmp)) => {
            let of = Confined { isolation, argv: &spec.argv, cwd: &spec.cwd, tmp, shared: around.shared };
            Confinement::prepare(of).map_err(|why| format!("cannot isolate the command: {why}"))
        }
        _ => Ok(Confinement::open(&spec.argv)),
    }
}

/// The variables for the command: without those for the shim alone, with places of its own.
fn environment(around: Around<'_>) -> Result<Vec<CString>, String> {
    let places =
        [("TMPDIR", around.tmp), ("TMP", around.tmp), ("TEMP", around.tmp), (turn_socket::VARIABLE, around.socket)];
    let own = |name: &OsStr| places.iter().any(|(own, path)| path.is_some() && name == *own);
    let seen =
        around.vars.iter().filter(|(name, _)| !name.as_bytes().starts_with(HIDE_PREFIX.as_bytes()) && !own(name));
    let seen = seen.map(|(name, value)| (name.as_os_str(), value.as_os_str()));
    let placed = places.iter().filter_map(|(name, path)| Some((OsStr::new(*name), (*path)?.as_os_str())));
    seen.chain(placed).map(|(name, value)| c_string(&[name.as_bytes(), b"=", value.as_bytes()].concat())).collect()
}

fn stdin(spec: &Spec) -> Result<File, String> {
    let (path, opened) = match spec.stdin.as_deref() {
        Some(path) => (path, files::read(path)),
        None => (Path::new("/dev/null"), File::open("/dev/null")),
    };
    opened.map_err(|e| format!("`{}`: {e}", path.display()))
}

fn c_string(bytes: &[u8]) -> Result<CString, String> {
    CString::new(bytes).map_err(|_| "the command holds a NUL character".to_owned())
}

/// Forks, into the group if there is one and the kernel can. Does not return in the child.
fn make_child(plan: &Plan, door: Option<&File>) -> io::Result<(i32, bool)> {
    if let Some(door) = door {
        match clone::fork_into(door) {
            Ok(0) => become_command(plan),
            Ok(pid) => return Ok((pid, true)),
            // An old kernel, a sandbox without clone3, a group that rejects the process: continue
            // without.
            Err(_) => {}
        }
    }
    #[expect(unsafe_code, reason = "fork has no safe form")]
    // SAFETY: this process has one thread, so the child finds no lock held by another.
    match unsafe { fork() }? {
        ForkResult::Child => become_command(plan),
        ForkResult::Parent { child } => Ok((child.as_raw(), false)),
    }
}

/// The child's part: never returns.
fn become_command(plan: &Plan) -> ! {
    let why =
        prepare(plan).and_then(|()| execvpe(&plan.argv[0], &plan.argv, &plan.env)).err().unwrap_or(Errno::UnknownErrno);
    // The write fails only when the shim is gone, and then the error has no reader.
    nix::unistd::write(&plan.report, &(why as i32).to_ne_bytes()).ok();
    #[expect(unsafe_code, reason = "a forked child must not run the exit handlers of its parent")]
    // SAFETY: ends this process at once; nothing runs after it.
    unsafe {
        libc::_exit(127)
    }
}

fn prepare(plan: &Plan) -> nix::Result<()> {
    setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
    chdir(plan.cwd.as_c_str())?;
    dup2_stdin(&plan.stdin)?;
    dup2_stdout(&plan.out)?;
    match plan.errors {
        Errors::Apart => dup2_stderr(&plan.err)?,
        Errors::WithOutput => dup2_stderr(&plan.out)?,
    }
    if let Some(number) = plan.number {
        brand::put(number);
    }
    plan.confinement.enter()?;
    // After the isolation, which may change credentials and thereby clear this.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if getppid() != plan.shim {
        // The shim died before the line above: the parent-death signal would never arrive.
        return Err(Errno::ESRCH);
    }
    // The shim blocks the signals that it reads from a descriptor, and every Rust program ignores
    // SIGPIPE; a command must inherit neither.
    #[expect(unsafe_code, reason = "setting a signal to its default has no safe wrapper")]
    // SAFETY: no handler is installed.
    unsafe {
        signal(Signal::SIGPIPE, SigHandler::SigDfl)?;
    }
    SigSet::empty().thread_set_mask()
}

/// A pipe with a non-blocking reading end.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    // Not always permitted; the usual 64 KB work as well.
    fcntl(&reader, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES)).ok();
    Ok((reader, writer))
}
