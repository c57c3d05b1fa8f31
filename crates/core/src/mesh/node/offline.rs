//! While the hub is away: its last known state is kept in a file, so that a node that was restarted
//! can go on, too, and free tasks of this node's own share are begun. When the hub is back, it
//! decides whether they count.

use std::sync::Arc;
use std::time::Duration;

use super::{BEAT, Claim, LoopDoc, MeshNode, NodeEffects, NodeEvent};
use crate::ids::{LoopId, NodeId, TaskId};
use crate::mesh::MeshLoop;
use crate::mesh::keys::DocFault;
use crate::mesh::offline::{self, DOWN, Replica, Seen};
use crate::mesh::reconcile::Sign;
use crate::mesh::work::{self, Held};
use crate::op::TaskRow;
use crate::time::Time;

impl MeshNode {
    /// The hub answers again.
    pub(super) fn back(&mut self, fx: &mut impl NodeEffects) {
        let now = fx.now();
        let mut turn = Duration::ZERO;
        if self.connection.answered(now) {
            turn = self.replica.turn_of(&self.settings.node);
            self.claim_at = now + turn;
            let offline = self.claims.values().filter(|claim| claim.alone);
            for claim in offline {
                self.renewed.remove(&claim.key);
            }
        }
        fx.observe(&NodeEvent::HubBack { turn });
    }

    /// Whether it is time to look at what is free although there is no room for it.
    pub(super) fn must_remember(&self, now: Time) -> bool {
        now.since(self.remembered_at) >= BEAT
    }

    /// Remembers what is free, of which loops, and which nodes are there.
    pub(super) fn remember(&mut self, fx: &mut impl NodeEffects, free: &[TaskRow]) {
        fx.observe(&NodeEvent::Remembered);
        let now = fx.now();
        if self.replica.is_of(free) && (free.is_empty() || !self.must_remember(now)) {
            return;
        }
        self.remembered_at = now;
        let mut replica = Replica { free: free.to_vec(), members: self.replica.members.clone(), loops: Vec::new() };
        if !free.is_empty() {
            let mut owners: Vec<LoopId> = free.iter().filter_map(|row| row.task.owner.clone()).collect();
            owners.sort();
            owners.dedup();
            let found = self.at_hub(fx, "list nodes and loops", |fx| Ok((fx.nodes()?, fx.loops(&owners)?)));
            let Some((nodes, docs)) = found else { return };
            replica.members = self.members_of(&nodes);
            self.members = Some(replica.members.len());
            for LoopDoc { id, state, .. } in docs {
                match state {
                    Ok(state) => {
                        self.trusts(fx, &id);
                        replica.loops.push(state);
                    }
                    Err(DocFault::Distrusted { why, over: false }) => self.distrusts(fx, &id, &why),
                    Err(DocFault::Distrusted { .. } | DocFault::Unreadable(_)) => {}
                }
            }
        }
        if replica == *self.replica {
            return;
        }
        self.replica = Arc::new(replica);
        fx.put_replica(&self.replica);
    }

    /// Nodes that are there and take tasks.
    pub(super) fn members_of(&self, nodes: &[Sign]) -> Vec<NodeId> {
        let seen = |sign: &Sign| Seen { node: sign.node.clone(), at: sign.seen_at, drains: sign.drains };
        let seen: Vec<Seen> = nodes.iter().map(seen).collect();
        offline::members(&self.settings.node, &seen, self.real(DOWN))
    }

    /// Begins free tasks of this node's own share.
    pub(super) fn begin_offline(&mut self, fx: &mut impl NodeEffects) {
        let room = self.room();
        if room == 0 || self.replica.free.is_empty() {
            return;
        }
        let own = self.replica.pick(&self.settings.node, &self.held(), room, self.hub_now(fx));
        if own.is_empty() {
            return;
        }
        let guards = self.guards(fx);
        for held in own {
            let known = self.replica.loops.iter().find(|state| state.id == held.owner);
            if Self::is_held_for_long(fx, &guards, known.map(|state| &state.spec.wanted)) {
                continue;
            }
            fx.observe(&NodeEvent::BegunOffline { key: &held.key() });
            self.put(fx, held, "a claim, so the task is not begun");
        }
    }

    /// A task and its loop, as the hub had them.
    pub(super) fn remembered(&self, held: &Held) -> Option<(TaskRow, MeshLoop)> {
        let row = self.replica.free.iter().find(|row| row.task.id == held.task)?;
        Some((row.clone(), self.replica.loop_of(row)?.clone()))
    }

    /// Does not begin a task offline before the next answer of the hub about it: another node has
    /// it, or it cannot be begun here.
    pub(super) fn decline(&mut self, task: &TaskId) {
        if self.replica.free.iter().any(|row| row.task.id == *task) {
            Arc::make_mut(&mut self.replica).free.retain(|row| row.task.id != *task);
        }
    }

    /// Requests a task that was begun offline.
    pub(super) fn claim(&mut self, fx: &mut impl NodeEffects, claim: &Claim) {
        let take = [claim.take(&self.settings.node, self.real(work::LEASE))];
        match self.at_hub(fx, "request a task that was begun offline", |fx| fx.transact(None, &take)) {
            Some(Ok(_)) => self.adopt(fx, claim),
            // Another node was faster: the next look finds out which.
            Some(Err(error)) => {
                self.renewed.remove(&claim.key);
                fx.observe(&NodeEvent::NotAdopted { key: &claim.key, error: &error.to_string() });
            }
            None => {}
        }
    }

    /// The hub has this node as the holder of the task.
    pub(super) fn adopt(&mut self, fx: &mut impl NodeEffects, claim: &Claim) {
        if self.put(fx, Held { alone: false, ..claim.held.clone() }, "that a task is given") {
            fx.observe(&NodeEvent::Adopted { key: &claim.key });
            self.renewed.insert(claim.key.clone(), fx.now());
        }
    }
}
