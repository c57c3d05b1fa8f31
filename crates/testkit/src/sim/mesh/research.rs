//! Research runs of the mesh: what nodes report about experiments, what a leader finds, and that
//! each experiment is counted once and the champion is one line.

use std::collections::{BTreeMap, BTreeSet};

use everloop_core::event::Event;
use everloop_core::ids::LoopId;
use everloop_core::mesh::MeshLoop;
use everloop_core::mesh::node::{Claim, MergeRequest, Merged};
use everloop_core::mesh::research::{FirstValues, ReportedExperiment};
use everloop_core::research::row::{Row, Status};
use everloop_core::research::sample::{Measured, Sample};
use everloop_core::research::state::ExperimentStep;
use everloop_core::research::{Direction, MetricSpec, ResearchSpec};
use everloop_core::scoreboard::Scoreboard;

use super::Setup;
use super::git::Commit;
use super::world::World;
use crate::random::of_text;

/// The metric of the baseline; each keep is better by one.
const BASELINE: f64 = 1_000.0;

/// The metric of a research run; `None` for any other loop.
pub(super) fn spec(setup: &Setup) -> Option<Box<ResearchSpec>> {
    let metric = MetricSpec::new("metric".to_owned(), Direction::Lower);
    (setup.experiments > 0).then(|| Box::new(ResearchSpec::new(metric)))
}

impl World {
    /// The metric before the first experiment.
    pub(super) fn first_values(&self) -> FirstValues {
        if self.setup.experiments == 0 {
            return FirstValues::default();
        }
        let result = Measured::Value { value: BASELINE, others: BTreeMap::new() };
        FirstValues { samples: vec![Sample { result, millis: 10 }; 3] }
    }

    /// The loop for an experiment begins from the champion of the document.
    pub(super) fn seeded(&mut self, n: usize, claim: &Claim, state: &MeshLoop) {
        let Some(champion) = state.seed(&claim.task).and_then(|seed| seed.champion.commit) else { return };
        let Some(local) = self.nodes[n].disk.loops.get_mut(&claim.local) else { return };
        if local.champion.is_none() {
            local.base = champion.parse().unwrap_or(0);
            local.champion = Some(champion);
        }
    }

    /// The agent of an experiment is done: one in three is kept.
    pub(super) fn experimented(&mut self, n: usize, id: &LoopId, made: bool) {
        let now = self.clock(n);
        let status = match of_text(self.seed, &format!("{id} status")) % 3 {
            0 => Status::Keep,
            1 => Status::Discard,
            _ => Status::Crash,
        };
        let Some(local) = self.nodes[n].disk.loops.get_mut(id) else { return };
        (local.over, local.over_at, local.waits) = (Some(false), now, None);
        if !made {
            return;
        }
        let mut files = self.git.files(local.base).clone();
        files.insert(id.to_string());
        let value = BASELINE - files.len() as f64;
        let commit = self.git.commit(files);
        let Some(local) = self.nodes[n].disk.loops.get_mut(id) else { return };
        local.commit = Some(commit);
        let task = everloop_core::ids::TaskId::of_loop(id, 1);
        let row = Row {
            commit: Some(commit.to_string()),
            base: local.champion.clone(),
            value: Some(value),
            samples: vec![value],
            ..Row::new(1, status, task, now)
        };
        local.experiment = Some(Box::new(ReportedExperiment { row, champion: local.champion.clone() }));
    }

    /// What a leader finds about a reported keep.
    pub(super) fn weigh(&mut self, request: &MergeRequest, made: &ReportedExperiment) -> Merged {
        let Some((_, found)) = request.state.experiments() else { return Merged::Later("not begun".to_owned()) };
        let champion = found.champion.commit.clone().unwrap_or_default();
        let work = made.row.commit.as_ref().and_then(|text| text.parse::<Commit>().ok());
        let (Ok(known), Some(work)) = (champion.parse::<Commit>(), work) else {
            return Merged::Later("not begun".to_owned());
        };
        let target = self.git.target;
        if target != known && self.git.crowned() == Some(&request.task) {
            return Merged::Landed { commit: target.to_string() };
        }
        let fresh = made.is_fresh(&request.state);
        let commit = if fresh { work } else { self.git.join(known, work) };
        let keeps = fresh || !of_text(self.seed, &format!("{} replayed", request.task)).is_multiple_of(4);
        let row = Row {
            commit: Some(commit.to_string()),
            base: if fresh { made.row.base.clone() } else { Some(champion) },
            status: if keeps { Status::Keep } else { Status::Discard },
            ..made.row.clone()
        };
        Merged::Weighed { target: target.to_string(), row: Box::new(row), board: Scoreboard::default() }
    }

    /// Rows that were written to the journal.
    pub(super) fn count_rows(&mut self, events: &[Event]) {
        for event in events {
            let Event::Experiment { step } = event else { continue };
            match &**step {
                ExperimentStep::Baseline { row, .. } => self.facts.counted = (BTreeSet::new(), row.commit.clone()),
                ExperimentStep::Decided { row } => self.count_row(row),
                _ => {}
            }
        }
    }

    fn count_row(&mut self, row: &Row) {
        let (tasks, champion) = &mut self.facts.counted;
        let new = tasks.insert(row.task.clone());
        let (counted, before) = (tasks.len(), champion.clone());
        if row.status.keeps() {
            champion.clone_from(&row.commit);
        }
        if !new || row.number as usize != counted {
            self.violated("counted once", format!("{} is row {} of {counted}", row.task, row.number));
        }
        if row.status.keeps() && row.base != before {
            let text = format!("{} stands on {:?}, and the champion was {before:?}", row.task, row.base);
            self.violated("one line", text);
        }
        let odd = self.now <= self.hub.odd_until || self.now <= self.facts.odd_lease_until;
        let there = Some(self.git.target.to_string());
        if row.status.keeps() && row.commit != there && !odd {
            self.violated("landed", format!("{} is the champion, and the remote has {there:?}", row.task));
        }
    }

    /// The hub was set back to before some rows.
    pub(super) fn recount(&mut self, state: &MeshLoop) {
        let found = state.research.as_deref();
        let tasks = found.map(|found| found.rows.iter().map(|row| row.task.clone()).collect());
        let champion = found.and_then(|found| found.champion.commit.clone());
        self.facts.counted = (tasks.unwrap_or_default(), champion);
    }

    /// A run that used up its bound made as many experiments as were wanted.
    pub(super) fn all_were_made(&mut self, state: &MeshLoop) {
        let made = self.facts.counted.0.len();
        if made != self.setup.experiments as usize || !state.open.is_empty() {
            self.violated("none lost", format!("{made} experiments, and {:?} open", state.open));
        }
    }
}
