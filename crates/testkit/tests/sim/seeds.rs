//! Random worlds with random weather.

use everloop_testkit::sim::fault::Plan;
use everloop_testkit::sim::run::{Report, run};
use everloop_testkit::sim::scenario::random;

use super::{in_parallel, must_be_clean};

const SEEDS: u64 = 2_000;

/// As `everloop-sim --seeds` runs it.
fn run_seed(seed: u64) -> Report {
    run(&random(seed), Plan::Weather { one_in: 20 + seed % 100, most: 12 }, seed)
}

#[test]
fn two_thousand_random_worlds_break_no_invariant_and_come_to_an_end() {
    let seeds: Vec<u64> = (0..SEEDS).collect();
    in_parallel(&seeds, |seed| must_be_clean(&format!("seed {seed}"), &run_seed(*seed)));
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in (0..SEEDS).step_by(97) {
        let (one, two) = (run_seed(seed), run_seed(seed));
        assert_eq!(one.trace_hash, two.trace_hash, "seed {seed}");
        assert_eq!(one.tail, two.tail, "seed {seed}");
        assert_ne!(one.trace_hash, run_seed(seed + 1).trace_hash, "seeds {seed} and the next");
    }
}
