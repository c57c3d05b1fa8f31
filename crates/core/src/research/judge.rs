//! What a turn's work means for a research run: measured again, mended, or decided. Only the guards
//! and the metric decide; the agent's own opinion is not considered.

use serde::{Deserialize, Serialize};

use super::pareto::{Frontier, FrontierStep, secondary_values};
use super::race::{Look, Race, mean, unbiased};
use super::row::Status;
use super::sample::{Contender, CrashKind, Measured, Sample};
use super::simplicity::{self, ChangeSize};
use super::state::ResearchState;
use super::{KeepRule, ResearchSpec};
use crate::event::Judgement;
use crate::planted::{self, Bug};

/// What was found in the work of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inspection {
    /// The change in one sentence; data.
    pub description: String,
    /// Fingerprint of the difference; `None` without one.
    pub hash: Option<u64>,
    /// Lines that are not blank.
    pub added: u32,
    pub removed: u32,
    /// Lines in scope.
    pub scope: u32,
    /// The first look at the metric; `None` when it was not worth one.
    pub sample: Option<Sample>,
}

impl Inspection {
    fn size(&self) -> ChangeSize {
        ChangeSize { added: self.added, removed: self.removed, scope: self.scope }
    }
}

/// What comes next for an experiment.
#[derive(Clone, Debug, PartialEq)]
pub enum ExperimentVerdict {
    Measure(Contender),
    /// The next turn mends the crash.
    Fix {
        kind: CrashKind,
        text: String,
    },
    /// The champion has changed meanwhile: the change is made again on it and measured there.
    Replay,
    Decide {
        status: Status,
        why: String,
    },
}

/// An experiment with all that was measured so far.
#[derive(Clone, Copy, Debug)]
pub struct Experiment<'a> {
    pub spec: &'a ResearchSpec,
    pub state: &'a ResearchState,
    pub found: &'a Judgement,
    pub inspection: &'a Inspection,
    /// Measurements after the first look, in their order.
    pub again: &'a [(Contender, Sample)],
}

impl Experiment<'_> {
    /// Measurements of the candidate.
    pub fn samples(&self) -> Vec<&Sample> {
        let again = self.again.iter().filter(|(subject, _)| *subject == Contender::Candidate).map(|(_, sample)| sample);
        self.inspection.sample.iter().chain(again).collect()
    }

    /// Values of the candidate.
    pub fn values(&self) -> Vec<f64> {
        self.samples().into_iter().filter_map(Sample::value).collect()
    }

    /// The difference to the champion, as the table shows it; `None` without a value.
    pub fn delta(&self) -> Option<f64> {
        let values = self.values();
        (!values.is_empty()).then(|| mean(unbiased(&values)) - self.state.champion.value())
    }

    /// What comes next.
    pub fn weigh(&self) -> ExperimentVerdict {
        let decide = |status, why: String| ExperimentVerdict::Decide { status, why };
        if !self.found.violations.is_empty() && !planted::is(Bug::AcceptsCheats) {
            return decide(Status::Refused, format!("it changed {}", self.found.violations.join(", ")));
        }
        if !self.found.changed {
            return decide(Status::NoOp, "nothing was changed".to_owned());
        }
        if is_repeat(self.state, self.inspection.hash) {
            return decide(Status::Repeat, "the same change was measured before".to_owned());
        }
        let broken: Vec<&str> = self.found.board.failing().map(|row| row.name.as_str()).collect();
        if !broken.is_empty() && !planted::is(Bug::IgnoresBrokenGuards) {
            return decide(Status::Discard, format!("a guard does not pass: {}", broken.join(", ")));
        }
        for sample in self.samples() {
            match &sample.result {
                Measured::Value { .. } => {}
                Measured::Crash { kind, text } => return self.crashed(*kind, text),
                Measured::Timeout { limit_ms } => {
                    let why = format!("the measurement took longer than {} s", limit_ms.div_ceil(1000));
                    return decide(Status::Timeout, why);
                }
                Measured::Unreadable { why } if planted::is(Bug::ErrorsAreDiscards) => {
                    return decide(Status::Discard, why.clone());
                }
                Measured::Unreadable { why } => return decide(Status::MetricError, why.clone()),
            }
        }
        if self.again.iter().any(|(subject, sample)| *subject == Contender::Champion && sample.value().is_none()) {
            return decide(Status::Discard, "the champion could not be measured again".to_owned());
        }
        match self.compare() {
            ExperimentVerdict::Decide { status: Status::Discard, why } => self.place(why),
            other => other,
        }
    }

    /// What comes next for a change that is not kept: it may have a place on the frontier.
    fn place(&self, why: String) -> ExperimentVerdict {
        let values = self.values();
        let secondary = secondary_values(&self.spec.metric.pareto, &self.samples());
        let frontier = Frontier::of(self.spec, self.state).zip(secondary);
        let admitted = frontier.filter(|(frontier, own)| frontier.admits(mean(unbiased(&values)), own));
        match admitted {
            None => ExperimentVerdict::Decide { status: Status::Discard, why },
            Some((frontier, _)) if frontier.needs_another_look(values.len()) => {
                ExperimentVerdict::Measure(Contender::Candidate)
            }
            Some(_) => {
                let why = format!("{why}; nothing on the frontier is as good in everything");
                ExperimentVerdict::Decide { status: Status::Frontier, why }
            }
        }
    }

    /// How an experiment with this status changes the frontier.
    pub fn frontier(&self, status: Status) -> Option<FrontierStep> {
        let frontier = Frontier::of(self.spec, self.state).filter(|_| status.succeeds())?;
        let secondary = secondary_values(&self.spec.metric.pareto, &self.samples())?;
        frontier.join(mean(unbiased(&self.values())), secondary, status.keeps())
    }

    fn crashed(&self, kind: CrashKind, text: &str) -> ExperimentVerdict {
        let mended = self.state.open.as_ref().map_or(0, |open| open.fixes);
        if mended < kind.fixes() || planted::is(Bug::MendsForEver) {
            return ExperimentVerdict::Fix { kind, text: text.to_owned() };
        }
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output").trim();
        ExperimentVerdict::Decide { status: Status::Crash, why: format!("{}: {last}", kind.label()) }
    }

    fn compare(&self) -> ExperimentVerdict {
        let values = self.values();
        let race = self.race(&values);
        let (gain, sigma) = (race.gain(), self.state.sigma());
        let look = if values.is_empty() { Look::Measure(Contender::Candidate) } else { race.next() };
        let decide = |status, why: &str| ExperimentVerdict::Decide { status, why: why.to_owned() };
        let size = self.inspection.size();
        let stale = self.state.is_stale() && !planted::is(Bug::KeepsStaleWinners);
        match look {
            Look::Measure(_) | Look::Keep if stale => ExperimentVerdict::Replay,
            Look::Measure(subject) => ExperimentVerdict::Measure(subject),
            Look::Keep if self.spec.simplicity && self.is_not_worth_it(gain) => {
                decide(Status::Discard, "the gain is too small for so many lines")
            }
            Look::Keep => decide(Status::Keep, "better than the champion"),
            Look::Discard if self.spec.simplicity && simplicity::is_simpler(gain, sigma, size) => {
                // One look may be luck here, too.
                if stale {
                    ExperimentVerdict::Replay
                } else if race.rule == KeepRule::Race && !race.exact && values.len() < 2 {
                    ExperimentVerdict::Measure(Contender::Candidate)
                } else {
                    decide(Status::Simpler, "shorter, and not worse")
                }
            }
            Look::Discard if gain > 0.0 => decide(Status::Discard, "ahead, but within the noise"),
            Look::Discard => decide(Status::Discard, "not better than the champion"),
        }
    }

    fn race<'v>(&'v self, values: &'v [f64]) -> Race<'v> {
        Race {
            rule: self.spec.rule,
            direction: self.spec.metric.direction,
            champion: &self.state.champion.samples,
            candidate: values,
            exact: self.state.exact,
            sigma: self.state.sigma(),
        }
    }

    fn is_not_worth_it(&self, gain: f64) -> bool {
        simplicity::is_not_worth_it(gain, self.state.champion.value(), self.state.sigma(), self.inspection.size())
    }

    /// The chance that a keep is luck, from how far it is ahead.
    pub fn luck(&self) -> f64 {
        let values = self.values();
        if self.state.exact || self.state.sigma() <= 0.0 || values.is_empty() {
            return 0.0;
        }
        let champion = self.state.champion.samples.len().max(1) as f64;
        let error = self.state.sigma() * (1.0 / unbiased(&values).len() as f64 + 1.0 / champion).sqrt();
        above(self.race(&values).gain() / error)
    }
}

/// Whether the same difference was measured before.
pub fn is_repeat(state: &ResearchState, hash: Option<u64>) -> bool {
    hash.is_some_and(|hash| state.hashes.contains(&hash)) && !planted::is(Bug::MeasuresRepeats)
}

/// The share of a normal distribution above so many deviations (Abramowitz and Stegun 26.2.17).
fn above(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - above(-z);
    }
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let sum = [1.330_274_429, -1.821_255_978, 1.781_477_937, -0.356_563_782, 0.319_381_530];
    let series = sum.iter().fold(0.0, |rest, factor| (rest + factor) * t);
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * series
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::research::pareto::{FrontierPoint, SecondaryMetric};
    use crate::research::state::OpenExperiment;
    use crate::research::tests_support::{noisy_state, research, state};
    use crate::scoreboard::{CheckResult, Scoreboard, Verdict};

    fn value(value: f64) -> Sample {
        Sample { result: Measured::Value { value, others: BTreeMap::new() }, millis: 10 }
    }

    fn crash(kind: CrashKind) -> Sample {
        Sample { result: Measured::Crash { kind, text: "IndexError: 3\n".to_owned() }, millis: 10 }
    }

    struct Case {
        spec: ResearchSpec,
        state: ResearchState,
        found: Judgement,
        inspection: Inspection,
        again: Vec<(Contender, Sample)>,
    }

    impl Case {
        fn new(state: ResearchState, sample: Sample) -> Self {
            let found = Judgement { changed: true, commit: Some("c".to_owned()), ..Judgement::default() };
            let inspection = Inspection { sample: Some(sample), hash: Some(1), scope: 100, ..Inspection::default() };
            Self { spec: research(), state, found, inspection, again: Vec::new() }
        }

        fn verdict(&self) -> ExperimentVerdict {
            let Case { spec, state, found, inspection, again } = self;
            Experiment { spec, state, found, inspection, again }.weigh()
        }

        #[track_caller]
        fn is(&self, status: Status) {
            match self.verdict() {
                ExperimentVerdict::Decide { status: found, .. } => assert_eq!(found, status),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn an_exact_metric_is_compared_once() {
        Case::new(state(), value(9.9)).is(Status::Keep);
        Case::new(state(), value(10.0)).is(Status::Discard);
    }

    #[test]
    fn what_is_not_worth_a_measurement_is_decided_first() {
        let case = Case::new(state(), value(1.0));
        let refused = Judgement { violations: vec!["bench.sh".to_owned()], ..case.found.clone() };
        Case { found: refused, ..Case::new(state(), value(1.0)) }.is(Status::Refused);
        Case { found: Judgement { changed: false, ..case.found.clone() }, ..Case::new(state(), value(1.0)) }
            .is(Status::NoOp);
        let known = ResearchState { hashes: vec![1], ..state() };
        Case::new(known, value(1.0)).is(Status::Repeat);
        let broken = CheckResult {
            name: "tests".to_owned(),
            verdict: Verdict::Fail,
            weight: 1,
            millis: 0,
            output: String::new(),
            fingerprint: 0,
            reference: None,
        };
        let found = Judgement { board: Scoreboard(vec![broken]), ..case.found.clone() };
        Case { found, ..Case::new(state(), value(1.0)) }.is(Status::Discard);
    }

    #[test]
    fn a_crash_is_mended_as_often_as_its_kind_allows() {
        let fixed = |kind, fixes| {
            let open = OpenExperiment {
                commit: "c".to_owned(),
                base: None,
                kind,
                text: String::new(),
                fixes,
                plan: None,
                millis: 0,
                microusd: 0,
            };
            Case::new(ResearchState { open: Some(open), ..state() }, crash(kind))
        };
        for (kind, most) in [(CrashKind::Syntax, 1), (CrashKind::Runtime, 3)] {
            assert!(matches!(Case::new(state(), crash(kind)).verdict(), ExperimentVerdict::Fix { .. }));
            assert!(most == 1 || matches!(fixed(kind, most - 1).verdict(), ExperimentVerdict::Fix { .. }));
            fixed(kind, most).is(Status::Crash);
        }
        Case::new(state(), crash(CrashKind::Dependency)).is(Status::Crash);
        let limit = Sample { result: Measured::Timeout { limit_ms: 11_000 }, millis: 11_000 };
        Case::new(state(), limit).is(Status::Timeout);
        let silent = Sample { result: Measured::Unreadable { why: "no number".to_owned() }, millis: 1 };
        Case::new(state(), silent).is(Status::MetricError);
    }

    #[test]
    fn a_noisy_metric_is_raced() {
        let mut case = Case::new(noisy_state(), value(9.0));
        assert_eq!(case.verdict(), ExperimentVerdict::Measure(Contender::Candidate));
        case.again.push((Contender::Candidate, value(9.9)));
        assert!(matches!(case.verdict(), ExperimentVerdict::Measure(_)), "ahead by a little");
        case.again.push((Contender::Candidate, value(11.0)));
        case.is(Status::Discard);
        let mut better = Case::new(noisy_state(), value(8.0));
        better.again.push((Contender::Candidate, value(8.1)));
        better.is(Status::Keep);
        let mut lost = Case::new(noisy_state(), value(9.8));
        lost.again.push((Contender::Champion, crash(CrashKind::Runtime)));
        lost.is(Status::Discard);
    }

    #[test]
    fn what_is_not_kept_may_have_a_place_on_the_frontier() {
        let sized = |value: f64, size: f64| {
            let others = BTreeMap::from([("size".to_owned(), size)]);
            Sample { result: Measured::Value { value, others }, millis: 10 }
        };
        let case = |state: ResearchState, sample: Sample| {
            let mut case = Case::new(state, sample);
            let secondary = BTreeMap::from([("size".to_owned(), 100.0)]);
            let start = FrontierPoint { number: 0, commit: None, value: 10.0, secondary, description: String::new() };
            case.state.frontier = vec![start];
            case.spec.metric.pareto = vec![SecondaryMetric::read("size").unwrap()];
            case
        };
        case(state(), sized(11.0, 90.0)).is(Status::Frontier);
        case(state(), sized(11.0, 100.0)).is(Status::Discard);
        case(state(), sized(9.0, 200.0)).is(Status::Keep);
        let mut without = case(state(), sized(11.0, 90.0));
        without.spec.metric.pareto.clear();
        without.is(Status::Discard);
        let mut noisy = case(noisy_state(), sized(11.0, 90.0));
        assert_eq!(noisy.verdict(), ExperimentVerdict::Measure(Contender::Candidate), "one look is not enough");
        noisy.again.push((Contender::Candidate, sized(11.2, 90.0)));
        noisy.is(Status::Frontier);
        assert_eq!(case_of(&noisy).frontier(Status::Frontier).map(|step| step.dominated), Some(Vec::new()));
        assert_eq!(case_of(&noisy).frontier(Status::Discard), None);
    }

    #[test]
    fn simpler_is_kept_and_much_code_for_little_is_not() {
        let mut case = Case::new(state(), value(10.0));
        case.inspection.removed = 3;
        case.is(Status::Simpler);
        case.spec.simplicity = false;
        case.is(Status::Discard);
        let mut long = Case::new(state(), value(9.9999));
        long.inspection.added = 50;
        long.is(Status::Discard);
        long.spec.simplicity = false;
        long.is(Status::Keep);
    }

    #[test]
    fn luck_is_the_tail_of_a_normal_distribution() {
        assert!((above(0.0) - 0.5).abs() < 1e-6 && (above(1.64) - 0.0505).abs() < 1e-4 && above(-9.0) > 0.999);
        assert!(case_of(&Case::new(state(), value(9.0))).luck() < f64::MIN_POSITIVE);
    }

    fn case_of(case: &Case) -> Experiment<'_> {
        let Case { spec, state, found, inspection, again } = case;
        Experiment { spec, state, found, inspection, again }
    }
}
