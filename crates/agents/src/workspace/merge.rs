//! Joins two lines of history without touching a checkout.

use std::ffi::OsStr;

use everloop_core::landing::Relation;

use super::tree::Worktree;
use super::worktrees::Worktrees;
use super::{CommitMeta, Merged, WorkspaceError, refs};
use crate::git::{self, Git, LONG_DEADLINE};

/// The result of joining two lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// The tree, or the commit, with both.
    Done(String),
    /// The conflicting files.
    Conflict(Vec<String>),
}

impl Worktrees {
    /// What the target would contain if `commit` landed now.
    pub async fn merge_for_target(&self, commit: &str, commit_meta: &CommitMeta<'_>) -> Result<Merged, WorkspaceError> {
        let git = self.git();
        let ready = || Merged::Ready { commit: commit.to_owned() };
        let Some(target) = git.commit(&self.target).await? else { return Ok(ready()) };
        match relation(git, &target, commit).await? {
            Relation::Behind => Ok(ready()),
            Relation::Ahead => Ok(Merged::Contained),
            Relation::Diverged => {
                let message = format!("{}\n\n{}", subject(commit_meta.subject), trailers(commit_meta));
                match self.join(&target, commit, &message).await? {
                    Joined::Done(commit) => {
                        let pin = refs::merged(&self.owner, commit_meta.task, &commit);
                        git.bytes(&["update-ref", &pin, &commit]).await?;
                        Ok(Merged::Joined { commit })
                    }
                    Joined::Conflict(paths) => Ok(Merged::Conflict { paths }),
                }
            }
        }
    }

    /// A merge commit of `target` and `work`, or the conflicting files. The target is the first
    /// parent, so that its own history reads straight. The date is the work's: repeated after a
    /// crash, it gives the same commit.
    pub async fn join(&self, target: &str, work: &str, message: &str) -> Result<Joined, WorkspaceError> {
        let git = self.git();
        let joined = match merge_tree(git, target, work).await? {
            Some(joined) => joined,
            None => merge_in(&self.verify, target, work).await?,
        };
        match joined {
            Joined::Conflict(paths) => Ok(Joined::Conflict(paths)),
            Joined::Done(tree) => {
                let date = git.line(&["show", "--no-patch", "--no-show-signature", "--format=%ct", work, "--"]).await?;
                let dated = git.clone().dated(date.trim().parse().unwrap_or(0));
                Ok(Joined::Done(commit_tree(&dated, &tree, &[target, work], message).await?))
            }
        }
    }
}

/// How `a` relates to `b`.
pub(super) async fn relation(git: &Git, a: &str, b: &str) -> Result<Relation, WorkspaceError> {
    if a == b {
        return Ok(Relation::Behind);
    }
    let counts = git.line(&["rev-list", "--left-right", "--count", &format!("{a}...{b}"), "--"]).await?;
    let mut counts = counts.split_whitespace().map(|n| n != "0");
    match (counts.next().unwrap_or(true), counts.next().unwrap_or(true)) {
        (false, _) => Ok(Relation::Behind),
        (true, false) => Ok(Relation::Ahead),
        (true, true) => Ok(Relation::Diverged),
    }
}

/// Creates a commit object; no ref and no worktree moves.
pub(super) async fn commit_tree(
    git: &Git,
    tree: &str,
    parents: &[&str],
    message: &str,
) -> Result<String, WorkspaceError> {
    let mut args = vec!["commit-tree", tree];
    for parent in parents {
        args.extend(["-p", parent]);
    }
    args.extend(["-m", message]);
    Ok(git.line(&args).await?)
}

/// The trailers that attribute a commit to its task.
pub(super) fn trailers(commit_meta: &CommitMeta<'_>) -> String {
    let plain = |text: &str| text.replace(|c: char| c.is_control(), " ");
    format!("Task-Id: {}\nEverloop-Turn: {}", plain(commit_meta.task.as_str()), plain(commit_meta.turn().as_str()))
}

/// The first line of a message: one line, of limited length, never empty.
pub(super) fn subject(text: &str) -> String {
    const SUBJECT_CHARS: usize = 100;
    let plain = text.replace(|c: char| c.is_control(), " ");
    let line: String = plain.trim().chars().take(SUBJECT_CHARS).collect();
    if line.is_empty() { "everloop: a turn's work".to_owned() } else { line }
}

/// Joins in memory; `None` when this git (before 2.38) cannot.
pub(super) async fn merge_tree(git: &Git, target: &str, work: &str) -> Result<Option<Joined>, WorkspaceError> {
    const USAGE: i32 = 129;
    let options = ["--write-tree", "-z", "--name-only", "--no-messages", "--allow-unrelated-histories"];
    let args: Vec<&str> = ["merge-tree"].into_iter().chain(options).chain([target, work]).collect();
    let output = git.clone().within(LONG_DEADLINE).run(&args).await?;
    let mut parts: Vec<_> = git::records(&output.stdout).map(|p| String::from_utf8_lossy(p).into_owned()).collect();
    match output.code {
        0 if !parts.is_empty() => Ok(Some(Joined::Done(parts.swap_remove(0)))),
        1 => Ok(Some(Joined::Conflict(parts.split_off(1.min(parts.len()))))),
        USAGE => Ok(None),
        _ => Err(output.failure().into()),
    }
}

/// Joins in the checks' worktree, which is cleared before its next use anyway.
async fn merge_in(tree: &Worktree, target: &str, work: &str) -> Result<Joined, WorkspaceError> {
    tree.bring_to(target).await?;
    let git = tree.git()?.within(LONG_DEADLINE);
    let args = ["merge", "--quiet", "--no-commit", "--no-ff", "--no-stat", "--allow-unrelated-histories", work];
    let output = git.run(&args).await?;
    if output.code == 0 {
        return Ok(Joined::Done(git.line(&["write-tree"]).await?));
    }
    let unmerged =
        git.bytes(&["diff", "--no-ext-diff", "--name-only", "--diff-filter=U", "-z"].map(OsStr::new)).await?;
    let paths: Vec<_> = git::records(&unmerged).map(|p| String::from_utf8_lossy(p).into_owned()).collect();
    if paths.is_empty() { Err(output.failure().into()) } else { Ok(Joined::Conflict(paths)) }
}

#[cfg(test)]
mod tests {
    use super::super::locks::Shared;
    use super::*;

    /// A commit on `parent` with one file.
    async fn commit(git: &Git, dir: &std::path::Path, parent: &[&str], lines: [&str; 3]) -> String {
        std::fs::write(dir.join("text"), lines.join("\n\n\n\n")).unwrap();
        let blob = git.line(&["hash-object", "-w", "text"]).await.unwrap();
        git.bytes(&["update-index", "--add", "--cacheinfo", &format!("100644,{blob},a")]).await.unwrap();
        let tree = git.line(&["write-tree"]).await.unwrap();
        commit_tree(git, &tree, parent, "a commit").await.unwrap()
    }

    #[tokio::test]
    async fn an_old_git_merges_to_the_same_result() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let git = Git::operators(&dir);
        git.bytes(&["init", "-q"]).await.unwrap();
        let base = commit(&git, &dir, &[], ["one", "two", "three"]).await;
        let ours = commit(&git, &dir, &[&base], ["ONE", "two", "three"]).await;
        let theirs = commit(&git, &dir, &[&base], ["one", "two", "THREE"]).await;
        let against = commit(&git, &dir, &[&base], ["uno", "two", "three"]).await;
        let tree = Worktree::new(dir.join("verify"), &dir.join(".git"), Shared::new(dir.join("lock")));
        for work in [&theirs, &against, &theirs] {
            let new = merge_tree(&git, &ours, work).await.unwrap();
            let old = merge_in(&tree, &ours, work).await.unwrap();
            assert!(new.is_none_or(|new| new == old), "{old:?}");
            assert_eq!(matches!(old, Joined::Conflict(ref paths) if paths == &["a"]), work == &against);
        }
    }
}
