//! The trees that an isolation opens, found by walking around the hidden ones.
//!
//! Landlock knows only what is allowed, and a rule holds for everything below its path. So "all
//! except" is: every child of each folder that leads to a hidden path, except that path. What is
//! created later beside a hidden path is closed, which is the safe side.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use everloop_core::isolation::Isolation;

/// Entries of folders that are looked at in all; a folder with more stays closed from there on.
const MAX_ENTRIES: usize = 50_000;

/// Devices that commands use; anything else in `/dev` stays closed, disks in every form above all.
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty", "ptmx", "kvm", "kfd"];

/// Beginnings of the names of more such devices: graphics processors.
const DEVICE_PREFIXES: &[&str] = &["nvidia"];

/// Folders of `/dev` that commands use.
const DEVICE_FOLDERS: &[&str] = &["pts", "shm", "dri", "mqueue"];

/// Trees with existing paths, without symbolic links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Grants {
    pub(super) hidden: Vec<PathBuf>,
    pub(super) read: Vec<PathBuf>,
    pub(super) write: Vec<PathBuf>,
    pub(super) devices: Vec<PathBuf>,
}

impl Grants {
    pub(super) fn of(isolation: &Isolation, tmp: &Path) -> Self {
        let hidden = real(&isolation.unreadable);
        let mut walk = Walk { hidden: &hidden, left: MAX_ENTRIES, found: Vec::new() };
        walk.around(Path::new("/"));
        for hole in real(&isolation.readable) {
            walk.open(hole);
        }
        let read = std::mem::take(&mut walk.found);
        let tmp = tmp.to_owned();
        let open = isolation.writable.iter().chain(&isolation.made).chain([&tmp]).cloned().collect::<Vec<_>>();
        for tree in real(&open) {
            walk.open(tree);
        }
        let write = walk.found;
        Self { hidden, read, write, devices: devices() }
    }
}

/// The paths that exist, without symbolic links in them, sorted.
fn real(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = paths.iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
    found.sort();
    found.dedup();
    found
}

struct Walk<'a> {
    hidden: &'a [PathBuf],
    left: usize,
    found: Vec<PathBuf>,
}

impl Walk<'_> {
    /// Opens a tree, or what is in it around hidden paths.
    fn open(&mut self, path: PathBuf) {
        if self.hidden.iter().any(|hidden| hidden != &path && hidden.starts_with(&path)) {
            self.around(&path);
        } else {
            self.found.push(path);
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
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            if is_link || self.hidden.contains(&path) || path == Path::new("/dev") {
                continue;
            }
            self.open(path);
        }
    }
}

fn devices() -> Vec<PathBuf> {
    let usable = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        entry.file_type().is_ok_and(|kind| {
            let listed = DEVICES.contains(&&*name) || DEVICE_PREFIXES.iter().any(|begin| name.starts_with(begin));
            kind.is_char_device() && listed || kind.is_dir() && DEVICE_FOLDERS.contains(&&*name)
        })
    };
    fs::read_dir("/dev").into_iter().flatten().flatten().filter(usable).map(|entry| entry.path()).collect()
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
        let grants = Grants::of(&isolation(&hidden, &[], &[&turn]), &root.join("tmp"));
        let has = |list: &[PathBuf], name: &str| list.contains(&root.join(name));
        assert!(has(&grants.read, "home/code") && has(&grants.read, "home/.config/nvim"));
        for closed in ["home", "home/.ssh", "home/link", "home/.config", "home/.config/gh", "state"] {
            assert!(!has(&grants.read, closed), "{closed}");
        }
        assert!(grants.read.contains(&PathBuf::from("/usr")) && !grants.read.contains(&PathBuf::from("/")));
        assert_eq!(grants.write, [turn, root.join("tmp")]);
    }

    #[test]
    fn a_hidden_path_inside_of_an_open_tree_stays_hidden() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(root.join("project/src")).unwrap();
        fs::create_dir_all(root.join("project/state")).unwrap();
        let (project, state) = (root.join("project"), root.join("project/state"));
        let grants = Grants::of(&isolation(&[&state], &[], &[&project]), Path::new("/nowhere"));
        assert_eq!(grants.write, [project.join("src")]);
    }
}
