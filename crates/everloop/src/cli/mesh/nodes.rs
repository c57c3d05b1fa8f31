//! `everloop mesh nodes`, `drain` and `remove`: the nodes of the mesh.

use everloop_core::ids::NodeId;
use everloop_core::time::{Time, human};
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::mesh::MeshView;
use everloop_engine::services::mesh::nodes::{self as service, KnownNode, LiveNode, NodeLines};
use everloop_engine::supervisor::mesh::Wish;
use serde_json::json;

use super::code_of;
use crate::cli::VerbSession;
use crate::ui::mesh as mesh_view;
use crate::ui::quantities;
use crate::ui::table::Table;
use crate::ui::text::clean;

/// A node that is named.
#[derive(Debug, clap::Args)]
pub struct RemoveArgs {
    /// Name of the node
    node: String,
}

/// A node that takes no more tasks, or takes them again.
#[derive(Debug, clap::Args)]
pub struct DrainArgs {
    /// Name of the node
    node: String,
    /// Let it take tasks again
    #[arg(long)]
    undo: bool,
}

pub fn drain(args: &DrainArgs, session: &VerbSession) -> Result<Code, Failure> {
    let (wanted, said) =
        if args.undo { (Wish::Work, "takes tasks again") } else { (Wish::Drain, "takes no more tasks") };
    wish(&args.node, wanted, said, session)
}

pub fn remove(args: &RemoveArgs, session: &VerbSession) -> Result<Code, Failure> {
    let said = "is removed; where its key is trusted it stays so until `everloop mesh trust --revoke` there";
    wish(&args.node, Wish::Remove, said, session)
}

fn wish(node: &str, wish: Wish, said: &str, session: &VerbSession) -> Result<Code, Failure> {
    service::wish(session, node, wish)?;
    session.ui.said(&format!("node `{node}` {said}"), &json!({ "node": node, "wish": wish }))?;
    Ok(Code::Ok)
}

pub fn nodes(session: &VerbSession) -> Result<Code, Failure> {
    let view = MeshView::open(session)?;
    let answer = service::nodes(&view)?;
    let this = &view.membership.node;
    let mut lines = view.copy().map_or_else(Vec::new, |copy| mesh_view::away(copy, session.now()));
    match &answer.nodes {
        NodeLines::Known(nodes) => lines.extend(known(nodes, this).lines(session.ui.width())),
        NodeLines::Live(nodes) if nodes.is_empty() => {
            lines.push("no node has joined yet; start one: everloop up".to_owned());
        }
        NodeLines::Live(nodes) => lines.extend(live(nodes, this, answer.now).lines(session.ui.width())),
    }
    if answer.lacks_leader() {
        lines.push(
            "no node that is there can lead: nothing is merged until one with the login of a leader is up".to_owned(),
        );
    }
    let told = json!({ "hub": view.membership.hub, "epoch": answer.term, "nodes": answer.nodes,
        "copy": mesh_view::away_json(&view, session.now()) });
    session.ui.answer(&lines, &told)?;
    Ok(code_of(&view))
}

fn name(node: &NodeId, this: &NodeId) -> String {
    let mine = if node == this { " (this)" } else { "" };
    format!("{}{mine}", clean(node.as_str()))
}

/// The nodes as this one knew them when the hub last answered: heartbeats are not in its copy.
fn known(nodes: &[KnownNode], this: &NodeId) -> Table {
    let mut table = Table::new(&["NODE", "ROLE", "KEY", "HOLDS"]);
    for node in nodes {
        let role = if node.leads { "leader" } else { "worker" };
        table.row([name(&node.node, this), role.to_owned(), node.key.to_owned(), clean(&node.holds.join(" "))]);
    }
    table
}

fn live(nodes: &[LiveNode], this: &NodeId, now: Time) -> Table {
    let mut table = Table::new(&["NODE", "STATE", "ROLE", "KEY", "HOLDS", "LAST SEEN", "VERSION"]);
    for node in nodes {
        table.row([
            name(&node.node, this),
            node.state.to_owned(),
            role(node).to_owned(),
            node.key.to_owned(),
            clean(&node.holds.join(" ")),
            heard(node.seen_at, node.missed, now),
            clean(node.version.as_deref().unwrap_or("?")),
        ]);
    }
    table
}

fn role(node: &LiveNode) -> &'static str {
    match (node.leads, node.may_lead) {
        (true, _) => "leader",
        (false, true) => "worker",
        (false, false) => "worker only",
    }
}

/// Time of the last heartbeat; for a silent node also when it announced the next one.
fn heard(seen_at: Time, missed: Option<Time>, now: Time) -> String {
    match missed {
        None => format!("{} ago", human(now.since(seen_at))),
        Some(back) => {
            format!("silent since {} (announced its return for {})", quantities::here(seen_at), quantities::here(back))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_silent_node_it_is_shown_when_it_said_it_would_be_back() {
        let (seen_at, now) = (Time(900_000), Time(1_000_000));
        let text = heard(seen_at, Some(Time(905_000)), now);
        assert!(text.starts_with("silent since ") && text.contains(" (announced its return for "), "{text}");
        assert_eq!(heard(seen_at, None, now), "100s ago");
    }
}
