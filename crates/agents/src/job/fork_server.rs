//! A process that becomes shims by forking: this binary, loaded and linked once for many jobs.
//! Executing it for each job costs more than most jobs do themselves.
//!
//! It is started when jobs follow each other closely, and ends by itself when none came for a
//! while, or when its supervisor is gone. Its shims are children of the supervisor, as those that
//! were executed. Where it fails in any way, the supervisor executes the shim.
//!
//! Crash windows: a server that does not answer in time is killed before another way is tried, and
//! its answer is read once more; so a shim that it forked is never forgotten.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use everloop_core::planted;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recv, recvmsg, send, sendmsg,
    socketpair,
};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use super::handle::{Placed, ShimProgram, execute, out_of_the_way};
use super::{JOB_VAR, carried, clone, link, shim};
use crate::process::{self, pidfd_open, pidfd_send_signal};
use crate::redact;

/// The argument, in place of a job's folder, with which a shim becomes the server. Dots follow it
/// up to the length of the longest folder that its shims can show.
const SERVE: &str = "--serve";
/// Bytes that later folders may be longer than the first one.
const ROOM: usize = 24;
/// Without a job for so long the server ends; jobs further apart than this do not need one.
const IDLE: Duration = Duration::from_secs(10);
/// An answer takes less than a millisecond, and much longer only on a machine that is too busy for
/// anything.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// No path is longer.
const MAX_BYTES: usize = 4096;
/// Number of the server's end of the socket.
const FD: RawFd = 3;
/// In the server's environment, in place of the mark of a job: of the same length as every mark.
const NO_MARK: &str = ".................................";

/// The server of this process, and when a job was last started.
#[derive(Debug)]
struct Servers {
    live: Option<ForkServer>,
    last_job: Option<Instant>,
}

static SERVERS: Mutex<Servers> = Mutex::new(Servers { live: None, last_job: None });

/// The supervisor's end.
#[derive(Debug)]
struct ForkServer {
    socket: OwnedFd,
    pidfd: OwnedFd,
    program: ShimProgram,
    planted: Option<OsString>,
    /// Bytes of the longest folder that its shims can show.
    capacity: usize,
}

/// Forks a shim from the server, for the job in `dir` with this mark. `None`: there is no server, and
/// the shim has to be executed.
pub(super) fn fork_shim(program: &ShimProgram, (dir, mark): (&Path, &OsStr), placed: &[Placed<'_>]) -> Option<Pid> {
    let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    let server = servers.live.as_ref().filter(|live| live.fits(program, dir))?;
    let forked = server.fork((dir, mark), placed);
    servers.last_job = Some(Instant::now());
    if forked.is_none() {
        // Usually because it ended after a while without jobs.
        servers.live = None;
    }
    forked
}

/// Starts a server for the jobs after this one, where they follow each other closely.
pub(super) fn expect_more(program: &ShimProgram, dir: &Path) {
    let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_close = servers.last_job.replace(Instant::now()).is_some_and(|last| last.elapsed() < IDLE);
    if is_close && !servers.live.as_ref().is_some_and(|live| live.fits(program, dir)) {
        // Without one, shims are executed.
        servers.live = ForkServer::start(program, dir).ok();
    }
}

impl ForkServer {
    fn start(program: &ShimProgram, dir: &Path) -> io::Result<Self> {
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(io::Error::from)?;
        let capacity = dir.as_os_str().len() + ROOM;
        let word = format!("{SERVE:.<capacity$}");
        let planted = planted();
        let variables = planted.clone().map(|names| (planted::VARIABLE.into(), names));
        let variables = variables.into_iter().chain([(JOB_VAR.into(), NO_MARK.into())]);
        let pid = execute(program, OsStr::new(&word), &[(theirs.as_fd(), FD)], variables)?;
        let pidfd = pidfd_open(pid.as_raw())?;
        // It ends at a time of its own, and is no zombie until the next job.
        std::thread::Builder::new().name("shim server".to_owned()).spawn(move || waitpid(pid, None).ok())?;
        Ok(Self { socket: ours, pidfd, program: program.clone(), planted, capacity })
    }

    /// Whether it can become the shim of a job in `dir`.
    fn fits(&self, program: &ShimProgram, dir: &Path) -> bool {
        self.program == *program && dir.as_os_str().len() <= self.capacity && self.planted == planted()
    }

    fn fork(&self, (dir, mark): (&Path, &OsStr), placed: &[Placed<'_>]) -> Option<Pid> {
        let fds: Vec<RawFd> = placed.iter().map(|(fd, _)| fd.as_raw_fd()).collect();
        let text = [dir.as_os_str().as_bytes(), b"\0", mark.as_bytes()].map(IoSlice::new);
        let rights = [ControlMessage::ScmRights(&fds)];
        sendmsg::<()>(self.socket.as_raw_fd(), &text, &rights, MsgFlags::MSG_NOSIGNAL, None).ok()?;
        if is_readable(self.socket.as_fd(), ANSWER_TIMEOUT) {
            return self.answer();
        }
        // Stopped, or the machine stands still. What it forks before it dies is not forgotten.
        pidfd_send_signal(&self.pidfd, Signal::SIGKILL).ok();
        is_readable(self.pidfd.as_fd(), ANSWER_TIMEOUT);
        self.answer()
    }

    /// The pid of the shim, if it was forked.
    fn answer(&self) -> Option<Pid> {
        let mut bytes = [0; 4];
        let length = recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT).ok()?;
        let pid = i32::from_ne_bytes(bytes);
        (length == bytes.len() && pid > 0).then(|| Pid::from_raw(pid))
    }
}

fn planted() -> Option<OsString> {
    planted::POSSIBLE.then(|| std::env::var_os(planted::VARIABLE)).flatten()
}

fn is_readable(fd: BorrowedFd<'_>, at_most: Duration) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
    // A signal shortens the wait, which no caller has handlers for.
    poll(&mut fds, timeout).is_ok_and(|ready| ready > 0)
}

/// Whether the argument of a shim makes it the server.
pub(super) fn is_asked_for(dir: &Path) -> bool {
    dir.as_os_str().as_bytes().starts_with(SERVE.as_bytes())
}

/// The server: forks a shim for each request, until there are no more.
pub(super) fn serve(word: &Path) -> i32 {
    let shown = Shown::find(word.as_os_str().len());
    process::hide_memory();
    shim::stand_alone();
    redact::prepare();
    #[expect(unsafe_code, reason = "the descriptor is known by its number only")]
    // SAFETY: `ForkServer::start` put it there, and nothing else in this process owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(FD) };
    while is_readable(socket.as_fd(), IDLE) {
        let Some(request) = Request::receive(&socket) else { break };
        let pid = match clone::fork_sibling() {
            Ok(0) => request.become_shim(shown.as_ref()),
            Ok(pid) => pid,
            Err(_) => 0,
        };
        drop(request);
        if send(socket.as_raw_fd(), &pid.to_ne_bytes(), MsgFlags::MSG_NOSIGNAL).is_err() {
            break;
        }
    }
    0
}

/// A job whose shim is wanted.
struct Request {
    dir: PathBuf,
    mark: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Request {
    /// The next one; `None` when the supervisor is gone.
    fn receive(socket: &OwnedFd) -> Option<Self> {
        let mut bytes = [0; MAX_BYTES];
        let mut space = nix::cmsg_space!([RawFd; 3]);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags).ok()?;
        let mut fds = Vec::new();
        for control in message.cmsgs().ok()? {
            if let ControlMessageOwned::ScmRights(numbers) = control {
                #[expect(unsafe_code, reason = "received descriptors are numbers until they have an owner")]
                // SAFETY: the kernel just made them for this process, and nothing else owns them.
                fds.extend(numbers.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
            }
        }
        let length = message.bytes;
        let text = &bytes[..length];
        let (dir, mark) = text.split_at(text.iter().position(|byte| *byte == 0)?);
        let (dir, mark) = (PathBuf::from(OsString::from_vec(dir.to_vec())), mark[1..].to_vec());
        Some(Self { dir, mark, fds })
    }

    /// The rest of the life of a forked process.
    fn become_shim(&self, shown: Option<&Shown>) -> ! {
        let code = match self.take_places() {
            Ok(()) => {
                if let Some(shown) = shown {
                    shown.job(&self.dir, &self.mark);
                }
                shim::run_forked(&self.dir)
            }
            Err(_) => 1,
        };
        #[expect(unsafe_code, reason = "a forked process must not run the exit handlers of the server")]
        // SAFETY: ends this process at once; nothing runs after it.
        unsafe {
            libc::_exit(code)
        }
    }

    /// Puts the descriptors where a shim looks for them.
    fn take_places(&self) -> io::Result<()> {
        let away: Vec<OwnedFd> = self.fds.iter().map(out_of_the_way).collect::<io::Result<_>>()?;
        let places = [carried::FD, link::FD, carried::RULES_FD];
        for place in places {
            #[expect(unsafe_code, reason = "closing by number has no safe form")]
            // SAFETY: what is there belongs to the server, or is a copy of what `away` holds; this
            // process uses neither any more and never returns to the code that owns them.
            unsafe {
                libc::close(place)
            };
        }
        for (fd, place) in away.iter().zip(places) {
            #[expect(unsafe_code, reason = "a number as the target has no safe form")]
            // SAFETY: both are plain numbers of descriptors, and the target was closed above.
            let put = unsafe { libc::dup2(fd.as_raw_fd(), place) };
            nix::errno::Errno::result(put)?;
        }
        Ok(())
    }
}

/// Where the last word of this process's command line, and the mark in its environment, are in
/// memory. Others recognise a shim, and the job that it is of, by them.
struct Shown {
    word: usize,
    word_bytes: usize,
    /// The mark, if there is a place for it.
    mark: Option<usize>,
}

impl Shown {
    fn find(word_bytes: usize) -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The name of the program, in parentheses, is the second of all fields.
        let fields: Vec<&str> = stat.get(stat.rfind(')')? + 2..)?.split(' ').collect();
        // Counted from the third one: where the command line ends, behind the last zero; where the
        // environment begins.
        let field = |number: usize| fields.get(number - 3)?.parse::<usize>().ok();
        let word = field(49)?.checked_sub(word_bytes + 1)?;
        let environment = fs::read("/proc/self/environ").ok()?;
        let entry = [JOB_VAR, "=", NO_MARK].concat();
        let at = environment.windows(entry.len()).position(|part| part == entry.as_bytes());
        let mark = at.and_then(|at| Some(field(50)? + at + JOB_VAR.len() + 1));
        Some(Self { word, word_bytes, mark })
    }

    /// Shows a job: its folder in place of the word, behind as many slashes as it is shorter, and
    /// its mark.
    fn job(&self, dir: &Path, mark: &[u8]) {
        let path = dir.as_os_str().as_bytes();
        if let Some(slashes) = self.word_bytes.checked_sub(path.len()) {
            put(self.word, &[&vec![b'/'; slashes][..], path].concat());
        }
        if let Some(at) = self.mark.filter(|_| mark.len() == NO_MARK.len()) {
            put(at, mark);
        }
    }
}

/// Overwrites text of the command line or of the environment by one of the same length.
#[expect(unsafe_code, reason = "what other processes see can only be changed in place")]
fn put(address: usize, text: &[u8]) {
    // SAFETY: the kernel put text of exactly this length there when this program was executed, in
    // memory that is writable for the life of the process; this process has one thread, and has
    // copied its arguments and variables before it uses them.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), address as *mut u8, text.len());
    }
}
