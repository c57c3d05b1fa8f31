//! The shared repository: commits are sets of files, a merge is their union.

use std::collections::{BTreeMap, BTreeSet};

use everloop_core::ids::TaskId;

/// A commit, by its number.
pub(super) type Commit = usize;

/// The shared repository of the mesh.
#[derive(Debug)]
pub(super) struct MeshRepository {
    commits: Vec<BTreeSet<String>>,
    /// Where the branch is.
    pub target: Commit,
    /// How often the merge of each task stands on the branch.
    landed: BTreeMap<TaskId, u64>,
    /// Champions since the beginning of a research run, and the tasks that made them.
    line: Vec<(Commit, TaskId)>,
}

impl MeshRepository {
    pub fn new() -> Self {
        Self { commits: vec![BTreeSet::new()], target: 0, landed: BTreeMap::new(), line: Vec::new() }
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
            *self.landed.entry(task.clone()).or_default() += 1;
        }
        fits
    }

    /// Moves the champion, if its ref is at `old`. What stood there after `base` is gone.
    pub fn crown(&mut self, (old, base): (Commit, Commit), new: Commit, task: &TaskId) -> bool {
        let fits = self.target == old;
        if fits {
            let kept = self.line.iter().position(|(commit, _)| *commit == base).map_or(0, |at| at + 1);
            for (_, gone) in self.line.drain(kept..) {
                self.landed.remove(&gone);
            }
            self.line.push((new, task.clone()));
            self.target = new;
            *self.landed.entry(task.clone()).or_default() += 1;
        }
        fits
    }

    /// The task of the champion.
    pub fn crowned(&self) -> Option<&TaskId> {
        self.line.last().filter(|(commit, _)| *commit == self.target).map(|(_, task)| task)
    }

    /// A commit from outside the mesh moves the branch.
    pub fn push(&mut self, file: String) {
        let mut files = self.commits[self.target].clone();
        files.insert(file);
        self.target = self.commit(files);
    }

    /// How often a task's trailer stands on the branch.
    pub fn times(&self, task: &TaskId) -> u64 {
        self.landed.get(task).copied().unwrap_or(0)
    }

    pub fn landed(&self) -> u64 {
        self.landed.values().sum()
    }
}
