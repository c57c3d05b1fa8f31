//! Makes a folder exactly what its index describes: removes every file that git did not write, also
//! ignored ones, and every file that changed since. What remains is provably as git wrote it, so a
//! folder that is kept is as good as a fresh one, and costs one walk instead of a checkout.
//!
//! A file is as git wrote it if inode, size, owner and both times are those in the index; a change
//! time cannot be set back. A file that was written a moment before the folder was handed out could
//! change again within the same tick of the clock and look the same: of those few a hash is kept.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::fingerprint::changed_before;
use super::index::{self, Entry};
use super::{WorkspaceError, files};
use crate::git;
use crate::protect::hash_file;

/// Content of files that were written only a moment before the folder was handed out.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    /// When the folder was known to be right.
    at: Option<SystemTime>,
    hashes: HashMap<PathBuf, [u8; 32]>,
}

/// What to sweep.
#[derive(Clone, Debug)]
pub(super) struct Sweep {
    pub tree: PathBuf,
    pub index: PathBuf,
    pub id_bytes: usize,
    /// Folders that stay, relative to the tree.
    pub keep: Vec<PathBuf>,
    pub recent: Recent,
    /// What to do with files that git did not write.
    pub unknown: Unknown,
}

/// What to do with a file that is not in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    Remove,
    /// Only as a deliberate mistake of a test.
    Leave,
}

/// What a sweep found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Swept {
    /// Every file of the index is there.
    pub whole: bool,
    /// There was something to remove.
    pub removed: bool,
}

impl Sweep {
    /// Sweeps; returns what is left and what to remember if nothing is missing.
    pub fn run(mut self) -> Result<(Swept, Recent), WorkspaceError> {
        let at = SystemTime::now();
        if self.recent.at.is_none() {
            // Another process checked it out: git wrote the index after the files, and the folder
            // was handed out after that.
            self.recent.at = fs::metadata(&self.index).and_then(|meta| meta.modified()).ok();
        }
        let bytes = match fs::read(&self.index) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(WorkspaceError::files("read", &self.index)(e)),
        };
        let entries = index::entries(&bytes, self.id_bytes).unwrap_or_default();
        let mut walk = Walk::new(&self, &entries, at);
        walk.folder(Path::new("")).map_err(WorkspaceError::files("clear", &self.tree))?;
        let whole = walk.found == walk.files.len() && !bytes.is_empty();
        Ok((Swept { whole, removed: walk.removed }, walk.next))
    }
}

struct Walk<'a> {
    sweep: &'a Sweep,
    files: HashMap<&'a [u8], &'a Entry<'a>>,
    /// Folders with files of the index in them.
    folders: HashSet<&'a [u8]>,
    /// Folders of submodules, which are empty.
    commits: HashSet<&'a [u8]>,
    found: usize,
    removed: bool,
    next: Recent,
}

impl<'a> Walk<'a> {
    fn new(sweep: &'a Sweep, entries: &'a [Entry<'a>], at: SystemTime) -> Self {
        let mut folders = HashSet::new();
        for entry in entries {
            let ends = entry.path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
            for end in ends {
                if !folders.insert(&entry.path[..end]) {
                    break;
                }
            }
        }
        let plain = entries.iter().filter(|entry| !entry.is_link_to_commit());
        let files = plain.map(|entry| (entry.path, entry)).collect();
        let commits = entries.iter().filter(|entry| entry.is_link_to_commit()).map(|entry| entry.path).collect();
        Self {
            sweep,
            files,
            folders,
            commits,
            found: 0,
            removed: false,
            next: Recent { at: Some(at), hashes: HashMap::new() },
        }
    }

    fn folder(&mut self, below: &Path) -> io::Result<()> {
        for item in fs::read_dir(self.sweep.tree.join(below))? {
            let item = item?;
            let name = item.file_name();
            if below.as_os_str().is_empty() && name == OsStr::new(".git") {
                continue;
            }
            let path = below.join(name);
            if self.sweep.keep.contains(&path) {
                continue;
            }
            let full = self.sweep.tree.join(&path);
            // By its name in the open folder, without following links: the whole path would be
            // walked for each of many thousand files.
            let meta = item.metadata()?;
            let holds_kept = || self.sweep.keep.iter().any(|kept| kept.starts_with(&path));
            if meta.is_dir() && (self.has_folder(&path) || holds_kept()) {
                self.folder(&path)?;
            } else if !self.is_right(&path, &full, &meta) {
                files::remove(&full)?;
                self.removed = true;
            }
        }
        Ok(())
    }

    fn has_folder(&self, path: &Path) -> bool {
        let bytes = path.as_os_str().as_bytes();
        self.folders.contains(bytes) || self.commits.contains(bytes)
    }

    /// Whether a file is as git wrote it; counts it then.
    fn is_right(&mut self, path: &Path, full: &Path, meta: &Metadata) -> bool {
        let Some(entry) = self.files.get(path.as_os_str().as_bytes()) else {
            return self.sweep.unknown == Unknown::Leave;
        };
        let old = changed_before(meta, self.sweep.recent.at);
        let same = entry.matches(meta) && (old || self.has_content(path, full, meta));
        if !same {
            return false;
        }
        if !changed_before(meta, self.next.at) {
            let Some(hash) = content(full, meta) else { return false };
            self.next.hashes.insert(path.to_owned(), hash);
        }
        self.found += 1;
        true
    }

    fn has_content(&self, path: &Path, full: &Path, meta: &Metadata) -> bool {
        let known = self.sweep.recent.hashes.get(path);
        known.is_some() && content(full, meta).as_ref() == known
    }
}

/// A hash of a file or of the target of a link.
fn content(full: &Path, meta: &Metadata) -> Option<[u8; 32]> {
    use sha2::Digest;
    if meta.is_symlink() {
        return Some(sha2::Sha256::digest(fs::read_link(full).ok()?.as_os_str().as_bytes()).into());
    }
    hash_file(full).ok()
}

/// After a checkout: remembers the files of the index that were written a moment ago.
pub(super) fn remember(tree: &Path, index: &Path, id_bytes: usize) -> Result<Recent, WorkspaceError> {
    let at = SystemTime::now();
    let bytes = fs::read(index).map_err(WorkspaceError::files("read", index))?;
    let mut hashes = HashMap::new();
    for entry in index::entries(&bytes, id_bytes).unwrap_or_default() {
        if entry.is_link_to_commit() || entry.changed_before(at) {
            continue;
        }
        let path = git::path_from(entry.path);
        let full = tree.join(&path);
        if let Some(hash) = fs::symlink_metadata(&full).ok().and_then(|meta| content(&full, &meta)) {
            hashes.insert(path, hash);
        }
    }
    Ok(Recent { at: Some(at), hashes })
}

/// The size of an object's name in a repository: in bytes, from its text.
pub(super) fn id_bytes(commit: &str) -> usize {
    commit.len() / 2
}
