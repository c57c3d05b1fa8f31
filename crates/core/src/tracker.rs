//! What others are still to be told: a tracker what happened to tasks, a mailbox how a loop is doing. Derived from what is there
//! and from what was told last, so that nothing is told twice and nothing is lost while we or they are away. Owns what is due
//! and in which order; who is told, and how, is the business of whoever asks.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{Fence, TaskId};
use crate::op::{TaskRow, TaskState};
use crate::state::LoopState;
use crate::time::Time;

/// Version of what is remembered. A newer one is refused, never guessed at.
pub const TOLD_VERSION: u32 = 1;
/// The kind of document that remembers what a tracker was told.
pub const TRACKER: &str = "tracker";
/// The kind of document that remembers what a mailbox was told.
pub const MAILBOX: &str = "mailbox";

/// First wait after somebody could not be told; it doubles.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// The longest such wait.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// What a tracker was told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackerState {
    /// Format of this record.
    pub told_version: u32,
    /// Of tasks made before, all is known that is not in the list.
    pub since: Time,
    /// Tasks as it knows them. One that is done is left out as soon as all others are known, too.
    pub tasks: BTreeMap<TaskId, TrackedTask>,
}

/// A task as a tracker knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackedTask {
    /// Its state in one word.
    pub state: String,
    /// Its fence.
    pub fence: Fence,
    /// When it was made.
    pub created_at: Time,
}

impl TrackedTask {
    fn of(row: &TaskRow) -> Self {
        Self { state: row.state.label().to_owned(), fence: row.fence, created_at: row.created_at }
    }
}

/// What happened to a task, in the words of a tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrackerStep {
    /// It is new.
    Create,
    /// Somebody works on it.
    Claim,
    /// Anything else: it was given back, blocked, set aside.
    Comment,
    /// It is done.
    Complete,
}

impl TrackerStep {
    /// The tracker's word.
    pub fn word(self) -> &'static str {
        match self {
            TrackerStep::Create => "create",
            TrackerStep::Claim => "claim",
            TrackerStep::Comment => "comment",
            TrackerStep::Complete => "complete",
        }
    }
}

/// Something that a tracker is still to be told.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackerUpdate<'a> {
    /// What happened.
    pub step: TrackerStep,
    /// To which task; as it is now.
    pub row: &'a TaskRow,
    /// What is known once it was told.
    pub then: TrackedTask,
}

impl TrackerUpdate<'_> {
    /// The same for the same change, so that one that is told again can be known by it.
    pub fn key(&self) -> String {
        format!("{}:{}:{}", self.row.task.id, self.step.word(), self.then.fence)
    }
}

impl TrackerState {
    /// Of somebody new: what is there already is none of his.
    pub fn begin(rows: &[TaskRow]) -> Self {
        let since = newest(rows).unwrap_or_default();
        let kept = rows.iter().filter(|row| row.state != TaskState::Done || row.created_at >= since);
        let tasks = kept.map(|row| (row.task.id.clone(), TrackedTask::of(row))).collect();
        Self { told_version: TOLD_VERSION, since, tasks }
    }

    /// The first `most` things to tell, in the order in which they happened.
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
            // Told as done long ago. What is open was never told, whatever its clock said.
            None if row.created_at < self.since && row.state == TaskState::Done => return Vec::new(),
            None => (vec![TrackerStep::Create], ("queued", Fence(0))),
        };
        match &row.state {
            state if state.label() == before.0 && (row.fence == before.1 || *state == TaskState::Queued) => {}
            TaskState::Done => steps.push(TrackerStep::Complete),
            TaskState::Leased { .. } => steps.push(TrackerStep::Claim),
            TaskState::Queued | TaskState::Dead | TaskState::Blocked => steps.push(TrackerStep::Comment),
        }
        steps
    }

    /// It was told.
    pub fn take(&mut self, task: TaskId, known: TrackedTask) {
        self.tasks.insert(task, known);
    }

    /// Nothing of these was due: what is done need not be remembered. False when nothing changes.
    pub fn settle(&mut self, rows: &[TaskRow]) -> bool {
        let (before, since) = (self.tasks.len(), newest(rows).unwrap_or_default().max(self.since));
        // Of the same millisecond there may be another one that nobody has seen yet.
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

/// What a mailbox was told about a loop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mailed {
    /// Format of this record.
    pub told_version: u32,
    /// Turns at the last status.
    pub turns: u32,
    /// That it is over.
    pub over: bool,
}

impl Mailed {
    /// As the loop is now.
    pub fn of(state: &LoopState) -> Self {
        Self { told_version: TOLD_VERSION, turns: state.turns, over: state.is_over() }
    }

    /// Whether a status is due: every so many turns, and at the end.
    pub fn is_due(&self, state: &LoopState, every: u32) -> bool {
        let every = every.max(1);
        state.turns / every > self.turns / every || state.is_over() && !(self.over && state.turns == self.turns)
    }
}

/// How long to leave somebody alone who could not be told so often in a row.
pub fn wait(failures: u32) -> Duration {
    FIRST_WAIT.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(LONGEST_WAIT)
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

    /// What is told, as words, and all of it is heard.
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
        assert_eq!(tell(&mut told, &rows, 100), [""; 0], "and not told again either");
        assert!(!told.settle(&rows));
        // Made in the same millisecond, and by a clock that was set back.
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
        assert_eq!(say(leased(), 2), ["claim t"], "somebody else");
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

    #[test]
    fn waits_grow_within_bounds() {
        assert_eq!([1, 2, 3, 99].map(wait).map(|d| d.as_secs()), [5, 10, 20, 3600]);
    }
}
