//! What a fresh shim has to undo (inherited signals, descriptors, session) and to take (signals,
//! orphans).

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Signals that a shim reads instead of being ended by them.
const READ: [Signal; 4] = [Signal::SIGCHLD, Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Signals that a shell, `nohup` or a CI runner may have set to be ignored; the command would
/// inherit that and could no longer be interrupted.
const RESET: [Signal; 8] = [
    Signal::SIGCHLD,
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
];

/// The signals of this process, read one by one.
#[derive(Debug)]
pub(super) struct Signals {
    fd: SignalFd,
}

impl Signals {
    /// From here on signals are queued until they are read.
    pub(super) fn take() -> io::Result<Self> {
        let set: SigSet = READ.into_iter().collect();
        set.thread_block()?;
        reset_ignored()?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { fd })
    }

    /// The next queued signal, if any.
    pub(super) fn next(&self) -> Option<Signal> {
        let info = self.fd.read_signal().ok().flatten()?;
        Signal::try_from(info.ssi_signo as i32).ok()
    }

    /// Waits for any signal and discards all queued ones.
    pub(super) fn wait(&self, at_most: Duration) {
        let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        // An interrupted wait is a short wait; every caller checks again.
        poll(&mut fds, PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX)).ok();
        while self.next().is_some() {}
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[expect(unsafe_code, reason = "setting a signal to its default has no safe wrapper")]
fn reset_ignored() -> io::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in RESET {
        // SAFETY: no handler is installed, so no code of this program can run in a signal context.
        unsafe { sigaction(signal, &default) }?;
    }
    Ok(())
}

/// Leaves the session and the terminal of the parent (already done when [`crate::job::start`] did
/// it), and its working folder, which would otherwise stay busy for unmounting or removal.
pub(in crate::job) fn stand_alone() {
    nix::unistd::setsid().ok();
    std::env::set_current_dir("/").ok();
}

/// Orphans below this process become its children instead of init's, so that none can hide.
pub(super) fn adopt_orphans() -> io::Result<()> {
    Ok(prctl::set_child_subreaper(true)?)
}

/// Descriptors that a shell or a service manager left open must not reach the command.
#[expect(unsafe_code, reason = "close_range has no safe wrapper; it only sets a flag here")]
pub(super) fn close_inherited_on_exec() {
    // SAFETY: nothing is closed and no memory is touched; an old kernel returns an error, and then
    // the command sees what any child of the supervisor would see.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Peak memory of this process. (`getrusage` would count the supervisor that it was forked from.)
pub(super) fn peak_memory_kb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
