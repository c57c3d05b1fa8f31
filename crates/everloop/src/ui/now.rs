//! What is going on, in at most ten lines: the loops of this folder first.

use std::path::Path;

use everloop_core::guard::Guards;
use everloop_core::state::LoopState;
use everloop_engine::services::status::StatusAnswer;

use super::status::{StatusStyle, holds, status_table};
use super::text::{count, fit};

/// Loops in the table; together with its head, the lines below it and their hints, ten lines.
const LOOPS_SHOWN: usize = 5;

/// Shown where no loop was ever made.
pub fn first_steps() -> Vec<String> {
    [
        "no loops yet. To begin:",
        "  everloop demo                                     a whole loop in half a minute, without a key",
        "  everloop init                                     an everloop.toml with the checks of this project",
        "  everloop run \"GOAL\" --check 'CMD' --agent claude   work on a goal until its check passes",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Loops of `dir` first, then the others, those that are not over first.
pub fn now_lines(seen: &StatusAnswer, dir: &Path, look: &StatusStyle) -> Vec<String> {
    let mut loops = seen.loops.clone();
    let here = |state: &LoopState| dir.starts_with(&state.spec.workspace.dir);
    // The order of those that are alike stays: the newest first.
    loops.sort_by_key(|state| (!here(state), state.is_over()));
    let hidden = loops.len().saturating_sub(LOOPS_SHOWN);
    loops.truncate(LOOPS_SHOWN);
    let mut lines = status_table(&loops, &Guards::new(), look);
    if hidden > 0 {
        lines.push(format!("… and {}: everloop status", count(hidden as u64, "loop")));
    }
    if !holds(&seen.guards, look).is_empty() {
        lines.push(format!("{} by the guard: everloop guard status", look.paint.warn("held")));
    }
    if !seen.tickets.is_empty() {
        let open = count(seen.tickets.len() as u64, "open ticket");
        lines.push(format!("{}: everloop ticket list", look.paint.warn(&open)));
    }
    if seen.supervisor.is_none() && !seen.loops.iter().all(LoopState::is_over) {
        lines.push(format!("{}; start one: everloop up", look.paint.warn("no supervisor is running")));
    }
    lines.iter().map(|line| fit(line, look.width)).collect()
}

#[cfg(test)]
mod tests {
    use everloop_core::event::LoopEnd;
    use everloop_core::ids::LoopId;
    use everloop_core::op::Ticket;
    use everloop_core::state::Phase;
    use everloop_testkit::sample::{START, state};
    use jiff::tz::TimeZone;

    use super::super::paint::Paint;
    use super::*;

    fn one(id: &str, dir: &str, phase: Phase) -> LoopState {
        let mut state = state();
        state.id = LoopId::new(id);
        state.spec.workspace.dir = dir.into();
        state.phase = phase;
        state
    }

    #[test]
    fn loops_of_this_folder_come_first_and_ten_lines_suffice() {
        let over = || Phase::Ended { ending: LoopEnd::Reached, at: START };
        let mut loops: Vec<LoopState> = (0..7).map(|n| one(&format!("far{n}"), "/far", Phase::Ready)).collect();
        loops.push(one("done", "/near", over()));
        loops.push(one("open", "/near", Phase::Ready));
        let ticket = Ticket {
            id: 1,
            key: "question:1".into(),
            owner: None,
            text: "may I?".into(),
            opened_at: START,
            closed: None,
        };
        let seen = StatusAnswer { loops, tickets: vec![ticket], ..StatusAnswer::default() };
        let look = StatusStyle { now: START, zone: TimeZone::UTC, paint: Paint::Off, width: 80 };
        let lines = now_lines(&seen, Path::new("/near/src"), &look);
        assert!(lines.len() <= 10, "{lines:#?}");
        let ids: Vec<&str> = lines[1..6].iter().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(ids, ["open", "done", "far0", "far1", "far2"]);
        assert_eq!(lines[6..8], ["… and 4 loops: everloop status", "1 open ticket: everloop ticket list"]);
        assert_eq!(lines[8..], ["no supervisor is running; start one: everloop up"]);
    }

    #[test]
    fn three_commands_are_offered_where_there_is_nothing() {
        assert_eq!(first_steps().iter().filter(|line| line.starts_with("  everloop ")).count(), 3);
    }
}
