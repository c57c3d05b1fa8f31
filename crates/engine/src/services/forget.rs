//! Removes loops that are over: their refs, their folders, and their lines in listings. The journal
//! keeps its records.
//!
//! The ledger comes first, because only it knows that a loop is still over. Folders that a crash
//! left behind are removed by the same request again, with what the journal knows of the loop.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_agents::workspace::{LoopRefs, WorkspaceError, remove_apart, remove_loop_refs};
use everloop_core::event::Event;
use everloop_core::ids::{LoopId, TurnId};
use everloop_core::mesh::work::mesh_loop_of;
use everloop_core::op::Op;
use everloop_core::spec::WorkspaceMode;
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::Time;
use everloop_store::{Ledger, Sqlite, Tickets};
use serde::Serialize;

use super::runtime::block_on;
use super::tasks::note;
use super::{ServiceContext, diff, loops, no_loops};
use crate::error::Failure;
use crate::record::read_state;
use crate::research::with_findings;
use crate::state_folder::StateFolder;

/// Journal records that are read at once.
const CHUNK: usize = 1_000;

/// What becomes of a loop whose work is on no branch of the person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UntakenWork {
    /// The loop stays.
    #[default]
    Keep,
    /// It is removed, and git drops its work in time.
    Lose,
}

/// Which loops are to be removed.
#[derive(Clone, Debug, Default)]
pub struct ForgetRequest {
    /// Ids or names; without one, all loops that are over.
    pub words: Vec<String>,
    /// Without a word: only loops that ended longer ago than this.
    pub older: Option<Duration>,
    pub untaken: UntakenWork,
}

/// A loop that can be removed, and what goes with it.
#[derive(Clone, Debug, Serialize)]
pub struct EndedLoop {
    #[serde(rename = "loop")]
    pub id: LoopId,
    pub name: String,
    /// The folder that it worked in.
    pub dir: PathBuf,
    /// How it ended, in one word.
    pub ending: String,
    pub ended_at: Time,
    /// Its refs in the repository.
    pub refs: Vec<String>,
    /// Its folders below the state folder.
    pub folders: Vec<PathBuf>,
}

/// A loop that stays.
#[derive(Clone, Debug, Serialize)]
pub struct SparedLoop {
    #[serde(rename = "loop")]
    pub id: LoopId,
    pub name: String,
    pub why: String,
}

/// What a request removes, and what it leaves alone.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ForgetPlan {
    pub forgotten: Vec<EndedLoop>,
    pub spared: Vec<SparedLoop>,
}

/// Finds what a request would remove. A loop that is named and has to stay is an error; others that
/// have to stay are listed.
pub fn plan(context: &ServiceContext, request: &ForgetRequest) -> Result<ForgetPlan, Failure> {
    context.for_a_person("forget a loop")?;
    let home = context.home()?;
    let Some(ledger) = context.reader(&home)? else { return Err(no_loops()) };
    let is_old = |state: &LoopState| match state.phase {
        Phase::Ended { at, .. } => request.older.is_none_or(|age| context.now().since(at) > age),
        _ => false,
    };
    let mut plan = ForgetPlan::default();
    for word in &request.words {
        match named(context, &ledger, word) {
            Ok(state) => {
                for ended in
                    examine_team(&home, &ledger, &state, request.untaken)?.map_err(|why| stays(&state, &why))?
                {
                    plan.add(ended);
                }
            }
            Err(unknown) => plan.add(left_behind(&home, &ledger, &LoopId::new(word))?.ok_or(unknown)?),
        }
    }
    if request.words.is_empty() {
        for row in ledger.loops()?.iter().filter(|row| row.is_over() && mesh_loop_of(&row.id).is_none()) {
            let state = with_findings(&ledger, read_state(row)?)?;
            if !is_old(&state) || state.is_helper() {
                continue;
            }
            match examine_team(&home, &ledger, &state, request.untaken)? {
                Ok(team) => team.into_iter().for_each(|ended| plan.add(ended)),
                Err(why) => plan.spared.push(SparedLoop { id: state.id, name: state.name, why }),
            }
        }
    }
    Ok(plan)
}

/// Removes the loops of a plan; those that went on meanwhile are left alone.
pub fn forget(context: &ServiceContext, plan: ForgetPlan) -> Result<ForgetPlan, Failure> {
    context.for_a_person("forget a loop")?;
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let mut done = ForgetPlan { forgotten: Vec::new(), spared: plan.spared };
    for ended in plan.forgotten {
        let is_stored = ledger.get_loop(&ended.id)?.is_some();
        if is_stored && !ledger.forget(context.now(), &ended.id)? {
            let why = "it is not over any more".to_owned();
            done.spared.push(SparedLoop { id: ended.id, name: ended.name, why });
            continue;
        }
        // Again after a crash: its tickets may be open still.
        close(context, &mut ledger, &ended)?;
        let removed = block_on(remove_files(&ended))?;
        removed.map_err(|e| {
            Failure::failed(format!("cannot remove all that loop `{}` left", ended.id))
                .because(&e)
                .hint(format!("remove the obstacle, then: everloop forget {}", ended.id))
        })?;
        done.forgotten.push(ended);
    }
    home.wake();
    Ok(done)
}

impl ForgetPlan {
    fn add(&mut self, ended: EndedLoop) {
        if self.forgotten.iter().all(|other| other.id != ended.id) {
            self.forgotten.push(ended);
        }
    }
}

/// The loop that a word names, if it is over and no other has the name.
fn named(context: &ServiceContext, ledger: &Sqlite, word: &str) -> Result<LoopState, Failure> {
    let (row, state) = context.find_loop(ledger, Some(word))?;
    if row.id.as_str() != word {
        loops::need_one(&loops::called(ledger, word, |_| true)?, word)?;
    }
    Ok(state)
}

fn stays(state: &LoopState, why: &str) -> Failure {
    let id = &state.id;
    let failure = Failure::usage(format!("loop `{id}` stays: {why}"));
    match &state.phase {
        _ if mesh_loop_of(id).is_some() => failure,
        Phase::Ended { .. } => failure.hint(format!("bring its work to your branch: everloop take {id}; or --force")),
        _ => failure.hint(format!("end it first: everloop stop {id}")),
    }
}

/// What goes with a loop and the further workers of its run, or why they have to stay.
fn examine_team(
    home: &StateFolder,
    ledger: &Sqlite,
    state: &LoopState,
    untaken: UntakenWork,
) -> Result<Result<Vec<EndedLoop>, String>, Failure> {
    let mut all = match examine(home, ledger, state, untaken)? {
        Ok(ended) => vec![ended],
        Err(why) => return Ok(Err(why)),
    };
    for id in state.team().into_iter().filter(|id| *id != state.id && !state.is_helper()) {
        let Some(row) = ledger.get_loop(&id)? else { continue };
        // What the person has of the run is known by its champion.
        match examine(home, ledger, &read_state(&row)?, UntakenWork::Lose)? {
            Ok(ended) => all.push(ended),
            Err(why) => return Ok(Err(format!("worker {id}: {why}"))),
        }
    }
    Ok(Ok(all))
}

/// What goes with a loop, or why it has to stay.
fn examine(
    home: &StateFolder,
    ledger: &Sqlite,
    state: &LoopState,
    untaken: UntakenWork,
) -> Result<Result<EndedLoop, String>, Failure> {
    if mesh_loop_of(&state.id).is_some() {
        return Ok(Err("it belongs to a task of the mesh, and its node removes it a day after its end".to_owned()));
    }
    let Phase::Ended { at, .. } = &state.phase else { return Ok(Err("it is not over".to_owned())) };
    let refs = match block_on(refs_of(state, untaken))? {
        Ok(Some(refs)) => refs,
        Ok(None) => return Ok(Err("its work is on no branch of yours".to_owned())),
        Err(error) => return Ok(Err(format!("its repository cannot be read: {error}"))),
    };
    let turns = Traces::read(ledger, &state.id)?.turns;
    Ok(Ok(EndedLoop {
        id: state.id.clone(),
        name: state.name.clone(),
        dir: PathBuf::from(&state.spec.workspace.dir),
        ending: state.phase.label().to_owned(),
        ended_at: *at,
        refs,
        folders: home.of_loop(&state.id, &turns),
    }))
}

/// The refs of a loop; `None` when its work would be lost with them.
async fn refs_of(state: &LoopState, untaken: UntakenWork) -> Result<Option<Vec<String>>, WorkspaceError> {
    let workspace = &state.spec.workspace;
    if workspace.mode == WorkspaceMode::InPlace {
        return Ok(Some(Vec::new()));
    }
    let Some(refs) = LoopRefs::find(Path::new(&workspace.dir), &state.id).await? else { return Ok(Some(Vec::new())) };
    let waiting = diff::kept(state).filter(|commit| state.progress.taken.as_deref() != Some(*commit));
    let is_lost = match waiting {
        Some(commit) if untaken == UntakenWork::Keep => !refs.is_held(commit).await?,
        _ => false,
    };
    Ok((!is_lost).then_some(refs.names))
}

/// What a loop that was forgotten before left behind, if anything.
fn left_behind(home: &StateFolder, ledger: &Sqlite, id: &LoopId) -> Result<Option<EndedLoop>, Failure> {
    let traces = Traces::read(ledger, id)?;
    let (Some((name, dir)), Some(ended_at)) = (traces.made, traces.forgotten) else { return Ok(None) };
    let found = block_on(LoopRefs::find(&dir, id))?;
    let refs = found.ok().flatten().map(|refs| refs.names).unwrap_or_default();
    let folders = home.of_loop(id, &traces.turns);
    let is_there = !refs.is_empty() || !folders.is_empty();
    let ending = "forgotten".to_owned();
    Ok(is_there.then(|| EndedLoop { id: id.clone(), name, dir, ending, ended_at, refs, folders }))
}

/// What the journal knows of a loop.
#[derive(Debug, Default)]
struct Traces {
    /// Its name and folder.
    made: Option<(String, PathBuf)>,
    turns: BTreeSet<TurnId>,
    forgotten: Option<Time>,
}

impl Traces {
    fn read(ledger: &Sqlite, id: &LoopId) -> Result<Self, Failure> {
        let (mut traces, mut after) = (Self::default(), 0);
        loop {
            let records = ledger.journal(after, Some(id), CHUNK)?;
            let Some(last) = records.last() else { return Ok(traces) };
            after = last.seq;
            for record in records {
                match record.event {
                    Event::LoopCreated { name, spec } => traces.made = Some((name, spec.workspace.dir.into())),
                    Event::TurnStarted { turn, .. } => drop(traces.turns.insert(turn)),
                    Event::Forgotten => traces.forgotten = Some(record.at),
                    _ => {}
                }
            }
        }
    }
}

/// Closes the tickets of a loop that is gone, and records the person's decision.
fn close(context: &ServiceContext, ledger: &mut Sqlite, ended: &EndedLoop) -> Result<(), Failure> {
    let by = context.caller.name();
    let open = ledger.tickets(Tickets::Open)?.into_iter().filter(|ticket| ticket.owner.as_ref() == Some(&ended.id));
    let answer = format!("its loop was forgotten by {by}");
    let mut ops: Vec<Op> = open.map(|ticket| Op::CloseTicket { key: ticket.key, answer: answer.clone() }).collect();
    let text = format!("loop {} ({}) was forgotten by {by}", ended.id, ended.name);
    ops.push(Op::Append { owner: None, events: vec![note(text)] });
    ledger.transact(context.now(), &ops)?;
    Ok(())
}

async fn remove_files(ended: &EndedLoop) -> Result<(), WorkspaceError> {
    for folder in &ended.folders {
        remove_apart(folder).await?;
    }
    if ended.refs.is_empty() { Ok(()) } else { remove_loop_refs(&ended.dir, &ended.id).await }
}
