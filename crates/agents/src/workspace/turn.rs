//! A turn in its worktree: where it starts, and what it made. The agent is not running while this
//! code is.
//!
//! Crash windows: the note about the base is written before the agent can start, and the pin is set
//! before anything in the worktree is touched again. So a restarted supervisor can always collect,
//! and collecting twice gives the same commit.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use everloop_core::ids::TurnId;
use serde::{Deserialize, Serialize};

use super::merge::{Joined, commit_tree, relation, subject, trailers};
use super::tree::Detail;
use super::worktrees::{BaseChoice, Worktrees};
use super::{Base, Collected, CommitMeta, Dropped, PathChange, Side, WorkspaceError, diff, files, refs};
use crate::git::{self, Git, LONG_DEADLINE};
use crate::protect;
use everloop_core::landing::Relation;

/// Where a turn started, kept so that another supervisor can collect its work.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    version: u32,
    turn: TurnId,
    base: String,
    /// The base is empty and must not become a parent.
    rootless: bool,
}

const NOTE_VERSION: u32 = 1;

impl Worktrees {
    /// Brings the turn's worktree to the start of the turn.
    pub async fn prepare(&mut self, turn: &TurnId, work: Option<&str>) -> Result<Base, WorkspaceError> {
        let target = match &self.chosen {
            // The last choice is still valid: the ref has not moved since.
            Some(BaseChoice { target: Some(known), .. })
                if refs::loose(&self.place.common, &self.target).as_ref() == Some(known) =>
            {
                Some(known.clone())
            }
            _ => self.git().commit(&self.target).await?,
        };
        let line = match work {
            Some(work) => Some(work.to_owned()),
            None => self.include_dirty.then(|| self.start.clone()),
        };
        let known = self.chosen.as_ref().filter(|c| c.target == target && c.line == line);
        let base = match known {
            Some(choice) => choice.base.clone(),
            None => self.choose(target.as_deref(), line.as_deref()).await?,
        };
        let commit = base.commit.clone().unwrap_or_else(|| self.start.clone());
        let rootless = self.empty.as_ref() == Some(&commit);
        self.chosen = Some(BaseChoice { target, line, base: base.clone() });
        self.bring(Side::Turn, &commit).await?;
        let note = Note { version: NOTE_VERSION, turn: turn.clone(), base: commit, rootless };
        files::write_note(&self.note_path(), &note).map_err(WorkspaceError::files("write", &self.note_path()))?;
        Ok(base)
    }

    /// Which commit a turn starts from: the work line, with the target in it.
    async fn choose(&self, target: Option<&str>, line: Option<&str>) -> Result<Base, WorkspaceError> {
        let plain = |commit: &str| Base { commit: Some(commit.to_owned()), ..Base::default() };
        let (target, line) = match (target, line) {
            (None, None) => return Ok(plain(&self.start)),
            (Some(only), None) | (None, Some(only)) => return Ok(plain(only)),
            (Some(target), Some(line)) => (target, line),
        };
        match relation(self.git(), target, line).await? {
            Relation::Behind => Ok(plain(line)),
            Relation::Ahead => Ok(plain(target)),
            Relation::Diverged => {
                match self.join(target, line, "everloop: go on from where the target is now").await? {
                    Joined::Done(merge) => Ok(Base { merged: true, ..plain(&merge) }),
                    Joined::Conflict(paths) => {
                        Ok(Base { dropped: Some(Dropped { commit: line.to_owned(), paths }), ..plain(target) })
                    }
                }
            }
        }
    }

    /// Keeps the result of the turn.
    pub async fn collect(&mut self, commit_meta: &CommitMeta<'_>) -> Result<Collected, WorkspaceError> {
        let turn = commit_meta.turn();
        let note: Option<Note> =
            files::read_note(&self.note_path()).map_err(WorkspaceError::files("read", &self.note_path()))?;
        let note = note.filter(|n| n.turn == turn).ok_or(WorkspaceError::Unprepared { turn })?;
        self.turn.repair().await?;
        let look = self.turn.look(Detail::Files).await?;
        if look.clean && look.head.as_deref() == Some(&*note.base) {
            return Ok(Collected::default());
        }
        let git = self.turn.git()?.within(LONG_DEADLINE);
        let mut notes = self.take_in(&look.nested)?;
        let tree = stage(&git, &mut notes).await?;
        if tree == tree_of(&git, &note.base).await? {
            return Ok(Collected { notes, ..Collected::default() });
        }
        let (commit, pin) = self.keep(commit_meta, &note, Made { tree, head: look.head }).await?;
        let files = diff::files(&git, &note.base, &commit).await?;
        let (diffstat, changes) = (diff::sum(&files), diff::paths(files));
        let violations = self.violations(&changes).await?;
        Ok(Collected { changed: true, commit: Some(commit), pin: Some(pin), diffstat, changes, violations, notes })
    }

    /// Repositories that the agent created inside the tree are taken as plain files: git would keep
    /// only a link to a commit that exists nowhere else.
    fn take_in(&self, nested: &[PathBuf]) -> Result<Vec<String>, WorkspaceError> {
        for dir in nested {
            let link = self.turn.path().join(dir).join(".git");
            files::set_aside(&link, &self.turn.strays()).map_err(WorkspaceError::files("move", &link))?;
        }
        Ok(nested.iter().map(|d| format!("the repository `{}` was taken as plain files", d.display())).collect())
    }

    /// Creates the commit and pins it; returns the one of an earlier call if nothing changed since.
    async fn keep(
        &self,
        commit_meta: &CommitMeta<'_>,
        note: &Note,
        made: Made,
    ) -> Result<(String, String), WorkspaceError> {
        let git = self.git();
        let pin = refs::pin(&self.owner, commit_meta.task, commit_meta.fence);
        if let Some(old) = git.commit(&pin).await? {
            if tree_of(git, &old).await? == made.tree {
                return Ok((old, pin));
            }
            // The worktree changed after the first call; both commits are kept.
            git.bytes(&["update-ref", &format!("{pin}-{}", &old[..old.len().min(12)]), &old]).await?;
        }
        let parent = match made.head {
            Some(head) if head == note.base => (!note.rootless).then_some(head),
            // Commits of the agent are kept as they are; a head that left the line (a switch, a
            // reset) is not.
            Some(head) if git.asks(&["merge-base", "--is-ancestor", &note.base, &head]).await? => Some(head),
            _ => (!note.rootless).then(|| note.base.clone()),
        };
        let message = format!("{}\n\n{}", subject(commit_meta.subject), trailers(commit_meta));
        let parents: Vec<&str> = parent.as_deref().into_iter().collect();
        let commit = commit_tree(git, &made.tree, &parents, &message).await?;
        git.bytes(&["update-ref", &pin, &commit]).await?;
        Ok((commit, pin))
    }

    /// Protected files among `changes` that existed when the loop began.
    async fn violations(&self, changes: &[PathChange]) -> Result<Vec<String>, WorkspaceError> {
        if protect::violations(changes, |_| true, &self.globs).is_empty() {
            return Ok(Vec::new());
        }
        let listed = self.git().bytes(&["ls-tree", "-r", "-z", "--full-tree", "--name-only", &self.start]).await?;
        let existed: BTreeSet<PathBuf> = git::records(&listed).map(git::path_from).collect();
        Ok(protect::violations(changes, |path: &Path| existed.contains(path), &self.globs))
    }

    fn note_path(&self) -> PathBuf {
        self.root.join("turn.json")
    }
}

/// The content of the worktree at the end of a turn.
struct Made {
    tree: String,
    head: Option<String>,
}

/// Everything in the worktree as a tree object.
async fn stage(git: &Git, notes: &mut Vec<String>) -> Result<String, WorkspaceError> {
    let added = git.run(&["add", "-A"]).await?;
    if added.code != 0 {
        // An unreadable file is no reason to lose the others. Everything else, a full disk above
        // all, is.
        if !added.stderr.contains("Permission denied") {
            return Err(added.failure().into());
        }
        notes.push(format!("not everything could be kept: {}", added.stderr));
        git.run(&["add", "-A", "--ignore-errors"]).await?;
    }
    Ok(git.line(&["write-tree"]).await?)
}

async fn tree_of(git: &Git, commit: &str) -> Result<String, WorkspaceError> {
    Ok(git.line(&["rev-parse", "--verify", "--quiet", &format!("{commit}^{{tree}}")]).await?)
}
