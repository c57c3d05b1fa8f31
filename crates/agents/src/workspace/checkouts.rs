//! The checkouts of a loop and the refs around them: opening, setup markers, removing. What a turn
//! does is in `turn`, where checks run in `verify`, how work gets out in `merge` and `land`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use everloop_core::hex::hex;
use everloop_core::ids::LoopId;
use everloop_core::planted::{self, Bug};
use everloop_core::spec::Origin;
use sha2::{Digest, Sha256};

use super::clone::{CloneParts, IndexMark, is_folder};
use super::experiment::KnownPatch;
use super::fingerprint::Fingerprint;
use super::own_git::OwnGit;
use super::project_folder::Repository;
use super::sessions::Sessions;
use super::verify::Verify;
use super::{Base, PathChange, Side, WorkspaceError, WorkspaceOptions, files, old_worktree, refs, snapshot};
use crate::git::Git;
use crate::protect::Globs;

/// Checkouts and refs of a loop.
#[derive(Debug)]
pub(super) struct Checkouts {
    pub owner: LoopId,
    /// The loop's own folder.
    pub root: PathBuf,
    /// Full name of the ref that finished work moves.
    pub target: String,
    /// The commit of the target according to the ledger, where only everloop moves it.
    pub expected: Option<String>,
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
    /// The person's refs.
    pub refs: Git,
    pub own: OwnGit,
    pub sessions: Sessions,
    pub parts: CloneParts,
    pub turn: TurnTree,
    pub verify: Verify,
    /// The last choice of a base and its inputs, which saves git calls when nothing moved.
    pub chosen: Option<BaseChoice>,
    /// The last commit that was made of a turn's work without violations, and its parent.
    pub made: Option<(String, String)>,
    /// The target and the commit whose difference was last found without violations.
    pub inspected: Option<(String, String)>,
    /// The last two commits between which nothing was found that decides.
    pub harmless: Option<(String, String)>,
    /// The trees of the start, and of the last commit that was made and its base.
    pub trees: HashMap<String, String>,
    /// The last commit that was made, and what changed between the start and it.
    pub since_start: Option<(String, Vec<PathChange>)>,
    /// The difference that was read while the last commit was made.
    pub patch: Option<KnownPatch>,
}

/// The files of a turn.
#[derive(Debug)]
pub(super) struct TurnTree {
    pub path: PathBuf,
    /// The commit that files and index are known to hold.
    pub at: Option<String>,
    /// The fingerprint of that state.
    pub sealed: Option<Fingerprint>,
    /// The clone's index as everloop left it.
    pub mark: Option<IndexMark>,
    /// What git found to be ignored there, since the clone holds its commit.
    pub ignored: Option<Arc<HashSet<Vec<u8>>>>,
    /// Two commits with the same rules about what is ignored.
    pub same_rules: Option<(String, String)>,
}

impl TurnTree {
    /// An error when the folder is gone, or is not a folder any more.
    pub fn check(&self) -> Result<(), WorkspaceError> {
        if is_folder(&self.path) || planted::is(Bug::FollowsLinks) && self.path.is_dir() {
            return Ok(());
        }
        let why = "its folder is gone".to_owned();
        Err(WorkspaceError::Broken { path: self.path.clone(), why })
    }

    /// Folder for files that were moved aside.
    pub fn strays(&self) -> PathBuf {
        self.path.with_extension("strays")
    }
}

/// A base and the inputs of its choice.
#[derive(Clone, Debug)]
pub(super) struct BaseChoice {
    pub target: Option<String>,
    pub line: Option<String>,
    pub base: Base,
}

impl Checkouts {
    /// Opens them; creates missing refs, no checkout yet.
    pub async fn open(
        options: WorkspaceOptions,
        place: Repository,
        target: String,
        globs: Globs,
    ) -> Result<Self, WorkspaceError> {
        let mut options = options;
        options.root = options.root.canonicalize().map_err(WorkspaceError::files("find", &options.root))?;
        let root = options.root.clone();
        let origin = options.spec.origin.as_ref();
        let own = OwnGit::open(&root, &place, origin).await?;
        let refs = Git::shared(&place.common);
        if target.starts_with(refs::OURS) && refs.commit(&target).await?.is_none() {
            // No branch was checked out: the loop's own line begins at the current commit.
            let head = place.head.commit().ok_or_else(|| WorkspaceError::NotGit { dir: place.root.clone() })?;
            refs.bytes(&["update-ref", &target, head, ""]).await?;
        }
        let now = refs.commit(&target).await?;
        let kept = refs.commit(&refs::start(&options.owner)).await?;
        let start = match origin.filter(|_| !planted::is(Bug::BelievesItsFiles)) {
            Some(origin) => {
                if kept.as_ref() != Some(&origin.start) {
                    // The ledger decides; the ref only keeps the commit.
                    refs.bytes(&["update-ref", &refs::start(&options.owner), &origin.start]).await?;
                }
                origin.start.clone()
            }
            None => match kept {
                Some(start) => start,
                None => first_start(&refs, &own, &options, (&place, now.as_deref())).await?,
            },
        };
        let empty = match &now {
            Some(_) => None,
            None => Some(empty_commit(own.git()).await?),
        };
        let turn =
            TurnTree { path: root.join("turn"), at: None, sealed: None, mark: None, ignored: None, same_rules: None };
        let verify = Verify::find(&root, &options.spec.cache)?;
        let expected = origin.and_then(|origin| origin.target.clone()).filter(|_| target.starts_with(refs::OURS));
        Ok(Self {
            owner: options.owner,
            root,
            target,
            expected,
            start,
            empty,
            include_dirty: options.spec.include_dirty,
            globs: globs.below(&place.below),
            parts: CloneParts::new(&place.common, &own.rules),
            sessions: Sessions::new(&own, &refs, &turn.path),
            place,
            refs,
            own,
            turn,
            verify,
            chosen: None,
            made: None,
            inspected: None,
            harmless: None,
            trees: HashMap::new(),
            since_start: None,
            patch: None,
        })
    }

    /// The repository as it is now, for the first event of the loop.
    pub async fn origin(&self) -> Result<Origin, WorkspaceError> {
        let target = self.refs.commit(&self.target).await?;
        Ok(Origin { start: self.start.clone(), target, rules: self.own.rules.digest() })
    }

    /// The project's folder, relative to the root of its repository.
    pub fn below(&self) -> &Path {
        &self.place.below
    }

    /// git for calls that concern objects only.
    pub fn git(&self) -> &Git {
        self.own.git()
    }

    /// The commit of the target. A target that only everloop moves must be at the commit in the ledger.
    pub async fn target_now(&self) -> Result<Option<String>, WorkspaceError> {
        let known = self.chosen.as_ref().and_then(|chosen| chosen.target.as_ref());
        let now = match refs::loose(&self.place.common, &self.target) {
            // Not moved since it was read by git.
            Some(loose) if Some(&loose) == known => Some(loose),
            _ => self.refs.commit(&self.target).await?,
        };
        match (&self.expected, &now) {
            (Some(expected), now) if now.as_ref() != Some(expected) && !planted::is(Bug::BelievesItsFiles) => {
                let found = now.clone().unwrap_or_else(|| "nothing".to_owned());
                Err(WorkspaceError::RefMoved { name: self.target.clone(), found, expected: expected.clone() })
            }
            _ => Ok(now),
        }
    }

    /// The folder in a checkout that corresponds to the person's folder.
    pub fn dir(&self, side: Side) -> PathBuf {
        let tree = match side {
            Side::Turn => &self.turn.path,
            Side::Verify => self.verify.path(),
        };
        tree.join(&self.place.below)
    }

    /// Where a loop without work starts.
    pub async fn first_base(&self) -> Result<String, WorkspaceError> {
        match self.target_now().await? {
            Some(target) if !self.include_dirty => Ok(target),
            _ => Ok(self.start.clone()),
        }
    }

    /// Moves the work line.
    pub async fn set_work(&self, commit: &str) -> Result<(), WorkspaceError> {
        let name = refs::work(&self.owner);
        if refs::loose(&self.place.common, &name).as_deref() != Some(commit)
            && self.sessions.refs.move_ref(&name, commit, None).await.is_none()
        {
            self.refs.bytes(&["update-ref", &name, commit]).await?;
        }
        Ok(())
    }

    /// Whether the setup command has not yet run in this checkout.
    pub fn needs_setup(&self, side: Side, command: &str) -> bool {
        !setup_recorded(&self.marker(side), command)
    }

    /// Records that the setup command ran.
    pub fn set_up(&self, side: Side, command: &str) -> Result<(), WorkspaceError> {
        record_setup(&self.marker(side), command)
    }

    /// The setup has to run again.
    pub fn forget_setup(&self, side: Side) -> Result<(), WorkspaceError> {
        let marker = self.marker(side);
        files::remove(&marker).map_err(WorkspaceError::files("remove", &marker))
    }

    fn marker(&self, side: Side) -> PathBuf {
        self.root.join(match side {
            Side::Turn => "turn.setup",
            Side::Verify => "verify.setup",
        })
    }

    /// Removes the checkouts and the loop's git folder.
    pub async fn remove(&mut self) -> Result<(), WorkspaceError> {
        (self.chosen, self.made, self.inspected) = (None, None, None);
        (self.turn.at, self.turn.sealed) = (None, None);
        old_worktree::remove(&self.root, &self.place.common).await?;
        files::remove_apart(&self.turn.path).await?;
        self.verify.remove().await?;
        self.own.remove()
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
    hex(&Sha256::digest(command.as_bytes()))
}

/// Decides where a new loop begins and pins it: the uncommitted state, the target, or an empty
/// commit.
async fn first_start(
    refs: &Git,
    own: &OwnGit,
    options: &WorkspaceOptions,
    (place, target): (&Repository, Option<&str>),
) -> Result<String, WorkspaceError> {
    let start = if options.spec.include_dirty {
        snapshot::take(place, &options.root, target).await?
    } else {
        match target {
            Some(target) => target.to_owned(),
            None => empty_commit(own.git()).await?,
        }
    };
    refs.bytes(&["update-ref", &refs::start(&options.owner), &start]).await?;
    Ok(start)
}

/// A commit without files, for a repository without commits. Its date is fixed, so it is the same
/// one every time.
pub(super) async fn empty_commit(git: &Git) -> Result<String, WorkspaceError> {
    let tree = git.line(&["mktree"]).await?;
    Ok(git.clone().dated(0).line(&["commit-tree", &tree, "-m", "everloop: an empty start"]).await?)
}
