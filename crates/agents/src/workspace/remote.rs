//! A repository that many nodes share: fetching from it, pushing work to it, and moving its branch.
//! Each node has a bare clone of its own, whose objects the clones of its loops read.
//!
//! The branch moves in one place, [`Remote::land`], by one compare-and-swap at the remote. A crash
//! after it is detected by the trailer of the merge: so work lands at most once, whichever node
//! tries.

use std::fs;
use std::path::{Path, PathBuf};

use everloop_core::commit_message::subject;
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::landing::Relation;
use everloop_core::planted::{self, Bug};
use everloop_core::spec::WorkspaceSpec;

use super::forget::delete_refs;
use super::judge::{self, Between};
use super::merge::{Joined, commit_tree, merge_tree, relation, trailers};
use super::{CommitMeta, WorkspaceError, diff, files};
use crate::git::{self, Git, LONG_DEADLINE};
use crate::protect::Globs;

/// Merges that are searched for a trailer: a node that missed more than this runs the checks again
/// in any case.
const LOOKED_THROUGH: &str = "-n5000";

/// A clone and its remote.
#[derive(Clone, Debug)]
pub struct Remote {
    git: Git,
    dir: PathBuf,
    url: String,
}

/// The result of merging the work of a task onto the branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joining {
    /// A merge that is not on the branch yet.
    Ready {
        /// The tip of the branch.
        target: String,
        commit: String,
    },
    /// The task's merge is already on the branch.
    Landed { commit: String },
    /// The branch has all of the work, though not by this task.
    Contained,
    /// They cannot be merged.
    Conflict {
        /// The conflicting files.
        paths: Vec<String>,
    },
}

/// The result of a requested move of the branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The branch is at the new commit.
    Done,
    /// The branch has moved elsewhere meanwhile.
    Moved,
}

/// Removes all refs of a loop from the clone in `dir`; without them git may drop its commits.
pub async fn remove_refs(dir: &Path, owner: &LoopId) -> Result<(), WorkspaceError> {
    if !dir.join(".git/HEAD").exists() {
        return Ok(());
    }
    delete_refs(&Git::sharing(dir), owner).await
}

impl Remote {
    /// Opens the clone in `dir`; creates an empty one if there is none.
    pub async fn open(dir: &Path, url: &str) -> Result<Self, WorkspaceError> {
        files::make_private(dir).map_err(WorkspaceError::files("make", dir))?;
        let git = Git::sharing(dir).within(LONG_DEADLINE);
        if !dir.join(".git/HEAD").exists() {
            git.bytes(&["init", "--quiet"]).await?;
        }
        Ok(Self { git, dir: dir.to_owned(), url: url.to_owned() })
    }

    /// The folder of the clone that corresponds to `below`.
    pub fn folder(&self, below: &str) -> Result<PathBuf, WorkspaceError> {
        let folder = self.dir.join(below);
        fs::create_dir_all(&folder).map_err(WorkspaceError::files("make", &folder))?;
        Ok(folder)
    }

    /// The commit of a ref at the remote, which is fetched; `None` when the ref does not exist.
    pub async fn fetch(&self, reference: &str) -> Result<Option<String>, WorkspaceError> {
        let refspec = format!("+{reference}:{}", tracking(reference));
        let options = ["--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"];
        let args: Vec<&str> = ["fetch"].into_iter().chain(options).chain(["--", &self.url, &refspec]).collect();
        let output = self.git.run(&args).await?;
        if output.code != 0 && output.stderr.contains("couldn't find remote ref") {
            return Ok(None);
        }
        output.success()?;
        Ok(self.git.commit(&tracking(reference)).await?)
    }

    /// The commit of a ref of the clone itself.
    pub async fn local(&self, reference: &str) -> Result<Option<String>, WorkspaceError> {
        Ok(self.git.commit(reference).await?)
    }

    /// Creates a ref of the clone itself, unless it exists.
    pub async fn begin(&self, reference: &str, commit: &str) -> Result<(), WorkspaceError> {
        if self.git.commit(reference).await?.is_none() {
            self.git.bytes(&["update-ref", reference, commit, ""]).await?;
        }
        Ok(())
    }

    /// Pushes `commit` to `reference` of the remote, which has no other writer.
    pub async fn pin(&self, commit: &str, reference: &str) -> Result<(), WorkspaceError> {
        let refspec = format!("+{commit}:{reference}");
        self.git.bytes(&["push", "--quiet", "--no-verify", "--", &self.url, &refspec]).await?;
        Ok(())
    }

    /// The branch with the work of a task merged into it.
    pub async fn join(
        &self,
        branch: &str,
        work: &str,
        commit_meta: &CommitMeta<'_>,
    ) -> Result<Joining, WorkspaceError> {
        let target = self.fetch(branch).await?.ok_or_else(|| self.no_branch(branch))?;
        if let Some(commit) = self.landed(&target, commit_meta.task).await? {
            return Ok(Joining::Landed { commit });
        }
        if relation(&self.git, &target, work).await? == Relation::Ahead || target == work {
            return Ok(Joining::Contained);
        }
        match merge_tree(&self.git, &target, work).await?.ok_or_else(|| self.old_git())? {
            Joined::Conflict(paths) => Ok(Joining::Conflict { paths }),
            Joined::Done(tree) => {
                let message = format!("{}\n\n{}", subject(&commit_meta.done), trailers(commit_meta));
                let commit = commit_tree(&self.git, &tree, &[&target, work], &message).await?;
                Ok(Joining::Ready { target, commit })
            }
        }
    }

    /// The change of `work`, which began from a former `target`, on the present one: one commit with
    /// no other parent, so that the line stays one.
    pub async fn replay(
        &self,
        target: &str,
        work: &str,
        commit_meta: &CommitMeta<'_>,
    ) -> Result<Joining, WorkspaceError> {
        match merge_tree(&self.git, target, work).await?.ok_or_else(|| self.old_git())? {
            Joined::Conflict(paths) => Ok(Joining::Conflict { paths }),
            Joined::Done(tree) => {
                let there = self.git.line(&["rev-parse", "--verify", &format!("{target}^{{tree}}")]).await?;
                if there == tree {
                    return Ok(Joining::Contained);
                }
                let message = format!("{}\n\n{}", subject(&commit_meta.done), trailers(commit_meta));
                let commit = commit_tree(&self.git, &tree, &[target], &message).await?;
                Ok(Joining::Ready { target: target.to_owned(), commit })
            }
        }
    }

    /// Whether a commit carries the trailer of a task.
    pub async fn is_of(&self, commit: &str, task: &TaskId) -> Result<bool, WorkspaceError> {
        let format = "--format=%(trailers:key=Task-Id,valueonly)";
        let found = self.git.line(&["show", "--no-patch", "--no-show-signature", format, commit, "--"]).await?;
        Ok(found.lines().any(|value| value.trim() == task.as_str()))
    }

    /// Files that `commit` changes on the branch at `target` although they are protected or decide
    /// the checks.
    pub async fn violations(
        &self,
        target: &str,
        commit: &str,
        spec: &WorkspaceSpec,
    ) -> Result<Vec<String>, WorkspaceError> {
        if planted::is(Bug::LandsUninspected) {
            return Ok(Vec::new());
        }
        let changes = diff::paths(diff::files(&self.git, target, commit).await?);
        let globs = Globs::new(&spec.protect)?.judging(&spec.judge);
        judge::violations(&self.git, &globs, &changes, &Between { start: target, from: target, to: commit }).await
    }

    /// Moves the branch from `old` to `new`, if it is at `old`.
    pub async fn land(&self, branch: &str, old: &str, new: &str) -> Result<Pushed, WorkspaceError> {
        let lease = format!("--force-with-lease={branch}:{old}");
        let refspec = format!("{new}:{branch}");
        let args = ["push", "--quiet", "--no-verify", "--porcelain", &lease, "--", &self.url, &refspec];
        let output = self.git.run(&args).await?;
        if output.code == 0 {
            return Ok(Pushed::Done);
        }
        match self.fetch(branch).await? {
            Some(now) if now == new => Ok(Pushed::Done),
            Some(now) if now != old => Ok(Pushed::Moved),
            _ => Err(output.failure().into()),
        }
    }

    /// The merge with which a task landed on the branch.
    async fn landed(&self, target: &str, task: &TaskId) -> Result<Option<String>, WorkspaceError> {
        let wanted = task.as_str();
        let format = "--format=%H%n%(trailers:key=Task-Id,valueonly)";
        let log =
            ["log", "-z", "--first-parent", "--merges", LOOKED_THROUGH, "--no-show-signature", format, target, "--"];
        let out = self.git.bytes(&log).await?;
        let found = git::records(&out).find_map(|record| {
            let text = String::from_utf8_lossy(record);
            let (id, values) = text.split_once('\n')?;
            values.lines().any(|value| value.trim() == wanted).then(|| id.to_owned())
        });
        Ok(found)
    }

    fn no_branch(&self, branch: &str) -> WorkspaceError {
        WorkspaceError::Broken { path: self.dir.clone(), why: format!("the remote has no `{branch}`") }
    }

    fn old_git(&self) -> WorkspaceError {
        WorkspaceError::Broken { path: self.dir.clone(), why: "merging needs git 2.38 or newer".to_owned() }
    }
}

/// The address of a remote as other nodes can use it: `name` is resolved, a path is made absolute.
pub async fn address_of(dir: &Path, name: &str) -> Result<String, WorkspaceError> {
    let known = Git::operators(dir).run(&["remote", "get-url", "--", name]).await?;
    let url = if known.code == 0 { String::from_utf8_lossy(&known.stdout).trim().to_owned() } else { name.to_owned() };
    let path = dir.join(&url);
    if !url.contains("://") && path.exists() {
        let path = path.canonicalize().map_err(WorkspaceError::files("find", &path))?;
        return Ok(path.to_string_lossy().into_owned());
    }
    Ok(url)
}

/// The tip of a remote branch, without fetching anything.
pub async fn remote_branch(dir: &Path, url: &str, branch: &str) -> Result<Option<String>, WorkspaceError> {
    let out = Git::sharing(dir).bytes(&["ls-remote", "--quiet", "--", url, branch]).await?;
    let text = String::from_utf8_lossy(&out);
    let found = text.lines().filter_map(|line| line.split_once('\t')).find(|(_, name)| *name == branch);
    Ok(found.map(|(commit, _)| commit.to_owned()))
}

/// Fetches those of these commits that the repository in `dir` lacks; no ref is made here.
pub async fn fetch_commits(dir: &Path, url: &str, commits: &[&str]) -> Result<(), WorkspaceError> {
    let git = Git::sharing(dir).within(LONG_DEADLINE);
    let mut lacks = Vec::new();
    for commit in commits {
        if git.run(&["cat-file", "-e", &format!("{commit}^{{commit}}")]).await?.code != 0 {
            lacks.push(*commit);
        }
    }
    if !lacks.is_empty() {
        let options = ["--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--", url];
        let args: Vec<&str> = ["fetch"].into_iter().chain(options).chain(lacks).collect();
        git.bytes(&args).await?;
    }
    Ok(())
}

/// The ref in the clone that tracks a ref of the remote.
fn tracking(reference: &str) -> String {
    format!("refs/remote/{}", reference.trim_start_matches("refs/"))
}
