//! `everloop task add`: puts a task on the board.

use std::hash::{BuildHasher, RandomState};
use std::io::Read;

use everloop_core::ids::TaskId;
use everloop_core::op::{NewTask, Op, Refusal, Reply};
use everloop_core::time::parse_duration;
use everloop_store::Error;
use serde_json::json;

use super::{Invocation, TaskChange, named_loop, note};
use crate::board;
use crate::error::{Code, Failure};

const HELP: &str = "Examples:
  everloop task add \"port the parser\" --loop k3f9
  everloop task add \"publish\" --after x7k2m --after p0qq4
  git log -1 | everloop task add \"review this\" --prompt -";

/// A prompt is data for one turn; a longer text belongs into a file that the prompt names.
const PROMPT_MAX_BYTES: usize = 100_000;
/// A title is one line of a listing.
const TITLE_MAX_CHARS: usize = 200;
/// Letters and digits of an id that cannot be mistaken for one another.
const ALPHABET: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz023456789";
/// 32⁵ ids: a board of a thousand tasks meets a known one once in 30,000 draws, and then another
/// one is drawn.
const ID_CHARS: usize = 5;
/// That many collisions in a row are no accident.
const DRAWS: u32 = 20;

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
    #[arg(long, default_value = "task")]
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

pub fn add(args: TaskAddArgs, session: &mut Invocation) -> Result<Code, Failure> {
    let (mut task, owner_word) = checked(args, session)?;
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    task.owner = named_loop(session, &ledger, owner_word.as_deref())?;
    board::admit(&ledger, &task)?;
    for _ in 0..DRAWS {
        task.id = draw();
        // `<loop>-<number>` are the loops' own; ids drawn here have no dash, so they never collide.
        let said = format!("task {} was added by {}: {}", task.id, task.author, task.title);
        if is_known(&ledger, &task.id)? {
            continue;
        }
        let ops = [Op::Enqueue(task.clone())];
        let change = TaskChange { owner: task.owner.as_ref(), ops: &ops, events: &[note(said)] };
        let replies = change.commit(&mut ledger, session).map_err(refused)?;
        if replies.first() == Some(&Reply::Made(true)) {
            home.wake();
            let content = json!({ "task": task.id, "loop": task.owner });
            session.ui.answer(&[task.id.to_string()], &content)?;
            return Ok(Code::Ok);
        }
    }
    Err(Failure::failed("no free task id was found"))
}

fn is_known(ledger: &impl everloop_store::Ledger, id: &TaskId) -> Result<bool, Failure> {
    Ok(ledger.task(id)?.is_some())
}

/// The task of the arguments, without id and loop, and the word for the loop.
fn checked(args: TaskAddArgs, session: &Invocation) -> Result<(NewTask, Option<String>), Failure> {
    let title = args.title.split_whitespace().collect::<Vec<_>>().join(" ");
    if title.is_empty() {
        return Err(Failure::usage("the title is empty").hint("everloop task add \"port the parser\""));
    }
    if title.chars().count() > TITLE_MAX_CHARS {
        return Err(Failure::usage(format!("the title is longer than {TITLE_MAX_CHARS} characters"))
            .hint("put the details into --prompt"));
    }
    if board::OWN_KINDS.contains(&args.kind.as_str()) || args.kind.trim().is_empty() {
        return Err(Failure::usage(format!("`{}` cannot be a task's kind", args.kind))
            .hint("everloop uses this kind for its own tasks; choose another word"));
    }
    let from_stdin = args.prompt == "-" && session.caller.has_stdin();
    let prompt = if from_stdin { read_prompt()? } else { args.prompt };
    if prompt.len() > PROMPT_MAX_BYTES {
        return Err(Failure::usage(format!("the prompt is longer than {PROMPT_MAX_BYTES} bytes"))
            .hint("write it into a file of the project and name that file"));
    }
    let now = session.now();
    let task = NewTask {
        id: TaskId::new(""),
        owner: None,
        kind: args.kind,
        title,
        prompt,
        priority: args.priority,
        deps: args.after.into_iter().map(TaskId::new).collect(),
        author: args.author.filter(|_| session.caller.is_person()).unwrap_or_else(|| session.caller.name()),
        // What an agent writes is data for the next turn and never has a person's trust.
        trust: session.caller.trust(),
        ready_at: args.delay.map_or(now, |delay| now + delay),
    };
    Ok((task, args.owner))
}

fn read_prompt() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().take(PROMPT_MAX_BYTES as u64 + 1).read_to_string(&mut text);
    read.map_err(|e| Failure::failed("cannot read the prompt from standard input").because(&e))?;
    Ok(text)
}

/// A short random id. The standard library draws the keys of a `RandomState` from the system.
fn draw() -> TaskId {
    let mut bits = RandomState::new().hash_one(std::process::id());
    let letter = |_| {
        let letter = ALPHABET[(bits & 31) as usize];
        bits >>= 5;
        char::from(letter)
    };
    TaskId::new((0..ID_CHARS).map(letter).collect::<String>())
}

fn refused(error: Error) -> Failure {
    match error {
        Error::Refused(Refusal::BadDependency { why, .. }) => {
            Failure::usage(format!("cannot add the task: {why}")).hint("`everloop task list` shows what is there")
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_short_and_differ() {
        let ids: BTreeSet<String> = (0..200).map(|_| draw().to_string()).collect();
        assert!(ids.len() > 190, "{}", ids.len());
        assert!(ids.iter().all(|id| id.len() == ID_CHARS && id.bytes().all(|b| ALPHABET.contains(&b))));
    }
}
