//! An agent that exits 1 at once, for a day; one that does nothing until another approach is
//! requested.

use std::time::Duration;

use everloop_testkit::sim::fault::FaultPlan;
use everloop_testkit::sim::run::run;
use everloop_testkit::sim::scenario::{Happening, known, storm};

use super::must_be_clean;

#[test]
fn a_day_of_dying_young_is_few_starts_one_ticket_and_works_after_release() {
    for seed in 0..20 {
        let report = run(&storm(), FaultPlan::Calm, seed);
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
    let report = run(&storm, FaultPlan::Calm, 1);
    let violation = report.violation.expect("a storm does not end by itself");
    assert_eq!(violation.invariant, "I5", "{}", violation.text);
    let mut causes = report.tickets.clone();
    causes.sort();
    assert_eq!(causes, ["guard.freeze:loop:a", "stagnation:a"], "one per cause");
    assert!(report.starts <= 120 && report.starts >= 20, "{} starts: the trials go on", report.starts);
}

#[test]
fn a_change_that_helps_needs_no_person_and_one_that_does_not_calls_one() {
    let report_of = |name: &str| {
        let all = known();
        let scenario = all.iter().find(|s| s.name == name).expect("it is among the known ones");
        let report = run(scenario, FaultPlan::Calm, 1);
        must_be_clean(name, &report);
        report
    };
    let helped = report_of("stagnates");
    let met = |mark| helped.marks.get(mark).copied().unwrap_or(0);
    assert_eq!((met("strategy changed"), met("ticket opened")), (2, 0), "one change for each of two checks");
    assert!(met("agent switched") >= 2, "to the next one and back");
    let in_vain = report_of("gives up");
    assert_eq!((in_vain.marks["strategy changed"], in_vain.tickets), (1, vec!["stagnation:a".to_owned()]));
}
