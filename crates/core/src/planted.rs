//! Deliberate mistakes, switched on by tests only, to show that the tests would find them.
//!
//! Without the feature `planted` nothing here does anything: [`is`] is a constant.

/// A plausible programming mistake. Each is found by a scenario of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are the documentation; the table in the testkit explains each")]
pub enum Bug {
    FenceRestartsAtRetry,
    TrustsExitCode,
    IgnoresProtectedPaths,
    AcceptsRegression,
    CountsLostTurns,
    SpawnsWithoutPermit,
    GapIgnored,
    BackoffResetByUptime,
    NeverFreezes,
    FreezeWithoutCanary,
    ReservationNotSettled,
    IntegratesWithoutTrailerLookup,
    RecoveryRestartsLiveTurn,
    RecoveryForgetsExited,
    WaitWithoutTimer,
    CommitWithoutSync,
    PerformsBeforeCommit,
    TicketEveryTime,
    StopIgnored,
    BackoffMarkerShortens,
    ReachedWithoutLanding,
    BelievesTamperedChecks,
    ForgetsLateMessages,
    ProbesBeforeReset,
    PaceIgnored,
    ActsPastItsLease,
    NoAmnesty,
    TwoTasksForOneCheck,
    TakesFromTheLiving,
    WritesWithoutEpoch,
    LandsWithoutLook,
    ForgetsBeforeTold,
    LendsPastCaps,
    BeginsWhatIsOthers,
    LeaseFromTheReply,
    NeverRenews,
    SilentWhileItClones,
    HubClockFromTheAnswer,
    LeadsWithoutRights,
    PrunesWhatIsHeld,
    WritesDownAfterTaking,
    TakesMoreThanItsSlots,
    FenceRestartsAtExpiry,
    AcceptsOldFence,
    EpochNotGrown,
    StealsTheSeat,
    CountsMovedAsLanded,
    ReclaimsByItsOwnClock,
    ShelvesNothing,
    StoppedLoopGoesOn,
    PoisonNeverDies,
    GivesUpNever,
    OverwritesOthers,
    TakesBeforeItIsTime,
    DrainIgnored,
    TrustsHints,
    QuarantineLeavesNobody,
    TrialOfTheDeadStays,
    ReconcilesTheLiving,
    EndsWantedTasks,
    IgnoresTakenTasks,
    ClingsToLeadership,
    KeepsWhatIsStuck,
    TakesWhileHeld,
    AnswersStayLocal,
    BelievesChangedLoops,
    BelievesForgedReports,
    TrustListIgnored,
    QuarantineIgnored,
    CapOffByOne,
    ChargesWithoutComparison,
    TrialNeverComesBack,
    RuleNeverExpires,
    HalfLifeIgnored,
    CapsLeaveNobody,
    KeepaliveInTwoWrites,
    RecoveryDropsKeepalive,
    RecoveryDoublesKeepalive,
    SignalInTwoWrites,
    SignalKeepsCursor,
    TicketBeforeChange,
    ChangesForEver,
    BelievesItsFiles,
    RunsNewDrivers,
    FollowsLinks,
    LeavesIgnoredFiles,
    TakesAnySize,
    LandsUninspected,
    ReloadsConfig,
    TrustsWithoutHash,
    HooksWithoutTrust,
    JudgeFilesNotLaidOver,
    AdditionsNotCounted,
    CountsIgnored,
    SkippedCountAsRun,
    SilentPackagesPass,
    BelievesUnsignedLines,
    BelievesTheLog,
    FollowsStrangeLogs,
    WaitsForEver,
    CallersByVariable,
    LossesNeverCount,
    AnswersQuoteQuestions,
    StateReadable,
    SecretsReadable,
    WritableEverywhere,
    RulesNotEntered,
    SignalsUnscoped,
    MemoryShown,
    PowersKept,
    CallsNotFiltered,
    SocketsShown,
    DevicesOpened,
    NetworkOpen,
    OwnCommandsOpen,
    MeansMissing,
    KeepsOnFirstLook,
    CountsTheFirstLook,
    KeepsTheLuckyValue,
    IgnoresBrokenGuards,
    CrashIsZero,
    GoalOnlyAtTheEnd,
    MetricEndsSilently,
    RungNeverChanges,
    BuildsOnDiscards,
    ForgetsItsLine,
    ForgetsReruns,
    MendMovesTheBase,
    PatienceIgnored,
    MeasuresRepeats,
    MendsForEver,
    AcceptsCheats,
    ErrorsAreDiscards,
    NeverBranches,
    StopsWhenStuck,
    OneExperimentTooMany,
    FrontierTakesAnything,
    FrontierAtFirstLook,
    ScopeIgnored,
    TableRewritten,
    KillsOnlyTheParent,
    VanishedRunsCount,
    FoldsRowsTwice,
    KeepsWhatIsStale,
    CountsTasksAsExperiments,
    KeepsStaleWinners,
    OverwritesFindings,
    CountsAfterConflict,
    StartsBeyondTheEnd,
    RhythmLowWakesAtOnce,
    RhythmPassesInCircles,
    RhythmIgnoredIsLost,
    RhythmTakesTwice,
    RhythmNeverSnapsBack,
    RhythmStretchesPastLongest,
    RhythmWishUncut,
    RhythmWishFromThePrompt,
    RhythmOverdraftUnbounded,
    RhythmSignalEndsCooldown,
    RhythmMissedWakesPileUp,
    RhythmDstSkips,
    RhythmDstDoubles,
    RhythmFailuresSpeedUp,
    RhythmBacklogForgotten,
    RhythmInwardBudgetIgnored,
    RhythmDreamBeforeWork,
    RhythmReflectsWhileFrozen,
    RhythmNeverReflectsOnSelf,
    RhythmPlanMatchesAny,
    RhythmProtectedLineDropped,
    RhythmLowNeverExpires,
    RhythmIgnoredWakes,
    RhythmClockJumpLosesWake,
    RhythmFlagWithoutEnd,
}

/// Those about many machines.
pub const MESH: &[Bug] = &[
    Bug::ActsPastItsLease,
    Bug::NoAmnesty,
    Bug::TwoTasksForOneCheck,
    Bug::TakesFromTheLiving,
    Bug::WritesWithoutEpoch,
    Bug::LandsWithoutLook,
    Bug::ForgetsBeforeTold,
    Bug::LendsPastCaps,
    Bug::BeginsWhatIsOthers,
    Bug::LeaseFromTheReply,
    Bug::NeverRenews,
    Bug::SilentWhileItClones,
    Bug::HubClockFromTheAnswer,
    Bug::LeadsWithoutRights,
    Bug::PrunesWhatIsHeld,
    Bug::WritesDownAfterTaking,
    Bug::TakesMoreThanItsSlots,
    Bug::FenceRestartsAtExpiry,
    Bug::AcceptsOldFence,
    Bug::EpochNotGrown,
    Bug::StealsTheSeat,
    Bug::CountsMovedAsLanded,
    Bug::ReclaimsByItsOwnClock,
    Bug::ShelvesNothing,
    Bug::StoppedLoopGoesOn,
    Bug::PoisonNeverDies,
    Bug::GivesUpNever,
    Bug::OverwritesOthers,
    Bug::TakesBeforeItIsTime,
    Bug::DrainIgnored,
    Bug::TrustsHints,
    Bug::QuarantineLeavesNobody,
    Bug::TrialOfTheDeadStays,
    Bug::ReconcilesTheLiving,
    Bug::EndsWantedTasks,
    Bug::IgnoresTakenTasks,
    Bug::ClingsToLeadership,
    Bug::KeepsWhatIsStuck,
    Bug::TakesWhileHeld,
    Bug::AnswersStayLocal,
    Bug::BelievesChangedLoops,
    Bug::BelievesForgedReports,
    Bug::TrustListIgnored,
    Bug::FoldsRowsTwice,
];

/// Those about one machine.
pub const ALL: &[Bug] = &[
    Bug::FenceRestartsAtRetry,
    Bug::TrustsExitCode,
    Bug::IgnoresProtectedPaths,
    Bug::AcceptsRegression,
    Bug::CountsLostTurns,
    Bug::SpawnsWithoutPermit,
    Bug::GapIgnored,
    Bug::BackoffResetByUptime,
    Bug::NeverFreezes,
    Bug::FreezeWithoutCanary,
    Bug::ReservationNotSettled,
    Bug::IntegratesWithoutTrailerLookup,
    Bug::RecoveryRestartsLiveTurn,
    Bug::RecoveryForgetsExited,
    Bug::WaitWithoutTimer,
    Bug::CommitWithoutSync,
    Bug::PerformsBeforeCommit,
    Bug::TicketEveryTime,
    Bug::StopIgnored,
    Bug::BackoffMarkerShortens,
    Bug::ReachedWithoutLanding,
    Bug::BelievesTamperedChecks,
    Bug::ForgetsLateMessages,
    Bug::ProbesBeforeReset,
    Bug::PaceIgnored,
    Bug::QuarantineIgnored,
    Bug::KeepaliveInTwoWrites,
    Bug::RecoveryDropsKeepalive,
    Bug::RecoveryDoublesKeepalive,
    Bug::SignalInTwoWrites,
    Bug::SignalKeepsCursor,
    Bug::TicketBeforeChange,
    Bug::ChangesForEver,
];

/// Those of the immune system: found by fleets, not by a world of one machine.
pub const IMMUNE: &[Bug] = &[
    Bug::CapOffByOne,
    Bug::ChargesWithoutComparison,
    Bug::TrialNeverComesBack,
    Bug::RuleNeverExpires,
    Bug::HalfLifeIgnored,
    Bug::CapsLeaveNobody,
];

/// Those about the agent's repository: found by attempts of agents on a real one.
pub const REPOSITORY: &[Bug] = &[
    Bug::BelievesItsFiles,
    Bug::RunsNewDrivers,
    Bug::FollowsLinks,
    Bug::LeavesIgnoredFiles,
    Bug::TakesAnySize,
    Bug::LandsUninspected,
];

/// Those about the configuration that is in force: found by changes of a folder's file.
pub const CONFIGURATION: &[Bug] = &[Bug::ReloadsConfig, Bug::TrustsWithoutHash, Bug::HooksWithoutTrust];

/// Those about what decides a check: found by attempts to be accepted without the work.
pub const JUDGE: &[Bug] = &[
    Bug::JudgeFilesNotLaidOver,
    Bug::AdditionsNotCounted,
    Bug::CountsIgnored,
    Bug::SkippedCountAsRun,
    Bug::SilentPackagesPass,
];

/// Those about the end of a job: found by commands that forge it, hang it or kill its shim.
pub const VERDICT: &[Bug] = &[
    Bug::BelievesUnsignedLines,
    Bug::BelievesTheLog,
    Bug::FollowsStrangeLogs,
    Bug::WaitsForEver,
    Bug::CallersByVariable,
    Bug::LossesNeverCount,
    Bug::AnswersQuoteQuestions,
];

/// Holes in the isolation of commands: found by what commands then reach. The last one is no
/// mistake but a machine without any means.
pub const ISOLATION: &[Bug] = &[
    Bug::StateReadable,
    Bug::SecretsReadable,
    Bug::WritableEverywhere,
    Bug::RulesNotEntered,
    Bug::SignalsUnscoped,
    Bug::MemoryShown,
    Bug::PowersKept,
    Bug::CallsNotFiltered,
    Bug::SocketsShown,
    Bug::DevicesOpened,
    Bug::NetworkOpen,
    Bug::OwnCommandsOpen,
    Bug::MeansMissing,
];

/// Those about experiments: found by scripted runs with every outcome.
pub const RESEARCH: &[Bug] = &[
    Bug::KeepsOnFirstLook,
    Bug::CountsTheFirstLook,
    Bug::KeepsTheLuckyValue,
    Bug::IgnoresBrokenGuards,
    Bug::CrashIsZero,
    Bug::GoalOnlyAtTheEnd,
    Bug::BuildsOnDiscards,
    Bug::ForgetsItsLine,
    Bug::ForgetsReruns,
    Bug::MendMovesTheBase,
    Bug::PatienceIgnored,
    Bug::MeasuresRepeats,
    Bug::MendsForEver,
    Bug::AcceptsCheats,
    Bug::ErrorsAreDiscards,
    Bug::NeverBranches,
    Bug::StopsWhenStuck,
    Bug::OneExperimentTooMany,
    Bug::FrontierTakesAnything,
    Bug::FrontierAtFirstLook,
];

/// Those about the files and processes of experiments: found by runs of the program.
pub const EXPERIMENTS: &[Bug] =
    &[Bug::ScopeIgnored, Bug::TableRewritten, Bug::KillsOnlyTheParent, Bug::VanishedRunsCount];

/// Those about personas: found by cases of each rule and by a simulated year.
pub const RHYTHM: &[Bug] = &[
    Bug::RhythmLowWakesAtOnce,
    Bug::RhythmPassesInCircles,
    Bug::RhythmIgnoredIsLost,
    Bug::RhythmTakesTwice,
    Bug::RhythmNeverSnapsBack,
    Bug::RhythmStretchesPastLongest,
    Bug::RhythmWishUncut,
    Bug::RhythmWishFromThePrompt,
    Bug::RhythmOverdraftUnbounded,
    Bug::RhythmSignalEndsCooldown,
    Bug::RhythmMissedWakesPileUp,
    Bug::RhythmDstSkips,
    Bug::RhythmDstDoubles,
    Bug::RhythmFailuresSpeedUp,
    Bug::RhythmBacklogForgotten,
    Bug::RhythmInwardBudgetIgnored,
    Bug::RhythmDreamBeforeWork,
    Bug::RhythmReflectsWhileFrozen,
    Bug::RhythmNeverReflectsOnSelf,
    Bug::RhythmPlanMatchesAny,
    Bug::RhythmProtectedLineDropped,
    Bug::RhythmLowNeverExpires,
    Bug::RhythmIgnoredWakes,
    Bug::RhythmClockJumpLosesWake,
    Bug::RhythmFlagWithoutEnd,
];

/// Whether mistakes can be made at all; a constant, so that everything behind it is compiled away.
pub const POSSIBLE: bool = cfg!(feature = "planted");

/// The variable that names mistakes for a whole process and its shims, with commas between them.
pub const VARIABLE: &str = "EVERLOOP_PLANTED";

/// The mistakes of a whole process.
#[cfg(feature = "planted")]
static EVERYWHERE: std::sync::OnceLock<Vec<Bug>> = std::sync::OnceLock::new();

/// Switches the mistakes of [`ISOLATION`] and [`EXPERIMENTS`] with these names on in the whole process, for good.
#[cfg(feature = "planted")]
pub fn plant_everywhere(names: &str) {
    let known = || ISOLATION.iter().chain(EXPERIMENTS).copied();
    let named = |name: &str| known().find(|bug| format!("{bug:?}") == name);
    EVERYWHERE.get_or_init(|| names.split(',').filter_map(named).collect());
}

/// Without the feature no mistake can be made, whatever is named.
#[cfg(not(feature = "planted"))]
pub const fn plant_everywhere(_names: &str) {}

#[cfg(feature = "planted")]
std::thread_local! {
    static ACTIVE: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Switches one mistake on in this thread (`None`: all off).
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    ACTIVE.with(|a| a.set(bug));
}

/// Whether this mistake is made.
#[cfg(feature = "planted")]
pub fn is(bug: Bug) -> bool {
    ACTIVE.with(|a| a.get() == Some(bug)) || EVERYWHERE.get().is_some_and(|bugs| bugs.contains(&bug))
}

/// Whether this mistake is made: never.
#[cfg(not(feature = "planted"))]
pub const fn is(_bug: Bug) -> bool {
    false
}
