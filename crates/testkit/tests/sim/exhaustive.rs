//! Every scenario × every step × every kind of fault; the end always equals that of a run without
//! faults.

use everloop_testkit::budget::Budget;
use everloop_testkit::sim::fault::{EVERY, Fault, FaultPlan};
use everloop_testkit::sim::git::Tree;
use everloop_testkit::sim::run::{RunReport, run};
use everloop_testkit::sim::scenario::{LoopSetup, Scenario, known};

use super::{must_be_clean, note};

const SEED: u64 = 0;
/// Steps that are tried however long it takes; all of them, if there is time.
const LEAST: u64 = 100;
/// A second crash is tried at each of so many steps after the first: all of a recovery and what
/// follows it.
const SECOND: u64 = 9;

/// The final state of the person's folder. Without a private worktree a repeated turn finds its own
/// leftovers, so there only the checks are compared and not the number of turns.
fn result(scenario: &Scenario, report: &RunReport) -> Vec<Tree> {
    let of = |setup: &LoopSetup| {
        let mut tree = report.results[&setup.id].clone();
        if setup.in_place() {
            tree.log.clear();
        }
        tree
    };
    scenario.loops.iter().map(of).collect()
}

fn must_end_alike(what: &str, scenario: &Scenario, report: &RunReport, calm: &RunReport) {
    must_be_clean(what, report);
    let (is, was) = (result(scenario, report), result(scenario, calm));
    assert_eq!(is, was, "{what}: the end differs from an uninterrupted run");
    for (id, ending) in &report.endings {
        let (is, was) = (std::mem::discriminant(ending), std::mem::discriminant(&calm.endings[id]));
        assert_eq!(is, was, "{what}: loop {id} ended differently: {ending:?}");
    }
}

fn calm(scenario: &Scenario) -> RunReport {
    let calm = run(scenario, FaultPlan::Calm, SEED);
    must_be_clean(&scenario.name, &calm);
    calm
}

#[test]
fn long_a_fault_at_every_step_changes_nothing_about_the_end() {
    let scenarios = known();
    assert!(scenarios.len() >= 8);
    let mut points = Vec::new();
    for scenario in &scenarios {
        let calm = calm(scenario);
        points.extend((1..=calm.steps).map(|step| (scenario.clone(), step, calm.clone())));
    }
    let tried = Budget::new(LEAST).items(&points, |(scenario, step, calm)| {
        for fault in EVERY {
            let what = format!("{}, {fault:?} at step {step}", scenario.name);
            must_end_alike(&what, scenario, &run(scenario, FaultPlan::At(vec![(*step, fault)]), SEED), calm);
        }
    });
    note(&format!("every fault at {tried} of {} steps", points.len()));
}

#[test]
fn long_a_second_crash_during_recovery_changes_nothing_either() {
    let scenarios: Vec<Scenario> = known().into_iter().take(3).collect();
    let mut points = Vec::new();
    for scenario in &scenarios {
        let calm = calm(scenario);
        points.extend((1..=calm.steps).map(|step| (scenario.clone(), step, calm.clone())));
    }
    let tried = Budget::new(LEAST).items(&points, |(scenario, step, calm)| {
        for later in 1..=SECOND {
            let plan = vec![(*step, Fault::KillAfter), (step + later, Fault::KillAfter)];
            let what = format!("{}, killed at steps {step} and {}", scenario.name, step + later);
            must_end_alike(&what, scenario, &run(scenario, FaultPlan::At(plan), SEED), calm);
        }
    });
    note(&format!("a second crash after {tried} of {} steps", points.len()));
}
