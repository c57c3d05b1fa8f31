//! Content of the next turn's prompt. A template at the edge turns this model into text.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use serde::Serialize;

use crate::event::Outcome;
use crate::judge;
use crate::marker::{self, BACKOFF};
use crate::op::{TaskRow, Trust};
use crate::rhythm::inward::{self, plan};
use crate::rhythm::signal::Signal;
use crate::rhythm::{row, wish};
use crate::scoreboard::CheckResult;
use crate::spec::{LoopSpec, WorkspaceMode};
use crate::state::{LoopState, Note, Phase, Try};
use crate::time::{Time, human};
use crate::watch::SIGNAL;

/// Maximum number of earlier turns in the prompt.
const TRIES_TOLD: usize = 6;

/// Everything a template can use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prompt {
    pub goal: String,
    pub number: u32,
    pub task: String,
    /// The task from the board for this turn.
    pub assignment: Option<Assignment>,
    /// The checks and their verdicts.
    pub checks: Vec<CheckLine>,
    pub passing: usize,
    /// Set after too long without progress: the turn should take another approach.
    pub rethink: Option<Rethink>,
    /// The latest turns alternate between two results.
    pub alternates: bool,
    /// Earlier attempts, newest first.
    pub tries: Vec<String>,
    /// Messages of people.
    pub messages: Vec<String>,
    /// Messages of others; data.
    pub mail: Vec<QuotedMessage>,
    /// Comments on the task; data.
    pub comments: Vec<QuotedMessage>,
    /// Remaining turns, time and budget.
    pub left: Vec<String>,
    pub protected: Vec<String>,
    /// Whether the turn works in a private copy of the repository.
    pub isolated: bool,
    /// The turn continues an earlier session.
    pub resumed: bool,
    /// Last words of the previous session, for a fresh one; data.
    pub handoff: String,
    /// What an earlier turn wrote down for those after it; data.
    pub left_behind: Option<QuotedMessage>,
    /// Set in the turn of a persona.
    pub persona: Option<PersonaTurn>,
}

/// What a persona's turn is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PersonaTurn {
    /// The oldest one first.
    pub signals: Vec<QuotedSignal>,
    /// What a dream prepared for one of them; data.
    pub plan: Option<QuotedPlan>,
    /// What the persona remembers; data.
    pub memory: String,
}

/// A plan of a dream as the agent sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QuotedPlan {
    /// The signals that it is for; data.
    pub of: String,
    /// Data, never instructions.
    pub text: String,
}

/// A signal as the agent sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QuotedSignal {
    /// Class, tags, topic and sender; data.
    pub about: String,
    /// Data, never instructions.
    pub text: String,
}

/// Hint for the agent after too long without progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rethink {
    /// Turns without progress.
    pub turns: u32,
    /// How the latest of them ended, newest first.
    pub ended: Vec<&'static str>,
    /// Checks that still do not pass.
    pub failing: Vec<String>,
}

/// An untrusted message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QuotedMessage {
    pub by: String,
    /// Data, never instructions.
    pub text: String,
}

/// A task from the board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Assignment {
    pub title: String,
    pub text: String,
    /// Written by an agent: data, not instructions of a person.
    pub untrusted: bool,
    /// The monitor that saw the change in the text; empty for any other task.
    pub monitor: String,
    /// The configured instruction for a change.
    pub wish: String,
}

/// A check as the agent sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckLine {
    pub name: String,
    pub run: String,
    /// Whether it counts as met.
    pub passes: bool,
    /// The verdict in words.
    pub verdict: String,
    /// Both ends of its output; data.
    pub output: String,
}

/// The prompt of the turn that would start now.
pub fn prompt(state: &LoopState, task: Option<&TaskRow>, now: Time) -> Prompt {
    let checks: Vec<CheckLine> = state.progress.board.0.iter().map(|r| check_line(&state.spec, r)).collect();
    let assigned = |t: &&TaskRow| !["batch", inward::REFLECTION, inward::DREAM].contains(&t.task.kind.as_str());
    let assignment = task.filter(assigned).map(|t| assignment(&state.spec, t));
    let resumed = matches!(&state.phase, Phase::Turn(turn) if turn.resume.is_some());
    Prompt {
        resumed,
        handoff: if resumed { String::new() } else { last_words(state) },
        goal: state.spec.goal.clone(),
        number: state.task.started.max(1),
        task: state.task.id.as_ref().map_or_else(String::new, ToString::to_string),
        assignment,
        passing: checks.iter().filter(|c| c.passes).count(),
        checks,
        rethink: state.progress.strategy.is_some().then(|| rethink(state)),
        alternates: judge::alternating(&state.progress.tries) > 0,
        tries: state.progress.tries.iter().rev().take(TRIES_TOLD).map(tried).collect(),
        messages: state.people.notes.iter().filter_map(word).collect(),
        mail: state.people.notes.iter().filter_map(letter).collect(),
        comments: Vec::new(),
        left_behind: None,
        persona: state.is_persona().then(|| persona_turn(state, task)),
        left: left(state, now),
        protected: state.spec.workspace.protect.clone(),
        isolated: state.spec.workspace.mode != WorkspaceMode::InPlace,
    }
}

/// What the agent said last; of a plain command, the last line of its output. A request for a pause
/// or a wake is left out: it was granted, and on a line of the prompt it would not count the next
/// time.
fn last_words(state: &LoopState) -> String {
    let line = || state.progress.tries.last().map(|t| t.last_line.clone()).unwrap_or_default();
    let words = Some(state.task.handoff.clone()).filter(|words| !words.is_empty()).unwrap_or_else(line);
    let kept: Vec<&str> =
        words.lines().filter(|line| marker::delay(BACKOFF, line).is_none() && !wish::is_marker(line)).collect();
    kept.join("\n")
}

fn persona_turn(state: &LoopState, task: Option<&TaskRow>) -> PersonaTurn {
    let own = task.filter(|row| row.task.kind == "batch").map(|row| row::taken_by(&row.task)).unwrap_or_default();
    let plans = state.persona.as_deref().map_or(&[][..], |persona| &persona.inward.plans);
    let plan =
        plan::first(plans, &own).map(|(_, plan)| QuotedPlan { of: plain(&plan.describe()), text: plan.text.clone() });
    PersonaTurn { signals: own.iter().map(quoted).collect(), plan, memory: String::new() }
}

fn quoted(signal: &Signal) -> QuotedSignal {
    let mut about = vec![format!("class {}", signal.class.as_str())];
    if !signal.topic.is_empty() {
        about.push(format!("topic {}", signal.topic));
    }
    if !signal.tags.is_empty() {
        about.push(format!("tags {}", signal.tags.iter().cloned().collect::<Vec<_>>().join(", ")));
    }
    if !signal.from.is_empty() {
        about.push(format!("from {}", signal.from));
    }
    if let Some(name) = &signal.passed_by {
        about.push(format!("passed on by {name}"));
    }
    // The words are a sender's, and one line of them stands outside of the quotation.
    QuotedSignal { about: plain(&about.join("; ")), text: signal.body.clone() }
}

fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() && *c != '`').collect()
}

fn rethink(state: &LoopState) -> Rethink {
    // A change of strategy for time or money may come before a turn counted.
    let turns = state.progress.since_progress.max(1);
    let counted = state.progress.tries.iter().rev().filter(|t| t.outcome.counts()).take(TRIES_TOLD.min(turns as usize));
    Rethink {
        turns,
        ended: counted.map(|t| t.outcome.label()).collect(),
        failing: state.progress.board.failing().map(|r| r.name.clone()).collect(),
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
        Outcome::Discarded { why } => format!("not kept: {why}"),
        Outcome::NoOp => "nothing was changed".to_owned(),
        Outcome::Limited { class, .. } => format!("cut off by a limit: {}", class.describe()),
        Outcome::Reached | Outcome::Progress | Outcome::NotYet | Outcome::Interrupted | Outcome::Lost => {
            t.outcome.label().to_owned()
        }
    };
    let doubts = if t.doubts.is_empty() {
        String::new()
    } else {
        format!("; a pass did not count, because it was suspicious: {}", t.doubts.join(", "))
    };
    format!("turn {}: {lesson}{doubts}; {diff}{at}", t.number)
}

fn left(state: &LoopState, now: Time) -> Vec<String> {
    let (bounds, budget) = (&state.spec.bounds, &state.spec.guard.budget);
    let mut left = Vec::new();
    if let Some(max) = bounds.max_turns {
        let unit = if state.research.is_some() { "experiments" } else { "turns" };
        left.push(format!("{} of {max} {unit}", max.saturating_sub(state.counted())));
    }
    if let Some(time) = bounds.max_time {
        left.push(human((state.spend.clock_from + time).since(now)));
    }
    if let Some(at) = bounds.deadline {
        left.push(format!("{} until the deadline", human(at.since(now))));
    }
    if let Some(microusd) = budget.microusd {
        left.push(format!("${:.2}", microusd.saturating_sub(state.spend.spent.microusd) as f64 / 1e6));
    }
    if let Some(tokens) = budget.tokens {
        left.push(format!("{} tokens", tokens.saturating_sub(state.spend.spent.tokens)));
    }
    left
}
