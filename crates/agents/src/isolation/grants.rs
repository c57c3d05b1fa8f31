//! The trees that an isolation opens, found by walking around the hidden ones.
//!
//! Landlock knows only what is allowed, and a rule holds for everything below its path. So "all
//! except" is: every child of each folder that leads to a hidden path, except that path. What is
//! created later beside a hidden path is closed, which is the safe side.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use everloop_core::isolation::Isolation;
use everloop_core::planted::{self, Bug};
use nix::unistd::{AccessFlags, access, geteuid};

/// Entries of folders that are looked at in all; a folder with more stays closed from there on.
const MAX_ENTRIES: usize = 50_000;

/// Devices that commands use; anything else in `/dev` stays closed, disks in every form above all.
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty", "ptmx", "kvm", "kfd"];

/// Beginnings of the names of more such devices: graphics processors.
const DEVICE_PREFIXES: &[&str] = &["nvidia"];

/// Folders of `/dev` that commands use.
const DEVICE_FOLDERS: &[&str] = &["pts", "shm", "dri", "mqueue"];

/// A path that exists, without symbolic links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RealPath {
    pub(super) path: PathBuf,
    pub(super) is_folder: bool,
}

/// The trees of an isolation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Grants {
    pub(super) hidden: Vec<RealPath>,
    pub(super) read: Vec<RealPath>,
    pub(super) write: Vec<RealPath>,
    pub(super) devices: Vec<RealPath>,
}

impl Grants {
    /// All of them. The paths in `closed` need not be hidden by these.
    pub(super) fn of(isolation: &Isolation, tmp: &Path, closed: &[PathBuf]) -> Self {
        let grants = Self::around_hidden(hidden(isolation, closed), isolation, tmp);
        let mut walk = Walk::around_all(&grants.hidden);
        walk.around(Path::new("/"));
        for hole in real(&isolation.readable) {
            walk.open(hole);
        }
        let read = walk.found;
        Self { read, devices: devices(), ..grants }
    }

    /// Without those that need not be named where all is readable that is not hidden.
    pub(super) fn around_a_root(isolation: &Isolation, tmp: &Path) -> Self {
        Self::around_hidden(hidden(isolation, &[]), isolation, tmp)
    }

    fn around_hidden(hidden: Vec<RealPath>, isolation: &Isolation, tmp: &Path) -> Self {
        let mut walk = Walk::around_all(&hidden);
        let tmp = tmp.to_owned();
        for tree in real(isolation.writable.iter().chain(&isolation.made).chain([&tmp])) {
            walk.open(tree);
        }
        let write = walk.found;
        Self { hidden, write, ..Self::default() }
    }
}

/// The paths that an isolation hides, without those in `closed`.
pub(super) fn hidden(isolation: &Isolation, closed: &[PathBuf]) -> Vec<RealPath> {
    let mut hidden = real(&isolation.unreadable);
    hidden.retain(|tree| !closed.contains(&tree.path) && (tree.is_folder || is_readable(&tree.path)));
    hidden
}

/// All trees around hidden paths, but for `/dev`.
pub(super) fn around_all(hidden: &[RealPath]) -> Vec<RealPath> {
    let mut walk = Walk::around_all(hidden);
    walk.around(Path::new("/"));
    walk.found
}

/// The paths that exist, sorted. Most of the built-in ones do not, so that is looked at first.
fn real<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<RealPath> {
    let there = |path: &&PathBuf| fs::symlink_metadata(path).is_ok();
    let resolved = paths.into_iter().filter(there).filter_map(|path| fs::canonicalize(path).ok());
    let mut found: Vec<RealPath> = resolved.map(|path| RealPath { is_folder: path.is_dir(), path }).collect();
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found.dedup();
    found
}

/// Whether a file has to be hidden at all: not one of another user that is closed to this one, as
/// the passwords of the machine are. Hiding those would cost a rule for each of its neighbours.
fn is_readable(path: &Path) -> bool {
    let own = fs::metadata(path).is_ok_and(|meta| meta.uid() == geteuid().as_raw());
    own || access(path, AccessFlags::R_OK).is_ok()
}

struct Walk<'a> {
    hidden: HashSet<&'a OsStr>,
    /// Folders that lead to hidden paths. A look-up for each entry, where comparing it with each
    /// hidden path would be most of the work.
    above: HashSet<&'a OsStr>,
    left: usize,
    found: Vec<RealPath>,
}

impl<'a> Walk<'a> {
    fn around_all(hidden: &'a [RealPath]) -> Self {
        let above = hidden.iter().flat_map(|tree| tree.path.ancestors().skip(1)).map(Path::as_os_str);
        Self {
            hidden: hidden.iter().map(|tree| tree.path.as_os_str()).collect(),
            above: above.collect(),
            left: MAX_ENTRIES,
            found: Vec::new(),
        }
    }

    /// Opens a tree, or what is in it around hidden paths.
    fn open(&mut self, tree: RealPath) {
        if self.above.contains(tree.path.as_os_str()) {
            self.around(&tree.path);
        } else {
            self.found.push(tree);
        }
    }

    fn around(&mut self, dir: &Path) {
        let Ok(entries) = fs::read_dir(dir) else { return };
        for entry in entries.flatten() {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            let path = entry.path();
            // A link is followed by the kernel, and then its target's own tree decides.
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_symlink() || self.hidden.contains(path.as_os_str()) || path == Path::new("/dev") {
                continue;
            }
            self.open(RealPath { path, is_folder: kind.is_dir() });
        }
    }
}

fn devices() -> Vec<RealPath> {
    let usable = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        entry.file_type().is_ok_and(|kind| {
            let listed = DEVICES.contains(&&*name) || DEVICE_PREFIXES.iter().any(|begin| name.starts_with(begin));
            planted::is(Bug::DevicesOpened)
                || kind.is_char_device() && listed
                || kind.is_dir() && DEVICE_FOLDERS.contains(&&*name)
        })
    };
    let tree = |entry: fs::DirEntry| RealPath {
        path: entry.path(),
        is_folder: entry.file_type().is_ok_and(|kind| kind.is_dir()),
    };
    fs::read_dir("/dev").into_iter().flatten().flatten().filter(usable).map(tree).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use everloop_core::isolation::{IsolationMode, NetworkAccess};

    fn isolation(unreadable: &[&Path], readable: &[&Path], writable: &[&Path]) -> Isolation {
        let own = |paths: &[&Path]| paths.iter().map(|p| (*p).to_owned()).collect();
        Isolation {
            mode: IsolationMode::Landlock,
            unreadable: own(unreadable),
            readable: own(readable),
            writable: own(writable),
            made: Vec::new(),
            network: NetworkAccess::Open,
            container: Vec::new(),
            max_processes: None,
            max_memory_mb: None,
        }
    }

    fn paths(trees: &[RealPath]) -> Vec<PathBuf> {
        trees.iter().map(|tree| tree.path.clone()).collect()
    }

    #[test]
    fn siblings_of_hidden_paths_are_open_and_they_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        for name in ["home/.ssh", "home/code", "home/.config/gh", "home/.config/nvim", "state/work/turn", "tmp"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        std::os::unix::fs::symlink(root.join("home/.ssh"), root.join("home/link")).unwrap();
        let hidden = [root.join("home/.ssh"), root.join("home/link"), root.join("home/.config/gh"), root.join("state")];
        let hidden: Vec<&Path> = hidden.iter().map(PathBuf::as_path).collect();
        let turn = root.join("state/work/turn");
        let grants = Grants::of(&isolation(&hidden, &[], &[&turn]), &root.join("tmp"), &[]);
        let has = |list: &[RealPath], name: &str| paths(list).contains(&root.join(name));
        assert!(has(&grants.read, "home/code") && has(&grants.read, "home/.config/nvim"));
        for closed in ["home", "home/.ssh", "home/link", "home/.config", "home/.config/gh", "state"] {
            assert!(!has(&grants.read, closed), "{closed}");
        }
        let read = paths(&grants.read);
        assert!(read.contains(&PathBuf::from("/usr")) && !read.contains(&PathBuf::from("/")));
        assert_eq!(paths(&grants.write), [turn, root.join("tmp")]);
    }

    #[test]
    fn a_hidden_path_inside_of_an_open_tree_stays_hidden() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(root.join("project/src")).unwrap();
        fs::create_dir_all(root.join("project/state")).unwrap();
        let (project, state) = (root.join("project"), root.join("project/state"));
        let grants = Grants::of(&isolation(&[&state], &[], &[&project]), Path::new("/nowhere"), &[]);
        assert_eq!(paths(&grants.write), [project.join("src")]);
    }
}
