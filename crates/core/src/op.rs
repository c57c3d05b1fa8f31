//! The operations of a ledger. Every batch of operations is one transaction: all or nothing.
//!
//! The types live here so that `decide` can return them and so that every ledger gives them the
//! same meaning. A ledger provides atomicity and durability, never logic.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

pub mod streams;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::streams::{Delivered, StreamOp};
use crate::event::{Event, Outcome};
use crate::guard::{GuardState, Scope};
use crate::ids::{Fence, LoopId, NodeId, TaskId};
use crate::time::{Time, millis};

/// One operation on the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    /// Puts a task into the queue. An existing task with this id is left as it is.
    Enqueue(NewTask),
    /// Takes up to `n` ready tasks (queued and due, or leased with the lease over), highest
    /// priority first, then oldest, then smallest id; tasks with unfinished dependencies are not
    /// ready.
    Claim {
        node: NodeId,
        /// Maximum number of tasks.
        n: u32,
        /// Only tasks of this loop; `None` takes tasks that belong to no loop.
        owner: Option<LoopId>,
        #[serde(with = "millis")]
        lease: Duration,
    },
    /// Takes this task under this fence, which must be the next one.
    Take {
        task: TaskId,
        /// Must be one above the task's fence.
        fence: Fence,
        node: NodeId,
        #[serde(with = "millis")]
        lease: Duration,
    },
    /// Extends the lease of a task.
    Renew {
        task: TaskId,
        fence: Fence,
        /// Counted from now.
        #[serde(with = "millis")]
        lease: Duration,
    },
    /// Ends a task. Only the holder of the latest fence can; any other caller gets
    /// [`Refusal::Fenced`].
    Finish {
        task: TaskId,
        fence: Fence,
        /// `Done` or `Dead`.
        state: TaskEnd,
        result: String,
    },
    /// Gives a task back to the queue.
    Release {
        task: TaskId,
        fence: Fence,
        /// Earliest time of the next claim.
        ready_at: Time,
        /// Whether the attempt counts as a failure of the task.
        failed: bool,
    },
    /// Keeps a late result, which came after the loss of its lease and does not count.
    Shelve {
        task: TaskId,
        /// The lost fence.
        fence: Fence,
        result: String,
    },
    /// A person's change to a task, regardless of its holder.
    Amend { task: TaskId, change: Amendment },
    /// Records that this node is alive.
    Heartbeat {
        node: NodeId,
        /// Process identity and version, for people.
        info: String,
    },
    /// Requests the leader lease: granted when there is no leader, its lease is over, or the caller
    /// is the leader already.
    Elect {
        node: NodeId,
        #[serde(with = "millis")]
        lease: Duration,
    },
    /// The rest of the batch counts only while `node` is the leader in this term; otherwise
    /// [`Refusal::NotLeader`].
    Lead { node: NodeId, term: u64 },
    /// Ends the caller's own leader lease, so that the next leader need not wait for its end. No
    /// effect when it was over.
    Resign { node: NodeId, term: u64 },
    /// Writes a guard's state unless it changed since `version` was read.
    SaveGuard {
        scope: Scope,
        /// The version that was read; 0 for none.
        version: u64,
        /// The new state.
        state: Box<GuardState>,
    },
    /// Writes a loop's state unless it changed since `version` was read.
    SaveLoop {
        id: LoopId,
        /// The version that was read; 0 for none.
        version: u64,
        /// Short name of the phase, for listings.
        phase: String,
        /// The state as JSON.
        state: String,
    },
    /// Writes a document unless it changed since `version` was read. The meaning of its body is up
    /// to the writer.
    SaveDoc {
        /// Kind of the document, for example `session`.
        kind: String,
        key: String,
        /// The version that was read; 0 for none.
        version: u64,
        body: String,
    },
    /// Leaves a message for a loop (or for the supervisor, with `to` = `*`).
    Signal {
        to: String,
        by: String,
        /// Content as JSON.
        body: String,
    },
    /// Removes messages from the mailbox; refused ([`Refusal::Gone`]) when one does not exist any
    /// more.
    Consume { ids: Vec<u64> },
    /// Changes a stream.
    Stream(StreamOp),
    /// Opens a ticket; one per open key.
    OpenTicket {
        key: String,
        /// Which loop, if any.
        owner: Option<LoopId>,
        text: String,
    },
    /// Closes the open ticket of that key, if there is one.
    CloseTicket {
        key: String,
        /// How it was solved.
        answer: String,
    },
    /// Writes events to the journal.
    Append {
        /// The loop; `None` for the guard and the supervisor.
        owner: Option<LoopId>,
        events: Vec<Event>,
    },
}

/// A task to be queued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewTask {
    /// Chosen by the creator.
    pub id: TaskId,
    /// The loop it belongs to.
    pub owner: Option<LoopId>,
    /// `batch` for a loop's own; free text otherwise.
    pub kind: String,
    pub title: String,
    /// Text for the agent; data.
    pub prompt: String,
    /// Higher is sooner.
    pub priority: i32,
    /// Tasks that must be done before.
    pub deps: Vec<TaskId>,
    pub author: String,
    pub trust: Trust,
    /// Earliest time of the first claim.
    pub ready_at: Time,
}

/// How far a task's text is trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Written by a person or by everloop itself.
    #[default]
    Operator,
    /// Written by an agent.
    Agent,
}

impl Trust {
    /// Whether the text is a person's or everloop's own.
    pub fn is_operator(&self) -> bool {
        *self == Trust::Operator
    }
}

/// State of a task; each task is in exactly one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum TaskState {
    /// Waiting to be taken.
    Queued,
    /// Held by a node.
    Leased {
        node: NodeId,
        until: Time,
    },
    Done,
    /// Given up: failed too often, or cancelled.
    Dead,
    /// Waiting for a person.
    Blocked,
}

impl TaskState {
    /// The state in one word, as it stands in listings and in the database.
    pub fn label(&self) -> &'static str {
        match self {
            TaskState::Queued => "queued",
            TaskState::Leased { .. } => "leased",
            TaskState::Done => "done",
            TaskState::Dead => "dead",
            TaskState::Blocked => "blocked",
        }
    }
}

/// How a holder ends a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskEnd {
    Done,
    Dead,
}

/// A person's change to a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amendment {
    Block,
    /// Blocked, Dead, Leased, or ended by a turn that kept no work → Queued, with attempts
    /// forgotten. The fence grows, so a holder loses it.
    Retry,
    /// Anything not done → Dead. The fence grows.
    Cancel,
}

/// A task as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRow {
    /// The task as it was created.
    #[serde(flatten)]
    pub task: NewTask,
    pub state: TaskState,
    /// Its latest fence.
    pub fence: Fence,
    /// Attempts that failed.
    pub failures: u32,
    pub result: Option<String>,
    pub created_at: Time,
    pub updated_at: Time,
}

impl TaskRow {
    /// How the turn that ended the task came out; a task that a person or an agent finished by hand
    /// has none.
    pub fn outcome(&self) -> Option<Outcome> {
        serde_json::from_str(self.result.as_deref()?).ok()
    }

    /// Whether tasks that come after this one may start: it was finished by hand, or its turn kept
    /// work. Not only a turn that reached the goal: that may take the work of the later ones, too.
    /// Compared as text, because the ledgers apply the same rule in SQL.
    pub fn unlocks(&self) -> bool {
        let result = self.result.as_deref().unwrap_or_default();
        let kept = ["reached", "progress", "not_yet"].iter().any(|is| result.starts_with(&format!(r#"{{"is":"{is}""#)));
        self.state == TaskState::Done && (kept || !result.starts_with(r#"{"is":""#))
    }

    /// What became of the task, in a word or two: *done* only where the goal was reached or the task
    /// was finished by hand, else how its turn came out.
    pub fn status(&self) -> &'static str {
        match (&self.state, self.outcome()) {
            (TaskState::Done, Some(outcome)) if outcome != Outcome::Reached => outcome.label(),
            (state, _) => state.label(),
        }
    }
}

/// A late result: it came after the loss of its lease and does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateResult {
    pub task: TaskId,
    pub fence: Fence,
    pub at: Time,
    pub result: String,
}

/// A message in the mailbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Grows with every message.
    pub id: u64,
    pub at: Time,
    pub to: String,
    pub by: String,
    /// Content as JSON.
    pub body: String,
}

/// A question or alert for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// Grows with every ticket.
    pub id: u64,
    pub key: String,
    /// Which loop, if any.
    pub owner: Option<LoopId>,
    pub text: String,
    pub opened_at: Time,
    /// Time and answer of its end.
    pub closed: Option<(Time, String)>,
}

/// Result of an operation. Same operations, same results, in every ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Done, without further data.
    Ok,
    /// Whether something new was created (a task, a ticket).
    Made(bool),
    /// Tasks that were taken, with their new fences.
    Claimed(Vec<TaskRow>),
    /// The term in which the caller is the leader; `None` when another node is.
    Elected(Option<u64>),
    /// The sequence number of the last event written.
    Appended(u64),
    /// The new version of a loop, guard or document.
    Saved(u64),
    /// The id of a message.
    Sent(u64),
    /// The id of an entry of a stream.
    Added(u64),
    /// What a group of a stream took.
    Delivered(Delivered),
    /// How many entries of a stream were dropped.
    Trimmed(u64),
}

impl Reply {
    /// The new version of a loop, guard or document, if this is about one.
    pub fn version(&self) -> Option<u64> {
        match self {
            Reply::Saved(version) => Some(*version),
            _ => None,
        }
    }
}

/// Handles a lost task (a person cancelled it): the turn's end is kept, its result becomes a late
/// result. False when there is no result to keep, so that the refusal stands.
pub fn shelve_late(batch: &mut Vec<Op>, task: &TaskId, fence: Fence) -> bool {
    let mut results = Vec::new();
    batch.retain(|op| match op {
        Op::Finish { task: t, fence: f, result, .. } if t == task && *f == fence => {
            results.push(result.clone());
            false
        }
        Op::Release { task: t, fence: f, .. } if t == task && *f == fence => {
            results.push("given back".to_owned());
            false
        }
        _ => true,
    });
    let found = !results.is_empty();
    batch.extend(results.into_iter().map(|result| Op::Shelve { task: task.clone(), fence, result }));
    found
}

/// Why a batch was refused; no part of it took effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The caller no longer holds the task.
    #[error("task `{task}` is not held under fence {fence} any more")]
    Fenced {
        task: TaskId,
        /// Fence of the refused operation.
        fence: Fence,
    },
    /// Another writer was first: read again, decide again.
    #[error("`{what}` was changed by another writer")]
    Conflict {
        /// Loop, guard or document.
        what: String,
    },
    /// No such task or message.
    #[error("`{what}` is not there")]
    Gone { what: String },
    /// The task is in a state in which this cannot be done.
    #[error("task `{task}` is {state}, so this cannot be done")]
    WrongState {
        task: TaskId,
        /// Where it is.
        state: String,
    },
    /// Another node is the leader, or none is.
    #[error("this node is not the leader of term {term} any more")]
    #[serde(rename = "deposed")]
    NotLeader {
        /// Term of the refused operation.
        #[serde(rename = "epoch")]
        term: u64,
    },
    /// The new task's dependencies form a cycle or name unknown tasks.
    #[error("task `{task}`: {why}")]
    BadDependency { task: TaskId, why: String },
    /// The stream has this entry already.
    #[error("the stream `{stream}` has this entry already, as {id}")]
    Repeated {
        stream: String,
        /// Id of the one that is there.
        id: u64,
    },
    /// The login has the rights of a worker, which do not suffice.
    #[error("the login at the hub has the rights of a worker, which may not {what}")]
    Rights { what: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_done_only_if_it_is_done() {
        let row = |state: TaskState, result: Option<&str>| {
            let task = NewTask {
                id: TaskId::new("t"),
                owner: None,
                kind: "task".to_owned(),
                title: String::new(),
                prompt: String::new(),
                priority: 0,
                deps: Vec::new(),
                author: String::new(),
                trust: Trust::Operator,
                ready_at: Time(0),
            };
            let (created_at, updated_at) = (Time(0), Time(0));
            let result = result.map(str::to_owned);
            TaskRow { task, state, fence: Fence(1), failures: 0, result, created_at, updated_at }
        };
        let ended = |result| row(TaskState::Done, result).status();
        for (result, unlocks) in [
            (None, true),
            (Some("all good"), true),
            (Some(r#"{"is":"reached"}"#), true),
            (Some(r#"{"is":"progress"}"#), true),
            (Some(r#"{"is":"not_yet"}"#), true),
            (Some(r#"{"is":"no_op"}"#), false),
            (Some(r#"{"is":"refused","paths":["a"]}"#), false),
            (Some(r#"{"is":"regressed","lost":["a"]}"#), false),
        ] {
            assert_eq!(row(TaskState::Done, result).unlocks(), unlocks, "{result:?}");
            assert!(!row(TaskState::Queued, result).unlocks());
        }
        assert_eq!((ended(None), ended(Some("all good"))), ("done", "done"), "finished by hand");
        assert_eq!(ended(Some(r#"{"is":"reached"}"#)), "done");
        assert_eq!(ended(Some(r#"{"is":"not_yet"}"#)), Outcome::NotYet.label());
        assert_eq!(ended(Some(r#"{"is":"regressed","lost":["a"]}"#)), "regressed");
        assert_eq!(ended(Some(r#"{"is":"refused","paths":["a"]}"#)), "refused");
        assert_eq!(ended(Some(r#"{"is":"no_op"}"#)), "no-op");
        assert_eq!(ended(Some(r#"{"is":"progress"}"#)), "progress", "its checks do not all pass");
        assert_eq!(row(TaskState::Dead, Some(r#"{"is":"task_failed","why":"x"}"#)).status(), "dead");
    }
}
