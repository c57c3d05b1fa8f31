//! A control group around a command, where the system permits one: kills a whole tree at once and
//! counts its CPU.
//!
//! Everything here may fail (no cgroup v2, no permission); then the process tree is walked instead.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

use crate::process;

/// Only groups with this prefix may be killed and removed.
const NAME_PREFIX: &str = "everloop-";

/// A group that everloop created.
#[derive(Clone, Debug)]
pub(super) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Creates a group below the current one; `None` where that is not possible.
    pub(super) fn create(unique: &str) -> Option<Self> {
        let path = own_group()?.join(format!("{NAME_PREFIX}{unique}"));
        fs::create_dir(&path).ok()?;
        Some(Self { path })
    }

    /// Bounds its processes and its memory, where the system delegates that.
    pub(super) fn limit(&self, processes: Option<u64>, memory_mb: Option<u64>) {
        let limits = [("pids", "pids.max", processes), ("memory", "memory.max", memory_mb.map(|mb| mb << 20))];
        for (controller, file, most) in limits {
            let Some(most) = most else { continue };
            let set = || fs::write(self.path.join(file), most.to_string());
            if set().is_err() {
                // Best effort: a group with processes of its own cannot pass controllers on.
                let above = self.path.parent().map(|above| above.join("cgroup.subtree_control"));
                if above.is_some_and(|above| fs::write(above, format!("+{controller}")).is_ok()) {
                    set().ok();
                }
            }
        }
    }

    /// A group that a shim recorded; `None` when it is gone or lacks the prefix.
    pub(super) fn recorded(path: &Path) -> Option<Self> {
        let ours = path.file_name()?.to_str()?.starts_with(NAME_PREFIX);
        (ours && path.join("cgroup.procs").exists()).then(|| Self { path: path.to_owned() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its folder; a process can be created directly inside the group with it. (Moving one there
    /// afterwards makes the kernel wait for all processors, some 10 ms.)
    pub(super) fn door(&self) -> io::Result<File> {
        File::open(&self.path)
    }

    /// Its processes, without those of groups below it.
    pub(super) fn pids(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|l| l.parse().ok()).collect()
    }

    /// Whether no process is in it or below it.
    pub(super) fn is_empty(&self) -> bool {
        fs::read_to_string(self.path.join("cgroup.events")).map_or(true, |e| !e.contains("populated 1"))
    }

    /// Kills everything in it at once, including concurrent forks (Linux 5.14); else one by one.
    pub(super) fn kill(&self) {
        if fs::write(self.path.join("cgroup.kill"), "1").is_ok() {
            return;
        }
        for stat in self.pids().into_iter().filter_map(process::stat) {
            // Best effort: the caller repeats this until the group is empty.
            stat.identity().signal(Signal::SIGKILL).ok();
        }
    }

    /// CPU that everything in it ever used.
    pub(super) fn cpu_ms(&self) -> Option<u64> {
        let text = fs::read_to_string(self.path.join("cpu.stat")).ok()?;
        let micros: u64 = text.lines().find_map(|l| l.strip_prefix("usage_usec "))?.trim().parse().ok()?;
        Some(micros / 1000)
    }

    /// Removes it with the groups that the command may have made below it.
    pub(super) fn remove(&self) {
        remove_groups(&self.path);
    }
}

/// The shim of the outermost group of a job in the text of `/proc/PID/cgroup`.
pub(super) fn shim_of(groups: &str) -> Option<i32> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let name = path.split('/').find_map(|part| part.strip_prefix(NAME_PREFIX))?;
    name.split('-').next()?.parse().ok()
}

fn remove_groups(path: &Path) {
    for below in fs::read_dir(path).into_iter().flatten().flatten() {
        if below.file_type().is_ok_and(|t| t.is_dir()) {
            remove_groups(&below.path());
        }
    }
    // Best effort: a remaining empty group costs one directory entry.
    fs::remove_dir(path).ok();
}

/// The directory of this process's group.
fn own_group() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let dir = locate(&mounts, &groups)?;
    dir.join("cgroup.procs").exists().then_some(dir)
}

/// Joins the mount of cgroup v2 (also beside v1, in a hybrid system) with the group's path in it.
fn locate(mounts: &str, groups: &str) -> Option<PathBuf> {
    let ours = groups.lines().find_map(|l| l.strip_prefix("0::"))?;
    if ours.contains("..") || ours.ends_with(" (deleted)") {
        // The group is outside of what this container can see.
        return None;
    }
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        if right.split(' ').next()? != "cgroup2" {
            return None;
        }
        let fields: Vec<&str> = left.split(' ').collect();
        let (root, mount) = (unescape(fields.get(3)?), unescape(fields.get(4)?));
        let below = Path::new(ours).strip_prefix(root).ok()?;
        Some(mount.join(below))
    })
}

/// Decodes blanks and other characters that mountinfo writes as `\040`.
fn unescape(field: &str) -> PathBuf {
    let bytes = field.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let octal = (bytes[i] == b'\\').then(|| field.get(i + 1..i + 4)).flatten();
        if let Some(byte) = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            out.push(byte);
            i += 4;
        } else {
            out.push(bytes[i]);
            i += 1;
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_in_pure_and_hybrid_systems() {
        let pure = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        let hybrid = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw,relatime - cgroup2 cgroup2 rw";
        let inner = "30 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        let found = |mounts, groups| locate(mounts, groups).map(|p| p.to_str().unwrap().to_owned());
        assert_eq!(found(pure, "0::/user.slice/a.scope\n").as_deref(), Some("/sys/fs/cgroup/user.slice/a.scope"));
        assert_eq!(found(hybrid, "1:cpu:/x\n0::/\n").as_deref(), Some("/sys/fs/cgroup/uni fied/"));
        assert_eq!(found(inner, "0::/docker/abc/sub\n").as_deref(), Some("/sys/fs/cgroup/sub"));
        assert_eq!(found(inner, "0::/elsewhere\n"), None);
        assert_eq!(found(pure, "0::/../other\n"), None);
        assert_eq!(found(pure, "4:memory:/x\n"), None);
    }

    #[test]
    fn a_group_names_its_shim() {
        assert_eq!(shim_of("1:cpu:/x\n0::/user.slice/everloop-71-1234/below/everloop-9-9\n"), Some(71));
        assert_eq!(shim_of("0::/system.slice/everloop.service\n"), None);
        assert_eq!(shim_of("1:cpu:/everloop-71-1\n"), None);
    }

    #[test]
    fn other_peoples_groups_are_not_ours() {
        assert!(Cgroup::recorded(Path::new("/sys/fs/cgroup")).is_none());
        assert!(Cgroup::recorded(Path::new("/sys/fs/cgroup/everloop-not-there")).is_none());
    }
}
