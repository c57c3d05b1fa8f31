//! While the hub is away: what it said last is remembered in a file, so that also a machine that was restarted can go on, and
//! free tasks that are this node's own are begun.

use std::path::PathBuf;

use everloop_core::ids::{NodeId, TaskId};
use everloop_core::mesh::alone::{self, DOWN, Replica, Seen};
use everloop_core::mesh::work::{self, Held};
use everloop_core::mesh::{KIND, MeshLoop};
use everloop_core::op::TaskRow;
use everloop_store::{Ledger, NodeRow, Postgres};

use super::node::{BEAT, Node};
use crate::state_folder::{StateFolder, write_whole};

/// What the hub said last, before this process; nothing when that cannot be read.
pub(super) fn read(home: &StateFolder) -> Replica {
    let text = std::fs::read(path(home)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn path(home: &StateFolder) -> PathBuf {
    home.mesh().join("replica.json")
}

impl Node {
    /// Tasks that it can still take.
    pub(super) fn room(&self) -> usize {
        let slots = if self.draining { 0 } else { self.membership.max_parallel_turns };
        work::room(slots, &self.late_results.all())
    }

    /// The hub answers again.
    pub(super) fn back(&mut self) {
        let now = self.pace.now();
        tracing::info!("the hub is back");
        if self.line.answered(now) {
            self.claim_at = now + self.replica.turn_of(&self.membership.node);
            let alone: Vec<Held> = self.late_results.all().into_iter().filter(|held| held.alone).collect();
            for held in alone {
                self.renewed.remove(&held.key());
            }
        }
    }

    /// Whether it is time to look at what is free although there is no room for it.
    pub(super) fn must_remember(&self) -> bool {
        self.pace.now().since(self.remembered_at) >= BEAT
    }

    /// Remembers what is free, of which loops, and who is there.
    pub(super) fn remember(&mut self, free: &[TaskRow]) {
        self.tells.remembered();
        if self.replica.is_of(free) && (free.is_empty() || !self.must_remember()) {
            return;
        }
        self.remembered_at = self.pace.now();
        let members = self.replica.members.clone();
        let mut replica = Replica { free: free.to_vec(), members, loops: Vec::new() };
        if !free.is_empty() {
            let mut keys: Vec<String> =
                free.iter().filter_map(|row| Some(row.task.owner.as_ref()?.to_string())).collect();
            keys.sort();
            keys.dedup();
            let look = |hub: &mut Postgres| Ok((hub.nodes()?, hub.docs_named(KIND, &keys)?));
            let Some(Ok((nodes, docs))) = self.at_hub("look who is there", look) else { return };
            replica.members = self.members(&nodes);
            self.tells.members = Some(replica.members.len());
            let states = docs.iter().filter_map(|doc| MeshLoop::read(&doc.body).ok());
            let wanted = |state: &MeshLoop| free.iter().any(|row| row.task.owner.as_ref() == Some(&state.id));
            replica.loops = states.filter(wanted).collect();
        }
        if replica == self.replica {
            return;
        }
        let text = serde_json::to_vec(&replica).expect("a replica is plain data and always has a JSON form");
        if let Err(e) = write_whole(&path(&self.home), &text, 0o600) {
            tracing::warn!(error = %e, "what the hub said cannot be written down");
        }
        self.replica = replica;
    }

    /// Who is there and takes tasks.
    pub(super) fn members(&self, nodes: &[NodeRow]) -> Vec<NodeId> {
        let seen = |row: &NodeRow| {
            let draining = |info: serde_json::Value| info.get("draining").is_some_and(|d| *d == true);
            let drains = serde_json::from_str(&row.info).is_ok_and(draining);
            Seen { node: row.node.clone(), at: row.seen_at, drains }
        };
        let seen: Vec<Seen> = nodes.iter().map(seen).collect();
        alone::members(&self.membership.node, &seen, self.pace.real(DOWN))
    }

    /// Begins free tasks that are this node's own.
    pub(super) fn begin_alone(&mut self) {
        let has = self.late_results.all();
        let mut own = self.replica.pick(&self.membership.node, &has, self.room(), self.hub_now());
        own.retain(|held| !self.is_shut(&held.owner));
        for held in own {
            tracing::info!(task = %held.task, "the hub is away: a task of this node's own share is begun");
            if let Err(e) = self.late_results.put(&held) {
                tracing::warn!(task = %held.task, error = %e, "a task cannot be written down, and is not begun");
            }
        }
    }

    /// A task and its loop, as the hub had them.
    pub(super) fn remembered(&self, held: &Held) -> Option<(TaskRow, MeshLoop)> {
        let row = self.replica.free.iter().find(|row| row.task.id == held.task)?;
        Some((row.clone(), self.replica.loop_of(row)?.clone()))
    }

    /// Does not begin a task by itself before the hub was asked: somebody else has it, or it cannot be begun here.
    pub(super) fn decline(&mut self, task: &TaskId) {
        self.replica.free.retain(|row| row.task.id != *task);
    }

    /// Asks for a task that was begun without the hub.
    pub(super) fn claim(&mut self, held: &Held) {
        let (now, node) = (self.pace.now(), self.membership.node.clone());
        let take = held.take(&node, self.pace.real(work::LEASE));
        match self.at_hub("ask for a task that was begun", |hub| hub.transact(now, &[take])) {
            Some(Ok(_)) => self.adopt(held),
            // Somebody was faster: the next look finds out who.
            Some(Err(error)) => {
                self.renewed.remove(&held.key());
                tracing::info!(task = %held.task, %error, "a task that was begun without the hub is not given");
            }
            None => {}
        }
    }

    /// The hub knows now that this node has the task.
    pub(super) fn adopt(&mut self, held: &Held) {
        let own = Held { alone: false, ..held.clone() };
        if let Err(e) = self.late_results.put(&own) {
            tracing::warn!(task = %held.task, error = %e, "cannot write down that a task is given");
            return;
        }
        tracing::info!(task = %held.task, "a task that was begun without the hub is this node's");
        self.renewed.insert(held.key(), self.pace.now());
    }
}
