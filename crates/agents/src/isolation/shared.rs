//! Rules that are the same for many commands: around hidden places in which no command has
//! anything open, such as keys and passwords. The supervisor makes them once and its shims inherit
//! them by descriptor, because there are hundreds and each costs the kernel microseconds.
//!
//! A command enters them and then its own rules, and reaches what both of them open. They are made
//! again when a folder that leads to a hidden place has changed.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use everloop_core::isolation::{Isolation, IsolationMode};

use super::grants::{RealPath, hidden};
use super::{landlock, make_folders};

/// Sets of rules that are kept: a loop needs one for its turns and one for its checks.
const MOST_KEPT: usize = 32;

/// Rules that commands enter before their own.
#[derive(Clone, Debug)]
pub(crate) struct SharedRules {
    pub(crate) rules: Arc<OwnedFd>,
    /// The hidden paths that they close.
    closed: Vec<PathBuf>,
}

/// A folder, and what changes with its entries: device, inode, time of modification and of change.
type Stamp = (PathBuf, u64, u64, [i64; 4]);

/// Rules with the folders around which they were made.
struct Kept {
    stamps: Vec<Stamp>,
    shared: SharedRules,
}

/// The rules that were made last.
#[derive(Default)]
struct RulesCache(Vec<Kept>);

static CACHE: Mutex<RulesCache> = Mutex::new(RulesCache(Vec::new()));

impl RulesCache {
    /// The rules that close these paths; made where there are none, or a folder has changed.
    fn get(
        &mut self,
        closed: Vec<PathBuf>,
        stamps: Vec<Stamp>,
        make: impl FnOnce() -> Option<OwnedFd>,
    ) -> Option<SharedRules> {
        if let Some(known) = self.0.iter().find(|known| known.shared.closed == closed && known.stamps == stamps) {
            return Some(known.shared.clone());
        }
        self.0.retain(|known| known.shared.closed != closed);
        if self.0.len() == MOST_KEPT {
            self.0.remove(0);
        }
        let shared = SharedRules { rules: Arc::new(make()?), closed };
        self.0.push(Kept { stamps, shared: shared.clone() });
        Some(shared)
    }
}

impl SharedRules {
    /// The rules for commands with this isolation; `None` where there is nothing to share.
    pub(crate) fn of(isolation: &Isolation) -> Option<Self> {
        if isolation.mode != IsolationMode::Landlock {
            return None;
        }
        make_folders(isolation);
        let hidden = shareable(isolation, &std::env::temp_dir());
        if hidden.is_empty() {
            return None;
        }
        let closed: Vec<PathBuf> = hidden.iter().map(|tree| tree.path.clone()).collect();
        // Before the folders are read: a change meanwhile shows the next time.
        let stamps = above(&closed).into_iter().map(stamp).collect::<Option<Vec<_>>>()?;
        let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        // Without them a command makes all rules itself.
        cache.get(closed, stamps, || landlock::around(&hidden).ok())
    }

    /// Those that a shim inherited, with the text of [`SharedRules::closed_text`].
    pub(crate) fn inherited(rules: OwnedFd, closed: &OsStr) -> Self {
        let lines = closed.as_bytes().split(|byte| *byte == b'\n');
        let paths = lines.map(|line| PathBuf::from(OsString::from_vec(line.to_vec())));
        Self { rules: Arc::new(rules), closed: paths.collect() }
    }

    /// The closed paths, one on a line.
    pub(crate) fn closed_text(&self) -> OsString {
        let lines: Vec<&[u8]> = self.closed.iter().map(|path| path.as_os_str().as_bytes()).collect();
        OsString::from_vec(lines.join(&b'\n'))
    }

    /// The closed paths for a command with this folder for temporary files; `None` when the rules
    /// would close that folder, which is younger than they are.
    pub(super) fn closed_for(&self, tmp: &Path) -> Option<&[PathBuf]> {
        let tmp = fs::canonicalize(tmp).ok()?;
        let beside = tmp.parent().is_some_and(|parent| above(&self.closed).contains(parent));
        (!beside).then_some(self.closed.as_slice())
    }
}

/// The hidden paths with nothing open in them, and none that share a folder with temporary files.
fn shareable(isolation: &Isolation, tmp: &Path) -> Vec<RealPath> {
    let tmp = fs::canonicalize(tmp).unwrap_or_else(|_| tmp.to_owned());
    let lists = [&isolation.readable, &isolation.writable, &isolation.made];
    let open: Vec<PathBuf> = lists.into_iter().flatten().filter_map(|path| fs::canonicalize(path).ok()).collect();
    let mut found = hidden(isolation, &[]);
    found.retain(|tree| {
        let path = &tree.path;
        let is_line = !path.as_os_str().as_bytes().contains(&b'\n');
        is_line && !path.starts_with(&tmp) && !open.iter().any(|open| open.starts_with(path))
    });
    found
}

/// The folders that lead to these paths.
fn above(paths: &[PathBuf]) -> BTreeSet<&Path> {
    paths.iter().flat_map(|path| path.ancestors().skip(1)).collect()
}

fn stamp(folder: &Path) -> Option<Stamp> {
    let meta = fs::symlink_metadata(folder).ok()?;
    let times = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
    Some((folder.to_owned(), meta.dev(), meta.ino(), times))
}

#[cfg(test)]
mod tests {
    use super::*;
    use everloop_core::isolation::NetworkAccess;

    fn isolation(unreadable: &[&Path], readable: &[&Path]) -> Isolation {
        let own = |paths: &[&Path]| paths.iter().map(|path| (*path).to_owned()).collect();
        Isolation {
            mode: IsolationMode::Landlock,
            unreadable: own(unreadable),
            readable: own(readable),
            writable: Vec::new(),
            made: Vec::new(),
            network: NetworkAccess::Open,
            container: Vec::new(),
            max_processes: None,
            max_memory_mb: None,
        }
    }

    #[test]
    fn only_places_with_nothing_open_in_them_are_shared() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        let at = |name: &str| root.join(name);
        for name in ["home/.ssh", "state/turn", "tmp/home/.aws"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        let (ssh, state, aws, turn) = (at("home/.ssh"), at("state"), at("tmp/home/.aws"), at("state/turn"));
        let found = shareable(&isolation(&[&ssh, &state, &aws], &[&turn]), &at("tmp"));
        assert_eq!(found.into_iter().map(|tree| tree.path).collect::<Vec<_>>(), [ssh]);
    }

    #[test]
    fn rules_are_kept_until_a_folder_changes() {
        let dir = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(dir.path()).unwrap();
        let (ssh, mut cache) = (home.join(".ssh"), RulesCache::default());
        let mut get = || {
            let make = || fs::File::open("/dev/null").ok().map(OwnedFd::from);
            cache.get(vec![ssh.clone()], vec![stamp(&home).unwrap()], make).unwrap()
        };
        let (first, second) = (get(), get());
        assert!(Arc::ptr_eq(&first.rules, &second.rules));
        // Until the clock of the file system has moved on.
        let (before, mut number) = (stamp(&home), 0);
        while stamp(&home) == before {
            number += 1;
            fs::write(home.join(number.to_string()), "").unwrap();
        }
        assert!(!Arc::ptr_eq(&first.rules, &get().rules), "new files would stay closed");
    }

    #[test]
    fn a_shim_knows_what_is_closed_and_whether_its_temporary_folder_would_be() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        let closed = [root.join("home/.ssh"), root.join("home/.config/gh")];
        fs::create_dir_all(root.join("home/tmp")).unwrap();
        fs::create_dir_all(root.join("elsewhere/tmp")).unwrap();
        let null = || fs::File::open("/dev/null").unwrap().into();
        let made = SharedRules { rules: Arc::new(null()), closed: closed.to_vec() };
        let inherited = SharedRules::inherited(null(), &made.closed_text());
        assert_eq!(inherited.closed_for(&root.join("elsewhere/tmp")), Some(&closed[..]));
        assert_eq!(inherited.closed_for(&root.join("home/tmp")), None);
    }
}
