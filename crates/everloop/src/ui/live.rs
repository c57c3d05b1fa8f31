//! The view that stays in place on a terminal while a loop runs.
//!
//! [`frame`] builds its lines, [`Live`] draws it. The cursor is hidden only while a frame is being
//! written, so that a killed everloop never leaves a terminal without one.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use everloop_core::scoreboard::Scoreboard;
use everloop_core::state::{LoopState, Phase, Turn, TurnStage};
use everloop_core::time::{Time, human};
use everloop_core::why;
use jiff::tz::TimeZone;

use super::board::scoreboard;
use super::events::ended;
use super::paint::Paint;
use super::quantities::score;
use super::quantities::{Accuracy, coarse, moment, spend};
use super::text::{clean, fit, width};

/// Checks beyond this are summed up, so that the view fits on a small terminal.
const CHECKS_SHOWN: usize = 12;
/// A longer explanation is for `everloop why`.
const SENTENCE_LINES: usize = 3;

/// Facts that are not in the state.
#[derive(Clone, Debug)]
pub struct LiveFacts {
    pub now: Time,
    pub zone: TimeZone,
    pub paint: Paint,
    /// Time since the last activity of the running turn.
    pub evidence: Option<Duration>,
    /// The last line of the running turn's agent.
    pub said: Option<String>,
}

/// The view as lines, none wider than `cells`.
pub fn frame(state: &LoopState, facts: &LiveFacts, cells: usize) -> Vec<String> {
    let paint = facts.paint;
    let mut lines = vec![format!("{} {}", paint.strong(state.id.as_str()), clean(&state.spec.goal))];
    let board = &state.progress.board;
    let shown = worth_showing(board);
    let hidden = board.0.len() - shown.0.len();
    lines.extend(scoreboard(&shown, state.progress.baseline.as_ref(), paint).iter().map(|line| format!("  {line}")));
    if hidden > 0 {
        lines.push(format!("  … {hidden} more; {}", score(board)));
    }
    lines.extend(wrapped(&now_line(state, facts), cells));
    let talks = matches!(&state.phase, Phase::Turn(turn) if turn.stage == TurnStage::Running);
    if let Some(said) = facts.said.as_ref().filter(|_| talks) {
        lines.push(format!("  {} {}", paint.faint("says:"), clean(said)));
    }
    lines.push(paint.faint(&used_line(state, facts.now)));
    lines.extend(stop_hint(state).map(|hint| paint.warn(hint)));
    lines.iter().map(|line| fit(line, cells)).collect()
}

/// The checks that fit on a small terminal: those that do not pass first.
fn worth_showing(board: &Scoreboard) -> Scoreboard {
    if board.0.len() <= CHECKS_SHOWN {
        return board.clone();
    }
    let (passing, failing): (Vec<_>, Vec<_>) = board.0.iter().cloned().partition(|row| row.verdict.passes());
    Scoreboard(failing.into_iter().chain(passing).take(CHECKS_SHOWN).collect())
}

/// A sentence over as many lines as it needs, within bounds: its end says until when.
fn wrapped(text: &str, cells: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is a first line");
        if line.is_empty() {
            line.push_str(word);
        } else if width(line) + 1 + width(word) <= cells || lines.len() == SENTENCE_LINES {
            let line = lines.last_mut().expect("there is a first line");
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines
}

fn now_line(state: &LoopState, facts: &LiveFacts) -> String {
    let paint = facts.paint;
    match &state.phase {
        Phase::New => "taking the baseline: the checks run once before the first turn".to_owned(),
        Phase::Ready => "between turns".to_owned(),
        Phase::Waiting { reason, .. } => {
            let clock = |at: Time| moment(at, facts.now, &facts.zone);
            let sentence = clean(&why::waiting(reason, facts.now, &clock));
            format!("{} {sentence}", paint.warn("waiting:"))
        }
        Phase::Turn(turn) => turn_line(turn, facts),
        Phase::Ended { ending, .. } => clean(&ended(ending)),
    }
}

fn turn_line(turn: &Turn, facts: &LiveFacts) -> String {
    let age = coarse(facts.now.since(turn.started_at));
    let doing = match turn.stage {
        TurnStage::Running => "the agent works",
        TurnStage::Judging => "the checks run",
        TurnStage::Integrating => "the work is being integrated",
        TurnStage::Measuring => "candidate and champion are measured again",
    };
    let mut parts = vec![format!("turn {}", turn.number), format!("{doing} ({age})")];
    if turn.stage == TurnStage::Running
        && let Some(age) = facts.evidence
    {
        parts.push(format!("last activity {} ago", coarse(age)));
    }
    parts.extend(turn.stopping.map(|cause| facts.paint.warn(&format!("being stopped: {}", cause.describe()))));
    parts.join(" · ")
}

fn used_line(state: &LoopState, now: Time) -> String {
    let bounds = &state.spec.bounds;
    let turns =
        bounds.max_turns.map_or(format!("{}", state.task.turns), |max| format!("{} of {max}", state.task.turns));
    let age = coarse(now.since(state.spend.clock_from));
    let time = bounds.max_time.map_or(age.clone(), |max| format!("{age} of {}", human(max)));
    format!("turns {turns} · {time} · {}", spend(state.spend.spent, Accuracy::from(&state.spend)))
}

fn stop_hint(state: &LoopState) -> Option<&'static str> {
    let wish = state.people.stop.as_ref()?;
    match (&state.phase, wish.now) {
        (Phase::Ended { .. }, _) => None,
        (Phase::Turn(_), false) => Some("ends after this turn; interrupt again to stop the agent now"),
        (Phase::Turn(_), true) => Some("stopping the agent; everything can be resumed"),
        (Phase::New | Phase::Ready | Phase::Waiting { .. }, _) => Some("ending; everything can be resumed"),
    }
}

/// Draws frames over each other.
#[derive(Debug)]
pub struct Live<W: Write> {
    out: W,
    drawn: Vec<String>,
}

impl<W: Write> Live<W> {
    /// Draws to a terminal, from where its cursor is.
    pub fn new(out: W) -> Self {
        Self { out, drawn: Vec::new() }
    }

    /// Replaces the last frame. A frame that is too high for the terminal loses its upper lines.
    pub fn draw(&mut self, frame: &[String]) -> io::Result<()> {
        let room = height().saturating_sub(1).max(1);
        let frame = frame[frame.len().saturating_sub(room)..].to_vec();
        self.replace(&[], frame)
    }

    /// Prints lines that stay, above the frame.
    pub fn print(&mut self, lines: &[String]) -> io::Result<()> {
        let frame = self.drawn.clone();
        self.replace(lines, frame)
    }

    /// Clears the frame; printed lines stay.
    pub fn clear(&mut self) -> io::Result<()> {
        self.replace(&[], Vec::new())
    }

    /// One write, so that a frame is never seen half.
    fn replace(&mut self, stay: &[String], frame: Vec<String>) -> io::Result<()> {
        let mut bytes = String::from("\u{1b}[?25l\r");
        let back = rows(&self.drawn);
        if back > 0 {
            write!(bytes, "\u{1b}[{back}A").expect("writing to a string cannot fail");
        }
        for line in stay.iter().chain(&frame) {
            // Cleared before, not behind: behind a full line it would delete the last character.
            bytes.push_str("\u{1b}[2K");
            bytes.push_str(line);
            bytes.push_str("\r\n");
        }
        bytes.push_str("\u{1b}[J\u{1b}[?25h");
        self.drawn = frame;
        self.out.write_all(bytes.as_bytes())?;
        self.out.flush()
    }
}

/// Rows of the terminal that lines take up: a terminal that became narrower has wrapped them.
fn rows(lines: &[String]) -> usize {
    let columns = terminal_size::terminal_size().map_or(usize::MAX, |(width, _)| usize::from(width.0).max(1));
    lines.iter().map(|line| width(line).div_ceil(columns).max(1)).sum()
}

fn height() -> usize {
    terminal_size::terminal_size().map_or(usize::MAX, |(_, height)| usize::from(height.0))
}

#[cfg(test)]
mod tests {
    use everloop_core::reason::{Reason, RuleId};
    use everloop_core::state::StopWish;

    use super::*;
    use everloop_core::scoreboard::Verdict;
    use everloop_testkit::sample::{START, board, state, turn};

    fn facts() -> LiveFacts {
        LiveFacts {
            now: Time(START.0 + 125_000),
            zone: TimeZone::UTC,
            paint: Paint::Off,
            evidence: Some(Duration::from_secs(4)),
            said: None,
        }
    }

    #[test]
    fn a_running_turn() {
        let mut state = state();
        state.phase = Phase::Turn(Box::new(turn(3)));
        state.task.turns = 2;
        state.spend.spent.calls = 2;
        state.spend.spent.microusd = 200_000;
        state.people.stop = Some(StopWish { by: "me".to_owned(), now: false });
        insta::assert_snapshot!(frame(&state, &facts(), 80).join("\n"));
    }

    #[test]
    fn a_waiting_loop_says_why_and_until_when() {
        let mut state = state();
        let reason = Reason::new(RuleId::GuardGap).with("gap", "15s").until(Time(START.0 + 137_000));
        state.phase = Phase::Waiting { reason, since: START };
        insta::assert_snapshot!(frame(&state, &facts(), 100).join("\n"));
    }

    #[test]
    fn of_many_checks_those_that_fail_are_shown_and_the_agents_last_line() {
        let mut state = state();
        state.phase = Phase::Turn(Box::new(turn(3)));
        let names: Vec<String> = (1..=50).map(|n| format!("check {n}")).collect();
        let verdict = |n: usize| if n % 10 == 9 { Verdict::Fail } else { Verdict::Pass };
        let rows: Vec<(&str, Verdict)> =
            names.iter().enumerate().map(|(n, name)| (name.as_str(), verdict(n))).collect();
        state.progress.board = board(&rows);
        let facts = LiveFacts { said: Some("reading src/main.rs\u{1b}[2J".to_owned()), ..facts() };
        let lines = frame(&state, &facts, 80);
        let failing: Vec<&str> = lines[1..=5].iter().map(|line| line.trim_start()).collect();
        assert!(failing.iter().all(|line| line.starts_with("✗ check ")), "{lines:#?}");
        assert!(lines[6].trim_start().starts_with("✓ check 1 "), "{lines:#?}");
        assert_eq!(lines[1 + CHECKS_SHOWN], "  … 38 more; 45 of 50 checks pass");
        assert!(lines.contains(&"  says: reading src/main.rs".to_owned()), "{lines:#?}");
    }

    #[test]
    fn a_long_reason_is_wrapped_and_not_cut_at_80_columns() {
        let mut state = state();
        let reason =
            Reason::new(RuleId::ChecksBroken).with("check", "unit").with("why", "cannot start: sh: x: not found");
        state.phase = Phase::Waiting { reason, since: START };
        let lines = frame(&state, &facts(), 80);
        assert!(lines.iter().any(|line| line.contains("--yes")), "{lines:#?}");
        assert!(lines.iter().all(|line| width(line) <= 80), "{lines:#?}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_no_code_but_ours_gets_through() {
        let mut state = state();
        state.phase = Phase::Turn(Box::new(turn(3)));
        state.spec.goal = "漢字 ".repeat(60) + "\u{1b}]0;x\u{7}";
        for cells in [1, 10, 33, 80] {
            for paint in [Paint::On, Paint::Off] {
                for line in frame(&state, &LiveFacts { paint, ..facts() }, cells) {
                    assert!(width(&line) <= cells, "{cells}: {line:?}");
                    assert!(!line.contains("\u{1b}]") && !line.contains("[2J"), "{line:?}");
                }
            }
        }
    }

    #[test]
    fn frames_are_drawn_over_each_other_and_the_cursor_comes_back() {
        let mut live = Live::new(Vec::new());
        live.draw(&["one".to_owned(), "two".to_owned()]).expect("a vector takes every write");
        live.print(&["stays".to_owned()]).expect("a vector takes every write");
        live.clear().expect("a vector takes every write");
        let text = String::from_utf8(live.out).expect("we write UTF-8");
        let frames: Vec<&str> = text.split("\u{1b}[?25l").skip(1).collect();
        assert_eq!(frames.len(), 3);
        assert!(frames.iter().all(|f| f.ends_with("\u{1b}[?25h")), "{text:?}");
        assert!(frames[1].starts_with("\r\u{1b}[2A\u{1b}[2Kstays\r\n\u{1b}[2Kone"), "{:?}", frames[1]);
        assert!(frames[2].starts_with("\r\u{1b}[2A\u{1b}[J"), "{:?}", frames[2]);
    }
}
