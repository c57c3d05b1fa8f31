//! Joins two lines of history without touching a checkout.

use std::ffi::OsStr;

use everloop_core::commit_message::subject;
use everloop_core::landing::Relation;
use everloop_core::planted::{self, Bug};

use super::checkouts::Checkouts;
use super::{CommitMeta, Merged, Prospect, Side, WorkspaceError, diff, refs};
use crate::git::{self, Git, LONG_DEADLINE};

/// The result of joining two lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// The tree, or the commit, with both.
    Done(String),
    /// The conflicting files.
    Conflict(Vec<String>),
}

impl Checkouts {
    /// What the target would contain if `commit` landed now, with the commit of the target and the
    /// protected files that differ between the two.
    pub async fn prospect(&mut self, commit: &str, commit_meta: &CommitMeta<'_>) -> Result<Prospect, WorkspaceError> {
        let ready = || Merged::Ready { commit: commit.to_owned() };
        let Some(target) = self.target_now().await? else {
            return Ok(Prospect { merged: ready(), target: None, violations: Vec::new() });
        };
        let relation = if self.continues(&target, commit) {
            Relation::Behind
        } else {
            relation(self.git(), &target, commit).await?
        };
        let merged = match relation {
            Relation::Behind => ready(),
            Relation::Ahead => Merged::Contained,
            Relation::Diverged => {
                let message = format!("{}\n\n{}", subject(&commit_meta.done), trailers(commit_meta));
                match self.join(&target, commit, &message).await? {
                    Joined::Done(commit) => {
                        let pin = refs::merged(&self.owner, commit_meta.task, &commit);
                        self.refs.bytes(&["update-ref", &pin, &commit]).await?;
                        Merged::Joined { commit }
                    }
                    Joined::Conflict(paths) => Merged::Conflict { paths },
                }
            }
        };
        let violations = match &merged {
            Merged::Ready { commit } | Merged::Joined { commit } => self.inspect(&target, commit).await?,
            Merged::Contained | Merged::Conflict { .. } => Vec::new(),
        };
        Ok(Prospect { merged, target: Some(target), violations })
    }

    /// Protected files in the whole difference between the target and what would be there.
    pub(super) async fn inspect(&mut self, target: &str, commit: &str) -> Result<Vec<String>, WorkspaceError> {
        if planted::is(Bug::LandsUninspected) {
            return Ok(Vec::new());
        }
        // What a turn made without violations adds none to a line that has none.
        let seen = |commit: &str| {
            commit == target || self.inspected.as_ref().is_some_and(|(from, to)| from == target && to == commit)
        };
        let known = seen(commit) || self.made.as_ref().is_some_and(|(made, parent)| made == commit && seen(parent));
        let pair = Some((target.to_owned(), commit.to_owned()));
        if known {
            self.inspected = pair;
            return Ok(Vec::new());
        }
        let changes = diff::paths(diff::files(self.git(), target, commit).await?);
        let violations = self.violations(&changes, (target, commit)).await?;
        if violations.is_empty() {
            self.inspected = pair;
        }
        Ok(violations)
    }

    /// A merge commit of `target` and `work`, or the conflicting files. The target is the first
    /// parent, so that its own history reads straight. The date is the work's: repeated after a
    /// crash, it gives the same commit.
    pub async fn join(&mut self, target: &str, work: &str, message: &str) -> Result<Joined, WorkspaceError> {
        let joined = match merge_tree(self.git(), target, work).await? {
            Some(joined) => joined,
            None => self.merge_in_verify(target, work).await?,
        };
        match joined {
            Joined::Conflict(paths) => Ok(Joined::Conflict(paths)),
            Joined::Done(tree) => {
                let git = self.git();
                let date = git.line(&["show", "--no-patch", "--no-show-signature", "--format=%ct", work, "--"]).await?;
                let dated = git.clone().dated(date.trim().parse().unwrap_or(0));
                Ok(Joined::Done(commit_tree(&dated, &tree, &[target, work], message).await?))
            }
        }
    }

    /// Joins in the checks' checkout, which is made right before its next use anyway.
    pub(super) async fn merge_in_verify(&mut self, target: &str, work: &str) -> Result<Joined, WorkspaceError> {
        self.check_out_verify(Some(target)).await?;
        self.spoil_verify();
        self.own.set_head(target)?;
        let git = self.own.over(self.verify.path(), Side::Verify).await?;
        let joined = merge_in(&git, work).await;
        self.own.forget_merge()?;
        joined
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

/// The trailer where a person is the author.
const CO_AUTHOR: &str = "\nCo-authored-by: everloop <everloop@localhost>";

/// The trailers that attribute a commit to its task.
pub(super) fn trailers(commit_meta: &CommitMeta<'_>) -> String {
    let plain = |text: &str| text.replace(|c: char| c.is_control(), " ");
    let (task, turn) = (plain(commit_meta.task.as_str()), plain(commit_meta.turn().as_str()));
    let beside = if commit_meta.author.is_everloop() { "" } else { CO_AUTHOR };
    format!("Task-Id: {task}\nEverloop-Turn: {turn}{beside}")
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

/// Joins where `git` runs, on top of what is checked out there.
async fn merge_in(git: &Git, work: &str) -> Result<Joined, WorkspaceError> {
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
    use super::super::{Workspace, WorkspaceOptions};
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
        git.bytes(&["update-ref", "refs/heads/main", &base]).await.unwrap();
        let spec = everloop_core::spec::WorkspaceSpec {
            dir: dir.display().to_string(),
            mode: everloop_core::spec::WorkspaceMode::Git { target: "refs/heads/main".to_owned() },
            integrate: everloop_core::spec::Integrate::Progress,
            setup: None,
            include_dirty: false,
            protect: Vec::new(),
            judge: everloop_core::judge_files::JudgeFiles::default(),
            cache: Vec::new(),
            author: everloop_core::spec::CommitAuthor::Everloop,
            origin: None,
        };
        let options =
            WorkspaceOptions { owner: everloop_core::ids::LoopId::new("k3f9"), root: dir.join("state"), spec };
        let mut workspace = Workspace::open(options).await.unwrap();
        let checkouts = workspace.checkouts().unwrap();
        for work in [&theirs, &against, &theirs] {
            let new = merge_tree(&git, &ours, work).await.unwrap();
            let old = checkouts.merge_in_verify(&ours, work).await.unwrap();
            assert!(new.is_none_or(|new| new == old), "{old:?}");
            assert_eq!(matches!(old, Joined::Conflict(ref paths) if paths == &["a"]), work == &against);
        }
    }
}
