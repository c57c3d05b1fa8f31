//! Reports to trackers (what happened to tasks) and mailboxes (how a loop is doing). What is due is
//! derived from the present state and the last report, so that nothing is reported twice and
//! nothing is lost while either side is away. Owns what is due and in which order; the caller
//! chooses the receiver and the transport.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{FORMAT, Queue};
use crate::ids::{Fence, TaskId};
use crate::op::{TaskRow, TaskState};
use crate::state::LoopState;
use crate::time::Time;

/// Kind of the document with a tracker's reports.
pub const TRACKER: &str = "tracker";
/// Kind of the document with a mailbox's reports.
pub const MAILBOX: &str = "mailbox";

/// Reports to a tracker so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackerState {
    /// Format of this record.
    pub told_version: u32,
    /// Finished tasks created before this time were reported, even if they are not listed.
    pub since: Time,
    /// Reported tasks. A finished one is removed as soon as all others are reported, too.
    pub tasks: BTreeMap<TaskId, TrackedTask>,
    /// Derived again before each attempt.
    #[serde(skip)]
    pub queue: Queue,
}

/// What a report was about, once it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reported {
    Task(TaskId, TrackedTask),
    Status { turns: u32, over: bool },
}

/// A task as it was last reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackedTask {
    pub state: String,
    pub fence: Fence,
    pub created_at: Time,
}

impl TrackedTask {
    fn of(row: &TaskRow) -> Self {
        Self { state: row.state.label().to_owned(), fence: row.fence, created_at: row.created_at }
    }
}

/// A change of a task, in the vocabulary of trackers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrackerStep {
    /// The task is new.
    Create,
    /// A node works on it.
    Claim,
    /// Any other change: given back, blocked, set aside, or a turn that did not reach the goal.
    Comment,
    /// The task is done.
    Complete,
}

impl TrackerStep {
    /// The tracker's own word.
    pub fn word(self) -> &'static str {
        match self {
            TrackerStep::Create => "create",
            TrackerStep::Claim => "claim",
            TrackerStep::Comment => "comment",
            TrackerStep::Complete => "complete",
        }
    }
}

/// A change that is still to be reported.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackerUpdate<'a> {
    pub step: TrackerStep,
    /// The task as it is now.
    pub row: &'a TaskRow,
    /// The stored entry once it was reported.
    pub then: TrackedTask,
}

impl TrackerUpdate<'_> {
    /// Same for the same change, so that a repeated report is recognised.
    pub fn key(&self) -> String {
        format!("{}:{}:{}", self.row.task.id, self.step.word(), self.then.fence)
    }
}

impl TrackerState {
    /// Starts for a new tracker: existing tasks are not reported.
    pub fn begin(rows: &[TaskRow]) -> Self {
        let since = newest(rows).unwrap_or_default();
        let kept = rows.iter().filter(|row| row.state != TaskState::Done || row.created_at >= since);
        let tasks = kept.map(|row| (row.task.id.clone(), TrackedTask::of(row))).collect();
        Self { told_version: FORMAT, since, tasks, queue: Queue::default() }
    }

    /// The first `most` changes to report, in the order in which they happened.
    pub fn due<'a>(&self, rows: &'a [TaskRow], most: usize) -> Vec<TrackerUpdate<'a>> {
        let mut due: Vec<(Time, TrackerUpdate<'a>)> = Vec::new();
        for row in rows {
            for step in self.steps(row) {
                let new = TrackedTask { state: "queued".to_owned(), fence: Fence(0), created_at: row.created_at };
                let (at, then) = match step {
                    TrackerStep::Create => (row.created_at, new),
                    TrackerStep::Claim | TrackerStep::Comment | TrackerStep::Complete => {
                        (row.updated_at, TrackedTask::of(row))
                    }
                };
                due.push((at, TrackerUpdate { step, row, then }));
            }
        }
        due.sort_by(|(a_at, a), (b_at, b)| (a_at, &a.row.task.id, a.step).cmp(&(b_at, &b.row.task.id, b.step)));
        due.into_iter().take(most).map(|(_, change)| change).collect()
    }

    fn steps(&self, row: &TaskRow) -> Vec<TrackerStep> {
        let known = self.tasks.get(&row.task.id);
        let (mut steps, before) = match known {
            Some(known) => (Vec::new(), (known.state.as_str(), known.fence)),
            // Reported as done long ago. An open task was never reported, whatever its clock was.
            None if row.created_at < self.since && row.state == TaskState::Done => return Vec::new(),
            None => (vec![TrackerStep::Create], ("queued", Fence(0))),
        };
        match &row.state {
            state if state.label() == before.0 && (row.fence == before.1 || *state == TaskState::Queued) => {}
            TaskState::Done if row.status() == "done" => steps.push(TrackerStep::Complete),
            TaskState::Leased { .. } => steps.push(TrackerStep::Claim),
            TaskState::Done | TaskState::Queued | TaskState::Dead | TaskState::Blocked => {
                steps.push(TrackerStep::Comment);
            }
        }
        steps
    }

    /// Records a successful report.
    pub fn take(&mut self, task: TaskId, known: TrackedTask) {
        self.tasks.insert(task, known);
    }

    /// Drops finished tasks when nothing is due. False when nothing changes.
    pub fn settle(&mut self, rows: &[TaskRow]) -> bool {
        let (before, since) = (self.tasks.len(), newest(rows).unwrap_or_default().max(self.since));
        // Another task of the same millisecond may still be unseen.
        self.tasks.retain(|_, known| known.state != "done" || known.created_at >= since);
        let forgot = self.tasks.len() != before;
        if forgot {
            self.since = since;
        }
        forgot
    }
}

fn newest(rows: &[TaskRow]) -> Option<Time> {
    rows.iter().map(|row| row.created_at).max()
}

/// Reports to a mailbox about a loop so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mailed {
    /// Format of this record.
    pub told_version: u32,
    /// Turns at the last status.
    pub turns: u32,
    /// The end of the loop was reported.
    pub over: bool,
    /// Derived again before each attempt.
    #[serde(skip)]
    pub queue: Queue,
}

impl Default for Mailed {
    fn default() -> Self {
        Self { told_version: FORMAT, turns: 0, over: false, queue: Queue::default() }
    }
}

impl Mailed {
    /// What is recorded after a report of the loop as it is now.
    pub fn after(state: &LoopState) -> Reported {
        Reported::Status { turns: state.task.turns, over: state.is_over() }
    }

    /// Whether a status is due: every `every` turns, and at the end.
    pub fn is_due(&self, state: &LoopState, every: u32) -> bool {
        let every = every.max(1);
        state.task.turns / every > self.turns / every
            || state.is_over() && !(self.over && state.task.turns == self.turns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{LoopId, NodeId};
    use crate::op::{NewTask, Trust};

    fn row(id: &str, at: i64, state: TaskState, fence: u64) -> TaskRow {
        let task = NewTask {
            id: TaskId::new(id),
            owner: Some(LoopId::new("k")),
            kind: "task".to_owned(),
            title: id.to_owned(),
            prompt: String::new(),
            priority: 0,
            deps: Vec::new(),
            author: "me".to_owned(),
            trust: Trust::Operator,
            ready_at: Time(at),
        };
        let (created_at, updated_at) = (Time(at), Time(at + 10));
        TaskRow { task, state, fence: Fence(fence), failures: 0, result: None, created_at, updated_at }
    }

    fn leased() -> TaskState {
        TaskState::Leased { node: NodeId::new("here"), until: Time(9) }
    }

    /// Reports everything that is due; returns it as words.
    fn tell(told: &mut TrackerState, rows: &[TaskRow], most: usize) -> Vec<String> {
        let due = told.due(rows, most);
        let words = due.iter().map(|c| format!("{} {}", c.step.word(), c.row.task.id)).collect();
        let heard: Vec<(TaskId, TrackedTask)> = due.iter().map(|c| (c.row.task.id.clone(), c.then.clone())).collect();
        for (task, known) in heard {
            told.take(task, known);
        }
        words
    }

    #[test]
    fn what_happened_while_nobody_listened_is_told_once_and_in_order() {
        let mut told = TrackerState::begin(&[row("old", 1, TaskState::Queued, 0), row("over", 2, TaskState::Done, 1)]);
        let rows = [
            row("new", 20, leased(), 1),
            row("old", 1, TaskState::Done, 1),
            row("over", 2, TaskState::Done, 1),
            row("quick", 30, TaskState::Done, 1),
        ];
        let expected = ["complete old", "create new", "claim new", "create quick", "complete quick"].map(str::to_owned);
        assert_eq!(tell(&mut told, &rows, 2), expected[..2], "bounded");
        assert_eq!(tell(&mut told, &rows, 100), expected[2..]);
        assert_eq!(tell(&mut told, &rows, 100), [""; 0], "once");
        assert!(told.settle(&rows), "what is done is not remembered");
        assert_eq!(told.tasks.keys().map(TaskId::as_str).collect::<Vec<_>>(), ["new", "quick"], "but for the newest");
        assert_eq!(tell(&mut told, &rows, 100), [""; 0], "and is not reported again either");
        assert!(!told.settle(&rows));
        // Created in the same millisecond, and by a clock that was set back.
        let late = [rows[3].clone(), row("twin", 30, TaskState::Done, 1), row("past", 3, TaskState::Queued, 0)];
        assert_eq!(tell(&mut told, &late, 100), ["create past", "create twin", "complete twin"]);
    }

    #[test]
    fn every_change_has_a_word_and_a_key_of_its_own() {
        let mut told = TrackerState::begin(&[]);
        let mut say = |state, fence| tell(&mut told, &[row("t", 1, state, fence)], 9);
        assert_eq!(say(TaskState::Queued, 0), ["create t"]);
        assert_eq!(say(leased(), 1), ["claim t"]);
        assert_eq!(say(leased(), 1), [""; 0], "a lease that goes on is nothing new");
        assert_eq!(say(leased(), 2), ["claim t"], "another node");
        assert_eq!(say(TaskState::Queued, 2), ["comment t"], "given back");
        assert_eq!(say(TaskState::Blocked, 2), ["comment t"]);
        assert_eq!(say(TaskState::Dead, 3), ["comment t"]);
        assert_eq!(say(TaskState::Queued, 3), ["comment t"], "tried again");
        assert_eq!(say(TaskState::Done, 4), ["complete t"]);
        let done = [row("t", 1, TaskState::Done, 4)];
        assert_eq!(
            TrackerState::begin(&[]).due(&done, 9).iter().map(TrackerUpdate::key).collect::<Vec<_>>(),
            ["t:create:0", "t:complete:4"]
        );
    }
}
