//! Where turns work and how their work lands. Lists the parts and gives them one interface.
//!
//! With git, the agent of a loop works in a clone of its own, whose objects are read from the
//! person's repository; the checks run in a checkout that no agent can reach. Only the files of a
//! turn come back, taken with a git folder and an index of everloop's own: no configuration,
//! attribute driver, ref or object of the agent is ever read by a git that everloop runs. Work is
//! only ever kept under `refs/everloop/<loop>/`; the person's branch moves in one place, [`land`],
//! forward only, and only when no file of the person is in the way.
//!
//! - [`project_folder`]: the kind of the person's folder; [`survey`]: what of it is in no commit;
//!   [`refs`]: names of everloop's refs
//! - [`rules`]: the git settings of a loop; [`own_git`]: everloop's git folder; [`locks`]: stale
//!   locks in it
//! - [`checkouts`]: all of a loop; [`clone`]: the agent's `.git`; [`old_worktree`]: of earlier
//!   versions
//! - [`turn`]: where a turn starts and what it made; [`gather`]: which files are taken; [`tree`]:
//!   `git status`; [`fingerprint`]: whether anything was touched; [`snapshot`]: uncommitted changes
//!   of the person
//! - [`judge`]: what a turn may not change, and the person's version of it;
//!   [`verify`]: where checks run; [`sweep`]: exactly a commit again; [`index`]: git's index
//! - [`diff`]: what differs between two commits, and what a loop's work changes
//! - [`pick`]: commits of chosen changes
//! - [`merge`]: joining two lines; [`land`]: onto the target, once; [`take`]: to the person, at a
//!   person's word
//! - [`forget`]: what a loop leaves in the person's repository, and its removal
//! - [`replay`]: the change of an experiment on another commit
//! - [`remote`]: a repository that many nodes share
//! - [`in_place`]: without git; [`files`]: small operations on files

mod changed;
mod checkouts;
mod clone;
mod commit;
mod commit_object;
mod diff;
mod experiment;
mod files;
mod fingerprint;
mod forget;
mod gather;
mod in_place;
mod index;
mod judge;
mod land;
mod locks;
mod merge;
mod objects;
mod old_worktree;
mod own_git;
mod pick;
mod project_folder;
mod refs;
mod remote;
mod replay;
mod rules;
mod sessions;
mod snapshot;
mod stage;
#[cfg(test)]
mod stage_like_git;
mod survey;
mod sweep;
mod switch;
mod take;
mod tree;
mod turn;
mod verify;

use std::io;
use std::path::{Path, PathBuf};

use everloop_core::action::Integration;
use everloop_core::commit_message::WorkDone;
use everloop_core::event::Integrated;
use everloop_core::ids::{Fence, LoopId, TaskId, TurnId};
use everloop_core::spec::{CommitAuthor, Origin, WorkspaceMode, WorkspaceSpec};
use serde::{Deserialize, Serialize};

pub use diff::{FileDiff, WorkDiff};
pub use experiment::ExperimentChange;
pub use files::remove_apart;
pub use forget::{LoopRefs, remove_loop_refs};
pub use in_place::fingerprint;
pub use pick::{Pick, PickRefusal, export, has_files_of, pick, squash};
pub use project_folder::{HeadState, ProjectFolder, Repository, discover};
pub use refs::result as result_ref;
pub use remote::{Joining, Pushed, Remote, address_of, fetch_commits, remote_branch, remove_refs};
pub use replay::Replayed;
pub use survey::{Survey, survey};
pub use take::{TakeRefusal, TakeRequest, TakenWork, start_of, take, take_as_branch};

use crate::git;
use crate::protect::{self, Globs};
use checkouts::Checkouts;
use in_place::InPlace;

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
    /// A private checkout was damaged.
    #[error("the workspace `{}` is broken: {why}", .path.display())]
    Broken { path: PathBuf, why: String },
    /// A lock is held by a living process.
    #[error("`{}` is locked by another process", .path.display())]
    Locked { path: PathBuf },
    /// Results were requested of a turn that never began here.
    #[error("no workspace was prepared for turn `{turn}`")]
    Unprepared { turn: TurnId },
    /// A ref that only everloop moves is not at the commit in the ledger.
    #[error("`{name}` is at {found} instead of {expected}, which is in the ledger")]
    RefMoved { name: String, found: String, expected: String },
    /// The git settings of a loop are lost, and those in force are others.
    #[error("git's filters, attributes or ignored files in `{}` are not what they were when the loop was made", .dir.display())]
    RulesChanged { dir: PathBuf },
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
    /// What was done, as far as it is known; data. The agent's own commits and the changed files
    /// are added when the commit is made.
    pub done: WorkDone<'a>,
    /// For the body; empty for none.
    pub goal: &'a str,
    pub author: &'a CommitAuthor,
}

impl<'a> CommitMeta<'a> {
    /// A commit of everloop with this first line.
    pub fn new(task: &'a TaskId, fence: Fence, subject: &'a str) -> Self {
        let done = WorkDone { summary: subject, ..WorkDone::default() };
        Self { task, fence, done, goal: "", author: &CommitAuthor::Everloop }
    }

    /// The turn that did the work.
    pub fn turn(&self) -> TurnId {
        TurnId::of(self.task, self.fence)
    }
}

/// What the ledger knows about the start of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Started<'a> {
    /// The commit from which it started; `None` after a restart, and then the turn's note counts if
    /// it agrees with the loop.
    pub base: Option<&'a str>,
    /// The loop's work before the turn.
    pub work: Option<&'a str>,
    /// The commit that [`Workspace::examine`] will compare the work with, if it will be called.
    pub examined_from: Option<&'a str>,
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
    /// The commit that it was compared with; `None` without git.
    #[serde(default)]
    pub base: Option<String>,
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

/// What landing would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prospect {
    pub merged: Merged,
    /// The commit of the target now.
    pub target: Option<String>,
    /// Protected files in the whole difference between the target and what would be there.
    pub violations: Vec<String>,
}

/// One of the two private checkouts.
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
    Git(Box<Checkouts>),
    InPlace(InPlace),
}

impl Workspace {
    /// Opens a loop's workspace, after a crash too. Creates no checkout yet.
    pub async fn open(options: WorkspaceOptions) -> Result<Self, WorkspaceError> {
        let globs = Globs::new(&options.spec.protect)?.judging(&options.spec.judge);
        files::make_private(&options.root).map_err(WorkspaceError::files("make", &options.root))?;
        let dir = PathBuf::from(&options.spec.dir);
        match options.spec.mode.clone() {
            WorkspaceMode::InPlace => Ok(Self(Kind::InPlace(InPlace::new(&dir, &options.root, globs)?))),
            WorkspaceMode::Git { target } => match discover(&dir).await? {
                ProjectFolder::Git(place) => {
                    Ok(Self(Kind::Git(Box::new(Checkouts::open(options, place, target, globs).await?))))
                }
                ProjectFolder::Folder(dir) => Err(WorkspaceError::NotGit { dir }),
            },
        }
    }

    /// Prepares a turn that continues from `work`, and returns where it starts. Leftovers of an
    /// earlier turn in the clone are cleared, so it must have been collected.
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
    pub async fn collect(
        &mut self,
        commit_meta: &CommitMeta<'_>,
        started: &Started<'_>,
    ) -> Result<Collected, WorkspaceError> {
        match &mut self.0 {
            Kind::Git(trees) => trees.collect(commit_meta, started).await,
            Kind::InPlace(folder) => {
                let (folder, turn) = (folder.clone(), commit_meta.turn());
                files::apart(move || folder.collect(&turn)).await
            }
        }
    }

    /// What an experiment changed from `base` to `commit`.
    pub async fn examine(
        &self,
        (base, commit): (&str, &str),
        scope: &[String],
        changes: &[PathChange],
    ) -> Result<ExperimentChange, WorkspaceError> {
        match &self.0 {
            Kind::Git(trees) => {
                let known = trees.patch.as_ref().filter(|known| known.from == base && known.to == commit);
                let patch = match known {
                    Some(known) => known.text.clone(),
                    None => experiment::patch(trees.git(), base, commit).await?,
                };
                experiment::examine(trees.git(), (base, &patch), (scope, trees.below()), changes).await
            }
            Kind::InPlace(_) => Ok(ExperimentChange::default()),
        }
    }

    /// Makes the change of `commit` again on `onto`. May be called again after a crash.
    pub async fn replay(
        &mut self,
        commit: &str,
        onto: &str,
        commit_meta: &CommitMeta<'_>,
    ) -> Result<Replayed, WorkspaceError> {
        match &mut self.0 {
            Kind::Git(trees) => trees.replay(commit, onto, commit_meta).await,
            Kind::InPlace(folder) => Err(WorkspaceError::NotGit { dir: folder.dir().to_owned() }),
        }
    }

    /// What the target would contain if `commit` landed now; the checks must run on that.
    pub async fn merge_for_target(
        &mut self,
        commit: &str,
        commit_meta: &CommitMeta<'_>,
    ) -> Result<Merged, WorkspaceError> {
        Ok(self.prospect(commit, commit_meta).await?.merged)
    }

    /// The same, with the protected files in the whole difference to the target.
    pub async fn prospect(&mut self, commit: &str, commit_meta: &CommitMeta<'_>) -> Result<Prospect, WorkspaceError> {
        match &mut self.0 {
            Kind::Git(trees) => trees.prospect(commit, commit_meta).await,
            Kind::InPlace(folder) => Err(WorkspaceError::NotGit { dir: folder.dir().to_owned() }),
        }
    }

    /// The commit in the ledger of a target that only everloop moves. A target of the person is
    /// not concerned.
    pub fn expect_target(&mut self, commit: &str) {
        if let Kind::Git(trees) = &mut self.0
            && trees.target.starts_with(refs::OURS)
        {
            trees.expected = Some(commit.to_owned());
        }
    }

    /// The repository as it is now, for the first event of the loop; `None` without git.
    pub async fn origin(&self) -> Result<Option<Origin>, WorkspaceError> {
        match &self.0 {
            Kind::Git(trees) => trees.origin().await.map(Some),
            Kind::InPlace(_) => Ok(None),
        }
    }

    /// Checks out `commit` in the checks' checkout and returns the folder in which to run them.
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

    /// Moves the target onto `commit`, once: forward only, from where it was when the work was
    /// `inspected`, and only if no file of the person is in the way. May be called again after a
    /// crash.
    pub async fn integrate(
        &mut self,
        task: &TaskId,
        commit: &str,
        inspected: Option<&str>,
    ) -> Result<Integration, WorkspaceError> {
        match &mut self.0 {
            Kind::Git(trees) => trees.integrate(task, commit, inspected).await,
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

    /// Whether `command` still has to run in a checkout before anything else does. Only meaningful
    /// once the checkout exists: after [`Workspace::prepare_turn`] or
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

    /// Removes the checkouts. Refs stay, so nothing that was collected is lost.
    pub async fn cleanup(&mut self) -> Result<(), WorkspaceError> {
        match &mut self.0 {
            Kind::Git(trees) => trees.remove().await,
            Kind::InPlace(_) => Ok(()),
        }
    }
}

#[cfg(test)]
impl Workspace {
    fn checkouts(&mut self) -> Option<&mut Checkouts> {
        match &mut self.0 {
            Kind::Git(trees) => Some(trees),
            Kind::InPlace(_) => None,
        }
    }
}
