//! The nodes of the mesh, and what a person wants of one.

use std::collections::BTreeSet;
use std::time::Duration;

use everloop_core::ids::NodeId;
use everloop_core::mesh::offline::DOWN;
use everloop_core::mesh::reconcile::Sign;
use everloop_core::op::{Op, TaskRow, TaskState};
use everloop_core::time::Time;
use everloop_store::{Leader, Ledger, NodeRow, StateName, TaskFilter, TaskOwner};
use serde::Serialize;
use serde_json::Value;

use super::{MeshView, trust};
use crate::error::Failure;
use crate::node_files::copy::HubCopy;
use crate::services::ServiceContext;
use crate::supervisor::mesh::{NODE, Wish};

/// A node that is silent for this long is suspected.
const SUSPECT: Duration = Duration::from_secs(15);

/// Held tasks of the mesh that are read at most.
const MAX_TASKS: usize = 1_000;

/// The nodes of the mesh.
#[derive(Clone, Debug)]
pub struct NodesAnswer {
    /// Of the leader, if there is one.
    pub term: Option<u64>,
    /// The hub's time.
    pub now: Time,
    pub nodes: NodeLines,
}

/// The nodes, by what is known of them.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum NodeLines {
    /// As the hub has them.
    Live(Vec<LiveNode>),
    /// As this node knew them when the hub last answered.
    Known(Vec<KnownNode>),
}

/// A node that the hub lists.
#[derive(Clone, Debug, Serialize)]
pub struct LiveNode {
    pub node: NodeId,
    /// In one word.
    pub state: &'static str,
    pub leads: bool,
    /// Whether its login is a leader's; nodes of an older everloop do not report it.
    pub may_lead: bool,
    /// Whether its key is trusted here, in words.
    pub key: &'static str,
    /// Tasks that it holds; untrusted text.
    pub holds: Vec<String>,
    /// The last heartbeat.
    pub seen_at: Time,
    /// Text that is not trusted.
    pub version: Option<String>,
    /// When it announced the next heartbeat.
    pub next_beat: Option<Time>,
    /// The last heartbeat, when the announced one did not come.
    pub silent_since: Option<Time>,
    /// The announced heartbeat that did not come.
    #[serde(skip)]
    pub missed: Option<Time>,
}

/// A node in this node's copy of the hub, which has no heartbeats.
#[derive(Clone, Debug, Serialize)]
pub struct KnownNode {
    pub node: NodeId,
    pub leads: bool,
    /// Whether its key is trusted here, in words.
    pub key: &'static str,
    /// Tasks that it held; untrusted text.
    pub holds: Vec<String>,
    /// Whether it was there when the hub last answered.
    pub was_there: bool,
}

/// The nodes, from the hub or, while that is away, from this node's copy.
pub fn nodes(view: &MeshView) -> Result<NodesAnswer, Failure> {
    let (now, leader) = (view.now()?, view.leader()?);
    let nodes = match view.copy() {
        None => NodeLines::Live(live(view, leader.as_ref(), now)?),
        Some(copy) => NodeLines::Known(known(view, copy, leader.as_ref())?),
    };
    Ok(NodesAnswer { term: leader.map(|leader| leader.term), now, nodes })
}

impl NodesAnswer {
    /// Whether nodes are there of which none can lead, so that nothing is merged.
    pub fn lacks_leader(&self) -> bool {
        match &self.nodes {
            NodeLines::Live(nodes) => {
                let can_lead = |node: &LiveNode| node.may_lead && node.state == "ready";
                self.term.is_none() && !nodes.is_empty() && !nodes.iter().any(can_lead)
            }
            NodeLines::Known(_) => false,
        }
    }
}

fn known(view: &MeshView, copy: &HubCopy, leader: Option<&Leader>) -> Result<Vec<KnownNode>, Failure> {
    let open = TaskFilter { owner: TaskOwner::Any, states: vec![StateName::Leased], limit: MAX_TASKS };
    let rows = view.ledger().tasks(&open)?;
    let listed = trust::listed(&view.keys, view.ledger())?;
    let listed_nodes = listed.iter().map(|listing| listing.node.clone());
    let nodes: BTreeSet<NodeId> = listed_nodes.chain(copy.meanwhile.members.iter().cloned()).collect();
    let line = |node: NodeId| {
        let holds = |row: &&TaskRow| matches!(&row.state, TaskState::Leased { node: by, .. } if *by == node);
        let key = listed.iter().find(|listing| listing.node == node);
        KnownNode {
            leads: leader.is_some_and(|leader| leader.node == node),
            key: key.map_or("none", |listing| trust::standing(&view.keys, listing)),
            holds: rows.iter().filter(holds).map(|row| row.task.id.to_string()).collect(),
            was_there: copy.meanwhile.members.contains(&node),
            node,
        }
    };
    Ok(nodes.into_iter().map(line).collect())
}

fn live(view: &MeshView, leader: Option<&Leader>, now: Time) -> Result<Vec<LiveNode>, Failure> {
    let (hub, keys) = (view.ledger(), &view.keys);
    let listed = trust::listed(keys, hub)?;
    let mut all = Vec::new();
    for row in hub.nodes()? {
        let wish = hub.doc(NODE, row.node.as_str())?.and_then(|doc| serde_json::from_str(&doc.body).ok());
        if wish == Some(Wish::Remove) {
            continue;
        }
        let leads = leader.is_some_and(|leader| leader.node == row.node);
        let key = listed.iter().find(|listing| listing.node == row.node);
        let key = key.map_or("none", |listing| trust::standing(keys, listing));
        all.push(LiveNode { leads, key, ..line(row, wish, now) });
    }
    Ok(all)
}

/// A node by its last heartbeat alone.
fn line(row: NodeRow, wish: Option<Wish>, now: Time) -> LiveNode {
    let info: Value = serde_json::from_str(&row.info).unwrap_or_default();
    let sign = Sign::read(row.node.clone(), row.seen_at, &row.info);
    let missed = sign.missed(DOWN, now);
    let holds = info["holds"].as_array().into_iter().flatten().filter_map(Value::as_str);
    LiveNode {
        state: state(&sign, wish, now),
        leads: false,
        may_lead: info["may_lead"].as_bool().unwrap_or(true),
        key: "none",
        holds: holds.map(str::to_owned).collect(),
        seen_at: row.seen_at,
        version: info["version"].as_str().map(str::to_owned),
        next_beat: sign.next,
        silent_since: missed.map(|_| row.seen_at),
        missed,
        node: row.node,
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

/// Leaves in the hub what a person wants of a node.
pub fn wish(context: &ServiceContext, node: &str, wish: Wish) -> Result<(), Failure> {
    let (_, mut hub) = context.hub()?;
    if !hub.nodes()?.iter().any(|row| row.node.as_str() == node) {
        return Err(Failure::usage(format!("there is no node `{node}`")).hint("`everloop mesh nodes` shows them"));
    }
    let version = hub.doc(NODE, node)?.map_or(0, |doc| doc.version);
    let body = serde_json::to_string(&wish).expect("a word always has a JSON form");
    hub.transact(context.now(), &[Op::SaveDoc { kind: NODE.to_owned(), key: node.to_owned(), version, body }])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_silent_node_it_is_known_when_it_announced_its_return() {
        let (node, now) = (NodeId::new("n1"), Time(1_000_000));
        let told = |info: &str| {
            let row = NodeRow { node: node.clone(), info: info.to_owned(), seen_at: Time(900_000) };
            let line = line(row, None, now);
            (line.missed, line.state)
        };
        assert_eq!(told(r#"{"next_beat":905000}"#), (Some(Time(905_000)), "down"));
        assert_eq!(told("{}"), (None, "down"), "it announced nothing");
        assert_eq!(told(r#"{"next_beat":null,"leaving":true}"#), (None, "stopped"));
        assert_eq!(told(r#"{"next_beat":960000}"#).0, None, "it may still come");
    }
}
