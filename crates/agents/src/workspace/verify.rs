//! Where the checks run: a checkout at a random path, in no folder that a turn works in. It is
//! prepared after the processes of a turn are gone, and only checks write there. Before each use it
//! is made exactly the commit again; ignored files do not survive, except in folders that the
//! person named.

use std::fs;
use std::path::{Component, Path, PathBuf};

use everloop_core::hex::hex;
use everloop_core::planted::{self, Bug};

use super::checkouts::Checkouts;
use super::clone::is_folder;
use super::sweep::{self, Recent, Sweep, Swept, Unknown};
use super::switch::Switch;
use super::{Side, WorkspaceError, files, old_worktree};
use tokio::task::JoinHandle;

use crate::git::{Git, GitError};

/// The name of the checkout below its random folder, as commands see it.
const NAME: &str = "verify";

/// Bytes of a random name.
const NAME_BYTES: usize = 16;

/// The checks' checkout.
#[derive(Debug)]
pub(super) struct Verify {
    path: PathBuf,
    /// The commit that it holds.
    at: Option<String>,
    keep: Vec<PathBuf>,
    recent: Recent,
    ready: Option<Ready>,
}

/// A sweep of the checkout that was begun before the commit to check was made.
#[derive(Debug)]
pub(super) struct Ahead {
    /// The commit that the checkout holds.
    before: String,
    id_bytes: usize,
    sweep: JoinHandle<Result<(Swept, Recent), WorkspaceError>>,
}

/// The checkout holds a tree already, and nothing ran since.
#[derive(Debug)]
pub(super) struct Ready {
    tree: String,
    swept: Swept,
    recent: Recent,
}

impl Verify {
    /// The checkout of the loop in `root`, at a new path if there is none. Nothing is created yet.
    pub fn find(root: &Path, keep: &[String]) -> Result<Self, WorkspaceError> {
        let is_name = |name: &str| name.len() == 2 * NAME_BYTES && name.bytes().all(|b| b.is_ascii_hexdigit());
        let entries = fs::read_dir(root).map_err(WorkspaceError::files("read", root))?;
        let found = entries.flatten().find(|entry| entry.file_name().to_str().is_some_and(is_name));
        let folder = if let Some(entry) = found {
            entry.path()
        } else {
            let mut name = [0; NAME_BYTES];
            let drawn = getrandom::fill(&mut name).map_err(std::io::Error::other);
            drawn.map_err(WorkspaceError::files("draw a name in", root))?;
            root.join(hex(&name))
        };
        let keep = keep.iter().filter_map(|name| inside(name)).collect();
        Ok(Self { path: folder.join(NAME), at: None, keep, recent: Recent::default(), ready: None })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the checkout.
    pub async fn remove(&mut self) -> Result<(), WorkspaceError> {
        (self.at, self.recent, self.ready) = (None, Recent::default(), None);
        files::remove_apart(self.path.parent().unwrap_or(&self.path)).await
    }
}

/// A folder in the checkout, as the person named it.
fn inside(name: &str) -> Option<PathBuf> {
    let path: PathBuf = Path::new(name).components().filter(|part| *part != Component::CurDir).collect();
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    (plain && path.components().next().is_some()).then_some(path)
}

impl Checkouts {
    /// Makes the checks' checkout exactly `commit` and returns the folder in which to run them.
    pub async fn check_out_verify(&mut self, commit: Option<&str>) -> Result<PathBuf, WorkspaceError> {
        let commit = match commit {
            Some(commit) => commit.to_owned(),
            None => self.first_base().await?,
        };
        old_worktree::remove(&self.root, &self.place.common).await?;
        match self.verify.ready.take() {
            Some(ready) if self.trees.get(&commit) == Some(&ready.tree) && is_folder(&self.verify.path) => {
                self.after_sweep(ready.swept)?;
                (self.verify.at, self.verify.recent) = (Some(commit.clone()), ready.recent);
            }
            _ => self.bring_verify(&commit).await?,
        }
        let (path, index) = (self.verify.path.clone(), self.own.index(Side::Verify));
        self.lay_over(&commit).await?;
        self.parts.make_anew(&path, &commit, &index)?;
        // The folder may contain no tracked file.
        let dir = self.dir(Side::Verify);
        fs::create_dir_all(&dir).map_err(WorkspaceError::files("make", &dir))?;
        Ok(dir)
    }

    /// Makes the files of the checkout those of `commit`.
    async fn bring_verify(&mut self, commit: &str) -> Result<(), WorkspaceError> {
        if !is_folder(&self.verify.path) {
            self.begin_verify().await?;
        }
        let id_bytes = sweep::id_bytes(commit);
        let sweep = self.sweep(id_bytes);
        let (swept, recent) = if let Ok(swept) = files::apart(move || sweep.run()).await {
            swept
        } else {
            // A check may have taken its own permissions away.
            self.begin_verify().await?;
            (Swept { whole: false, removed: true }, Recent::default())
        };
        self.after_sweep(swept)?;
        if swept.whole && self.verify.at.as_deref() == Some(commit) {
            self.verify.recent = recent;
        } else {
            let before = self.verify.at.take().filter(|_| swept.whole);
            self.fill_verify(before.as_deref(), commit).await?;
            self.verify.recent = sweep::remember(&self.verify.path, &self.own.index(Side::Verify), id_bytes)?;
            self.verify.at = Some(commit.to_owned());
        }
        Ok(())
    }

    fn sweep(&mut self, id_bytes: usize) -> Sweep {
        let keep = self.verify.keep.iter().map(|kept| self.place.below.join(kept)).collect();
        let recent = std::mem::take(&mut self.verify.recent);
        let unknown = if planted::is(Bug::LeavesIgnoredFiles) { Unknown::Leave } else { Unknown::Remove };
        let (tree, index) = (self.verify.path.clone(), self.own.index(Side::Verify));
        Sweep { tree, index, id_bytes, keep, recent, unknown }
    }

    fn after_sweep(&self, swept: Swept) -> Result<(), WorkspaceError> {
        if swept.removed && self.verify.keep.is_empty() { self.forget_setup(Side::Verify) } else { Ok(()) }
    }

    /// Begins to make the checkout ready for a commit that is not made yet, if it holds one. Until
    /// [`Checkouts::arrive`] or [`Checkouts::stay`] it counts as holding nothing.
    pub fn set_out(&mut self, id_bytes: usize) -> Option<Ahead> {
        self.verify.ready = None;
        let before = self.verify.at.take().filter(|_| is_folder(&self.verify.path))?;
        let sweep = self.sweep(id_bytes);
        Some(Ahead { before, id_bytes, sweep: tokio::task::spawn_blocking(move || sweep.run()) })
    }

    /// There is no new commit.
    pub async fn stay(&mut self, ahead: Option<Ahead>) {
        let Some(ahead) = ahead else { return };
        if let Ok(Ok((swept, recent))) = ahead.sweep.await
            && swept.whole
            && self.after_sweep(swept).is_ok()
        {
            (self.verify.at, self.verify.recent) = (Some(ahead.before), recent);
        }
    }

    /// Makes the files of the checkout those of a tree. Where that does not work, the checkout is
    /// filled when it is needed.
    pub async fn go_ahead(&self, ahead: Option<Ahead>, tree: &str) -> Option<Ready> {
        let Ahead { before, id_bytes, sweep } = ahead?;
        let (swept, _) = sweep.await.ok()?.ok()?;
        if !swept.whole {
            return None;
        }
        let git = self.own.over(&self.verify.path, Side::Verify).await.ok()?;
        let (path, index) = (self.verify.path.clone(), self.own.index(Side::Verify));
        let switch = Switch { tree: path, index, to: self.own.index(Side::Turn), wanted: tree.to_owned(), id_bytes };
        if !self.switches(switch).await && git.run(&["read-tree", "-m", "-u", &before, tree]).await.ok()?.code != 0 {
            return None;
        }
        let recent = sweep::remember(&self.verify.path, &self.own.index(Side::Verify), id_bytes).ok()?;
        Some(Ready { tree: tree.to_owned(), swept, recent })
    }

    /// Whether a folder was switched without git. Where that fails half-way, git finds files that it
    /// does not know and refuses to go on from them, so all of them are written anew.
    pub(super) async fn switches(&self, switch: Switch) -> bool {
        self.own.rules.stores_plainly() && switch.run(&self.sessions.blobs).await.unwrap_or(false)
    }

    /// The checkout is as [`Checkouts::go_ahead`] left it.
    pub fn arrive(&mut self, ready: Option<Ready>) {
        self.verify.ready = ready;
    }

    /// An empty checkout.
    async fn begin_verify(&mut self) -> Result<(), WorkspaceError> {
        self.verify.remove().await?;
        let (path, index) = (self.verify.path.clone(), self.own.index(Side::Verify));
        files::make_private(&path).map_err(WorkspaceError::files("make", &path))?;
        files::remove(&index).map_err(WorkspaceError::files("remove", &index))?;
        self.forget_setup(Side::Verify)
    }

    async fn fill_verify(&mut self, before: Option<&str>, commit: &str) -> Result<(), WorkspaceError> {
        let git = self.own.over(&self.verify.path, Side::Verify).await?;
        if let Some(before) = before {
            // Only what differs between the two is looked at.
            if git.run(&["read-tree", "-m", "-u", before, commit]).await?.code == 0 {
                return Ok(());
            }
        }
        match reset(&git, commit).await {
            Err(error) if is_damage(&error) => {
                self.begin_verify().await?;
                reset(&git, commit).await
            }
            other => other,
        }
    }

    /// The checks' checkout holds something else now.
    pub fn spoil_verify(&mut self) {
        (self.verify.at, self.verify.recent, self.verify.ready) = (None, Recent::default(), None);
    }
}

/// Writes all files of `commit` that are missing or differ, whatever is in their place.
pub(super) async fn reset(git: &Git, commit: &str) -> Result<(), WorkspaceError> {
    git.bytes(&["read-tree", "--reset", "-u", commit]).await?;
    Ok(())
}

/// Whether starting from scratch may help: not with a living owner of a lock, a dead disk or a
/// missing git.
pub(super) fn is_damage(error: &WorkspaceError) -> bool {
    !matches!(
        error,
        WorkspaceError::Locked { .. } | WorkspaceError::Git(GitError::Start { .. } | GitError::Late { .. })
    )
}
