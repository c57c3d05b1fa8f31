//! Attempts at tasks: making the loop that works on one, and pushing what it made.

use std::path::Path;
use std::sync::Arc;

use everloop_agents::workspace::{Remote, Workspace, WorkspaceOptions, result_ref};
use everloop_core::mesh::MeshLoop;
use everloop_core::mesh::node::{Claim, MeshOutcome};
use everloop_core::research::state::ResearchState;
use everloop_core::spec::{Integrate, LoopSpec, WorkspaceMode};
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_store::{Ledger, OpenMode, Sqlite};

use super::experiment;
use crate::state_folder::StateFolder;
use crate::supervisor::action_run::full_text;

/// The file that holds where a clone came from: beside the clone, because agents work inside of it.
const ADDRESS: &str = "remote";

/// The loop to make for a task.
pub(super) struct NewLoop {
    pub title: String,
    pub state: MeshLoop,
    pub spec: LoopSpec,
    pub now: Time,
}

/// Makes the loop that works on a task.
pub(super) async fn begin(claim: Arc<Claim>, new: NewLoop, home: StateFolder) -> MeshOutcome {
    let made = make(&claim, new, &home).await;
    MeshOutcome::Begun { key: claim.key.clone(), made }
}

async fn make(claim: &Claim, new: NewLoop, home: &StateFolder) -> Result<(), String> {
    let NewLoop { title, state, spec, now } = new;
    let mut ledger = Sqlite::open(&home.database(), OpenMode::ReadWrite).map_err(|e| full_text(&e))?;
    let mut seed = state.seed(&claim.task);
    if let Some(seed) = &mut seed {
        experiment::calibrate(&ledger, &claim.owner, seed);
    }
    let spec = prepare(claim, &state, (spec, seed.as_deref_mut()), home).await?;
    let id = claim.local.clone();
    if ledger.get_loop(&id).map_err(|e| full_text(&e))?.is_none() {
        let mut new = LoopState::new(id, title, spec, now);
        new.research = seed;
        ledger.transact(now, &new.birth()).map_err(|e| full_text(&e))?;
    }
    home.wake();
    Ok(())
}

/// The clone, the branch in it, and the folder in which to work.
async fn prepare(
    claim: &Claim,
    state: &MeshLoop,
    (spec, seed): (LoopSpec, Option<&mut ResearchState>),
    home: &StateFolder,
) -> Result<LoopSpec, String> {
    let dir = home.mesh().join(claim.owner.as_str());
    let remote = Remote::open(&dir.join("repo"), &state.spec.remote).await.map_err(|e| full_text(&e))?;
    let base = match seed {
        Some(seed) => Some(experiment::base(&remote, state, seed).await?),
        None => remote.fetch(&state.spec.branch).await.map_err(|e| full_text(&e))?,
    };
    let noted = std::fs::write(dir.join(ADDRESS), &state.spec.remote);
    noted.map_err(|e| format!("cannot write the address of the remote: {e}"))?;
    let base = base.ok_or_else(|| format!("the remote has no `{}`", state.spec.branch))?;
    let target = result_ref(&claim.local);
    remote.begin(&target, &base).await.map_err(|e| full_text(&e))?;
    let mut spec = spec;
    // A task that waited for a person on one node would be held from all others.
    spec.guard.start_broken = true;
    let folder = remote.folder(&state.spec.below).map_err(|e| full_text(&e))?;
    spec.workspace.dir = folder.to_string_lossy().into_owned();
    spec.workspace.mode = WorkspaceMode::Git { target };
    spec.workspace.integrate = Integrate::Reached;
    let options =
        WorkspaceOptions { owner: claim.local.clone(), root: home.work(&claim.local), spec: spec.workspace.clone() };
    let workspace = Workspace::open(options).await.map_err(|e| full_text(&e))?;
    spec.workspace.origin = workspace.origin().await.map_err(|e| full_text(&e))?;
    Ok(spec)
}

/// Pushes what a loop made: its branch when it reached its goal, its last work otherwise.
pub(super) async fn push(
    claim: Arc<Claim>,
    reference: String,
    (reached, work): (bool, Option<String>),
    home: StateFolder,
) -> MeshOutcome {
    let dir = home.mesh().join(claim.owner.as_str());
    let pushed = push_work(&claim, &reference, (reached, work), &dir).await;
    MeshOutcome::Pushed { key: claim.key.clone(), reference, reached, pushed }
}

async fn push_work(
    claim: &Claim,
    reference: &str,
    (reached, work): (bool, Option<String>),
    dir: &Path,
) -> Result<Option<String>, String> {
    let url = std::fs::read_to_string(dir.join(ADDRESS))
        .map_err(|e| format!("cannot read the address of the remote: {e}"))?;
    let remote = Remote::open(&dir.join("repo"), &url).await.map_err(|e| full_text(&e))?;
    let there = remote.local(&result_ref(&claim.local)).await.map_err(|e| full_text(&e))?;
    // The ledger decides; a ref that differs was moved by something else.
    if reached && there != work {
        return Err(format!("`{}` is not at the loop's work", result_ref(&claim.local)));
    }
    let commit = work;
    if let Some(commit) = &commit {
        remote.pin(commit, reference).await.map_err(|e| full_text(&e))?;
    }
    Ok(commit)
}
