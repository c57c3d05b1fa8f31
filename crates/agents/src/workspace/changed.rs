//! Which files of a turn differ from everloop's index, found without git: a walk that compares what
//! git itself compares, inode, size, owner and times. Saves a `git status` in most turns.
//!
//! Only files that the index describes are decided here. Anything else in the tree is either known as
//! ignored, from the last `git status`, or new; whether a new file is ignored, git decides. Where a
//! file with the rules for that changed, git looks at everything again. A file that is listed may
//! still be the same: it is hashed when it is taken.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::index::{self, Entry};
use crate::git;

/// Files with rules about what is ignored.
pub(super) const RULES: &str = ".gitignore";

/// Entries that are looked at for empty folders; beyond them git, which removes those, is as fast.
const MOST_ENTRIES: u32 = 10_000;

/// New files that git is asked about one by one; with more of them one `git status` is as fast.
const MOST_NEW: usize = 64;

/// Whether a folder without files may be in a tree, besides ignored ones.
pub(super) fn has_empty_folder(tree: &Path, ignored: &HashSet<Vec<u8>>) -> bool {
    let (mut left, mut open) = (MOST_ENTRIES, vec![PathBuf::new()]);
    while let Some(below) = open.pop() {
        let Ok(items) = fs::read_dir(tree.join(&below)) else { return true };
        let mut is_empty = true;
        for item in items.flatten() {
            is_empty = false;
            left = left.saturating_sub(1);
            let path = below.join(item.file_name());
            let is_folder = item.file_type().is_ok_and(|kind| kind.is_dir());
            let is_git = below.as_os_str().is_empty() && path.as_os_str() == ".git";
            if is_folder && !is_git && !ignored.contains(&[path.as_os_str().as_bytes(), b"/"].concat()) {
                open.push(path);
            }
        }
        if left == 0 || is_empty && !below.as_os_str().is_empty() {
            return true;
        }
    }
    false
}

/// A turn's files, and an index that holds the commit that the turn began with.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    pub tree: PathBuf,
    pub index: PathBuf,
    pub id_bytes: usize,
    /// Ignored paths; those of folders, which are ignored with all that is in them, end with `/`.
    pub ignored: Arc<HashSet<Vec<u8>>>,
}

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Compared {
    /// Files that differ, or may.
    pub differ: Vec<PathBuf>,
    /// Files that are neither in the index nor known as ignored.
    pub new: Vec<PathBuf>,
}

impl Comparison {
    /// Compares; `None` when only git can tell.
    pub fn run(&self) -> Option<Compared> {
        let written = fs::metadata(&self.index).and_then(|meta| meta.modified()).ok()?;
        let bytes = fs::read(&self.index).ok()?;
        let entries = index::entries(&bytes, self.id_bytes)?;
        if !entries.iter().all(Entry::is_plain) {
            return None;
        }
        let files = entries.iter().map(|entry| (entry.path, entry)).collect();
        let mut walk = Walk { of: self, files, written, found: Compared::default() };
        walk.folder(Path::new(""))?;
        let gone = walk.files.keys().map(|path| git::path_from(path));
        let mut found = walk.found;
        found.differ.extend(gone);
        let has_rules = |path: &PathBuf| path.file_name() == Some(OsStr::new(RULES));
        (!found.differ.iter().any(has_rules)).then_some(found)
    }
}

struct Walk<'a> {
    of: &'a Comparison,
    /// Files of the index that were not met yet.
    files: HashMap<&'a [u8], &'a Entry<'a>>,
    /// When the index was written.
    written: SystemTime,
    found: Compared,
}

impl Walk<'_> {
    fn folder(&mut self, below: &Path) -> Option<()> {
        for item in fs::read_dir(self.of.tree.join(below)).ok()? {
            let item = item.ok()?;
            let name = item.file_name();
            if name == OsStr::new(".git") {
                if below.as_os_str().is_empty() {
                    continue;
                }
                // A repository inside of this one.
                return None;
            }
            let path = below.join(name);
            let bytes = path.as_os_str().as_bytes();
            let meta = item.metadata().ok()?;
            if meta.is_dir() {
                if !self.of.ignored.contains(&[bytes, b"/"].concat()) {
                    self.folder(&path)?;
                }
            } else if let Some(entry) = self.files.remove(bytes) {
                // Written in the same tick of the clock as the index, it could have changed since.
                if !entry.matches(&meta) || !entry.changed_before(self.written) {
                    self.found.differ.push(path);
                }
            } else if path.file_name() == Some(OsStr::new(RULES)) {
                // Rules may be ignored themselves, and what they ignore is not any more.
                return None;
            } else if !self.of.ignored.contains(bytes) {
                self.found.new.push(path);
                if self.found.new.len() > MOST_NEW {
                    return None;
                }
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;

    /// A repository with some files, and an index that was written long enough after them.
    struct Repo(tempfile::TempDir);

    impl Repo {
        fn new() -> Self {
            Self::with(&["a.txt", "sub/b.txt", "sub/deep/c.txt"])
        }

        fn with(names: &[&str]) -> Self {
            let repo = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(repo.at("sub/deep")).unwrap();
            for name in names {
                fs::write(repo.at(name), "one\n").unwrap();
            }
            repo.git(&["init", "--quiet"]);
            let written = SystemTime::now();
            let end = Instant::now() + Duration::from_secs(20);
            while written.elapsed().is_ok_and(|passed| passed < Duration::from_millis(50)) && Instant::now() < end {
                std::thread::yield_now();
            }
            repo.git(&["add", "--all"]);
            repo
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn git(&self, args: &[&str]) {
            let mut command = Command::new("git");
            command.args(["-c", "index.version=2"]).args(args).current_dir(self.0.path());
            assert!(command.status().unwrap().success(), "{args:?}");
        }

        fn changed(&self, ignored: &[&str]) -> Option<Vec<String>> {
            let ignored = Arc::new(ignored.iter().map(|path| path.as_bytes().to_vec()).collect());
            let (tree, index) = (self.0.path().to_owned(), self.at(".git/index"));
            let found = Comparison { tree, index, id_bytes: 20, ignored }.run()?;
            let new = found.new.iter().map(|path| format!("new {}", path.display()));
            let mut names: Vec<String> = found.differ.iter().map(|p| p.display().to_string()).chain(new).collect();
            names.sort();
            Some(names)
        }
    }

    #[test]
    fn what_changed_is_listed_and_nothing_else() {
        let repo = Repo::new();
        assert_eq!(repo.changed(&[]), Some(vec![]));
        fs::write(repo.at("sub/b.txt"), "two\n").unwrap();
        fs::remove_file(repo.at("sub/deep/c.txt")).unwrap();
        assert_eq!(repo.changed(&[]), Some(vec!["sub/b.txt".to_owned(), "sub/deep/c.txt".to_owned()]));
    }

    #[test]
    fn a_change_in_the_tick_of_the_index_is_listed() {
        let repo = Repo::with(&["a.txt"]);
        assert_eq!(repo.changed(&[]), Some(vec![]));
        let written = fs::metadata(repo.at("a.txt")).and_then(|meta| meta.modified()).unwrap();
        fs::File::options().write(true).open(repo.at(".git/index")).unwrap().set_modified(written).unwrap();
        // Of the same length and in the same tick, it would look the same.
        assert_eq!(repo.changed(&[]), Some(vec!["a.txt".to_owned()]));
    }

    #[test]
    fn new_files_are_listed_unless_they_are_known_as_ignored() {
        let repo = Repo::new();
        fs::create_dir_all(repo.at("out/deep")).unwrap();
        assert_eq!(repo.changed(&[]), Some(vec![]), "folders alone are nothing");
        fs::write(repo.at("out/deep/x.o"), "").unwrap();
        let new = |names: &[&str]| Some(names.iter().map(|name| format!("new {name}")).collect::<Vec<_>>());
        assert_eq!(repo.changed(&[]), new(&["out/deep/x.o"]));
        assert_eq!(repo.changed(&["out/deep/x.o"]), Some(vec![]));
        assert_eq!(repo.changed(&["out/"]), Some(vec![]));
        let named = repo.changed(&["out"]);
        assert_eq!(named, new(&["out/deep/x.o"]), "a file of that name was ignored, not a folder");
        symlink("deep", repo.at("out/link")).unwrap();
        assert_eq!(repo.changed(&["out/deep/x.o"]), new(&["out/link"]));
        fs::remove_dir_all(repo.at("out")).unwrap();
        symlink("sub", repo.at("out")).unwrap();
        assert_eq!(repo.changed(&["out/"]), new(&["out"]), "a folder of that name was ignored, not a link");
        fs::create_dir(repo.at("many")).unwrap();
        for number in 0..=MOST_NEW {
            fs::write(repo.at(&format!("many/{number}")), "").unwrap();
        }
        assert_eq!(repo.changed(&["out"]), None, "git is as fast");
    }

    #[test]
    fn empty_folders_are_found_unless_they_are_ignored() {
        let repo = Repo::new();
        let found = |ignored: &[&str]| {
            has_empty_folder(repo.0.path(), &ignored.iter().map(|path| path.as_bytes().to_vec()).collect())
        };
        assert!(!found(&[]));
        fs::create_dir_all(repo.at("sub/new/deep")).unwrap();
        assert!(found(&[]));
        assert!(!found(&["sub/new/"]));
    }

    #[test]
    fn rules_that_change_and_other_repositories_are_left_to_git() {
        let repo = Repo::with(&["a.txt", "sub/b.txt", ".gitignore"]);
        fs::create_dir(repo.at("sub/.git")).unwrap();
        assert_eq!(repo.changed(&[]), None);
        fs::remove_dir(repo.at("sub/.git")).unwrap();
        assert_eq!(repo.changed(&[]), Some(vec![]));
        fs::write(repo.at(".gitignore"), "two\n").unwrap();
        assert_eq!(repo.changed(&[]), None);
        fs::remove_file(repo.at(".gitignore")).unwrap();
        assert_eq!(repo.changed(&[]), None);
        let hidden = Repo::new();
        fs::write(hidden.at("sub/x"), "").unwrap();
        assert_eq!(hidden.changed(&["sub/x"]), Some(vec![]));
        fs::write(hidden.at("sub/.gitignore"), "*\n").unwrap();
        assert_eq!(hidden.changed(&["sub/x", "sub/.gitignore"]), None, "rules that are ignored by themselves");
        fs::remove_file(hidden.at("sub/.gitignore")).unwrap();
        hidden.git(&["update-index", "--skip-worktree", "a.txt"]);
        assert_eq!(hidden.changed(&["sub/x"]), None, "entries with flags mean something else");
    }
}
