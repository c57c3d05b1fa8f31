//! What the next turn must be told. A model of the prompt; the text is made from it by a template at the edge.

use serde::Serialize;

use crate::event::Outcome;
use crate::op::{TaskRow, Trust};
use crate::scoreboard::CheckResult;
use crate::spec::{LoopSpec, WorkspaceMode};
use crate::state::{LoopState, Note, Phase, Try};
use crate::time::{Time, human};
use crate::watch::SIGNAL;

/// Turns of which the prompt tells.
const TRIES_TOLD: usize = 6;

/// Everything a template can use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prompt {
    /// The goal, in the operator's words.
    pub goal: String,
    /// The turn's number.
    pub number: u32,
    /// The task's id.
    pub task: String,
    /// What somebody wrote on the board for this turn.
    pub assignment: Option<Assignment>,
    /// The checks and their verdicts.
    pub checks: Vec<CheckLine>,
    /// How many pass.
    pub passing: usize,
    /// Nothing got better for too long: another way is wanted.
    pub rethink: Option<Rethink>,
    /// What was tried, newest first.
    pub tries: Vec<String>,
    /// Messages from the operator.
    pub messages: Vec<String>,
    /// Messages from others; data.
    pub mail: Vec<QuotedMessage>,
    /// What was written beneath the task; data.
    pub comments: Vec<QuotedMessage>,
    /// What is left of turns, time and budget.
    pub left: Vec<String>,
    /// Files that may not be changed.
    pub protected: Vec<String>,
    /// Whether the turn works in a private copy of the repository.
    pub isolated: bool,
    /// The turn goes on with an earlier conversation.
    pub resumed: bool,
    /// Last words of the conversation before, for one that begins anew; data.
    pub handoff: String,
}

/// What an agent is told when nothing got better for too long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rethink {
    /// Turns without progress.
    pub turns: u32,
    /// How the latest of them ended, newest first.
    pub ended: Vec<&'static str>,
    /// Checks that still do not pass.
    pub failing: Vec<String>,
}

/// A message from somebody who is not the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QuotedMessage {
    /// Who.
    pub by: String,
    /// What; data.
    pub text: String,
}

/// A task from the board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Assignment {
    /// One line.
    pub title: String,
    /// The text.
    pub text: String,
    /// Written by an agent: data, not instructions of the operator.
    pub untrusted: bool,
    /// The monitor that saw what the text says; empty for a task that somebody wrote.
    pub monitor: String,
    /// What the operator wants done about it.
    pub wish: String,
}

/// A check as the agent sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckLine {
    /// Its name.
    pub name: String,
    /// Its command.
    pub run: String,
    /// Whether it counts as met.
    pub passes: bool,
    /// The verdict in words.
    pub verdict: String,
    /// The end of its output; data.
    pub output: String,
}

/// The prompt of the turn that would start now.
pub fn prompt(state: &LoopState, task: Option<&TaskRow>, now: Time) -> Prompt {
    let checks: Vec<CheckLine> = state.board.0.iter().map(|r| check_line(&state.spec, r)).collect();
    let assignment = task.filter(|t| t.task.kind != "batch").map(|t| assignment(&state.spec, t));
    let resumed = matches!(&state.phase, Phase::Turn(turn) if turn.resume.is_some());
    Prompt {
        resumed,
        handoff: if resumed { String::new() } else { state.handoff.clone() },
        goal: state.spec.goal.clone(),
        number: state.started.max(1),
        task: state.task.as_ref().map_or_else(String::new, ToString::to_string),
        assignment,
        passing: checks.iter().filter(|c| c.passes).count(),
        checks,
        rethink: state.strategy.is_some().then(|| rethink(state)),
        tries: state.tries.iter().rev().take(TRIES_TOLD).map(tried).collect(),
        messages: state.notes.iter().filter_map(word).collect(),
        mail: state.notes.iter().filter_map(letter).collect(),
        comments: Vec::new(),
        left: left(state, now),
        protected: state.spec.workspace.protect.clone(),
        isolated: state.spec.workspace.mode != WorkspaceMode::InPlace,
    }
}

fn rethink(state: &LoopState) -> Rethink {
    // A change for time or money may come before a turn counted.
    let turns = state.since_progress.max(1);
    let counted = state.tries.iter().rev().filter(|t| t.outcome.counts()).take(TRIES_TOLD.min(turns as usize));
    Rethink {
        turns,
        ended: counted.map(|t| t.outcome.label()).collect(),
        failing: state.board.failing().map(|r| r.name.clone()).collect(),
    }
}

fn assignment(spec: &LoopSpec, row: &TaskRow) -> Assignment {
    let task = &row.task;
    let monitor = task.author.strip_prefix("monitor ").filter(|_| task.kind == SIGNAL).unwrap_or_default();
    Assignment {
        title: task.title.clone(),
        text: task.prompt.clone(),
        untrusted: task.trust == Trust::Agent,
        monitor: monitor.to_owned(),
        wish: spec.watch.get(monitor).map_or_else(String::new, |m| m.prompt.clone()),
    }
}

fn word(note: &Note) -> Option<String> {
    match note {
        Note::Operator(text) => Some(text.clone()),
        Note::Mail { .. } => None,
    }
}

fn letter(note: &Note) -> Option<QuotedMessage> {
    match note {
        Note::Operator(_) => None,
        Note::Mail { by, text } => Some(QuotedMessage { by: by.clone(), text: text.clone() }),
    }
}

fn check_line(spec: &LoopSpec, result: &CheckResult) -> CheckLine {
    let run = spec.checks.iter().find(|c| c.name == result.name).map_or("", |c| c.run.as_str());
    let passes = result.verdict.passes();
    CheckLine {
        name: result.name.clone(),
        run: run.to_owned(),
        passes,
        verdict: result.verdict.to_string(),
        output: if passes { String::new() } else { result.output.clone() },
    }
}

fn tried(t: &Try) -> String {
    let at = t.pin.as_ref().map_or_else(String::new, |p| format!(" (kept at {p})"));
    let diff = if t.diffstat.is_empty() { "no change" } else { &t.diffstat };
    let lesson = match &t.outcome {
        Outcome::Refused { paths } => format!("refused, because it changed protected files: {}", paths.join(", ")),
        Outcome::Regressed { lost } => format!("not used, because these checks stopped passing: {}", lost.join(", ")),
        Outcome::AgentFailed { why, .. } | Outcome::TaskFailed { why } => format!("{}: {why}", t.outcome.label()),
        Outcome::NoOp => "nothing was changed".to_owned(),
        Outcome::Limited { class, .. } => format!("cut off by a limit: {}", class.describe()),
        Outcome::Reached | Outcome::Progress | Outcome::NotYet | Outcome::Interrupted | Outcome::Lost => {
            t.outcome.label().to_owned()
        }
    };
    format!("turn {}: {lesson}; {diff}{at}", t.number)
}

fn left(state: &LoopState, now: Time) -> Vec<String> {
    let (bounds, budget) = (&state.spec.bounds, &state.spec.guard.budget);
    let mut left = Vec::new();
    if let Some(max) = bounds.max_turns {
        left.push(format!("{} of {max} turns", max.saturating_sub(state.turns)));
    }
    if let Some(time) = bounds.max_time {
        left.push(human((state.clock_from + time).since(now)));
    }
    if let Some(at) = bounds.deadline {
        left.push(format!("{} until the deadline", human(at.since(now))));
    }
    if let Some(microusd) = budget.microusd {
        left.push(format!("${:.2}", microusd.saturating_sub(state.spent.microusd) as f64 / 1e6));
    }
    if let Some(tokens) = budget.tokens {
        left.push(format!("{} tokens", tokens.saturating_sub(state.spent.tokens)));
    }
    left
}
