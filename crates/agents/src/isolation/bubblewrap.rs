//! An isolation as a mount namespace and a process namespace, made by `bwrap`. Hidden folders are
//! empty there, and no process of others exists.

use std::io::{Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use everloop_core::isolation::{NetworkAccess, places};
use everloop_core::planted::{self, Bug};
use nix::sys::memfd::{MFdFlags, memfd_create};
use seccompiler::BpfProgram;

use super::capabilities::DROPPED;
use super::filter::{self, Enclosure};
use super::grants::{Grants, RealPath};
use super::{Confined, Confinement, means};

pub(super) fn confinement(of: Confined<'_>) -> Result<Confinement, String> {
    let program = means::bubblewrap().ok_or("bubblewrap is not installed (`bwrap` is not in PATH)")?;
    let mut argv = vec![program.display().to_string()];
    let mut word = |words: &[&str]| argv.extend(words.iter().map(|w| (*w).to_owned()));
    word(&["--die-with-parent", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc"]);
    word(if planted::is(Bug::DevicesOpened) { &["--dev-bind", "/dev", "/dev"] } else { &["--dev", "/dev"] });
    for (name, _) in DROPPED.iter().filter(|_| !planted::is(Bug::PowersKept)) {
        word(&["--cap-drop", name]);
    }
    match of.isolation.network {
        NetworkAccess::Open => {}
        // Its loopback is up in any case; one that leads nowhere is as good as none.
        NetworkAccess::Loopback | NetworkAccess::None => word(&["--unshare-net"]),
    }
    let passed = file_of(&filter::filter(Enclosure::Bubblewrap)?)?;
    if !planted::is(Bug::CallsNotFiltered) {
        word(&["--add-seccomp-fd", &passed.as_raw_fd().to_string()]);
    }
    let mounts = mounts(of);
    for (path, how) in &mounts {
        let path = path.display().to_string();
        match how {
            Mount::Empty => word(&["--tmpfs", &path]),
            Mount::NoFile => word(&["--ro-bind", "/dev/null", &path]),
            Mount::Read => word(&["--ro-bind-try", &path, &path]),
            // A folder that vanished meanwhile is not opened.
            Mount::Write => word(&["--bind-try", &path, &path]),
        }
    }
    // Last, because folders in them were mounted on the way.
    for (path, _) in mounts.iter().filter(|(_, how)| *how == Mount::Empty) {
        word(&["--remount-ro", &path.display().to_string()]);
    }
    word(&["--chdir", &of.cwd.display().to_string(), "--"]);
    argv.extend(of.argv.iter().cloned());
    Ok(Confinement { argv, passed: vec![passed], ..Confinement::default() })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mount {
    Empty,
    NoFile,
    Read,
    Write,
}

/// From the outside inwards, so that what is opened inside of a hidden folder lies over it.
fn mounts(of: Confined<'_>) -> Vec<(PathBuf, Mount)> {
    let grants = Grants::around_a_root(of.isolation, of.tmp);
    let hide = |tree: RealPath| (tree.path, if tree.is_folder { Mount::Empty } else { Mount::NoFile });
    let sockets = places::SOCKETS.iter().map(PathBuf::from).chain(tmux()).filter(|path| path.exists());
    let sockets = sockets.filter(|_| !planted::is(Bug::SocketsShown));
    let sockets = sockets.map(|path| RealPath { is_folder: path.is_dir(), path });
    let mut all: Vec<(PathBuf, Mount)> = sockets.chain(grants.hidden).map(hide).collect();
    let holes = of.isolation.readable.iter().filter_map(|path| std::fs::canonicalize(path).ok());
    all.extend(holes.map(|path| (path, Mount::Read)));
    all.extend(grants.write.into_iter().map(|tree| (tree.path, Mount::Write)));
    // Stable: of two mounts at one path the later one, which opens, wins.
    all.sort_by_key(|(path, _)| path.components().count());
    all
}

/// The sockets of tmux servers.
fn tmux() -> impl Iterator<Item = PathBuf> {
    let tmp = std::fs::read_dir(Path::new("/tmp")).into_iter().flatten().flatten();
    tmp.filter(|entry| entry.file_name().to_string_lossy().starts_with("tmux-")).map(|entry| entry.path())
}

/// The instructions of a filter as a file in memory, as the kernel reads them.
fn file_of(filter: &BpfProgram) -> Result<OwnedFd, String> {
    let failed = |e: std::io::Error| format!("cannot pass the filter of system calls: {e}");
    let fd = memfd_create(c"filter", MFdFlags::MFD_CLOEXEC).map_err(|e| failed(e.into()))?;
    let mut file = std::fs::File::from(fd);
    for step in filter {
        let mut bytes = [0; 8];
        bytes[..2].copy_from_slice(&step.code.to_ne_bytes());
        bytes[2] = step.jt;
        bytes[3] = step.jf;
        bytes[4..].copy_from_slice(&step.k.to_ne_bytes());
        file.write_all(&bytes).map_err(failed)?;
    }
    file.rewind().map_err(failed)?;
    Ok(file.into())
}
