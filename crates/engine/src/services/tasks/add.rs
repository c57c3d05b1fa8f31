//! New tasks.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use everloop_agents::redact::without_secrets;
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::op::{NewTask, Op, Refusal, Reply, Trust};
use everloop_store::Error;
use serde::Serialize;

use super::{Change, note};
use crate::board;
use crate::error::Failure;
use crate::services::ServiceContext;

/// A prompt is data for one turn; a longer text belongs into a file that the prompt names.
pub const MAX_PROMPT_BYTES: usize = 100_000;
/// A title is one line of a listing.
const MAX_TITLE_CHARS: usize = 200;
/// Letters and digits of an id that cannot be mistaken for one another.
const ALPHABET: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz023456789";
/// 32⁵ ids: with a thousand tasks on the board one draw in 30,000 collides, and then another id is
/// drawn.
const ID_CHARS: usize = 5;
/// That many collisions in a row are no accident.
const MAX_DRAWS: u32 = 20;

/// Puts a task on the board.
#[derive(Clone, Debug)]
pub struct AddTask {
    /// What is to be done, in one line.
    pub title: String,
    pub prompt: String,
    /// The loop that is to do it; without one the task is for any caller that claims it.
    pub owner: Option<String>,
    pub kind: String,
    /// Higher is sooner.
    pub priority: i32,
    /// Tasks that have to be done before.
    pub after: Vec<String>,
    /// Not before this time has passed.
    pub delay: Option<Duration>,
    /// The name that it is added under; an agent's tasks are always under its own.
    pub author: Option<String>,
}

impl Default for AddTask {
    fn default() -> Self {
        Self {
            title: String::new(),
            prompt: String::new(),
            owner: None,
            kind: AddTask::KIND.to_owned(),
            priority: 0,
            after: Vec::new(),
            delay: None,
            author: None,
        }
    }
}

impl AddTask {
    /// What sort of work a task is, unless another word is given.
    pub const KIND: &str = "task";
}

/// The new task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskAdded {
    pub task: TaskId,
    #[serde(rename = "loop")]
    pub owner: Option<LoopId>,
}

/// Puts a task on the board under an id that was free.
pub fn add(context: &ServiceContext, request: AddTask) -> Result<TaskAdded, Failure> {
    let (mut task, owner_word) = checked(context, request)?;
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    task.owner = context.named_loop(&ledger, owner_word.as_deref())?;
    board::admit(&ledger, &task)?;
    for _ in 0..MAX_DRAWS {
        task.id = draw();
        // `<loop>-<number>` are the loops' own; ids drawn here have no dash, so they never collide.
        let text = format!("task {} was added by {}: {}", task.id, task.author, task.title);
        if is_known(&ledger, &task.id)? {
            continue;
        }
        let ops = [Op::Enqueue(task.clone())];
        let change = Change { owner: task.owner.as_ref(), ops: &ops, events: &[note(text)] };
        let replies = change.commit(&mut ledger, context).map_err(refused)?;
        if replies.first() == Some(&Reply::Made(true)) {
            home.wake();
            return Ok(TaskAdded { task: task.id, owner: task.owner });
        }
    }
    Err(Failure::failed("no free task id was found"))
}

/// Puts a task on the board under an id that follows from what it is about.
#[derive(Clone, Debug)]
pub struct AddOnce {
    pub id: TaskId,
    /// How far its text is trusted.
    pub trust: Trust,
    pub task: AddTask,
}

/// Puts a task on the board unless it is or was there; whether it is new. A task of this kind
/// belongs to no loop.
pub fn add_once(context: &ServiceContext, request: AddOnce) -> Result<bool, Failure> {
    let (task, _) = checked(context, request.task)?;
    let task = NewTask { id: request.id, trust: request.trust, ..task };
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    if is_known(&ledger, &task.id)? {
        return Ok(false);
    }
    let text = format!("task {} was added by {}: {}", task.id, task.author, task.title);
    let change = Change { owner: None, ops: &[Op::Enqueue(task)], events: &[note(text)] };
    let replies = change.commit(&mut ledger, context).map_err(refused)?;
    home.wake();
    Ok(replies.first() == Some(&Reply::Made(true)))
}

fn is_known(ledger: &impl everloop_store::Ledger, id: &TaskId) -> Result<bool, Failure> {
    Ok(ledger.task(id)?.is_some())
}

/// The task without id and loop, and the word for the loop.
fn checked(context: &ServiceContext, request: AddTask) -> Result<(NewTask, Option<String>), Failure> {
    let title = title_of(&request.title)?;
    if board::OWN_KINDS.contains(&request.kind.as_str()) || request.kind.trim().is_empty() {
        return Err(Failure::usage(format!("`{}` cannot be a task's kind", request.kind))
            .hint("everloop uses this kind for its own tasks; choose another word"));
    }
    let prompt = prompt_of(&request.prompt)?;
    let now = context.now();
    let task = NewTask {
        id: TaskId::new(""),
        owner: None,
        kind: request.kind,
        title,
        prompt,
        priority: request.priority,
        deps: request.after.into_iter().map(TaskId::new).collect(),
        author: request.author.filter(|_| context.caller.is_person()).unwrap_or_else(|| context.caller.name()),
        // What an agent writes is data for the next turn, never an instruction of a person.
        trust: context.caller.trust(),
        ready_at: request.delay.map_or(now, |delay| now + delay),
    };
    Ok((task, request.owner))
}

/// A title in one line, without secrets.
pub(super) fn title_of(text: &str) -> Result<String, Failure> {
    let title = without_secrets(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    if title.is_empty() {
        return Err(Failure::usage("the title is empty").hint("everloop task add \"port the parser\""));
    }
    if title.chars().count() > MAX_TITLE_CHARS {
        return Err(Failure::usage(format!("the title is longer than {MAX_TITLE_CHARS} characters"))
            .hint("put the details into --prompt"));
    }
    Ok(title)
}

/// A prompt without secrets.
pub(super) fn prompt_of(text: &str) -> Result<String, Failure> {
    if text.len() > MAX_PROMPT_BYTES {
        return Err(Failure::usage(format!("the prompt is longer than {MAX_PROMPT_BYTES} bytes"))
            .hint("write it into a file of the project and name that file"));
    }
    Ok(without_secrets(text))
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
