//! A run with several workers: what all of them found, as one document of the ledger. It is the
//! fold of the workers' events in the order of the journal, and each worker sees its own part.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::state::{ExperimentStep, OpenExperiment, ResearchState};
use super::{Direction, ResearchSpec};
use crate::event::{Event, LoopEnd};
use crate::ids::LoopId;
use crate::scoreboard::Scoreboard;
use crate::spec::{Budget, LoopSpec};

/// Kind of the documents; their key is the run.
pub const DOC: &str = "research";

/// Most workers of a run on one node.
pub const WORKERS_MOST: u32 = 64;

/// What the workers of a run found together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SharedRun {
    /// `None` until the baseline is measured.
    pub found: Option<Box<ResearchState>>,
    /// The guards at the baseline, and its commit.
    #[serde(default)]
    pub baseline: Option<(Scoreboard, Option<String>)>,
    #[serde(default)]
    pub workers: BTreeMap<LoopId, WorkerExperiment>,
    /// Why the run ended before its baseline was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// The experiment of one worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerExperiment {
    /// The commit that it began from, or was replayed on.
    pub base: Option<String>,
    /// The champion at that time.
    pub against: Option<String>,
    /// A turn is under way.
    pub running: bool,
    /// Its crash is being mended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenExperiment>,
}

impl WorkerExperiment {
    fn is_under_way(&self) -> bool {
        self.running || self.open.is_some()
    }
}

/// A worker's part of a shared run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnPart {
    pub base: Option<String>,
    pub against: Option<String>,
    pub running: bool,
    /// Experiments of other workers that are under way.
    pub others: u32,
}

impl SharedRun {
    /// Reads a document.
    pub fn read(body: &str) -> Result<Self, String> {
        serde_json::from_str(body).map_err(|e| e.to_string())
    }

    /// The document's text.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("it is plain data and always has a JSON form")
    }

    /// The findings as one worker sees them; `None` until the baseline is measured.
    pub fn view(&self, worker: &LoopId) -> Option<Box<ResearchState>> {
        let mut view = self.found.clone()?;
        let own = self.workers.get(worker).cloned().unwrap_or_default();
        let others = self.workers.iter().filter(|(id, other)| *id != worker && other.is_under_way()).count();
        view.open = own.open;
        view.own = Some(OwnPart {
            base: own.base,
            against: own.against,
            running: own.running,
            others: u32::try_from(others).unwrap_or(u32::MAX),
        });
        Some(view)
    }

    /// Applies an event of a worker; whether it changed anything.
    pub fn apply(&mut self, spec: &ResearchSpec, worker: &LoopId, event: &Event) -> bool {
        let is_run = spec.run.as_ref() == Some(worker);
        match event {
            Event::Baselined { board, work } if is_run => self.baseline = Some((board.clone(), work.clone())),
            Event::Experiment { step } => self.take_step(worker, step, spec.metric.direction),
            Event::TurnStarted { .. } => self.begin(worker),
            Event::TurnEnded { .. } => self.workers.entry(worker.clone()).or_default().running = false,
            Event::Resumed { .. } => {
                self.failed = None;
                self.found.iter_mut().for_each(|found| found.resume());
            }
            Event::Ended { ending: LoopEnd::Failed { why } } if is_run && self.found.is_none() => {
                self.failed = Some(why.clone());
            }
            _ => return false,
        }
        true
    }

    fn begin(&mut self, worker: &LoopId) {
        let Some(found) = &self.found else { return };
        let own = self.workers.entry(worker.clone()).or_default();
        own.running = true;
        if own.open.is_none() {
            (own.base, own.against) = (found.base().cloned(), found.champion.commit.clone());
        }
    }

    fn take_step(&mut self, worker: &LoopId, step: &ExperimentStep, direction: Direction) {
        let mut view = self.view(worker).unwrap_or_default();
        view.apply(step, direction);
        let open = view.open.take();
        view.own = None;
        self.found = Some(view);
        let own = self.workers.entry(worker.clone()).or_default();
        own.open = open;
        if let ExperimentStep::Replayed { onto, .. } = step {
            (own.base, own.against) = (Some(onto.clone()), Some(onto.clone()));
        }
    }
}

impl ResearchSpec {
    /// The workers of a shared run, the run itself first; empty for any other one.
    pub fn team(&self) -> Vec<LoopId> {
        let Some(run) = &self.run else { return Vec::new() };
        let others = (2..=self.workers.max(1)).map(|n| worker_id(run, n));
        std::iter::once(run.clone()).chain(others).collect()
    }

    /// Whether `id` is a worker of another loop's run.
    pub fn serves(&self, id: &LoopId) -> bool {
        self.run.as_ref().is_some_and(|run| run != id)
    }
}

/// The id of a further worker of a run.
fn worker_id(run: &LoopId, number: u32) -> LoopId {
    LoopId::new(format!("{run}w{number}"))
}

/// Whether a task, by its id, is one of a worker of this run.
pub fn is_of(run: &LoopId, task: &str) -> bool {
    let Some(rest) = task.strip_prefix(run.as_str()) else { return false };
    let worker = rest.strip_prefix('w').map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    rest.starts_with('-') || worker.is_some_and(|rest| rest.starts_with('-'))
}

/// A worker's share of a budget: an even part.
pub fn share(budget: &Budget, workers: u32) -> Budget {
    if workers < 2 {
        return budget.clone();
    }
    let part = |all: Option<u64>| all.map(|all| (all / u64::from(workers)).max(1));
    Budget { calls: part(budget.calls), tokens: part(budget.tokens), microusd: part(budget.microusd) }
}

/// The settings of one worker of a run: its share of the budget, and room for all of them on the
/// node.
pub fn divide(spec: &mut LoopSpec, run: &LoopId) {
    let Some(research) = spec.research.as_mut().filter(|research| research.workers > 1) else { return };
    research.run = Some(run.clone());
    let workers = research.workers;
    spec.guard.budget = share(&spec.guard.budget, workers);
    spec.guard.max_parallel_turns = spec.guard.max_parallel_turns.max(workers);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::tests_support::research;

    #[test]
    fn workers_are_named_after_their_run() {
        let run = LoopId::new("k3f9");
        let spec = ResearchSpec { workers: 3, run: Some(run.clone()), ..research() };
        let names: Vec<String> = spec.team().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["k3f9", "k3f9w2", "k3f9w3"]);
        assert!(spec.serves(&LoopId::new("k3f9w2")) && !spec.serves(&run));
        assert!(research().team().is_empty());
        assert!(is_of(&run, "k3f9-1") && is_of(&run, "k3f9w12-1"));
        assert!(!is_of(&run, "k3f9x-1") && !is_of(&run, "k3f-1") && !is_of(&run, "k3f9w2"));
    }

    #[test]
    fn a_budget_is_divided_evenly() {
        let whole = Budget { calls: Some(9), tokens: None, microusd: Some(2_000_000) };
        assert_eq!(share(&whole, 4), Budget { calls: Some(2), tokens: None, microusd: Some(500_000) });
    }
}
