//! Random worlds with random faults.

use std::collections::BTreeSet;
use std::sync::Mutex;

use everloop_testkit::budget::Budget;
use everloop_testkit::sim::check::MARKS;
use everloop_testkit::sim::fault::FaultPlan;
use everloop_testkit::sim::run::{RunReport, run};
use everloop_testkit::sim::scenario::random;

use super::{must_be_clean, note};

/// The first so many seeds meet everything there is; they are simulated however long it takes.
const LEAST: u64 = 500;

/// As `everloop-sim --seeds` runs it.
fn run_seed(seed: u64) -> RunReport {
    run(&random(seed), FaultPlan::Random { one_in: 20 + seed % 100, most: 12 }, seed)
}

#[test]
fn long_random_worlds_break_no_invariant_and_come_to_an_end() {
    let met = Mutex::new(BTreeSet::new());
    let seeds = Budget::new(LEAST).seeds(|seed| {
        let report = run_seed(seed);
        must_be_clean(&format!("seed {seed}"), &report);
        met.lock().expect("no thread panics while it holds this").extend(report.marks.into_keys());
    });
    note(&format!("worlds of the seeds {seeds:?}"));
    let met = met.into_inner().expect("no thread panics while it holds this");
    let missed: Vec<_> = MARKS.iter().filter(|mark| !met.contains(*mark)).collect();
    assert!(missed.is_empty(), "no seed met {missed:?}: nothing was proved about it");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in (0..2_000).step_by(97) {
        let (one, two) = (run_seed(seed), run_seed(seed));
        assert_eq!(one.trace_hash, two.trace_hash, "seed {seed}");
        assert_eq!(one.tail, two.tail, "seed {seed}");
        assert_ne!(one.trace_hash, run_seed(seed + 1).trace_hash, "seeds {seed} and the next");
    }
}
