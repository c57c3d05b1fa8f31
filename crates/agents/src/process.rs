//! Identity of a process: pid, start time and boot, so that a reused pid is never mistaken for an
//! earlier process.
//!
//! Reads `/proc` and signals single processes. What to kill and when is decided in [`crate::job`].

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

use everloop_core::planted::{self, Bug};
use nix::libc;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

/// A process that can be recognised later, also across a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    pub pid: i32,
    /// Start time, in clock ticks since boot.
    pub start_ticks: u64,
    /// The boot that it belongs to.
    pub boot: String,
}

/// Whether a signal reached its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalResult {
    /// It was sent.
    Signalled,
    /// That process no longer exists.
    NotThere,
}

/// The used fields of `/proc/<pid>/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub pid: i32,
    /// `R`, `S`, `Z` and so on.
    pub state: char,
    pub parent: i32,
    pub group: i32,
    /// The session: a number of its leader, which no other process gets while the session lasts.
    pub session: i32,
    /// CPU that it used itself, in clock ticks.
    pub own_ticks: u64,
    /// CPU of children that it has waited for, in clock ticks.
    pub waited_ticks: u64,
    /// Start time, in clock ticks since boot.
    pub start_ticks: u64,
}

impl Identity {
    /// The process that has this pid now.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = stat(pid)?;
        Some(Self { pid, start_ticks: stat.start_ticks, boot: boot_id().to_owned() })
    }

    pub fn current() -> io::Result<Self> {
        let pid = std::process::id() as i32;
        Self::of(pid).ok_or_else(|| io::Error::other("`/proc/self/stat` cannot be read"))
    }

    /// Still the same process, and not a zombie.
    pub fn is_alive(&self) -> bool {
        self.boot == boot_id() && stat(self.pid).is_some_and(|s| s.start_ticks == self.start_ticks && s.is_alive())
    }

    /// A descriptor that becomes readable when it ends; `None` when it already did.
    pub fn open(&self) -> io::Result<Option<OwnedFd>> {
        if self.boot != boot_id() {
            return Ok(None);
        }
        let fd = match pidfd_open(self.pid) {
            Ok(fd) => fd,
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            Err(e) => return Err(e),
        };
        // Checked after opening: from here on the descriptor cannot refer to another process.
        Ok(stat(self.pid).filter(|s| s.start_ticks == self.start_ticks).map(|_| fd))
    }

    /// Signals this process and no other.
    pub fn signal(&self, signal: Signal) -> io::Result<SignalResult> {
        let Some(fd) = self.open()? else { return Ok(SignalResult::NotThere) };
        pidfd_send_signal(&fd, signal)
    }
}

impl Stat {
    /// Neither a zombie nor about to vanish.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// The identity of the process that this was read from.
    pub fn identity(&self) -> Identity {
        Identity { pid: self.pid, start_ticks: self.start_ticks, boot: boot_id().to_owned() }
    }
}

/// An id that changes at every boot.
pub fn boot_id() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        fs::read_to_string("/proc/sys/kernel/random/boot_id").map_or_else(|_| String::new(), |s| s.trim().to_owned())
    })
}

/// The kernel's current record of a process.
pub fn stat(pid: i32) -> Option<Stat> {
    parse_stat(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// A program's name may contain blanks and brackets, so fields are counted from the last bracket.
fn parse_stat(pid: i32, line: &[u8]) -> Option<Stat> {
    let close = line.iter().rposition(|&b| b == b')')?;
    let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |i: usize| fields.get(i)?.parse::<u64>().ok();
    Some(Stat {
        pid,
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        own_ticks: number(11)? + number(12)?,
        waited_ticks: number(13)? + number(14)?,
        start_ticks: number(19)?,
    })
}

/// The pids of all processes.
pub fn all() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// The process, its parent, and so on up to the first.
pub fn with_ancestors(pid: i32) -> BTreeSet<i32> {
    line_of(pid).into_iter().collect()
}

/// The same, in that order.
pub fn line_of(pid: i32) -> Vec<i32> {
    let mut line = Vec::new();
    let mut next = pid;
    while next > 0 && !line.contains(&next) {
        line.push(next);
        next = stat(next).map_or(0, |s| s.parent);
    }
    line
}

/// The words of its command line.
pub fn command_line(pid: i32) -> Vec<OsString> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|b| *b == 0);
    words.map(|word| OsString::from_vec(word.to_vec())).collect()
}

/// Children, their children and so on, zombies included; not the process itself.
pub fn descendants(root: i32) -> Vec<Stat> {
    if fs::exists(format!("/proc/{root}/task/{root}/children")).unwrap_or(false) {
        descendants_by_children(root)
    } else {
        descendants_by_scan(root)
    }
}

/// Costs only as much as the tree is big; used where the kernel keeps lists of children.
fn descendants_by_children(root: i32) -> Vec<Stat> {
    let mut found = BTreeMap::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        for child in children(pid) {
            if let Some(stat) = stat(child)
                && found.insert(child, stat).is_none()
            {
                open.push(child);
            }
        }
    }
    found.into_values().collect()
}

fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    threads
        .flatten()
        .filter_map(|t| fs::read_to_string(t.path().join("children")).ok())
        .flat_map(|text| text.split_ascii_whitespace().filter_map(|w| w.parse().ok()).collect::<Vec<i32>>())
        .collect()
}

/// Reads the whole process table; used on kernels without lists of children.
fn descendants_by_scan(root: i32) -> Vec<Stat> {
    let mut by_parent: BTreeMap<i32, Vec<Stat>> = BTreeMap::new();
    for stat in all().into_iter().filter_map(stat) {
        by_parent.entry(stat.parent).or_default().push(stat);
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        for stat in by_parent.remove(&pid).unwrap_or_default() {
            open.push(stat.pid);
            found.push(stat);
        }
    }
    found
}

/// No process of the same user reads this one's memory, environment or descriptors from here on.
pub fn hide_memory() {
    if planted::is(Bug::MemoryShown) {
        return;
    }
    // An error is possible only on kernels without the call.
    nix::sys::prctl::set_dumpable(false).ok();
}

/// Gives memory that is free back to the kernel, after work that needed much of it once. Another C
/// library than glibc does so by itself.
#[cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "no safe wrapper; the call takes an integer"))]
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers are passed, and the allocator takes its own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[expect(unsafe_code, reason = "no safe wrapper in nix; the call takes two integers and returns a new descriptor")]
pub(crate) fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed; a non-negative result is a descriptor without another owner.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: see above; the kernel sets close-on-exec by itself.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[expect(unsafe_code, reason = "no safe wrapper in nix; the only pointer passed is null")]
pub(crate) fn pidfd_send_signal(fd: &OwnedFd, signal: Signal) -> io::Result<SignalResult> {
    let none: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: the descriptor is open for the whole call and a null siginfo is allowed.
    let done = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal as i32, none, 0) };
    match io::Error::last_os_error() {
        _ if done >= 0 => Ok(SignalResult::Signalled),
        e if e.raw_os_error() == Some(libc::ESRCH) => Ok(SignalResult::NotThere),
        e => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let line = b"7 (a) b) (c) S 3 4 5 0 -1 0 0 0 0 0 10 20 30 40 20 0 1 0 999 0 0";
        let stat = parse_stat(7, line).unwrap();
        assert_eq!((stat.parent, stat.group, stat.session, stat.state), (3, 4, 5, 'S'));
        assert_eq!((stat.own_ticks, stat.waited_ticks, stat.start_ticks), (30, 70, 999));
    }

    #[test]
    fn another_start_time_is_another_process() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let real = Identity::of(child.id() as i32).unwrap();
        let reused = Identity { start_ticks: real.start_ticks + 1, ..real.clone() };
        let rebooted = Identity { boot: "another".to_owned(), ..real.clone() };
        for stranger in [reused, rebooted] {
            assert!(!stranger.is_alive());
            assert_eq!(stranger.signal(Signal::SIGKILL).unwrap(), SignalResult::NotThere);
        }
        assert!(real.is_alive());
        assert_eq!(real.signal(Signal::SIGKILL).unwrap(), SignalResult::Signalled);
        child.wait().unwrap();
        assert_eq!(real.signal(Signal::SIGKILL).unwrap(), SignalResult::NotThere);
    }

    #[test]
    fn both_ways_to_list_descendants_agree() {
        let mut child = Command::new("sh").args(["-c", "cat & cat; wait"]).stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id() as i32;
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while descendants(pid).is_empty() && std::time::Instant::now() < end {
            std::thread::yield_now();
        }
        let pids = |list: Vec<Stat>| list.into_iter().map(|s| s.pid).collect::<BTreeSet<_>>();
        let (mut a, mut b) = (pids(descendants_by_children(pid)), pids(descendants_by_scan(pid)));
        while a != b && std::time::Instant::now() < end {
            (a, b) = (pids(descendants_by_children(pid)), pids(descendants_by_scan(pid)));
        }
        assert_eq!(a, b);
        assert!(!a.is_empty());
        assert!(with_ancestors(pid).contains(&(std::process::id() as i32)));
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
