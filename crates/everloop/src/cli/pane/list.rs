//! `everloop pane list`: all panes and what their programs are doing.

use everloop_agents::tmux::{Pane, PaneOrigin, State};
use everloop_engine::error::{Code, Failure};
use everloop_engine::quantities::tokens;
use everloop_engine::services::pane::{Panes, SeenPane};
use serde_json::json;

use super::{VerbSession, view};
use crate::ui::Paint;
use crate::ui::table::Table;
use crate::ui::text::clean;

pub fn list(panes: &Panes, session: &VerbSession) -> Result<Code, Failure> {
    let mut table = Table::new(&["NAME", "KIND", "STATE", "TOKENS", "PID", "COMMAND"]);
    let mut all = Vec::new();
    for SeenPane { pane, state, used } in panes.list()? {
        table.row([
            pane.name.to_string(),
            pane.kind.label().to_owned(),
            describe(&state, session.ui.paint()),
            used.map_or_else(String::new, |used| tokens(used.tokens())),
            pane.process.pid.to_string(),
            clean(&command(&pane)),
        ]);
        let mut one = view(&pane)["pane"].take();
        one["state"] = json!(state.label());
        one["detail"] = json!(state);
        one["used"] = json!(used);
        all.push(one);
    }
    let none = vec!["no panes; start one: everloop pane start NAME -- COMMAND".to_owned()];
    let lines = if all.is_empty() { none } else { table.lines(session.ui.width()) };
    session.ui.answer(&lines, &json!({ "panes": all }))?;
    Ok(Code::Ok)
}

fn command(pane: &Pane) -> String {
    match &pane.origin {
        PaneOrigin::Started(program) => program.argv.join(" "),
        PaneOrigin::Adopted { .. } => format!("adopted {}", pane.id()),
    }
}

/// Describes a state; text from the program is not trusted.
pub fn describe(state: &State, paint: Paint) -> String {
    match state {
        State::Idle => paint.good("idle"),
        State::Working => "working".to_owned(),
        State::Limited { until: Some(until), .. } => paint.warn(&format!("limited until {}", clean(until))),
        State::Limited { until: None, .. } => paint.warn("limited"),
        State::Asking { question } => paint.warn(&format!("waiting for an answer: {}", clean(question))),
        State::Dead { status: Some(status) } => paint.bad(&format!("dead, status {status}")),
        State::Dead { status: None } => paint.bad("dead"),
        State::Unknown => "unknown".to_owned(),
    }
}
