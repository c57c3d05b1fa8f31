//! Reads research runs: their rows, the champion, the difference of an experiment, the report.
//! [`apply`] brings their results to the person.

use std::collections::BTreeMap;
use std::path::Path;

use everloop_agents::workspace::WorkDiff;
use everloop_core::ids::LoopId;
use everloop_core::research::row::Row;
use everloop_core::research::state::ResearchState;
use everloop_core::research::{ResearchSpec, summary};
use everloop_core::state::LoopState;
use everloop_store::{Ledger, Sqlite};
use serde::Serialize;

use super::runtime::block_on;
use super::{ServiceContext, no_loops};
use crate::error::Failure;
use crate::record::read_state;
use crate::research;

pub mod apply;

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
}

/// A research run with all its rows.
#[derive(Clone, Debug, Serialize)]
pub struct RunAnswer {
    #[serde(rename = "loop")]
    pub id: LoopId,
    pub name: String,
    pub phase: String,
    pub goal: String,
    pub rows: Vec<Row>,
    /// The run in a few lines.
    pub summary: String,
    #[serde(skip)]
    pub state: Box<LoopState>,
}

impl RunAnswer {
    /// The settings and the findings of the run.
    pub fn parts(&self) -> Result<(&ResearchSpec, &ResearchState), Failure> {
        let begun = self.state.spec.research.as_deref().zip(self.state.research.as_deref());
        begun.ok_or_else(|| not_begun(&self.id))
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

/// All research runs, the latest last.
pub fn list(context: &ServiceContext) -> Result<Vec<RunLine>, Failure> {
    let home = context.home()?;
    let Some(ledger) = context.reader(&home)? else { return Ok(Vec::new()) };
    let mut lines = Vec::new();
    for state in runs(&ledger)? {
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
        });
    }
    Ok(lines)
}

/// One run with its rows; without a word the only one, or the one of this folder.
pub fn show(context: &ServiceContext, word: Option<&str>) -> Result<RunAnswer, Failure> {
    let home = context.home()?;
    let Some(ledger) = context.reader(&home)? else { return Err(no_loops()) };
    let state = find(context, &ledger, word)?;
    // The journal has all rows; a table that cannot be written hides none of them.
    if let Err(failure) = research::record(&home, &state) {
        tracing::warn!(owner = %state.id, error = %failure.message, "cannot write the results");
    }
    let rows = research::rows(&ledger, &state.id)?;
    let summary = match (state.spec.research.as_deref(), state.research.as_deref()) {
        (Some(spec), Some(found)) => summary::summary(spec, found, state.spec.bounds.max_turns),
        _ => String::new(),
    };
    Ok(RunAnswer {
        id: state.id.clone(),
        name: state.name.clone(),
        phase: state.phase.label().to_owned(),
        goal: state.spec.goal.clone(),
        rows,
        summary,
        state: Box::new(state),
    })
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
    runs(ledger)?.into_iter().rfind(|state| state.is_in(&context.dir)).ok_or_else(none)
}

/// All research runs, oldest first.
fn runs(ledger: &Sqlite) -> Result<Vec<LoopState>, Failure> {
    let states: Result<Vec<LoopState>, Failure> = ledger.loops()?.iter().map(read_state).collect();
    let mut runs: Vec<LoopState> = states?.into_iter().filter(|state| state.spec.research.is_some()).collect();
    runs.sort_by_key(|state| state.created_at);
    Ok(runs)
}

/// The difference of an experiment, as a patch.
pub fn patch(run: &RunAnswer, row: &Row) -> Result<String, Failure> {
    let (Some(base), Some(commit)) = (&row.base, &row.commit) else {
        return Err(Failure::usage(format!("experiment {} of run `{}` changed nothing", row.number, run.id)));
    };
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
