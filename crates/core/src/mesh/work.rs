//! What a node does with the tasks of the mesh: which it takes, and what it does next about one
//! that it has.
//!
//! A node works on a task as on a loop of its own, in its own ledger. So what it did is durable
//! before the hub knows of it, and a node without a hub goes on with what it has. The hub decides
//! by the fence whether a result counts.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{MeshLoop, TaskReport};
use crate::ids::{Fence, LoopId, NodeId, TaskId};
use crate::jitter::mix;
use crate::op::{Op, TaskEnd, TaskRow, TaskState};
use crate::planted::{self, Bug};
use crate::reason::Reason;
use crate::spec::{Bounds, LoopSpec};
use crate::time::Time;

/// Kind of the documents, in a node's own ledger, about what it holds.
pub const KIND: &str = "held";
/// For how long a task is held without a word.
pub const LEASE: Duration = Duration::from_secs(90);
/// Between two words.
pub const RENEW: Duration = Duration::from_secs(20);
/// Before a task that came to nothing is tried again.
pub const RETRY_DELAY: Duration = Duration::from_secs(10);
/// Failed attempts of a task, after which a person has to look at it: on two nodes at least,
/// because one node may be the reason itself.
pub const POISON: u32 = 3;
/// So many failed attempts are enough also when no other node tried.
pub const POISON_ANYHOW: u32 = 2 * POISON;

/// For how long a node keeps what is left of a finished attempt: its loop, clone and folders.
pub const KEPT: Duration = Duration::from_secs(24 * 3600);

/// The loop of the mesh for which this loop of a node works on a task; `None` for a loop of the
/// node's own.
pub fn mesh_loop_of(local: &LoopId) -> Option<LoopId> {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (task, fence) = local.as_str().strip_prefix("m-")?.rsplit_once('-')?;
    let (owner, task) = task.rsplit_once('-')?;
    (number(fence) && number(task) && !owner.is_empty()).then(|| LoopId::new(owner))
}

/// A task that this node took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held {
    pub task: TaskId,
    /// Under which fence.
    pub fence: Fence,
    /// Of which loop of the mesh.
    pub owner: LoopId,
    /// Where this node stands with it.
    pub stage: Stage,
    /// The task was begun without the hub, which has not decided yet whether it counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
}

/// Where a node stands with a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Stage {
    /// It was taken, and its own loop is made and under way.
    Working,
    /// The loop is over, and its work was pushed; the hub does not know it yet.
    Pushed {
        /// The report that is sent to the hub.
        report: TaskReport,
    },
}

impl Held {
    /// The loop with which the node works on it: one for each time that it is taken.
    pub fn local(&self) -> LoopId {
        LoopId::new(format!("m-{}-{}", self.task, self.fence))
    }

    /// Name of its document.
    pub fn key(&self) -> String {
        format!("{}.{}", self.task, self.fence)
    }

    /// Where its work is pushed to. What was begun without the hub has a name of its own: another
    /// node may have been given the same fence.
    pub fn reference(&self, node: &NodeId) -> String {
        let plain = format!("refs/everloop/{}/{}/{}", self.owner, self.task, self.fence);
        if self.alone { format!("{plain}-{node}") } else { plain }
    }

    /// Takes the task.
    pub fn take(&self, node: &NodeId, lease: Duration) -> Op {
        Op::Take { task: self.task.clone(), fence: self.fence, node: node.clone(), lease }
    }

    /// Holds on to it.
    pub fn renew(&self, lease: Duration) -> Op {
        Op::Renew { task: self.task.clone(), fence: self.fence, lease }
    }

    /// Puts the task back into the queue, where nodes can take it from `ready_at` on.
    pub fn give_back(&self, ready_at: Time, failed: bool) -> Op {
        Op::Release { task: self.task.clone(), fence: self.fence, ready_at, failed }
    }

    /// Ends the task with a report.
    pub fn finish(&self, state: TaskEnd, report: &TaskReport) -> Op {
        Op::Finish { task: self.task.clone(), fence: self.fence, state, result: report.to_json() }
    }

    /// Keeps what came of it, which does not count.
    pub fn shelve(&self, report: &TaskReport) -> Op {
        Op::Shelve { task: self.task.clone(), fence: self.fence, result: report.to_json() }
    }
}

/// How the node's own loop for a task is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Local {
    /// There is none: the node died before it was made.
    Missing,
    /// It goes on.
    Running,
    /// The loop cannot go on here for a long time, for reasons of this node.
    Stuck {
        reason: Reason,
        /// Nothing was used yet of what was set aside for it.
        untouched: bool,
    },
    /// It is over.
    Over {
        /// Whether the task's check passes, and what else has to.
        reached: bool,
    },
}

/// The state of a task's claim at the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// The hub has not answered, or is away.
    Unknown,
    /// This node holds it.
    Mine,
    /// The hub knows what came of it already: an answer was lost.
    Settled,
    /// The node does not hold it any more: the lease was over and another node has it, or a person
    /// took it away.
    Lost,
    /// The node never held it: the task is gone, or another node holds this very fence.
    Never,
    /// No node holds it, and what this node began without the hub can count, under this fence.
    Free(Fence),
}

/// Something to do about a task.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkStep {
    /// There is nothing to do now.
    Wait,
    /// Make the loop that works on it.
    Begin,
    /// Stop that loop: another node has the task. What the loop made so far is pushed and kept like
    /// any late result.
    Stop,
    /// Give the task back to the queue: this node cannot work on it.
    GiveBack(Reason),
    /// Push what came of it.
    Push {
        /// Whether it passed.
        reached: bool,
    },
    /// Claim at the hub what was begun without it.
    Claim,
    /// The hub confirmed the claim: what was begun without it is like any other.
    Adopt,
    /// Report the outcome to the hub, in one transaction; then nothing is left to do.
    Tell(Vec<Op>),
    /// Nothing is left to do.
    Forget,
}

/// The state of a task at the hub, seen by the node that holds or held it.
pub fn standing(held: &Held, row: Option<&TaskRow>, node: &NodeId) -> ClaimState {
    let Some(row) = row else { return ClaimState::Never };
    match &row.state {
        TaskState::Leased { node: holder, .. } if holder == node && row.fence == held.fence => ClaimState::Mine,
        TaskState::Done | TaskState::Dead if is_told(held, row) => ClaimState::Settled,
        TaskState::Queued if held.alone => ClaimState::Free(row.fence.next()),
        TaskState::Leased { .. } if row.fence == held.fence => ClaimState::Never,
        _ if row.fence < held.fence => ClaimState::Never,
        _ => ClaimState::Lost,
    }
}

/// Whether a task ended with this node's report.
fn is_told(held: &Held, row: &TaskRow) -> bool {
    // The numbers of an experiment may differ in their last digit after a journey as text.
    let plain = |report: TaskReport| TaskReport { experiment: None, ..report };
    let told = super::leader::report(row).map(plain);
    matches!(&held.stage, Stage::Pushed { report } if told == Some(plain(report.clone())))
}

/// Whether another node tried a task and failed too, or there is none that could. `late_results`:
/// the late results of the task.
pub fn failed_elsewhere<'a>(own: &NodeId, members: &[NodeId], late_results: impl IntoIterator<Item = &'a str>) -> bool {
    let by_another = |text: &str| TaskReport::read(text).is_some_and(|report| report.node != *own);
    members.iter().all(|node| node == own) || late_results.into_iter().any(by_another)
}

/// What else matters for what is next.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub node: &'a NodeId,
    /// Attempts of the task that came to nothing before.
    pub failures: u32,
    /// Another node tried too, or there is none.
    pub elsewhere: bool,
    /// One more is tried again then.
    pub again_at: Time,
}

/// What to do next.
pub fn next(held: &Held, standing: ClaimState, local: &Local, view: &View<'_>) -> WorkStep {
    let again_at = view.again_at;
    match (&held.stage, standing) {
        (Stage::Working, _) => working(held, standing, local, view.node),
        (Stage::Pushed { .. }, ClaimState::Settled) => WorkStep::Forget,
        (Stage::Pushed { .. }, ClaimState::Unknown) => WorkStep::Wait,
        (Stage::Pushed { report }, ClaimState::Mine) if report.reached => {
            WorkStep::Tell(vec![held.finish(TaskEnd::Done, report)])
        }
        // Begun without the hub, and no other node finished it: the first one counts.
        (Stage::Pushed { report }, ClaimState::Free(fence)) if report.reached => {
            let claimed = Held { fence, ..held.clone() };
            WorkStep::Tell(vec![claimed.take(&report.node, LEASE), claimed.finish(TaskEnd::Done, report)])
        }
        (Stage::Pushed { .. }, ClaimState::Lost) if planted::is(Bug::ShelvesNothing) => WorkStep::Forget,
        (Stage::Pushed { report }, ClaimState::Lost | ClaimState::Never | ClaimState::Free(_)) => {
            WorkStep::Tell(vec![held.shelve(report)])
        }
        (Stage::Pushed { report }, ClaimState::Mine) if is_poison(view) && !report.short => {
            let text = format!("task `{}` came to nothing too often: {}", held.task, report.why);
            let key = format!("dead:{}", held.task);
            let ticket = Op::OpenTicket { key, owner: Some(held.owner.clone()), text };
            WorkStep::Tell(vec![held.shelve(report), held.finish(TaskEnd::Dead, report), ticket])
        }
        (Stage::Pushed { report }, ClaimState::Mine) => {
            WorkStep::Tell(vec![held.shelve(report), held.give_back(again_at, !report.short)])
        }
    }
}

fn is_poison(view: &View<'_>) -> bool {
    let failures = view.failures + 1;
    let enough = failures >= POISON_ANYHOW || (failures >= POISON && view.elsewhere);
    enough && !planted::is(Bug::PoisonNeverDies)
}

/// The next step for a task with work that is not pushed yet.
fn working(held: &Held, standing: ClaimState, local: &Local, node: &NodeId) -> WorkStep {
    match (local, standing) {
        (Local::Over { reached }, _) => WorkStep::Push { reached: *reached },
        (_, ClaimState::Mine) if held.alone => WorkStep::Adopt,
        (Local::Running | Local::Stuck { .. }, ClaimState::Lost | ClaimState::Never) => WorkStep::Stop,
        // What was used of what was set aside is for the hub to know.
        (Local::Stuck { untouched: false, .. }, ClaimState::Unknown) if held.alone => WorkStep::Wait,
        (Local::Stuck { reason, .. }, _) => WorkStep::GiveBack(reason.clone()),
        (_, ClaimState::Free(fence)) if fence == held.fence => WorkStep::Claim,
        (Local::Missing, ClaimState::Mine) => WorkStep::Begin,
        (Local::Missing, ClaimState::Unknown) if held.alone => WorkStep::Begin,
        // Nothing was used of what was set aside for it, and only this node knows that.
        (Local::Missing, ClaimState::Lost) => {
            WorkStep::Tell(vec![held.shelve(&TaskReport::nothing(node, held.fence, "it was lost before it was begun"))])
        }
        (Local::Missing, ClaimState::Never | ClaimState::Settled | ClaimState::Free(_)) => WorkStep::Forget,
        (Local::Missing | Local::Running, _) => WorkStep::Wait,
    }
}

/// Tasks that a node can still begin. A task that is done and only waits for its report takes no
/// room: otherwise a hub that is away would keep the node idle.
pub fn room<'a>(slots: u32, has: impl IntoIterator<Item = &'a Held>) -> usize {
    let busy = has.into_iter().filter(|held| held.stage == Stage::Working).count();
    (slots as usize).saturating_sub(busy)
}

/// The tasks to take, up to `free`: the most urgent first; among equals each node begins elsewhere,
/// so that they do not all want the same one. Only free tasks: only the leader gives back what
/// others hold; and what this node has already, begun without the hub and not reported yet, is no
/// new task.
pub fn pick(node: &NodeId, has: &[Held], rows: &[TaskRow], free: usize, now: Time) -> Vec<(TaskId, Fence)> {
    let is_new = |row: &&TaskRow| !has.iter().any(|held| held.task == row.task.id);
    let mut ready: Vec<&TaskRow> = rows.iter().filter(|row| is_free(row, now)).filter(is_new).collect();
    ready.sort_by_key(|row| (std::cmp::Reverse(row.task.priority), weight(node, &row.task.id)));
    ready.into_iter().take(free).map(|row| (row.task.id.clone(), row.fence.next())).collect()
}

/// Whether a task can be taken.
pub fn is_free(row: &TaskRow, now: Time) -> bool {
    let steals = planted::is(Bug::TakesFromTheLiving) && matches!(row.state, TaskState::Leased { .. });
    let early = planted::is(Bug::TakesBeforeItIsTime);
    steals || (row.state == TaskState::Queued && (row.task.ready_at <= now || early))
}

/// How much a task is this node's (rendezvous hashing): the smallest weight of all members has it.
pub fn weight(node: &NodeId, task: &TaskId) -> u64 {
    let fold = |seed, text: &str| text.bytes().fold(seed, |seed, byte| mix(seed, u64::from(byte)));
    fold(fold(0, node.as_str()), task.as_str())
}

/// The loop with which a node works on a task: its check, and those that pass already, so that
/// nothing is broken. `None` when the loop does not know the task any more, or has no reservation
/// for this attempt yet. `nodes`: among how many the rate of an account is shared; an attempt keeps
/// the part with which it began. Everything in it comes from the loop, which is signed; the task
/// only says which check it is.
pub fn local_spec(state: &MeshLoop, task: &TaskRow, fence: Fence, nodes: usize) -> Option<LoopSpec> {
    let check = state.check_of(&task.task.id)?;
    let reservation = state.reservation(&task.task.id, fence)?;
    let judged = state.judged.as_ref()?;
    let passing = judged.board.passing();
    let mut spec = state.spec.wanted.clone();
    if let Some(research) = &mut spec.research {
        // One experiment: its seed ends the loop. The bound is that of the run, for the prompt.
        research.results = None;
        spec.bounds = Bounds { max_turns: spec.bounds.max_turns, ..Bounds::default() };
    } else {
        let about = super::leader::prompt(state, check);
        spec.goal = format!("{}\n\n{about}", spec.goal);
        spec.checks.retain(|c| c.name == check || passing.contains(c.name.as_str()));
        spec.bounds = Bounds { max_turns: Some(state.spec.task_turns), ..Bounds::default() };
    }
    spec.guard.budget = reservation;
    super::eligibility::share(&mut spec, nodes);
    spec.workspace.include_dirty = false;
    // The repository of this node, not of the one where the loop was made.
    spec.workspace.origin = None;
    Some(spec)
}
