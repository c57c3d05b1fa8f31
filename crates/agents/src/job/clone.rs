//! Forks that only `clone3` can make. The calling process has one thread, so the child may run any
//! code.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::libc;

/// From linux/sched.h; in the libc crate it does not fit its type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Forks, with the child in the control group from its start; returns 0 in the child.
pub(super) fn fork_into(door: &File) -> io::Result<i32> {
    fork(CLONE_INTO_CGROUP, libc::SIGCHLD as u64, door.as_raw_fd() as u64)
}

/// Forks, with the child as a child of this process's parent; returns 0 in the child.
pub(super) fn fork_sibling() -> io::Result<i32> {
    // It has the same signal at its end as this process.
    fork(libc::CLONE_PARENT as u64, 0, 0)
}

#[expect(unsafe_code, reason = "clone3 has no safe form")]
fn fork(flags: u64, exit_signal: u64, cgroup: u64) -> io::Result<i32> {
    // SAFETY: all zeros is a valid value of this plain struct; without CLONE_VM the call is a fork,
    // and this process has one thread.
    let pid = unsafe {
        let mut args: libc::clone_args = std::mem::zeroed();
        (args.flags, args.exit_signal, args.cgroup) = (flags, exit_signal, cgroup);
        libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>())
    };
    Errno::result(pid).map(|pid| pid as i32).map_err(io::Error::from)
}
