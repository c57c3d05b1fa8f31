//! What a loop leaves in the person's repository: its refs, their removal, and whether its work is
//! anywhere else.

use std::path::Path;

use everloop_core::ids::LoopId;

use super::{ProjectFolder, WorkspaceError, discover, refs};
use crate::git::Git;

/// The refs of a loop in the person's repository.
#[derive(Debug)]
pub struct LoopRefs {
    git: Git,
    pub names: Vec<String>,
}

impl LoopRefs {
    /// Finds the refs of `owner`; `None` when the folder or its repository is gone.
    pub async fn find(dir: &Path, owner: &LoopId) -> Result<Option<Self>, WorkspaceError> {
        if !dir.exists() {
            return Ok(None);
        }
        let ProjectFolder::Git(place) = discover(dir).await? else { return Ok(None) };
        let git = Git::shared(&place.common);
        let listed = git.bytes(&["for-each-ref", "--format=%(refname)", &refs::all(owner)]).await?;
        let names = String::from_utf8_lossy(&listed).lines().map(str::to_owned).collect();
        Ok(Some(Self { git, names }))
    }

    /// Whether a branch or a tag of the person holds `commit`. A commit that is not in the
    /// repository cannot be lost.
    pub async fn is_held(&self, commit: &str) -> Result<bool, WorkspaceError> {
        if self.git.commit(commit).await?.is_none() {
            return Ok(true);
        }
        let words = ["for-each-ref", "--count=1", "--contains", commit, "--format=%(refname)"];
        let theirs = ["refs/heads/", "refs/remotes/", "refs/tags/"];
        Ok(!self.git.bytes(&[&words[..], &theirs].concat()).await?.is_empty())
    }
}

/// Removes all refs of a loop; without them git may drop its commits.
pub(super) async fn delete_refs(git: &Git, owner: &LoopId) -> Result<(), WorkspaceError> {
    let listed = git.bytes(&["for-each-ref", "--format=delete %(refname)", &refs::all(owner)]).await?;
    if !listed.is_empty() {
        git.fed(&["update-ref", "--stdin"], &listed).await?.success()?;
    }
    Ok(())
}

/// Removes all refs of a loop from the repository of the folder `dir`, if that is still there.
pub async fn remove_loop_refs(dir: &Path, owner: &LoopId) -> Result<(), WorkspaceError> {
    match LoopRefs::find(dir, owner).await? {
        Some(found) => delete_refs(&found.git, owner).await,
        None => Ok(()),
    }
}
