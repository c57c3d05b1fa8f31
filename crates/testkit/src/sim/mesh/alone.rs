//! What a node of the simulation does while the hub is away, step by step as the real one does it, and whether what all of
//! them use stays within the loop's limits.

use std::rc::Rc;

use everloop_core::ids::{LoopId, NodeId};
use everloop_core::mesh::alone::{self, DOWN, Replica, Seen};
use everloop_core::mesh::work::{self, Held};
use everloop_core::mesh::{KIND, MeshLoop};
use everloop_core::op::{TaskRow, TaskState};
use everloop_store::Ledger;

use super::node::{BEAT, File};
use super::world::{World, ms};

impl World {
    /// The hub answered, after it did not.
    pub(super) fn back(&mut self, n: usize) {
        let now = self.clock(n);
        let node = &mut self.nodes[n];
        if node.line.answered(now) {
            let turn = node.disk.replica.turn_of(&node.id);
            node.claim_at = now + turn;
            // Nobody waits for it until then.
            node.idle_since = node.idle_since.max(self.now + ms(turn));
            for file in node.disk.held.values().filter(|file| file.held.alone) {
                node.renewed.remove(&file.key);
            }
        }
    }

    pub(super) fn must_remember(&self, n: usize) -> bool {
        self.clock(n).since(self.nodes[n].remembered_at) >= BEAT
    }

    pub(super) fn remember(&mut self, n: usize, free: &[TaskRow]) {
        let same = self.nodes[n].disk.replica.is_of(free);
        if same && (free.is_empty() || !self.must_remember(n)) {
            return;
        }
        self.nodes[n].remembered_at = self.clock(n);
        let members = self.nodes[n].disk.replica.members.clone();
        let mut replica = Replica { free: free.to_vec(), members, loops: Vec::new() };
        if !free.is_empty() {
            let Some(Ok(nodes)) = self.at_hub(n, |hub, _| hub.nodes()) else { return };
            // What a node says of itself when it gives a sign of life.
            let drains = |id: &NodeId| self.named(id).is_none_or(|n| self.nodes[n].draining);
            let seen = nodes.into_iter().map(|row| Seen { drains: drains(&row.node), at: row.seen_at, node: row.node });
            replica.members = alone::members(&self.nodes[n].id, &seen.collect::<Vec<_>>(), DOWN);
            let mut owners: Vec<&LoopId> = free.iter().filter_map(|row| row.task.owner.as_ref()).collect();
            owners.dedup();
            replica.loops = owners.into_iter().filter_map(|owner| self.loop_at_hub(owner)).collect();
        }
        self.nodes[n].disk.replica = Rc::new(replica);
    }

    /// A loop as the hub has it.
    pub(super) fn loop_at_hub(&mut self, id: &LoopId) -> Option<MeshLoop> {
        if id.as_str() == self.current.name.1 {
            return Some(self.state());
        }
        let doc = self.hub.model.peek_doc(&(KIND.to_owned(), id.to_string()))?;
        MeshLoop::read(&doc.body).ok()
    }

    pub(super) fn begin_alone(&mut self, n: usize) {
        let node = &self.nodes[n];
        let room = if node.draining { 0 } else { node.room() };
        if room == 0 || node.dying || node.disk.replica.free.is_empty() {
            return;
        }
        let has: Vec<Held> = node.disk.held.values().map(|file| file.held.clone()).collect();
        for held in node.disk.replica.pick(&node.id, &has, room, self.hub_now(n)) {
            self.trace.say(self.now, "alone", &format!("{} {}", self.nodes[n].id, held.key()));
            self.begun_alone(n, &held);
            self.put(n, held);
        }
    }

    /// The loop of a task, as the hub had it.
    pub(super) fn remembered(&self, n: usize, held: &Held) -> Option<MeshLoop> {
        let replica = &self.nodes[n].disk.replica;
        let row = replica.free.iter().find(|row| row.task.id == held.task)?;
        replica.loop_of(row).cloned()
    }

    pub(super) fn claim(&mut self, n: usize, file: &Rc<File>) {
        let take = file.held.take(&self.nodes[n].id, work::LEASE);
        match self.transact(n, None, &[take]) {
            Some(Ok(_)) => self.adopt(n, file),
            Some(Err(_)) => drop(self.nodes[n].renewed.remove(&file.key)),
            None => {}
        }
    }

    pub(super) fn adopt(&mut self, n: usize, file: &Rc<File>) {
        let now = self.clock(n);
        if self.put(n, Held { alone: false, ..file.held.clone() }) {
            self.trace.say(self.now, "adopts", &format!("{} {}", self.nodes[n].id, file.key));
            self.nodes[n].renewed.insert(file.key.clone(), now);
        }
    }

    /// Nodes that know the same begin different things.
    fn begun_alone(&mut self, n: usize, held: &Held) {
        let knows = |n: usize| (&self.nodes[n].disk.replica.members, &self.nodes[n].disk.replica.free);
        let others = (0..self.nodes.len()).filter(|o| *o != n);
        let twice = others.into_iter().find(|o| {
            let is_same = |h: &Held| h.alone && h.task == held.task && h.fence == held.fence;
            let same = self.nodes[*o].disk.held.values().any(|file| is_same(&file.held));
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
        let row = self.hub.model.peek_task(&held.task);
        let mine = row.is_some_and(|row| match &row.state {
            TaskState::Queued => row.fence.next() == held.fence,
            TaskState::Leased { node, .. } => row.fence == held.fence && *node == self.nodes[n].id,
            _ => false,
        });
        let is_same = |file: &Rc<File>| file.held.task == held.task && file.held.fence == held.fence;
        let beside = (0..self.nodes.len()).any(|o| o != n && self.nodes[o].disk.held.values().any(is_same));
        // What a hub was told that was set back counts for nobody.
        if !mine || beside || held.owner.as_str() != self.current.name.1 || self.hub.copies > 0 {
            return;
        }
        // The other one may have ended, or lost its disk, meanwhile.
        if !self.facts.attempted.insert((held.task.clone(), held.fence)) {
            return;
        }
        self.facts.calls.push((self.now, turns));
        let limits = &self.limits;
        let within = |window: u64| -> u64 {
            let lately = self.facts.calls.iter().rev().take_while(|(at, _)| self.now - at < window);
            lately.map(|(_, turns)| turns).sum()
        };
        // A supervisor whose clock runs at another rate knows the hub's time to some seconds.
        let an_hour = ms(std::time::Duration::from_secs(if self.setup.drift { 3540 } else { 3600 }));
        let (all, hour) = (within(u64::MAX), within(an_hour));
        // An hour is one by the hub's clock: when that was set, it may be none.
        let told = self.hub.odd_until == 0 || self.now > self.hub.odd_until + an_hour;
        if limits.calls.is_some_and(|most| all > most) {
            self.violated("I6", format!("{all} turns of {limits:?}"));
        } else if limits.per_hour.is_some_and(|most| hour > most) && told {
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
