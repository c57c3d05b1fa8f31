//! Planted bugs: each is caught by the invariant that is named here, else the tests are wrong.

use everloop_core::planted::{self, ALL, Bug};
use everloop_testkit::sim::fault::{EVERY, FaultPlan};
use everloop_testkit::sim::run::run;
use everloop_testkit::sim::scenario::{Scenario, bad_account, known, storm};

use super::must_be_clean;

/// What has to happen for a bug to show.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shows {
    InCalm,
    /// A fault at the right step.
    InCrashes,
}
use Shows::{InCalm, InCrashes};

/// Bug, scenario that shows it, when, the invariant that catches it, and a description.
type Row = (Bug, &'static str, Shows, &'static str, &'static str);

const TABLE: &[Row] = &[
    (Bug::FenceRestartsAtRetry, "dies young", InCalm, "I3", "a task that is tried again gets fence 1 again"),
    (Bug::TrustsExitCode, "in place", InCalm, "false success", "exit code 0 counts as reached"),
    (Bug::IgnoresProtectedPaths, "in place", InCalm, "false success", "an edited check script is not looked for"),
    (Bug::AcceptsRegression, "breaks what passed", InCalm, "worse", "work that breaks a check is kept"),
    (Bug::CountsLostTurns, "hangs and vanishes", InCalm, "turns", "a turn that vanished counts against the bounds"),
    (Bug::SpawnsWithoutPermit, "dies young", InCalm, "I6", "the guard's refusal is ignored"),
    (Bug::GapIgnored, "dies young", InCrashes, "I6", "the least gap between two starts is not kept"),
    (Bug::BackoffResetByUptime, "storm", InCalm, "I6", "having run resets the reflexes, not progress"),
    (Bug::NeverFreezes, "storm", InCalm, "I6", "cooldowns never become a freeze"),
    (Bug::FreezeWithoutCanary, "storm", InCalm, "I5", "a freeze never tries whether it is over"),
    (Bug::ReservationNotSettled, "good", InCalm, "reservations", "what a turn had set aside stays set aside"),
    (
        Bug::IntegratesWithoutTrailerLookup,
        "the target is rewritten",
        InCrashes,
        "I2",
        "work is landed again after a crash",
    ),
    (Bug::RecoveryRestartsLiveTurn, "good", InCrashes, "one agent", "a turn that lives is started again"),
    (Bug::RecoveryForgetsExited, "good", InCrashes, "I1", "a turn that ended during the downtime is thrown away"),
    (Bug::WaitWithoutTimer, "dies young", InCalm, "I5", "a cooldown has no timer"),
    (Bug::CommitWithoutSync, "good", InCrashes, "durability", "a commit is promised before it is synced"),
    (Bug::PerformsBeforeCommit, "dies young", InCrashes, "I5", "the agent is started before that is written down"),
    (Bug::TicketEveryTime, "gives up", InCalm, "I11", "the same cause opens its ticket again"),
    (Bug::StopIgnored, "people", InCrashes, "I6", "a wish to stop is noted and not obeyed"),
    (Bug::BackoffMarkerShortens, "dies young", InCalm, "I6", "an agent can shorten the guard's own wait"),
    (
        Bug::ReachedWithoutLanding,
        "the target moves",
        InCalm,
        "false success",
        "work that never landed counts as reached",
    ),
    (
        Bug::BelievesTamperedChecks,
        "in place",
        InCalm,
        "false success",
        "in place, checks that were edited are believed",
    ),
    (Bug::ProbesBeforeReset, "the account is limited", InCalm, "I6", "a known reset is not waited for"),
    (Bug::PaceIgnored, "paced", InCalm, "I6", "a paced loop uses its account's window up at once"),
    (Bug::QuarantineIgnored, "one bad account", InCalm, "I8", "a quarantined subject is used all the same"),
    (Bug::KeepaliveInTwoWrites, "watches", InCalm, "keepalive", "the next keepalive is made in a second write"),
    (Bug::RecoveryDropsKeepalive, "watches", InCrashes, "keepalive", "a restart ends the keepalive and makes none"),
    (Bug::RecoveryDoublesKeepalive, "watches", InCalm, "keepalive", "a restart does not look whether there is one"),
    (Bug::SignalInTwoWrites, "watches and works", InCrashes, "signal", "a change is known before its task is there"),
    (Bug::SignalKeepsCursor, "watches", InCalm, "signal", "a change is reported again and again"),
    (Bug::TicketBeforeChange, "gives up", InCalm, "strategy", "a person is called before another way was tried"),
    (Bug::ChangesForEver, "gives up", InCalm, "strategy", "one way after the other is tried, without a ticket"),
    (Bug::ForgetsLateMessages, "people", InCalm, "messages", "a message that came during a turn is dropped at its end"),
];

/// Enables a bug for as long as it lives.
pub(super) struct Plant;

impl Plant {
    pub(super) fn new(bug: Bug) -> Self {
        planted::plant(Some(bug));
        Self
    }
}

impl Drop for Plant {
    fn drop(&mut self) {
        planted::plant(None);
    }
}

fn scenario(name: &str) -> Scenario {
    let all = known().into_iter().chain([storm(), bad_account()]);
    all.into_iter().find(|s| s.name == name).expect("the table names a scenario that there is")
}

/// The invariants that do not hold, as they are found.
fn violations(scenario: &Scenario, shows: Shows) -> Box<dyn Iterator<Item = &'static str> + '_> {
    let invariant = |plan| run(scenario, plan, 0).violation.map(|v| v.invariant);
    let calm = std::iter::once_with(move || invariant(FaultPlan::Calm)).flatten();
    if shows == InCalm {
        return Box::new(calm);
    }
    let steps = 1..=run(scenario, FaultPlan::Calm, 0).steps;
    let points = steps.flat_map(|step| EVERY.into_iter().map(move |fault| (step, fault)));
    Box::new(points.filter_map(move |point| invariant(FaultPlan::At(vec![point]))))
}

#[test]
fn long_every_planted_mistake_is_found_by_its_invariant() {
    let is_missed = |(bug, name, shows, caught_by, _): &&Row| {
        let scenario = scenario(name);
        let _plant = Plant::new(*bug);
        !violations(&scenario, *shows).any(|invariant| invariant == *caught_by)
    };
    let missed = TABLE.iter().filter(is_missed);
    let missed: Vec<String> = missed
        .map(|(bug, name, _, caught_by, mistake)| format!("{bug:?} ({mistake}): not caught by {caught_by} in `{name}`"))
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn the_table_is_complete_and_without_a_mistake_all_is_clean() {
    assert!(ALL.len() >= 15);
    for bug in ALL {
        assert!(TABLE.iter().any(|row| row.0 == *bug), "{bug:?} is in no row");
    }
    for scenario in known().iter().chain([&storm(), &bad_account()]) {
        must_be_clean(&scenario.name, &run(scenario, FaultPlan::Calm, 0));
    }
}
