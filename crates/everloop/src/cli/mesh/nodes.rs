//! `everloop mesh nodes`, `drain` and `remove`: the nodes of the mesh.

use std::collections::BTreeSet;
use std::time::Duration;

use everloop_core::ids::NodeId;
use everloop_core::mesh::offline::DOWN;
use everloop_core::mesh::reconcile::Sign;
use everloop_core::op::{Op, TaskRow, TaskState};
use everloop_core::time::{Time, human};
use everloop_engine::error::{Code, Failure};
use everloop_engine::node_files::copy::HubCopy;
use everloop_engine::services::mesh::MeshView;
use everloop_engine::supervisor::mesh::{NODE, Wish};
use everloop_store::{Ledger, NodeRow, Postgres, StateName, TaskFilter, TaskOwner};
use serde_json::{Value, json};

use super::trust;
use crate::cli::VerbSession;
use crate::ui::mesh as mesh_view;
use crate::ui::quantities;
use crate::ui::table::Table;
use crate::ui::text::clean;

/// A node that is silent for this long is suspected.
const SUSPECT: Duration = Duration::from_secs(15);

/// Held tasks of the mesh that are read at most.
const MAX_TASKS: usize = 1_000;

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
    wish(&mut session.hub()?.1, &args.node, wanted, said, session)
}

pub fn remove(args: &RemoveArgs, session: &VerbSession) -> Result<Code, Failure> {
    let said = "is removed; where its key is trusted it stays so until `everloop mesh trust --revoke` there";
    wish(&mut session.hub()?.1, &args.node, Wish::Remove, said, session)
}

pub fn nodes(session: &VerbSession) -> Result<Code, Failure> {
    let view = MeshView::open(session)?;
    match view.copy() {
        None => list(&view, session),
        Some(copy) => known(&view, copy, session),
    }
}

/// The nodes as this one knew them when the hub last answered: heartbeats are not in its copy.
fn known(view: &MeshView, copy: &HubCopy, session: &VerbSession) -> Result<Code, Failure> {
    let mut table = Table::new(&["NODE", "ROLE", "KEY", "HOLDS"]);
    let leader = view.leader()?;
    let open = TaskFilter { owner: TaskOwner::Any, states: vec![StateName::Leased], limit: MAX_TASKS };
    let rows = view.ledger().tasks(&open)?;
    let listed = trust::listed(&view.keys, view.ledger())?;
    let listed_nodes = listed.iter().map(|listing| listing.node.clone());
    let nodes: BTreeSet<NodeId> = listed_nodes.chain(copy.meanwhile.members.iter().cloned()).collect();
    let mut all = Vec::new();
    for node in nodes {
        let leads = leader.as_ref().is_some_and(|leader| leader.node == node);
        let holds = |row: &&TaskRow| matches!(&row.state, TaskState::Leased { node: by, .. } if *by == node);
        let holds: Vec<&str> = rows.iter().filter(holds).map(|row| row.task.id.as_str()).collect();
        let key = listed.iter().find(|listing| listing.node == node);
        let key = key.map_or("none", |listing| trust::standing(&view.keys, listing));
        let mine = if node == view.membership.node { " (this)" } else { "" };
        let (name, role) = (format!("{}{mine}", clean(node.as_str())), if leads { "leader" } else { "worker" });
        table.row([name, role.to_owned(), key.to_owned(), clean(&holds.join(" "))]);
        let there = copy.meanwhile.members.contains(&node);
        all.push(json!({ "node": node, "leads": leads, "key": key, "holds": holds, "was_there": there }));
    }
    let mut lines = mesh_view::away(copy, session.now());
    lines.extend(table.lines(session.ui.width()));
    let told = json!({ "hub": view.membership.hub, "epoch": leader.map(|l| l.term), "nodes": all,
        "copy": mesh_view::away_json(view, session.now()) });
    session.ui.answer(&lines, &told)?;
    Ok(Code::Away)
}

fn list(view: &MeshView, session: &VerbSession) -> Result<Code, Failure> {
    let (membership, hub, keys) = (&view.membership, view.ledger(), &view.keys);
    let (now, leader) = (view.now()?, view.leader()?);
    let mut table = Table::new(&["NODE", "STATE", "ROLE", "KEY", "HOLDS", "LAST SEEN", "VERSION"]);
    let mut all = Vec::new();
    let listed = trust::listed(keys, hub)?;
    for row in hub.nodes()? {
        let wish = hub.doc(NODE, row.node.as_str())?.and_then(|doc| serde_json::from_str(&doc.body).ok());
        if wish == Some(Wish::Remove) {
            continue;
        }
        let info: Value = serde_json::from_str(&row.info).unwrap_or_default();
        let leads = leader.as_ref().is_some_and(|leader| leader.node == row.node);
        let sign = Sign::read(row.node.clone(), row.seen_at, &row.info);
        let state = state(&sign, wish, now);
        let missed = sign.missed(DOWN, now);
        let holds: Vec<&str> = info["holds"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let key = listed.iter().find(|listing| listing.node == row.node);
        let key = key.map_or("none", |listing| trust::standing(keys, listing));
        let mine = if row.node == membership.node { " (this)" } else { "" };
        table.row([
            format!("{}{mine}", clean(row.node.as_str())),
            state.to_owned(),
            role(leads, &info).to_owned(),
            key.to_owned(),
            clean(&holds.join(" ")),
            heard(&row, missed, now),
            clean(info["version"].as_str().unwrap_or("?")),
        ]);
        all.push(json!({ "node": row.node, "state": state, "leads": leads, "may_lead": may_lead(&info), "key": key, "holds": holds, "seen_at": row.seen_at,
            "version": info["version"], "next_beat": sign.next, "silent_since": missed.map(|_| row.seen_at) }));
    }
    let mut lines = table.lines(session.ui.width());
    if leader.is_none()
        && !all.is_empty()
        && !all.iter().any(|node| node["may_lead"] == true && node["state"] == "ready")
    {
        lines.push(
            "no node that is there can lead: nothing is merged until one with the login of a leader is up".to_owned(),
        );
    }
    if all.is_empty() {
        lines = vec!["no node has joined yet; start one: everloop up".to_owned()];
    }
    session.ui.answer(
        &lines,
        &json!({ "hub": membership.hub, "epoch": leader.map(|l| l.term), "nodes": all, "copy": null }),
    )?;
    Ok(Code::Ok)
}

/// Whether a node's login is a leader's; nodes of an older everloop do not report it.
fn may_lead(info: &Value) -> bool {
    info["may_lead"].as_bool().unwrap_or(true)
}

fn role(leads: bool, info: &Value) -> &'static str {
    match (leads, may_lead(info)) {
        (true, _) => "leader",
        (false, true) => "worker",
        (false, false) => "worker only",
    }
}

/// Time of the last heartbeat; for a silent node also when it announced the next one.
fn heard(row: &NodeRow, missed: Option<Time>, now: Time) -> String {
    match missed {
        None => format!("{} ago", human(now.since(row.seen_at))),
        Some(back) => {
            format!(
                "silent since {} (announced its return for {})",
                quantities::here(row.seen_at),
                quantities::here(back)
            )
        }
    }
}

fn state(sign: &Sign, wish: Option<Wish>, now: Time) -> &'static str {
    let silent = now.since(sign.seen_at);
    match wish {
        _ if sign.leaves => "stopped",
        _ if silent >= DOWN => "down",
        _ if silent >= SUSPECT => "suspect",
        Some(Wish::Drain) => "draining",
        _ => "ready",
    }
}

fn wish(hub: &mut Postgres, node: &str, wish: Wish, said: &str, session: &VerbSession) -> Result<Code, Failure> {
    if !hub.nodes()?.iter().any(|row| row.node.as_str() == node) {
        return Err(Failure::usage(format!("there is no node `{node}`")).hint("`everloop mesh nodes` shows them"));
    }
    let version = hub.doc(NODE, node)?.map_or(0, |doc| doc.version);
    let body = serde_json::to_string(&wish).expect("a word always has a JSON form");
    hub.transact(session.now(), &[Op::SaveDoc { kind: NODE.to_owned(), key: node.to_owned(), version, body }])?;
    session.ui.said(&format!("node `{node}` {said}"), &json!({ "node": node, "wish": wish }))?;
    Ok(Code::Ok)
}

#[cfg(test)]
mod tests {
    use everloop_core::ids::NodeId;

    use super::*;

    #[test]
    fn of_a_silent_node_it_is_shown_when_it_said_it_would_be_back() {
        let (node, now) = (NodeId::new("n1"), Time(1_000_000));
        let row = |info: &str| NodeRow { node: node.clone(), info: info.to_owned(), seen_at: Time(900_000) };
        let told = |info: &str| {
            let row = row(info);
            let sign = Sign::read(row.node.clone(), row.seen_at, info);
            (heard(&row, sign.missed(DOWN, now), now), state(&sign, None, now))
        };
        let (text, state) = told(r#"{"next_beat":905000}"#);
        assert!(text.starts_with("silent since ") && text.contains(" (announced its return for "), "{text}");
        assert_eq!(state, "down");
        assert_eq!(told("{}"), ("100s ago".to_owned(), "down"), "it announced nothing");
        assert_eq!(told(r#"{"next_beat":null,"leaving":true}"#), ("100s ago".to_owned(), "stopped"));
        assert_eq!(told(r#"{"next_beat":960000}"#).0, "100s ago", "it may still come");
    }
}
