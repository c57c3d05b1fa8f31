//! Brings a folder from the files of one index to those of another, without a checkout by git: only
//! what differs is touched. The content comes from the repository's objects. Whatever needs more than
//! that, and folders that are not what they should be, are left to git.

use std::cmp::Ordering;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use super::index::{self, Entry};
use super::stage::replace;
use super::{WorkspaceError, files};
use crate::git::{self, GitSession};

/// Files that are switched; with more of them one process of git is as fast.
const MOST_FILES: usize = 256;

/// A folder, and where it is to go.
#[derive(Clone, Debug)]
pub(super) struct Switch {
    pub tree: PathBuf,
    /// Describes the files of the folder exactly.
    pub index: PathBuf,
    /// Describes the files to come.
    pub to: PathBuf,
    /// The tree of those.
    pub wanted: String,
    pub id_bytes: usize,
}

/// A path that differs, and what comes there: mode and object, later mode and content.
struct Difference<T> {
    path: PathBuf,
    /// A file is there now.
    is_there: bool,
    to: Option<(u32, T)>,
}

impl Switch {
    /// Switches. False when only git can do it; the folder may then be between the two.
    pub async fn run(self, blobs: &GitSession) -> Result<bool, WorkspaceError> {
        let this = self.clone();
        let Some(differences) = files::apart(move || this.differences()).await? else { return Ok(false) };
        let mut contents = Vec::with_capacity(differences.len());
        for Difference { path, is_there, to } in differences {
            let to = match to {
                None => None,
                Some((mode, id)) => match blobs.blob(&id).await {
                    Some(content) => Some((mode, content)),
                    None => return Ok(false),
                },
            };
            contents.push(Difference { path, is_there, to });
        }
        files::apart(move || Ok(self.apply(&contents).is_ok())).await
    }

    /// What differs; `None` when it is too much, or not for this module.
    fn differences(&self) -> Result<Option<Vec<Difference<String>>>, WorkspaceError> {
        let load = |path: &Path| fs::read(path).map_err(WorkspaceError::files("read", path));
        let (from, to) = (load(&self.index)?, load(&self.to)?);
        let (Some((from, _)), Some((to, trees))) =
            (index::whole(&from, self.id_bytes), index::whole(&to, self.id_bytes))
        else {
            return Ok(None);
        };
        let special = |entry: &Entry<'_>| entry.path.ends_with(b".gitattributes");
        if trees.id().as_ref() != Some(&self.wanted) || from.iter().chain(&to).any(special) {
            return Ok(None);
        }
        let found = compare(&from, &to);
        Ok((found.len() <= MOST_FILES).then_some(found))
    }

    fn apply(&self, contents: &[Difference<Vec<u8>>]) -> io::Result<()> {
        // All that goes first, from the last to the first: a folder may come in the place of a file,
        // and a file in the place of a folder.
        for difference in contents.iter().rev().filter(|difference| difference.is_there) {
            self.take_away(&difference.path)?;
        }
        for Difference { path, to, .. } in contents {
            if let Some((mode, content)) = to {
                self.put(path, *mode, content)?;
            }
        }
        self.describe()
    }

    /// Removes what is at a path, and the folders that are empty then.
    fn take_away(&self, path: &Path) -> io::Result<()> {
        let above: Vec<&Path> = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()).collect();
        for folder in above.iter().rev() {
            match fs::symlink_metadata(self.tree.join(folder)) {
                Ok(meta) if meta.is_dir() => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                _ => return Err(io::Error::other("a folder is none")),
            }
        }
        match fs::remove_file(self.tree.join(path)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        for folder in above {
            if fs::remove_dir(self.tree.join(folder)).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn put(&self, path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
        let full = self.tree.join(path);
        if let Some(folder) = full.parent() {
            fs::create_dir_all(folder)?;
        }
        if mode == 0o120_000 {
            return symlink(git::path_from(content), full);
        }
        let mode = if mode & 0o100 == 0 { 0o666 } else { 0o777 };
        OpenOptions::new().write(true).create_new(true).mode(mode).open(full)?.write_all(content)
    }

    /// Writes the index of the folder as it is now.
    fn describe(&self) -> io::Result<()> {
        let (from, to) = (fs::read(&self.index)?, fs::read(&self.to)?);
        let damaged = || io::Error::other("an index cannot be read any more");
        let (from, _) = index::whole(&from, self.id_bytes).ok_or_else(damaged)?;
        let (mut to, trees) = index::whole(&to, self.id_bytes).ok_or_else(damaged)?;
        let mut old = from.iter().peekable();
        for entry in &mut to {
            while old.next_if(|old| old.path < entry.path).is_some() {}
            *entry = match old.next_if(|old| old.path == entry.path) {
                Some(old) if old.is_same(entry) => *old,
                _ => {
                    let meta = fs::symlink_metadata(self.tree.join(git::path_from(entry.path)))?;
                    Entry::new(entry.path, entry.id, &meta)
                }
            };
        }
        replace(&self.index, &index::write(&to, &trees, self.id_bytes)).map_err(io::Error::other)
    }
}

/// What differs between two lists in order.
fn compare(from: &[Entry<'_>], to: &[Entry<'_>]) -> Vec<Difference<String>> {
    let coming = |entry: &Entry<'_>| Some((entry.mode, everloop_core::hex::hex(entry.id)));
    let (mut found, mut from, mut to) = (Vec::new(), from.iter().peekable(), to.iter().peekable());
    loop {
        let order = match (from.peek(), to.peek()) {
            (None, None) => return found,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.path.cmp(new.path),
        };
        let old = if order.is_le() { from.next() } else { None };
        let new = if order.is_ge() { to.next() } else { None };
        let is_same = old.zip(new).is_some_and(|(old, new)| old.is_same(new));
        if let Some(entry) = new.or(old).filter(|_| !is_same) {
            let path = git::path_from(entry.path);
            found.push(Difference { path, is_there: old.is_some(), to: new.and_then(coming) });
        }
    }
}
