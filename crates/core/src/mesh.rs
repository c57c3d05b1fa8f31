//! A loop that many nodes work on: its state and all changes of it. Pure; the state is a document
//! in the hub that only the leader writes.
//!
//! - [`leader`]: the leader's next steps for such a loop
//! - [`work`]: a node's steps for the tasks that it holds
//! - [`eligibility`]: whether a node is eligible for a task, or other nodes do better
//! - [`node`]: the order of a node's steps, run by the product and by the simulator
//! - [`budget`]: what a loop may use, over all nodes
//! - [`offline`]: what a node does while the hub is unreachable
//! - [`clock_offset`]: how far the hub's clock is ahead of a node's
//! - [`leader_lease`]: for how long a node may regard itself as the leader
//! - [`research`]: a loop whose tasks are experiments
//! - [`reconcile`]: tasks that no loop looks after, and silent nodes
//! - [`rights`]: what the login of a node may write
//! - [`why`]: the rule that decides about a loop now, for people
//! - [`keys`]: signatures of loops and reports, and the keys that a node trusts
//!
//! Each check that fails becomes a task. The node that takes it works on it as on a loop of its
//! own, pushes the result, and reports it. The leader merges one result after the other, runs all
//! checks on the merged tree, and only then moves the branch.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

pub mod budget;
pub mod clock_offset;
pub mod eligibility;
pub mod keys;
pub mod leader;
pub mod leader_lease;
pub mod node;
pub mod offline;
pub mod reconcile;
pub mod research;
pub mod rights;
pub mod why;
pub mod work;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::event::{Event, used_up};
use crate::guard::Spend;
use crate::ids::{Fence, LoopId, NodeId, TaskId};
use crate::op::{NewTask, Op};
use crate::reason::Reason;
use crate::research::state::ResearchState;
use crate::scoreboard::Scoreboard;
use crate::spec::LoopSpec;
use crate::time::Time;

/// Kind of the documents in which such loops are kept.
pub const KIND: &str = "mesh";
/// Version of the document. A newer one is refused, never guessed at. Version 2 added usage and
/// reservations, version 3 signatures, version 4 research runs.
pub const VERSION: u32 = 4;
/// Version of the document of a loop that is no research run, which older nodes can read.
const WITHOUT_RESEARCH: u32 = 3;
/// Landings that are listed; older ones stand on the branch.
const LANDED_LISTED: usize = 50;
/// What is remembered of a refusal, for the next attempt.
const NOTE_CHARS: usize = 2_000;

/// What the operator wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeshSpec {
    /// Goal, checks, agents and limits. The folder is valid only where the loop was made; each node
    /// replaces it with its own.
    pub wanted: LoopSpec,
    /// The git remote through which work travels.
    pub remote: String,
    /// The branch that finished work moves, by its full name.
    pub branch: String,
    /// The folder of the repository in which the checks run; empty for its root.
    pub below: String,
    /// Tasks that may be open at once.
    pub width: u32,
    /// Tasks for one check before a person has to look at it.
    pub attempts: u32,
    /// Turns that a node may take for one task.
    pub task_turns: u32,
}

/// A loop of the mesh.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeshLoop {
    /// Format of this document.
    pub version: u32,
    pub id: LoopId,
    /// What people call it.
    pub name: String,
    /// What it is to do.
    pub spec: MeshSpec,
    /// The same as the key that made the loop signed it; `None` before version 3.
    #[serde(default)]
    pub signed: Option<keys::Made>,
    /// When it was made.
    pub created_at: Time,
    /// The end of the loop was requested.
    pub stop: bool,
    /// The checks' last results for the branch, and the commit that they ran on.
    pub judged: Option<Judged>,
    /// Tasks made so far.
    pub made: u32,
    /// Tasks that have neither landed nor failed.
    pub open: Vec<OpenTask>,
    /// Tasks made for each check; of a research run, experiments in a row that came to nothing.
    pub tried: BTreeMap<String, u32>,
    /// Why the last task for a check came to nothing.
    pub notes: BTreeMap<String, String>,
    /// What landed, newest last.
    pub landed: Vec<Landed>,
    /// All of it, also what is no longer listed.
    pub landed_count: u32,
    /// What attempts used that are over.
    #[serde(default)]
    pub spent: Spend,
    /// What is set aside for attempts, where something is limited.
    #[serde(default)]
    #[serde(rename = "loans")]
    pub reservations: Vec<budget::Reservation>,
    /// Why nothing more is set aside now.
    #[serde(default)]
    pub waits: Option<Reason>,
    /// What a research run has found, its champion included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub research: Option<Box<ResearchState>>,
    /// How it ended.
    pub ended: Option<End>,
}

/// The results of the checks for a commit of the branch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    pub commit: String,
    pub board: Scoreboard,
}

/// A task and the check it is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenTask {
    pub task: TaskId,
    /// The check that it has to make pass.
    pub check: String,
}

/// Work that stands on the branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landed {
    /// For which task.
    pub task: TaskId,
    /// For which check.
    pub check: String,
    /// The node that did the work.
    pub node: NodeId,
    /// Under which fence.
    pub fence: Fence,
    /// The commit on the branch.
    pub commit: String,
}

/// How a loop of the mesh ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum End {
    /// Every check passes on the branch.
    Reached,
    /// The loop was stopped.
    Stopped,
    /// The tasks of these checks came to nothing too often.
    GivenUp { checks: Vec<String> },
    /// A limit was used up.
    Exhausted {
        /// `calls`, `tokens`, `dollars` or `time`; of a research run also `turns` or `patience`.
        bound: String,
    },
    /// The champion of a research run is as good as the goal value.
    Met { number: u32 },
    /// A research run cannot be measured.
    Failed { why: String },
}

/// A node's report about a task that it finished; stored as the task's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    pub node: NodeId,
    /// Whether the task's check passed there.
    pub reached: bool,
    /// The commit, pushed under `reference`; `None` when nothing was made.
    pub commit: Option<String>,
    /// Where it was pushed to.
    pub reference: Option<String>,
    /// Turns it took.
    pub turns: u32,
    /// What it cost, in millionths of a dollar.
    pub microusd: u64,
    /// Tokens it used.
    #[serde(default)]
    pub tokens: u64,
    /// The fence under which it was begun, and for which something was set aside.
    #[serde(default)]
    pub fence: Fence,
    /// The attempt ended because its reservation was used up, which is no failure.
    #[serde(default)]
    pub short: bool,
    /// In words, when it came to nothing.
    pub why: String,
    /// The experiment, when the task is one and was made, kept or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<Box<research::ReportedExperiment>>,
}

/// A report and the task that it is about.
pub type Said = (TaskId, TaskReport);

impl TaskReport {
    /// One without work.
    pub fn nothing(node: &NodeId, fence: Fence, why: &str) -> Self {
        Self {
            node: node.clone(),
            reached: false,
            commit: None,
            reference: None,
            turns: 0,
            microusd: 0,
            tokens: 0,
            fence,
            short: false,
            why: why.to_owned(),
            experiment: None,
        }
    }

    /// Parses a task's result or a late result; `None` when it is something else.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// What was used.
    pub fn spend(&self) -> Spend {
        Spend { calls: u64::from(self.turns), tokens: self.tokens, microusd: self.microusd }
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a report is plain data and always has a JSON form")
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Reached => f.write_str("every check passes on the branch"),
            End::Stopped => f.write_str("it was stopped"),
            End::GivenUp { checks } => write!(f, "no task could make these checks pass: {}", checks.join(", ")),
            End::Exhausted { bound } => write!(f, "its {}", used_up(bound)),
            End::Met { number } => write!(f, "experiment {number} is as good as the goal value"),
            End::Failed { why } => f.write_str(why),
        }
    }
}

impl MeshLoop {
    /// A new one.
    pub fn new(id: LoopId, name: String, spec: MeshSpec, now: Time) -> Self {
        Self {
            version: format_of(&spec),
            id,
            name,
            spec,
            signed: None,
            created_at: now,
            stop: false,
            judged: None,
            made: 0,
            open: Vec::new(),
            tried: BTreeMap::new(),
            notes: BTreeMap::new(),
            landed: Vec::new(),
            landed_count: 0,
            spent: Spend::default(),
            reservations: Vec::new(),
            waits: None,
            research: None,
            ended: None,
        }
    }

    /// Reads a document, refusing what a newer everloop wrote.
    pub fn read(body: &str) -> Result<Self, String> {
        let value: serde_json::Value = serde_json::from_str(body).map_err(|e| e.to_string())?;
        let version = value.get("version").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if version > u64::from(VERSION) {
            return Err(format!("format {version} is newer than this everloop understands ({VERSION})"));
        }
        let state: Self = serde_json::from_value(value).map_err(|e| e.to_string())?;
        Ok(Self { version: format_of(&state.spec), ..state })
    }

    /// The operations that save the document, provided that no other write happened since
    /// `version`, and that note the reason for the change in the journal.
    pub fn save(&self, version: u64, notes: &[String]) -> Vec<Op> {
        let body = serde_json::to_string(self).expect("a loop is plain data and always has a JSON form");
        let events: Vec<Event> = notes.iter().map(|text| Event::Note { text: text.clone() }).collect();
        let said = (!events.is_empty()).then(|| Op::Append { owner: Some(self.id.clone()), events });
        let save = Op::SaveDoc { kind: KIND.to_owned(), key: self.id.to_string(), version, body };
        std::iter::once(save).chain(said).collect()
    }

    /// The check that a task is for, while it is open.
    pub fn check_of(&self, task: &TaskId) -> Option<&str> {
        self.open.iter().find(|open| open.task == *task).map(|open| open.check.as_str())
    }

    /// Records the checks' results for the branch.
    pub fn judge(&mut self, commit: String, board: Scoreboard) {
        self.judged = Some(Judged { commit, board });
    }

    /// A task was made for a check.
    pub fn opened(&mut self, task: &NewTask, check: &str) {
        self.made += 1;
        // Of experiments only those in a row count that came to nothing.
        if self.spec.wanted.research.is_none() {
            *self.tried.entry(check.to_owned()).or_default() += 1;
        }
        self.open.push(OpenTask { task: task.id.clone(), check: check.to_owned() });
    }

    /// Records that a task's work is on the branch. `board`: the checks' results for it; `None`
    /// when the checks have to run again.
    pub fn land(&mut self, landed: Landed, board: Option<Scoreboard>) {
        self.judged = board.map(|board| Judged { commit: landed.commit.clone(), board });
        self.open.retain(|open| open.task != landed.task);
        self.notes.remove(&landed.check);
        self.landed.push(landed);
        self.landed_count += 1;
        let extra = self.landed.len().saturating_sub(LANDED_LISTED);
        self.landed.drain(..extra);
    }

    /// Records that a task failed; its check gets another task, which contains the reason.
    pub fn refuse(&mut self, task: &TaskId, why: &str) {
        if let Some(check) = self.check_of(task).map(str::to_owned) {
            if self.spec.wanted.research.is_some() {
                let tried = self.tried.entry(check.clone()).or_default();
                *tried = (*tried + 1).min(self.spec.attempts);
            }
            self.notes.insert(check, why.chars().take(NOTE_CHARS).collect());
        }
        self.open.retain(|open| open.task != *task);
    }
}

/// The version that is written for a loop.
fn format_of(spec: &MeshSpec) -> u32 {
    if spec.wanted.research.is_some() { VERSION } else { WITHOUT_RESEARCH }
}

/// Whether merged work may go onto the branch: its own check passes, and nothing that passed before
/// fails.
pub fn accept(before: &Scoreboard, after: &Scoreboard, check: &str) -> Result<(), String> {
    let lost = after.lost_since(before);
    if !lost.is_empty() {
        return Err(format!("after merging it, these checks fail that passed before: {}", lost.join(", ")));
    }
    match after.0.iter().find(|r| r.name == check) {
        Some(result) if result.verdict.passes() => Ok(()),
        Some(result) => Err(format!("on the merged tree the check `{check}` has the verdict {}", result.verdict)),
        None => Err(format!("there is no check `{check}` any more")),
    }
}

#[cfg(test)]
mod tests;
