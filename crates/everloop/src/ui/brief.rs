//! The journal with one line per turn: the results of a turn's steps are gathered and printed at its
//! end; bookkeeping is left out. `--verbose` prints every event instead.

use std::collections::{BTreeMap, BTreeSet};

use everloop_core::event::{Event, Exit, Outcome};
use everloop_core::ids::{LoopId, TurnId};
use everloop_core::immune::ImmuneStep;
use everloop_core::journal::JournalRecord;
use everloop_core::research::state::ExperimentStep;
use everloop_core::time::human;
use jiff::tz::TimeZone;

use super::events::{event_line, exited, judged, shortened};

/// Last lines of an agent that failed.
const TAIL_LINES: usize = 5;

/// Turns that are remembered; a record of more is one of turns that never ended.
const MAX_TURNS: usize = 64;

/// Which events are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogDetail {
    /// One line per turn.
    Brief,
    /// Every event as a line of its own.
    Full,
}

impl LogDetail {
    /// The choice by the flag `--verbose`.
    pub fn of(verbose: bool) -> Self {
        if verbose { Self::Full } else { Self::Brief }
    }
}

/// Turns records into lines.
#[derive(Debug)]
pub struct EventLines {
    detail: LogDetail,
    zone: TimeZone,
    turns: BTreeMap<TurnId, TurnSteps>,
    /// Loops whose experiment was decided: its line stands for the end of the turn, which follows.
    decided: BTreeSet<Option<LoopId>>,
}

/// Results of the steps of a turn.
#[derive(Debug, Default)]
struct TurnSteps {
    parts: Vec<String>,
    tail: String,
}

impl EventLines {
    pub fn new(detail: LogDetail) -> Self {
        Self { detail, zone: TimeZone::system(), turns: BTreeMap::new(), decided: BTreeSet::new() }
    }

    /// The lines of a record; none if it belongs to a line that comes later, or to none.
    pub fn of(&mut self, record: &JournalRecord) -> Vec<String> {
        let line = event_line(record, &self.zone);
        if self.detail == LogDetail::Full {
            return vec![line];
        }
        match &record.event {
            Event::Immune { step } if is_bookkeeping(step) => Vec::new(),
            // The wait that follows names a delay.
            Event::Attached { .. } | Event::Backoff { .. } => Vec::new(),
            Event::Experiment { step } if matches!(**step, ExperimentStep::Measured { .. }) => Vec::new(),
            Event::Experiment { step } if let ExperimentStep::Decided { row } = &**step => {
                self.decided.insert(record.owner.clone());
                let steps = self.turns.iter().rev().find(|(turn, _)| *turn.task() == row.task).map(|(_, steps)| steps);
                vec![steps.map_or(line.clone(), |steps| with_parts(line, &steps.parts))]
            }
            Event::TurnExited { turn, exit } => {
                self.steps(turn).take_exit(exit);
                Vec::new()
            }
            Event::TurnJudged { turn, judgement } => {
                let part = shortened(&judged(judgement));
                self.steps(turn).parts.push(part);
                Vec::new()
            }
            Event::TurnEnded { turn, outcome, .. } => {
                let steps = self.turns.remove(turn).unwrap_or_default();
                if self.decided.remove(&record.owner) { Vec::new() } else { steps.lines(line, outcome) }
            }
            _ => vec![line],
        }
    }

    fn steps(&mut self, turn: &TurnId) -> &mut TurnSteps {
        if self.turns.len() >= MAX_TURNS {
            self.turns.clear();
        }
        self.turns.entry(turn.clone()).or_default()
    }
}

/// Whether a step only counts what happened; the others change which work is given to what.
fn is_bookkeeping(step: &ImmuneStep) -> bool {
    matches!(step, ImmuneStep::Seen { .. } | ImmuneStep::Charged { .. } | ImmuneStep::Corrected { .. })
}

fn with_parts(line: String, parts: &[String]) -> String {
    if parts.is_empty() { line } else { format!("{line} ({})", parts.join("; ")) }
}

impl TurnSteps {
    fn take_exit(&mut self, exit: &Exit) {
        let took = human(exit.ended_at.since(exit.started_at));
        self.parts.push(if exit.ok() && exit.leftovers == 0 { took } else { shortened(&exited(exit)) });
        self.tail.clone_from(&exit.tail);
    }

    fn lines(self, line: String, outcome: &Outcome) -> Vec<String> {
        // A refusal and a regression name their files and checks themselves.
        let says_enough = matches!(outcome, Outcome::Refused { .. } | Outcome::Regressed { .. });
        let parts = if says_enough { &self.parts[..self.parts.len().min(1)] } else { &self.parts[..] };
        let mut lines = vec![with_parts(line, parts)];
        if matches!(outcome, Outcome::AgentFailed { .. } | Outcome::TaskFailed { .. }) {
            let lines_left: Vec<&str> = self.tail.lines().filter(|line| !line.trim().is_empty()).collect();
            let last = &lines_left[lines_left.len().saturating_sub(TAIL_LINES)..];
            lines.extend(last.iter().map(|line| format!("    | {}", shortened(line))));
        }
        lines
    }
}
