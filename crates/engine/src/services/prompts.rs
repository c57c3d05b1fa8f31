//! Prompts: the one that the next turn would get, and earlier ones of people and of turns.

use everloop_core::event::Event;
use everloop_core::hook::SessionAct;
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::journal::JournalRecord;
use everloop_core::op::{TaskRow, TaskState};
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::Time;
use everloop_store::{Ledger, Sqlite};
use serde::Serialize;

use super::{ServiceContext, no_loops};
use crate::board;
use crate::error::Failure;
use crate::state_folder::StateFolder;
use crate::supervisor::prompt::{WrittenForTurn, render};

/// Records read at once.
const CHUNK: usize = 1000;

/// The prompt of a loop's next turn; while a turn runs, of that turn.
#[derive(Clone, Debug, Serialize)]
pub struct NextPrompt {
    #[serde(rename = "loop")]
    pub id: LoopId,
    #[serde(rename = "prompt")]
    pub text: String,
}

/// Find prompts that agents got, by their words.
#[derive(Clone, Debug)]
pub struct PromptSearch {
    /// All of them are in the text, whatever their case.
    pub words: Vec<String>,
    /// Only of this loop, by name or id.
    pub owner: Option<String>,
    pub since: Option<Time>,
    /// The newest so many.
    pub max: usize,
}

/// A prompt that an agent got.
#[derive(Clone, Debug, Serialize)]
pub struct KeptPrompt {
    pub at: Time,
    /// The session or the turn.
    pub to: String,
    pub name: String,
    pub text: String,
}

/// The next prompt of the loop that a word means.
pub fn next(context: &ServiceContext, word: Option<&str>) -> Result<NextPrompt, Failure> {
    let home = context.home()?;
    let Some(ledger) = context.reader(&home)? else { return Err(no_loops()) };
    let (_, mut state) = context.find_loop(&ledger, word)?;
    let now = context.now();
    let task = match &state.phase {
        Phase::Turn(turn) => ledger.task(&turn.task)?,
        Phase::New | Phase::Ready | Phase::Waiting { .. } | Phase::Ended { .. } => {
            let task = next_task(&ledger, &state, now)?;
            look_ahead(&mut state, task.as_ref());
            task
        }
    };
    let written = WrittenForTurn::read(&ledger, &state.id, task.as_ref().map(|row| &row.task.id))?;
    let text = render(&state, task.as_ref(), written, now)?;
    Ok(NextPrompt { id: state.id, text })
}

/// The newest prompts that fit, oldest first.
pub fn search(context: &ServiceContext, wanted: &PromptSearch) -> Result<Vec<KeptPrompt>, Failure> {
    let home = context.home()?;
    let mut found = match context.reader(&home)? {
        Some(ledger) => all(&ledger, &home)?,
        None => Vec::new(),
    };
    let words: Vec<String> = wanted.words.iter().map(|word| word.to_lowercase()).collect();
    found.retain(|prompt| {
        let text = prompt.text.to_lowercase();
        let turn_of = |id: &str| prompt.to.split('-').next() == Some(id);
        words.iter().all(|word| text.contains(word))
            && wanted.since.is_none_or(|since| prompt.at >= since)
            && wanted.owner.as_deref().is_none_or(|owner| prompt.name == owner || turn_of(owner))
    });
    found.drain(..found.len().saturating_sub(wanted.max));
    Ok(found)
}

/// The task of the next turn, unless it is one that the loop will make for itself.
fn next_task(ledger: &Sqlite, state: &LoopState, now: Time) -> Result<Option<TaskRow>, Failure> {
    if let (true, Some(task)) = (state.task.retry, &state.task.id) {
        let row = ledger.task(task)?;
        if row.as_ref().is_some_and(|r| matches!(r.state, TaskState::Queued | TaskState::Leased { .. })) {
            return Ok(row);
        }
    }
    let (_, immune) = crate::immune::read(ledger)?;
    Ok(board::most_urgent(ledger, &state.id, &immune.kinds_out(now), now)?)
}

/// Sets the number and the task of the next turn.
fn look_ahead(state: &mut LoopState, task: Option<&TaskRow>) {
    state.task.started += 1;
    let own = TaskId::of_loop(&state.id, state.task.number + 1);
    state.task.id = Some(task.map_or(own, |row| row.task.id.clone()));
}

/// All prompts, oldest first.
fn all(ledger: &Sqlite, home: &StateFolder) -> Result<Vec<KeptPrompt>, Failure> {
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let records = ledger.journal(after, None, CHUNK)?;
        let Some(last) = records.last() else { return Ok(found) };
        after = last.seq;
        found.extend(records.into_iter().filter_map(|record| prompt_of(record, home)));
    }
}

fn prompt_of(record: JournalRecord, home: &StateFolder) -> Option<KeptPrompt> {
    let (to, name, text) = match record.event {
        Event::InSession { session, name, did: SessionAct::Prompted { text } } => (session, name, text),
        // The folders of older turns were removed.
        Event::TurnStarted { turn, .. } => {
            let text = std::fs::read_to_string(home.turn(&turn).join("prompt.md")).ok()?;
            (turn.to_string(), record.owner?.to_string(), text)
        }
        Event::Steered { message, .. } => {
            let owner = record.owner?.to_string();
            (owner.clone(), owner, message)
        }
        _ => return None,
    };
    Some(KeptPrompt { at: record.at, to, name, text })
}
