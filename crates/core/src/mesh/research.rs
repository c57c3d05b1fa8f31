//! A research run of the mesh: each task is one experiment, which the node that takes it judges on
//! its own machine. The leader writes the rows down one after the other, each once, and moves the
//! champion; what is known of the run is a part of the document.

use serde::{Deserialize, Serialize};

use super::leader::{LeaderStep, report, task};
use super::{End, Judged, MeshLoop};
use crate::event::Event;
use crate::ids::{LoopId, TaskId};
use crate::jitter::mix;
use crate::op::{Op, TaskRow, TaskState};
use crate::planted::{self, Bug};
use crate::research::ResearchSpec;
use crate::research::ladder::Rung;
use crate::research::race::mean;
use crate::research::row::{Row, Status};
use crate::research::sample::{Measured, Sample};
use crate::research::state::{ExperimentStep, METRIC_ERRORS, ResearchState, SAME_CRASHES};
use crate::scoreboard::Scoreboard;
use crate::time::Time;

/// Stands where another task names its check.
pub const EXPERIMENT: &str = "experiment";

/// An experiment as the node that made it reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportedExperiment {
    pub row: Row,
    /// The champion that it was compared with.
    pub champion: Option<String>,
}

impl ReportedExperiment {
    /// Whether it was compared with the champion as it is now. Otherwise its change is replayed on
    /// the champion and measured again.
    pub fn is_fresh(&self, state: &MeshLoop) -> bool {
        let champion = state.research.as_deref().and_then(|found| found.champion.commit.as_ref());
        (champion.is_some() && self.champion.as_ref() == champion) || planted::is(Bug::KeepsWhatIsStale)
    }
}

/// The ref of the champion at the remote. The person's branch moves only by `research apply`.
pub fn champion_ref(run: &LoopId) -> String {
    format!("refs/everloop/{run}/champion")
}

/// The metric before the first experiment, as the leader found it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FirstValues {
    pub samples: Vec<Sample>,
}

impl MeshLoop {
    /// The settings and the findings of a research run; `None` for any other loop, and before the
    /// baseline.
    pub fn experiments(&self) -> Option<(&ResearchSpec, &ResearchState)> {
        self.spec.wanted.research.as_deref().zip(self.research.as_deref())
    }

    /// What a node's loop for an experiment begins with.
    pub fn seed(&self, task: &TaskId) -> Option<Box<ResearchState>> {
        let (spec, found) = self.experiments()?;
        let ahead = self.open.iter().position(|open| open.task == *task)?;
        Some(Box::new(found.seed(u32::try_from(ahead).unwrap_or(0), spec)))
    }

    /// Records guards and metric before the first experiment. Without a value the run is over.
    pub(super) fn begin_research(&mut self, judged: Judged, first: &FirstValues, now: Time) -> Vec<Op> {
        let broken = judged.board.failing().next().map(|guard| guard.name.clone());
        let failed = broken.map(|name| format!("the guard `{name}` does not pass before anything was changed"));
        if let Some(why) = failed.or_else(|| first.samples.iter().find_map(unusable)) {
            let text = format!("research run {} of the mesh ended: {why}", self.id);
            self.ended = Some(End::Failed { why });
            let key = format!("mesh:{}", self.id);
            return vec![Op::OpenTicket { key, owner: Some(self.id.clone()), text }];
        }
        let values: Vec<f64> = first.samples.iter().filter_map(Sample::value).collect();
        let row = Row {
            commit: Some(judged.commit.clone()),
            value: Some(mean(&values)),
            samples: values,
            guard: (!judged.board.0.is_empty()).then_some(true),
            millis: first.samples.iter().map(|sample| sample.millis).sum(),
            description: "baseline".to_owned(),
            ..Row::new(0, Status::Baseline, TaskId::of_loop(&self.id, 0), now)
        };
        self.judged = Some(judged);
        let step = ExperimentStep::Baseline { samples: first.samples.clone(), row: Box::new(row) };
        vec![self.take_steps(vec![step])]
    }

    /// Writes the row of an experiment down, with the next number; nothing when that has happened.
    /// `board`: the guards' results for a new champion.
    pub(super) fn fold(&mut self, task: &TaskId, row: Row, board: Option<Scoreboard>) -> Vec<Op> {
        if self.check_of(task).is_none() {
            return Vec::new();
        }
        let Some(found) = self.research.as_deref() else { return Vec::new() };
        if !planted::is(Bug::FoldsRowsTwice) {
            self.open.retain(|open| open.task != *task);
        }
        self.tried.remove(EXPERIMENT);
        self.notes.remove(EXPERIMENT);
        let row = Row { number: found.number + 1, task: task.clone(), ..row };
        if let (true, Some(commit), Some(board)) = (row.status.keeps(), row.commit.clone(), board) {
            self.judged = Some(Judged { commit, board });
        }
        let taken = self.take_steps(vec![ExperimentStep::Decided { row: Box::new(row) }]);
        std::iter::once(taken).chain(self.climb()).collect()
    }

    fn take_steps(&mut self, steps: Vec<ExperimentStep>) -> Op {
        if let Some(spec) = self.spec.wanted.research.as_deref() {
            let found = self.research.get_or_insert_default();
            for step in &steps {
                found.apply(step, spec.metric.direction);
            }
        }
        let events = steps.into_iter().map(|step| Event::Experiment { step: Box::new(step) }).collect();
        Op::Append { owner: Some(self.id.clone()), events }
    }

    /// What follows from many experiments without a keep, or with the same crash.
    fn climb(&mut self) -> Vec<Op> {
        let Some(found) = self.research.as_deref() else { return Vec::new() };
        let (stuck, crashes) = (format!("research.stuck:{}", self.id), format!("research.crashes:{}", self.id));
        let (owner, since) = (Some(self.id.clone()), found.since_keep());
        let mut ops = Vec::new();
        match &found.crash {
            Some((why, n)) if *n == SAME_CRASHES => {
                let text = format!("{n} experiments in a row crashed in the same way: {why}");
                ops.push(Op::OpenTicket { key: crashes, owner: owner.clone(), text });
            }
            Some(_) => {}
            None => ops.push(Op::CloseTicket { key: crashes, answer: "an experiment did not crash".to_owned() }),
        }
        if since == 0 {
            ops.push(Op::CloseTicket { key: stuck.clone(), answer: "an experiment was kept".to_owned() });
        }
        let Some(rung) = Rung::begins(since) else { return ops };
        let text = format!("{since} experiments in a row were not kept: {}", rung.describe());
        ops.push(Op::Append { owner: owner.clone(), events: vec![Event::Note { text: text.clone() }] });
        match rung {
            Rung::Branch => {
                let seed = self.id.as_str().bytes().fold(0, |seed, byte| mix(seed, u64::from(byte)));
                if let Some(from) = found.older_keep(seed) {
                    ops.push(self.take_steps(vec![ExperimentStep::Branched { from }]));
                }
            }
            Rung::DualForcing => {
                ops.push(Op::OpenTicket { key: stuck, owner, text: format!("{text}; the run goes on") });
            }
            Rung::Refine | Rung::NextPlan => {}
        }
        ops
    }

    /// How a research run ends besides its time and its budget.
    fn research_end(&self, spec: &ResearchSpec, found: &ResearchState) -> Option<End> {
        let exhausted = |bound: &str| Some(End::Exhausted { bound: bound.to_owned() });
        if found.meets_goal(spec) {
            return Some(End::Met { number: found.champion.number });
        }
        if found.metric_errors >= METRIC_ERRORS {
            let why = found.rows.last().map_or_else(String::new, |row| row.why.clone());
            return Some(End::Failed {
                why: format!("the metric gave no value {METRIC_ERRORS} times in a row: {why}"),
            });
        }
        if self.spec.wanted.bounds.max_turns.is_some_and(|most| found.number >= most) {
            return exhausted("turns");
        }
        if !found.is_patient(spec.patience) {
            return exhausted("patience");
        }
        let hopeless = self.tried.get(EXPERIMENT).is_some_and(|tried| *tried >= self.spec.attempts);
        let given_up = hopeless && self.open.is_empty();
        given_up.then(|| End::GivenUp { checks: vec![EXPERIMENT.to_owned()] })
    }
}

fn unusable(sample: &Sample) -> Option<String> {
    let last = |text: &str| text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output").to_owned();
    match &sample.result {
        Measured::Value { .. } => None,
        Measured::Crash { text, .. } => {
            Some(format!("the metric's command fails before anything was changed: {}", last(text)))
        }
        Measured::Timeout { .. } => {
            Some("the metric's command did not end in time before anything was changed".to_owned())
        }
        Measured::Unreadable { why } => Some(format!("the metric cannot be read: {why}")),
    }
}

/// The leader's next steps for a research run with a baseline.
pub(super) fn next(state: &MeshLoop, rows: &[TaskRow], busy: bool, now: Time) -> Vec<LeaderStep> {
    let Some((spec, found)) = state.experiments() else { return Vec::new() };
    if let Some(end) = state.research_end(spec, found) {
        return vec![LeaderStep::End(end)];
    }
    let mut steps = came_back(state, rows, busy);
    let over = steps.iter().filter(|step| !matches!(step, LeaderStep::Integrate { .. })).count();
    let folded = steps.iter().filter(|step| matches!(step, LeaderStep::Fold { .. })).count();
    let open = state.open.len().saturating_sub(over);
    let most = state.spec.wanted.bounds.max_turns.map_or(usize::MAX, |most| {
        let tasks = planted::is(Bug::CountsTasksAsExperiments);
        let counted = if tasks { state.made as usize } else { found.number as usize + folded + open };
        (most as usize).saturating_sub(counted)
    });
    let tried = state.tried.get(EXPERIMENT).copied().unwrap_or(0) as usize + over - folded;
    let hopeless = folded == 0 && tried >= state.spec.attempts as usize;
    let room = if hopeless { 0 } else { (state.spec.width as usize).saturating_sub(open).min(most) };
    for number in (state.made + 1..).take(room) {
        let task = Box::new(task(state, EXPERIMENT, number, now));
        steps.push(LeaderStep::Open { task, check: EXPERIMENT.to_owned() });
    }
    steps
}

/// Experiments that are over: the oldest keep is verified, all others are written down.
fn came_back(state: &MeshLoop, rows: &[TaskRow], busy: bool) -> Vec<LeaderStep> {
    let over = |row: &&TaskRow| matches!(row.state, TaskState::Done | TaskState::Dead);
    let mut rows: Vec<&TaskRow> = rows.iter().filter(over).collect();
    rows.sort_by_key(|row| row.updated_at);
    let (mut steps, mut keep) = (Vec::new(), None);
    for row in rows.into_iter().filter(|row| state.check_of(&row.task.id).is_some()) {
        let task = row.task.id.clone();
        let said = report(row);
        let made = said.as_ref().and_then(|said| said.experiment.as_deref()).filter(|_| row.state == TaskState::Done);
        match (made, &said) {
            (Some(made), Some(said)) if made.row.status.keeps() => {
                let step = LeaderStep::Integrate { task, fence: row.fence, report: said.clone() };
                keep.get_or_insert(step);
            }
            (Some(made), _) => steps.push(LeaderStep::Fold { task, row: Box::new(made.row.clone()) }),
            (None, said) => {
                let why = said.as_ref().map_or_else(|| "it was cancelled".to_owned(), |said| said.why.clone());
                steps.push(LeaderStep::Refuse { task, why });
            }
        }
    }
    steps.extend(keep.filter(|_| !busy));
    steps
}

#[cfg(test)]
mod tests {
    use super::super::leader::{self, LeaderStep};
    use super::super::tests::{row as task_row, state as plain};
    use super::super::{MeshLoop, TaskReport};
    use super::*;
    use crate::ids::{Fence, NodeId};
    use crate::op::NewTask;
    use crate::research::tests_support::{research, row};
    use std::collections::BTreeMap;

    const NOW: Time = Time(1_000);

    /// A run of at most `most` experiments, whose metric is 10 at commit `c0`.
    fn run(most: u32) -> MeshLoop {
        let mut state = plain();
        state.spec.wanted.research = Some(Box::new(research()));
        state.spec.wanted.bounds.max_turns = Some(most);
        state.spec.width = 3;
        let value = Measured::Value { value: 10.0, others: BTreeMap::new() };
        let first = FirstValues { samples: vec![Sample { result: value, millis: 5 }; 3] };
        let judged = Judged { commit: "c0".to_owned(), board: super::super::tests::board(&["a", "b", "c"]) };
        state.begin_research(judged, &first, NOW);
        state
    }

    fn plan(state: &mut MeshLoop, rows: &[TaskRow]) -> (Vec<NewTask>, Option<LeaderStep>) {
        let plan = leader::plan(state, rows, &[], false, NOW);
        let made = |op| if let Op::Enqueue(task) = op { Some(task) } else { None };
        (plan.ops.into_iter().filter_map(made).collect(), plan.action_run)
    }

    fn over(task: &NewTask, status: Status, champion: &str) -> TaskRow {
        let value = (!matches!(status, Status::Crash)).then_some(9.0);
        let made = Row { commit: Some(format!("of {}", task.id)), ..row(1, status, value) };
        let experiment = Some(Box::new(ReportedExperiment { row: made, champion: Some(champion.to_owned()) }));
        let report =
            TaskReport { reached: true, experiment, ..TaskReport::nothing(&NodeId::new("n1"), Fence(1), "turns") };
        task_row(task, TaskState::Done, Some(&report))
    }

    fn rows_of(state: &MeshLoop) -> Vec<(u32, Status)> {
        state.research.as_ref().expect("it has begun").rows.iter().map(|row| (row.number, row.status)).collect()
    }

    #[test]
    fn every_experiment_is_counted_once_and_as_many_are_made_as_are_wanted() {
        let mut state = run(4);
        let (made, _) = plan(&mut state, &[]);
        assert_eq!(made.len(), 3, "as far as the width goes");
        assert_eq!(state.seed(&made[1].id).map(|seed| (seed.number, seed.ends_after)), Some((1, Some(2))));
        let done = [over(&made[0], Status::Discard, "c0"), over(&made[1], Status::Crash, "c0")];
        let (more, _) = plan(&mut state, &done);
        assert_eq!(rows_of(&state), [(1, Status::Discard), (2, Status::Crash)]);
        assert_eq!(more.len(), 1, "one is under way, two are over, and four are wanted");
        plan(&mut state, &done);
        assert_eq!(rows_of(&state).len(), 2, "they are not counted again");
        let rest = [over(&made[2], Status::NoOp, "c0"), over(&more[0], Status::Refused, "c0")];
        plan(&mut state, &rest);
        let (none, _) = plan(&mut state, &rest);
        assert!(none.is_empty());
        assert_eq!(state.ended, Some(End::Exhausted { bound: "turns".to_owned() }));
        assert_eq!(state.research.map(|found| found.number), Some(4));
    }

    #[test]
    fn an_experiment_that_came_to_nothing_is_made_again() {
        let mut state = run(1);
        let (made, _) = plan(&mut state, &[]);
        assert_eq!(made.len(), 1);
        let dead = task_row(&made[0], TaskState::Dead, None);
        let (again, _) = plan(&mut state, std::slice::from_ref(&dead));
        assert_eq!(again.len(), 1, "nothing was counted for it");
        let dead = task_row(&again[0], TaskState::Dead, None);
        plan(&mut state, std::slice::from_ref(&dead));
        plan(&mut state, &[]);
        assert_eq!(state.ended, Some(End::GivenUp { checks: vec![EXPERIMENT.to_owned()] }), "not for ever");
    }

    #[test]
    fn a_keep_is_verified_first_and_only_one_at_a_time() {
        let mut state = run(9);
        let (made, _) = plan(&mut state, &[]);
        let keeps = [over(&made[0], Status::Keep, "c0"), over(&made[1], Status::Keep, "c0")];
        let (_, action) = plan(&mut state, &keeps);
        let Some(LeaderStep::Integrate { task, report, .. }) = action else { panic!("a keep is verified") };
        assert_eq!((&task, rows_of(&state).len()), (&made[0].id, 0));
        let first = report.experiment.expect("it is one");
        assert!(first.is_fresh(&state));
        state.fold(&task, first.row, None);
        assert_eq!(state.research.as_ref().and_then(|found| found.champion.commit.clone()), Some(format!("of {task}")));
        let (_, action) = plan(&mut state, &keeps);
        let Some(LeaderStep::Integrate { task, report, .. }) = action else { panic!("the other keep is next") };
        assert_eq!(task, made[1].id);
        assert!(!report.experiment.expect("it is one").is_fresh(&state), "the champion is another one now");
    }

    #[test]
    fn a_goal_value_ends_the_run_and_its_open_tasks() {
        let mut state = run(9);
        state.spec.wanted.research.as_mut().expect("it is a run").goal_value = Some(9.0);
        let (made, _) = plan(&mut state, &[]);
        let row = over(&made[0], Status::Keep, "c0");
        let made_row = leader::report(&row).and_then(|report| report.experiment).expect("it is one").row;
        state.fold(&made[0].id, made_row, None);
        let rest: Vec<TaskRow> = made[1..].iter().map(|task| task_row(task, TaskState::Queued, None)).collect();
        let plan = leader::plan(&mut state, &rest, &[], false, NOW);
        assert_eq!(state.ended, Some(End::Met { number: 1 }));
        assert_eq!(plan.ops.iter().filter(|op| matches!(op, Op::Amend { .. })).count(), 2, "they are cancelled");
    }

    #[test]
    fn a_baseline_without_a_value_or_with_a_broken_guard_ends_the_run() {
        let judged = |passing: &[&str]| Judged { commit: "c0".to_owned(), board: super::super::tests::board(passing) };
        let mut state = run(9);
        state.research = None;
        let silent = Sample { result: Measured::Unreadable { why: "no line".to_owned() }, millis: 5 };
        state.begin_research(judged(&["a", "b", "c"]), &FirstValues { samples: vec![silent] }, NOW);
        assert!(matches!(&state.ended, Some(End::Failed { why }) if why.contains("cannot be read: no line")));
        state.ended = None;
        state.begin_research(judged(&["a"]), &FirstValues::default(), NOW);
        assert!(matches!(&state.ended, Some(End::Failed { why }) if why.contains("the guard `b` does not pass")));
    }

    #[test]
    fn rungs_begin_from_the_rows_of_all_nodes() {
        let mut state = run(99);
        for n in 0..15 {
            let (made, _) = plan(&mut state, &[]);
            let task = made.first().map_or_else(|| state.open[0].task.clone(), |task| task.id.clone());
            let status = if n < 2 { Status::Keep } else { Status::Discard };
            let row = Row { commit: Some(format!("k{n}")), ..row(1, status, Some(9.0 - f64::from(n))) };
            state.fold(&task, row, None);
        }
        assert_eq!(state.research.as_ref().map(|found| found.since_keep()), Some(13));
        for _ in 0..2 {
            plan(&mut state, &[]);
            let task = state.open[0].task.clone();
            state.fold(&task, row(1, Status::Discard, Some(20.0)), None);
        }
        assert!(state.research.as_ref().is_some_and(|found| found.line.is_some()), "it began from an older keep");
    }

    #[cfg(feature = "planted")]
    #[test]
    fn planted_mistakes_are_found() {
        let found = |test: fn()| std::panic::catch_unwind(test).is_err();
        for (bug, test) in [
            (Bug::FoldsRowsTwice, every_experiment_is_counted_once_and_as_many_are_made_as_are_wanted as fn()),
            (Bug::CountsTasksAsExperiments, an_experiment_that_came_to_nothing_is_made_again),
            (Bug::KeepsWhatIsStale, a_keep_is_verified_first_and_only_one_at_a_time),
        ] {
            planted::plant(Some(bug));
            let caught = found(test);
            planted::plant(None);
            assert!(caught, "{bug:?} is not found");
        }
    }
}
