//! The clone in which an agent works, and the like of it for checks: a `.git` folder of its own
//! over the files, made of a few files without running git. It reads objects from the person's
//! repository and writes into itself. Whatever the agent does to it, everloop never lets git read
//! it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

use super::rules::Rules;
use super::{WorkspaceError, files, index};

/// State of unfinished git operations and of locks; an agent may leave any of them behind.
const UNFINISHED: &[&str] = &[
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "MERGE_HEAD",
    "MERGE_MSG",
    "MERGE_MODE",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "BISECT_LOG",
    "BISECT_START",
    "index.lock",
    "HEAD.lock",
    "config.lock",
    "packed-refs.lock",
    "shallow.lock",
];

/// Folders that make a clone one.
const FOLDERS: [&str; 4] = ["objects", "objects/info", "refs", "info"];

/// The log of an agent's own commits; more is cut.
const LOG_CAP_BYTES: u64 = 64 << 10;
/// Own commits of an agent that are named in the commit of its turn.
const SUBJECTS_KEPT: usize = 20;
const SUBJECT_CHARS: usize = 100;

/// The largest index of an agent that is looked at: about a million files.
const INDEX_CAP_BYTES: u64 = 128 << 20;

/// What a clone consists of.
#[derive(Clone, Debug)]
pub(super) struct CloneParts {
    /// The person's git folder.
    pub common: PathBuf,
    pub config: String,
    pub exclude: String,
    /// Branches and tags of the person, for the agent to look at.
    pub packed_refs: Vec<u8>,
}

impl CloneParts {
    pub fn new(common: &Path, rules: &Rules) -> Self {
        let (config, exclude) = (rules.for_agent(), rules.exclude().to_owned());
        Self { common: common.to_owned(), config, exclude, packed_refs: Vec::new() }
    }

    /// Makes the clone over the files in `tree` ready: its head at `commit`, its index a copy of
    /// `index`, nothing unfinished. Branches and settings of the agent stay. Whatever is there instead of a
    /// clone is moved to `strays`.
    pub fn make_ready(&self, tree: &Path, commit: &str, index: &Path, strays: &Path) -> Result<(), WorkspaceError> {
        let git = tree.join(".git");
        if !is_clone(&git) {
            files::set_aside(&git, strays).map_err(WorkspaceError::files("move", &git))?;
            self.make(&git).map_err(WorkspaceError::files("make", &git))?;
        }
        self.point(&git, commit, index).map_err(WorkspaceError::files("make", &git))
    }

    /// Makes the clone anew; nothing of an old one is left.
    pub fn make_anew(&self, tree: &Path, commit: &str, index: &Path) -> Result<(), WorkspaceError> {
        let git = tree.join(".git");
        let made = files::remove(&git).and_then(|()| self.make(&git)).and_then(|()| self.point(&git, commit, index));
        made.map_err(WorkspaceError::files("make", &git))
    }

    fn make(&self, git: &Path) -> io::Result<()> {
        for folder in FOLDERS {
            files::make_private(&git.join(folder))?;
        }
        fs::write(git.join("config"), &self.config)?;
        fs::write(git.join("info/exclude"), &self.exclude)?;
        fs::write(git.join("packed-refs"), &self.packed_refs)?;
        match fs::copy(self.common.join("shallow"), git.join("shallow")) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    fn point(&self, git: &Path, commit: &str, index: &Path) -> io::Result<()> {
        for name in UNFINISHED {
            files::remove(&git.join(name))?;
        }
        let logs = git.join("logs");
        if !is_folder(&logs) {
            files::remove(&logs)?;
            files::make_private(&logs)?;
        }
        let objects = self.common.join("objects");
        put(&git.join("objects/info/alternates"), &[objects.as_os_str().as_bytes(), b"\n"].concat())?;
        put(&git.join("HEAD"), format!("{commit}\n").as_bytes())?;
        // From here git knows at which commit the head was detached, and everloop which commits are
        // of this turn.
        let zeros = "0".repeat(commit.len());
        let line =
            format!("{zeros} {commit} everloop <everloop@localhost> 1 +0000\tcheckout: moving from turn to {commit}\n");
        put(&logs.join("HEAD"), line.as_bytes())?;
        files::remove(&git.join("index"))?;
        fs::copy(index, git.join("index")).map(|_| ())
    }
}

/// Writes a file. A link in its place is replaced, not followed.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    files::remove(path)?;
    fs::write(path, bytes)
}

/// A sign of whether an agent has written its index: inode, size and change time.
pub(super) type IndexMark = (u64, u64, i64, i64);

/// The mark of the clone's index.
pub(super) fn index_mark(tree: &Path) -> Option<IndexMark> {
    let meta = fs::symlink_metadata(tree.join(".git/index")).ok()?;
    Some((meta.ino(), meta.len(), meta.ctime(), meta.ctime_nsec()))
}

/// Paths in the agent's index: files that it added although they are ignored are work, too. Data of
/// no trust; empty when it cannot be read.
pub(super) fn indexed(tree: &Path, id_bytes: usize) -> Vec<PathBuf> {
    let git = tree.join(".git");
    if !is_folder(&git) {
        return Vec::new();
    }
    let Ok(bytes) = read_plain(&git.join("index"), INDEX_CAP_BYTES) else { return Vec::new() };
    let found = index::entries(&bytes, id_bytes).unwrap_or_default();
    found.iter().filter(|entry| !entry.is_link_to_commit()).map(|entry| crate::git::path_from(entry.path)).collect()
}

/// First lines of the commits that the agent made in this turn, oldest first. Data: without control
/// characters, of limited length and number.
pub(super) fn own_commits(tree: &Path) -> Vec<String> {
    let git = tree.join(".git");
    if !is_folder(&git) || !is_folder(&git.join("logs")) {
        return Vec::new();
    }
    let Ok(log) = read_plain(&git.join("logs/HEAD"), LOG_CAP_BYTES) else { return Vec::new() };
    let text = String::from_utf8_lossy(&log);
    let subject = |line: &str| {
        let (_, action) = line.split_once('\t')?;
        let (what, subject) = action.split_once(": ")?;
        what.starts_with("commit").then(|| {
            let plain = subject.replace(|c: char| c.is_control(), " ");
            plain.trim().chars().take(SUBJECT_CHARS).collect::<String>()
        })
    };
    text.lines().filter_map(subject).filter(|s| !s.is_empty()).take(SUBJECTS_KEPT).collect()
}

/// A plain file, not a link, a pipe or a device.
fn read_plain(path: &Path, cap: u64) -> io::Result<Vec<u8>> {
    let file: File = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    file.take(cap).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn is_clone(git: &Path) -> bool {
    is_folder(git) && FOLDERS.iter().all(|folder| is_folder(&git.join(folder)))
}

/// A folder, not a link to one.
pub(super) fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
}
