//! Deliberate mistakes about many machines, and the invariant that catches each.

use everloop_core::planted::{self, Bug};

use super::{Ill, Setup, Stranger, one_is_ill, random, run, small, violent};

/// Seeds within which a mistake has to show.
const SEEDS: u64 = 400;

/// A planted mistake and the invariant that catches it.
pub struct Row {
    /// The mistake that is planted.
    pub bug: Bug,
    /// The invariant that does not hold then.
    pub caught_by: &'static str,
    /// Where it shows.
    setup: fn(u64) -> Setup,
    /// What it is.
    pub mistake: &'static str,
}

impl Row {
    /// The first seed that shows it.
    pub fn find(&self) -> Option<u64> {
        planted::plant(Some(self.bug));
        let caught = |seed: &u64| {
            let violation = run(&(self.setup)(*seed), *seed).violation;
            violation.is_some_and(|violation| violation.invariant == self.caught_by)
        };
        let found = (0..SEEDS).find(caught);
        planted::plant(None);
        found
    }
}

const fn row(bug: Bug, caught_by: &'static str, setup: fn(u64) -> Setup, mistake: &'static str) -> Row {
    Row { bug, caught_by, setup, mistake }
}

/// Clocks are wrong.
fn wrong_clocks(seed: u64) -> Setup {
    Setup { drift: true, ..violent(seed) }
}

/// Agents work for longer than a lease.
fn slow_agents(seed: u64) -> Setup {
    Setup { work: std::time::Duration::from_secs(400), one_in: 2_000, ..violent(seed) }
}

/// A check that no agent can make pass.
fn poison(seed: u64) -> Setup {
    Setup { ill: Ill::Check, checks: 3, ..violent(seed) }
}

/// Work that goes on for hours: tasks wait for room and for something to spend.
fn limited(seed: u64) -> Setup {
    Setup { bad: std::time::Duration::from_secs(6 * 3600), one_in: 2_000, ..slow_agents(seed) }
}

/// Faults that last, some minutes apart.
fn quiet_storm(seed: u64) -> Setup {
    let minutes = |n: u64| std::time::Duration::from_secs(n * 60);
    Setup { fault_every: Some(minutes(3)), bad: minutes(360), loops: 6, rest: minutes(1), ..slow_agents(seed) }
}

/// A calm mesh and a stranger in its hub.
fn with_stranger(stranger: Stranger) -> Setup {
    Setup { checks: 6, work: std::time::Duration::from_secs(60), stranger, ..small() }
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

/// All of them.
pub const TABLE: &[Row] = &[
    row(Bug::ActsPastItsLease, "I4", violent, "a supervisor acts until it is told that it is none"),
    row(
        Bug::LeaseFromTheReply,
        "I4",
        violent,
        "the leader lease is counted from when the answer came, not from the question",
    ),
    row(Bug::NoAmnesty, "amnesty", violent, "a new supervisor takes tasks from those who could not say a word"),
    row(Bug::TwoTasksForOneCheck, "one task", violent, "a check that has a task gets another one"),
    row(Bug::TakesFromTheLiving, "amnesty", violent, "nodes take what others hold, as soon as a lease is over"),
    row(Bug::WritesWithoutEpoch, "I4", violent, "a loop is written without asking who supervises"),
    row(Bug::LandsWithoutLook, "I2", violent, "work is merged again after a crash"),
    row(Bug::CountsMovedAsLanded, "landed", violent, "a branch that could not be moved counts as moved"),
    row(Bug::ForgetsBeforeTold, "I1", violent, "a node forgets what came of a task before the hub knows"),
    row(Bug::LendsPastCaps, "I6", violent, "more is set aside than the loop may use"),
    row(Bug::BeginsWhatIsOthers, "overlap", violent, "without a hub a node begins what is another one's"),
    row(Bug::NeverRenews, "living", slow_agents, "a node does not hold on to its tasks"),
    row(Bug::WritesDownAfterTaking, "written first", violent, "a task is taken before that is written down"),
    row(Bug::TakesMoreThanItsSlots, "I9", violent, "a node takes one task too many"),
    row(Bug::FenceRestartsAtExpiry, "I5", violent, "the fence of a task that is taken back begins anew"),
    row(Bug::AcceptsOldFence, "I3", violent, "whoever once held a task may still write to it"),
    row(Bug::EpochNotGrown, "I4", violent, "the next supervisor has the epoch of the last"),
    row(Bug::StealsTheSeat, "I4", violent, "the leader lease is given away before its time is over"),
    row(Bug::ReclaimsByItsOwnClock, "I5", wrong_clocks, "leases of others are compared with the own clock"),
    row(Bug::ShelvesNothing, "I1", violent, "what came too late is thrown away"),
    row(Bug::StoppedLoopGoesOn, "over", violent, "tasks of a loop that is over are not called off"),
    row(Bug::PoisonNeverDies, "I5", poison, "a task that fails every time is tried for ever"),
    row(Bug::GivesUpNever, "I5", poison, "a check that nobody can make pass gets tasks for ever"),
    row(Bug::OverwritesOthers, "stop", violent, "a loop is written again over what somebody else wrote"),
    row(Bug::TakesBeforeItIsTime, "I6", violent, "a task that came to nothing is tried again at once"),
    row(Bug::DrainIgnored, "drained", violent, "a node that is to take nothing takes tasks"),
    row(
        Bug::QuarantineLeavesNobody,
        "I5",
        one_is_ill,
        "whoever gets no work gets none when there is nobody else either",
    ),
    row(Bug::TrialOfTheDeadStays, "I8", one_is_ill, "a trial whose machine died is waited for until the end of days"),
    row(Bug::ReconcilesTheLiving, "living", violent, "claims are given back without asking whether a lease is over"),
    row(Bug::EndsWantedTasks, "wanted", limited, "tasks that wait are ended without asking their loop"),
    row(Bug::IgnoresTakenTasks, "told", violent, "without a hub a node begins what another one was heard to take"),
    row(Bug::ClingsToLeadership, "office", quiet_storm, "a leader that cannot do its work goes on leading"),
    row(Bug::KeepsWhatIsStuck, "stuck", quiet_storm, "a machine that is held keeps tasks with which it can do nothing"),
    row(Bug::TakesWhileHeld, "shut", violent, "a machine that is held takes tasks"),
    row(Bug::AnswersStayLocal, "answered", poison, "what people answer on the leader's machine does not reach the hub"),
    row(Bug::BelievesChangedLoops, "signed", changes_loops, "the signature of a loop is not verified"),
    row(Bug::BelievesForgedReports, "signed", reports, "the signature of a report is not verified"),
    row(Bug::TrustListIgnored, "signed", signs_loops, "any valid signature is good enough"),
    row(Bug::TrustsHints, "I5", random, "a node looks for tasks only when it is told to"),
];
