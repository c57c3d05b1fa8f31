//! Reads research runs: their rows, the champion, the difference of an experiment, the report.
//! [`apply`] brings their results to the person, [`tasks`] their next steps to the board; [`import`]
//! reads tables of other tools; `shared`: runs of the mesh.

use std::collections::BTreeMap;
use std::path::Path;

use everloop_agents::workspace::WorkDiff;
use everloop_core::ids::LoopId;
use everloop_core::mesh::work::mesh_loop_of;
use everloop_core::research::chart::Chart;
use everloop_core::research::pareto::FrontierPoint;
use everloop_core::research::row::Row;
use everloop_core::research::state::ResearchState;
use everloop_core::research::{ResearchSpec, summary};
use everloop_core::state::{LoopSpend, LoopState, TurnTally};
use everloop_store::{Ledger, Sqlite};
use serde::Serialize;

use super::runtime::block_on;
use super::{ServiceContext, no_loops};
use crate::error::{Code, Failure};
use crate::record::read_state;
use crate::research::{self, with_findings};

pub mod apply;
pub mod import;
mod shared;
pub mod tasks;

/// A research run in a list.
#[derive(Clone, Debug, Serialize)]
pub struct RunLine {
    #[serde(rename = "loop")]
    pub id: LoopId,
    pub name: String,
    pub phase: String,
    pub goal: String,
    pub experiments: u32,
    pub baseline: Option<f64>,
    pub best: Option<f64>,
    pub keeps: u32,
    pub workers: u32,
}

/// A research run with all its rows.
#[derive(Clone, Debug, Serialize)]
pub struct RunAnswer {
    #[serde(rename = "loop")]
    pub id: LoopId,
    pub name: String,
    pub phase: String,
    pub goal: String,
    /// Experiments at a time.
    pub workers: u32,
    pub rows: Vec<Row>,
    /// The run in a few lines.
    pub summary: String,
    /// The frontier, oldest first, where further metrics count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frontier: Vec<FrontierPoint>,
    #[serde(skip)]
    pub state: Box<LoopState>,
    /// The git remote of a run of the mesh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
}

impl RunAnswer {
    /// The settings and the findings of the run.
    pub fn parts(&self) -> Result<(&ResearchSpec, &ResearchState), Failure> {
        let begun = self.state.spec.research.as_deref().zip(self.state.research.as_deref());
        begun.ok_or_else(|| not_begun(&self.id))
    }

    /// All experiments as a drawing.
    pub fn chart(&self) -> Result<Chart<'_>, Failure> {
        let (spec, research) = self.parts()?;
        Ok(Chart {
            title: &self.name,
            metric: spec.metric.name.as_deref().unwrap_or(&spec.metric.check.run),
            direction: spec.metric.direction,
            rows: &self.rows,
            sigma: research.sigma(),
            goal: spec.goal_value,
        })
    }

    /// The row of an experiment.
    pub fn row(&self, number: u32) -> Result<&Row, Failure> {
        self.rows.iter().find(|row| row.number == number).ok_or_else(|| {
            let last = self.rows.last().map_or(0, |row| row.number);
            Failure::usage(format!("run `{}` has no experiment {number}", self.id))
                .hint(format!("its experiments are 0 (the baseline) to {last}: everloop research show {}", self.id))
        })
    }
}

fn not_begun(id: &LoopId) -> Failure {
    Failure::usage(format!("run `{id}` has not measured its baseline yet")).hint(format!("everloop why {id}"))
}

/// All research runs, the latest last; those of the mesh first.
pub fn list(context: &ServiceContext) -> Result<Vec<RunLine>, Failure> {
    let home = context.home()?;
    let mut lines = shared::list(context)?;
    let Some(ledger) = context.reader(&home)? else { return Ok(lines) };
    for state in runs(&ledger)? {
        let state = with_findings(&ledger, state)?;
        let Some(spec) = state.spec.research.as_ref() else { continue };
        let research = state.research.as_deref();
        lines.push(RunLine {
            id: state.id.clone(),
            name: state.name.clone(),
            phase: state.phase.label().to_owned(),
            goal: state.spec.goal.clone(),
            experiments: research.map_or(0, |research| research.number),
            baseline: research.map(|research| research.baseline),
            best: research.map(|research| research.champion.value()),
            keeps: research.map_or(0, ResearchState::keep_count),
            workers: spec.workers,
        });
    }
    Ok(lines)
}

/// One run with its rows; without a word the only one, or the one of this folder. A run that is not
/// in the ledger of this machine is looked for in the mesh.
pub fn show(context: &ServiceContext, word: Option<&str>) -> Result<RunAnswer, Failure> {
    match own(context, word) {
        Err(failure) if failure.code == Code::Usage => shared::show(context, word)?.ok_or(failure),
        found => found,
    }
}

fn own(context: &ServiceContext, word: Option<&str>) -> Result<RunAnswer, Failure> {
    let home = context.home()?;
    let Some(ledger) = context.reader(&home)? else { return Err(no_loops()) };
    let state = find(context, &ledger, word)?;
    // The journal has all rows; a table that cannot be written hides none of them.
    if let Err(failure) = research::record(&home, &state) {
        tracing::warn!(owner = %state.id, error = %failure.message, "cannot write the results");
    }
    let rows = research::rows_of(&ledger, &state)?;
    let state = summed(&ledger, state)?;
    let summary = match (state.spec.research.as_deref(), state.research.as_deref()) {
        (Some(spec), Some(found)) => summary::summary(spec, found, state.spec.bounds.max_turns),
        _ => String::new(),
    };
    Ok(RunAnswer {
        id: state.id.clone(),
        name: state.name.clone(),
        phase: state.phase.label().to_owned(),
        goal: state.spec.goal.clone(),
        workers: state.spec.research.as_ref().map_or(1, |spec| spec.workers),
        rows,
        summary,
        frontier: state.research.as_ref().map(|found| found.frontier.clone()).unwrap_or_default(),
        state: Box::new(state),
        remote: None,
    })
}

/// The run with the turns and the spend of all its workers.
pub fn summed(ledger: &Sqlite, mut state: LoopState) -> Result<LoopState, Failure> {
    for id in state.team().iter().filter(|id| **id != state.id) {
        let Some(row) = ledger.get_loop(id)? else { continue };
        let worker = read_state(&row)?;
        add_spend(&mut state.spend, &worker.spend);
        add_tally(&mut state.progress.tally, &worker.progress.tally);
        state.task.turns += worker.task.turns;
        state.people.tickets.extend(worker.people.tickets);
    }
    Ok(state)
}

fn add_spend(sum: &mut LoopSpend, spend: &LoopSpend) {
    sum.spent = sum.spent.plus(spend.spent);
    sum.estimated |= spend.estimated;
    sum.asleep += spend.asleep;
    sum.in_turns += spend.in_turns;
}

fn add_tally(sum: &mut TurnTally, tally: &TurnTally) {
    let TurnTally { progress, not_yet, no_op, refused, regressed, agent_failed, task_failed, .. } = *tally;
    let TurnTally { interrupted, lost, limited, discarded, .. } = *tally;
    sum.progress += progress;
    sum.not_yet += not_yet;
    sum.no_op += no_op;
    sum.refused += refused;
    sum.regressed += regressed;
    sum.agent_failed += agent_failed;
    sum.task_failed += task_failed;
    sum.interrupted += interrupted;
    sum.lost += lost;
    sum.limited += limited;
    sum.discarded += discarded;
}

fn find(context: &ServiceContext, ledger: &Sqlite, word: Option<&str>) -> Result<LoopState, Failure> {
    let none = || {
        Failure::usage("there is no research run here")
            .hint("everloop research \"GOAL\" --metric 'CMD' --direction lower --agent claude; all runs: everloop research list")
    };
    if let Some(word) = word {
        let (_, state) = context.find_loop(ledger, Some(word))?;
        return if state.spec.research.is_some() {
            Ok(state)
        } else {
            Err(Failure::usage(format!("loop `{}` is no research run", state.id)).hint("everloop research list"))
        };
    }
    let here = runs(ledger)?.into_iter().rfind(|state| state.is_in(&context.dir));
    with_findings(ledger, here.ok_or_else(none)?)
}

/// All research runs, oldest first.
fn runs(ledger: &Sqlite) -> Result<Vec<LoopState>, Failure> {
    let states: Result<Vec<LoopState>, Failure> = ledger.loops()?.iter().map(read_state).collect();
    let is_run = |state: &LoopState| state.spec.research.is_some() && !state.is_helper();
    let mut runs: Vec<LoopState> = states?.into_iter().filter(is_run).collect();
    // An experiment of the mesh is a part of a run.
    runs.retain(|state| mesh_loop_of(&state.id).is_none());
    runs.sort_by_key(|state| state.created_at);
    Ok(runs)
}

/// The difference of an experiment, as a patch.
pub fn patch(run: &RunAnswer, row: &Row) -> Result<String, Failure> {
    let (Some(base), Some(commit)) = (&row.base, &row.commit) else {
        return Err(Failure::usage(format!("experiment {} of run `{}` changed nothing", row.number, run.id)));
    };
    shared::fetch(run, row)?;
    let dir = Path::new(&run.state.spec.workspace.dir);
    let read = async {
        match WorkDiff::open(dir, &run.id, (Some(base), Some(commit))).await? {
            Some(diff) => diff.patch().await,
            None => Ok(String::new()),
        }
    };
    block_on(read)?
        .map_err(|e| Failure::failed(format!("cannot read the change of experiment {}", row.number)).because(&e))
}

/// The differences of all kept experiments.
pub fn kept_patches(run: &RunAnswer) -> BTreeMap<u32, String> {
    let kept = run.rows.iter().filter(|row| row.status.keeps());
    kept.filter_map(|row| Some((row.number, patch(run, row).ok()?))).collect()
}
