//! The shared repository: commits are sets of files, a merge is their union.

use std::collections::{BTreeMap, BTreeSet};

use everloop_core::ids::TaskId;

/// A commit, by its number.
pub(super) type Commit = usize;

/// The repository.
#[derive(Debug)]
pub(super) struct Git {
    commits: Vec<BTreeSet<String>>,
    /// Where the branch is.
    pub target: Commit,
    /// Whose merges stand on it, oldest first.
    pub landed: Vec<TaskId>,
    pub refs: BTreeMap<String, Commit>,
}

impl Git {
    pub fn new() -> Self {
        Self { commits: vec![BTreeSet::new()], target: 0, landed: Vec::new(), refs: BTreeMap::new() }
    }

    pub fn commit(&mut self, files: BTreeSet<String>) -> Commit {
        self.commits.push(files);
        self.commits.len() - 1
    }

    pub fn files(&self, commit: Commit) -> &BTreeSet<String> {
        &self.commits[commit]
    }

    /// The merge of two commits.
    pub fn join(&mut self, a: Commit, b: Commit) -> Commit {
        let files = self.commits[a].union(&self.commits[b]).cloned().collect();
        self.commit(files)
    }

    /// Moves the branch, if it is where it is thought to be.
    pub fn land(&mut self, old: Commit, new: Commit, task: &TaskId) -> bool {
        let fits = self.target == old;
        if fits {
            self.target = new;
            self.landed.push(task.clone());
        }
        fits
    }
}
