//! Whether nodes gave their announced signs of life. Every node writes into the hub when it will
//! give its next one; the leader checks that. A silence is reported once, and so is its end:
//! machines sleep, so it is no failure and no ticket.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ReconcilePlan, ReconcileView};
use crate::ids::NodeId;
use crate::time::{Time, human};

/// A node's last sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sign {
    pub node: NodeId,
    /// When, by the hub's clock.
    pub seen_at: Time,
    /// When the node announced its next sign of life, by the hub's clock.
    pub next: Option<Time>,
    /// The node announced that it leaves, and no next sign of life.
    pub leaves: bool,
    /// It takes nothing more.
    pub drains: bool,
    /// Tasks that it holds.
    pub holds: usize,
}

impl Sign {
    /// Reads what a node wrote about itself; what is missing stays empty.
    pub fn read(node: NodeId, seen_at: Time, info: &str) -> Self {
        let info: serde_json::Value = serde_json::from_str(info).unwrap_or_default();
        Self {
            node,
            seen_at,
            next: info["next_beat"].as_i64().map(Time),
            leaves: info["leaving"] == true,
            drains: info["draining"] == true,
            holds: info["holds"].as_array().map_or(0, Vec::len),
        }
    }

    /// When the node should have given a sign of life, if that is over for longer than `down`. A
    /// node that has not compared its clock with the hub's yet may announce any time; so long after
    /// a sign of life it is not silent.
    pub fn missed(&self, down: Duration, now: Time) -> Option<Time> {
        self.next.filter(|next| !self.leaves && now.since(*next) > down && now.since(self.seen_at) > down)
    }
}

/// A silence that the journal knows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// The last sign of life before it.
    pub since: Time,
    /// When the next one should have come.
    pub promised: Time,
}

/// Adds the nodes that fell silent and those that are back to the plan. The last sign of life
/// distinguishes one silence from the next, whatever clocks do.
pub(super) fn listen(look: &ReconcileView<'_>, plan: &mut ReconcilePlan) {
    let known = std::mem::take(&mut plan.reconcile_notes.silent);
    for sign in look.nodes {
        let (node, since) = (&sign.node, sign.seen_at);
        let before = known.get(node);
        if let Some(silence) = before.filter(|silence| silence.since == since) {
            plan.reconcile_notes.silent.insert(node.clone(), *silence);
            continue;
        }
        if let Some(silence) = before {
            plan.heard.push(node.clone());
            plan.notes.push(format!("node {node} is back, after {}", human(since.since(silence.since))));
        }
        if let Some(promised) = sign.missed(look.timeouts.down, look.now) {
            let (late, silent) = (human(look.now.since(promised)), human(look.now.since(since)));
            plan.notes.push(format!("node {node} is silent for {silent}; its heartbeat was due {late} ago"));
            plan.missed.push(node.clone());
            plan.reconcile_notes.silent.insert(node.clone(), Silence { since, promised });
        }
    }
}
