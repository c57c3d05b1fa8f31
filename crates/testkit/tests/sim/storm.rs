//! An agent that exits 1 at once, for a day.

use std::time::Duration;

use everloop_testkit::sim::fault::Plan;
use everloop_testkit::sim::run::run;
use everloop_testkit::sim::scenario::{Happening, storm};

use super::must_be_clean;

#[test]
fn a_day_of_dying_young_is_few_starts_one_ticket_and_works_after_release() {
    for seed in 0..20 {
        let report = run(&storm(), Plan::Calm, seed);
        must_be_clean("storm", &report);
        // The healthy turns after the release are in this number, too.
        assert!(report.starts <= 120, "{} starts", report.starts);
        assert!(report.time > Duration::from_secs(24 * 3600));
        assert!(report.tickets.is_empty(), "all is well again: {:?}", report.tickets);
    }
}

#[test]
fn while_it_storms_one_ticket_per_cause_is_open() {
    let mut storm = storm();
    storm.happenings.retain(|(_, h)| !matches!(h, Happening::Heals(_) | Happening::Release(_)));
    storm.limit_ms = 24 * 3_600_000;
    let report = run(&storm, Plan::Calm, 1);
    let violation = report.violation.expect("a storm does not end by itself");
    assert_eq!(violation.invariant, "I5", "{}", violation.text);
    let mut causes = report.tickets.clone();
    causes.sort();
    assert_eq!(causes, ["guard.freeze:loop:a", "stagnation:a"], "one per cause");
    assert!(report.starts <= 120 && report.starts >= 20, "{} starts: the trials go on", report.starts);
}
