//! The uncommitted state of the person's checkout as a commit, made through a private index: files,
//! index and stash are only read.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

use super::checkouts::empty_commit;
use super::merge::commit_tree;
use super::project_folder::Repository;
use super::tree::{Detail, status};
use super::{WorkspaceError, files};
use crate::git::{Git, LONG_DEADLINE};

/// A commit on `parent` with everything that `git add -A` would take; `parent` itself when that is
/// nothing.
pub(super) async fn take(place: &Repository, root: &Path, parent: Option<&str>) -> Result<String, WorkspaceError> {
    let git = Git::operators(&place.root).within(LONG_DEADLINE);
    let index = root.join("snapshot.index");
    let theirs = git.path(&["rev-parse", "--path-format=absolute", "--git-path", "index"]).await?;
    files::remove(&index).map_err(WorkspaceError::files("remove", &index))?;
    if theirs.exists() {
        // A copy knows which files are unchanged, which saves reading all of them.
        fs::copy(&theirs, &index).map_err(WorkspaceError::files("copy", &theirs))?;
    }
    let private = git.clone().with("GIT_INDEX_FILE", &index);
    // Nested repositories are not part of it; git would refuse them or take them as links.
    let mut add: Vec<OsString> = ["add", "-A", "--", "."].map(OsString::from).into();
    for nested in status(&private, Detail::Files).await?.nested {
        let mut exclude = OsString::from(":(exclude,top,literal)");
        exclude.push(OsStr::new(&nested));
        add.push(exclude);
    }
    private.bytes(&add).await?;
    let tree = private.line(&["write-tree"]).await?;
    files::remove(&index).map_err(WorkspaceError::files("remove", &index))?;
    match parent {
        None if tree == git.line(&["mktree"]).await? => empty_commit(&git).await,
        Some(parent) if tree == git.line(&["rev-parse", &format!("{parent}^{{tree}}")]).await? => Ok(parent.to_owned()),
        _ => {
            let parents: Vec<&str> = parent.into_iter().collect();
            commit_tree(&git, &tree, &parents, "everloop: uncommitted state of the checkout").await
        }
    }
}
