//! The pair of private worktrees of a loop and the refs around them: opening, setup markers,
//! verifying, removing. What a turn does in them is in `turn`, how work gets out of them in `merge`
//! and `land`.

use std::fs;
use std::path::{Path, PathBuf};

use everloop_core::ids::LoopId;
use sha2::{Digest, Sha256};

use super::locks::Shared;
use super::project_folder::Repository;
use super::tree::{Brought, Worktree};
use super::{Base, Side, WorkspaceError, WorkspaceOptions, files, refs, snapshot};
use crate::git::Git;
use crate::protect::Globs;

/// Worktrees and refs of a loop.
#[derive(Debug)]
pub(super) struct Worktrees {
    pub owner: LoopId,
    /// The loop's own folder.
    pub root: PathBuf,
    /// Full name of the ref that finished work moves.
    pub target: String,
    /// Where the loop began.
    pub start: String,
    /// The commit without files from which a repository without commits starts; no work has it as
    /// its parent.
    pub empty: Option<String>,
    /// Turns continue from `start` even when the target is elsewhere: it holds uncommitted changes
    /// of the person.
    pub include_dirty: bool,
    pub globs: Globs,
    pub place: Repository,
    pub turn: Worktree,
    pub verify: Worktree,
    /// The last choice of a base and its inputs, which saves git calls when nothing moved.
    pub chosen: Option<BaseChoice>,
}

/// A base and the inputs of its choice.
#[derive(Clone, Debug)]
pub(super) struct BaseChoice {
    pub target: Option<String>,
    pub line: Option<String>,
    pub base: Base,
}

impl Worktrees {
    /// Opens them; creates missing refs, no worktrees yet.
    pub async fn open(
        options: WorkspaceOptions,
        place: Repository,
        target: String,
        globs: Globs,
    ) -> Result<Self, WorkspaceError> {
        let mut options = options;
        options.root = options.root.canonicalize().map_err(WorkspaceError::files("find", &options.root))?;
        let root = options.root.clone();
        // Beside the folders of all loops, so that no two of them create worktrees at once.
        let shared = Shared::new(root.parent().unwrap_or(&root).join("worktrees.lock"));
        let turn = Worktree::new(root.join("turn"), &place.common, shared.clone());
        let verify = Worktree::new(root.join("verify"), &place.common, shared);
        let git = Git::shared(&place.common);
        if target.starts_with("refs/everloop/") && git.commit(&target).await?.is_none() {
            // No branch was checked out: the loop's own line begins at the current commit.
            let head = place.head.commit().ok_or_else(|| WorkspaceError::NotGit { dir: place.root.clone() })?;
            git.bytes(&["update-ref", &target, head, ""]).await?;
        }
        let start = match git.commit(&refs::start(&options.owner)).await? {
            Some(start) => start,
            None => first_start(&git, &options, &place, &target).await?,
        };
        let empty = match git.commit(&target).await? {
            Some(_) => None,
            None => Some(empty_commit(&git).await?),
        };
        let include_dirty = options.spec.include_dirty;
        Ok(Self {
            owner: options.owner,
            root,
            target,
            start,
            empty,
            include_dirty,
            globs: globs.below(&place.below),
            place,
            turn,
            verify,
            chosen: None,
        })
    }

    /// git for calls that concern no worktree.
    pub fn git(&self) -> &Git {
        self.turn.shared_git()
    }

    /// The folder in a worktree that corresponds to the person's folder.
    pub fn dir(&self, side: Side) -> PathBuf {
        self.tree(side).path().join(&self.place.below)
    }

    fn tree(&self, side: Side) -> &Worktree {
        match side {
            Side::Turn => &self.turn,
            Side::Verify => &self.verify,
        }
    }

    /// Brings a worktree to a commit; a new one needs its setup again.
    pub async fn bring(&self, side: Side, commit: &str) -> Result<(), WorkspaceError> {
        if self.tree(side).bring_to(commit).await? == Brought::Made {
            let marker = self.marker(side);
            files::remove(&marker).map_err(WorkspaceError::files("remove", &marker))?;
        }
        // The folder may contain no tracked file.
        let dir = self.dir(side);
        fs::create_dir_all(&dir).map_err(WorkspaceError::files("make", &dir))
    }

    /// Where a loop without work starts.
    pub async fn first_base(&self) -> Result<String, WorkspaceError> {
        match self.git().commit(&self.target).await? {
            Some(target) if !self.include_dirty => Ok(target),
            _ => Ok(self.start.clone()),
        }
    }

    /// Checks out `commit` in the checks' worktree.
    pub async fn check_out_verify(&mut self, commit: Option<&str>) -> Result<PathBuf, WorkspaceError> {
        let commit = match commit {
            Some(commit) => commit.to_owned(),
            None => self.first_base().await?,
        };
        self.bring(Side::Verify, &commit).await?;
        Ok(self.dir(Side::Verify))
    }

    /// Moves the work line.
    pub async fn set_work(&self, commit: &str) -> Result<(), WorkspaceError> {
        let name = refs::work(&self.owner);
        if refs::loose(&self.place.common, &name).as_deref() != Some(commit) {
            self.git().bytes(&["update-ref", &name, commit]).await?;
        }
        Ok(())
    }

    /// Whether the setup command has not yet run in this worktree.
    pub fn needs_setup(&self, side: Side, command: &str) -> bool {
        !setup_recorded(&self.marker(side), command)
    }

    /// Records that the setup command ran.
    pub fn set_up(&self, side: Side, command: &str) -> Result<(), WorkspaceError> {
        record_setup(&self.marker(side), command)
    }

    fn marker(&self, side: Side) -> PathBuf {
        self.root.join(match side {
            Side::Turn => "turn.setup",
            Side::Verify => "verify.setup",
        })
    }

    /// Removes both worktrees.
    pub async fn remove(&mut self) -> Result<(), WorkspaceError> {
        self.chosen = None;
        self.turn.remove().await?;
        self.verify.remove().await
    }
}

/// Whether `marker` records a run of `command`.
pub(super) fn setup_recorded(marker: &Path, command: &str) -> bool {
    fs::read_to_string(marker).is_ok_and(|text| text == hash(command))
}

/// Records in `marker` that `command` ran.
pub(super) fn record_setup(marker: &Path, command: &str) -> Result<(), WorkspaceError> {
    files::write_whole(marker, hash(command).as_bytes()).map_err(WorkspaceError::files("write", marker))
}

fn hash(command: &str) -> String {
    crate::protect::hex(&Sha256::digest(command.as_bytes()))
}

/// Decides where a new loop begins and pins it: the uncommitted state, the target, or an empty
/// commit.
async fn first_start(
    git: &Git,
    options: &WorkspaceOptions,
    place: &Repository,
    target: &str,
) -> Result<String, WorkspaceError> {
    let target = git.commit(target).await?;
    let start = if options.spec.include_dirty {
        snapshot::take(place, &options.root, target.as_deref()).await?
    } else {
        match target {
            Some(target) => target,
            None => empty_commit(git).await?,
        }
    };
    git.bytes(&["update-ref", &refs::start(&options.owner), &start]).await?;
    Ok(start)
}

/// A commit without files, for a repository without commits. Its date is fixed, so it is the same
/// one every time.
pub(super) async fn empty_commit(git: &Git) -> Result<String, WorkspaceError> {
    let tree = git.line(&["mktree"]).await?;
    Ok(git.clone().dated(0).line(&["commit-tree", &tree, "-m", "everloop: an empty start"]).await?)
}
