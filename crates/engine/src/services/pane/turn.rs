//! One prompt in a pane and its end, as records in everloop's own format.

use std::path::PathBuf;
use std::time::Duration;

use everloop_agents::tmux::{PaneNews, PaneTurn, PaneTurnEnd, State};
use everloop_core::stream::{AgentEvent, VendorLimit};

use super::{Panes, failure, read_text};
use crate::error::{Code, Failure};
use crate::text::{clean, clean_lines};

/// Type a prompt when the program is idle, and wait until it has worked.
#[derive(Clone, Debug)]
pub struct PaneTurnRequest {
    /// Name of the pane.
    pub pane: String,
    pub prompt_file: PathBuf,
    /// Time limit of the whole turn.
    pub limit: Duration,
    /// The screen must not have changed for this long.
    pub quiet: Duration,
    /// A file that a hook of the program makes at the end of a turn.
    pub stop_file: Option<PathBuf>,
    /// How long a question of the program may wait for a person.
    pub answer_within: Duration,
}

/// What a turn hands out while it runs.
#[derive(Clone, Debug)]
pub enum PaneTurnNews {
    Warning(String),
    /// For the output of the turn.
    Record(AgentEvent),
}

impl Panes {
    /// Takes a turn; the final screen is among the records. A turn that does not end well is a
    /// failure, whose code tells the supervisor why.
    pub fn turn(
        &self,
        request: PaneTurnRequest,
        news: &mut dyn FnMut(PaneTurnNews) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let pane = self.pane(&request.pane)?;
        let prompt = read_text(&request.prompt_file)?;
        if prompt.as_str().trim().is_empty() {
            return Err(Failure::usage(format!("`{}` holds no prompt", request.prompt_file.display())));
        }
        if let Some(changes) = prompt.changes() {
            news(PaneTurnNews::Warning(changes))?;
        }
        let PaneTurnRequest { pane: name, limit, quiet, stop_file, answer_within, .. } = request;
        let turn = PaneTurn { prompt, limit, quiet, stop_file, answer_within };
        let mut closed = Ok(());
        let ended = self.server.turn(&pane, &turn, &mut |seen| {
            if closed.is_ok() {
                closed = news(PaneTurnNews::Record(record(seen)));
            }
        });
        closed?;
        let (screen, limit, failed) = match ended.map_err(failure)? {
            PaneTurnEnd::Done { screen } => (screen, None, None),
            PaneTurnEnd::Stuck { state, limit, screen } => (screen, limit, Some(stuck(&name, &state))),
            PaneTurnEnd::TimedOut { state, screen, typed } => {
                let when = if typed { "after the prompt was typed" } else { "before the prompt could be typed" };
                let message = format!("timed out {when}: `{name}` is {}", describe(&state));
                (screen, None, Some(Failure::new(Code::NotReached, message)))
            }
        };
        let text = clean_lines(screen.trim_end(), usize::MAX).join("\n");
        news(PaneTurnNews::Record(AgentEvent::Text { text }))?;
        // After the text: text that follows a limit means that it is over.
        if let Some(limit) = limit {
            let limit = VendorLimit { text: clean(&limit.text), ..limit };
            news(PaneTurnNews::Record(AgentEvent::Limit(limit)))?;
        }
        match failed {
            Some(failed) => Err(failed),
            None => news(PaneTurnNews::Record(AgentEvent::Result { ok: true, text: last_line(&screen) })),
        }
    }
}

fn record(news: PaneNews<'_>) -> AgentEvent {
    match news {
        PaneNews::Asks(question) => AgentEvent::Asking { what: clean(question) },
        PaneNews::Used(usage) => AgentEvent::Used(usage),
        PaneNews::GoesOn => AgentEvent::Text { text: "answered".to_owned() },
    }
}

fn last_line(screen: &str) -> String {
    clean(screen.trim_end().lines().last().unwrap_or_default().trim())
}

/// A state in words; text from the program is not trusted.
fn describe(state: &State) -> String {
    match state {
        State::Unknown => state.label().to_owned(),
        State::Idle | State::Working | State::Limited { .. } | State::Asking { .. } | State::Dead { .. } => {
            clean(&state.describe())
        }
    }
}

fn stuck(name: &str, state: &State) -> Failure {
    let code = match state {
        State::Limited { .. } => Code::Held,
        State::Asking { .. } => Code::NeedsPerson,
        State::Dead { .. } => Code::Away,
        State::Idle | State::Working | State::Unknown => Code::Failed,
    };
    let next = match state {
        State::Asking { .. } => format!("everloop pane attach {name}"),
        State::Dead { .. } => format!("everloop pane respawn {name}"),
        State::Idle | State::Working | State::Limited { .. } | State::Unknown => format!("everloop pane read {name}"),
    };
    Failure::new(code, format!("`{name}` is {}", describe(state))).hint(next)
}
