//! The place of a loop: a git repository with a branch, or a plain folder. Reads only.

use std::path::{Path, PathBuf};

use everloop_core::ids::LoopId;
use everloop_core::spec::WorkspaceMode;

use super::{WorkspaceError, refs};
use crate::git::{self, Git};

/// The kind of the person's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectFolder {
    /// Inside the work tree of a git repository.
    Git(Repository),
    /// No git here; turns work in the folder itself.
    Folder(PathBuf),
}

/// A git repository, seen from the person's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// Root of the work tree that contains the folder.
    pub root: PathBuf,
    /// The git folder that all work trees share.
    pub common: PathBuf,
    /// The folder below `root`; empty when it is the root.
    pub below: PathBuf,
    pub head: HeadState,
}

/// What is checked out in a work tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadState {
    /// A branch, as a full ref name; without a commit as long as it is unborn.
    Branch {
        /// For example `refs/heads/main`.
        name: String,
        commit: Option<String>,
    },
    /// A commit without a branch.
    Detached { commit: String },
}

impl HeadState {
    /// The commit, if there is one.
    pub fn commit(&self) -> Option<&str> {
        match self {
            HeadState::Branch { commit, .. } => commit.as_deref(),
            HeadState::Detached { commit } => Some(commit),
        }
    }
}

impl ProjectFolder {
    /// The default mode of a loop here. Without a branch to move, finished work is kept under a ref
    /// of the loop; the caller should report that.
    pub fn mode(&self, owner: &LoopId) -> WorkspaceMode {
        match self {
            ProjectFolder::Folder(_) => WorkspaceMode::InPlace,
            ProjectFolder::Git(Repository { head: HeadState::Branch { name, .. }, .. }) => {
                WorkspaceMode::Git { target: name.clone() }
            }
            ProjectFolder::Git(Repository { head: HeadState::Detached { .. }, .. }) => {
                WorkspaceMode::Git { target: refs::result(owner) }
            }
        }
    }
}

/// Determines the place that `dir` is in.
pub async fn discover(dir: &Path) -> Result<ProjectFolder, WorkspaceError> {
    let dir = dir.canonicalize().map_err(WorkspaceError::files("find the folder", dir))?;
    let git = Git::operators(&dir);
    let asked = match git.run(&["rev-parse", "--is-bare-repository", "--is-inside-work-tree"]).await {
        Ok(asked) => asked,
        // Without git on this machine a folder outside of a repository still works.
        Err(git::GitError::Start { .. }) if !dir.ancestors().any(|d| d.join(".git").exists()) => {
            return Ok(ProjectFolder::Folder(dir));
        }
        Err(error) => return Err(error.into()),
    };
    if asked.code != 0 {
        // Only this message means that there is no repository; others (a foreign owner, a broken
        // config) are errors.
        return if asked.stderr.contains("not a git repository (or any") {
            Ok(ProjectFolder::Folder(dir))
        } else {
            Err(asked.failure().into())
        };
    }
    match String::from_utf8_lossy(&asked.stdout).lines().collect::<Vec<_>>()[..] {
        [_, "true"] => {}
        ["true", _] => return Err(WorkspaceError::Bare { dir }),
        _ => return Err(WorkspaceError::InsideGitFolder { dir }),
    }
    let (root, common) = folders(&git).await?;
    let below = dir.strip_prefix(&root).map_err(|_| WorkspaceError::InsideGitFolder { dir: dir.clone() })?.to_owned();
    Ok(ProjectFolder::Git(Repository { head: head(&git).await?, root, common, below }))
}

/// The root of the work tree, and the git folder that all work trees share.
async fn folders(git: &Git) -> Result<(PathBuf, PathBuf), WorkspaceError> {
    let (root, common) = ("--show-toplevel", "--git-common-dir");
    let both = git.bytes(&["rev-parse", "--path-format=absolute", root, common]).await?;
    let lines: Vec<&[u8]> = both.split(|byte| *byte == b'\n').collect();
    // Behind the last line is nothing. With more of them, one of the paths contains a line break.
    if let [root, common, b""] = lines[..] {
        return Ok((git::path_from(root), git::path_from(common)));
    }
    let one = async |what: &str| git.path(&["rev-parse", "--path-format=absolute", what]).await;
    Ok((one(root).await?, one(common).await?))
}

/// What is checked out where `git` runs.
pub(super) async fn head(git: &Git) -> Result<HeadState, WorkspaceError> {
    let (symbolic, commit) = tokio::join!(git.run(&["symbolic-ref", "--quiet", "HEAD"]), git.commit("HEAD"));
    let (symbolic, commit) = (symbolic?, commit?);
    match (symbolic.code, commit) {
        (0, commit) => {
            Ok(HeadState::Branch { name: String::from_utf8_lossy(&symbolic.stdout).trim().to_owned(), commit })
        }
        (1, Some(commit)) => Ok(HeadState::Detached { commit }),
        _ => Err(symbolic.failure().into()),
    }
}
