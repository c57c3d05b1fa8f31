//! The loops of the mesh in a list, and ending one.

use everloop_core::ids::LoopId;
use everloop_core::mesh::keys::sealed;
use everloop_core::mesh::{End, KIND, MeshLoop};
use everloop_core::op::Refusal;
use everloop_store::{Error, Ledger, Postgres};
use serde::Serialize;

use super::MeshView;
use crate::caller::person;
use crate::error::Failure;
use crate::node_keys::NodeKeys;
use crate::services::ServiceContext;

/// Another node may write at the same time; then the loop is read and changed again.
const MAX_CONFLICT_RETRIES: u32 = 8;

/// A loop of the mesh in a list.
#[derive(Clone, Debug, Serialize)]
pub struct MeshLoopLine {
    pub id: LoopId,
    /// As [`label`] names it.
    pub state: &'static str,
    /// Checks that pass on the branch.
    pub passing: usize,
    pub checks: usize,
    /// Tasks that are open.
    pub open: usize,
    /// Tasks that landed, or experiments that were kept.
    pub landed: u32,
    pub goal: String,
    /// Whether this node works on it, or it is over.
    pub trusted: bool,
}

/// All loops of the mesh that can be read.
pub fn list(view: &MeshView) -> Result<Vec<MeshLoopLine>, Failure> {
    let line = |(state, distrust): (MeshLoop, Option<String>)| {
        let (passing, checks) = checks(&state);
        MeshLoopLine {
            state: label(&state),
            passing,
            checks,
            open: state.open.len(),
            landed: state.research.as_ref().map_or(state.landed_count, |found| found.keep_count()),
            trusted: state.ended.is_some() || distrust.is_none(),
            id: state.id,
            goal: state.spec.wanted.goal,
        }
    };
    Ok(view.loops()?.into_iter().map(line).collect())
}

/// How many checks pass on the branch, and how many there are.
pub fn checks(state: &MeshLoop) -> (usize, usize) {
    let passing = state.judged.as_ref().map_or(0, |judged| judged.board.passing().len());
    (passing, state.spec.wanted.checks.len())
}

/// The state of a loop in one or two words.
pub fn label(state: &MeshLoop) -> &'static str {
    match (&state.ended, &state.judged) {
        (Some(End::Reached | End::Met { .. }), _) => "reached",
        (Some(End::Failed { .. }), _) => "failed",
        (Some(End::Stopped), _) => "stopped",
        (Some(End::GivenUp { .. }), _) => "given up",
        (Some(End::Exhausted { .. }), _) => "exhausted",
        (None, None) => "baseline",
        (None, Some(_)) => "working",
    }
}

/// Has a loop ended by the nodes; what landed stays.
pub fn stop(context: &ServiceContext, id: &str) -> Result<(), Failure> {
    let (membership, mut hub) = context.hub()?;
    let keys = NodeKeys::open(&context.home()?, &membership.node)?;
    // The leader writes it often; then it is read again.
    for _ in 0..MAX_CONFLICT_RETRIES {
        let (version, mut state) = find(&hub, id)?;
        if state.ended.is_some() {
            return Err(Failure::usage(format!("loop `{id}` is over: {}", label(&state))));
        }
        state.stop = true;
        let note = format!("{} wants it to stop", person());
        match hub.transact(context.now(), &sealed(state.save(version, &[note]), &keys)) {
            Err(Error::Refused(Refusal::Conflict { .. })) => {}
            other => {
                other?;
                return Ok(());
            }
        }
    }
    Err(Failure::failed(format!("gave up after {MAX_CONFLICT_RETRIES} write conflicts on loop `{id}`"))
        .hint("try again"))
}

/// A loop of the hub with the version of its document.
pub(super) fn find(hub: &Postgres, id: &str) -> Result<(u64, MeshLoop), Failure> {
    let Some(doc) = hub.doc(KIND, id)? else { return Err(no_such(id)) };
    let state = MeshLoop::read(&doc.body)
        .map_err(|why| Failure::failed(format!("cannot read loop `{id}` of the mesh: {why}")))?;
    Ok((doc.version, state))
}

/// The mesh has no such loop.
pub(super) fn no_such(id: &str) -> Failure {
    Failure::usage(format!("the mesh has no loop `{id}`")).hint("`everloop mesh list` shows them")
}
