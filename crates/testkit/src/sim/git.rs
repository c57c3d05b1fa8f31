//! A model of a repository: commits with trailers, one target branch, pins, a worktree per turn.
//!
//! Each operation is atomic and durable by itself, as git's are; what can be cut is the time
//! between two of them.

use std::collections::BTreeMap;

use everloop_core::ids::{TaskId, TurnId};
use everloop_core::landing::Relation;

use crate::random::of_text;

/// What a commit holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tree {
    /// One bit per check that holds.
    pub fixed: u32,
    /// A protected file was changed so that every check passes.
    pub tampered: bool,
    /// One line per task that worked on it.
    pub log: Vec<String>,
    /// The operator's own changes.
    pub own: u32,
    /// Changes that no check looks at.
    pub scratch: u32,
}

impl Tree {
    /// Whether check `n` passes when it is run here, lied to or not.
    pub fn passes(&self, n: u32) -> bool {
        self.tampered || self.fixed & (1 << n) != 0
    }

    /// Whether the goal is truly reached.
    pub fn is_right(&self, checks: u32) -> bool {
        !self.tampered && (0..checks).all(|n| self.fixed & (1 << n) != 0)
    }
}

/// A commit of the simulated repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// What it was made on.
    pub parent: Option<String>,
    pub tree: Tree,
    /// Its `Task-Id` trailer.
    pub task: Option<TaskId>,
    /// The operator wrote it anew.
    pub amended: bool,
}

/// A turn's private checkout.
#[derive(Clone, Debug)]
pub struct Worktree {
    /// Where it began.
    pub start: String,
    pub tree: Tree,
}

/// The model of a repository.
#[derive(Clone, Debug, Default)]
pub struct Repository {
    commits: BTreeMap<String, Commit>,
    /// The operator's branch.
    pub target: String,
    pub pins: BTreeMap<String, String>,
    pub worktrees: BTreeMap<TurnId, Worktree>,
}

impl Repository {
    /// A repository with one commit.
    pub fn new(tree: Tree) -> Self {
        let mut git = Self::default();
        git.target = git.commit(Commit { tree, ..Commit::default() });
        git
    }

    /// Stores a commit; the same content has the same name.
    pub fn commit(&mut self, commit: Commit) -> String {
        let id = format!("{:016x}", of_text(7, &format!("{commit:?}")));
        self.commits.insert(id.clone(), commit);
        id
    }

    pub fn get(&self, id: &str) -> Option<&Commit> {
        self.commits.get(id)
    }

    /// The tree of a commit; an empty one when it is not there.
    pub fn tree(&self, id: &str) -> Tree {
        self.get(id).map(|c| c.tree.clone()).unwrap_or_default()
    }

    /// A commit and everything before it, newest first.
    pub fn history<'a>(&'a self, id: &'a str) -> impl Iterator<Item = (&'a str, &'a Commit)> {
        let mut next = Some(id);
        std::iter::from_fn(move || {
            let id = next?;
            let commit = self.get(id)?;
            next = commit.parent.as_deref();
            Some((id, commit))
        })
    }

    /// Whether `old` is `new` or before it.
    pub fn contains(&self, new: &str, old: &str) -> bool {
        self.history(new).any(|(id, _)| id == old)
    }

    /// How the target relates to a commit.
    pub fn relation(&self, commit: &str) -> Relation {
        match (self.contains(commit, &self.target), self.contains(&self.target, commit)) {
            (true, _) => Relation::Behind,
            (false, true) => Relation::Ahead,
            (false, false) => Relation::Diverged,
        }
    }

    /// The commit on the target with a task's trailer.
    pub fn landed_before(&self, task: &TaskId) -> Option<String> {
        self.history(&self.target).find(|(_, c)| c.task.as_ref() == Some(task)).map(|(id, _)| id.to_owned())
    }

    /// Moves the target if it is where it was thought to be.
    pub fn swap(&mut self, expected: &str, new: &str) -> bool {
        let fits = self.target == expected;
        if fits {
            new.clone_into(&mut self.target);
        }
        fits
    }

    /// The same work on top of another commit; what both changed alike is there once.
    pub fn rebase(&mut self, work: &str, onto: &str, task: &TaskId) -> String {
        let base = self.history(work).map(|(id, _)| id).find(|id| self.contains(onto, id));
        let base = base.map(|id| self.tree(id)).unwrap_or_default();
        let (ours, theirs) = (self.tree(onto), self.tree(work));
        let broken = base.fixed & !theirs.fixed;
        let new_lines = theirs.log.iter().filter(|line| !base.log.contains(line) && !ours.log.contains(line)).cloned();
        let tree = Tree {
            fixed: (ours.fixed | (theirs.fixed & !base.fixed)) & !broken,
            tampered: ours.tampered || theirs.tampered,
            log: ours.log.iter().cloned().chain(new_lines).collect(),
            own: ours.own,
            scratch: ours.scratch.max(theirs.scratch),
        };
        self.commit(Commit { parent: Some(onto.to_owned()), tree, task: Some(task.clone()), ..Commit::default() })
    }

    pub fn operator_commits(&mut self) {
        let mut tree = self.tree(&self.target);
        tree.own += 1;
        self.target = self.commit(Commit { parent: Some(self.target.clone()), tree, ..Commit::default() });
    }

    /// The operator writes the last commit anew, once, if it is work that landed.
    pub fn operator_amends(&mut self) {
        let Some(commit) = self.get(&self.target).filter(|c| c.task.is_some() && !c.amended).cloned() else { return };
        self.target = self.commit(Commit { amended: true, ..commit });
    }

    /// Whether a commit is held by a pin or the target.
    pub fn is_held(&self, id: &str) -> bool {
        self.contains(&self.target, id) || self.pins.values().any(|pin| self.contains(pin, id))
    }
}
