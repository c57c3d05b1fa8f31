//! Many nodes under faults: nothing is lost, nothing counts twice, and every loop comes to its end.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use everloop_core::planted::Bug;
use everloop_testkit::budget::Budget;
use everloop_testkit::planted::{Plant, TABLE, changes_loops, reports, signs_loops, slow_answers};
use everloop_testkit::sim::fault::FaultPlan;
use everloop_testkit::sim::mesh::faults::{EVERY, MeshFault};
use everloop_testkit::sim::mesh::{
    Ill, MeshReport, Setup, Sum, days, experiments, one_is_ill, random, run, run_with, small, violent,
};

use super::note;

/// The number of meshes that are simulated however long it takes; all possible faults occur in
/// them.
const LEAST: u64 = 120;
/// Places of faults that are tried however long it takes; all of them, if there is time.
const LEAST_PLACES: u64 = 50;
/// Sizes of those that are watched for days, in turn.
const SIZES: [u64; 6] = [5, 3, 8, 5, 20, 50];

/// Of the places of a second fault, one in this many is tried for each first one;
/// `everloop-sim --pairs` tries them at random.
const PAIRS: u64 = 97;

#[track_caller]
fn must_be_clean(what: &str, report: &MeshReport) {
    if let Some(violation) = &report.violation {
        panic!("{what}: {}: {}\n{}", violation.invariant, violation.text, report.tail.join("\n"));
    }
}

/// In turn a mesh that is watched for days and five with hours of many faults, one of them violent.
fn drawn(seed: u64) -> Setup {
    match seed % 6 {
        0 => days(seed / 6, SIZES[(seed / 6 % 6) as usize]),
        5 => violent(seed),
        _ => random(seed),
    }
}

#[test]
fn long_meshes_of_all_sizes_break_no_invariant_and_come_to_an_end() {
    let (sum, began) = (Mutex::new(Sum::default()), Instant::now());
    let seeds = Budget::new(LEAST).seeds(|seed| {
        let setup = drawn(seed);
        let report = run(&setup, seed);
        must_be_clean(&format!("seed {seed} {setup:?}"), &report);
        sum.lock().expect("no thread panics while it holds this").add(&setup, &report);
    });
    let sum = sum.into_inner().expect("no thread panics while it holds this");
    note(&format!("meshes of the seeds {seeds:?}: {sum}\n{:.1} s", began.elapsed().as_secs_f64()));
    let storms = (seeds.end - seeds.start) * 5 / 6;
    let counted = &sum.tally;
    let weather = counted.landed > storms && counted.late_result > storms / 8 && counted.epochs > storms * 2;
    assert!(weather, "the weather was too fine to prove anything");
    assert!(
        counted.reconciled.0 > storms / 20 && counted.reconciled.1 > storms,
        "nothing was left to set right: {:?}",
        counted.reconciled
    );
    assert!(counted.faults.len() >= 30, "only these went wrong: {:?}", counted.faults.keys());
}

#[test]
fn the_same_seed_gives_the_same_mesh() {
    for seed in 0..5 {
        let (one, two) = (run(&random(seed), seed), run(&random(seed), seed));
        assert_eq!((one.tally.trace_hash, one.tail), (two.tally.trace_hash, two.tail), "seed {seed}");
        assert_ne!(one.tally.trace_hash, run(&random(seed), seed + 1).tally.trace_hash);
    }
}

#[test]
fn a_calm_mesh_of_fifty_reaches_its_goal_soon() {
    let work = Duration::from_secs(60);
    let setup = Setup { nodes: 50, checks: 40, work, ..small() };
    let report = run(&setup, 1);
    must_be_clean("calm", &report);
    assert!(report.tally.landed == 40 && report.tally.epochs == 1, "{report:?}");
}

#[test]
fn every_experiment_of_a_shared_run_is_counted_once_and_the_champion_is_one_line() {
    let mut landed = 0;
    for seed in 0..60 {
        let report = run(&experiments(seed), seed);
        must_be_clean(&format!("seed {seed}"), &report);
        landed += report.tally.landed;
    }
    assert!(landed > 60, "only {landed} keeps in 60 runs");
    let row = TABLE.iter().find(|row| row.bug == Bug::FoldsRowsTwice).expect("it is listed");
    assert!(row.find().is_some(), "{:?} ({})", row.bug, row.mistake);
}

#[test]
fn agents_that_all_die_at_once_are_begun_so_often_and_not_more() {
    let setup = Setup { nodes: 5, checks: 6, ill: Ill::All, ..small() };
    let report = run(&setup, 3);
    must_be_clean("storm", &report);
    // Five tasks for each check; three attempts at each, and more only until a second node failed
    // too.
    let tasks = 6 * 5;
    assert!(report.tally.landed == 0 && (tasks * 3..tasks * 4).contains(&report.tally.begun), "{report:?}");
}

#[test]
fn a_machine_that_always_fails_is_quarantined_and_gets_a_task_when_nobody_else_comes() {
    let ill = |seed: u64| run(&one_is_ill(seed), seed);
    let reports: Vec<MeshReport> = (0..5).map(ill).collect();
    for (seed, report) in reports.iter().enumerate() {
        must_be_clean(&format!("seed {seed}"), report);
    }
    let quarantined = reports.iter().filter(|report| report.tally.most_out == 1).count();
    assert!(quarantined >= 3, "it was out in {quarantined} of 5 meshes");
    // When all agents never start, no single subject is to blame.
    for seed in 0..3 {
        let report = run(&Setup { ill: Ill::All, ..one_is_ill(seed) }, seed);
        must_be_clean(&format!("seed {seed}, all of them"), &report);
        assert_eq!(report.tally.most_out, 0, "seed {seed}");
    }
}

#[test]
fn what_a_stranger_writes_to_the_hub_is_neither_run_nor_merged_and_the_loop_still_ends() {
    for (setup, what) in [
        (changes_loops as fn(u64) -> Setup, "stranger changes the loop"),
        (reports, "stranger reports"),
        (signs_loops, "stranger changes the loop"),
    ] {
        let mut met = 0;
        for seed in 0..20 {
            let report = run(&setup(seed), seed);
            must_be_clean(&format!("seed {seed} {what}"), &report);
            assert!(report.tally.landed > 0, "seed {seed}: {report:?}");
            met += report.tally.faults.get(what).copied().unwrap_or(0);
        }
        assert!(met >= 20, "{what}: only {met} times in 20 meshes");
    }
}

#[test]
fn every_mistake_about_signatures_is_found() {
    let rows: Vec<_> = TABLE.iter().filter(|row| row.caught_by == "signed").collect();
    assert_eq!(rows.len(), 3, "loops, reports and the trust list");
    for row in rows {
        assert!(row.find().is_some(), "{:?} ({})", row.bug, row.mistake);
    }
}

#[test]
fn a_task_is_held_while_its_clone_or_its_push_takes_longer_than_a_lease() {
    let minutes = |n: u64| Duration::from_secs(n * 60);
    for (clone, push) in [(minutes(10), minutes(1)), (minutes(1), minutes(10))] {
        let setup = Setup { nodes: 3, checks: 6, clone, push, ..small() };
        for seed in 0..5 {
            let report = run(&setup, seed);
            must_be_clean(&format!("clone {clone:?}, push {push:?}, seed {seed}"), &report);
            // Work that is refused at the merge is tried again, so there may be late results.
            assert_eq!(report.tally.landed, 6, "{report:?}");
        }
        let _silent = Plant::new(Bug::SilentWhileItClones);
        let lost = (0..5).filter_map(|seed| run(&setup, seed).violation).any(|found| found.invariant == "living");
        assert!(lost, "a task that is not renewed is lost: clone {clone:?}, push {push:?}");
    }
}

#[test]
fn an_answer_that_comes_late_does_not_set_the_hubs_clock_back() {
    for seed in 0..5 {
        must_be_clean(&format!("seed {seed}"), &run(&slow_answers(seed), seed));
    }
    let row = TABLE.iter().find(|row| row.caught_by == "hub clock").expect("it is in the table");
    assert!(row.find().is_some(), "{:?} ({})", row.bug, row.mistake);
}

/// Places for faults in the small mesh when nothing goes wrong.
fn places() -> u64 {
    let calm = run(&small(), 0);
    must_be_clean("calm", &calm);
    calm.points
}

#[test]
fn long_a_fault_at_every_place_of_a_small_mesh_breaks_nothing() {
    let places: Vec<u64> = (1..=places()).collect();
    let tried = Budget::new(LEAST_PLACES).items(&places, |place| {
        for fault in EVERY {
            let report = run_with(&small(), 0, FaultPlan::At(vec![(*place, fault)]));
            must_be_clean(&format!("{fault:?} at {place}"), &report);
        }
    });
    note(&format!("every fault at {tried} of {} places", places.len()));
}

#[test]
fn long_two_faults_at_any_two_places_of_a_small_mesh_break_nothing() {
    let places = places();
    let firsts: Vec<(u64, MeshFault)> =
        (1..=places).flat_map(|p| [(p, MeshFault::KillAfter), (p, MeshFault::LoseAnswer)]).collect();
    let tried = Budget::new(LEAST_PLACES).items(&firsts, |first| {
        // Each first one meets every other place with one of its neighbours.
        for second in (first.0 + 1 + first.0 % PAIRS..=places).step_by(PAIRS as usize) {
            for fault in [MeshFault::KillAfter, MeshFault::LoseAnswer, MeshFault::Stop(100_000)] {
                let plan = vec![*first, (second, fault)];
                let report = run_with(&small(), 0, FaultPlan::At(plan.clone()));
                must_be_clean(&format!("{plan:?}"), &report);
            }
        }
    });
    note(&format!("second faults after {tried} of {} first ones", firsts.len()));
}
