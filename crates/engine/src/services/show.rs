//! A loop, a task or a turn, in full.

use std::path::{Path, PathBuf};

use everloop_agents::job::{self, JobRecord, Started, Stream};
use everloop_core::completion::Memory;
use everloop_core::event::Event;
use everloop_core::ids::{LoopId, TaskId, TurnId};
use everloop_core::op::{LateResult, TaskRow};
use everloop_core::rhythm::inward;
use everloop_core::state::LoopState;
use everloop_core::stream::TurnReport;
use everloop_store::{Ledger, Sqlite, StateName, TaskFilter, TaskOwner};

use super::tasks::no_task;
use super::{ServiceContext, no_loops};
use crate::completion;
use crate::error::Failure;
use crate::membership::Membership;
use crate::record::read_state;

/// Waiting tasks that are listed; `everloop task list` has all.
const MAX_TASKS: usize = 20;
/// The end of each stream that is read; `everloop logs --turn` has all that was kept.
const TAIL_BYTES: u64 = 4096;

/// Records of a journal that are read at once.
const JOURNAL_CHUNK: usize = 1000;

/// What a word meant.
#[derive(Debug)]
pub enum ShowAnswer {
    Loop(Box<LoopShown>),
    Task(Box<TaskShown>),
    Turn(Box<TurnShown>),
}

/// A loop, its waiting tasks, and signs that its goal is reached, by rule.
#[derive(Debug)]
pub struct LoopShown {
    pub state: LoopState,
    pub tasks: Vec<TaskRow>,
    pub signs: Vec<(String, Memory)>,
}

/// A task with its late results and what it waits for.
#[derive(Debug)]
pub struct TaskShown {
    pub row: TaskRow,
    pub late_results: Vec<LateResult>,
    /// The tasks that come before it; without a row, one is gone.
    pub deps: Vec<(TaskId, Option<TaskRow>)>,
    /// Its latest turn, if that has a folder here.
    pub turn: Option<TurnId>,
}

/// A turn with what its job left.
#[derive(Debug)]
pub struct TurnShown {
    pub turn: TurnId,
    /// The loop that its task belongs to.
    pub state: Option<LoopState>,
    /// The sum of its agent's records, once it has ended.
    pub report: Option<Box<TurnReport>>,
    /// How its job ended.
    pub record: Option<JobRecord>,
    pub process: Option<Started>,
    /// Its folder; those of old turns are removed.
    pub dir: Option<PathBuf>,
    pub prompt: Option<PathBuf>,
    /// Names and sizes of the files in its folder.
    pub files: Vec<(String, u64)>,
    pub stdout_tail: String,
    pub stderr_tail: String,
}

/// The loop, task or turn that a word means; without a word the loop of this folder.
pub fn show(context: &ServiceContext, word: Option<&str>) -> Result<ShowAnswer, Failure> {
    let home = context.home()?;
    let Some(ledger) = context.reader(&home)? else { return Err(no_loops()) };
    let Some(word) = word else {
        return one_loop(context.find_loop(&ledger, None)?.1, &ledger);
    };
    // Loop ids have no dot and no dash, task ids no dot, so the three cannot be confused.
    if let Some(row) = ledger.task(&TaskId::new(word))? {
        return Ok(ShowAnswer::Task(Box::new(one_task(row, &ledger, context)?)));
    }
    if let Some(turn) = turn_of(word, &ledger)? {
        return one_turn(turn, &ledger, context);
    }
    let found = context.find_loop(&ledger, Some(word)).map_err(|failure| unknown(word, failure))?;
    one_loop(found.1, &ledger)
}

/// A task by its id, of this machine or of its mesh.
pub fn task(context: &ServiceContext, id: &TaskId) -> Result<TaskShown, Failure> {
    let home = context.home()?;
    if let Some(ledger) = context.reader(&home)?
        && let Some(row) = ledger.task(id)?
    {
        return one_task(row, &ledger, context);
    }
    // Tasks of the mesh are in the hub.
    let Some(membership) = Membership::read(&home)? else { return Err(no_task(id)) };
    let hub = membership.open()?;
    let row = hub.task(id)?.ok_or_else(|| no_task(id))?;
    one_task(row, &hub, context)
}

/// The turn, if the word is `<task>.<fence>` of an existing task.
fn turn_of(word: &str, ledger: &Sqlite) -> Result<Option<TurnId>, Failure> {
    let Ok(turn) = word.parse::<TurnId>() else { return Ok(None) };
    Ok(ledger.task(turn.task())?.map(|_| turn))
}

fn unknown(word: &str, failure: Failure) -> Failure {
    if failure.message == format!("there is no loop `{word}`") {
        return Failure { message: format!("there is no loop, task or turn `{word}`"), ..failure };
    }
    failure
}

fn one_loop(state: LoopState, ledger: &Sqlite) -> Result<ShowAnswer, Failure> {
    let states = vec![StateName::Queued, StateName::Leased, StateName::Blocked];
    let owner = TaskOwner::Loop(state.id.clone());
    let mut tasks = ledger.tasks(&TaskFilter { owner, states, limit: MAX_TASKS })?;
    tasks.retain(|row| !["batch", inward::REFLECTION, inward::DREAM].contains(&row.task.kind.as_str()));
    let signs = completion::known(ledger, &state.id)?;
    Ok(ShowAnswer::Loop(Box::new(LoopShown { state, tasks, signs })))
}

fn one_task(row: TaskRow, ledger: &impl Ledger, context: &ServiceContext) -> Result<TaskShown, Failure> {
    let late_results = ledger.late_results(&row.task.id)?;
    let mut deps = Vec::new();
    for dep in &row.task.deps {
        deps.push((dep.clone(), ledger.task(dep)?));
    }
    let turn = TurnId::of(&row.task.id, row.fence);
    let has_folder = row.fence.0 > 0 && context.home()?.turn(&turn).is_dir();
    Ok(TaskShown { row, late_results, deps, turn: has_folder.then_some(turn) })
}

fn one_turn(turn: TurnId, ledger: &Sqlite, context: &ServiceContext) -> Result<ShowAnswer, Failure> {
    let dir = context.home()?.turn(&turn);
    let state = owner(&turn, ledger)?;
    let failed = |e: job::JobError| Failure::failed(format!("cannot read the record of turn `{turn}`")).because(&e);
    let there = dir.is_dir();
    let record = if there { job::record(&dir).map_err(failed)? } else { None };
    let process = if there { job::started(&dir).map_err(failed)? } else { None };
    let tail = |stream| if there { job::output(&dir, stream, TAIL_BYTES) } else { Ok(String::new()) };
    let (stdout_tail, stderr_tail) = (tail(Stream::Out).map_err(failed)?, tail(Stream::Err).map_err(failed)?);
    let report = state.as_ref().map(|state| report(&turn, &state.id, ledger)).transpose()?.flatten();
    let prompt = Some(dir.join("prompt.md")).filter(|prompt| prompt.is_file());
    let files = if there { files(&dir) } else { Vec::new() };
    let dir = there.then_some(dir);
    Ok(ShowAnswer::Turn(Box::new(TurnShown {
        turn,
        state,
        report,
        record,
        process,
        dir,
        prompt,
        files,
        stdout_tail,
        stderr_tail,
    })))
}

/// What the agent of a turn reported, from the journal of its loop.
fn report(turn: &TurnId, owner: &LoopId, ledger: &Sqlite) -> Result<Option<Box<TurnReport>>, Failure> {
    let mut after = 0;
    loop {
        let records = ledger.journal(after, Some(owner), JOURNAL_CHUNK)?;
        let Some(last) = records.last() else { return Ok(None) };
        after = last.seq;
        for record in records {
            match record.event {
                Event::TurnExited { turn: ended, exit } if ended == *turn => return Ok(exit.report),
                _ => {}
            }
        }
    }
}

/// The loop that the turn's task belongs to.
pub(super) fn owner(turn: &TurnId, ledger: &Sqlite) -> Result<Option<LoopState>, Failure> {
    let id = ledger.task(turn.task())?.and_then(|row| row.task.owner);
    let row = id.map(|id| ledger.get_loop(&id)).transpose()?.flatten();
    row.as_ref().map(read_state).transpose()
}

fn files(dir: &Path) -> Vec<(String, u64)> {
    let mut names: Vec<(String, u64)> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.metadata().ok()?.len())))
        .collect();
    names.sort();
    names
}
