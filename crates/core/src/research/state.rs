//! What a research run has found so far: the fold of its steps. Bounded in size; all rows are in the
//! journal and in the table.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::ladder::Rung;
use super::pareto::FrontierPoint;
use super::race::{self, CHAMPION_MOST, unbiased};
use super::row::{Row, Status};
use super::sample::{Contender, CrashKind, Measured, Sample};
use super::shared::OwnPart;
use super::{Direction, ResearchSpec, TIMES_KEPT};
use crate::event::Judgement;
use crate::jitter::mix;
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
    /// The loop makes one experiment of a run that other machines share; this is what they found.
    Seeded { research: Box<ResearchState> },
    /// The champion of a shared run, measured on this machine.
    Calibrated { samples: Vec<Sample> },
    /// The champion has changed since the experiment began: its change was made again on the new
    /// one, and only that counts.
    Replayed { onto: String, judgement: Box<Judgement> },
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
    /// The frontier, oldest first, where further metrics count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frontier: Vec<FrontierPoint>,
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
    /// This loop makes only a part of a shared run, and ends with this experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_after: Option<u32>,
    /// What concerns one worker only, where several share the run; no part of the stored findings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<OwnPart>,
}

impl ResearchState {
    /// What a loop on any machine needs for one experiment of a shared run, `ahead` of which others
    /// are under way. Measurements are left out: those of different machines are not compared.
    #[must_use]
    pub fn seed(&self, ahead: u32, spec: &ResearchSpec) -> Self {
        let number = self.number + ahead;
        let mut planned = self.planned.clone();
        // Experiments that are under way have the strategies before.
        let strategies = (0..).take(spec.plan.len()).filter(|at| !self.planned.contains(at));
        planned.extend(strategies.take(ahead as usize));
        Self {
            number,
            planned,
            champion: Champion { samples: Vec::new(), ..self.champion.clone() },
            exact: false,
            squares: 0.0,
            degrees: 0.0,
            times: Vec::new(),
            open: None,
            ends_after: Some(number + 1),
            ..self.clone()
        }
    }

    /// Takes over what another loop on this machine measured of the same champion.
    pub fn calibrate_from(&mut self, other: &ResearchState) -> bool {
        let same = self.champion.commit.is_some() && self.champion.commit == other.champion.commit;
        if !same || other.champion.samples.is_empty() {
            return false;
        }
        self.champion.samples.clone_from(&other.champion.samples);
        self.times.clone_from(&other.times);
        (self.exact, self.squares, self.degrees) = (other.exact, other.squares, other.degrees);
        true
    }

    /// Whether the champion was not measured on this machine yet.
    pub fn is_uncalibrated(&self) -> bool {
        self.champion.samples.is_empty()
    }

    /// The row of the only experiment, of a loop that makes no other and is through with it.
    pub fn only_row(&self) -> Option<&Row> {
        let last = self.ends_after.filter(|last| self.number >= *last)?;
        self.rows.last().filter(|row| row.number == last)
    }

    /// An older keep from which the next experiments begin; `None` without one.
    pub fn older_keep(&self, seed: u64) -> Option<u32> {
        let older: Vec<u32> = self.keeps.iter().map(|keep| keep.number).collect();
        let older = if planted::is(Bug::NeverBranches) { &[] } else { &older[..older.len().saturating_sub(1)] };
        let at = mix(seed, u64::from(self.number)).checked_rem(older.len() as u64)?;
        older.get(usize::try_from(at).unwrap_or(0)).copied()
    }

    /// The commit that the experiment under way began from, or the next one begins from.
    pub fn base(&self) -> Option<&String> {
        let open = self.open.as_ref().map(|open| &open.commit);
        if let Some(own) = self.own.as_ref().filter(|own| own.running) {
            return open.or(own.base.as_ref());
        }
        let line = self.line_due().filter(|_| !planted::is(Bug::ForgetsItsLine)).map(|line| &line.commit);
        let last = self.rows.last().filter(|_| planted::is(Bug::BuildsOnDiscards)).and_then(|row| row.commit.as_ref());
        open.or(last).or(line).or(self.champion.commit.as_ref())
    }

    /// The line that the next experiment goes on with. Every other one begins from the champion all
    /// the same: measured on two problems, lines alone cost more experiments than they brought.
    pub fn line_due(&self) -> Option<&Line> {
        self.line.as_ref().filter(|_| Rung::is_on_line(self.since_keep()))
    }

    /// The commit that the experiment under way began from; turns that mend it do not change that.
    pub fn begun_from(&self) -> Option<String> {
        let own = self.own.as_ref().filter(|own| own.running).map(|own| own.base.clone());
        own.unwrap_or_else(|| match &self.open {
            Some(open) => open.base.clone(),
            None => self.base().cloned(),
        })
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
        patience.is_none_or(|most| since < most) || planted::is(Bug::PatienceIgnored)
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

    /// Experiments of other workers that are under way.
    pub fn others(&self) -> u32 {
        self.own.as_ref().map_or(0, |own| own.others)
    }

    /// Whether the champion has changed since the worker's experiment began.
    pub fn is_stale(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.running && own.against != self.champion.commit)
    }

    /// A person lets the run go on.
    pub fn resume(&mut self) {
        self.metric_errors = 0;
        self.resumed_at = self.number;
    }

    /// Applies a step.
    pub fn apply(&mut self, step: &ExperimentStep, direction: Direction) {
        match step {
            ExperimentStep::Baseline { samples, row } => self.begin(samples, row),
            ExperimentStep::Measured { subject: Contender::Champion, sample } => {
                self.clock(sample);
                if let Some(value) = sample.value()
                    && self.champion.samples.len() < CHAMPION_MOST
                    && !planted::is(Bug::ForgetsReruns)
                {
                    self.champion.samples.push(value);
                }
            }
            ExperimentStep::Measured { subject: Contender::Candidate, sample } => self.clock(sample),
            ExperimentStep::Crashed { .. } => self.mend(step),
            ExperimentStep::Decided { row } => self.decided(row, direction),
            ExperimentStep::Branched { from } => self.branch(*from),
            ExperimentStep::Seeded { research } => self.clone_from(research),
            ExperimentStep::Calibrated { samples } => self.calibrate(samples),
            ExperimentStep::Replayed { .. } => {}
        }
    }

    fn calibrate(&mut self, samples: &[Sample]) {
        let values: Vec<f64> = samples.iter().filter_map(Sample::value).collect();
        for sample in samples {
            self.clock(sample);
        }
        self.exact = race::is_exact(&values);
        self.learn_spread(&values);
        self.champion.samples = values;
        self.champion.samples.truncate(CHAMPION_MOST);
    }

    fn mend(&mut self, step: &ExperimentStep) {
        let ExperimentStep::Crashed { commit, kind, text, plan, millis, microusd } = step else { return };
        let base = self.begun_from();
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
                base: if planted::is(Bug::MendMovesTheBase) { Some(open.commit) } else { first.base.clone() },
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
        self.baseline = race::mean(&values);
        self.champion = Champion { number: 0, commit: row.commit.clone(), samples: Vec::new() };
        self.calibrate(samples);
        let commit = row.commit.clone().unwrap_or_default();
        self.keeps = vec![Kept { number: 0, commit, value: self.baseline, description: row.description.clone() }];
        self.place_on_frontier(row);
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
        self.place_on_frontier(row);
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
            && row.base.as_ref() == Some(&line.commit)
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
    fn an_experiment_of_a_shared_run_compares_values_of_its_own_machine() {
        let mut run = state();
        run.number = 4;
        let spec =
            ResearchSpec { plan: vec!["a".to_owned(), "b".to_owned()], ..crate::research::tests_support::research() };
        let mut here = run.seed(1, &spec);
        assert!(here.is_uncalibrated() && !here.exact, "values of another machine are not taken over");
        assert_eq!((here.number, here.ends_after, here.only_row().is_none()), (5, Some(6), true));
        assert!(
            here.planned.contains(&0) && !here.planned.contains(&1),
            "the other one under way has the first strategy"
        );
        let value = |value| Measured::Value { value, others: BTreeMap::new() };
        let samples = [20.0, 20.5, 19.5].map(|n| Sample { result: value(n), millis: 9 }).to_vec();
        here.apply(&ExperimentStep::Calibrated { samples }, Direction::Lower);
        assert_eq!((here.champion.value(), here.exact, here.champion.commit.as_deref()), (20.0, false, Some("start")));
        let mut next = run.seed(0, &spec);
        assert!(next.calibrate_from(&here), "the same champion is not measured again");
        assert_eq!((next.champion.samples.len(), next.sigma()), (3, here.sigma()));
        decide(&mut here, row(6, Status::Discard, Some(21.0)));
        assert_eq!(here.only_row().map(|row| row.number), Some(6));
        next.champion.commit = Some("another".to_owned());
        assert!(!next.calibrate_from(&here));
    }

    #[test]
    fn a_line_goes_on_from_what_is_better_than_it() {
        let mut state = state();
        decide(&mut state, Row { commit: Some("k1".to_owned()), ..row(1, Status::Keep, Some(5.0)) });
        state.number = 16;
        state.apply(&ExperimentStep::Branched { from: 0 }, Direction::Lower);
        assert_eq!(state.base().map(String::as_str), Some("start"));
        let tried = |n: u32, commit: &str, base: &str, value: f64| {
            let (commit, base) = (Some(commit.to_owned()), Some(base.to_owned()));
            Row { commit, base, ..row(n, Status::Discard, Some(value)) }
        };
        decide(&mut state, tried(17, "b1", "start", 8.0));
        assert_eq!(state.base().map(String::as_str), Some("k1"), "every other one begins from the champion");
        decide(&mut state, tried(18, "c1", "k1", 7.0));
        assert_eq!(state.base().map(String::as_str), Some("b1"), "what began from the champion is no part of the line");
        decide(&mut state, tried(19, "b2", "b1", 9.0));
        decide(&mut state, tried(20, "c2", "k1", 9.0));
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
