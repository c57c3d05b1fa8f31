//! `everloop mesh`: several nodes that work on the same loops. Here: these loops; `nodes`: the
//! machines; `join`, `leave`: this one; `trust`: keys; `hub`: the database that they share.

use everloop_core::op::{TaskRow, TaskState};
use everloop_core::research::row::short;
use everloop_core::why;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::mesh::loops::{self, checks, label};
use everloop_engine::services::mesh::{MeshDetail, MeshView};
use serde_json::json;

use super::VerbSession;
use crate::ui::quantities::{self, Accuracy};
use crate::ui::table::Table;
use crate::ui::text::clean;
use crate::ui::{mesh as mesh_view, quarantine};

mod hub;
mod join;
mod leave;
mod nodes;
mod trust;

const HELP: &str = "Examples:
  EVERLOOP_HUB_URL='postgres://node:…@db.example.com/loops?sslmode=verify-full' everloop mesh join && everloop up
  everloop run \"GOAL\" --check 'CMD' --agent claude --mesh
  everloop mesh show k3f9

A loop of the mesh is created with `everloop run … --mesh`; nodes (`everloop up`) work on it.";

/// Joins machines into a mesh; lists, shows and stops the loops that they work on.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct MeshArgs {
    /// What to do with the mesh
    #[command(subcommand)]
    what: What,
}

/// Subcommands of `mesh`.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// List all loops
    List,
    /// Show one: its checks, its tasks and their holders, and what landed
    Show {
        /// Id of the loop
        id: String,
    },
    /// End one; tasks under way are stopped, and what landed stays
    Stop {
        /// Id of the loop
        id: String,
    },
    /// List the nodes: the leader, the tasks of each, and its last heartbeat
    Nodes,
    /// Let a node finish its tasks and take no more
    Drain(nodes::DrainArgs),
    /// Remove a node that is gone for good; one that comes back takes nothing
    Remove(nodes::RemoveArgs),
    /// Make this machine a node of a mesh
    Join(join::JoinArgs),
    /// Remove this node from its mesh
    Leave(leave::LeaveArgs),
    /// List the keys of the mesh, and trust them or not
    Trust(trust::TrustArgs),
    /// Show what nodes would run of a loop, and sign it as it stands in the hub
    Sign(trust::SignArgs),
    /// Create, check or migrate the hub of a mesh, in PostgreSQL
    Hub(hub::HubArgs),
}

pub fn mesh(args: &MeshArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    match &args.what {
        What::List => list(session),
        What::Show { id } => show(id, session),
        What::Stop { id } => stop(id, session),
        What::Nodes => nodes::nodes(session),
        What::Drain(args) => nodes::drain(args, session),
        What::Remove(args) => nodes::remove(args, session),
        What::Join(args) => join::join(args, session),
        What::Leave(args) => leave::leave(args, session),
        What::Trust(args) => trust::trust(args, session),
        What::Sign(args) => trust::sign(args, session),
        What::Hub(args) => hub::hub(args, session),
    }
}

/// Exit code of an answer: that of a hub that is away when it is this node's copy.
fn code_of(view: &MeshView) -> Code {
    if view.copy().is_some() { Code::Away } else { Code::Ok }
}

fn list(session: &VerbSession) -> Result<Code, Failure> {
    let view = MeshView::open(session)?;
    let mut table = Table::new(&["ID", "STATE", "CHECKS", "OPEN", "LANDED", "GOAL"]);
    let all = loops::list(&view)?;
    for one in &all {
        table.row([
            clean(one.id.as_str()),
            if one.trusted { one.state.to_owned() } else { format!("{}, not trusted here", one.state) },
            format!("{}/{}", one.passing, one.checks),
            one.open.to_string(),
            one.landed.to_string(),
            clean(&one.goal),
        ]);
    }
    let mut lines = view.copy().map_or_else(Vec::new, |copy| mesh_view::away(copy, session.now()));
    if all.is_empty() {
        lines.push(
            "the mesh has no loop yet; make one: everloop run \"GOAL\" --check 'CMD' --agent claude --mesh".to_owned(),
        );
    } else {
        lines.extend(table.lines(session.ui.width()));
    }
    session.ui.answer(&lines, &json!({ "loops": all, "copy": mesh_view::away_json(&view, session.now()) }))?;
    Ok(code_of(&view))
}

fn show(id: &str, session: &VerbSession) -> Result<Code, Failure> {
    let view = MeshView::open(session)?;
    let detail = view.get(id)?;
    let (state, look) = (&detail.state, session.ui.look(session.now()));
    let (passing, total) = checks(state);
    let mut lines = view.copy().map_or_else(Vec::new, |copy| mesh_view::away(copy, look.now));
    lines.extend(about(&detail));
    lines.push(format!("Checks    {passing} of {total} pass on the branch"));
    for result in state.judged.iter().flat_map(|judged| &judged.board.0) {
        lines.push(format!("          {} {}", clean(&result.verdict.to_string()), clean(&result.name)));
    }
    if let Some((_, found)) = state.experiments() {
        let (from, to) = (short(found.baseline), short(found.champion.value()));
        lines.push(format!("Research  {} experiments, {} kept, {from} -> {to}", found.number, found.keep_count()));
    }
    let aside = state.used().microusd.saturating_sub(state.spent.microusd);
    let aside = if aside > 0 { format!(", {} reserved", quantities::money(aside)) } else { String::new() };
    lines.push(format!("Used      {}{aside}", quantities::spend(state.spent, Accuracy::Reported)));
    if let Some(reason) = &state.waits {
        lines.push(format!("Waits     {}", clean(&why::waiting(reason, session.now(), &quantities::here))));
    }
    for (account, limited) in &detail.limited {
        let until = quantities::moment(limited.held.until, look.now, &look.zone);
        lines.push(format!(
            "Limited   account {} until {until}, reported by {}",
            clean(account),
            clean(limited.node.as_str())
        ));
    }
    lines.extend(quarantine::lines(&detail.immune, &look, |_| true));
    for ticket in &detail.tickets {
        lines.push(format!("Ticket    mesh:{} {}", ticket.id, clean(&ticket.text)));
    }
    for row in &detail.rows {
        lines.push(format!("Task      {} {}: {}", clean(row.task.id.as_str()), holder(row), clean(&row.task.title)));
    }
    for landed in state.landed.iter().rev() {
        let (task, node) = (clean(landed.task.as_str()), clean(landed.node.as_str()));
        lines.push(format!(
            "Landed    {} {task} by {node}: {}",
            &landed.commit[..landed.commit.len().min(10)],
            clean(&landed.check)
        ));
    }
    session.ui.answer(
        &lines,
        &json!({ "loop": state, "tasks": detail.rows, "limited": detail.limited, "distrust": detail.distrust,
        "quarantine": quarantine::as_json(&detail.immune, look.now), "copy": mesh_view::away_json(&view, look.now) }),
    )?;
    Ok(code_of(&view))
}

/// What a loop is, and by which key.
fn about(detail: &MeshDetail) -> Vec<String> {
    let state = &detail.state;
    let ended = state.ended.as_ref().map_or(String::new(), |end| format!(": {end}"));
    let signer = detail.signer.as_deref().map_or("by no key".to_owned(), |key| format!("by {}", clean(key)));
    let mut lines = vec![format!("Loop      {} ({})", clean(state.id.as_str()), clean(&state.name))];
    if let Some(why) = &detail.distrust {
        lines.push(format!("Refused   this node runs and believes nothing of it: {}", clean(why)));
    }
    lines.extend([
        format!("Goal      {}", clean(&state.spec.wanted.goal)),
        format!("State     {}{ended}", label(state)),
        format!("Work      {} on {}", clean(&state.spec.branch), clean(&state.spec.remote)),
        format!("Signed    {signer}"),
    ]);
    lines
}

fn holder(row: &TaskRow) -> String {
    match &row.state {
        TaskState::Leased { node, .. } => format!("held by {}", clean(node.as_str())),
        TaskState::Done => "done, waits to be merged".to_owned(),
        other => other.label().to_owned(),
    }
}

fn stop(id: &str, session: &VerbSession) -> Result<Code, Failure> {
    loops::stop(session, id)?;
    session.ui.said(&format!("loop `{id}` stops"), &json!({ "id": id, "stop": true }))?;
    Ok(Code::Ok)
}
