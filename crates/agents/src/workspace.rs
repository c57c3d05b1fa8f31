//! Where turns work and how their work reaches the operator. Lists the parts and gives them one face.
//!
//! With git, a loop has two private worktrees: the agent works in `turn`, the checks run in `verify`, whose path no agent
//! is told. What an agent plants outside of git (ignored files, configuration) is therefore not there when it is judged.
//! Work is only ever kept under `refs/everloop/<loop>/`; the operator's branch moves in one place, [`land`], forward
//! only, and only when nothing of the operator's is in the way.
//!
//! - [`project_folder`]: what the operator's folder is; [`refs`]: names of our refs
//! - [`worktrees`]: the pair of worktrees; [`tree`]: one of them; [`fingerprint`]: whether it was touched; [`locks`]: stale and
//!   shared locks
//! - [`turn`]: where a turn starts and what it made; [`snapshot`]: the operator's uncommitted state
//! - [`merge`]: joining two lines; [`land`]: onto the target, once
//! - [`remote`]: a repository that many machines share
//! - [`in_place`]: without git; [`files`]: small deeds on files

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

pub use in_place::fingerprint;
pub use project_folder::{HeadState, ProjectFolder, Repository, discover};
pub use refs::result as result_ref;
pub use remote::{Joining, Pushed, Remote, address_of, remote_branch};

use crate::git;
use crate::protect::{self, Globs};
use in_place::InPlace;
use worktrees::Worktrees;

/// What went wrong with a workspace.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// git did not do what it was asked.
    #[error(transparent)]
    Git(#[from] git::GitError),
    /// A file could not be read or written.
    #[error("could not {what} `{}`", .path.display())]
    Files {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A repository without files.
    #[error("`{}` is a bare repository; give the folder of a worktree", .dir.display())]
    Bare {
        /// The folder.
        dir: PathBuf,
    },
    /// The inside of a git folder.
    #[error("`{}` is inside a git folder, not in the files it keeps", .dir.display())]
    InsideGitFolder {
        /// The folder.
        dir: PathBuf,
    },
    /// A git workspace was asked for where there is no git, or git's answer where there is none.
    #[error("`{}` is not in a git repository", .dir.display())]
    NotGit {
        /// The folder.
        dir: PathBuf,
    },
    /// A private worktree was damaged.
    #[error("the workspace `{}` is broken: {why}", .path.display())]
    Broken {
        /// Which.
        path: PathBuf,
        /// How.
        why: String,
    },
    /// A lock is held by somebody who is alive.
    #[error("`{}` is locked by another process", .path.display())]
    Locked {
        /// The lock.
        path: PathBuf,
    },
    /// Work was asked for that never began here.
    #[error("no workspace was prepared for turn `{turn}`")]
    Unprepared {
        /// Which turn.
        turn: TurnId,
    },
    /// A glob of the operator's that is none.
    #[error(transparent)]
    Glob(#[from] protect::GlobError),
    /// In place there is nothing to keep protected files in, because there are too many.
    #[error("the protected files in `{}` are more than {limit_mb} MB; use git or protect less", .dir.display())]
    TooMuchToProtect {
        /// The folder.
        dir: PathBuf,
        /// The limit.
        limit_mb: u64,
    },
}

impl WorkspaceError {
    /// For `map_err`: `what` was tried on `path`.
    fn files(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WorkspaceError {
        let path = path.to_owned();
        move |source| WorkspaceError::Files { what, path, source }
    }
}

/// What a workspace is made from.
#[derive(Clone, Debug)]
pub struct WorkspaceOptions {
    /// Whose it is.
    pub owner: LoopId,
    /// A folder for this loop alone, outside of the repository (`work` in the state folder); made if missing.
    pub root: PathBuf,
    /// What the operator wants.
    pub spec: WorkspaceSpec,
}

/// Where a turn starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// The commit; `None` without git.
    pub commit: Option<String>,
    /// The target had moved and was merged into the work.
    pub merged: bool,
    /// The target had moved and could not be merged: the turn starts from the target, the work stays under its ref.
    pub dropped: Option<Dropped>,
}

/// Work that did not fit the target any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Its commit.
    pub commit: String,
    /// The files that conflict.
    pub paths: Vec<String>,
}

/// The work of one turn, as it is to be kept.
#[derive(Clone, Debug)]
pub struct CommitMeta<'a> {
    /// The task, for the trailer.
    pub task: &'a TaskId,
    /// The fence it was held under.
    pub fence: Fence,
    /// First line of the commit message; data, made one line.
    pub subject: &'a str,
}

impl CommitMeta<'_> {
    /// The turn that did it.
    pub fn turn(&self) -> TurnId {
        TurnId::of(self.task, self.fence)
    }
}

/// What a turn made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// The tree differs from where the turn began.
    pub changed: bool,
    /// The commit that holds the work; `None` without git or change.
    pub commit: Option<String>,
    /// The ref that keeps it for ever.
    pub pin: Option<String>,
    /// Files, insertions, deletions in words.
    pub diffstat: String,
    /// Changed paths, relative to the root of the repository; empty without git.
    pub changes: Vec<PathChange>,
    /// Protected files that the turn changed. Without git they have been put back.
    pub violations: Vec<String>,
    /// What a person should know about how it was collected.
    pub notes: Vec<String>,
}

/// One changed path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathChange {
    /// How. A renamed file is removed in one place and added in another.
    pub kind: ChangeKind,
    /// Relative to the root of the repository.
    pub path: PathBuf,
}

/// How a path changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// Its content or mode differs.
    Modified,
    /// It is gone.
    Removed,
    /// A file became a link, or the like.
    Retyped,
}

/// What would stand on the target if the work landed now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merged {
    /// The work itself: the target has not moved.
    Ready {
        /// The work.
        commit: String,
    },
    /// The work is already part of the target.
    Contained,
    /// A merge of the target and the work.
    Joined {
        /// The merge.
        commit: String,
    },
    /// They cannot be merged without a person or a further turn.
    Conflict {
        /// The files that conflict.
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
    /// Opens a loop's workspace, after a crash too. Makes no worktree yet.
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

    /// Gets everything ready for a turn that goes on from `work`, and says where it starts. Whatever a former turn left in
    /// the worktree is cleared, so it must have been collected.
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

    /// Keeps what the turn made. The agent's processes must be gone. May be called again after a crash.
    pub async fn collect(&mut self, commit_meta: &CommitMeta<'_>) -> Result<Collected, WorkspaceError> {
        match &mut self.0 {
            Kind::Git(trees) => trees.collect(commit_meta).await,
            Kind::InPlace(folder) => {
                let (folder, turn) = (folder.clone(), commit_meta.turn());
                files::apart(move || folder.collect(&turn)).await
            }
        }
    }

    /// What would stand on the target if `commit` landed now; the checks are to be run on that.
    pub async fn merge_for_target(&self, commit: &str, commit_meta: &CommitMeta<'_>) -> Result<Merged, WorkspaceError> {
        match &self.0 {
            Kind::Git(trees) => trees.merge_for_target(commit, commit_meta).await,
            Kind::InPlace(folder) => Err(WorkspaceError::NotGit { dir: folder.dir().to_owned() }),
        }
    }

    /// Puts the checks' worktree on `commit` and gives the folder in which to run them. Without a commit: where a loop
    /// without work starts. Without git: the operator's folder.
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

    /// Moves the target onto `commit`, once: forward only, and only if nothing of the operator's is in the way. May be
    /// called again after a crash.
    pub async fn integrate(&self, task: &TaskId, commit: &str) -> Result<Integration, WorkspaceError> {
        match &self.0 {
            Kind::Git(trees) => trees.integrate(task, commit).await,
            Kind::InPlace(_) => Ok(Integration::Done(Integrated::InPlace)),
        }
    }

    /// Remembers under a ref where the next turn starts, for the operator's eyes and against `git gc`.
    pub async fn set_work(&self, commit: &str) -> Result<(), WorkspaceError> {
        match &self.0 {
            Kind::Git(trees) => trees.set_work(commit).await,
            Kind::InPlace(_) => Ok(()),
        }
    }

    /// Whether `command` still has to be run in a worktree before anything else is. Only meaningful once the worktree is
    /// there: after [`Workspace::prepare_turn`] or [`Workspace::check_out_verify`].
    pub fn needs_setup(&self, side: Side, command: &str) -> bool {
        match &self.0 {
            Kind::Git(trees) => trees.needs_setup(side, command),
            Kind::InPlace(folder) => folder.needs_setup(command),
        }
    }

    /// The setup ran well.
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
