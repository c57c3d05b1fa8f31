//! Where turns work and how their work lands. Lists the parts and gives them one interface.
//!
//! With git, a loop has two private worktrees: the agent works in `turn`, the checks run in
//! `verify`, and no agent receives the path of `verify`. What an agent plants outside of git
//! (ignored files, configuration) is therefore not there during the checks. Work is only ever kept
//! under `refs/everloop/<loop>/`; the person's branch moves in one place, [`land`], forward only,
//! and only when no file of the person is in the way.
//!
//! - [`project_folder`]: the kind of the person's folder; [`refs`]: names of everloop's refs
//! - [`worktrees`]: the pair of worktrees; [`tree`]: one of them; [`fingerprint`]: whether it was
//!   touched; [`locks`]: stale and shared locks
//! - [`turn`]: where a turn starts and what it made; [`snapshot`]: uncommitted changes of the
//!   person
//! - [`diff`]: what differs between two commits, and what a loop's work changes
//! - [`merge`]: joining two lines; [`land`]: onto the target, once
//! - [`remote`]: a repository that many nodes share
//! - [`in_place`]: without git; [`files`]: small operations on files

mod diff;
mod files;
mod fingerprint;
mod in_place;
mod land;
mod locks;
mod merge;
mod project_folder;
mod refs;
mod remote;
mod snapshot;
mod tree;
mod turn;
mod worktrees;

use std::io;
use std::path::{Path, PathBuf};

use everloop_core::action::Integration;
use everloop_core::event::Integrated;
use everloop_core::ids::{Fence, LoopId, TaskId, TurnId};
use everloop_core::spec::{WorkspaceMode, WorkspaceSpec};
use serde::{Deserialize, Serialize};

pub use diff::{FileDiff, WorkDiff};
pub use in_place::fingerprint;
pub use project_folder::{HeadState, ProjectFolder, Repository, discover};
pub use refs::result as result_ref;
pub use remote::{Joining, Pushed, Remote, address_of, remote_branch};

use crate::git;
use crate::protect::{self, Globs};
use in_place::InPlace;
use worktrees::Worktrees;

/// Failures of a workspace.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// A git call failed.
    #[error(transparent)]
    Git(#[from] git::GitError),
    /// A file could not be read or written.
    #[error("could not {what} `{}`", .path.display())]
    Files { what: &'static str, path: PathBuf, source: io::Error },
    /// A repository without files.
    #[error("`{}` is a bare repository; give the folder of a worktree", .dir.display())]
    Bare { dir: PathBuf },
    /// The inside of a git folder.
    #[error("`{}` is inside a git folder, not in the files it keeps", .dir.display())]
    InsideGitFolder { dir: PathBuf },
    /// A git workspace was requested where there is no git repository.
    #[error("`{}` is not in a git repository", .dir.display())]
    NotGit { dir: PathBuf },
    /// A private worktree was damaged.
    #[error("the workspace `{}` is broken: {why}", .path.display())]
    Broken { path: PathBuf, why: String },
    /// A lock is held by a living process.
    #[error("`{}` is locked by another process", .path.display())]
    Locked { path: PathBuf },
    /// Results were requested of a turn that never began here.
    #[error("no workspace was prepared for turn `{turn}`")]
    Unprepared { turn: TurnId },
    /// An invalid glob in the configuration.
    #[error(transparent)]
    Glob(#[from] protect::GlobError),
    /// In place, the protected files are too big to copy.
    #[error("the protected files in `{}` are more than {limit_mb} MB; use git or protect less", .dir.display())]
    TooMuchToProtect { dir: PathBuf, limit_mb: u64 },
}

impl WorkspaceError {
    /// For `map_err`: `what` was tried on `path`.
    fn files(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WorkspaceError {
        let path = path.to_owned();
        move |source| WorkspaceError::Files { what, path, source }
    }
}

/// The configuration of a workspace.
#[derive(Clone, Debug)]
pub struct WorkspaceOptions {
    /// The loop that owns it.
    pub owner: LoopId,
    /// A folder for this loop alone, outside of the repository (`work` in the state folder);
    /// created if missing.
    pub root: PathBuf,
    pub spec: WorkspaceSpec,
}

/// Where a turn starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// The commit; `None` without git.
    pub commit: Option<String>,
    /// The target had moved and was merged into the work.
    pub merged: bool,
    /// The target had moved and could not be merged: the turn starts from the target, the work
    /// stays under its ref.
    pub dropped: Option<Dropped>,
}

/// Work that conflicts with the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    pub commit: String,
    /// The conflicting files.
    pub paths: Vec<String>,
}

/// Metadata for the commit of a turn's work.
#[derive(Clone, Debug)]
pub struct CommitMeta<'a> {
    /// The task, for the trailer.
    pub task: &'a TaskId,
    /// The fence of the lease on the task.
    pub fence: Fence,
    /// First line of the commit message; data, reduced to one line.
    pub subject: &'a str,
}

impl CommitMeta<'_> {
    /// The turn that did the work.
    pub fn turn(&self) -> TurnId {
        TurnId::of(self.task, self.fence)
    }
}

/// The result of a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// The tree differs from the start of the turn.
    pub changed: bool,
    /// The commit that holds the work; `None` without git or change.
    pub commit: Option<String>,
    /// The ref that keeps it for ever.
    pub pin: Option<String>,
    /// Files, insertions and deletions as text.
    pub diffstat: String,
    /// Changed paths, relative to the root of the repository; empty without git.
    pub changes: Vec<PathChange>,
    /// Protected files that the turn changed. Without git they have been restored.
    pub violations: Vec<String>,
    /// Notes for a person about how it was collected.
    pub notes: Vec<String>,
}

/// One changed path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathChange {
    /// A renamed file is removed in one place and added in another.
    pub kind: ChangeKind,
    /// Relative to the root of the repository.
    pub path: PathBuf,
}

/// How a path changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Added,
    /// Its content or mode differs.
    Modified,
    Removed,
    /// A file became a link, or the like.
    Retyped,
}

/// What the target would contain if the work landed now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merged {
    /// The work itself: the target has not moved.
    Ready { commit: String },
    /// The work is already part of the target.
    Contained,
    /// A merge of the target and the work.
    Joined { commit: String },
    /// They cannot be merged without a person or a further turn.
    Conflict {
        /// The conflicting files.
        paths: Vec<String>,
    },
}

/// One of the two private worktrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where the agent works.
    Turn,
    /// Where the checks run.
    Verify,
}

/// The workspace of a loop.
#[derive(Debug)]
pub struct Workspace(Kind);

#[derive(Debug)]
enum Kind {
    Git(Box<Worktrees>),
    InPlace(InPlace),
}

impl Workspace {
    /// Opens a loop's workspace, after a crash too. Creates no worktree yet.
    pub async fn open(options: WorkspaceOptions) -> Result<Self, WorkspaceError> {
        let globs = Globs::new(&options.spec.protect)?;
        files::make_private(&options.root).map_err(WorkspaceError::files("make", &options.root))?;
        let dir = PathBuf::from(&options.spec.dir);
        match options.spec.mode.clone() {
            WorkspaceMode::InPlace => Ok(Self(Kind::InPlace(InPlace::new(&dir, &options.root, globs)?))),
            WorkspaceMode::Git { target } => match discover(&dir).await? {
                ProjectFolder::Git(place) => {
                    Ok(Self(Kind::Git(Box::new(Worktrees::open(options, place, target, globs).await?))))
                }
                ProjectFolder::Folder(dir) => Err(WorkspaceError::NotGit { dir }),
            },
        }
    }

    /// Prepares a turn that continues from `work`, and returns where it starts. Leftovers of an
    /// earlier turn in the worktree are cleared, so it must have been collected.
    pub async fn prepare_turn(&mut self, turn: &TurnId, work: Option<&str>) -> Result<Base, WorkspaceError> {
        match &mut self.0 {
            Kind::Git(trees) => trees.prepare(turn, work).await,
            Kind::InPlace(folder) => {
                let (folder, turn) = (folder.clone(), turn.clone());
                files::apart(move || folder.prepare(&turn)).await.map(|()| Base::default())
            }
        }
    }

    /// The folder in which the agent runs.
    pub fn turn_dir(&self) -> PathBuf {
        match &self.0 {
            Kind::Git(trees) => trees.dir(Side::Turn),
            Kind::InPlace(folder) => folder.dir().to_owned(),
        }
    }

    /// Keeps the result of the turn. The agent's processes must be gone. May be called again after
    /// a crash.
    pub async fn collect(&mut self, commit_meta: &CommitMeta<'_>) -> Result<Collected, WorkspaceError> {
        match &mut self.0 {
            Kind::Git(trees) => trees.collect(commit_meta).await,
            Kind::InPlace(folder) => {
                let (folder, turn) = (folder.clone(), commit_meta.turn());
                files::apart(move || folder.collect(&turn)).await
            }
        }
    }

    /// What the target would contain if `commit` landed now; the checks must run on that.
    pub async fn merge_for_target(&self, commit: &str, commit_meta: &CommitMeta<'_>) -> Result<Merged, WorkspaceError> {
        match &self.0 {
            Kind::Git(trees) => trees.merge_for_target(commit, commit_meta).await,
            Kind::InPlace(folder) => Err(WorkspaceError::NotGit { dir: folder.dir().to_owned() }),
        }
    }

    /// Checks out `commit` in the checks' worktree and returns the folder in which to run them.
    /// Without a commit: where a loop without work starts. Without git: the person's folder.
    pub async fn check_out_verify(&mut self, commit: Option<&str>) -> Result<PathBuf, WorkspaceError> {
        match &mut self.0 {
            Kind::Git(trees) => trees.check_out_verify(commit).await,
            Kind::InPlace(folder) => Ok(folder.dir().to_owned()),
        }
    }

    /// The commit on which a loop without work starts; `None` without git.
    pub async fn first_base(&self) -> Result<Option<String>, WorkspaceError> {
        match &self.0 {
            Kind::Git(trees) => trees.first_base().await.map(Some),
            Kind::InPlace(_) => Ok(None),
        }
    }

    /// Moves the target onto `commit`, once: forward only, and only if no file of the person is in
    /// the way. May be called again after a crash.
    pub async fn integrate(&self, task: &TaskId, commit: &str) -> Result<Integration, WorkspaceError> {
        match &self.0 {
            Kind::Git(trees) => trees.integrate(task, commit).await,
            Kind::InPlace(_) => Ok(Integration::Done(Integrated::InPlace)),
        }
    }

    /// Sets the ref from which the next turn starts, so that it is visible and survives `git gc`.
    pub async fn set_work(&self, commit: &str) -> Result<(), WorkspaceError> {
        match &self.0 {
            Kind::Git(trees) => trees.set_work(commit).await,
            Kind::InPlace(_) => Ok(()),
        }
    }

    /// Whether `command` still has to run in a worktree before anything else does. Only meaningful
    /// once the worktree exists: after [`Workspace::prepare_turn`] or
    /// [`Workspace::check_out_verify`].
    pub fn needs_setup(&self, side: Side, command: &str) -> bool {
        match &self.0 {
            Kind::Git(trees) => trees.needs_setup(side, command),
            Kind::InPlace(folder) => folder.needs_setup(command),
        }
    }

    /// Records that the setup succeeded.
    pub fn set_up(&self, side: Side, command: &str) -> Result<(), WorkspaceError> {
        match &self.0 {
            Kind::Git(trees) => trees.set_up(side, command),
            Kind::InPlace(folder) => folder.set_up(command),
        }
    }

    /// Removes the worktrees. Refs stay, so nothing that was collected is lost.
    pub async fn cleanup(&mut self) -> Result<(), WorkspaceError> {
        match &mut self.0 {
            Kind::Git(trees) => trees.remove().await,
            Kind::InPlace(_) => Ok(()),
        }
    }
}
