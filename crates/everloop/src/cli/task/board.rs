//! `everloop task board`: the board as a file. The ledger is the board; the file is a view that any
//! program can read.
//!
//! - `write`, `export`: the view; `import`: tasks from a file; `sync`: the inbox folder now
//! - `merge`, `driver`: git's merge of two views; `prompt`: instructions for agents

use std::path::{Path, PathBuf};

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::tasks::board::{self as service, BoardPlace, ExportedTasks, WrittenBoard};
use serde_json::json;

use crate::cli::VerbSession;

const HELP: &str = "Examples:
  everloop task board write                       # tasks/board.json from the ledger
  everloop task board import tasks.json --loop k3f9
  everloop task board prompt >> AGENTS.md         # instructions for agents
  everloop task board driver                      # git: two boards never conflict

With `[board] file = \"tasks/board.json\"` in everloop.toml the supervisor keeps the file up to date, and takes
intents of agents from `tasks/inbox/*.json`.";

const PROMPT: &str = include_str!("board/prompt.md");

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
        What::Write { file } => write(file.as_deref(), session),
        What::Export { all } => {
            let tasks = if all { ExportedTasks::All } else { ExportedTasks::Project };
            session.ui.out(service::export(session, tasks)?.trim_end())?;
            Ok(Code::Ok)
        }
        What::Import { file, owner } => import(&file, owner.as_deref(), session),
        What::Prompt => said(session, PROMPT.trim_end(), "prompt"),
        What::Merge { base, ours, theirs } => {
            service::merge_files(&base, &ours, &theirs)?;
            Ok(Code::Ok)
        }
        What::Driver => said(session, &driver(session)?, "driver"),
    }
}

fn said(session: &VerbSession, text: &str, name: &str) -> Result<Code, Failure> {
    session.ui.said(text, &json!({ name: text }))?;
    Ok(Code::Ok)
}

fn write(path: Option<&Path>, session: &VerbSession) -> Result<Code, Failure> {
    let WrittenBoard { path, tasks, written, inbox } = service::write(session, path)?;
    let news = if written { "written" } else { "up to date" };
    let mut text = format!("{}: {tasks} tasks, {news}", path.display());
    if inbox.applied + inbox.rejected > 0 {
        text = format!("{text}; from the inbox: {} done, {} rejected", inbox.applied, inbox.rejected);
    }
    let inbox = json!({ "applied": inbox.applied, "known": inbox.known, "rejected": inbox.rejected });
    session.ui.said(&text, &json!({ "file": path, "tasks": tasks, "written": written, "inbox": inbox }))?;
    Ok(Code::Ok)
}

fn import(path: &Path, owner: Option<&str>, session: &VerbSession) -> Result<Code, Failure> {
    let ids = service::import(session, path, owner)?;
    session.ui.said(&format!("{} tasks imported", ids.len()), &json!({ "imported": ids }))?;
    Ok(Code::Ok)
}

fn driver(session: &VerbSession) -> Result<String, Failure> {
    let BoardPlace { file, inbox } = service::place(session)?;
    Ok(format!(
        "git config merge.everloop.name 'union of two boards'\n\
         git config merge.everloop.driver 'everloop task board merge %O %A %B'\n\
         echo '{file} merge=everloop' >> .gitattributes\n\
         echo '{}/' >> .gitignore",
        inbox.display()
    ))
}
