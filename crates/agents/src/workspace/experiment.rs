//! What an experiment changed: its size, its fingerprint, and what is outside of its scope.

use std::path::Path;

use everloop_core::planted::{self, Bug};
use everloop_core::research::simplicity::MANY_LINES;
use sha2::{Digest, Sha256};

use super::{PathChange, WorkspaceError, diff};
use crate::git::{Git, GitSession};
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

/// The difference between two commits or trees, as it is read here.
#[derive(Clone, Debug)]
pub(super) struct KnownPatch {
    pub from: String,
    pub to: String,
    pub text: Vec<u8>,
}

/// The same, while the commit of `tree` is made; nothing without a commit to compare with. `from` is
/// its tree as well, where that is known.
pub(super) async fn known(
    (git, patches): (&Git, &GitSession),
    from: Option<(&str, Option<&str>)>,
    tree: &str,
) -> Result<Option<KnownPatch>, WorkspaceError> {
    let Some((from, from_tree)) = from else { return Ok(None) };
    let pair = from_tree.map(|from| format!("{from} {tree}\n"));
    let compared = match &pair {
        Some(pair) => patches.compare(pair).await,
        None => None,
    };
    // git repeats what it was given.
    let text = match (compared, &pair) {
        (Some(text), Some(pair)) if text.starts_with(pair.as_bytes()) => text[pair.len()..].to_vec(),
        _ => patch(git, from, tree).await?,
    };
    Ok(Some(KnownPatch { from: from.to_owned(), to: tree.to_owned(), text }))
}

/// Reads the difference between two commits or trees.
pub(super) async fn patch(git: &Git, from: &str, to: &str) -> Result<Vec<u8>, WorkspaceError> {
    Ok(git.bytes(&diff::words(&diff::PATCHED, from, to)).await?)
}

/// Examines a change that was made on `base`.
pub(super) async fn examine(
    git: &Git,
    (base, patch): (&str, &[u8]),
    (scope, below): (&[String], &Path),
    changes: &[PathChange],
) -> Result<ExperimentChange, WorkspaceError> {
    let globs = Globs::new(scope)?.below(below);
    let limited = !scope.is_empty() && !planted::is(Bug::ScopeIgnored);
    let is_outside = |change: &&PathChange| limited && !globs.protects(&change.path);
    let outside = changes.iter().filter(is_outside).map(|change| change.path.display().to_string()).collect();
    let mut change = ExperimentChange { outside, ..read(patch) };
    if change.added > change.removed + MANY_LINES {
        change.scope = lines(git, base, &globs, scope.is_empty()).await?;
    }
    Ok(change)
}

/// Counts lines, and sums up what they are without where they stand.
fn read(patch: &[u8]) -> ExperimentChange {
    let (mut change, mut hash) = (ExperimentChange::default(), Sha256::new());
    let mut take = |line: &[u8]| {
        hash.update(line);
        hash.update(b"\n");
    };
    // Only outside of a hunk is a line that begins with `+++` or `---` the name of a file.
    let (mut in_hunk, mut index) = (false, &b""[..]);
    for line in patch.split(|byte| *byte == b'\n') {
        let blank = line.get(1..).is_none_or(|rest| rest.iter().all(u8::is_ascii_whitespace));
        match line.first() {
            Some(b'@') => in_hunk = true,
            Some(b'+' | b'-') if in_hunk => {
                let count = if line[0] == b'+' { &mut change.added } else { &mut change.removed };
                *count += u32::from(!blank);
                take(line);
            }
            // Ids of files differ with what is around the change; of a binary file nothing else is shown.
            Some(b'i') if line.starts_with(b"index ") => index = line,
            Some(b'B') => {
                take(index);
                take(line);
            }
            _ => {
                in_hunk = false;
                take(line);
            }
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
        assert_ne!(one.hash, read(b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -3 +3 @@\n-a\n+c\n").hash);
    }

    #[test]
    fn no_line_hides_as_the_name_of_a_file() {
        let patch = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@\n--- was\n+++ is\n+++ too\n";
        assert_eq!((read(patch).added, read(patch).removed), (2, 1));
    }

    #[test]
    fn binary_files_and_modes_are_told_apart() {
        let binary = |id: &str| {
            let text = format!("diff --git a/x b/x\nindex 1..{id} 100644\nBinary files a/x and b/x differ\n");
            read(text.as_bytes()).hash
        };
        assert_ne!(binary("2"), binary("3"));
        let mode = |mode: &str| read(format!("diff --git a/x b/x\nold mode 100644\nnew mode {mode}\n").as_bytes()).hash;
        assert_ne!(mode("100755"), mode("120000"));
    }
}
