//! What a node can make happen, and what comes of it. The product carries these effects out with a
//! PostgreSQL hub, a SQLite ledger, files and git; the simulator with models of them. Neither
//! decides anything.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::event::NodeEvent;
use crate::event::{Event, LoopEnd, used_up};
use crate::guard::{Guards, Scope, Spend};
use crate::ids::{Fence, LoopId, NodeId, TaskId};
use crate::immune::Immune;
use crate::mesh::eligibility::Tried;
use crate::mesh::keys::{DocFault, Keyring};
use crate::mesh::offline::Replica;
use crate::mesh::reconcile::Sign;
use crate::mesh::research::{FirstValues, ReportedExperiment};
use crate::mesh::rights::Rights;
use crate::mesh::work::Held;
use crate::mesh::{Judged, MeshLoop, OpenTask, TaskReport};
use crate::op::{LateResult, Op, Refusal, Reply, TaskRow, Ticket};
use crate::reason::Reason;
use crate::research::row::Row;
use crate::scoreboard::Scoreboard;
use crate::spec::LoopSpec;
use crate::state::{LoopState, Phase};
use crate::time::Time;

/// Kind of the documents that hold what operators want of a node.
pub const NODE: &str = "node";

/// What an operator wants of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// The node works normally.
    Work,
    /// It ends what it has and takes nothing more.
    Drain,
    /// It is gone for good.
    Remove,
}

/// The hub did not answer; whether it did what it was sent is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubAway(pub String);

/// The answer of the hub, if there is one.
pub type HubResult<T> = Result<T, HubAway>;

/// A message between nodes. It can be lost; then the node finds out with its next heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// There is no leader.
    Leader,
    /// There is something to take, or to merge.
    Work,
    /// This task was taken: no other node begins it, should the hub go away now.
    Taken(TaskId),
}

impl Hint {
    /// As it travels.
    pub fn word(&self) -> String {
        match self {
            Hint::Leader => "seat".to_owned(),
            Hint::Work => "work".to_owned(),
            Hint::Taken(task) => format!("taken {task}"),
        }
    }

    /// A word of a newer version, unknown here, means: look.
    pub fn read(word: &str) -> Self {
        match word.split_once(' ') {
            Some(("taken", task)) => Hint::Taken(TaskId::new(task)),
            _ if word == "seat" => Hint::Leader,
            _ => Hint::Work,
        }
    }
}

/// The state of a node as its heartbeat carries it to the hub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeStatus {
    /// Tasks that it holds.
    pub holds: Vec<TaskId>,
    /// It is the leader.
    pub leads: bool,
    /// It takes nothing more.
    pub draining: bool,
    /// The time of the next heartbeat by the hub's clock; `None` when the node ends.
    pub next_beat: Option<Time>,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeatReply {
    /// The hub's time.
    pub at: Time,
    /// The end of another node's leader lease; `None` when there is none, or it is this node's.
    pub led_until: Option<Time>,
    /// What an operator wants of this node.
    pub wish: Option<Wish>,
    /// Whether tasks of loops are free, now or later.
    pub waiting: bool,
    /// The last number of the journal.
    pub seq: u64,
    /// What this node's login may write.
    pub rights: Rights,
}

/// A document of a loop of the mesh.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopDoc {
    pub id: LoopId,
    /// The version of the document.
    pub version: u64,
    /// Its content, or why it cannot be read or is not trusted.
    pub state: Result<MeshLoop, DocFault>,
}

/// Which tasks are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// Those in the queue.
    Queued,
    /// Those that are held, too.
    Open,
}

/// A task that this node took, with the names that follow from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// What is kept of it.
    pub held: Held,
    /// The name of its document.
    pub key: String,
    /// The loop with which the node works on it.
    pub local: LoopId,
}

impl Claim {
    /// Of a task.
    pub fn new(held: Held) -> Arc<Self> {
        let (key, local) = (held.key(), held.local());
        Arc::new(Self { held, key, local })
    }
}

impl Deref for Claim {
    type Target = Held;
    fn deref(&self) -> &Held {
        &self.held
    }
}

/// All claims of a node, by key.
pub type Claims = BTreeMap<String, Arc<Claim>>;

/// The phase of a node's own loop for a task.
#[derive(Clone, Debug, PartialEq)]
pub enum LocalPhase {
    /// There is no such loop.
    Missing,
    /// It goes on.
    Running,
    /// It waits in this phase.
    Waiting {
        /// With the reason.
        phase: Phase,
        /// No turn was taken yet.
        untouched: bool,
    },
    /// It is over.
    Over {
        /// With its checks passing.
        reached: bool,
    },
}

/// A node's own loop for a task.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalLoop {
    pub spec: LoopSpec,
    /// What it used.
    pub spent: Spend,
    /// Its reserved budget was used up.
    pub short: bool,
    /// Why it ended, in words; empty when its goal is reached.
    pub why: String,
    /// What its end means for this node's record, if anything.
    pub tried: Option<Tried>,
    /// The experiment that it made, if the task is one.
    pub experiment: Option<Box<ReportedExperiment>>,
}

impl LocalLoop {
    /// As its state has it.
    pub fn of(state: &LoopState) -> Self {
        let ending = if let Phase::Ended { ending, .. } = &state.phase { Some(ending) } else { None };
        let why = match ending {
            Some(LoopEnd::Reached) => String::new(),
            Some(LoopEnd::Exhausted { bound }) => format!("its {}", used_up(bound)),
            Some(LoopEnd::Stopped { by }) => format!("stopped by {by}"),
            Some(LoopEnd::Failed { why }) => why.clone(),
            None => state.phase.label().to_owned(),
        };
        Self {
            spec: state.spec.clone(),
            spent: Spend {
                calls: u64::from(state.task.turns),
                tokens: state.spend.spent.tokens,
                microusd: state.spend.spent.microusd,
            },
            // The number of turns of a task is a limit of its own.
            short: matches!(ending, Some(LoopEnd::Exhausted { bound }) if bound != "turns"),
            why,
            tried: Tried::over(state),
            experiment: experiment_of(state),
        }
    }

    /// The report about an attempt, without work.
    pub fn report(&self, node: &NodeId, fence: Fence, why: &str) -> TaskReport {
        let turns = u32::try_from(self.spent.calls).unwrap_or(u32::MAX);
        let (microusd, tokens) = (self.spent.microusd, self.spent.tokens);
        TaskReport { turns, microusd, tokens, ..TaskReport::nothing(node, fence, why) }
    }
}

fn experiment_of(state: &LoopState) -> Option<Box<ReportedExperiment>> {
    let found = state.research.as_deref()?;
    let row = found.only_row()?.clone();
    // A keep is the champion by now.
    let keeps = found.keeps.iter().rev().filter(|keep| keep.number != row.number);
    let before = keeps.map(|keep| keep.commit.clone()).next();
    let champion = if row.status.keeps() { before } else { found.champion.commit.clone() };
    Some(Box::new(ReportedExperiment { row, champion }))
}

/// Work that takes time. A node starts it and gets its outcome as an input.
#[derive(Clone, Debug)]
pub enum MeshAction {
    /// Make the loop that works on a task.
    Begin {
        claim: Arc<Claim>,
        /// The title of the task.
        title: String,
        /// The loop of the mesh.
        state: Box<MeshLoop>,
        /// The loop to make; its folder is the host's.
        spec: Box<LoopSpec>,
    },
    /// Push what a loop made.
    Push {
        claim: Arc<Claim>,
        reference: String,
        /// Whether the loop reached its goal: then its branch counts, otherwise its last work.
        reached: bool,
    },
    /// Run the checks on the branch of a loop.
    Judge(Box<MeshLoop>),
    /// Merge the work of a task beside the branch, and run all checks on the result.
    Merge(Box<MergeRequest>),
    /// Move the branch, if it still is where it was.
    Land(Box<LandRequest>),
}

/// Work to be merged.
#[derive(Clone, Debug)]
pub struct MergeRequest {
    pub state: MeshLoop,
    pub task: TaskId,
    /// Under which fence it was done.
    pub fence: Fence,
    /// Where the work is.
    pub report: TaskReport,
    /// The check that the task is for.
    pub check: String,
    /// The term under which it was begun.
    pub term: u64,
}

/// A branch to be moved.
#[derive(Clone, Debug)]
pub struct LandRequest {
    pub state: MeshLoop,
    pub task: TaskId,
    /// Where the branch was when its work was merged.
    pub target: String,
    /// Where it is to be.
    pub commit: String,
    /// By the node's time, looked at right before: after it, another node may be the leader.
    pub until: Time,
}

/// What came of an action.
#[derive(Clone, Debug)]
pub enum MeshOutcome {
    /// The result of [`MeshAction::Begin`].
    Begun {
        /// The key of the claim.
        key: String,
        /// Or why not.
        made: Result<(), String>,
    },
    /// The result of [`MeshAction::Push`].
    Pushed {
        /// The key of the claim.
        key: String,
        /// Where it was pushed to.
        reference: String,
        /// Whether the loop reached its goal.
        reached: bool,
        /// The commit, if there is any work.
        pushed: Result<Option<String>, String>,
    },
    /// The result of [`MeshAction::Judge`].
    Judged {
        id: LoopId,
        /// The commit and the results of the checks there, and of the metric of a research run.
        judged: Result<(Judged, FirstValues), String>,
    },
    /// The result of [`MeshAction::Merge`].
    Merged {
        /// What was to be merged.
        request: Box<MergeRequest>,
        /// What came of it.
        merged: Merged,
    },
    /// The result of [`MeshAction::Land`].
    Landed {
        id: LoopId,
        /// Whether the branch was moved: not when it moved meanwhile.
        landed: Result<bool, String>,
    },
}

/// What became of a task's work.
#[derive(Clone, Debug)]
pub enum Merged {
    /// It can stand on the branch.
    Ready {
        /// Where the branch is.
        target: String,
        /// The merged commit.
        commit: String,
        /// The results of the checks on the branch.
        before: Scoreboard,
        /// The results on the merged commit.
        after: Scoreboard,
    },
    /// The branch holds it already: a leader moved it and could not write that down.
    Landed { commit: String },
    /// It is an experiment. If it is kept, its commit stands on the champion of the document, and the
    /// champion's ref is to be moved from `target`.
    Weighed {
        target: String,
        row: Box<Row>,
        /// The results of the guards.
        board: Scoreboard,
    },
    /// It may not stand there.
    Refused(String),
    /// The branch holds all of it by other means.
    Contained,
    /// Something else was in the way; it is tried again.
    Later(String),
}

/// The calls to the hub. Each may be lost on its way there or back.
pub trait HubCalls {
    /// Sends a heartbeat.
    fn beat(&mut self, status: &NodeStatus) -> HubResult<BeatReply>;
    /// Writes a batch, all of it or nothing; under a term when the leader writes.
    fn transact(&mut self, term: Option<u64>, ops: &[Op]) -> HubResult<Result<Vec<Reply>, Refusal>>;
    /// Passes a hint to the other nodes.
    fn hint(&mut self, hint: &Hint) -> HubResult<()>;
    /// Reads one task.
    fn task(&mut self, id: &TaskId) -> HubResult<Option<TaskRow>>;
    /// Tasks of loops, a bounded number of them.
    fn tasks(&mut self, which: Listed) -> HubResult<Vec<TaskRow>>;
    /// Brings `rows` to where the hub has these tasks.
    fn rows(&mut self, open: &[OpenTask], rows: &mut Vec<TaskRow>) -> HubResult<()>;
    /// Tasks in the queue unchanged since `queued`, and tasks whose lease was over at `leased`.
    fn resting(&mut self, queued: Time, leased: Time) -> HubResult<Vec<TaskRow>>;
    /// Results of a task that came too late, or came to nothing.
    fn late_results(&mut self, task: &TaskId) -> HubResult<Vec<LateResult>>;
    /// The last heartbeats of all nodes.
    fn nodes(&mut self) -> HubResult<Vec<Sign>>;
    /// What operators want of nodes.
    fn wishes(&mut self) -> HubResult<Vec<(NodeId, Wish)>>;
    /// The versions of all loops.
    fn loop_versions(&mut self) -> HubResult<Arc<[(LoopId, u64)]>>;
    /// These loops; those that are not there are left out.
    fn loops(&mut self, ids: &[LoopId]) -> HubResult<Vec<LoopDoc>>;
    /// A document with its version.
    fn doc(&mut self, kind: &str, key: &str) -> HubResult<Option<(u64, String)>>;
    /// The record of the fleet's failures, with its version; `None` when it cannot be read.
    fn fleet(&mut self) -> HubResult<Option<(u64, Arc<Immune>)>>;
    /// Reads all open tickets.
    fn tickets(&mut self) -> HubResult<Vec<Ticket>>;
    /// Brings the mirror of the hub up to date; the journal's end there, or `None` when files
    /// cannot be written.
    fn mirror(&mut self) -> HubResult<Option<u64>>;
}

/// Everything that a node can make happen.
pub trait NodeEffects: HubCalls + Keyring {
    /// The time in which periods of the mesh are counted.
    fn now(&self) -> Time;
    /// The time of this machine's clock, which is compared with the hub's.
    fn wall(&self) -> Time;
    /// The node's time at this time of the machine's clock; records of this machine are in it.
    fn own_at(&self, wall: Time) -> Time;
    /// The time of the machine's clock at this time of the node.
    fn wall_at(&self, own: Time) -> Time;
    /// A number that differs from node to node and from time to time.
    fn seed(&mut self) -> u64;
    /// Reads the trust list again; whether it changed.
    fn reload_trust(&mut self) -> bool;

    /// Writes a claim, whole or not at all.
    fn put_claim(&mut self, claim: &Arc<Claim>) -> Result<(), String>;
    /// Removes a claim.
    fn remove_claim(&mut self, claim: &Claim);
    /// Writes the replica of the hub.
    fn put_replica(&mut self, replica: &Arc<Replica>);

    /// The phase of the loop for a claim.
    fn local_phase(&mut self, claim: &Claim) -> LocalPhase;
    /// The loop for a claim.
    fn local_loop(&mut self, claim: &Claim) -> Option<LocalLoop>;
    /// Stops the loop for a claim, if it is not over.
    fn stop_local(&mut self, claim: &Claim);
    /// Loops for tasks that ended before this time.
    fn ended_locals(&mut self, before: Time) -> Vec<LoopId>;
    /// Removes such a loop: its state, refs and folders.
    fn forget_local(&mut self, id: &LoopId);
    /// Loops of the mesh with a clone here that no loop for a task uses, unchanged since then.
    fn unused_clones(&mut self, before: Time) -> Vec<LoopId>;
    /// Removes such a clone, and the leader's checkout for it.
    fn forget_clone(&mut self, id: &LoopId);
    /// The guards of this node; those that cannot be read are left out.
    fn guards(&mut self, scopes: &BTreeSet<Scope>) -> Guards;
    /// Applies an event to a guard of this node.
    fn note_limit(&mut self, scope: &Scope, event: &Event) -> Result<(), String>;
    /// A sentence about a reason to wait, for people.
    fn explain(&self, reason: &Reason) -> String;
    /// The newest tickets of this node's ledger; `None` when they cannot be read.
    fn local_tickets(&mut self) -> Option<Vec<Ticket>>;
    /// Opens and closes tickets of this node's ledger.
    fn write_tickets(&mut self, ops: &[Op]) -> Result<(), String>;

    /// Starts an action; its outcome comes as an input.
    fn start(&mut self, action: MeshAction);
    /// Something worth a line in the log.
    fn observe(&mut self, event: &NodeEvent<'_>);
}
