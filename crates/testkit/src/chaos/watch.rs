//! Watches a mesh through its hub: progress, available work, and how long nothing moved although
//! something could.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use everloop_core::ids::TaskId;
use everloop_core::mesh::{KIND, MeshLoop};
use everloop_core::op::{TaskRow, TaskState};
use everloop_store::{Error, Ledger, Postgres, TaskFilter, TaskOwner};

/// More tasks than any run creates.
pub const ALL: usize = 100_000;

/// Loops that run at once.
const LOOPS: usize = 3;

/// A snapshot of the hub.
pub struct HubSnapshot {
    pub loops: Vec<MeshLoop>,
    pub tasks: Vec<TaskRow>,
}

impl HubSnapshot {
    pub fn new(hub: &Postgres) -> Result<Self, Error> {
        let docs = hub.docs(KIND)?;
        let loops = docs.iter().map(|doc| MeshLoop::read(&doc.body).expect("our own version wrote it")).collect();
        let tasks = hub.tasks(&TaskFilter { owner: TaskOwner::Any, states: Vec::new(), limit: ALL })?;
        Ok(Self { loops, tasks: tasks.into_iter().filter(|row| row.task.owner.is_some()).collect() })
    }

    /// Whether to add one more loop: fewer tasks than `backlog` wait, earlier loops have begun, and
    /// not too many are running.
    pub fn is_hungry(&self, backlog: usize) -> bool {
        let queued = self.tasks.iter().filter(|row| row.state == TaskState::Queued).count();
        let open: Vec<&MeshLoop> = self.loops.iter().filter(|state| state.ended.is_none()).collect();
        queued < backlog && open.len() < LOOPS && open.iter().all(|state| state.made > 0)
    }

    /// Whether all loops are over.
    pub fn is_over(&self) -> bool {
        self.loops.iter().all(|state| state.ended.is_some())
    }

    /// Whether a node could work now: leased tasks do not count.
    pub fn has_work(&self) -> bool {
        let free = |task: &TaskId| {
            let row = self.tasks.iter().find(|row| row.task.id == *task);
            row.is_some_and(|row| matches!(row.state, TaskState::Queued | TaskState::Done))
        };
        let open = |state: &MeshLoop| state.judged.is_none() || state.open.iter().any(|open| free(&open.task));
        self.loops.iter().any(|state| state.ended.is_none() && open(state))
    }

    /// Overall progress: differs when anything was started, finished or merged.
    fn standing(&self) -> Standing {
        let tasks = self.tasks.iter().map(|row| (row.task.id.clone(), (row.fence.0, row.state.label()))).collect();
        let landed = self.loops.iter().map(|state| state.landed_count).sum();
        (tasks, landed, self.loops.iter().filter(|state| state.judged.is_some()).count())
    }
}

/// States and fences of tasks, how many landed, and how many loops have verdicts of their checks.
type Standing = (BTreeMap<TaskId, (u64, &'static str)>, u32, usize);

/// Measures how long nothing moved in the fleet although something could have.
pub struct ChaosWatch {
    last: Option<Standing>,
    /// When something moved last, or when it first could.
    since: Instant,
    seen: Instant,
    /// How long something could have moved, in all.
    pub able: Duration,
    /// The longest time in which it did not.
    pub longest: Duration,
    /// When that ended.
    pub longest_at: Instant,
}

impl ChaosWatch {
    /// Before the first snapshot.
    pub fn new() -> Self {
        let now = Instant::now();
        Self { last: None, since: now, seen: now, able: Duration::ZERO, longest: Duration::ZERO, longest_at: now }
    }

    /// No progress is possible: the hub is down, or no node is healthy.
    pub fn pause(&mut self) {
        (self.since, self.seen) = (Instant::now(), Instant::now());
    }

    /// A node is healthy and the hub is up, with this snapshot.
    pub fn see(&mut self, sight: &HubSnapshot) {
        let (now, standing) = (Instant::now(), Some(sight.standing()));
        self.able += now - self.seen;
        self.seen = now;
        let stalled = now - self.since;
        if stalled > self.longest {
            (self.longest, self.longest_at) = (stalled, now);
        }
        if standing != self.last || !sight.has_work() {
            self.since = now;
        }
        self.last = standing;
    }
}

impl Default for ChaosWatch {
    fn default() -> Self {
        Self::new()
    }
}
