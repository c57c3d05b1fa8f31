//! Which files of a turn are taken: those that git reports as different, and those that the agent
//! added to its own index although they are ignored. Decides by looking at each one, without
//! following links; what cannot be taken is named in a note.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use everloop_core::planted::{self, Bug};

use super::{WorkspaceError, files, index};
use crate::git;

/// A file beyond this size is not kept: it would stay in the repository for ever.
const FILE_LIMIT_MB: u64 = 256;
/// All files of one turn.
const TURN_LIMIT_MB: u64 = 2048;

/// Notes about files that were not taken; more are counted.
const NOTES_KEPT: usize = 10;

/// Files to take, as lists for git.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Paths of files that are there, each followed by a zero.
    pub there: Vec<u8>,
    /// Paths of files that are not there any more.
    pub gone: Vec<u8>,
    pub notes: Vec<String>,
    bytes: u64,
    left_out: usize,
}

impl Gathered {
    pub fn is_empty(&self) -> bool {
        self.there.is_empty() && self.gone.is_empty()
    }

    /// The paths as text, sorted.
    pub fn names(&self) -> Vec<String> {
        let all = git::records(&self.there).chain(git::records(&self.gone));
        let mut names: Vec<String> = all.map(|path| String::from_utf8_lossy(path).into_owned()).collect();
        names.sort();
        names
    }

    fn leave_out(&mut self, path: &Path, why: &str) {
        self.left_out += 1;
        if self.left_out <= NOTES_KEPT {
            self.notes.push(format!("`{}` was left out: {why}", path.display()));
        }
    }
}

/// Gathers the files in `tree` at `paths`, and those of `forced` that are not in everloop's `index`.
pub(super) fn gather(
    tree: &Path,
    index: &Path,
    mut paths: Vec<PathBuf>,
    (forced, id_bytes): (Vec<PathBuf>, usize),
) -> Result<Gathered, WorkspaceError> {
    let mut gathered = Gathered::default();
    if !forced.is_empty() {
        let ours = fs::read(index).map_err(WorkspaceError::files("read", index))?;
        let entries = index::entries(&ours, id_bytes).unwrap_or_default();
        let known: HashSet<&[u8]> = entries.iter().map(|entry| entry.path).collect();
        let listed: HashSet<PathBuf> = paths.iter().cloned().collect();
        let is_new = |path: &PathBuf| {
            is_confined(path) && !known.contains(path.as_os_str().as_bytes()) && !listed.contains(path)
        };
        let there = |path: &PathBuf| matches!(kind(tree, path), Kind::File(_) | Kind::Link);
        paths.extend(forced.into_iter().filter(is_new).filter(there));
    }
    for path in paths {
        take(&mut gathered, tree, &path)?;
    }
    if gathered.left_out > NOTES_KEPT {
        gathered.notes.push(format!("{} more files were left out", gathered.left_out - NOTES_KEPT));
    }
    Ok(gathered)
}

/// What is at a path.
enum Kind {
    /// Nothing, or something behind a link or a file.
    Gone,
    File(u64),
    Link,
    Folder,
    /// A pipe, a socket or a device.
    Special,
}

fn kind(tree: &Path, path: &Path) -> Kind {
    let mut at = tree.to_owned();
    let above = path.parent().unwrap_or(Path::new(""));
    for part in above.components() {
        at.push(part);
        if !fs::symlink_metadata(&at).is_ok_and(|meta| meta.is_dir()) {
            return Kind::Gone;
        }
    }
    match fs::symlink_metadata(tree.join(path)) {
        Ok(meta) if meta.is_file() => Kind::File(meta.len()),
        Ok(meta) if meta.is_symlink() => Kind::Link,
        Ok(meta) if meta.is_dir() => Kind::Folder,
        Ok(_) => Kind::Special,
        Err(_) => Kind::Gone,
    }
}

fn take(gathered: &mut Gathered, tree: &Path, path: &Path) -> Result<(), WorkspaceError> {
    let full = tree.join(path);
    let limited = !planted::is(Bug::TakesAnySize);
    match kind(tree, path) {
        Kind::File(bytes) if limited && bytes > FILE_LIMIT_MB << 20 => {
            gathered.leave_out(path, &format!("it is larger than {FILE_LIMIT_MB} MB"));
            return Ok(());
        }
        Kind::File(bytes) if limited && gathered.bytes + bytes > TURN_LIMIT_MB << 20 => {
            gathered.leave_out(path, &format!("the turn's files are more than {TURN_LIMIT_MB} MB"));
            return Ok(());
        }
        Kind::File(bytes) => {
            if let Err(e) = File::open(&full)
                && e.kind() == io::ErrorKind::PermissionDenied
            {
                // An unreadable file is no reason to lose the others.
                gathered.leave_out(path, "permission denied");
                return Ok(());
            }
            gathered.bytes += bytes;
        }
        Kind::Link
            if !planted::is(Bug::FollowsLinks) && fs::read_link(&full).map_or(true, |to| leads_out(path, &to)) =>
        {
            gathered.leave_out(path, "it links out of the repository");
            return Ok(());
        }
        Kind::Link => {}
        // A submodule: git takes the commit that is checked out there, or a file gave way to a
        // folder.
        Kind::Folder if full.join(".git").exists() => {}
        Kind::Special => {
            files::remove(&full).map_err(WorkspaceError::files("remove", &full))?;
            gathered.leave_out(path, "it is no file");
            push(&mut gathered.gone, path);
            return Ok(());
        }
        Kind::Gone | Kind::Folder => {
            push(&mut gathered.gone, path);
            return Ok(());
        }
    }
    push(&mut gathered.there, path);
    Ok(())
}

/// Whether a link at `path` to `target` can name something that is not in the repository: a check
/// would read a file that no commit holds. Going up is allowed at the beginning only, where the
/// folders are real ones: behind another link it would start from somewhere else.
fn leads_out(path: &Path, target: &Path) -> bool {
    let (mut above, mut begun) = (path.components().count() - 1, false);
    for part in target.components() {
        match part {
            Component::Normal(_) => begun = true,
            Component::CurDir => {}
            Component::ParentDir if !begun && above > 0 => above -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return true,
        }
    }
    false
}

fn push(list: &mut Vec<u8>, path: &Path) {
    list.extend_from_slice(path.as_os_str().as_bytes());
    list.push(0);
}

/// A path inside of the tree that no `.git` is part of.
fn is_confined(path: &Path) -> bool {
    let plain = |part: Component<'_>| match part {
        Component::Normal(name) => !name.eq_ignore_ascii_case(".git"),
        _ => false,
    };
    !path.as_os_str().is_empty() && path.components().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stays_in_the_repository() {
        let out = |path: &str, target: &str| leads_out(Path::new(path), Path::new(target));
        for (path, target) in [("a", "b"), ("a", "./b/c"), ("d/a", "../b"), ("d/e/a", "../../b/c"), ("d/a", "..")] {
            assert!(!out(path, target), "{path} -> {target}");
        }
        for (path, target) in [
            ("a", "/etc/passwd"),
            ("a", "../b"),
            ("d/a", "../../b"),
            ("a", "b/../../c"),
            // `l` may be a link to the root.
            ("a", "d/e/l/../../x"),
        ] {
            assert!(out(path, target), "{path} -> {target}");
        }
    }
}
