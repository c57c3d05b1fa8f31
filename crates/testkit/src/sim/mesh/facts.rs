//! What must hold, and what is remembered to see whether it does. Every write to the hub is checked
//! when it is accepted, and every node after every step; what was not written to cannot have
//! changed.
//!
//! Some faults break a promise that no rule could keep. Then a weaker one is asserted:
//! - A hub that was restored from a backup loses what nodes reported since. Nodes report again what
//!   is still on their disks; the rest is `forgiven`. Even so nothing stands on the branch twice,
//!   because the branch itself is checked.
//! - A file that a disk lost or set back takes with it what was not reported to the hub yet. The
//!   task itself is not lost.
//! - When the hub's clock is set, the length of a lease is unknown; and a leader that lost its
//!   lease by force finds that out within [`leader_lease::ACT`]. Until then it may still move the
//!   branch, once for each task, and write nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use everloop_core::ids::{Fence, NodeId, TaskId};
use everloop_core::immune::DOC;
use everloop_core::mesh::node::{BEAT, NodeStatus};
use everloop_core::mesh::work::Stage;
use everloop_core::mesh::{End, KIND, MeshLoop, leader_lease, work};
use everloop_core::op::{Amendment, Op, TaskEnd, TaskRow, TaskState};
use everloop_core::time::Time;
use everloop_store::{Ledger, Tickets};

use super::hub::Mood;
use super::node::Node;
use super::stranger::MARK;
use super::world::{World, ms};
use crate::sim::ledger::all_tasks;
use crate::sim::world::Violation;

/// A healthy node holds on to its tasks at least this often; with a margin for the call itself.
const HEALTHY: Duration = Duration::from_secs(40);
/// A free task is taken within this time by a healthy node that has nothing to do.
pub(super) const STALL: Duration = Duration::from_secs(30);
/// What two clocks that are compared now and then may differ.
const ROUGHLY: Duration = Duration::from_secs(2);

/// What is known of a task from what was accepted so far.
#[derive(Debug, Default)]
struct Known {
    fence: Fence,
    /// The result that counts.
    done: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Facts {
    pub violation: Option<Violation>,
    /// Work that was pushed, by task and content of its report, and the node that pushed it: each
    /// must be known at the end.
    pub pushed: BTreeMap<(TaskId, String), usize>,
    /// Attempts with turns that count: by which machine, when, and how many.
    pub attempted: BTreeMap<(TaskId, Fence), (usize, (u64, u64))>,
    /// Turns that attempts at this loop took, and when.
    pub calls: Vec<(u64, u64)>,
    /// Of that, what a fault took away for good.
    pub forgiven: BTreeSet<(TaskId, String)>,
    pub late_result: BTreeSet<(TaskId, Fence)>,
    known: BTreeMap<TaskId, Known>,
    /// The leader, its term, and the end of its lease.
    lease: Option<(NodeId, u64, Time)>,
    /// The term of a leader with failing actions, and since when.
    pub helpless: Option<(u64, u64)>,
    /// Until then a node may consider itself the leader although it is not.
    pub odd_lease_until: u64,
    pub ended: bool,
    /// A person wants the loop to stop.
    stop: Option<u64>,
    /// Experiments that were counted, and the champion that they led to.
    pub counted: (BTreeSet<TaskId>, Option<String>),
}

impl World {
    pub(super) fn violated(&mut self, invariant: &'static str, text: String) {
        self.trace.say(self.now, "VIOLATION", &text);
        self.facts.violation.get_or_insert(Violation { invariant, text });
    }

    /// The hub took a batch, from a node (under a term, when it writes a loop) or from a person.
    pub(super) fn after(&mut self, by: Option<(usize, Option<u64>)>, ops: &[Op]) {
        for op in ops {
            match op {
                Op::Elect { .. } | Op::Resign { .. } => self.lease_changed(op),
                Op::SaveDoc { kind, body, .. } if kind == KIND => self.wrote(by, body),
                Op::SaveDoc { kind, .. } if kind == DOC => self.does_no_harm(by.map_or(0, |(n, _)| n)),
                Op::Enqueue(task) => drop(self.facts.known.entry(task.id.clone()).or_default()),
                Op::Take { task, fence, node, .. } => {
                    self.accepted(task, *fence, Fence::next);
                    if let Some((n, None)) = by.filter(|(n, _)| self.nodes[*n].id == *node) {
                        self.was_offline(n, task, *fence);
                        self.began(n, task, *fence);
                    }
                }
                Op::Renew { task, fence, .. } | Op::Release { task, fence, .. } => {
                    self.accepted(task, *fence, |fence| fence);
                }
                Op::Finish { task, fence, state, result } => {
                    self.accepted(task, *fence, |fence| fence);
                    self.finished(task, *state, result);
                    if by.is_some_and(|(_, term)| term.is_some()) {
                        self.ended_by_the_supervisor(task);
                    }
                }
                Op::Append { events, .. } => self.count_rows(events),
                Op::Amend { task, .. } => self.amended(task),
                Op::Shelve { task, fence, .. } => drop(self.facts.late_result.insert((task.clone(), *fence))),
                _ => {}
            }
        }
    }

    /// A write was accepted that carried `fence`; it must be what follows from the one before.
    fn accepted(&mut self, task: &TaskId, fence: Fence, expected: fn(Fence) -> Fence) {
        let row = self.hub.model.peek_task(task).map(|row| row.fence);
        let known = self.facts.known.entry(task.clone()).or_default();
        let was = known.fence;
        known.fence = known.fence.max(fence);
        if fence != expected(was) || row.is_none_or(|row| row < fence) {
            let text = format!("{task} was written under fence {fence} after {was}, and stands at {row:?}");
            self.violated("I3", text);
        }
    }

    fn finished(&mut self, task: &TaskId, end: TaskEnd, result: &str) {
        let known = self.facts.known.entry(task.clone()).or_default();
        if known.done.is_some() {
            self.violated("I2", format!("{task} was completed twice"));
        } else if end == TaskEnd::Done {
            known.done = Some(result.to_owned());
        }
    }

    /// The leader ended a task that no node holds: the loop of the task must not want it.
    fn ended_by_the_supervisor(&mut self, task: &TaskId) {
        let state = &self.current_doc().1;
        if state.ended.is_none() && state.check_of(task).is_some() {
            self.violated("wanted", format!("{task} was ended, and its loop waits for it"));
        }
    }

    /// A person changed a task, or the leader called it off.
    fn amended(&mut self, task: &TaskId) {
        let row = self.hub.model.peek_task(task);
        let (fence, state) = row.map_or((Fence(0), None), |row| (row.fence, Some(row.state.clone())));
        let known = self.facts.known.entry(task.clone()).or_default();
        let (fell, done) = (fence < known.fence, known.done.is_some());
        known.fence = fence;
        if fell {
            self.violated("I3", format!("the fence of {task} fell to {fence}"));
        }
        if done && state != Some(TaskState::Done) {
            self.violated("I2", format!("{task} was done and is {state:?}"));
        }
    }

    fn lease_changed(&mut self, op: &Op) {
        let Some(leader) = self.hub.model.peek_leader() else { return };
        let now = self.time();
        if let Some((node, term, until)) = &mut self.facts.lease
            && *node == leader.node
            && *term == leader.term
        {
            let (over, granted) = (*until <= now, leader.until > now);
            *until = leader.until;
            if over && granted && matches!(op, Op::Elect { node, .. } if *node == leader.node) {
                self.violated("I4", "a leader lease was granted again under the same term".to_owned());
            }
            return;
        }
        let new = (leader.node.clone(), leader.term, leader.until);
        self.trace.say(self.now, "leads", &format!("{} {}", new.0, new.1));
        self.tally.epochs += 1;
        if let Some((node, term, until)) = self.facts.lease.replace(new.clone()) {
            if new.1 <= term {
                self.violated("I4", format!("{} leads under epoch {}, after {node} under {term}", new.0, new.1));
            } else if until > now {
                self.violated("I4", format!("{} leads, and the time of {node} is not over", new.0));
            }
        }
    }

    /// A person released the leader's row.
    pub(super) fn lease_was_forced(&mut self) {
        let now = self.time();
        if let Some((_, _, until)) = &mut self.facts.lease {
            *until = now.min(*until);
        }
        self.facts.odd_lease_until = self.now + ms(leader_lease::LEASE);
    }

    fn began(&mut self, n: usize, task: &TaskId, fence: Fence) {
        let node = &self.nodes[n];
        // A node requests a task that it began offline afterwards, with its result, under the next
        // fence.
        let is_it = |held: &work::Held| held.task == *task && (held.fence == fence || held.alone);
        let written = node.disk.held.values().any(|claim| is_it(&claim.held));
        // A request that was late finds a node that has given up on it.
        if !written && !self.faults.late {
            self.violated("written first", format!("{} took {task} and has not written that down", node.id));
            return;
        }
        if node.disk.held.values().any(|claim| claim.alone && claim.task == *task) {
            // No attempt begins: the node began or ended this one while the hub was away.
            return;
        }
        let (time, row) = (self.time(), self.hub.model.peek_task(task));
        let early = row.map_or(Duration::ZERO, |row| row.task.ready_at.since(time));
        if early > ROUGHLY && !self.setup.drift && self.now > self.hub.odd_until {
            self.violated("I6", format!("{task} was taken {} s before it is to be tried again", early.as_secs()));
        }
        if self.nodes[n].draining && !self.faults.late {
            self.violated("drained", format!("{} took {task}, and is to take nothing", self.nodes[n].id));
        }
        if self.nodes[n].frozen.is_some() && !self.faults.late {
            self.violated("shut", format!("{} took {task}, and is held", self.nodes[n].id));
        }
    }

    /// A node is given a task under a fence: what another node did under it offline is the offline
    /// allowance.
    fn was_offline(&mut self, n: usize, task: &TaskId, fence: Fence) {
        let key = (task.clone(), fence);
        if let Some((other, used)) = self.facts.attempted.get(&key).copied()
            && other != n
        {
            self.facts.attempted.remove(&key);
            self.facts.calls.retain(|call| *call != used);
        }
    }

    /// A task of a loop is about to be worked on.
    pub(super) fn works_on(&mut self, task: &TaskId) {
        if self.facts.ended {
            self.violated("over", format!("{task} is begun, and its loop is over"));
        }
    }

    /// Node and hub are well, and durations by their clocks are the same.
    pub(super) fn can_compare(&self, node: &Node) -> bool {
        let hub = self.hub.mood == Mood::Well && self.now > self.hub.odd_until;
        hub && node.is_well(self.hub.copies) && node.rate == 1000
    }

    /// A node announces its next heartbeat by the hub's clock, as it knows it: a slow answer makes
    /// that wrong by half of its time at most. Looked at where answers are slow and clocks agree.
    pub(super) fn knows_the_hubs_time(&mut self, n: usize, status: &NodeStatus) {
        let node = &self.nodes[n];
        let fair = !self.setup.answer.is_zero() && !self.setup.drift && self.can_compare(node);
        let soonest = self.time() + BEAT.mul_f64(0.9).saturating_sub(self.setup.answer / 2);
        if let Some(next) = status.next_beat.filter(|next| fair && *next < soonest) {
            let text = format!("{} beats {:?} too early", self.nodes[n].id, soonest.since(next));
            self.violated("hub clock", text);
        }
    }

    /// A write takes a task from its holder: what that breaks, should the hub allow it.
    pub(super) fn takes_away(&self, op: &Op) -> Option<Violation> {
        match op {
            Op::Take { task, .. } | Op::Amend { task, change: Amendment::Retry } => self.taken_from(task),
            _ => None,
        }
    }

    fn taken_from(&self, task: &TaskId) -> Option<Violation> {
        let row = self.hub.model.peek_task(task)?;
        let TaskState::Leased { node, .. } = &row.state else { return None };
        let holder = self.named(node).map(|n| &self.nodes[n])?;
        if !self.can_compare(holder) {
            return None;
        }
        let held = holder.disk.held.values().any(|claim| claim.task == *task);
        let (well, up) = (self.since(holder.healthy_since), self.since(self.hub.since));
        if held && well >= HEALTHY && up >= HEALTHY {
            let text = format!("{task} was taken from {node}, which is well");
            return Some(Violation { invariant: "living", text });
        }
        let soon = held && up < work::LEASE && self.hub.since > 0 && well >= up;
        let text = || format!("{task} was taken from {node} as soon as the hub was back");
        soon.then(|| Violation { invariant: "amnesty", text: text() })
    }

    /// The branch moved from one commit to another.
    pub(super) fn landed(&mut self, n: usize, task: &TaskId, before: super::git::Commit) {
        if self.git.times(task) > 1 {
            self.violated("I2", format!("{task} stands on the branch twice"));
        }
        if self.git.files(self.git.target).contains(MARK) {
            self.violated("signed", format!("{task} landed with work that no machine reported"));
        }
        if !self.git.files(before).is_subset(self.git.files(self.git.target)) {
            self.violated("forward", format!("{task} took something from the branch"));
        }
        let (time, term) = (self.time(), self.nodes[n].term);
        let leader = self.hub.model.peek_leader();
        let leads = leader.is_some_and(|l| Some(l.term) == term && l.node == self.nodes[n].id && l.until > time);
        let odd = self.now <= self.hub.odd_until || self.now <= self.facts.odd_lease_until;
        if !leads && self.nodes[n].rate == 1000 && !odd {
            self.violated("I4", format!("{} moved the branch under term {term:?}, which is over", self.nodes[n].id));
        }
    }

    fn wrote(&mut self, by: Option<(usize, Option<u64>)>, body: &str) {
        let state = MeshLoop::read(body).expect("it was written by us");
        self.versions = None;
        if state.id != self.current.id {
            return;
        }
        if let Some((n, term)) = by {
            let (time, leader) = (self.time(), self.hub.model.peek_leader());
            let own = |l: &&everloop_store::Leader| l.node == self.nodes[n].id && Some(l.term) == term;
            if leader.filter(own).is_none_or(|l| l.until <= time) {
                self.violated("I4", format!("{} wrote under epoch {term:?}, which is over", self.nodes[n].id));
            }
        }
        if self.facts.stop == Some(self.current.number) && !state.stop {
            self.violated("stop", "somebody wanted the loop to stop, and that was forgotten".to_owned());
        }
        self.facts.stop = state.stop.then_some(self.current.number);
        if let Some(landed) = state.landed.iter().find(|landed| self.git.times(&landed.task) == 0) {
            self.violated("landed", format!("{} is written as landed, and does not stand on the branch", landed.task));
        }
        let checks: BTreeSet<&str> = state.open.iter().map(|open| open.check.as_str()).collect();
        if checks.len() != state.open.len() && self.setup.experiments == 0 {
            self.violated("one task", format!("two tasks for one check: {:?}", state.open));
        }
        if state.ended.is_some() && !self.facts.ended {
            self.ended();
            let goes_on = |task: &TaskId| {
                let row = self.hub.model.peek_task(task);
                row.is_some_and(|row| matches!(row.state, TaskState::Queued | TaskState::Leased { .. }))
            };
            if let Some(open) = state.open.iter().find(|open| goes_on(&open.task)) {
                self.violated("over", format!("the loop is over, and {} is not called off", open.task));
            }
            if state.ended == Some(End::Reached) && !self.board(self.git.target).all_pass() {
                self.violated("false success", format!("{:?}", self.git.files(self.git.target)));
            }
        }
    }

    /// A node may take tasks that are free for it since then: none may have waited for long.
    pub(super) fn waited(&mut self, n: usize, since: Time) {
        let at = self.moment(since);
        let node = &self.nodes[n];
        let stall = self.since(node.idle_since.max(node.healthy_since).max(self.hub.since).max(at));
        let fair =
            !self.setup.drift && node.cut.is_none() && self.now > self.hub.odd_until && self.hub.mood == Mood::Well;
        if !fair {
            return;
        }
        self.tally.longest_stall = self.tally.longest_stall.max(stall);
        if stall > STALL {
            self.violated("I5", format!("a free task waited {} s for {}", stall.as_secs(), self.nodes[n].id));
        }
    }

    pub(super) fn after_step(&mut self, n: usize) {
        let node = &self.nodes[n];
        // Finished attempts that wait to be reported are no work any more; there are never more of
        // them than open tasks.
        let busy = node.disk.held.values().filter(|claim| claim.stage == Stage::Working).count();
        if busy > node.slots {
            self.violated("I9", format!("{} holds {:?}", node.id, node.disk.held.keys()));
        }
        self.keeps_nothing(n);
    }

    /// The hub was restored from a backup: what nodes reported since is lost, unless it still
    /// stands on a disk.
    pub(super) fn forgive(&mut self) {
        let held = |n: usize, which: &str| {
            let node = &self.nodes[n];
            node.disk.held.values().any(|claim| *which == format!("{} {}", node.id, claim.key))
        };
        let gone = self.facts.pushed.iter().filter(|((_, which), n)| !held(**n, which)).map(|(k, _)| k.clone());
        let gone: Vec<_> = gone.collect();
        self.facts.forgiven.extend(gone);
        let known = |row: TaskRow| {
            let done = row.result.filter(|_| row.state == TaskState::Done);
            (row.task.id, Known { fence: row.fence, done })
        };
        self.facts.known = all_tasks(&self.hub.model).into_iter().map(known).collect();
        self.facts.lease = self.hub.model.peek_leader().map(|l| (l.node.clone(), l.term, l.until));
        self.facts.odd_lease_until = self.now + ms(leader_lease::LEASE);
        self.facts.stop = None;
        self.docs.clear();
        self.versions = None;
        self.fleet = None;
        let state = self.state();
        self.facts.stop = state.stop.then_some(self.current.number);
        self.recount(&state);
        if state.ended.is_none() && self.facts.ended {
            self.goes_on();
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
            Some(End::Stopped) if state.stop => {}
            Some(End::Exhausted { bound }) if bound == "turns" => self.all_were_made(&state),
            Some(End::Exhausted { .. }) if self.limits.calls.is_some_and(|most| state.spent.calls >= most) => {}
            other => self.violated("I5", format!("the loop did not end: {other:?}, open {:?}", state.open)),
        }
        self.all_is_known();
        for row in all_tasks(&self.hub.model) {
            if matches!(row.state, TaskState::Queued | TaskState::Leased { .. }) {
                self.violated("I1", format!("{} is still {}", row.task.id, row.state.label()));
            }
        }
        if let Some(ticket) = self.hub.model.tickets(Tickets::Open).expect("the model answers").first() {
            self.violated("answered", format!("`{}` is open, and people answered it", ticket.key));
        }
        let busy = |node: &&super::node::Node| !node.is_quiet();
        if let Some(node) = self.nodes.iter().find(busy) {
            let text = format!("{} still works on {:?}", node.id, node.disk.held.keys());
            self.violated("I7", text);
        }
    }

    /// Each result is counted or among the late results.
    fn all_is_known(&mut self) {
        let pushed: Vec<_> = self.facts.pushed.keys().cloned().collect();
        for (task, which) in pushed {
            let row = self.hub.model.peek_task(&task);
            let counted = row.and_then(|row| row.result.as_ref()).is_some_and(|result| result.contains(&which));
            let late_results = || self.hub.model.late_results(&task).expect("the model answers");
            let known = counted || late_results().iter().any(|late| late.result.contains(&which));
            // A hub that was restored from a backup may never have known the task.
            let failed = row.is_none() && self.hub.copies > 0;
            if !known && !failed && !self.facts.forgiven.contains(&(task.clone(), which.clone())) {
                self.violated("I1", format!("what came of {task} ({which}) is neither counted nor a late result"));
            }
        }
    }
}
