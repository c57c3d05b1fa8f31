//! `everloop why`: explains the state of a loop, or of a session that everloop did not start.

use everloop_core::completion::Memory;
use everloop_core::immune::{Dimension, Subject, subjects};
use everloop_core::time::Time;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::why::{LoopWhy, WhyAnswer, why as explain};
use everloop_engine::state_folder::node_id;

use super::VerbSession;
use crate::ui::quantities::{moment, relative};
use crate::ui::status::StatusStyle;
use crate::ui::text::clean;
use crate::ui::{answers, mesh, persona, quarantine, sessions};

const HELP: &str = "Examples:
  everloop why
  everloop why k3f9 --json                             # also a loop of the mesh, on any of its nodes
  everloop why 27832923-5f3c-4f0e-9a53-64f7a4f0f3a9    # a session of your own, by its CLI's id";

/// Names the rule that decided, its inputs, and when it will change.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct WhyArgs {
    /// Loop id or name, the id of a loop of the mesh or of a session [default: the loop in this folder]
    id: Option<String>,
}

pub fn why(args: &WhyArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let found = explain(session, args.id.as_deref())?;
    let look = session.ui.look(session.now());
    let lines = match &found {
        WhyAnswer::Loop(found) => lines(found, &look),
        WhyAnswer::Session { id, record } => sessions::lines(id, record, &look),
        WhyAnswer::Mesh(found) => mesh::why(&found.detail, &found.view, &look),
    };
    session.ui.answer(&lines, &answers::why(&found, &look))?;
    Ok(Code::Ok)
}

fn lines(found: &LoopWhy, look: &StatusStyle) -> Vec<String> {
    let (state, paragraph) = (&found.state, answers::paragraph(found, look));
    let mut lines = Vec::new();
    if found.supervisor.is_none() && !state.is_over() {
        let nobody = "No supervisor is running, so nothing happens until one does: `everloop up` starts one.";
        lines.push(look.paint.warn(nobody));
    }
    lines.push(clean(&paragraph));
    if let Some(next) = &found.next_look {
        lines.push(format!("Next look {}:", moment(next.at.max(look.now), look.now, &look.zone)));
        lines.extend(persona::factors(next, look).into_iter().map(|factor| format!("  {factor}")));
    }
    // A loop that waits for something else does not record yet that it is held as well.
    if let Some((scope, freeze)) = found.freeze.as_ref().filter(|_| !paragraph.contains("guard.freeze")) {
        let by = freeze.by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
        let held = format!("The guard holds {scope}{by} ({}): {}.", freeze.cause, freeze.audit.join("; "));
        lines.push(format!("{} `everloop guard release {scope} --reason TEXT` ends it.", clean(&held)));
    }
    let candidates: Vec<_> = state.spec.agents().flat_map(|agent| subjects(&node_id(), agent, None)).collect();
    let concerned = |s: &Subject| s.dimension == Dimension::Kind || candidates.contains(s);
    if !state.is_over() {
        lines.extend(quarantine::lines(&found.immune, look, concerned));
    }
    if !state.is_over() {
        lines.push(format!("Isolation: {}.", crate::ui::isolation::line(&state.spec)));
    }
    for ticket in &found.tickets {
        lines.push(format!("Ticket ({}): {}", relative(ticket.opened_at, look.now), clean(&ticket.text)));
    }
    lines.extend(found.sessions.iter().map(|(id, record)| sessions::line(id, record, look)));
    lines.extend(found.signs.iter().map(|(rule, sign)| sign_line(rule, sign, look.now)));
    lines
}

/// Describes a completion sign, and that it decides nothing.
pub fn sign_line(rule: &str, sign: &Memory, now: Time) -> String {
    let still = if sign.there { "" } else { ", and no longer does" };
    let said = format!("`{rule}` looked complete to {} {}{still}: {}", sign.by, relative(sign.at, now), sign.text);
    format!("Sign: {}. The checks decide.", clean(&said))
}
