//! Writes a project's file and connects agents' CLIs in its folder; removes all of that again, and
//! only that.

use std::path::{Path, PathBuf};

use crate::error::Failure;
use crate::install::FileChange;
use crate::install::plan::{self, AgentCli};
use crate::install::record::Originals;

use super::{ServiceContext, agents, trust};

/// What becomes of a project's file that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingFile {
    Keep,
    Overwrite,
}

/// Set up the folder of the caller.
#[derive(Clone, Debug)]
pub struct InitRequest {
    /// The project's file.
    pub path: PathBuf,
    pub text: String,
    pub existing: ExistingFile,
    /// The CLIs to connect.
    pub clis: Vec<AgentCli>,
}

/// What a setup changes.
#[derive(Clone, Debug)]
pub struct InitPlan {
    /// The project's file.
    pub path: PathBuf,
    /// Whether the project's file stays as it is.
    pub kept: bool,
    /// The project's file first, unless it is kept.
    pub changes: Vec<FileChange>,
}

/// What a removal changes.
#[derive(Clone, Debug)]
pub struct RemovalPlan {
    pub changes: Vec<FileChange>,
    /// The project's file, when it was changed since it was written: it stays.
    pub kept: Vec<PathBuf>,
}

/// The CLIs that are installed and can be connected.
pub fn installed_clis() -> Vec<AgentCli> {
    AgentCli::ALL.into_iter().filter(|cli| agents::is_installed(cli.kind())).collect()
}

/// Plans a setup; writes nothing.
pub fn plan(context: &ServiceContext, request: InitRequest) -> Result<InitPlan, Failure> {
    let InitRequest { path, text, existing, clis } = request;
    let kept = path.exists() && existing == ExistingFile::Keep;
    let mut changes = plan::put(&context.dir, &clis).map_err(|e| cannot_edit(&e))?;
    if !kept {
        let mut change = FileChange::of(path.clone()).map_err(|e| cannot_edit(&e))?;
        change.after = Some(text);
        changes.insert(0, change);
    }
    Ok(InitPlan { path, kept, changes })
}

impl InitPlan {
    /// The changed lines of files other than the project's.
    pub fn lines(&self, context: &ServiceContext) -> Vec<String> {
        let others = self.changes.iter().filter(|change| change.path != self.path);
        others.flat_map(|change| change.lines(&context.dir)).collect()
    }

    /// The changed files.
    pub fn files(&self) -> Vec<&Path> {
        self.changes.iter().map(|change| change.path.as_path()).collect()
    }

    /// The files to commit, relative to the folder; none outside of git. Turns see commits only:
    /// instructions and hooks that are not committed reach no agent.
    pub fn to_commit(&self, context: &ServiceContext) -> Vec<String> {
        let dir = &context.dir;
        if !dir.ancestors().any(|folder| folder.join(".git").exists()) {
            return Vec::new();
        }
        self.files().iter().map(|path| path.strip_prefix(dir).unwrap_or(path).display().to_string()).collect()
    }

    /// Records the previous content, then writes.
    pub fn perform(&self, context: &ServiceContext) -> Result<(), Failure> {
        let home = context.home()?;
        let mut originals = Originals::load(&home, &context.dir).map_err(|e| cannot_edit(&e))?;
        for change in &self.changes {
            originals.add(change, &context.dir);
        }
        originals.save(&home, &context.dir).map_err(|e| cannot_edit(&e))?;
        for change in &self.changes {
            let written = change.perform(&context.dir);
            written.map_err(|e| Failure::failed(format!("cannot write `{}`", change.path.display())).because(&e))?;
        }
        Ok(())
    }
}

fn cannot_edit(error: &std::io::Error) -> Failure {
    Failure::failed("cannot connect the agents' CLIs in this project").because(error)
}

/// Plans a removal from the folder of the caller; changes nothing. `file` is the name of a
/// project's file.
pub fn plan_removal(context: &ServiceContext, file: &str) -> Result<RemovalPlan, Failure> {
    let (home, root) = (context.home()?, &context.dir);
    let originals = Originals::load(&home, root).map_err(cannot_remove)?;
    let mut changes = originals.undo(root).map_err(cannot_remove)?;
    let by_parts = plan::take(root, &|path| originals.of(path, root)).map_err(cannot_remove)?;
    changes
        .extend(by_parts.into_iter().filter(|c| !changes.iter().any(|done| done.path == c.path)).collect::<Vec<_>>());
    changes.retain(FileChange::is_real);
    let kept: Vec<PathBuf> = originals
        .paths(root)
        .into_iter()
        .filter(|path| path.ends_with(file) && path.exists() && !changes.iter().any(|c| c.path == *path))
        .collect();
    Ok(RemovalPlan { changes, kept })
}

impl RemovalPlan {
    /// The changed lines.
    pub fn lines(&self, context: &ServiceContext) -> Vec<String> {
        self.changes.iter().flat_map(|change| change.lines(&context.dir)).collect()
    }

    /// The changed files.
    pub fn files(&self) -> Vec<&Path> {
        self.changes.iter().map(|change| change.path.as_path()).collect()
    }

    /// Changes the files, and takes trust in a project's file back that is gone with it.
    pub fn perform(&self, context: &ServiceContext, file: &str) -> Result<(), Failure> {
        let (home, root) = (context.home()?, &context.dir);
        for change in &self.changes {
            let done = change.perform(root);
            done.map_err(|e| Failure::failed(format!("cannot change `{}`", change.path.display())).because(&e))?;
        }
        Originals::forget(&home, root).map_err(cannot_remove)?;
        let trusted = trust::in_force(context)?.is_some_and(|file| file.root == *root);
        if trusted && !root.join(file).exists() && context.is_for_a_person() {
            trust::revoke(context, root)?;
        }
        Ok(())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "handed to `map_err`, which gives it away")]
fn cannot_remove(error: std::io::Error) -> Failure {
    Failure::failed("cannot remove everloop from this project").because(&error)
}
