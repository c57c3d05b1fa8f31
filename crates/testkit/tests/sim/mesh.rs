//! Many machines in bad weather: nothing is lost, nothing counts twice, and every loop comes to its end.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use everloop_core::planted::{self, Bug, MESH};
use everloop_testkit::sim::mesh::{Report, Setup, random, run, violent};

use super::in_parallel;

/// Random meshes in a test run.
const SEEDS: u64 = 1_500;
/// Seeds within which a planted mistake has to show.
const BUG_SEEDS: u64 = 400;

#[track_caller]
fn must_be_clean(what: &str, report: &Report) {
    if let Some(violation) = &report.violation {
        panic!("{what}: {}: {}\n{}", violation.invariant, violation.text, report.tail.join("\n"));
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "what was simulated is worth a line")]
fn long_hundreds_of_meshes_in_bad_weather_break_no_invariant_and_come_to_an_end() {
    let seeds: Vec<u64> = (0..SEEDS).collect();
    let began = Instant::now();
    let all = Mutex::new(Vec::new());
    in_parallel(&seeds, |seed| {
        let setup = if seed.is_multiple_of(5) { violent(*seed) } else { random(*seed) };
        let report = run(&setup, *seed);
        must_be_clean(&format!("seed {seed} {setup:?}"), &report);
        all.lock().expect("no thread panics while it holds this").push((setup.nodes, report));
    });
    let all = all.into_inner().expect("no thread panics while it holds this");
    let sum = |of: fn(&Report) -> u64| all.iter().map(|(_, report)| of(report)).sum::<u64>();
    let node_years = all.iter().map(|(n, r)| *n as f64 * r.time.as_secs_f64()).sum::<f64>() / (365.25 * 86_400.0);
    let (landed, shelved, epochs, faults) =
        (sum(|r| r.landed), sum(|r| r.shelved), sum(|r| r.epochs), sum(|r| r.faults));
    let stall = all.iter().map(|(_, r)| r.longest_stall).max().unwrap_or_default();
    eprintln!(
        "{} meshes, {node_years:.2} node-years, {faults} faults, {epochs} supervisors, {landed} landed, {shelved} too late, \
         longest stall {stall:?}, {:.1} s",
        all.len(),
        began.elapsed().as_secs_f64()
    );
    assert!(landed > SEEDS && shelved > SEEDS / 4 && epochs > SEEDS * 2, "the weather was too fine to prove anything");
}

#[test]
fn the_same_seed_gives_the_same_mesh() {
    for seed in 0..5 {
        let (one, two) = (run(&random(seed), seed), run(&random(seed), seed));
        assert_eq!((one.trace_hash, one.tail), (two.trace_hash, two.tail), "seed {seed}");
        assert_ne!(one.trace_hash, run(&random(seed), seed + 1).trace_hash);
    }
}

#[test]
fn a_calm_mesh_of_fifty_reaches_its_goal_soon() {
    let setup = Setup {
        nodes: 50,
        checks: 40,
        bad: Duration::ZERO,
        fault_every: None,
        drift: false,
        work: Duration::from_secs(60),
    };
    let report = run(&setup, 1);
    must_be_clean("calm", &report);
    assert!(report.landed == 40 && report.epochs == 1, "{report:?}");
}

/// Mistake and the invariant that catches it.
const TABLE: &[(Bug, &str)] = &[
    (Bug::ActsPastItsLease, "I4"),
    (Bug::NoAmnesty, "amnesty"),
    (Bug::TwoTasksForOneCheck, "one task"),
    (Bug::TakesFromTheLiving, "amnesty"),
    (Bug::WritesWithoutEpoch, "I4"),
    (Bug::LandsWithoutLook, "I2"),
    (Bug::ForgetsBeforeTold, "I1"),
    (Bug::LendsPastCaps, "I6"),
    (Bug::BeginsWhatIsOthers, "overlap"),
];

#[test]
fn long_every_mistake_about_many_machines_is_found() {
    assert!(MESH.iter().all(|bug| TABLE.iter().any(|row| row.0 == *bug)));
    for (bug, invariant) in TABLE {
        planted::plant(Some(*bug));
        let caught = |seed| run(&violent(seed), seed).violation.filter(|v| v.invariant == *invariant);
        let found = (0..BUG_SEEDS).find_map(caught);
        planted::plant(None);
        assert!(found.is_some(), "{bug:?} was not caught by {invariant}");
    }
}
