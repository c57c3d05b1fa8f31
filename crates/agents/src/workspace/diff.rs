//! What differs between two commits: for the judge of a turn, and for a reader of a loop's work.
//! Reads only.

use std::path::Path;

use everloop_core::ids::LoopId;

use super::{ChangeKind, PathChange, ProjectFolder, WorkspaceError, discover, refs};
use crate::git::{self, Git, GitSession};

/// Options of every comparison. A rename is a removal and an addition, which is how protected files
/// count it; programs that the repository names for showing files do not run.
const OPTIONS: [&str; 4] = ["-r", "--no-renames", "--no-ext-diff", "--no-textconv"];

/// Options of a list of changed files with their lines.
pub(super) const LISTED: [&str; 3] = ["-z", "--raw", "--numstat"];

/// Options of a patch without the lines around a change.
pub(super) const PATCHED: [&str; 3] = ["--patch", "--unified=0", "--full-index"];

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

pub(super) fn words<'a>(form: &[&'a str], from: &'a str, to: &'a str) -> Vec<&'a str> {
    ["diff-tree"].into_iter().chain(OPTIONS).chain(form.iter().copied()).chain([from, to, "--"]).collect()
}

/// Changed files between two commits.
pub(super) async fn files(git: &Git, from: &str, to: &str) -> Result<Vec<FileDiff>, WorkspaceError> {
    let out = git.bytes(&words(&LISTED, from, to)).await?;
    Ok(read(&out, &[]).pop().unwrap_or_default())
}

/// The words of a process that compares pairs of trees which it reads.
pub(super) fn many(form: &[&'static str]) -> Vec<&'static str> {
    ["diff-tree", "--stdin"].into_iter().chain(OPTIONS).chain(form.iter().copied()).collect()
}

/// Changed files from each of the trees `from` to the tree `to`, in the same order, by one process.
pub(super) async fn to_tree(
    git: &Git,
    lists: &GitSession,
    from: &[String],
    to: &str,
) -> Result<Vec<Vec<FileDiff>>, WorkspaceError> {
    let pairs: Vec<String> = from.iter().map(|from| format!("{from} {to}\n")).collect();
    let text = pairs.concat();
    let out = match lists.compare(&text).await {
        Some(out) => out,
        None => git.fed(&many(&LISTED), text.as_bytes()).await?.success()?,
    };
    Ok(read(&out, &pairs))
}

/// What git lists, in groups: it repeats each of the `pairs` in front of the changes between them.
fn read(out: &[u8], pairs: &[String]) -> Vec<Vec<FileDiff>> {
    let mut groups = vec![Group::default(); usize::from(pairs.is_empty())];
    let mut pairs = pairs.iter().peekable();
    let mut records = git::records(out);
    while let Some(mut record) = records.next() {
        while let Some(rest) = pairs.peek().and_then(|pair| record.strip_prefix(pair.as_bytes())) {
            record = rest;
            pairs.next();
            groups.push(Group::default());
        }
        let Some(group) = groups.last_mut() else { continue };
        if record.starts_with(b":") {
            group.changes.extend(records.next().map(|path| change(record, path)));
        } else if !record.is_empty() {
            group.counts.push(counts(record));
        }
    }
    groups.resize(groups.len() + pairs.count(), Group::default());
    groups.into_iter().map(Group::into_files).collect()
}

/// The changes of one comparison. git lists the counts after them, in the same order.
#[derive(Clone, Debug, Default)]
struct Group {
    changes: Vec<PathChange>,
    counts: Vec<(Option<u64>, Option<u64>)>,
}

impl Group {
    fn into_files(self) -> Vec<FileDiff> {
        let mut counts = self.counts.into_iter();
        let file = |change| {
            let (added, removed) = counts.next().unwrap_or_default();
            FileDiff { change, added, removed }
        };
        self.changes.into_iter().map(file).collect()
    }
}

fn change(record: &[u8], path: &[u8]) -> PathChange {
    let kind = match record.last() {
        Some(b'A') => ChangeKind::Added,
        Some(b'D') => ChangeKind::Removed,
        Some(b'T') => ChangeKind::Retyped,
        _ => ChangeKind::Modified,
    };
    PathChange { kind, path: git::path_from(path) }
}

/// Added and removed lines; a binary file has `-` for both.
fn counts(record: &[u8]) -> (Option<u64>, Option<u64>) {
    let text = String::from_utf8_lossy(record);
    let mut numbers = text.split('\t').map(|n| n.parse().ok());
    (numbers.next().flatten(), numbers.next().flatten())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_in_the_groups_that_git_lists() {
        let pairs = ["aa cc\n", "bb cc\n", "cc cc\n"].map(str::to_owned);
        let raw = ":100644 100644 1 2 M\0a\0:000000 100644 0 2 A\0aa cc\0";
        let text = format!("aa cc\nbb cc\n{raw}3\t1\ta\0-\t-\taa cc\0cc cc\n");
        let found = read(text.as_bytes(), &pairs);
        let file = |kind, path: &str, added, removed| FileDiff {
            change: PathChange { kind, path: path.into() },
            added,
            removed,
        };
        let both =
            vec![file(ChangeKind::Modified, "a", Some(3), Some(1)), file(ChangeKind::Added, "aa cc", None, None)];
        assert_eq!(found, [Vec::new(), both, Vec::new()]);
        assert_eq!(read(b"aa cc\n", &pairs), [const { Vec::new() }; 3]);
        assert_eq!(read(b"", &[]), [Vec::new()]);
    }
}
