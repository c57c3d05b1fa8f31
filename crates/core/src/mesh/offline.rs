//! What a node does while the hub is away: it goes on with what it holds, and begins free tasks
//! that are its own by rendezvous hashing over the last known members. Members with the same
//! knowledge begin different tasks. When the hub is back, the node claims them there, and the hub
//! decides whether they count.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::MeshLoop;
use super::work::{Held, Stage, is_free, weight};
use crate::ids::NodeId;
use crate::op::TaskRow;
use crate::planted::{self, Bug};
use crate::time::Time;

/// A hub that does not answer for so long…
pub const AWAY: Duration = Duration::from_secs(15);
/// …and so many calls is away: a restart is not worth it, because another node may still reach
/// it.
pub const AWAY_CALLS: u32 = 3;
/// A node without a sign of life for so long is no member.
pub const DOWN: Duration = Duration::from_secs(45);
/// After the hub was away, nodes take tasks again one after the other within this time.
pub const SPREAD: Duration = Duration::from_secs(25);

/// What a node remembers of the hub.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Replica {
    /// Live nodes that took tasks, including the node itself.
    pub members: Vec<NodeId>,
    /// Tasks that were free.
    pub free: Vec<TaskRow>,
    pub loops: Vec<MeshLoop>,
}

/// A node as the hub shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub node: NodeId,
    /// When it last gave a sign of life.
    pub at: Time,
    /// It takes nothing more.
    pub drains: bool,
}

/// Nodes with a recent sign of life that take tasks. `own` gave its sign of life just now, which
/// yields the hub's current time.
pub fn members(own: &NodeId, seen: &[Seen], down: Duration) -> Vec<NodeId> {
    let now = seen.iter().find(|row| row.node == *own).map_or(Time::default(), |row| row.at);
    let there = seen.iter().filter(|row| now.since(row.at) < down && !row.drains);
    let mut members: Vec<NodeId> = there.map(|row| row.node.clone()).collect();
    members.sort();
    members
}

impl Replica {
    /// Whether these are the free tasks that it knows.
    pub fn is_of(&self, free: &[TaskRow]) -> bool {
        let known = |row: &TaskRow| self.free.iter().any(|r| r.task.id == row.task.id && r.fence == row.fence);
        free.len() == self.free.len() && free.iter().all(known)
    }

    /// The loop of a task.
    pub fn loop_of(&self, row: &TaskRow) -> Option<&MeshLoop> {
        self.loops.iter().find(|state| Some(&state.id) == row.task.owner.as_ref())
    }

    /// Whether there is a reservation for the next attempt at a task. Also true when its loop is
    /// not known, or does not want the task any more: the node that takes it then ends it.
    pub fn is_reserved(&self, row: &TaskRow) -> bool {
        let reserved = |state: &MeshLoop| {
            let wanted = state.ended.is_none() && state.check_of(&row.task.id).is_some();
            !wanted || state.reservation(&row.task.id, row.fence.next()).is_some()
        };
        planted::is(Bug::TakesFromTheLiving) || self.loop_of(row).is_none_or(reserved)
    }

    /// What `node` begins by itself, up to `room` tasks besides those that it has. `now` is the
    /// hub's time.
    pub fn pick(&self, node: &NodeId, has: &[Held], room: usize, now: Time) -> Vec<Held> {
        let own = |row: &&TaskRow| {
            is_free(row, now)
                && (self.is_own(node, row) || planted::is(Bug::BeginsWhatIsOthers))
                && !has.iter().any(|held| held.task == row.task.id)
        };
        let begin = |row: &TaskRow| {
            let (state, fence) = (self.loop_of(row)?, row.fence.next());
            // Without a reservation, or while the checks were running, it waits for the hub.
            state.judged.as_ref()?;
            state.reservation(&row.task.id, fence)?;
            let goes_on = state.ended.is_none() && !state.stop;
            let (task, owner) = (row.task.id.clone(), state.id.clone());
            goes_on.then_some(Held { task, fence, owner, stage: Stage::Working, alone: true })
        };
        let mut rows: Vec<&TaskRow> = self.free.iter().filter(own).collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.task.priority), row.created_at));
        rows.into_iter().filter_map(begin).take(room).collect()
    }

    fn is_own(&self, node: &NodeId, row: &TaskRow) -> bool {
        let own = weight(node, &row.task.id);
        self.members.iter().all(|member| member == node || weight(member, &row.task.id) > own)
    }

    /// How long `node` waits with its first task when the hub is back: the first member not at all.
    pub fn turn_of(&self, node: &NodeId) -> Duration {
        let before = self.members.iter().filter(|member| *member < node).count();
        SPREAD.mul_f64(before as f64 / self.members.len().max(1) as f64)
    }
}

/// Whether the hub can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The first call that was not answered, if the last one was not.
    since: Option<Time>,
    failures: u32,
}

impl Line {
    /// A call that was sent at `at` was not answered.
    pub fn failed(&mut self, at: Time) {
        self.since.get_or_insert(at);
        self.failures += 1;
    }

    /// A call was answered. Whether the hub had been away.
    pub fn answered(&mut self, now: Time) -> bool {
        std::mem::take(self).is_away(now)
    }

    /// Whether the last call was not answered.
    pub fn is_broken(&self) -> bool {
        self.since.is_some()
    }

    /// Whether the node is on its own.
    pub fn is_away(&self, now: Time) -> bool {
        self.failures >= AWAY_CALLS && self.since.is_some_and(|since| now.since(since) >= AWAY)
    }
}
