//! Planted bugs: each deliberate mistake of [`everloop_core::planted`] that a simulation finds,
//! where it shows, and the invariant that has to catch it. If that invariant does not catch it, the
//! simulation is wrong.

use std::time::Duration;

use everloop_core::planted::{self, Bug};

use crate::sim::fault::{EVERY, FaultPlan};
use crate::sim::mesh::{self, Ill, Setup, Stranger, experiments, one_is_ill, random, small, violent};
use crate::sim::run::run;
use crate::sim::scenario::{Scenario, bad_account, known, storm};

/// Seeds of meshes within which a mistake has to show.
const SEEDS: u64 = 400;

/// Seeds at which rare mistakes showed before. They are tried first, which saves minutes; a mistake
/// that does not show there any more is looked for from the first seed on.
const TRIED_FIRST: &[(Bug, u64)] = &[
    (Bug::ActsPastItsLease, 35),
    (Bug::LeaseFromTheReply, 35),
    (Bug::NoAmnesty, 13),
    (Bug::WritesWithoutEpoch, 13),
    (Bug::CountsMovedAsLanded, 29),
    (Bug::ForgetsBeforeTold, 7),
    (Bug::BeginsWhatIsOthers, 24),
    (Bug::FenceRestartsAtExpiry, 5),
    (Bug::AcceptsOldFence, 127),
    (Bug::ReclaimsByItsOwnClock, 111),
    (Bug::StoppedLoopGoesOn, 9),
    (Bug::PoisonNeverDies, 5),
    (Bug::GivesUpNever, 5),
    (Bug::OverwritesOthers, 8),
    (Bug::DrainIgnored, 10),
    (Bug::TrialOfTheDeadStays, 28),
    (Bug::IgnoresTakenTasks, 38),
    (Bug::ClingsToLeadership, 13),
    (Bug::KeepsWhatIsStuck, 5),
    (Bug::TakesWhileHeld, 6),
];

/// Where a mistake shows.
#[derive(Clone, Copy)]
enum Shows {
    /// In a scenario of one machine, without any fault.
    Calm(&'static str),
    /// There, with a fault at the right step.
    Crashes(&'static str),
    /// In a mesh of one of the first seeds.
    Mesh(fn(u64) -> Setup),
}
use Shows::{Calm, Crashes, Mesh};

/// A planted mistake and the invariant that catches it.
pub struct Row {
    /// The mistake that is planted.
    pub bug: Bug,
    /// The invariant that does not hold then.
    pub caught_by: &'static str,
    shows: Shows,
    /// What it is.
    pub mistake: &'static str,
}

/// Enables a bug on this thread for as long as it lives.
pub struct Plant;

impl Plant {
    /// Enables it until the value is dropped.
    pub fn new(bug: Bug) -> Self {
        planted::plant(Some(bug));
        Self
    }
}

impl Drop for Plant {
    fn drop(&mut self) {
        planted::plant(None);
    }
}

impl Row {
    /// The first place at which its invariant catches it.
    pub fn find(&self) -> Option<String> {
        let _plant = Plant::new(self.bug);
        match self.shows {
            Calm(name) => self.is_caught_in(&scenario(name), FaultPlan::Calm).then(|| format!("`{name}`")),
            Crashes(name) => {
                let scenario = scenario(name);
                let steps = 1..=run(&scenario, FaultPlan::Calm, 0).steps;
                let mut points = steps.flat_map(|step| EVERY.into_iter().map(move |fault| (step, fault)));
                let found = points.find(|point| self.is_caught_in(&scenario, FaultPlan::At(vec![*point])));
                found.map(|(step, fault)| format!("`{name}`, {fault:?} at step {step}"))
            }
            Mesh(setup) => {
                let caught = |seed: &u64| {
                    let violation = mesh::run(&setup(*seed), *seed).violation;
                    violation.is_some_and(|violation| violation.invariant == self.caught_by)
                };
                let first = TRIED_FIRST.iter().filter(|(bug, _)| *bug == self.bug).map(|(_, seed)| *seed);
                first.chain(0..SEEDS).find(caught).map(|seed| format!("seed {seed}"))
            }
        }
    }

    fn is_caught_in(&self, scenario: &Scenario, plan: FaultPlan) -> bool {
        run(scenario, plan, 0).violation.is_some_and(|violation| violation.invariant == self.caught_by)
    }
}

fn scenario(name: &str) -> Scenario {
    let all = known().into_iter().chain([storm(), bad_account()]);
    all.into_iter().find(|s| s.name == name).expect("the table names a scenario that there is")
}

const fn row(bug: Bug, caught_by: &'static str, shows: Shows, mistake: &'static str) -> Row {
    Row { bug, caught_by, shows, mistake }
}

/// Clocks are wrong.
fn wrong_clocks(seed: u64) -> Setup {
    Setup { drift: true, ..violent(seed) }
}

/// Agents work for longer than a lease.
fn slow_agents(seed: u64) -> Setup {
    Setup { work: Duration::from_secs(400), one_in: 2_000, ..violent(seed) }
}

/// Clones and pushes that take longer than a lease.
fn slow_remote(seed: u64) -> Setup {
    Setup { clone: Duration::from_secs(400), push: Duration::from_secs(200), one_in: 2_000, ..violent(seed) }
}

/// A calm mesh whose heartbeats are answered late.
pub fn slow_answers(_seed: u64) -> Setup {
    Setup { nodes: 1, answer: Duration::from_secs(3), ..small() }
}

/// Two of three machines have the login of a worker.
fn with_workers(seed: u64) -> Setup {
    Setup { workers: 2, ..violent(seed) }
}

/// The hub is away for days.
fn long_outages(seed: u64) -> Setup {
    let hours = |n: u64| Duration::from_secs(n * 3600);
    Setup { bad: hours(150), fault_every: Some(hours(1)), work: hours(1), loops: 4, rest: hours(2), ..violent(seed) }
}

/// A check that no agent can make pass.
fn poison(seed: u64) -> Setup {
    Setup { ill: Ill::Check, checks: 3, ..violent(seed) }
}

/// Work that goes on for hours: tasks wait for room and for something to spend.
fn limited(seed: u64) -> Setup {
    Setup { bad: Duration::from_secs(6 * 3600), one_in: 2_000, ..slow_agents(seed) }
}

/// Faults that last, some minutes apart.
fn quiet_storm(seed: u64) -> Setup {
    let minutes = |n: u64| Duration::from_secs(n * 60);
    Setup { fault_every: Some(minutes(3)), bad: minutes(360), loops: 6, rest: minutes(1), ..slow_agents(seed) }
}

/// A calm mesh and a stranger in its hub.
fn with_stranger(stranger: Stranger) -> Setup {
    Setup { checks: 6, work: Duration::from_secs(60), stranger, ..small() }
}

/// It changes loops.
pub fn changes_loops(_seed: u64) -> Setup {
    with_stranger(Stranger::ChangesLoops)
}

/// It reports in the name of a machine.
pub fn reports(_seed: u64) -> Setup {
    with_stranger(Stranger::Reports)
}

/// It signs with a key of its own.
pub fn signs_loops(_seed: u64) -> Setup {
    with_stranger(Stranger::SignsLoops)
}

/// All of them: of one machine, then of many.
pub const TABLE: &[Row] = &[
    row(Bug::FenceRestartsAtRetry, "I3", Calm("dies young"), "a task that is tried again gets fence 1 again"),
    row(Bug::TrustsExitCode, "false success", Calm("in place"), "exit code 0 counts as reached"),
    row(Bug::IgnoresProtectedPaths, "false success", Calm("in place"), "an edited check script is not looked for"),
    row(Bug::AcceptsRegression, "worse", Calm("breaks what passed"), "work that breaks a check is kept"),
    row(Bug::CountsLostTurns, "turns", Calm("hangs and vanishes"), "a turn that vanished counts against the bounds"),
    row(Bug::SpawnsWithoutPermit, "I6", Calm("dies young"), "the guard's refusal is ignored"),
    row(Bug::GapIgnored, "I6", Crashes("dies young"), "the least gap between two starts is not kept"),
    row(Bug::BackoffResetByUptime, "I6", Calm("storm"), "having run resets the reflexes, not progress"),
    row(Bug::NeverFreezes, "I6", Calm("storm"), "cooldowns never become a freeze"),
    row(Bug::FreezeWithoutCanary, "I5", Calm("storm"), "a freeze never tries whether it is over"),
    row(Bug::ReservationNotSettled, "reservations", Calm("good"), "what a turn had set aside stays set aside"),
    row(
        Bug::IntegratesWithoutTrailerLookup,
        "I2",
        Crashes("the target is rewritten"),
        "work is landed again after a crash",
    ),
    row(Bug::RecoveryRestartsLiveTurn, "one agent", Crashes("good"), "a turn that lives is started again"),
    row(Bug::RecoveryForgetsExited, "I1", Crashes("good"), "a turn that ended during the downtime is thrown away"),
    row(Bug::WaitWithoutTimer, "I5", Calm("dies young"), "a cooldown has no timer"),
    row(Bug::CommitWithoutSync, "durability", Crashes("good"), "a commit is promised before it is synced"),
    row(Bug::PerformsBeforeCommit, "I5", Crashes("dies young"), "the agent is started before that is written down"),
    row(Bug::TicketEveryTime, "I11", Calm("gives up"), "the same cause opens its ticket again"),
    row(Bug::StopIgnored, "I6", Crashes("people"), "a wish to stop is noted and not obeyed"),
    row(Bug::BackoffMarkerShortens, "I6", Calm("dies young"), "an agent can shorten the guard's own wait"),
    row(
        Bug::ReachedWithoutLanding,
        "false success",
        Calm("the target moves"),
        "work that never landed counts as reached",
    ),
    row(
        Bug::BelievesTamperedChecks,
        "false success",
        Calm("in place"),
        "in place, checks that were edited are believed",
    ),
    row(Bug::ProbesBeforeReset, "I6", Calm("the account is limited"), "a known reset is not waited for"),
    row(Bug::PaceIgnored, "I6", Calm("paced"), "a paced loop uses its account's window up at once"),
    row(Bug::QuarantineIgnored, "I8", Calm("one bad account"), "a quarantined subject is used all the same"),
    row(Bug::KeepaliveInTwoWrites, "keepalive", Calm("watches"), "the next keepalive is made in a second write"),
    row(Bug::RecoveryDropsKeepalive, "keepalive", Crashes("watches"), "a restart ends the keepalive and makes none"),
    row(Bug::RecoveryDoublesKeepalive, "keepalive", Calm("watches"), "a restart does not look whether there is one"),
    row(Bug::SignalInTwoWrites, "signal", Crashes("watches and works"), "a change is known before its task is there"),
    row(Bug::SignalKeepsCursor, "signal", Calm("watches"), "a change is reported again and again"),
    row(Bug::TicketBeforeChange, "strategy", Calm("gives up"), "a person is called before another way was tried"),
    row(Bug::ChangesForEver, "strategy", Calm("gives up"), "one way after the other is tried, without a ticket"),
    row(
        Bug::ForgetsLateMessages,
        "messages",
        Calm("people"),
        "a message that came during a turn is dropped at its end",
    ),
    row(Bug::ActsPastItsLease, "I4", Mesh(violent), "a supervisor acts until it is told that it is none"),
    row(
        Bug::LeaseFromTheReply,
        "I4",
        Mesh(violent),
        "the leader lease is counted from when the answer came, not from the question",
    ),
    row(Bug::NoAmnesty, "amnesty", Mesh(violent), "a new supervisor takes tasks from those who could not say a word"),
    row(Bug::TwoTasksForOneCheck, "one task", Mesh(violent), "a check that has a task gets another one"),
    row(Bug::TakesFromTheLiving, "amnesty", Mesh(violent), "nodes take what others hold, as soon as a lease is over"),
    row(Bug::WritesWithoutEpoch, "I4", Mesh(violent), "a loop is written without asking who supervises"),
    row(Bug::LandsWithoutLook, "I2", Mesh(violent), "work is merged again after a crash"),
    row(Bug::CountsMovedAsLanded, "landed", Mesh(violent), "a branch that could not be moved counts as moved"),
    row(Bug::ForgetsBeforeTold, "I1", Mesh(violent), "a node forgets what came of a task before the hub knows"),
    row(Bug::LendsPastCaps, "I6", Mesh(violent), "more is set aside than the loop may use"),
    row(Bug::BeginsWhatIsOthers, "overlap", Mesh(violent), "without a hub a node begins what is another one's"),
    row(Bug::NeverRenews, "living", Mesh(slow_agents), "a node does not hold on to its tasks"),
    row(Bug::SilentWhileItClones, "living", Mesh(slow_remote), "a task is not renewed while its clone is made"),
    row(
        Bug::HubClockFromTheAnswer,
        "hub clock",
        Mesh(slow_answers),
        "the hub's clock is compared with the time at which its answer came",
    ),
    row(Bug::LeadsWithoutRights, "rights", Mesh(with_workers), "a node with the login of a worker asks to lead"),
    row(Bug::PrunesWhatIsHeld, "in hand", Mesh(long_outages), "what the hub does not know yet is thrown away"),
    row(Bug::WritesDownAfterTaking, "written first", Mesh(violent), "a task is taken before that is written down"),
    row(Bug::TakesMoreThanItsSlots, "I9", Mesh(violent), "a node takes one task too many"),
    row(Bug::FenceRestartsAtExpiry, "I5", Mesh(violent), "the fence of a task that is taken back begins anew"),
    row(Bug::AcceptsOldFence, "I3", Mesh(violent), "whoever once held a task may still write to it"),
    row(Bug::EpochNotGrown, "I4", Mesh(violent), "the next supervisor has the epoch of the last"),
    row(Bug::StealsTheSeat, "I4", Mesh(violent), "the leader lease is given away before its time is over"),
    row(Bug::ReclaimsByItsOwnClock, "I5", Mesh(wrong_clocks), "leases of others are compared with the own clock"),
    row(Bug::ShelvesNothing, "I1", Mesh(violent), "what came too late is thrown away"),
    row(Bug::StoppedLoopGoesOn, "over", Mesh(violent), "tasks of a loop that is over are not called off"),
    row(Bug::PoisonNeverDies, "I5", Mesh(poison), "a task that fails every time is tried for ever"),
    row(Bug::GivesUpNever, "I5", Mesh(poison), "a check that nobody can make pass gets tasks for ever"),
    row(Bug::OverwritesOthers, "stop", Mesh(violent), "a loop is written again over what somebody else wrote"),
    row(Bug::TakesBeforeItIsTime, "I6", Mesh(violent), "a task that came to nothing is tried again at once"),
    row(Bug::DrainIgnored, "drained", Mesh(violent), "a node that is to take nothing takes tasks"),
    row(
        Bug::QuarantineLeavesNobody,
        "I5",
        Mesh(one_is_ill),
        "whoever gets no work gets none when there is nobody else either",
    ),
    row(
        Bug::TrialOfTheDeadStays,
        "I8",
        Mesh(one_is_ill),
        "a trial whose machine died is waited for until the end of days",
    ),
    row(
        Bug::ReconcilesTheLiving,
        "living",
        Mesh(violent),
        "claims are given back without asking whether a lease is over",
    ),
    row(Bug::EndsWantedTasks, "wanted", Mesh(limited), "tasks that wait are ended without asking their loop"),
    row(
        Bug::IgnoresTakenTasks,
        "told",
        Mesh(violent),
        "without a hub a node begins what another one was heard to take",
    ),
    row(Bug::ClingsToLeadership, "office", Mesh(quiet_storm), "a leader that cannot do its work goes on leading"),
    row(
        Bug::KeepsWhatIsStuck,
        "stuck",
        Mesh(quiet_storm),
        "a machine that is held keeps tasks with which it can do nothing",
    ),
    row(Bug::TakesWhileHeld, "shut", Mesh(violent), "a machine that is held takes tasks"),
    row(
        Bug::AnswersStayLocal,
        "answered",
        Mesh(poison),
        "what people answer on the leader's machine does not reach the hub",
    ),
    row(Bug::BelievesChangedLoops, "signed", Mesh(changes_loops), "the signature of a loop is not verified"),
    row(Bug::BelievesForgedReports, "signed", Mesh(reports), "the signature of a report is not verified"),
    row(Bug::TrustListIgnored, "signed", Mesh(signs_loops), "any valid signature is good enough"),
    row(Bug::FoldsRowsTwice, "counted once", Mesh(experiments), "an experiment that is over is counted again"),
    row(Bug::TrustsHints, "I5", Mesh(random), "a node looks for tasks only when it is told to"),
];
