//! `everloop pane __turn`: one prompt and its end, as a plain process that a supervisor can run as
//! a job.
//!
//! 0 done · 3 timed out · 4 the program waits for input · 5 it is limited · 6 it has ended. stdout
//! has records in everloop's own format, the final screen among them.

use std::path::PathBuf;
use std::time::Duration;

use everloop_agents::tmux::{PaneNews, PaneTurn, PaneTurnEnd, State, TmuxServer};
use everloop_core::stream::{AgentEvent, VendorLimit};
use everloop_core::time::parse_duration;
use everloop_engine::error::{Code, Failure};

use super::list::describe;
use super::{VerbSession, failure, typing};
use crate::ui::Paint;
use crate::ui::text::{clean, clean_lines};

/// Waits until the program is idle, types the prompt, waits until it has worked.
#[derive(Debug, clap::Args)]
pub struct PaneTurnArgs {
    /// Name of the pane
    #[arg(long, value_name = "NAME")]
    pane: String,
    /// File with the prompt
    #[arg(long, value_name = "FILE")]
    prompt_file: PathBuf,
    /// Time limit of the whole turn
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = parse_duration)]
    timeout: Duration,
    /// The screen must not have changed for this long
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    quiet: Duration,
    /// A question of the program waits for a person for this long
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    answer_within: Duration,
    /// What happened to the pane before the turn, for the turn's output
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// A file that a Stop hook of the program makes; removed before the prompt is typed
    #[arg(long, value_name = "FILE")]
    stop_file: Option<PathBuf>,
}

pub fn turn(args: &PaneTurnArgs, server: &TmuxServer, session: &VerbSession) -> Result<Code, Failure> {
    if let Some(note) = &args.note {
        session.ui.warn(note);
    }
    let pane = server.pane(&args.pane).map_err(failure)?;
    let prompt = typing::read_text(&args.prompt_file)?;
    if prompt.as_str().trim().is_empty() {
        return Err(Failure::usage(format!("`{}` holds no prompt", args.prompt_file.display())));
    }
    if let Some(changes) = prompt.changes() {
        session.ui.warn(&changes);
    }
    let turn = PaneTurn {
        prompt,
        limit: args.timeout,
        quiet: args.quiet,
        stop_file: args.stop_file.clone(),
        answer_within: args.answer_within,
    };
    let mut closed = Ok(());
    let ended = server.turn(&pane, &turn, &mut |news| {
        let said = match news {
            PaneNews::Asks(question) => AgentEvent::Asking { what: clean(question) },
            PaneNews::Used(usage) => AgentEvent::Used(usage),
            PaneNews::GoesOn => AgentEvent::Text { text: "answered".to_owned() },
        };
        if closed.is_ok() {
            closed = session.ui.json(&said);
        }
    });
    closed?;
    let (screen, limit, failed) = match ended.map_err(failure)? {
        PaneTurnEnd::Done { screen } => (screen, None, None),
        PaneTurnEnd::Stuck { state, limit, screen } => (screen, limit, Some(stuck(&args.pane, &state))),
        PaneTurnEnd::TimedOut { state, screen, typed } => {
            let when = if typed { "after the prompt was typed" } else { "before the prompt could be typed" };
            let state = describe(&state, Paint::Off);
            let message = format!("timed out {when}: `{}` is {state}", args.pane);
            (screen, None, Some(Failure::new(Code::NotReached, message)))
        }
    };
    let text = clean_lines(screen.trim_end(), usize::MAX).join("\n");
    session.ui.json(&AgentEvent::Text { text })?;
    // After the text: text that follows a limit means that it is over.
    if let Some(limit) = limit {
        session.ui.json(&AgentEvent::Limit(VendorLimit { text: clean(&limit.text), ..limit }))?;
    }
    let Some(failed) = failed else {
        session.ui.json(&AgentEvent::Result { ok: true, text: last_line(&screen) })?;
        return Ok(Code::Ok);
    };
    Err(failed)
}

fn last_line(screen: &str) -> String {
    clean(screen.trim_end().lines().last().unwrap_or_default().trim())
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
    Failure::new(code, format!("`{name}` is {}", describe(state, Paint::Off))).hint(next)
}
