//! What a finished turn amounts to. Only the checks decide; what the agent says about itself is not even looked at.

use crate::event::{Exit, Judgement, Outcome, Pattern, StopCause};
use crate::planted::{self, Bug};
use crate::spec::{Integrate, WorkspaceMode};
use crate::state::{LoopState, Try};
use crate::stream::LimitClass;

/// What to do with a turn's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assessment {
    /// What it amounts to.
    pub outcome: Outcome,
    /// The next turn starts from it.
    pub keep: bool,
    /// It moves onto the operator's branch.
    pub integrate: bool,
}

/// Weighs a turn.
pub fn assess(state: &LoopState, exit: &Exit, found: &Judgement) -> Assessment {
    let in_place = state.spec.workspace.mode == WorkspaceMode::InPlace;
    let refuse = |outcome| Assessment { outcome, keep: in_place, integrate: false };
    if planted::is(Bug::TrustsExitCode) && exit.ok() {
        return Assessment { outcome: Outcome::Reached, keep: true, integrate: true };
    }
    // Checks that did not run, or that may have been tampered with, say nothing about the work, in place neither.
    let believed = in_place && planted::is(Bug::BelievesTamperedChecks);
    let unproven = |outcome| Assessment { outcome, keep: believed, integrate: false };
    if let Some(why) = &found.error {
        return unproven(Outcome::TaskFailed { why: why.clone() });
    }
    if !found.violations.is_empty() && !planted::is(Bug::IgnoresProtectedPaths) {
        return unproven(Outcome::Refused { paths: found.violations.clone() });
    }
    let board = &found.board;
    // Who watches with all checks passing has proved nothing by changing nothing: whether the agent worked at all is what is
    // left to ask.
    let idle = state.board.all_pass() && state.landed.all_pass() && !found.changed;
    if board.all_pass() && !idle {
        return Assessment { outcome: Outcome::Reached, keep: true, integrate: true };
    }
    if board.improves_on(&state.board) {
        let integrate = state.spec.workspace.integrate == Integrate::Progress && board.improves_on(&state.landed);
        return Assessment { outcome: Outcome::Progress, keep: true, integrate };
    }
    if let (Some(limit), None) = (exit.limit().filter(|l| l.class != LimitClass::Context), exit.stopped) {
        // It goes on with the same conversation, which expects to find what it did so far.
        let (class, kept) = (limit.class, found.changed);
        return Assessment { outcome: Outcome::Limited { class, kept }, keep: kept || in_place, integrate: false };
    }
    if exit.report.as_ref().is_some_and(|r| r.session_lost) && !found.changed {
        // Nobody's fault: the next turn begins a fresh conversation.
        return refuse(Outcome::Lost);
    }
    let worse = board.score() < state.board.score() && !planted::is(Bug::AcceptsRegression);
    if !exit.ok() {
        return failed(exit, found.changed && !worse, in_place);
    }
    if !found.changed {
        return refuse(Outcome::NoOp);
    }
    if worse {
        return refuse(Outcome::Regressed { lost: board.lost_since(&state.board) });
    }
    Assessment { outcome: Outcome::NotYet, keep: true, integrate: false }
}

fn failed(exit: &Exit, usable: bool, in_place: bool) -> Assessment {
    let outcome = match exit.stopped {
        Some(StopCause::Wall) => Outcome::TaskFailed { why: exit.describe() },
        Some(StopCause::Person | StopCause::Shutdown) => Outcome::Interrupted,
        Some(StopCause::Stuck | StopCause::Spinning | StopCause::NoDiff | StopCause::Lingers) | None => {
            Outcome::AgentFailed { why: exit.describe(), kept: usable }
        }
    };
    let keep = in_place || matches!(outcome, Outcome::AgentFailed { kept: true, .. });
    Assessment { outcome, keep, integrate: false }
}

/// No-op turns or equal errors in a row from which on it is said aloud.
const SAID_FROM: u32 = 3;

/// Patterns that the latest turn completes; each is reported when it is first seen and then as it doubles.
pub fn patterns(state: &LoopState) -> Vec<(Pattern, u32)> {
    let mut found = Vec::new();
    // Nothing is missing that there could be progress towards.
    if state.board.all_pass() && state.landed.all_pass() {
        return found;
    }
    let mut say = |pattern, turns: u32, from: u32| {
        if doubles(turns, from) {
            found.push((pattern, turns));
        }
    };
    say(Pattern::NoOps, state.noops, SAID_FROM);
    say(Pattern::SameError, state.same_error, SAID_FROM);
    say(Pattern::Stagnation, state.since_progress, state.spec.guard.stagnation_turns.max(1));
    if ping_pong(&state.tries) {
        found.push((Pattern::PingPong, 4));
    }
    found
}

/// Whether so many turns are the number from which on it is said, or that doubled, and doubled again.
pub fn doubles(turns: u32, from: u32) -> bool {
    turns >= from && (turns / from).is_power_of_two() && turns.is_multiple_of(from)
}

/// The last four turns went back and forth between two scoreboards.
fn ping_pong(tries: &[Try]) -> bool {
    let [.., a, b, c, d] = tries else { return false };
    a.passing == c.passing && b.passing == d.passing && a.passing != b.passing
}
