//! Loops and what they are doing. One look at the ledger, never at the journal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use everloop_core::event::LoopEnd;
use everloop_core::guard::{Freeze, Guards, Scope};
use everloop_core::hook::{HookSession as Record, SESSION};
use everloop_core::ids::LoopId;
use everloop_core::immune::Immune;
use everloop_core::mesh::work::mesh_loop_of;
use everloop_core::op::Ticket;
use everloop_core::state::{LoopState, Phase};
use everloop_store::{Ledger, Sqlite, Tickets};

use super::sessions::{SHOWN, read_record};
use super::{ServiceContext, no_loops};
use crate::error::Failure;
use crate::outboxes;
use crate::record::read_state;
use crate::research::with_findings;
use crate::state_folder::{LockOwner, StateFolder, node_id};
use crate::trust::{Difference, FileHashes, TrustStore, canonical};

/// What one read of the ledger found.
#[derive(Debug, Default)]
pub struct StatusAnswer {
    /// Without those that worked on a task of the mesh and are over.
    pub loops: Vec<LoopState>,
    /// What this node did for loops of the mesh, by their ids.
    pub mesh: BTreeMap<LoopId, MeshTasks>,
    pub guards: Guards,
    pub tickets: Vec<Ticket>,
    /// Notifiers that cannot be reached, and what is wrong.
    pub troubles: Vec<(String, String)>,
    /// Sessions that everloop did not start, by id.
    pub sessions: Vec<(String, Record)>,
    pub immune: Immune,
    /// Files of projects that are not what is in force.
    pub configuration: Vec<Difference>,
    pub supervisor: Option<LockOwner>,
}

/// This node's attempts at tasks of a loop of the mesh. Those that are over are kept for a day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeshTasks {
    /// The goal of that loop.
    pub goal: String,
    pub open: usize,
    /// Over, with the goal of the task reached.
    pub reached: usize,
    /// Over without that.
    pub failed: usize,
}

/// Takes out loops that worked on a task of the mesh and are over, and counts them by their loop.
fn group(loops: &mut Vec<LoopState>) -> BTreeMap<LoopId, MeshTasks> {
    let mut groups: BTreeMap<LoopId, MeshTasks> = BTreeMap::new();
    loops.retain(|state| {
        let Some(owner) = mesh_loop_of(&state.id) else { return true };
        let group = groups.entry(owner).or_default();
        // The rest of it is about the one task.
        state.spec.goal.lines().next().unwrap_or_default().clone_into(&mut group.goal);
        match &state.phase {
            Phase::Ended { ending: LoopEnd::Reached, .. } => group.reached += 1,
            Phase::Ended { .. } => group.failed += 1,
            Phase::New | Phase::Ready | Phase::Waiting { .. } | Phase::Turn(_) => group.open += 1,
        }
        !state.is_over()
    });
    groups
}

/// All loops, or the one that a word means, and what concerns them.
pub fn status(context: &ServiceContext, word: Option<&str>) -> Result<StatusAnswer, Failure> {
    let home = context.home()?;
    let supervisor = home.owner();
    let Some(ledger) = context.reader(&home)? else {
        return match word {
            Some(_) => Err(no_loops()),
            None => Ok(StatusAnswer { supervisor, ..StatusAnswer::default() }),
        };
    };
    let all = || -> Result<Vec<LoopState>, Failure> {
        let states = ledger.loops()?.iter().map(read_state).collect::<Result<Vec<_>, _>>()?;
        let runs = states.into_iter().filter(|state| !state.is_helper());
        runs.map(|state| with_findings(&ledger, state)).collect()
    };
    let (mut loops, mesh) = if let Some(word) = word {
        match context.find_loop(&ledger, Some(word)) {
            Ok((_, state)) => (vec![state], BTreeMap::new()),
            Err(failure) => of_mesh(all()?, word).ok_or(failure)?,
        }
    } else {
        let mut loops = all()?;
        let mesh = group(&mut loops);
        (loops, mesh)
    };
    loops.sort_by_key(|s| std::cmp::Reverse((s.is_in(&context.dir), !s.is_over(), s.created_at)));
    let mut tickets = ledger.tickets(Tickets::Open)?;
    if word.is_some() {
        tickets.retain(|t| t.owner.is_none() || loops.iter().any(|s| t.owner.as_ref() == Some(&s.id)));
    }
    let mut sessions = Vec::new();
    for row in ledger.docs(SESSION)? {
        let record = read_record(&row.body)?;
        let here = word.is_none() || loops.iter().any(|s| record.owner.as_ref() == Some(&s.id));
        if here && !record.ended && context.now().since(record.seen_at) < SHOWN {
            sessions.push((row.key, record));
        }
    }
    let troubles = outboxes::troubles(&ledger, context.now())?;
    let (_, immune) = crate::immune::read(&ledger)?;
    let configuration = configuration(context, &home, &ledger, &loops)?;
    Ok(StatusAnswer {
        loops,
        mesh,
        guards: ledger.guards()?,
        tickets,
        troubles,
        sessions,
        immune,
        configuration,
        supervisor,
    })
}

/// What this node does for the loop of the mesh with this id; `None` when that is nothing.
fn of_mesh(mut loops: Vec<LoopState>, id: &str) -> Option<(Vec<LoopState>, BTreeMap<LoopId, MeshTasks>)> {
    loops.retain(|state| mesh_loop_of(&state.id).is_some_and(|owner| owner.as_str() == id));
    let mesh = group(&mut loops);
    (!mesh.is_empty()).then_some((loops, mesh))
}

/// Files that differ from what is in force: in the folders of loops that are not over, and of the
/// caller where something was accepted.
fn configuration(
    context: &ServiceContext,
    home: &StateFolder,
    ledger: &Sqlite,
    loops: &[LoopState],
) -> Result<Vec<Difference>, Failure> {
    let (store, own) = (TrustStore::read(ledger)?, canonical(home.root()));
    let open = loops.iter().filter(|state| !state.is_over());
    let mut dirs: BTreeSet<PathBuf> = open.map(|state| PathBuf::from(&state.spec.workspace.dir)).collect();
    if store.in_force(&*context.projects, &context.dir).is_some() {
        dirs.insert(context.dir.clone());
    }
    dirs.retain(|dir| !canonical(dir).starts_with(&own));
    Ok(store.differences(&*context.projects, dirs.iter().map(PathBuf::as_path), &mut FileHashes::default()))
}

/// The freeze that keeps a loop from starting anything, with its scope.
pub fn freeze_of<'a>(state: &LoopState, guards: &'a Guards) -> Option<(Scope, &'a Freeze)> {
    let scopes = [
        Scope::All,
        Scope::Node(node_id()),
        Scope::Account(state.spec.agent.guard_account()),
        Scope::Account(state.spec.agent.account.clone()),
        Scope::Loop(state.id.clone()),
    ];
    scopes.into_iter().find_map(|scope| {
        let freeze = guards.get(&scope)?.state.freeze.as_ref()?;
        Some((scope, freeze))
    })
}
