//! `everloop task add`: puts a task on the board.

use std::io::Read;

use everloop_core::time::parse_duration;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::tasks::{self, AddTask, MAX_PROMPT_BYTES};

use super::VerbSession;

const HELP: &str = "Examples:
  everloop task add \"port the parser\" --loop k3f9
  everloop task add \"publish\" --after x7k2m --after p0qq4
  git log -1 | everloop task add \"review this\" --prompt -";

/// Puts a task on the board and prints its id.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct TaskAddArgs {
    /// Title of the task, in one line
    title: String,
    /// Text for the agent besides the title; `-` reads it from standard input
    #[arg(long, default_value = "", value_name = "TEXT")]
    prompt: String,
    /// The loop that is to work on it [default: none; it is free to claim]
    #[arg(long = "loop", value_name = "ID")]
    owner: Option<String>,
    /// Kind of work, in a word of your own
    #[arg(long, default_value = AddTask::KIND)]
    kind: String,
    /// Priority; higher is sooner
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_name = "N")]
    priority: i32,
    /// Not before this task is done; may be repeated
    #[arg(long, value_name = "TASK")]
    after: Vec<String>,
    /// Not before this time has passed
    #[arg(long = "in", value_name = "TIME", value_parser = parse_duration)]
    delay: Option<std::time::Duration>,
    /// Author of the task [default: you; for agents always themselves]
    #[arg(long)]
    author: Option<String>,
}

pub fn add(args: TaskAddArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let prompt = if args.prompt == "-" { read_prompt()? } else { args.prompt };
    let request = AddTask {
        title: args.title,
        prompt,
        owner: args.owner,
        kind: args.kind,
        priority: args.priority,
        after: args.after,
        delay: args.delay,
        author: args.author,
    };
    let added = tasks::add(session, request)?;
    session.ui.answer(&[added.task.to_string()], &added)?;
    Ok(Code::Ok)
}

pub(super) fn read_prompt() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().take(MAX_PROMPT_BYTES as u64 + 1).read_to_string(&mut text);
    read.map_err(|e| Failure::failed("cannot read the prompt from standard input").because(&e))?;
    Ok(text)
}
