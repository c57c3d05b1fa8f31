//! What a node of the simulation does while the hub is away, step by step as the real one does it, and whether what all of
//! them use stays within the loop's limits.

use everloop_core::mesh::alone::{DOWN, Replica};
use everloop_core::mesh::work::{self, Held};
use everloop_core::mesh::{KIND, MeshLoop};
use everloop_core::op::{TaskRow, TaskState};
use everloop_core::time::Time;
use everloop_store::Ledger;

use super::node::BEAT;
use super::world::{LOOP, World, ms};

impl World {
    /// The hub answered, after it did not.
    pub(super) fn back(&mut self, n: usize) {
        let now = self.clock(n);
        let node = &mut self.nodes[n];
        if node.line.answered(now) {
            node.claim_at = now + node.replica.turn_of(&node.id);
            let alone: Vec<String> = node.held.values().filter(|held| held.alone).map(Held::key).collect();
            for key in alone {
                node.renewed.remove(&key);
            }
        }
    }

    pub(super) fn must_remember(&self, n: usize) -> bool {
        self.clock(n).since(self.nodes[n].remembered_at) >= BEAT
    }

    pub(super) fn remember(&mut self, n: usize, free: &[TaskRow]) {
        let old = &self.nodes[n].replica;
        let known = |row: &TaskRow| old.free.iter().any(|r| r.task.id == row.task.id && r.fence == row.fence);
        let same = free.len() == old.free.len() && free.iter().all(known);
        if same && (free.is_empty() || !self.must_remember(n)) {
            return;
        }
        self.nodes[n].remembered_at = self.clock(n);
        let mut replica = Replica { free: free.to_vec(), ..Replica::default() };
        if !free.is_empty() {
            let found = self.at_hub(n, |hub| Ok((hub.nodes()?, hub.doc(KIND, LOOP)?)));
            let Some(Ok((nodes, Some(doc)))) = found else { return };
            let own = nodes.iter().find(|row| row.node == self.nodes[n].id).map_or(Time::default(), |row| row.seen_at);
            let lately = nodes.into_iter().filter(|row| own.since(row.seen_at) < DOWN);
            replica.members = lately.map(|row| row.node).collect();
            replica.loops = vec![self.parsed(&doc)];
        }
        self.nodes[n].replica = replica;
    }

    pub(super) fn begin_alone(&mut self, n: usize) {
        let room = usize::from(self.nodes[n].held.is_empty());
        let has: Vec<Held> = self.nodes[n].held.values().cloned().collect();
        let node = &self.nodes[n];
        for held in node.replica.pick(&node.id, &has, room, self.time()) {
            self.trace.say(self.now, "alone", &format!("{} {}", self.nodes[n].id, held.key()));
            self.begun_alone(n, &held);
            self.nodes[n].held.insert(held.key(), held);
        }
    }

    /// A task and its loop, as the hub had them.
    pub(super) fn remembered(&self, n: usize, held: &Held) -> Option<MeshLoop> {
        let replica = &self.nodes[n].replica;
        let row = replica.free.iter().find(|row| row.task.id == held.task)?;
        replica.loop_of(row).cloned()
    }

    pub(super) fn claim(&mut self, n: usize, held: &Held) {
        let (at, node) = (self.time(), self.nodes[n].id.clone());
        let take = held.take(&node, work::LEASE);
        match self.at_hub(n, |hub| hub.transact(at, &[take])) {
            Some(Ok(_)) => self.adopt(n, held),
            Some(Err(_)) => drop(self.nodes[n].renewed.remove(&held.key())),
            None => {}
        }
    }

    pub(super) fn adopt(&mut self, n: usize, held: &Held) {
        let now = self.clock(n);
        self.trace.say(self.now, "adopts", &format!("{} {}", self.nodes[n].id, held.key()));
        self.nodes[n].held.insert(held.key(), Held { alone: false, ..held.clone() });
        self.nodes[n].renewed.insert(held.key(), now);
    }

    /// Nodes that know the same begin different things.
    fn begun_alone(&mut self, n: usize, held: &Held) {
        let knows = |n: usize| (&self.nodes[n].replica.members, &self.nodes[n].replica.free);
        let others = (0..self.nodes.len()).filter(|o| *o != n);
        let twice = others.into_iter().find(|o| {
            let same = self.nodes[*o].held.values().any(|h| h.alone && h.task == held.task && h.fence == held.fence);
            same && knows(*o) == knows(n)
        });
        if let Some(other) = twice {
            let text = format!("{} and {} both begin {}", self.nodes[n].id, self.nodes[other].id, held.task);
            self.violated("overlap", text);
        }
    }

    /// An attempt begins that takes so many turns. What two nodes do under one fence, because one of them could not ask, is the
    /// offline allowance; everything else is within the limits.
    pub(super) fn attempt(&mut self, n: usize, held: &Held, turns: u64) {
        let row = self.hub.task(&held.task).expect("the model answers");
        let mine = row.is_some_and(|row| match &row.state {
            TaskState::Queued => row.fence.next() == held.fence,
            TaskState::Leased { node, .. } => row.fence == held.fence && *node == self.nodes[n].id,
            _ => false,
        });
        let is_same = |h: &Held| h.task == held.task && h.fence == held.fence;
        let beside = (0..self.nodes.len()).any(|o| o != n && self.nodes[o].held.values().any(is_same));
        if !mine || beside {
            return;
        }
        self.facts.calls.push((self.now, turns));
        let limits = &self.limits;
        let within = |window: u64| -> u64 {
            let lately = self.facts.calls.iter().rev().take_while(|(at, _)| self.now - at < window);
            lately.map(|(_, turns)| turns).sum()
        };
        let (all, hour) = (within(u64::MAX), within(ms(std::time::Duration::from_secs(3600))));
        if limits.calls.is_some_and(|most| all > most) {
            self.violated("I6", format!("{all} turns of {limits:?}"));
        } else if limits.per_hour.is_some_and(|most| hour > most) {
            self.violated("I6", format!("{hour} turns in an hour of {limits:?}"));
        }
    }
}

/// What the loop may use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    pub calls: Option<u64>,
    pub per_hour: Option<u64>,
}
