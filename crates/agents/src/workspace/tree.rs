//! The result of `git status` in a tree of the person or of a turn.

use std::collections::HashSet;
use std::path::PathBuf;

use super::WorkspaceError;
use crate::git::{self, Git};

/// The result of `git status`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TreeStatus {
    pub head: Option<String>,
    /// Nothing differs from `head`, nothing is untracked.
    pub clean: bool,
    /// Files that differ or are untracked.
    pub paths: Vec<PathBuf>,
    /// Untracked repositories in the tree.
    pub nested: Vec<PathBuf>,
    /// Ignored paths, where they are looked for; a folder that is ignored as a whole ends with `/`.
    pub ignored: HashSet<Vec<u8>>,
}

/// What to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Every untracked file, so that repositories among them are found.
    Files,
    /// The same, and what is ignored.
    FilesAndIgnored,
    Tracked,
}

/// One `git status` in the tree where `git` runs. Submodules are compared by their commit only: git
/// would run itself in them, with settings that an agent may have written.
pub(super) async fn status(git: &Git, detail: Detail) -> Result<TreeStatus, WorkspaceError> {
    let untracked = match detail {
        Detail::Files | Detail::FilesAndIgnored => "--untracked-files=all",
        Detail::Tracked => "--untracked-files=no",
    };
    let args = ["status", "--porcelain=v2", "-z", "--branch", "--no-renames", "--ignore-submodules=dirty", untracked];
    let ignored = (detail == Detail::FilesAndIgnored).then_some("--ignored=matching");
    let out = git.bytes(&args.into_iter().chain(ignored).collect::<Vec<_>>()).await?;
    let mut look = TreeStatus { clean: true, ..TreeStatus::default() };
    for record in git::records(&out) {
        if let Some(oid) = record.strip_prefix(b"# branch.oid ") {
            look.head = (oid != b"(initial)").then(|| String::from_utf8_lossy(oid).into_owned());
            continue;
        }
        if record.starts_with(b"# ") {
            continue;
        }
        if let Some(path) = record.strip_prefix(b"! ") {
            look.ignored.insert(path.to_owned());
            continue;
        }
        look.clean = false;
        // Before the path: 8 fields of a change, 10 of a conflict, 1 of an untracked file.
        let fields = match record.first() {
            Some(b'1') => 8,
            Some(b'u') => 10,
            _ => 1,
        };
        let Some(path) = record.splitn(fields + 1, |byte| *byte == b' ').nth(fields) else { continue };
        match path.strip_suffix(b"/") {
            Some(folder) => look.nested.push(git::path_from(folder)),
            None => look.paths.push(git::path_from(path)),
        }
    }
    Ok(look)
}
