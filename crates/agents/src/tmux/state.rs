//! The meaning of a screen. Only the parts that the program itself draws are trusted: the title,
//! the input box and what is below it, dialogs, and marks at the edge that no model output can
//! carry. Text of the session is not.

use serde::Serialize;

use super::pane::PaneProgram;
use super::session::{PaneSession, Status};

mod claude;
mod codex;

/// What the program in a pane is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum State {
    /// It waits for a prompt.
    Idle,
    /// It works, runs a tool, or retries.
    Working,
    /// Its vendor refuses requests for now.
    Limited {
        /// When it continues, in the program's words.
        until: Option<String>,
        /// The program's sentence about it.
        said: String,
    },
    /// It waits for an answer that is not a prompt: a permission, a choice.
    Asking {
        /// The question in the program's words.
        question: String,
    },
    /// It has ended.
    Dead {
        /// The exit status as a shell counts it, if known.
        status: Option<i32>,
    },
    /// None of these can be recognised.
    Unknown,
}

impl State {
    pub fn label(&self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Working => "working",
            State::Limited { .. } => "limited",
            State::Asking { .. } => "asking",
            State::Dead { .. } => "dead",
            State::Unknown => "unknown",
        }
    }

    /// Clause after "it is" for messages. Words of the program are in it, uncleaned.
    pub fn describe(&self) -> String {
        match self {
            State::Idle | State::Working => self.label().to_owned(),
            State::Limited { until: Some(until), .. } => format!("limited until {until}"),
            State::Limited { until: None, .. } => "limited".to_owned(),
            State::Asking { question } => format!("waiting for an answer: {question}"),
            State::Dead { status: Some(status) } => format!("dead, status {status}"),
            State::Dead { status: None } => "dead".to_owned(),
            State::Unknown => "showing a screen that everloop does not know".to_owned(),
        }
    }
}

/// The visible state of a pane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaneView {
    /// The title that the program set.
    pub title: String,
    /// The visible screen, text only.
    pub screen: String,
    /// Claude Code's own record.
    pub session: Option<PaneSession>,
    /// The sentence about a limit that is over; the screen may still show it.
    pub past_limit: Option<String>,
}

impl PaneView {
    /// A limit on the screen, unless it is over.
    fn limited(&self, limit: Limit) -> Option<State> {
        let Limit { until, said } = limit;
        (self.past_limit.as_ref() != Some(&said)).then_some(State::Limited { until, said })
    }
}

/// The state of a program that is alive. For a plain program the screen has no meaning.
pub fn detect(kind: PaneProgram, sight: &PaneView) -> State {
    let lines: Vec<&str> = sight.screen.trim_end().lines().collect();
    match kind {
        PaneProgram::Claude => believe(claude::detect(&lines, sight), sight.session.as_ref()),
        PaneProgram::Codex => codex::detect(&lines, sight),
        PaneProgram::Plain => State::Unknown,
    }
}

/// The first words in the input box; `None` when no box is visible.
pub fn composer(kind: PaneProgram, screen: &str) -> Option<String> {
    let lines: Vec<&str> = screen.trim_end().lines().collect();
    match kind {
        PaneProgram::Claude => claude::composer(&lines),
        PaneProgram::Codex => codex::composer(&lines),
        PaneProgram::Plain => None,
    }
}

/// Whether the input line holds the beginning of this text, also where the text looks like a menu.
pub(super) fn holds(kind: PaneProgram, screen: &str, text: &str) -> bool {
    let lines: Vec<&str> = screen.trim_end().lines().collect();
    let input = match kind {
        PaneProgram::Claude => claude::composer(&lines),
        PaneProgram::Codex => codex::input_line(&lines),
        PaneProgram::Plain => None,
    };
    input.is_some_and(|input| is_beginning(&input, text))
}

/// Whether the input box contains this text; long ones are shown as `[Pasted text #1 +40 lines]`.
pub(super) fn is_beginning(composer: &str, text: &str) -> bool {
    let first = text.trim_start().lines().next().unwrap_or_default().trim();
    if composer.is_empty() {
        return false;
    }
    composer.starts_with("[Pasted") || first.starts_with(composer) || (!first.is_empty() && composer.starts_with(first))
}

/// Joins screen and record. The record knows no limits, and either may be a moment late; so both
/// must be idle.
fn believe(screen: State, session: Option<&PaneSession>) -> State {
    match (screen, session.map(|s| &s.status)) {
        (screen @ (State::Limited { .. } | State::Asking { .. } | State::Dead { .. }), _) => screen,
        (_, Some(Status::Waiting { reason })) => State::Asking { question: reason.clone() },
        (_, Some(Status::Busy)) | (State::Working, _) => State::Working,
        (screen @ (State::Idle | State::Unknown), _) => screen,
    }
}

/// A vendor's limit as a screen shows it.
struct Limit {
    until: Option<String>,
    said: String,
}

/// Spinners of both programs: circles that are being filled, and Braille dots.
fn is_spinner(c: char) -> bool {
    matches!(c, '◐' | '◑' | '◒' | '◓' | '\u{2801}'..='\u{28ff}')
}

/// The text after `mark`, up to the next separator.
fn after<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    let tail = &text[text.find(mark)? + mark.len()..];
    Some(tail.split('·').next().unwrap_or(tail).trim())
}

/// The question of a dialog: its last line that ends like one, else its first words.
fn question(dialog: &[&str]) -> String {
    let lines: Vec<&str> = dialog.iter().map(|l| l.trim()).filter(|l| !l.is_empty()).collect();
    let asked = lines.iter().rev().find(|l| l.ends_with('?')).or(lines.first());
    asked.map_or_else(String::new, |l| (*l).to_owned())
}
