//! What a research run has found so far: the fold of its steps. Bounded in size; all rows are in the
//! journal and in the table.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::ladder::Rung;
use super::race::{self, CHAMPION_MOST, unbiased};
use super::row::{Row, Status};
use super::sample::{Contender, CrashKind, Measured, Sample};
use super::{Direction, ResearchSpec, TIMES_KEPT};
use crate::planted::{self, Bug};

/// Rows that the prompt and the ladder use.
pub const ROWS_KEPT: usize = 20;
/// Keeps that a line may begin from.
const KEEPS_KEPT: usize = 50;
/// Fingerprints of differences that are recognised.
const HASHES_KEPT: usize = 500;
/// Outputs without a usable value in a row that end the run.
pub const METRIC_ERRORS: u32 = 2;
/// Equal crashes in a row from which on a person is notified.
pub const SAME_CRASHES: u32 = 5;

/// A step of an experiment, as an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum ExperimentStep {
    /// The metric before the first experiment.
    Baseline { samples: Vec<Sample>, row: Box<Row> },
    /// One more measurement of the race.
    Measured { subject: Contender, sample: Sample },
    /// The change crashed and may be mended in the same experiment.
    Crashed {
        commit: String,
        kind: CrashKind,
        text: String,
        /// The strategy of the plan that it is about, counted from 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        plan: Option<u32>,
        /// What the turn took.
        #[serde(default)]
        millis: u64,
        #[serde(default)]
        microusd: u64,
    },
    /// The experiment is over.
    Decided { row: Box<Row> },
    /// The next experiments begin from an older keep.
    Branched { from: u32 },
}

/// The best commit so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Champion {
    /// The experiment that made it; 0 is the baseline.
    pub number: u32,
    pub commit: Option<String>,
    /// Its measurements, without the one that chose it.
    pub samples: Vec<f64>,
}

impl Champion {
    /// The mean of its measurements.
    pub fn value(&self) -> f64 {
        race::mean(&self.samples)
    }
}

/// A commit that was the champion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    pub number: u32,
    pub commit: String,
    pub value: f64,
    pub description: String,
}

/// An experiment whose crash is being mended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenExperiment {
    pub commit: String,
    /// The commit that it began from.
    pub base: Option<String>,
    pub kind: CrashKind,
    /// End of the output of the crash; data.
    pub text: String,
    /// Turns that mend it, the next one included.
    pub fixes: u32,
    /// The strategy of the plan that it is about, counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<u32>,
    /// What its turns took so far.
    #[serde(default)]
    pub millis: u64,
    #[serde(default)]
    pub microusd: u64,
}

/// Experiments that begin from an older keep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The experiment that the line began from.
    pub from: u32,
    pub commit: String,
    pub value: f64,
}

/// The state of a research run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResearchState {
    pub baseline: f64,
    /// All values of the baseline were equal.
    pub exact: bool,
    /// Squares and degrees of freedom of commits that were measured more than once.
    #[serde(default)]
    pub squares: f64,
    #[serde(default)]
    pub degrees: f64,
    pub champion: Champion,
    /// Experiments that are over.
    pub number: u32,
    /// Number of experiments by status.
    pub tally: BTreeMap<Status, u32>,
    /// The latest rows, oldest first.
    pub rows: Vec<Row>,
    /// Former and present champions, oldest first; the first one is the baseline.
    pub keeps: Vec<Kept>,
    /// Experiments that were over when a person last resumed the run: patience counts from there.
    #[serde(default)]
    pub resumed_at: u32,
    /// Times of the latest measurements, in milliseconds.
    pub times: Vec<u64>,
    /// Outputs without a usable value in a row.
    pub metric_errors: u32,
    /// The last crash, and how often it came in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash: Option<(String, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenExperiment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<Line>,
    /// Fingerprints of differences that were measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hashes: Vec<u64>,
    /// Strategies of the plan that an experiment was about.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub planned: BTreeSet<u32>,
    /// Sum of the chances that a keep was luck.
    pub false_keeps: f64,
}

impl ResearchState {
    /// The commit that the next experiment begins from; `None` for that of the champion.
    pub fn base(&self) -> Option<&String> {
        let open = self.open.as_ref().map(|open| &open.commit);
        open.or(self.line.as_ref().map(|line| &line.commit)).or(self.champion.commit.as_ref())
    }

    /// Experiments of a status.
    pub fn count(&self, status: Status) -> u32 {
        self.tally.get(&status).copied().unwrap_or(0)
    }

    /// Experiments that were kept.
    pub fn keep_count(&self) -> u32 {
        self.count(Status::Keep) + self.count(Status::Simpler)
    }

    /// Standard deviation of the metric.
    pub fn sigma(&self) -> f64 {
        if self.degrees > 0.0 { (self.squares / self.degrees).sqrt() } else { 0.0 }
    }

    /// Experiments since the last keep.
    pub fn since_keep(&self) -> u32 {
        self.number.saturating_sub(self.champion.number)
    }

    /// Whether so many experiments in a row without a keep use up a patience.
    pub fn is_patient(&self, patience: Option<u32>) -> bool {
        let since = self.since_keep().min(self.number.saturating_sub(self.resumed_at));
        patience.is_none_or(|most| since < most)
    }

    /// The rung of the ladder, if it is on one.
    pub fn rung(&self) -> Option<Rung> {
        Rung::of(self.since_keep())
    }

    /// Whether the champion is as good as the goal.
    pub fn meets_goal(&self, spec: &ResearchSpec) -> bool {
        let meets = |goal| spec.metric.direction.meets(self.champion.value(), goal);
        !self.champion.samples.is_empty() && spec.goal_value.is_some_and(meets)
    }

    /// Applies a step.
    pub fn apply(&mut self, step: &ExperimentStep, direction: Direction) {
        match step {
            ExperimentStep::Baseline { samples, row } => self.begin(samples, row),
            ExperimentStep::Measured { subject: Contender::Champion, sample } => {
                self.clock(sample);
                if let Some(value) = sample.value()
                    && self.champion.samples.len() < CHAMPION_MOST
                {
                    self.champion.samples.push(value);
                }
            }
            ExperimentStep::Measured { subject: Contender::Candidate, sample } => self.clock(sample),
            ExperimentStep::Crashed { .. } => self.mend(step),
            ExperimentStep::Decided { row } => self.decided(row, direction),
            ExperimentStep::Branched { from } => self.branch(*from),
        }
    }

    fn mend(&mut self, step: &ExperimentStep) {
        let ExperimentStep::Crashed { commit, kind, text, plan, millis, microusd } = step else { return };
        let base = self.base().cloned();
        let before = self.open.take();
        let first = OpenExperiment {
            commit: commit.clone(),
            base,
            kind: *kind,
            text: text.clone(),
            fixes: 1,
            plan: *plan,
            millis: *millis,
            microusd: *microusd,
        };
        self.open = Some(match before {
            Some(open) => OpenExperiment {
                base: open.base,
                fixes: open.fixes + 1,
                plan: open.plan,
                millis: open.millis + millis,
                microusd: open.microusd + microusd,
                ..first
            },
            None => first,
        });
    }

    fn begin(&mut self, samples: &[Sample], row: &Row) {
        let values: Vec<f64> = samples.iter().filter_map(Sample::value).collect();
        for sample in samples {
            self.clock(sample);
        }
        self.exact = race::is_exact(&values);
        self.learn_spread(&values);
        self.baseline = race::mean(&values);
        self.champion = Champion { number: 0, commit: row.commit.clone(), samples: values };
        self.champion.samples.truncate(CHAMPION_MOST);
        let commit = row.commit.clone().unwrap_or_default();
        self.keeps = vec![Kept { number: 0, commit, value: self.baseline, description: row.description.clone() }];
    }

    /// Remembers the time of a successful measurement.
    fn clock(&mut self, sample: &Sample) {
        if matches!(sample.result, Measured::Value { .. }) {
            self.times.push(sample.millis);
            let extra = self.times.len().saturating_sub(TIMES_KEPT);
            self.times.drain(..extra);
        }
    }

    fn learn_spread(&mut self, values: &[f64]) {
        if values.len() < 2 {
            return;
        }
        let free = (values.len() - 1) as f64;
        self.squares += race::deviation(values).powi(2) * free;
        self.degrees += free;
    }

    fn decided(&mut self, row: &Row, direction: Direction) {
        self.open = None;
        self.number = row.number;
        *self.tally.entry(row.status).or_insert(0) += 1;
        // The first look of a candidate that goes on is chosen for being good.
        if let Some(own) = row.samples.get(1..) {
            self.learn_spread(own);
        }
        self.planned.extend(row.plan);
        if let Some(hash) = row.hash.filter(|hash| !self.hashes.contains(hash)) {
            self.hashes.push(hash);
            let extra = self.hashes.len().saturating_sub(HASHES_KEPT);
            self.hashes.drain(..extra);
        }
        self.metric_errors = if row.status == Status::MetricError { self.metric_errors + 1 } else { 0 };
        self.crash = match (row.status, self.crash.take()) {
            (Status::Crash, Some((why, n))) if why == row.why => Some((why, n + 1)),
            (Status::Crash, _) => Some((row.why.clone(), 1)),
            _ => None,
        };
        if row.status.keeps() {
            self.crown(row);
        } else {
            self.pass_over(row, direction);
        }
        self.rows.push(row.clone());
        let extra = self.rows.len().saturating_sub(ROWS_KEPT);
        self.rows.drain(..extra);
    }

    fn crown(&mut self, row: &Row) {
        let lucky = planted::is(Bug::KeepsTheLuckyValue);
        let samples = if lucky { row.samples[..1].to_vec() } else { unbiased(&row.samples).to_vec() };
        self.champion = Champion { number: row.number, commit: row.commit.clone(), samples };
        self.line = None;
        self.false_keeps += row.luck;
        let (value, description) = (self.champion.value(), row.description.clone());
        self.keeps.push(Kept {
            number: row.number,
            commit: row.commit.clone().unwrap_or_default(),
            value,
            description,
        });
        if self.keeps.len() > KEEPS_KEPT {
            // The baseline stays.
            self.keeps.remove(1);
        }
    }

    fn pass_over(&mut self, row: &Row, direction: Direction) {
        // A line goes on from what is better than it, even though the champion is better still.
        if let (Some(line), Some(value), Some(commit)) = (&mut self.line, row.value, &row.commit)
            && row.status == Status::Discard
            && row.guard != Some(false)
            && direction.gain(value, line.value) > 0.0
        {
            (line.commit, line.value) = (commit.clone(), value);
        }
        if self.rung() != Some(Rung::Branch) {
            self.line = None;
        }
    }

    fn branch(&mut self, from: u32) {
        let kept = self.keeps.iter().find(|keep| keep.number == from);
        self.line = kept.map(|keep| Line { from, commit: keep.commit.clone(), value: keep.value });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::tests_support::{row, state};

    fn decide(state: &mut ResearchState, row: Row) {
        state.apply(&ExperimentStep::Decided { row: Box::new(row) }, Direction::Lower);
    }

    #[test]
    fn the_champions_value_is_a_mean_of_its_own_measurements() {
        let mut state = state();
        let mut kept = row(1, Status::Keep, Some(8.0));
        kept.samples = vec![7.0, 8.5, 8.7];
        decide(&mut state, kept);
        assert_eq!(state.champion.samples, [8.5, 8.7], "the look that chose it does not count");
        assert_eq!((state.champion.number, state.since_keep(), state.keeps.len()), (1, 0, 2));
    }

    #[test]
    fn a_line_goes_on_from_what_is_better_than_it() {
        let mut state = state();
        decide(&mut state, Row { commit: Some("k1".to_owned()), ..row(1, Status::Keep, Some(5.0)) });
        state.number = 16;
        state.apply(&ExperimentStep::Branched { from: 0 }, Direction::Lower);
        assert_eq!(state.base().map(String::as_str), Some("start"));
        decide(&mut state, Row { commit: Some("b1".to_owned()), ..row(17, Status::Discard, Some(8.0)) });
        assert_eq!(state.base().map(String::as_str), Some("b1"));
        decide(&mut state, Row { commit: Some("b2".to_owned()), ..row(18, Status::Discard, Some(9.0)) });
        assert_eq!(state.base().map(String::as_str), Some("b1"));
        state.number = 25;
        decide(&mut state, row(26, Status::Discard, Some(9.0)));
        assert_eq!(state.base().map(String::as_str), Some("k1"), "the next rung begins from the champion");
    }

    #[test]
    fn equal_crashes_and_metric_errors_are_counted_in_a_row() {
        let mut state = state();
        let crash = |n| Row { why: "IndexError".to_owned(), ..row(n, Status::Crash, None) };
        decide(&mut state, crash(1));
        decide(&mut state, crash(2));
        assert_eq!(state.crash, Some(("IndexError".to_owned(), 2)));
        decide(&mut state, row(3, Status::MetricError, None));
        assert_eq!((state.crash.clone(), state.metric_errors), (None, 1));
        decide(&mut state, row(4, Status::Discard, Some(11.0)));
        assert_eq!(state.metric_errors, 0);
    }

    #[test]
    fn the_state_is_bounded() {
        let mut state = state();
        for n in 1..=2_000 {
            let status = if n % 2 == 0 { Status::Keep } else { Status::Discard };
            decide(&mut state, Row { hash: Some(u64::from(n)), ..row(n, status, Some(10.0)) });
        }
        assert_eq!((state.rows.len(), state.keeps.len(), state.hashes.len()), (ROWS_KEPT, KEEPS_KEPT, HASHES_KEPT));
        assert_eq!(state.keeps[0].number, 0);
        assert!(serde_json::to_string(&state).unwrap().len() < 40_000);
    }
}
