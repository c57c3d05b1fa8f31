//! What must hold, and what is remembered to see whether it does.

use std::collections::BTreeSet;
use std::time::Duration;

use everloop_core::ids::TaskId;
use everloop_core::mesh::{End, MeshLoop};
use everloop_core::op::TaskState;
use everloop_store::{Ledger, Owner, TaskFilter};

use super::world::World;
use crate::sim::world::Violation;

/// A healthy node holds on to its tasks at least this often; with a margin for the call itself.
const HEALTHY: Duration = Duration::from_secs(40);
/// A free task is taken within this time by a healthy node that has nothing to do.
const STALL: Duration = Duration::from_secs(30);

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub violation: Option<Violation>,
    pub longest_stall: Duration,
    /// Work that was pushed, by task and what its report says: each must be heard of at the end.
    pub pushed: BTreeSet<(TaskId, String)>,
    /// Turns that attempts took, and when.
    pub calls: Vec<(u64, u64)>,
    /// The loop is over.
    pub ended: bool,
    pub epochs: u64,
    pub last_epoch: u64,
}

impl World {
    pub(super) fn violated(&mut self, invariant: &'static str, text: String) {
        self.trace.say(self.now, "VIOLATION", &text);
        self.facts.violation.get_or_insert(Violation { invariant, text });
    }

    /// Somebody took a task from its holder.
    pub(super) fn taken_from(&mut self, task: &TaskId) {
        let row = self.hub.task(task).expect("the model answers");
        let Some(TaskState::Leased { node, .. }) = row.map(|row| row.state) else { return };
        let Some(holder) = self.nodes.iter().find(|n| n.id == node) else { return };
        let fit = holder.alive && !holder.paused && !holder.cut && self.hub_up && holder.rate == 1000;
        if !fit {
            return;
        }
        let held = holder.held.values().any(|held| held.task == *task);
        let (well, up) = (self.since(holder.healthy_since), self.since(self.hub_since));
        if held && well >= HEALTHY && up >= HEALTHY {
            self.violated("living", format!("{task} was taken from {node}, which is well"));
        } else if held && up < everloop_core::mesh::work::LEASE && self.hub_since > 0 && well >= up {
            self.violated("amnesty", format!("{task} was taken from {node} as soon as the hub was back"));
        }
    }

    /// The branch moved.
    pub(super) fn landed(&mut self, node: usize, epoch: u64, task: &TaskId) {
        if self.git.landed.iter().filter(|t| *t == task).count() > 1 {
            self.violated("I2", format!("{task} stands on the branch twice"));
        }
        let leader = self.hub.leader().expect("the model answers");
        let leads = leader.is_some_and(|l| l.epoch == epoch && l.node == self.nodes[node].id && l.until > self.time());
        if !leads && self.nodes[node].rate == 1000 {
            self.violated("I4", format!("{} moved the branch under epoch {epoch}, which is over", self.nodes[node].id));
        }
    }

    /// A loop was written.
    pub(super) fn wrote(&mut self, node: usize, epoch: u64, state: &MeshLoop) {
        let leader = self.hub.leader().expect("the model answers").expect("somebody wrote");
        if leader.epoch != epoch || leader.node != self.nodes[node].id || leader.until <= self.time() {
            self.violated("I4", format!("{} wrote under epoch {epoch}, which is over", self.nodes[node].id));
        }
        let checks: BTreeSet<&str> = state.open.iter().map(|open| open.check.as_str()).collect();
        if checks.len() != state.open.len() {
            self.violated("one task", format!("two tasks for one check: {:?}", state.open));
        }
        self.facts.ended |= state.ended.is_some();
        if state.ended == Some(End::Reached) {
            let files = self.git.files(self.git.target).len() as u64;
            if files != self.setup.checks {
                self.violated("false success", format!("{files} of {} checks pass", self.setup.checks));
            }
        }
    }

    /// A node takes a free task that waited since `free`, by the hub's clock.
    pub(super) fn took(&mut self, node: usize, free: u64) {
        // When the hub was away, nodes take tasks one after the other.
        let turn = u64::try_from(self.nodes[node].claim_at.0).unwrap_or(0);
        let begun =
            self.nodes[node].idle_since.max(turn).max(self.nodes[node].healthy_since).max(self.hub_since).max(free);
        let stall = self.since(begun);
        self.facts.longest_stall = self.facts.longest_stall.max(stall);
        if stall > STALL && !self.setup.drift {
            self.violated("I5", format!("a free task waited {} s for {}", stall.as_secs(), self.nodes[node].id));
        }
    }

    /// Everything was mended and there was time enough.
    pub(super) fn at_the_end(&mut self) {
        let state = self.state();
        match &state.ended {
            Some(End::Reached) => {}
            Some(End::GivenUp { checks }) => {
                if let Some(early) = checks.iter().find(|c| state.tried.get(*c) != Some(&state.spec.attempts)) {
                    self.violated("I5", format!("`{early}` was given up early: {:?}", state.tried));
                }
            }
            Some(End::Exhausted { .. }) if self.limits.calls.is_some_and(|most| state.spent.calls >= most) => {}
            other => self.violated("I5", format!("the loop did not end: {other:?}, open {:?}", state.open)),
        }
        for (task, which) in self.facts.pushed.clone() {
            let row = self.hub.task(&task).expect("the model answers");
            let counted = row.and_then(|row| row.result).is_some_and(|result| result.contains(&which));
            let shelf = self.hub.shelf(&task).expect("the model answers");
            if !counted && !shelf.iter().any(|late| late.result.contains(&which)) {
                self.violated("I1", format!("what came of {task} ({which}) is neither counted nor shelved"));
            }
        }
        let all = TaskFilter { owner: Owner::Any, states: Vec::new(), limit: usize::MAX };
        for row in self.hub.tasks(&all).expect("the model answers") {
            if matches!(row.state, TaskState::Queued | TaskState::Leased { .. }) {
                self.violated("I1", format!("{} is still {}", row.task.id, row.state.label()));
            }
        }
        if let Some(node) =
            self.nodes.iter().find(|node| !node.held.is_empty() || node.loops.values().any(|l| l.over.is_none()))
        {
            let text = format!("{} still works on {:?}", node.id, node.held.keys());
            self.violated("I7", text);
        }
    }
}
