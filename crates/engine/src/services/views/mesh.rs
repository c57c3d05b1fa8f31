//! Nodes of the mesh, and what is in quarantine.

use everloop_core::immune::{SubjectTier, Tier};
use everloop_core::time::Time;
use everloop_core::why::quarantined;
use serde::Serialize;

use super::{ledger, line};
use crate::error::Failure;
use crate::services::ServiceContext;
use crate::services::mesh::MeshView as Source;
use crate::services::mesh::nodes::{NodeLines, nodes};

/// The machines, and the quarantines of this one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MeshView {
    /// Why there are no nodes to show.
    pub absent: Option<String>,
    pub nodes: Vec<NodeCard>,
    pub quarantined: Vec<String>,
}

/// A machine of the mesh.
#[derive(Clone, Debug, Serialize)]
pub struct NodeCard {
    pub name: String,
    pub state: String,
    pub leads: bool,
    pub key: &'static str,
    pub holds: Vec<String>,
    pub seen_at: Option<Time>,
    pub version: String,
}

/// Reads the nodes from the hub or from this node's copy of it.
pub fn mesh(context: &ServiceContext) -> Result<MeshView, Failure> {
    let mut view = MeshView::default();
    if let Some(ledger) = ledger(context)? {
        let immune = crate::immune::read(&ledger)?.1;
        let now = context.now();
        let acts = |standing: &&SubjectTier| match standing.tier {
            Tier::Watched => false,
            Tier::Soft { until } => until > now,
            Tier::Out { .. } => true,
        };
        let standings = immune.standings.values().filter(acts).map(|standing| line(&quarantined(&standing.reason)));
        let rules = immune.rules_at(now).map(|rule| line(&format!("{} ({})", rule.what, rule.why)));
        view.quarantined = standings.chain(rules).collect();
    }
    if !context.home()?.membership().exists() {
        view.absent = Some("this machine is not part of a mesh; join one: everloop mesh join URL".to_owned());
        return Ok(view);
    }
    match Source::open(context).and_then(|source| nodes(&source)) {
        Err(failure) => view.absent = Some(line(&failure.message)),
        Ok(answer) => view.nodes = cards(answer.nodes),
    }
    Ok(view)
}

fn cards(found: NodeLines) -> Vec<NodeCard> {
    let texts = |all: Vec<String>| all.iter().map(|text| line(text)).collect();
    match found {
        NodeLines::Live(nodes) => nodes
            .into_iter()
            .map(|node| NodeCard {
                name: line(node.node.as_str()),
                state: node.state.to_owned(),
                leads: node.leads,
                key: node.key,
                holds: texts(node.holds),
                seen_at: Some(node.seen_at),
                version: line(&node.version.unwrap_or_default()),
            })
            .collect(),
        NodeLines::Known(nodes) => nodes
            .into_iter()
            .map(|node| NodeCard {
                name: line(node.node.as_str()),
                state: if node.was_there { "was there" } else { "was away" }.to_owned(),
                leads: node.leads,
                key: node.key,
                holds: texts(node.holds),
                seen_at: None,
                version: String::new(),
            })
            .collect(),
    }
}
