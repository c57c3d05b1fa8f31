//! The board as a file: written, imported and merged. The ledger is the board; the file is a view
//! that any program can read.

use std::path::{Path, PathBuf};

use everloop_core::op::Op;
use everloop_store::Ledger;

use super::{Change, note};
use crate::board::import::{Import, ImportedTask};
use crate::board::intents::Round;
use crate::board::{board_folder, file, intents, merge};
use crate::error::Failure;
use crate::services::ServiceContext;
use crate::trust;

/// A larger file is rejected.
const FILE_MAX_BYTES: u64 = 64 << 20;

/// A board that was written.
#[derive(Debug)]
pub struct WrittenBoard {
    pub path: PathBuf,
    /// Number of tasks in it.
    pub tasks: usize,
    /// Whether the file was out of date.
    pub written: bool,
    /// What the inbox folder held.
    pub inbox: Round,
}

/// Which tasks are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportedTasks {
    Project,
    All,
}

/// The board of a folder, relative to the folder of its project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardPlace {
    pub file: String,
    pub inbox: PathBuf,
}

/// The file that the everloop.toml of the caller's folder names, or the usual one.
fn board_file(context: &ServiceContext) -> Result<PathBuf, Failure> {
    let projects = &*context.projects;
    let named = board_folder::of(projects, trust::on_disk(projects, &context.dir).as_ref())?;
    Ok(named.unwrap_or_else(|| context.dir.join(board_folder::USUAL)))
}

/// Applies the inbox folder and writes the board; without a path to the file of the project.
pub fn write(context: &ServiceContext, path: Option<&Path>) -> Result<WrittenBoard, Failure> {
    let path = match path {
        Some(path) => context.dir.join(path),
        None => board_file(context)?,
    };
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let inbox = intents::take(&mut ledger, &board_folder::inbox(&path), context.now())?;
    let tasks = file::tasks_of(&ledger, &context.dir)?;
    let written = file::put(&path, &file::render(&tasks))?;
    if inbox.applied > 0 {
        home.wake();
    }
    Ok(WrittenBoard { path, tasks: tasks.len(), written, inbox })
}

/// The board as the text of a file.
pub fn export(context: &ServiceContext, tasks: ExportedTasks) -> Result<String, Failure> {
    let home = context.home()?;
    let tasks = match context.reader(&home)? {
        Some(ledger) if tasks == ExportedTasks::All => file::tasks(&ledger)?,
        Some(ledger) => file::tasks_of(&ledger, &context.dir)?,
        None => Vec::new(),
    };
    Ok(file::render(&tasks))
}

/// Puts the tasks of a file on the board, for the loop that `owner` names; returns the ids of those
/// that are new.
pub fn import(context: &ServiceContext, path: &Path, owner: Option<&str>) -> Result<Vec<String>, Failure> {
    let text = text_of(path)?;
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let import = Import {
        owner: context.named_loop(&ledger, owner)?,
        author: context.caller.name(),
        trust: context.caller.trust(),
        now: context.now(),
    };
    let is_there = |id: &_| ledger.task(id).is_ok_and(|row| row.is_some());
    let entries = import.read(&text, is_there).map_err(|why| {
        Failure::usage(format!("cannot import `{}`: {why}", path.display())).hint("nothing was changed")
    })?;
    let ops: Vec<Op> = entries.iter().flat_map(ImportedTask::ops).collect();
    if !ops.is_empty() {
        let said = format!("{} tasks were imported by {}", entries.len(), context.caller.name());
        Change { owner: None, ops: &ops, events: &[note(said)] }.commit(&mut ledger, context)?;
        home.wake();
    }
    Ok(entries.iter().map(|entry| entry.id().to_string()).collect())
}

/// Merges two boards for git: the union of their tasks, written over `ours`.
pub fn merge_files(base: &Path, ours: &Path, theirs: &Path) -> Result<(), Failure> {
    let read = |path: &Path| {
        let wrong = |why| {
            Failure::failed(format!("not a board: `{}`: {why}", path.display()))
                .hint("merge it by hand; nothing was changed")
        };
        merge::read(&text_of(path)?).map_err(wrong)
    };
    let merged = merge::merge(&read(base)?, &read(ours)?, &read(theirs)?);
    file::put(ours, &file::render(&merged))?;
    Ok(())
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let cannot = |e: &std::io::Error| Failure::usage(format!("cannot read `{}`", path.display())).because(e);
    if std::fs::metadata(path).map_err(|e| cannot(&e))?.len() > FILE_MAX_BYTES {
        return Err(Failure::usage(format!("`{}` is larger than {FILE_MAX_BYTES} bytes", path.display())));
    }
    std::fs::read_to_string(path).map_err(|e| cannot(&e))
}

/// Where git finds the board of the caller's project.
pub fn place(context: &ServiceContext) -> Result<BoardPlace, Failure> {
    let file = board_file(context)?;
    let root = context.projects.root(&context.dir);
    let file = file.strip_prefix(root).map_or_else(|_| board_folder::USUAL.into(), |f| f.display().to_string());
    Ok(BoardPlace { inbox: board_folder::inbox(Path::new(&file)), file })
}
