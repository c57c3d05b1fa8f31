//! Makes the change of an experiment again on another commit, without touching a checkout.

use super::checkouts::Checkouts;
use super::merge::{Joined, commit_tree, merge_tree};
use super::{Collected, CommitMeta, WorkspaceError, diff, refs};

/// A change on another commit.
#[derive(Clone, Debug)]
pub enum Replayed {
    /// As a commit on top of it; nothing is changed where that commit holds the change already.
    Done(Collected),
    /// The conflicting files.
    Conflict(Vec<String>),
}

impl Checkouts {
    /// Makes the change of `commit` again on `onto`, and keeps it under a ref. The date is that of
    /// the change: repeated after a crash, it gives the same commit.
    pub async fn replay(
        &mut self,
        commit: &str,
        onto: &str,
        commit_meta: &CommitMeta<'_>,
    ) -> Result<Replayed, WorkspaceError> {
        let joined = match merge_tree(self.git(), onto, commit).await? {
            Some(joined) => joined,
            None => self.merge_in_verify(onto, commit).await?,
        };
        let tree = match joined {
            Joined::Conflict(paths) => return Ok(Replayed::Conflict(paths)),
            Joined::Done(tree) => tree,
        };
        let show = ["show", "--no-patch", "--no-show-signature", "--format=%ct%n%B", commit, "--"];
        let said = String::from_utf8_lossy(&self.git().bytes(&show).await?).into_owned();
        let (date, message) = said.split_once('\n').unwrap_or_default();
        let author = self.git_as(commit_meta.author).await?.dated(date.trim().parse().unwrap_or(0));
        let made = commit_tree(&author, &tree, &[onto], message.trim_end()).await?;
        let files = diff::files(self.git(), onto, &made).await?;
        let (diffstat, changes) = (diff::sum(&files), diff::paths(files));
        if changes.is_empty() {
            return Ok(Replayed::Done(Collected::default()));
        }
        let pin = refs::merged(&self.owner, commit_meta.task, &made);
        self.refs.bytes(&["update-ref", &pin, &made]).await?;
        let violations = self.violations(&changes, (onto, &made)).await?;
        let (commit, pin, notes) = (Some(made), Some(pin), Vec::new());
        let base = Some(onto.to_owned());
        Ok(Replayed::Done(Collected { changed: true, commit, pin, diffstat, changes, violations, notes, base }))
    }
}
