//! A private worktree of a repository: created once, brought to a commit again and again, removed
//! at the end. Owns everything in its folder and in its part of the git folder; never touches
//! another worktree.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{fs, io};

use super::fingerprint::{self, Fingerprint, FingerprintScope, Sources, Unsealed};
use super::locks::{self, Shared};
use super::{WorkspaceError, files};
use crate::git::{self, Git, LONG_DEADLINE};

/// State of unfinished git operations; an agent may leave any of them behind.
const UNFINISHED: &[&str] = &[
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "MERGE_HEAD",
    "MERGE_MSG",
    "MERGE_MODE",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "BISECT_LOG",
    "BISECT_START",
];

/// A private worktree.
#[derive(Debug)]
pub(super) struct Worktree {
    path: PathBuf,
    common: PathBuf,
    operators: Git,
    shared: Shared,
    /// What git reads besides the repository.
    sources: Mutex<Option<Sources>>,
    /// The fingerprint of the last clean state, and the commit that was checked out there.
    clean: Mutex<Option<(Fingerprint, Option<String>)>>,
}

/// The result of `git status` in a worktree.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TreeStatus {
    pub head: Option<String>,
    /// The branch checked out, unless detached.
    pub branch: Option<String>,
    /// Nothing differs from `head`, nothing is untracked.
    pub clean: bool,
    /// Untracked repositories in the tree.
    pub nested: Vec<PathBuf>,
}

/// What to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Whether anything is untracked.
    Folders,
    /// Every untracked file, so that repositories among them are found.
    Files,
    Tracked,
}

impl Worktree {
    /// The worktree at `path` (absolute, without links) of the repository with the git folder
    /// `common`. Nothing is created before [`Worktree::bring_to`].
    pub fn new(path: PathBuf, common: &Path, shared: Shared) -> Self {
        let operators = Git::shared(common);
        let (sources, clean) = (Mutex::default(), Mutex::default());
        Self { path, common: common.to_owned(), operators, shared, sources, clean }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// git, run in this worktree; an error when the worktree does not exist.
    pub fn git(&self) -> Result<Git, WorkspaceError> {
        Ok(Git::ours(&self.path, &self.admin_of_present()?))
    }

    /// Checks out exactly `commit`: detached, no changes, nothing untracked; ignored files stay.
    /// Leftovers of a crash or of an agent are cleared, and what cannot be cleared is created again
    /// from scratch.
    pub async fn bring_to(&self, commit: &str) -> Result<Brought, WorkspaceError> {
        if self.git().is_ok() {
            match self.clear_to(commit).await {
                Ok(()) => return Ok(Brought::Kept),
                // A living owner of a lock, a dead disk, a missing git: creating it again would not
                // help.
                Err(
                    error @ (WorkspaceError::Locked { .. }
                    | WorkspaceError::Git(git::GitError::Start { .. } | git::GitError::Late { .. })),
                ) => {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
        let _held = self.shared.hold().await?;
        self.erase().await?;
        let add = self.operators.clone().within(LONG_DEADLINE);
        let verb = ["worktree", "add", "--quiet", "--detach", "--"].map(OsStr::new);
        add.bytes(&[&verb[..], &[self.path.as_os_str(), OsStr::new(commit)]].concat()).await?;
        Ok(Brought::Made)
    }

    async fn clear_to(&self, commit: &str) -> Result<(), WorkspaceError> {
        self.repair().await?;
        let look = self.look(Detail::Folders).await?;
        if look.clean && look.branch.is_none() && look.head.as_deref() == Some(commit) {
            return Ok(());
        }
        let git = self.git()?.within(LONG_DEADLINE);
        git.bytes(&["checkout", "--quiet", "--force", "--detach", commit, "--"]).await?;
        // Twice the force: removes repositories that an agent created in here, too.
        git.bytes(&["clean", "--quiet", "-ffd"]).await?;
        Ok(())
    }

    /// Repairs what an agent or a crash may have left: stale locks, half a rebase, a lost link to
    /// the repository.
    pub async fn repair(&self) -> Result<(), WorkspaceError> {
        let admin = self.admin_of_present()?;
        locks::clear_stale(&admin, &self.path).await?;
        for name in UNFINISHED {
            files::remove(&admin.join(name)).map_err(WorkspaceError::files("remove", &admin.join(name)))?;
        }
        let link = self.path.join(".git");
        let wanted = [b"gitdir: ", admin.as_os_str().as_bytes(), b"\n"].concat();
        if !fs::symlink_metadata(&link).is_ok_and(|m| m.is_file()) || fs::read(&link).ok().as_ref() != Some(&wanted) {
            // A repository that the agent put in its place is moved aside and kept.
            files::set_aside(&link, &self.strays()).map_err(WorkspaceError::files("move", &link))?;
            fs::write(&link, wanted).map_err(WorkspaceError::files("write", &link))?;
        }
        Ok(())
    }

    /// One `git status`, or none if nothing changed since the last one and that was clean.
    pub async fn look(&self, detail: Detail) -> Result<TreeStatus, WorkspaceError> {
        let mut git = self.git()?.within(LONG_DEADLINE);
        let fingerprint = self.fingerprint(&git).await?;
        let clean = || self.clean.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Ok(now), Some((then, head))) = (&fingerprint, &*clean())
            && now == then
        {
            return Ok(TreeStatus { head: head.clone(), clean: true, ..TreeStatus::default() });
        }
        if fingerprint != Err(Unsealed::Beyond) {
            // Within the second of a checkout git would rewrite its index each time, and that would
            // count as a change.
            git = git.with("GIT_OPTIONAL_LOCKS", "0");
        }
        let look = status(&git, detail).await?;
        let plain = look.clean && look.branch.is_none();
        *clean() = fingerprint.ok().filter(|_| plain).map(|fingerprint| (fingerprint, look.head.clone()));
        Ok(look)
    }

    async fn fingerprint(&self, git: &Git) -> Result<Result<Fingerprint, Unsealed>, WorkspaceError> {
        let scope =
            FingerprintScope { tree: self.path.clone(), admin: self.admin_of_present()?, common: self.common.clone() };
        let known = self.sources.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sources = match known.filter(Sources::hold) {
            Some(sources) => Some(sources),
            None => Sources::list(git, &scope).await?,
        };
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&sources);
        let Some(sources) = sources else { return Ok(Err(Unsealed::Beyond)) };
        files::apart(move || Ok(fingerprint::take(&scope, &sources))).await
    }

    /// Folder for files that were moved aside.
    pub fn strays(&self) -> PathBuf {
        self.path.with_extension("strays")
    }

    /// Removes the worktree and git's record of it.
    pub async fn remove(&self) -> Result<(), WorkspaceError> {
        let _held = self.shared.hold().await?;
        self.erase().await?;
        // git does the same when its last worktree is removed; others may still exist.
        match fs::remove_dir(self.common.join("worktrees")) {
            Err(e) if !matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => {
                Err(WorkspaceError::files("remove", &self.common.join("worktrees"))(e))
            }
            _ => Ok(()),
        }
    }

    async fn erase(&self) -> Result<(), WorkspaceError> {
        for path in [Some(self.path.clone()), self.admin()].into_iter().flatten() {
            // Dependencies in a worktree can be a million files.
            files::apart(move || files::remove(&path).map_err(WorkspaceError::files("remove", &path))).await?;
        }
        Ok(())
    }

    /// The part of the git folder that belongs to this worktree: the one that points back at it.
    /// git chooses the names and the agent can write the link in the worktree, so neither is
    /// trusted.
    fn admin(&self) -> Option<PathBuf> {
        let link = self.path.join(".git");
        let points_here = |admin: &PathBuf| {
            fs::read(admin.join("gitdir")).is_ok_and(|text| git::path_from(text.trim_ascii_end()) == link)
        };
        fs::read_dir(self.common.join("worktrees")).ok()?.flatten().map(|e| e.path()).find(points_here)
    }

    /// The same, for an existing worktree.
    fn admin_of_present(&self) -> Result<PathBuf, WorkspaceError> {
        let broken = |why: &str| WorkspaceError::Broken { path: self.path.clone(), why: why.to_owned() };
        if !self.path.is_dir() {
            return Err(broken("its folder is gone"));
        }
        self.admin().ok_or_else(|| broken("git does not know it any more"))
    }

    /// git, run in the git folder that all worktrees share.
    pub fn shared_git(&self) -> &Git {
        &self.operators
    }
}

#[cfg(test)]
impl Worktree {
    /// Whether the next look would not run git.
    pub async fn has_fingerprint(&self) -> bool {
        let fingerprint = self.fingerprint(&self.git().unwrap()).await.unwrap();
        fingerprint.is_ok_and(|now| self.known().is_some_and(|(then, _)| then == now))
    }

    /// What the last look left for the next one.
    pub fn known(&self) -> Option<(Fingerprint, Option<String>)> {
        self.clean.lock().unwrap().clone()
    }

    /// Reverts to the state after the look that left `known`.
    pub fn pretend(&self, known: Option<(Fingerprint, Option<String>)>) {
        *self.clean.lock().unwrap() = known;
    }
}

/// How a worktree was brought to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Brought {
    /// It existed; ignored files are still in it.
    Kept,
    /// It was created; its setup has to run.
    Made,
}

/// One `git status` in the worktree where `git` runs.
pub(super) async fn status(git: &Git, detail: Detail) -> Result<TreeStatus, WorkspaceError> {
    let untracked = match detail {
        Detail::Folders => "--untracked-files=normal",
        Detail::Files => "--untracked-files=all",
        Detail::Tracked => "--untracked-files=no",
    };
    let args = ["status", "--porcelain=v2", "-z", "--branch", "--no-renames", "--ignore-submodules=dirty", untracked];
    let out = git.bytes(&args).await?;
    let mut look = TreeStatus { clean: true, ..TreeStatus::default() };
    for record in git::records(&out) {
        let text = String::from_utf8_lossy(record);
        if let Some(oid) = text.strip_prefix("# branch.oid ") {
            look.head = (oid != "(initial)").then(|| oid.to_owned());
        } else if let Some(name) = text.strip_prefix("# branch.head ") {
            look.branch = (name != "(detached)").then(|| name.to_owned());
        } else if !text.starts_with("# ") {
            look.clean = false;
            if let (Detail::Files, Some(path)) = (detail, record.strip_prefix(b"? ").and_then(|p| p.strip_suffix(b"/")))
            {
                look.nested.push(git::path_from(path));
            }
        }
    }
    Ok(look)
}
