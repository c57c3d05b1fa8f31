//! Result of a finished turn. Only the checks decide; the agent's own report is not considered.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use crate::event::{Exit, Judgement, Outcome, Pattern, StopCause};
use crate::planted::{self, Bug};
use crate::spec::{Integrate, WorkspaceMode};
use crate::state::{LoopState, Try};

/// Result of a turn and the use of its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assessment {
    pub outcome: Outcome,
    /// The next turn starts from it.
    pub keep: bool,
    /// It moves onto the target branch.
    pub integrate: bool,
}

/// Assesses a turn by its exit and the judgement of its work.
pub fn assess(state: &LoopState, exit: &Exit, found: &Judgement) -> Assessment {
    let in_place = state.spec.workspace.mode == WorkspaceMode::InPlace;
    let refuse = |outcome| Assessment { outcome, keep: in_place, integrate: false };
    if planted::is(Bug::TrustsExitCode) && exit.ok() {
        return Assessment { outcome: Outcome::Reached, keep: true, integrate: true };
    }
    // Checks that did not run, or that may have been tampered with, prove nothing about the work,
    // not even in place.
    let believed = in_place && planted::is(Bug::BelievesTamperedChecks);
    let unproven = |outcome| Assessment { outcome, keep: believed, integrate: false };
    if let Some(why) = &found.error {
        return unproven(Outcome::TaskFailed { why: why.clone() });
    }
    if !found.violations.is_empty() && !planted::is(Bug::IgnoresProtectedPaths) {
        return unproven(Outcome::Refused { paths: found.violations.clone() });
    }
    let board = &found.board;
    // A turn that changes nothing while all checks pass proves nothing: what remains is whether the
    // agent worked at all.
    let idle = state.progress.board.all_pass() && state.progress.landed.all_pass() && !found.changed;
    if state.is_persona()
        && let Some(assessment) = assess_persona(state, exit, found)
    {
        return assessment;
    }
    if board.all_pass() && !idle {
        return Assessment { outcome: Outcome::Reached, keep: true, integrate: true };
    }
    if board.improves_on(&state.progress.board) {
        let integrate =
            state.spec.workspace.integrate == Integrate::Progress && board.improves_on(&state.progress.landed);
        return Assessment { outcome: Outcome::Progress, keep: true, integrate };
    }
    if let (Some(limit), None | Some(StopCause::Announced)) =
        (exit.limit().filter(|l| l.class.holds_account()), exit.stopped)
    {
        // The same session continues and expects to find its work so far.
        let (class, kept) = (limit.class, found.changed);
        return Assessment { outcome: Outcome::Limited { class, kept }, keep: kept || in_place, integrate: false };
    }
    if exit.report.as_ref().is_some_and(|r| r.session_lost) && !found.changed {
        // A full context is no failure: the next turn begins a fresh session.
        return refuse(Outcome::Lost);
    }
    let worse = board.score() < state.progress.board.score() && !planted::is(Bug::AcceptsRegression);
    // A turn that was stopped at the loop's budget did what it could.
    if !exit.ok() && exit.stopped != Some(StopCause::Budget) {
        return failed(exit, found.changed && !worse, in_place);
    }
    if !found.changed {
        return refuse(Outcome::NoOp);
    }
    if worse {
        return refuse(Outcome::Regressed { lost: board.lost_since(&state.progress.board) });
    }
    Assessment { outcome: Outcome::NotYet, keep: true, integrate: false }
}

/// The good work of a persona: it is never finished, and without checks nothing but its exit speaks
/// against it. `None` leaves the turn to the rules of all loops.
fn assess_persona(state: &LoopState, exit: &Exit, found: &Judgement) -> Option<Assessment> {
    let good = if state.spec.checks.is_empty() { exit.ok() } else { found.board.all_pass() };
    (good && found.changed).then_some(Assessment { outcome: Outcome::Progress, keep: true, integrate: true })
}

pub(crate) fn failed(exit: &Exit, usable: bool, in_place: bool) -> Assessment {
    let outcome = match exit.stopped {
        Some(StopCause::Wall) => Outcome::TaskFailed { why: exit.describe() },
        Some(StopCause::Person | StopCause::Shutdown) => Outcome::Interrupted,
        Some(
            StopCause::Stuck
            | StopCause::Spinning
            | StopCause::NoDiff
            | StopCause::Lingers
            | StopCause::Budget
            | StopCause::Announced,
        )
        | None => Outcome::AgentFailed { why: exit.describe(), kept: usable },
    };
    let keep = in_place || matches!(outcome, Outcome::AgentFailed { kept: true, .. });
    Assessment { outcome, keep, integrate: false }
}

/// Number of no-op turns or equal errors in a row from which on they are reported.
const SAID_FROM: u32 = 3;

/// Turns that alternate between two results from which on they are reported.
const PING_PONG_FROM: u32 = 4;

/// Patterns that the latest turn completes; each is reported when it first appears and at every
/// doubling.
pub fn patterns(state: &LoopState) -> Vec<(Pattern, u32)> {
    let mut found = Vec::new();
    // All checks pass: there is nothing to make progress towards.
    if state.progress.board.all_pass() && state.progress.landed.all_pass() {
        return found;
    }
    let mut say = |pattern, turns: u32, from: u32| {
        if doubles(turns, from) {
            found.push((pattern, turns));
        }
    };
    say(Pattern::NoOps, state.progress.noops, SAID_FROM);
    say(Pattern::SameError, state.progress.same_error, SAID_FROM);
    say(Pattern::Stagnation, state.progress.since_progress, state.spec.guard.stagnation_turns.max(1));
    let turns = alternating(&state.progress.tries);
    if doubles(turns, PING_PONG_FROM) {
        found.push((Pattern::PingPong, turns));
    }
    found
}

/// The suspicious passes of the latest turns in a row, newest first.
pub fn doubts(state: &LoopState) -> Vec<&[String]> {
    let counted = state.progress.tries.iter().rev().filter(|t| t.outcome.counts());
    counted.map(|t| t.doubts.as_slice()).take_while(|doubts| !doubts.is_empty()).collect()
}

/// Whether `turns` equals `from` times a power of two.
pub fn doubles(turns: u32, from: u32) -> bool {
    turns >= from && (turns / from).is_power_of_two() && turns.is_multiple_of(from)
}

/// The latest turns in a row that alternate between two results: two sets of checks that pass, or
/// two errors of the same checks. Less than two alternations are none.
pub fn alternating(tries: &[Try]) -> u32 {
    let mut results = tries.iter().rev().filter(|t| t.outcome.counts()).map(|t| (&t.passing, t.fingerprint));
    let (Some(last), Some(before)) = (results.next(), results.next()) else { return 0 };
    if last == before {
        return 0;
    }
    let more = results.zip([last, before].into_iter().cycle()).take_while(|(a, b)| a == b).count();
    let turns = u32::try_from(more + 2).unwrap_or(u32::MAX);
    if turns >= PING_PONG_FROM { turns } else { 0 }
}
