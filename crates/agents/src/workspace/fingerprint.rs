//! Whether a private worktree is unchanged since git last inspected it. Saves a `git status` after
//! a turn that did nothing. Only equality is ever concluded from here; anything that is not
//! provably the same is left to git.
//!
//! A fingerprint is a hash over everything that `git status` depends on: each entry of the worktree
//! and of its part of the git folder with inode, size, mode and both times; the shared files that
//! affect it; the configuration. That is what git's own index trusts, and more: a change time
//! cannot be set back. A fingerprint is taken *before* git runs, so that any change meanwhile
//! invalidates it. An entry that changed a moment ago could change again within the same tick of
//! the file system's clock and look the same; with such an entry there is no fingerprint.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use super::WorkspaceError;
use crate::git::{self, Git};

/// Beyond this many entries git, which skips ignored folders, is as fast.
const MOST_ENTRIES: u32 = 1_000;

/// Two ticks of the slowest clock with which Linux stamps files (100 Hz).
const TICK: Duration = Duration::from_millis(20);

/// Some file systems keep whole seconds only, the oldest of them every other one.
const COARSE_TICK: Duration = Duration::from_secs(2);

/// What the worktrees of a repository share and `git status` reads. Objects are not here: they are
/// named by their content.
const SHARED: [&str; 5] = ["config", "info", "packed-refs", "refs/replace", "reftable"];

/// A fingerprint of a worktree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint([u8; 32]);

/// Why there is no fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsealed {
    /// Something changed only a moment ago; this is temporary.
    New,
    /// There are too many entries, or only git can interpret them.
    Beyond,
}

/// The folders that a fingerprint covers.
#[derive(Clone, Debug)]
pub(super) struct FingerprintScope {
    pub tree: PathBuf,
    /// Its part of the git folder.
    pub admin: PathBuf,
    /// The git folder.
    pub common: PathBuf,
}

/// Files outside of the repository that affect git's output: configuration, and the files it names.
#[derive(Clone, Debug)]
pub(super) struct Sources {
    paths: Vec<PathBuf>,
    /// A file that changed later may name others.
    listed_at: SystemTime,
}

impl Sources {
    /// Queries git for them; `None` when one is named in a way that only git can resolve.
    pub async fn list(git: &Git, scope: &FingerprintScope) -> Result<Option<Self>, WorkspaceError> {
        let listed_at = SystemTime::now();
        let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = folder("HOME").unwrap_or_default();
        let config = folder("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
        // These need not exist, and may be created later.
        let mut paths = vec![home.join(".gitconfig"), "/etc/gitconfig".into(), "/etc/gitattributes".into()];
        paths.extend(["config", "ignore", "attributes"].map(|name| config.join("git").join(name)));
        let listed = git.bytes(&["config", "--list", "--show-origin", "-z"]).await?;
        let mut records = listed.split(|b| *b == 0);
        while let (Some(origin), Some(setting)) = (records.next(), records.next()) {
            let file = origin.strip_prefix(b"file:").map(|path| scope.tree.join(git::path_from(path)));
            if let Some(value) = names_file(setting) {
                // Included files are relative to the including file, the others to the folder where
                // git runs.
                let from = file.as_deref().filter(|_| setting.starts_with(b"include")).and_then(Path::parent);
                match value {
                    [b'~', b'/', below @ ..] => paths.push(home.join(git::path_from(below))),
                    [b'~' | b'%', ..] => return Ok(None),
                    _ => paths.push(from.unwrap_or(&scope.tree).join(git::path_from(value))),
                }
            }
            paths.extend(file);
        }
        paths.sort();
        paths.dedup();
        Ok(Some(Self { paths, listed_at }))
    }

    /// Whether none of them changed since they were listed.
    pub fn hold(&self) -> bool {
        Taking::new(Path::new("")).add_sources(self).is_ok()
    }
}

/// The value of a setting that names a file of rules or of further settings.
fn names_file(setting: &[u8]) -> Option<&[u8]> {
    let (name, value) = setting.split_at(setting.iter().position(|b| *b == b'\n')?);
    let named = [&b"core.excludesfile"[..], b"core.attributesfile", b"include.path"].contains(&name);
    (named || name.starts_with(b"includeif.") && name.ends_with(b".path")).then(|| &value[1..])
}

/// Takes a fingerprint of the current state.
pub(super) fn take(scope: &FingerprintScope, sources: &Sources) -> Result<Fingerprint, Unsealed> {
    let now = SystemTime::now();
    let mut taking = Taking::new(&scope.tree);
    taking.add(&scope.tree, now)?;
    taking.add(&scope.admin, now)?;
    for name in SHARED {
        taking.add(&scope.common.join(name), now)?;
    }
    taking.add_sources(sources)?;
    Ok(Fingerprint(taking.hash.finalize().into()))
}

struct Taking<'a> {
    hash: Sha256,
    /// Entries that may still be added.
    left: u32,
    /// Links in here are not followed; git does not follow them either.
    tree: &'a Path,
}

impl<'a> Taking<'a> {
    fn new(tree: &'a Path) -> Self {
        Self { hash: Sha256::new(), left: MOST_ENTRIES, tree }
    }

    fn add_sources(&mut self, sources: &Sources) -> Result<(), Unsealed> {
        sources.paths.iter().try_for_each(|path| self.add(path, sources.listed_at))
    }

    /// Adds what is at `top`, if anything. An entry that changed only just before `then`, or later,
    /// is new.
    fn add(&mut self, top: &Path, then: SystemTime) -> Result<(), Unsealed> {
        let mut open = vec![top.to_owned()];
        while let Some(path) = open.pop() {
            self.left = self.left.checked_sub(1).ok_or(Unsealed::Beyond)?;
            self.hash.update(path.as_os_str().as_bytes());
            self.hash.update([0]);
            let meta = match fs::symlink_metadata(&path) {
                Ok(meta) => meta,
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
                Err(_) => return Err(Unsealed::Beyond),
            };
            self.describe(&meta);
            if meta.is_symlink() && !path.starts_with(self.tree) {
                open.push(fs::canonicalize(&path).map_err(|_| Unsealed::Beyond)?);
            }
            if meta.is_dir() {
                let below = entries(&path).map_err(|_| Unsealed::Beyond)?;
                // A repository inside of this one: git reads its state from elsewhere.
                if path != top && below.iter().any(|path| path.file_name() == Some(OsStr::new(".git"))) {
                    return Err(Unsealed::Beyond);
                }
                open.extend(below);
            } else if changed(&meta) >= then {
                return Err(Unsealed::New);
            }
        }
        Ok(())
    }

    fn describe(&mut self, meta: &Metadata) {
        // The times of a folder change with git's own locks; its entries are hashed themselves.
        let (bytes, times) = if meta.is_dir() {
            (0, [0; 4])
        } else {
            (meta.len(), [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()])
        };
        for number in [meta.dev(), meta.ino(), meta.mode().into(), bytes] {
            self.hash.update(number.to_le_bytes());
        }
        for time in times {
            self.hash.update(time.to_le_bytes());
        }
    }
}

/// The entries of a folder, in a fixed order.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Upper bound of the time at which an entry last changed.
fn changed(meta: &Metadata) -> SystemTime {
    // Times before 1970 are a clock error, and long ago.
    let (seconds, nanos) = (meta.ctime().max(0).unsigned_abs(), meta.ctime_nsec().unsigned_abs());
    let tick = if nanos == 0 { COARSE_TICK } else { TICK };
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_nanos(nanos) + tick
}

#[cfg(test)]
mod tests;
