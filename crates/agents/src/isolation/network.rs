//! A network of its own for a command: without any interface, or with a loopback that leads
//! nowhere else.

use std::fs;

use everloop_core::isolation::NetworkAccess;
use nix::errno::Errno;
use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

/// Moves the calling process into a network namespace. Only for a forked child with one thread.
pub(super) fn leave(access: NetworkAccess) -> nix::Result<()> {
    if unshare(CloneFlags::CLONE_NEWNET).is_err() {
        let (user, group) = (geteuid(), getegid());
        // The files below belong to root while this process hides its memory.
        nix::sys::prctl::set_dumpable(true)?;
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
        let write = |file: &str, text: String| fs::write(file, text).map_err(|_| Errno::EPERM);
        write("/proc/self/setgroups", "deny".to_owned())?;
        write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    match access {
        NetworkAccess::Loopback => raise_loopback(),
        NetworkAccess::None | NetworkAccess::Open => Ok(()),
    }
}

#[expect(unsafe_code, reason = "setting the flags of an interface has no safe wrapper")]
fn raise_loopback() -> nix::Result<()> {
    // SAFETY: all zeros is a valid value of this plain struct; both calls get a pointer to it that
    // lives longer than they run, and the descriptor is closed here.
    unsafe {
        let socket = Errno::result(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))?;
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        let done = Errno::result(libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw const request));
        libc::close(socket);
        done.map(drop)
    }
}
