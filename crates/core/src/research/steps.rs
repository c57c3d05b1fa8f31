//! What to do after a run, the most promising first: untried strategies, near misses, crashes. The
//! report shows these steps, the sums of the run hold them, and `research apply --tasks` makes a
//! task of each.

use std::collections::BTreeSet;

use super::ResearchSpec;
use super::idea::{near, untried};
use super::report::{CELL_COLUMNS, Reality, TEXT_COLUMNS, plan_versus_reality};
use super::row::{Row, Status};
use super::state::ResearchState;
use crate::ids::{LoopId, TaskId};
use crate::op::Trust;
use crate::picture::svg::{figure, fit};

/// More next steps than this are no priorities.
pub const MAX_STEPS: usize = 10;
/// Places among the next steps that untried strategies do not take.
const MISSES_RESERVED: usize = 3;
const CRASHES_RESERVED: usize = 2;

/// What a step is about. Its sentence may change while the run goes on; this does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepSubject {
    /// An untried strategy of the plan, in its words.
    Strategy(String),
    /// An experiment that came close to the best value.
    NearMiss(u32),
    /// An experiment that has no value.
    Crash(u32),
}

/// Something to do after a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextStep {
    pub subject: StepSubject,
    /// The step as a sentence. The words of an agent in it are data.
    pub text: String,
}

impl NextStep {
    /// The task of this step: the same one however often it is derived.
    pub fn task(&self, run: &LoopId) -> TaskId {
        // The tasks that a run makes for itself are `<run>-<number>`.
        TaskId::new(match &self.subject {
            StepSubject::Strategy(words) => format!("{run}-try-{:08x}", crc32fast::hash(words.as_bytes())),
            StepSubject::NearMiss(number) => format!("{run}-refine-{number}"),
            StepSubject::Crash(number) => format!("{run}-repair-{number}"),
        })
    }

    /// How far its words are trusted: a person wrote the plan, agents described the experiments.
    pub fn trust(&self) -> Trust {
        match self.subject {
            StepSubject::Strategy(_) => Trust::Operator,
            StepSubject::NearMiss(_) | StepSubject::Crash(_) => Trust::Agent,
        }
    }
}

/// The next steps by all rows of a run. At most ten, of which some are near misses and crashes
/// however long the plan is.
pub fn next_steps(rows: &[Row], plan: &[String], sigma: f64) -> Vec<NextStep> {
    let untried = plan_versus_reality(rows, plan).into_iter().filter(|outcome| outcome.reality() == Reality::NotTried);
    let is_best = |row: &&Row| matches!(row.status, Status::Baseline | Status::Keep);
    let best = rows.iter().rev().filter(is_best).find_map(value_of);
    let untried = untried.map(|outcome| outcome.strategy).collect();
    ordered(untried, near_misses(rows, best, sigma), repairs(rows))
}

/// The next steps of a run that goes on, by what its state holds: near misses and crashes are those
/// of its latest experiments.
pub fn steps_so_far(spec: &ResearchSpec, state: &ResearchState) -> Vec<NextStep> {
    let strategies = untried(spec, state).into_iter().map(|(_, strategy)| strategy).collect();
    let kept = state.rows.iter().rev().find(|row| row.status == Status::Keep).and_then(value_of);
    let best = kept.unwrap_or_else(|| state.champion.value());
    ordered(strategies, near_misses(&state.rows, Some(best), state.sigma()), repairs(&state.rows))
}

fn value_of(row: &Row) -> Option<f64> {
    row.value.filter(|value| value.is_finite())
}

fn ordered(untried: Vec<String>, misses: Vec<NextStep>, crashes: Vec<NextStep>) -> Vec<NextStep> {
    let crashes_reserved = crashes.len().min(CRASHES_RESERVED);
    let reserved = misses.len().min(MISSES_RESERVED) + crashes_reserved;
    let strategy = |words: String| NextStep {
        text: format!("Try the untried strategy: {}", fit(&words, TEXT_COLUMNS)),
        subject: StepSubject::Strategy(words),
    };
    let mut steps: Vec<NextStep> = untried.into_iter().take(MAX_STEPS - reserved).map(strategy).collect();
    let left = MAX_STEPS - steps.len() - crashes_reserved;
    steps.extend(misses.into_iter().take(left));
    let left = MAX_STEPS - steps.len();
    steps.extend(crashes.into_iter().take(left));
    steps
}

/// Discards beside the best value, the closest first. The last keep is the best one, because a keep
/// is better than all before; so no direction is needed.
fn near_misses(rows: &[Row], best: Option<f64>, sigma: f64) -> Vec<NextStep> {
    let Some(best) = best else { return Vec::new() };
    let near = near(best, sigma);
    let is_open = |row: &&Row| row.status == Status::Discard && row.guard != Some(false);
    let mut misses: Vec<(f64, &Row)> =
        rows.iter().filter(is_open).filter_map(|row| Some(((value_of(row)? - best).abs(), row))).collect();
    misses.retain(|(distance, _)| *distance <= near);
    misses.sort_by(|(one, first), (other, second)| one.total_cmp(other).then(second.number.cmp(&first.number)));
    let step = |(distance, row): (f64, &Row)| {
        let (number, apart, best) = (row.number, figure(distance), figure(best));
        let change = fit(&row.description, TEXT_COLUMNS);
        let text = format!(
            "Refine or combine experiment {number}, which is {apart} away from the best value {best}: {change}"
        );
        NextStep { subject: StepSubject::NearMiss(number), text }
    };
    misses.into_iter().map(step).collect()
}

/// Crashes of changes that were never measured, the newest first and every change once.
fn repairs(rows: &[Row]) -> Vec<NextStep> {
    let measured = rows.iter().filter(|row| row.value.is_some());
    let mut seen: BTreeSet<&str> = measured.map(|row| row.description.as_str()).collect();
    let mut steps = Vec::new();
    for row in rows.iter().rev().filter(|row| matches!(row.status, Status::Crash | Status::Timeout)) {
        if !seen.insert(&row.description) {
            continue;
        }
        let why = if row.why.is_empty() { String::new() } else { format!(" ({})", fit(&row.why, CELL_COLUMNS)) };
        let verb = if row.status == Status::Timeout { "Speed up" } else { "Repair" };
        let change = fit(&row.description, TEXT_COLUMNS);
        let text = format!("{verb} experiment {}, which has no value{why}: {change}", row.number);
        steps.push(NextStep { subject: StepSubject::Crash(row.number), text });
        if steps.len() == MAX_STEPS {
            break;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::state::ExperimentStep;
    use crate::research::tests_support::{research, row, state};

    fn plan(items: &[&str]) -> Vec<String> {
        items.iter().map(|item| (*item).to_owned()).collect()
    }

    /// Strategy 0 worked, 1 did not, 2 was not tried; experiment 5 is a near miss, 3 a crash.
    fn usual() -> Vec<Row> {
        let mut rows = vec![
            row(0, Status::Baseline, Some(10.0)),
            row(1, Status::Keep, Some(8.0)),
            row(2, Status::Discard, Some(9.0)),
            row(3, Status::Crash, None),
            row(4, Status::Keep, Some(7.0)),
            row(5, Status::Discard, Some(7.05)),
        ];
        (rows[1].plan, rows[2].plan, rows[3].plan) = (Some(0), Some(1), Some(1));
        rows[3].why = "IndexError".to_owned();
        rows
    }

    fn texts(rows: &[Row], plan: &[String], sigma: f64) -> Vec<String> {
        next_steps(rows, plan, sigma).into_iter().map(|step| step.text).collect()
    }

    #[test]
    fn next_steps_are_untried_strategies_then_near_misses_then_crashes() {
        let steps = texts(&usual(), &plan(&["cache", "vectorise", "rewrite"]), 0.0);
        assert_eq!(
            steps,
            [
                "Try the untried strategy: rewrite",
                "Refine or combine experiment 5, which is 0.05 away from the best value 7: change 5",
                "Repair experiment 3, which has no value (IndexError): change 3",
            ]
        );
        assert_eq!(texts(&[], &[], 0.0), Vec::<String>::new());
    }

    #[test]
    fn near_misses_depend_on_noise_and_on_guards() {
        let mut rows = usual();
        rows[2].value = Some(7.5);
        assert!(!texts(&rows, &[], 0.0).iter().any(|step| step.contains("experiment 2")));
        assert!(texts(&rows, &[], 0.3)[1].contains("experiment 2"));
        rows[2].guard = Some(false);
        assert!(!texts(&rows, &[], 0.3).iter().any(|step| step.contains("experiment 2")));
        assert!(texts(&rows, &[], f64::NAN).iter().all(|step| !step.contains("NaN")));
    }

    #[test]
    fn a_long_plan_leaves_room_for_other_steps_and_a_repaired_crash_is_none() {
        let long: Vec<String> = (0..40).map(|n| format!("strategy {n}")).collect();
        let steps = texts(&usual(), &long, 0.0);
        assert_eq!(steps.len(), MAX_STEPS);
        assert!(steps[8].contains("experiment 5") && steps[9].contains("experiment 3"), "{steps:?}");
        let mut rows = usual();
        rows[4].description.clone_from(&usual()[3].description);
        assert!(!texts(&rows, &[], 0.0).iter().any(|step| step.contains("Repair")));
    }

    #[test]
    fn a_step_has_one_task_whatever_its_sentence_says() {
        let (run, plan) = (LoopId::new("k3f9"), plan(&["cache", "vectorise", "rewrite"]));
        let ids = |rows: &[Row]| -> Vec<String> {
            next_steps(rows, &plan, 0.0).iter().map(|step| step.task(&run).to_string()).collect()
        };
        let first = ids(&usual());
        assert_eq!(first[1..], ["k3f9-refine-5", "k3f9-repair-3"]);
        assert!(first[0].starts_with("k3f9-try-"), "{first:?}");
        let mut more = usual();
        more.push(row(6, Status::Keep, Some(6.99)));
        assert_ne!(texts(&more, &plan, 0.0), texts(&usual(), &plan, 0.0), "the distance is another one");
        assert_eq!(ids(&more), first);
        let trusts: Vec<Trust> = next_steps(&usual(), &plan, 0.0).iter().map(NextStep::trust).collect();
        assert_eq!(trusts, [Trust::Operator, Trust::Agent, Trust::Agent], "agents described the experiments");
    }

    #[test]
    fn a_run_that_goes_on_has_the_steps_of_its_rows() {
        let (mut spec, mut state) = (research(), state());
        spec.plan = plan(&["cache", "vectorise", "rewrite"]);
        for row in usual().into_iter().skip(1) {
            state.apply(&ExperimentStep::Decided { row: Box::new(row) }, spec.metric.direction);
        }
        assert_eq!(steps_so_far(&spec, &state), next_steps(&usual(), &spec.plan, state.sigma()));
    }
}
