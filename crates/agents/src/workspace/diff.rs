//! What differs between two commits: for the judge of a turn, and for a reader of a loop's work.
//! Reads only.

use std::path::Path;

use everloop_core::ids::LoopId;

use super::{ChangeKind, PathChange, ProjectFolder, WorkspaceError, discover, refs};
use crate::git::{self, Git};

/// Options of every comparison. A rename is a removal and an addition, which is how protected files
/// count it; programs that the repository names for showing files do not run.
const OPTIONS: [&str; 4] = ["-r", "--no-renames", "--no-ext-diff", "--no-textconv"];

/// One changed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDiff {
    pub change: PathChange,
    /// Added lines; `None` for a binary file.
    pub added: Option<u64>,
    /// Removed lines; `None` for a binary file.
    pub removed: Option<u64>,
}

/// A loop's work against the commit that the loop began at.
#[derive(Debug)]
pub struct WorkDiff {
    git: Git,
    /// Where the loop began.
    pub base: String,
    pub head: String,
}

impl WorkDiff {
    /// The work of the loop `owner` in the repository around `dir`; `None` when the loop has not
    /// begun yet. It began at `start`, or where its ref says for a loop of an earlier version.
    /// Without work the head is the start.
    pub async fn open(
        dir: &Path,
        owner: &LoopId,
        (start, work): (Option<&str>, Option<&str>),
    ) -> Result<Option<Self>, WorkspaceError> {
        let ProjectFolder::Git(place) = discover(dir).await? else {
            return Err(WorkspaceError::NotGit { dir: dir.to_owned() });
        };
        let git = Git::shared(&place.common);
        let base = match start {
            Some(start) => Some(start.to_owned()),
            None => git.commit(&refs::start(owner)).await?,
        };
        let Some(base) = base else { return Ok(None) };
        let head = work.unwrap_or(&base).to_owned();
        Ok(Some(Self { git, base, head }))
    }

    /// The changed files.
    pub async fn files(&self) -> Result<Vec<FileDiff>, WorkspaceError> {
        files(&self.git, &self.base, &self.head).await
    }

    /// The change as a patch; bytes that are not UTF-8 are replaced.
    pub async fn patch(&self) -> Result<String, WorkspaceError> {
        let out = self.git.bytes(&words(&["--patch"], &self.base, &self.head)).await?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }
}

fn words<'a>(form: &[&'a str], from: &'a str, to: &'a str) -> Vec<&'a str> {
    ["diff-tree"].into_iter().chain(OPTIONS).chain(form.iter().copied()).chain([from, to, "--"]).collect()
}

/// Changed files between two commits.
pub(super) async fn files(git: &Git, from: &str, to: &str) -> Result<Vec<FileDiff>, WorkspaceError> {
    let out = git.bytes(&words(&["-z", "--raw", "--numstat"], from, to)).await?;
    let (mut changes, mut counts) = (Vec::new(), Vec::new());
    let mut records = git::records(&out);
    while let Some(record) = records.next() {
        if record.starts_with(b":") {
            let kind = match record.last() {
                Some(b'A') => ChangeKind::Added,
                Some(b'D') => ChangeKind::Removed,
                Some(b'T') => ChangeKind::Retyped,
                _ => ChangeKind::Modified,
            };
            changes.extend(records.next().map(|path| PathChange { kind, path: git::path_from(path) }));
        } else {
            let text = String::from_utf8_lossy(record);
            // A binary file has `-` for both.
            let mut numbers = text.split('\t').map(|n| n.parse::<u64>().ok());
            counts.push((numbers.next().flatten(), numbers.next().flatten()));
        }
    }
    // git lists the counts in the order of the changes.
    let mut counts = counts.into_iter();
    let count = |change| {
        let (added, removed) = counts.next().unwrap_or_default();
        FileDiff { change, added, removed }
    };
    Ok(changes.into_iter().map(count).collect())
}

/// Files, insertions and deletions as text.
pub(super) fn sum(files: &[FileDiff]) -> String {
    let count = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let (mut insertions, mut deletions) = (0, 0);
    for file in files {
        insertions += file.added.unwrap_or(0);
        deletions += file.removed.unwrap_or(0);
    }
    let files = count(files.len() as u64, "file");
    format!("{files}, {}, {}", count(insertions, "insertion"), count(deletions, "deletion"))
}

/// The changed paths.
pub(super) fn paths(files: Vec<FileDiff>) -> Vec<PathChange> {
    files.into_iter().map(|file| file.change).collect()
}
