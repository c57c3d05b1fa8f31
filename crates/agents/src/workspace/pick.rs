//! Makes commits from chosen changes of a line: all of them as one, or some of them one after the
//! other. Only objects are made; no ref, index or folder of the person moves.

use std::path::Path;

use super::merge::commit_tree;
use super::{ProjectFolder, WorkspaceError, discover};
use crate::git::{self, Git, LONG_DEADLINE};

/// A change of a line.
#[derive(Clone, Debug)]
pub struct Pick {
    /// The commit that it began from.
    pub base: String,
    /// The commit that holds it.
    pub commit: String,
}

/// Why changes do not apply one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PickRefusal {
    /// This one, counted from 0, conflicts with those before it in these files.
    Conflict { at: usize, paths: Vec<String> },
    /// git before 2.40 cannot join without a checkout from a base of choice.
    OldGit,
}

/// One commit on `base` with the files of `commit`.
pub async fn squash(dir: &Path, base: &str, commit: &str, message: &str) -> Result<String, WorkspaceError> {
    let git = objects(dir).await?;
    let tree = git.line(&["rev-parse", &format!("{commit}^{{tree}}")]).await?;
    commit_tree(&git, &tree, &[base], message).await
}

/// These changes on `base`, one commit for each, with the message of its own commit.
pub async fn pick(dir: &Path, base: &str, picks: &[Pick]) -> Result<Result<String, PickRefusal>, WorkspaceError> {
    const USAGE: i32 = 129;
    let git = objects(dir).await?;
    let mut tip = base.to_owned();
    for (at, pick) in picks.iter().enumerate() {
        let from = format!("--merge-base={}", pick.base);
        let args = ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", &from, &tip, &pick.commit];
        let output = git.clone().within(LONG_DEADLINE).run(&args).await?;
        let mut parts: Vec<_> = git::records(&output.stdout).map(|p| String::from_utf8_lossy(p).into_owned()).collect();
        let tree = match output.code {
            0 if !parts.is_empty() => parts.swap_remove(0),
            1 => return Ok(Err(PickRefusal::Conflict { at, paths: parts.split_off(1.min(parts.len())) })),
            USAGE => return Ok(Err(PickRefusal::OldGit)),
            _ => return Err(output.failure().into()),
        };
        let message = git.bytes(&["log", "-1", "--format=%B", &pick.commit, "--"]).await?;
        tip = commit_tree(&git, &tree, &[&tip], String::from_utf8_lossy(&message).trim_end()).await?;
    }
    Ok(Ok(tip))
}

/// Whether the branch has exactly the files of this commit.
pub async fn has_files_of(dir: &Path, branch: &str, commit: &str) -> Result<bool, WorkspaceError> {
    let git = objects(dir).await?;
    if git.commit(branch).await?.is_none() {
        return Ok(false);
    }
    Ok(git.asks(&["diff-tree", "--quiet", branch, commit, "--"]).await?)
}

/// Writes the files of a commit into an empty folder. `index` is a file that does not exist yet.
pub async fn export(dir: &Path, commit: &str, to: &Path, index: &Path) -> Result<(), WorkspaceError> {
    let git = objects(dir).await?.over(to, index).within(LONG_DEADLINE);
    git.bytes(&["read-tree", commit]).await?;
    git.bytes(&["checkout-index", "--all", "--force"]).await?;
    Ok(())
}

async fn objects(dir: &Path) -> Result<Git, WorkspaceError> {
    match discover(dir).await? {
        ProjectFolder::Git(place) => Ok(Git::shared(&place.common)),
        ProjectFolder::Folder(dir) => Err(WorkspaceError::NotGit { dir }),
    }
}
