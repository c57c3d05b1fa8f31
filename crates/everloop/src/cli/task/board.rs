//! `everloop task board`: the board as a file. The ledger is the board; the file is a view that any
//! program can read.
//!
//! - `write`, `export`: the view; `import`: tasks from a file; `sync`: the inbox folder now
//! - `merge`, `driver`: git's merge of two views; `prompt`: instructions for agents

use std::path::{Path, PathBuf};

use everloop_core::event::Event;
use everloop_core::op::Op;
use everloop_engine::board::import::{Import, ImportedTask};
use everloop_engine::board::{board_folder, file, intents, merge};
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::tasks::{Change, note};
use everloop_store::{Ledger, Sqlite};
use serde_json::json;

use crate::cli::VerbSession;
use crate::config::FileProjects;

const HELP: &str = "Examples:
  everloop task board write                       # tasks/board.json from the ledger
  everloop task board import tasks.json --loop k3f9
  everloop task board prompt >> AGENTS.md         # instructions for agents
  everloop task board driver                      # git: two boards never conflict

With `[board] file = \"tasks/board.json\"` in everloop.toml the supervisor keeps the file up to date, and takes
intents of agents from `tasks/inbox/*.json`.";

const PROMPT: &str = include_str!("board/prompt.md");
/// A larger file is rejected.
const FILE_MAX_BYTES: u64 = 64 << 20;

/// The board as a file; the other subcommands of `everloop task` change tasks.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct BoardArgs {
    /// What to do with the file
    #[command(subcommand)]
    what: What,
}

/// Subcommands of `task board`.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Apply the inbox folder, and write the file
    Write {
        /// File to write [default: the one of everloop.toml, or tasks/board.json]
        file: Option<PathBuf>,
    },
    /// Print the board as JSON
    Export {
        /// The tasks of all projects, not only of this one
        #[arg(long)]
        all: bool,
    },
    /// Put the tasks of a file on the board; those that are there already are left as they are
    Import {
        /// A list of tasks with id, description, status, priority, depends
        file: PathBuf,
        /// The loop that is to work on them
        #[arg(long = "loop", value_name = "ID")]
        owner: Option<String>,
    },
    /// Print the instructions for agents that work with the board
    Prompt,
    /// Merge two boards, for git: the union of their tasks, written over OURS
    Merge {
        /// The common ancestor of both boards
        base: PathBuf,
        /// Our board, which is overwritten
        ours: PathBuf,
        /// The other side's board
        theirs: PathBuf,
    },
    /// Print the git settings that merge boards
    Driver,
}

pub fn board(args: BoardArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    match args.what {
        What::Write { file } => write(file, session),
        What::Export { all } => export(if all { ExportedTasks::All } else { ExportedTasks::Project }, session),
        What::Import { file, owner } => import(&file, owner.as_deref(), session),
        What::Prompt => said(session, PROMPT.trim_end(), "prompt"),
        What::Merge { base, ours, theirs } => merge_files(&base, &ours, &theirs),
        What::Driver => said(session, &driver(session)?, "driver"),
    }
}

fn said(session: &VerbSession, text: &str, name: &str) -> Result<Code, Failure> {
    session.ui.said(text, &json!({ name: text }))?;
    Ok(Code::Ok)
}

/// The file that this folder's everloop.toml names, or the usual one.
fn board_file(session: &VerbSession) -> Result<PathBuf, Failure> {
    let named = board_folder::of(&FileProjects, FileProjects::on_disk(&session.dir).as_ref())?;
    Ok(named.unwrap_or_else(|| session.dir.join(board_folder::USUAL)))
}

fn write(path: Option<PathBuf>, session: &VerbSession) -> Result<Code, Failure> {
    let path = match path {
        Some(path) => session.dir.join(path),
        None => board_file(session)?,
    };
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    let round = intents::take(&mut ledger, &board_folder::inbox(&path), session.now())?;
    let tasks = file::tasks_of(&ledger, &session.dir)?;
    let written = file::put(&path, &file::render(&tasks))?;
    if round.applied > 0 {
        home.wake();
    }
    let news = if written { "written" } else { "up to date" };
    let mut text = format!("{}: {} tasks, {news}", path.display(), tasks.len());
    if round.applied + round.rejected > 0 {
        text = format!("{text}; from the inbox: {} done, {} rejected", round.applied, round.rejected);
    }
    let inbox = json!({ "applied": round.applied, "known": round.known, "rejected": round.rejected });
    session.ui.said(&text, &json!({ "file": path, "tasks": tasks.len(), "written": written, "inbox": inbox }))?;
    Ok(Code::Ok)
}

/// Which tasks are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExportedTasks {
    Project,
    All,
}

fn export(tasks: ExportedTasks, session: &VerbSession) -> Result<Code, Failure> {
    let home = session.home()?;
    let tasks = match session.reader(&home)? {
        Some(ledger) if tasks == ExportedTasks::All => file::tasks(&ledger)?,
        Some(ledger) => file::tasks_of(&ledger, &session.dir)?,
        None => Vec::new(),
    };
    session.ui.out(file::render(&tasks).trim_end())?;
    Ok(Code::Ok)
}

fn import(path: &Path, owner: Option<&str>, session: &VerbSession) -> Result<Code, Failure> {
    let text = text_of(path)?;
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    let owner = session.named_loop(&ledger, owner)?;
    let import = Import {
        owner: owner.clone(),
        author: session.caller.name(),
        trust: session.caller.trust(),
        now: session.now(),
    };
    let is_there = |id: &_| ledger.task(id).is_ok_and(|row| row.is_some());
    let entries = import.read(&text, is_there).map_err(|why| {
        Failure::usage(format!("cannot import `{}`: {why}", path.display())).hint("nothing was changed")
    })?;
    let ops: Vec<Op> = entries.iter().flat_map(ImportedTask::ops).collect();
    if !ops.is_empty() {
        let said = format!("{} tasks were imported by {}", entries.len(), session.caller.name());
        bring_in(&mut ledger, &ops, &[note(said)], session)?;
        home.wake();
    }
    let ids: Vec<&str> = entries.iter().map(|entry| entry.id().as_str()).collect();
    session.ui.said(&format!("{} tasks imported", ids.len()), &json!({ "imported": ids }))?;
    Ok(Code::Ok)
}

fn bring_in(ledger: &mut Sqlite, ops: &[Op], events: &[Event], session: &VerbSession) -> Result<(), Failure> {
    Change { owner: None, ops, events }.commit(ledger, session)?;
    Ok(())
}

fn merge_files(base: &Path, ours: &Path, theirs: &Path) -> Result<Code, Failure> {
    let read = |path: &Path| {
        let wrong = |why| {
            Failure::failed(format!("not a board: `{}`: {why}", path.display()))
                .hint("merge it by hand; nothing was changed")
        };
        merge::read(&text_of(path)?).map_err(wrong)
    };
    let merged = merge::merge(&read(base)?, &read(ours)?, &read(theirs)?);
    file::put(ours, &file::render(&merged))?;
    Ok(Code::Ok)
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let cannot = |e: &std::io::Error| Failure::usage(format!("cannot read `{}`", path.display())).because(e);
    if std::fs::metadata(path).map_err(|e| cannot(&e))?.len() > FILE_MAX_BYTES {
        return Err(Failure::usage(format!("`{}` is larger than {FILE_MAX_BYTES} bytes", path.display())));
    }
    std::fs::read_to_string(path).map_err(|e| cannot(&e))
}

fn driver(session: &VerbSession) -> Result<String, Failure> {
    let file = board_file(session)?;
    let root = crate::config::find(&session.dir).unwrap_or(&session.dir);
    let file = file.strip_prefix(root).map_or_else(|_| board_folder::USUAL.into(), |f| f.display().to_string());
    let inbox = board_folder::inbox(Path::new(&file));
    Ok(format!(
        "git config merge.everloop.name 'union of two boards'\n\
         git config merge.everloop.driver 'everloop task board merge %O %A %B'\n\
         echo '{file} merge=everloop' >> .gitattributes\n\
         echo '{}/' >> .gitignore",
        inbox.display()
    ))
}
