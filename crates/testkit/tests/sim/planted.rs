//! Planted bugs: each is caught by the invariant that the table names, else the tests are wrong.

use everloop_core::planted::{ALL, MESH};
use everloop_testkit::planted::TABLE;
use everloop_testkit::sim::fault::FaultPlan;
use everloop_testkit::sim::run::run;
use everloop_testkit::sim::scenario::{bad_account, known, storm};

use super::{in_parallel, must_be_clean};

#[test]
fn long_every_planted_mistake_is_found_by_its_invariant() {
    in_parallel(TABLE, |row| {
        assert!(row.find().is_some(), "{:?} ({}) was not caught by {}", row.bug, row.mistake, row.caught_by);
    });
}

#[test]
fn the_table_is_complete_and_without_a_mistake_all_is_clean() {
    for bug in ALL.iter().chain(MESH) {
        assert!(TABLE.iter().any(|row| row.bug == *bug), "{bug:?} is in no row");
    }
    for scenario in known().iter().chain([&storm(), &bad_account()]) {
        must_be_clean(&scenario.name, &run(scenario, FaultPlan::Calm, 0));
    }
}
