//! Research runs of the mesh, read from the hub: the champion from the signed document, all rows
//! from the journal.

use std::path::Path;

use everloop_agents::workspace;
use everloop_core::mesh::MeshLoop;
use everloop_core::research::row::Row;
use everloop_core::research::state::ResearchState;
use everloop_core::research::summary;
use everloop_core::state::LoopState;

use super::{RunAnswer, RunLine};
use crate::error::Failure;
use crate::membership::Membership;
use crate::research;
use crate::services::ServiceContext;
use crate::services::mesh::{MeshView, loops};
use crate::services::runtime::block_on;

/// The runs of the mesh; none on a machine that is no node.
pub(super) fn list(context: &ServiceContext) -> Result<Vec<RunLine>, Failure> {
    let Some(view) = view(context)? else { return Ok(Vec::new()) };
    let line = |state: MeshLoop| {
        let found = state.research.as_deref();
        RunLine {
            phase: loops::label(&state).to_owned(),
            experiments: found.map_or(0, |found| found.number),
            baseline: found.map(|found| found.baseline),
            best: found.map(|found| found.champion.value()),
            keeps: found.map_or(0, ResearchState::keep_count),
            workers: state.spec.width,
            goal: state.spec.wanted.goal.clone(),
            id: state.id,
            name: state.name,
        }
    };
    Ok(runs(&view)?.into_iter().map(line).collect())
}

/// A run of the mesh: the named one, or the latest that was made in this folder.
pub(super) fn show(context: &ServiceContext, word: Option<&str>) -> Result<Option<RunAnswer>, Failure> {
    let Some(view) = view(context)? else { return Ok(None) };
    let mut runs = runs(&view)?;
    runs.sort_by_key(|state| state.created_at);
    let found = match word {
        Some(word) => runs.into_iter().rfind(|state| state.id.as_str() == word || state.name == word),
        None => runs.into_iter().rfind(|state| Path::new(&state.spec.wanted.workspace.dir) == context.dir),
    };
    let Some(found) = found else { return Ok(None) };
    let rows = research::rows(view.ledger(), &found.id)?;
    let phase = loops::label(&found).to_owned();
    let wanted = found.spec.wanted.clone();
    let summary = match found.experiments() {
        Some((spec, findings)) => summary::summary(spec, findings, wanted.bounds.max_turns),
        None => String::new(),
    };
    let mut state = LoopState::new(found.id.clone(), found.name.clone(), wanted, found.created_at);
    state.research.clone_from(&found.research);
    state.spend.spent = found.spent;
    Ok(Some(RunAnswer {
        id: found.id,
        name: found.name,
        phase,
        goal: state.spec.goal.clone(),
        workers: found.spec.width,
        rows,
        summary,
        frontier: Vec::new(),
        state: Box::new(state),
        remote: Some(found.spec.remote),
    }))
}

/// Fetches the experiments of a run from the remote, as far as this machine lacks them. No ref is
/// made.
pub(super) fn fetch(run: &RunAnswer, row: &Row) -> Result<(), Failure> {
    let Some(remote) = &run.remote else { return Ok(()) };
    let wanted: Vec<&str> = [&row.base, &row.commit].into_iter().flatten().map(String::as_str).collect();
    fetched(run, remote, &wanted)
}

fn fetched(run: &RunAnswer, remote: &str, wanted: &[&str]) -> Result<(), Failure> {
    let dir = Path::new(&run.state.spec.workspace.dir);
    let fetch = workspace::fetch_commits(dir, remote, wanted);
    block_on(fetch)?.map_err(|e| Failure::failed(format!("cannot fetch run `{}` from `{remote}`", run.id)).because(&e))
}

/// Fetches the champion of a run with its line from the remote, as far as this machine lacks them. No
/// ref is made.
pub(super) fn fetch_champion(run: &RunAnswer, champion: &str) -> Result<(), Failure> {
    let Some(remote) = &run.remote else { return Ok(()) };
    fetched(run, remote, &[champion])
}

fn view(context: &ServiceContext) -> Result<Option<MeshView>, Failure> {
    let home = context.home()?;
    if Membership::read(&home)?.is_none() { Ok(None) } else { MeshView::open(context).map(Some) }
}

/// The runs that a trusted key signed: nothing else is believed.
fn runs(view: &MeshView) -> Result<Vec<MeshLoop>, Failure> {
    let runs = view
        .loops()?
        .into_iter()
        .filter(|(state, distrust)| state.spec.wanted.research.is_some() && distrust.is_none());
    Ok(runs.map(|(state, _)| state).collect())
}
