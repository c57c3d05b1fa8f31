//! What the leader sets right every minute: tasks that no open loop looks after, work that no node
//! takes, and nodes that missed their announced sign of life. What a loop looks after itself
//! ([`super::leader`]) stays untouched.
//!
//! - [`plan`]: what is to be done, from tasks that rest for long, the loops and the nodes
//! - [`ReconcileNotes`]: what was reported already, a document of the hub, so that the next leader
//!   does not report it again
//! - `wakes`: nodes that fell silent, and nodes that are back

mod wakes;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use wakes::{Sign, Silence};

use super::leader::{A_MOMENT, LeaderTerm};
use super::offline::DOWN;
use super::{MeshLoop, TaskReport};
use crate::event::Event;
use crate::ids::{LoopId, NodeId, TaskId};
use crate::op::{Amendment, Op, TaskEnd, TaskRow, TaskState};
use crate::planted::{self, Bug};
use crate::time::{Time, human};

/// Between two runs.
pub const EVERY: Duration = Duration::from_secs(60);
/// Kind and key of the document with the notes.
pub const KIND: &str = "reconcile";
/// Key of the document; for its kind see [`KIND`].
pub const KEY: &str = "book";
/// Version of the notes. A newer one is refused, never guessed at.
const VERSION: u32 = 1;
/// Tasks that are set right in one run: a batch has to be done within seconds, and the next run is
/// a minute away.
const AT_ONCE: usize = 100;
/// Nodes that a ticket names.
const NAMED: usize = 8;

/// How long things are left as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconcileTimeouts {
    /// A claim with an expired lease that no open loop looks after.
    pub orphan: Duration,
    /// A task in the queue that no open loop wants.
    pub stray: Duration,
    /// A task in the queue that its loop wants and no node takes.
    pub stalled: Duration,
    /// A node that missed its announced sign of life.
    pub down: Duration,
}

impl ReconcileTimeouts {
    /// The usual one, in another measure of time.
    pub fn new(real: impl Fn(Duration) -> Duration) -> Self {
        let minutes = |n: u64| real(Duration::from_secs(n * 60));
        Self { orphan: minutes(10), stray: minutes(15), stalled: minutes(24 * 60), down: real(DOWN) }
    }

    /// Whether a task rests for so long that there may be something to set right about it.
    pub fn is_over(&self, row: &TaskRow, now: Time) -> bool {
        match &row.state {
            TaskState::Leased { until, .. } => *until + self.orphan <= now || planted::is(Bug::ReconcilesTheLiving),
            TaskState::Queued => row.updated_at + self.stray <= now,
            TaskState::Done | TaskState::Dead | TaskState::Blocked => false,
        }
    }
}

/// A loop, as far as a leader has to know it between two looks.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// It goes on.
    Open(Box<MeshLoop>),
    /// It is over; then what is still set aside for attempts is taken for used.
    Over(Option<Time>),
    /// A newer everloop wrote it, or it is damaged: nothing is done about its tasks.
    Unreadable,
}

impl Known {
    /// The view of a loop's document.
    pub fn of(state: MeshLoop) -> Self {
        if state.ended.is_some() { Known::Over(state.settles_at()) } else { Known::Open(Box::new(state)) }
    }
}

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub struct ReconcileView<'a> {
    pub leader_term: &'a LeaderTerm,
    /// Every loop that the hub knows, read before the tasks.
    pub loops: &'a BTreeMap<LoopId, Known>,
    /// Tasks that rest for long; others are not looked at.
    pub rows: &'a [TaskRow],
    /// The nodes but those that were removed.
    pub nodes: &'a [Sign],
    /// How long things are left as they are.
    pub timeouts: ReconcileTimeouts,
    /// By the hub's clock.
    pub now: Time,
}

/// What was reported already.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconcileNotes {
    version: u32,
    /// Nodes that are silent.
    #[serde(default)]
    pub silent: BTreeMap<NodeId, Silence>,
    /// Loops with a ticket about their waiting tasks, and when it was opened.
    #[serde(default)]
    asked: BTreeMap<LoopId, Time>,
}

impl ReconcileNotes {
    /// Reads the document, refusing what a newer everloop wrote.
    pub fn read(body: &str) -> Result<Self, String> {
        let reconcile_notes: Self = serde_json::from_str(body).map_err(|e| e.to_string())?;
        if reconcile_notes.version > VERSION {
            return Err(format!(
                "format {} is newer than this everloop understands ({VERSION})",
                reconcile_notes.version
            ));
        }
        Ok(reconcile_notes)
    }
}

/// How a task is set right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Put it back into the queue, for any node.
    GiveBack,
    /// It is over.
    End,
}

/// A task that is set right.
#[derive(Clone, Debug, PartialEq)]
pub struct Repair {
    pub task: TaskId,
    pub remedy: Remedy,
    ops: Vec<Op>,
}

/// What is to be done, in one transaction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReconcilePlan {
    /// The notes after this plan.
    pub reconcile_notes: ReconcileNotes,
    /// Tasks that are set right.
    pub repairs: Vec<Repair>,
    /// Nodes that missed their announced sign of life, for the first time in this silence.
    pub missed: Vec<NodeId>,
    /// Nodes that are back after a silence.
    pub heard: Vec<NodeId>,
    tickets: Vec<Op>,
    notes: Vec<String>,
}

impl ReconcilePlan {
    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.repairs.is_empty() && self.tickets.is_empty() && self.notes.is_empty()
    }

    /// Leaves this task out: another writer was faster.
    pub fn leave_out(&mut self, task: &TaskId) {
        self.repairs.retain(|repair| repair.task != *task);
    }

    /// The journal's entries: one sentence about tasks and tickets, and one for each node.
    pub fn said(&self) -> Vec<String> {
        let of = |remedy: Remedy| self.repairs.iter().filter(|repair| repair.remedy == remedy).count();
        let opened = self.tickets.iter().filter(|op| matches!(op, Op::OpenTicket { .. })).count();
        let parts = [
            (of(Remedy::GiveBack), "claims without a holder given back"),
            (of(Remedy::End), "tasks ended that no loop wants"),
            (opened, "loops with tasks that no node takes"),
            (self.tickets.len() - opened, "of them go on"),
        ];
        let parts = parts.into_iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts.map(|(count, what)| format!("{count} {what}")).collect();
        let sum = (!parts.is_empty()).then(|| format!("reconciled: {}", parts.join(", ")));
        sum.into_iter().chain(self.notes.iter().cloned()).collect()
    }

    /// All operations of the plan, provided that no other write to the notes happened since
    /// `version`.
    pub fn batch(&self, leader_term: &LeaderTerm, version: u64) -> Vec<Op> {
        let events = self.said().into_iter().map(|text| Event::Note { text }).collect();
        let body =
            serde_json::to_string(&self.reconcile_notes).expect("notes are plain data and always have a JSON form");
        let save = Op::SaveDoc { kind: KIND.to_owned(), key: KEY.to_owned(), version, body };
        let repairs = self.repairs.iter().flat_map(|repair| &repair.ops).chain(&self.tickets).cloned();
        leader_term.batch(repairs.chain([save, Op::Append { owner: None, events }]))
    }
}

/// What is to be done. After it was done, the plan is empty.
pub fn plan(reconcile_notes: &ReconcileNotes, look: &ReconcileView<'_>) -> ReconcilePlan {
    let mut plan = ReconcilePlan {
        reconcile_notes: ReconcileNotes { version: VERSION, ..reconcile_notes.clone() },
        ..ReconcilePlan::default()
    };
    plan.repairs = look.rows.iter().filter_map(|row| look.repair(row)).take(AT_ONCE).collect();
    look.ask_people(&mut plan);
    wakes::listen(look, &mut plan);
    plan
}

/// Whether a loop looks after a task.
enum TaskOwnership {
    /// An open loop looks after it, or its loop is unreadable.
    Wanted,
    /// It never had a loop.
    Nobodys,
    /// An open loop does not know it.
    Unknown(&'static str),
    /// Its loop is over or was never there.
    Left(&'static str),
}

impl ReconcileView<'_> {
    fn ownership(&self, row: &TaskRow) -> TaskOwnership {
        let Some(owner) = &row.task.owner else { return TaskOwnership::Nobodys };
        match self.loops.get(owner) {
            Some(Known::Open(state)) => {
                let knows = state.check_of(&row.task.id).is_some() && !planted::is(Bug::EndsWantedTasks);
                if knows { TaskOwnership::Wanted } else { TaskOwnership::Unknown("its loop does not know it") }
            }
            Some(Known::Unreadable) => TaskOwnership::Wanted,
            Some(Known::Over(_)) => TaskOwnership::Left("its loop is over"),
            None => TaskOwnership::Left("the hub knows no such loop"),
        }
    }

    fn is_silent(&self, node: &NodeId) -> bool {
        let sign = self.nodes.iter().find(|sign| sign.node == *node);
        sign.is_none_or(|sign| self.now.since(sign.seen_at) >= self.timeouts.down)
    }

    fn repair(&self, row: &TaskRow) -> Option<Repair> {
        if !self.timeouts.is_over(row, self.now) {
            return None;
        }
        match (&row.state, self.ownership(row)) {
            (TaskState::Leased { .. }, _) if planted::is(Bug::ReconcilesTheLiving) => {
                let retry = Op::Amend { task: row.task.id.clone(), change: Amendment::Retry };
                Some(Repair { task: row.task.id.clone(), remedy: Remedy::GiveBack, ops: vec![retry] })
            }
            (TaskState::Leased { node, .. }, TaskOwnership::Nobodys) => {
                self.is_silent(node).then(|| self.give_back(row))
            }
            (TaskState::Leased { .. }, TaskOwnership::Unknown(_)) => Some(self.give_back(row)),
            (TaskState::Leased { .. } | TaskState::Queued, TaskOwnership::Left(why))
            | (TaskState::Queued, TaskOwnership::Unknown(why)) => Some(self.end(row, why)),
            _ => None,
        }
    }

    /// Takes a task under the next fence; void if a node claimed the task, or its holder wrote,
    /// meanwhile.
    fn take(&self, row: &TaskRow) -> Op {
        let (task, node) = (row.task.id.clone(), self.leader_term.node.clone());
        Op::Take { task, fence: row.fence.next(), node, lease: A_MOMENT }
    }

    fn give_back(&self, row: &TaskRow) -> Repair {
        let (task, fence) = (row.task.id.clone(), row.fence.next());
        let release = Op::Release { task: task.clone(), fence, ready_at: Time::default(), failed: false };
        Repair { task, remedy: Remedy::GiveBack, ops: vec![self.take(row), release] }
    }

    fn end(&self, row: &TaskRow, why: &str) -> Repair {
        let (task, fence) = (row.task.id.clone(), row.fence.next());
        let result = TaskReport::nothing(&self.leader_term.node, fence, why).to_json();
        let finish = Op::Finish { task: task.clone(), fence, state: TaskEnd::Dead, result };
        // What waits for other tasks cannot be taken.
        let waits = row.state == TaskState::Queued && !row.task.deps.is_empty();
        let ops = if waits {
            vec![Op::Amend { task: task.clone(), change: Amendment::Cancel }]
        } else {
            vec![self.take(row), finish]
        };
        Repair { task, remedy: Remedy::End, ops }
    }

    /// A task that its loop wants and that no node takes for a day needs a person; it is never
    /// ended.
    fn ask_people(&self, plan: &mut ReconcilePlan) {
        let asked = std::mem::take(&mut plan.reconcile_notes.asked);
        let is_there = self.nodes.iter().any(|sign| !sign.leaves && !self.is_silent(&sign.node));
        for (id, known) in self.loops {
            let Known::Open(state) = known else { continue };
            let Some((row, since)) = self.stalled(state) else { continue };
            let due = asked.get(id).is_none_or(|at| self.now.since(*at) >= self.timeouts.stalled);
            match asked.get(id) {
                _ if due && is_there => {
                    let text = self.why_not(state, row, since);
                    plan.tickets.push(Op::OpenTicket { key: key(id), owner: Some(id.clone()), text });
                    plan.reconcile_notes.asked.insert(id.clone(), self.now);
                }
                Some(at) => drop(plan.reconcile_notes.asked.insert(id.clone(), *at)),
                None => {}
            }
        }
        for id in asked.keys().filter(|id| !plan.reconcile_notes.asked.contains_key(*id)) {
            let answer = "its tasks are taken again, or not wanted any more".to_owned();
            plan.tickets.push(Op::CloseTicket { key: key(id), answer });
        }
    }

    /// The task of a loop that waits longest, if it does so for too long.
    fn stalled(&self, state: &MeshLoop) -> Option<(&TaskRow, Duration)> {
        let waits = |row: &&TaskRow| row.state == TaskState::Queued && state.check_of(&row.task.id).is_some();
        let waits = self.rows.iter().filter(waits).map(|row| (row, row.updated_at.max(row.task.ready_at)));
        let (row, since) = waits.min_by_key(|(_, since)| *since)?;
        let since = self.now.since(since);
        (since >= self.timeouts.stalled).then_some((row, since))
    }

    /// Why no node takes a task, as far as that is known.
    fn why_not(&self, state: &MeshLoop, row: &TaskRow, since: Duration) -> String {
        let mut known = Vec::new();
        if state.reservation(&row.task.id, row.fence.next()).is_none() {
            let rule = state.waits.as_ref().map_or(String::new(), |reason| format!(" [{}]", reason.rule));
            known.push(format!("nothing is set aside for it{rule}"));
        }
        let there = self.nodes.iter().filter(|sign| !sign.leaves && !self.is_silent(&sign.node));
        known.extend(there.take(NAMED).map(|sign| match sign {
            Sign { drains: true, node, .. } => format!("{node} takes nothing more"),
            Sign { holds: 0, node, .. } => format!("{node} holds nothing"),
            Sign { holds, node, .. } => format!("{node} holds {holds}"),
        }));
        format!(
            "no node takes task {} of loop {} for {}: {}; `everloop mesh show {}` shows more",
            row.task.id,
            state.id,
            human(since),
            known.join(", "),
            state.id
        )
    }
}

/// The cause of a ticket about a loop with tasks that no node takes; it weighs as much as a local
/// loop that does not go on.
fn key(id: &LoopId) -> String {
    format!("stalled:{id}")
}

#[cfg(test)]
mod tests;
