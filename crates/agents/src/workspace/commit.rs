//! Makes the tree and the commit of a turn's work, and pins it: without git where files are stored as
//! they are, else by git.

use everloop_core::planted::{self, Bug};
use everloop_core::spec::CommitAuthor;

use super::checkouts::Checkouts;
use super::gather::Gathered;
use super::merge::commit_tree;
use super::objects::Objects;
use super::stage::Staging;
use super::{CommitMeta, Side, WorkspaceError, commit_object, files, refs, sweep};
use crate::git::Git;

impl Checkouts {
    /// Pins the commit; returns the one of an earlier call if that has the same tree and parents.
    pub(super) async fn keep(
        &self,
        commit_meta: &CommitMeta<'_>,
        commit: &str,
        shape: &str,
    ) -> Result<(String, String), WorkspaceError> {
        let pin = refs::pin(&self.owner, commit_meta.task, commit_meta.fence);
        let set = async |name: &str, commit: &str| self.refs.bytes(&["update-ref", name, commit]).await;
        if refs::loose(&self.place.common, &pin).is_none() {
            let nothing = "0".repeat(commit.len());
            if self.sessions.refs.move_ref(&pin, commit, Some(&nothing)).await.is_some()
                || self.refs.run(&["update-ref", &pin, commit, ""]).await?.code == 0
            {
                return Ok((commit.to_owned(), pin));
            }
        }
        if let Some(old) = self.refs.commit(&pin).await? {
            // The ref is only believed if it is what would be made again.
            if planted::is(Bug::BelievesItsFiles) || shape_of(self.git(), &old).await? == shape {
                return Ok((old, pin));
            }
            // The folder changed after the first call, or the ref is not ours; both are kept.
            set(&format!("{pin}-{}", &old[..old.len().min(12)]), &old).await?;
        }
        set(&pin, commit).await?;
        Ok((commit.to_owned(), pin))
    }

    /// What was gathered as a tree object.
    pub(super) async fn stage(
        &self,
        git: &Git,
        gathered: Gathered,
        id_bytes: usize,
    ) -> Result<(String, Gathered), WorkspaceError> {
        if !self.own.rules.stores_plainly() {
            return Ok((stage_by_git(git, &gathered).await?, gathered));
        }
        let (tree, index) = (self.turn.path.clone(), self.own.index(Side::Turn));
        let (before, objects) = (self.own.index_before(), Objects::new(&self.place.common, id_bytes));
        let staging = Staging { tree, index, before, objects, id_bytes };
        let (staged, gathered) = files::apart(move || Ok((staging.run(&gathered), gathered))).await?;
        match staged {
            Ok(Some(tree)) => Ok((tree, gathered)),
            // Whatever is wrong, git says it in better words.
            Ok(None) | Err(_) => Ok((stage_by_git(git, &gathered).await?, gathered)),
        }
    }

    /// The commit of a tree.
    pub(super) async fn commit(
        &self,
        author: &CommitAuthor,
        tree: &str,
        parents: &[&str],
        message: &str,
    ) -> Result<String, WorkspaceError> {
        let objects = Objects::new(&self.place.common, sweep::id_bytes(tree));
        if let Some(text) = commit_object::text(author, tree, parents, message)
            && let Ok(commit) = objects.put("commit", text.as_bytes())
        {
            return Ok(commit);
        }
        commit_tree(&self.git_as(author).await?, tree, parents, message).await
    }

    /// git for a commit of this author.
    pub(super) async fn git_as(&self, author: &CommitAuthor) -> Result<Git, WorkspaceError> {
        let git = self.git().clone();
        let identity = match author {
            CommitAuthor::Everloop => None,
            CommitAuthor::Named { name, email } => Some((name.clone(), email.clone())),
            CommitAuthor::Person => {
                let read = async |key: &str| self.refs.run(&["config", "--get", key]).await;
                let (name, email) = (read("user.name").await?, read("user.email").await?);
                let text = |out: &[u8]| String::from_utf8_lossy(out).trim().to_owned();
                let known = (text(&name.stdout), text(&email.stdout));
                Some(known).filter(|(name, email)| !name.is_empty() && !email.is_empty())
            }
        };
        Ok(match identity {
            Some((name, email)) => git.with("GIT_AUTHOR_NAME", name).with("GIT_AUTHOR_EMAIL", email),
            None => git,
        })
    }
}

/// Tree and parents of a commit.
async fn shape_of(git: &Git, commit: &str) -> Result<String, WorkspaceError> {
    let format = ["show", "--no-patch", "--no-show-signature", "--format=%T %P", commit, "--"];
    Ok(git.line(&format).await?.trim().to_owned())
}

/// The same by git.
async fn stage_by_git(git: &Git, gathered: &Gathered) -> Result<String, WorkspaceError> {
    if !gathered.gone.is_empty() {
        let args = ["update-index", "-z", "--force-remove", "--stdin"];
        git.fed(&args, &gathered.gone).await?.success()?;
    }
    if !gathered.there.is_empty() {
        let args = ["update-index", "-z", "--add", "--replace", "--stdin"];
        git.fed(&args, &gathered.there).await?.success()?;
    }
    Ok(git.line(&["write-tree"]).await?)
}
