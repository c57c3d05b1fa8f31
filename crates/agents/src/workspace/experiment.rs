//! What an experiment changed: its size, its fingerprint, and what is outside of its scope.

use std::path::Path;

use sha2::{Digest, Sha256};

use super::{PathChange, WorkspaceError, diff};
use crate::git::Git;
use crate::protect::Globs;

/// The change of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExperimentChange {
    /// Changed files outside of the scope.
    pub outside: Vec<String>,
    /// Lines that are not blank.
    pub added: u32,
    pub removed: u32,
    /// Equal for equal changes, wherever they stand in a file.
    pub hash: u64,
    /// Lines of all files in scope before the change; counted only where the rules need it.
    pub scope: u32,
}

/// Lines that a change may add before the size of the scope matters.
const MANY_LINES: u32 = 20;

/// Examines the change from `base` to `commit`.
pub(super) async fn examine(
    git: &Git,
    (base, commit): (&str, &str),
    (scope, below): (&[String], &Path),
    changes: &[PathChange],
) -> Result<ExperimentChange, WorkspaceError> {
    let globs = Globs::new(scope)?.below(below);
    let is_outside = |change: &&PathChange| !scope.is_empty() && !globs.protects(&change.path);
    let outside = changes.iter().filter(is_outside).map(|change| change.path.display().to_string()).collect();
    let patch = git.bytes(&diff::words(&["--patch", "--unified=0"], base, commit)).await?;
    let mut change = ExperimentChange { outside, ..read(&patch) };
    if change.added > change.removed + MANY_LINES {
        change.scope = lines(git, base, &globs, scope.is_empty()).await?;
    }
    Ok(change)
}

/// Counts lines, and sums up what they are without where they stand.
fn read(patch: &[u8]) -> ExperimentChange {
    let (mut change, mut hash) = (ExperimentChange::default(), Sha256::new());
    for line in patch.split(|byte| *byte == b'\n') {
        let header = line.starts_with(b"+++ ") || line.starts_with(b"--- ");
        let blank = line.get(1..).is_none_or(|rest| rest.iter().all(u8::is_ascii_whitespace));
        match line.first() {
            Some(b'+') if !header && !blank => change.added += 1,
            Some(b'-') if !header && !blank => change.removed += 1,
            _ => {}
        }
        // Ids of files and numbers of lines differ with what is around the change.
        if header || matches!(line.first(), Some(b'+' | b'-')) {
            hash.update(line);
            hash.update(b"\n");
        }
    }
    change.hash = hash.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
    change
}

/// Lines of all files in scope.
async fn lines(git: &Git, commit: &str, globs: &Globs, all: bool) -> Result<u32, WorkspaceError> {
    // The empty tree, in both formats of git.
    let empty = git.fed(&["mktree"], b"").await?.success()?;
    let empty = String::from_utf8_lossy(&empty).trim().to_owned();
    let files = diff::files(git, &empty, commit).await?;
    let inside = files.into_iter().filter(|file| all || globs.protects(&file.change.path));
    Ok(u32::try_from(inside.filter_map(|file| file.added).sum::<u64>()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_the_same_wherever_it_stands() {
        let one = b"diff --git a/x b/x\nindex 1..2\n--- a/x\n+++ b/x\n@@ -3 +3 @@\n-a\n+b\n+\n";
        let other = b"diff --git a/x b/x\nindex 3..4\n--- a/x\n+++ b/x\n@@ -9 +9 @@\n-a\n+b\n+\n";
        let (one, other) = (read(one), read(other));
        assert_eq!((one.added, one.removed, one.hash), (1, 1, other.hash));
        assert_ne!(one.hash, read(b"--- a/x\n+++ b/x\n@@ -3 +3 @@\n-a\n+c\n").hash);
    }
}
