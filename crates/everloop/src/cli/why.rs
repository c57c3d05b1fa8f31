//! `everloop why`: explains the state of a loop, or of a session that everloop did not start.

use everloop_core::completion::Memory;
use everloop_core::immune::{Dimension, Subject, subjects};
use everloop_core::time::Time;
use everloop_core::why::why as explain;
use everloop_store::{Ledger, Tickets};
use serde_json::json;

pub mod sessions;

use super::Invocation;
use super::status::{freeze_of, supervisor_json};
use crate::completion;
use crate::error::{Code, Failure};
use crate::state_folder::node_id;
use crate::ui::quantities::{moment, relative};
use crate::ui::quarantine;
use crate::ui::text::clean;

const HELP: &str = "Examples:
  everloop why
  everloop why k3f9 --json
  everloop why 27832923-5f3c-4f0e-9a53-64f7a4f0f3a9    # a session of your own, by its CLI's id";

/// Names the rule that decided, its inputs, and when it will change.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct WhyArgs {
    /// Loop id or name, or the id of a session [default: the loop in this folder]
    id: Option<String>,
}

pub fn why(args: &WhyArgs, session: &mut Invocation) -> Result<Code, Failure> {
    let home = session.home()?;
    let Some(ledger) = session.reader(&home)? else { return Err(super::no_loops()) };
    let found = session.find_loop(&ledger, args.id.as_deref());
    if let (Err(_), Some(word)) = (&found, &args.id)
        && let Some((id, record)) = sessions::find(&ledger, word)?
    {
        return sessions::explain(&id, &record, session);
    }
    let (_, state) = found?;
    let (guards, supervisor) = (ledger.guards()?, home.owner());
    let mut tickets = ledger.tickets(Tickets::Open)?;
    tickets.retain(|t| t.owner.as_ref() == Some(&state.id));
    let look = session.ui.look(session.now());
    let paragraph = explain(&state, look.now, &|at| moment(at, look.now, &look.zone));

    let mut lines = Vec::new();
    if supervisor.is_none() && !state.is_over() {
        let nobody = "No supervisor is running, so nothing happens until one does: `everloop up` starts one.";
        lines.push(look.paint.warn(nobody));
    }
    lines.push(clean(&paragraph));
    let freeze = freeze_of(&state, &guards).filter(|_| !state.is_over());
    // A loop that waits for something else does not record yet that it is held as well.
    if let Some((scope, freeze)) = freeze.as_ref().filter(|_| !paragraph.contains("guard.freeze")) {
        let by = freeze.by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
        let said = format!("The guard holds {scope}{by} ({}): {}.", freeze.cause, freeze.audit.join("; "));
        lines.push(format!("{} `everloop guard release {scope} --reason TEXT` ends it.", clean(&said)));
    }
    let (_, immune) = crate::immune::read(&ledger)?;
    let candidates: Vec<_> = state.spec.agents().flat_map(|agent| subjects(&node_id(), agent, None)).collect();
    let concerned = |s: &Subject| s.dimension == Dimension::Kind || candidates.contains(s);
    if !state.is_over() {
        lines.extend(quarantine::lines(&immune, &look, concerned));
    }
    for ticket in &tickets {
        lines.push(format!("Ticket ({}): {}", relative(ticket.opened_at, look.now), clean(&ticket.text)));
    }
    let at_work = sessions::of(&ledger, &state, &look)?;
    lines.extend(at_work.iter().map(|(id, record)| sessions::line(id, record, &look)));
    let signs = completion::known(&ledger, &state.id)?;
    lines.extend(signs.iter().map(|(rule, sign)| sign_line(rule, sign, look.now)));
    let content = json!({
        "loop": state.id,
        "phase": state.phase,
        "why": paragraph,
        "freeze": freeze.map(|(scope, freeze)| json!({ "scope": scope, "freeze": freeze })),
        "quarantine": quarantine::as_json(&immune, look.now),
        "tickets": tickets,
        "sessions": at_work.iter().map(|(id, record)| json!({ "id": id, "session": record })).collect::<Vec<_>>(),
        "signs": signs.iter().map(|(rule, sign)| json!({ "rule": rule, "sign": sign })).collect::<Vec<_>>(),
        "supervisor": supervisor_json(supervisor.as_ref()),
    });
    session.ui.answer(&lines, &content)?;
    Ok(Code::Ok)
}

/// Describes a completion sign, and that it decides nothing.
pub fn sign_line(rule: &str, sign: &Memory, now: Time) -> String {
    let still = if sign.there { "" } else { ", and no longer does" };
    let said = format!("`{rule}` looked complete to {} {}{still}: {}", sign.by, relative(sign.at, now), sign.text);
    format!("Sign: {}. The checks decide.", clean(&said))
}
