//! Rules for operations on one task. Pure; shared by all ledgers, so that they differ only in how
//! rows are stored.
//!
//! The fence only ever grows here: by one in [`lease`] and by one in the amendments that take a
//! task from its holder.

use everloop_core::ids::{Fence, NodeId, TaskId};
use everloop_core::op::{Amendment, NewTask, Refusal, TaskEnd, TaskRow, TaskState};
use everloop_core::planted::{self, Bug};
use everloop_core::time::Time;

/// The row of a new task.
pub(crate) fn queued(task: &NewTask, now: Time) -> TaskRow {
    TaskRow {
        task: task.clone(),
        state: TaskState::Queued,
        fence: Fence(0),
        failures: 0,
        result: None,
        created_at: now,
        updated_at: now,
    }
}

/// Refuses a new task that needs itself or an unknown task.
pub(crate) fn check_deps<E: From<Refusal>>(
    task: &NewTask,
    mut is_there: impl FnMut(&TaskId) -> Result<bool, E>,
) -> Result<(), E> {
    for dep in &task.deps {
        let why = if *dep == task.id {
            "it depends on itself".to_owned()
        } else if is_there(dep)? {
            continue;
        } else {
            format!("it depends on `{dep}`, which is not there")
        };
        return Err(Refusal::BadDependency { task: task.id.clone(), why }.into());
    }
    Ok(())
}

/// Whether a task may be taken as far as its own row shows; its dependencies are checked elsewhere.
pub(crate) fn is_due(row: &TaskRow, now: Time) -> bool {
    match &row.state {
        TaskState::Queued => row.task.ready_at <= now,
        TaskState::Leased { until, .. } => *until <= now,
        TaskState::Done | TaskState::Dead | TaskState::Blocked => false,
    }
}

/// Refuses a take of `row` under `fence`, unless the task is free and the fence is the next one.
pub(crate) fn check_take(row: &TaskRow, fence: Fence, now: Time) -> Result<(), Refusal> {
    match &row.state {
        TaskState::Queued => {}
        TaskState::Leased { until, .. } if *until <= now => {}
        TaskState::Leased { .. } => return Err(fenced(row, fence)),
        TaskState::Done | TaskState::Dead | TaskState::Blocked => return Err(wrong_state(row)),
    }
    if fence == row.fence.next() { Ok(()) } else { Err(fenced(row, fence)) }
}

/// The refusal of a take while a dependency is not done.
pub(crate) fn held_by_deps(row: &TaskRow) -> Refusal {
    Refusal::WrongState { task: row.task.id.clone(), state: "waiting for its dependencies".to_owned() }
}

/// Leases the task to a node under the next fence.
pub(crate) fn lease(row: &mut TaskRow, node: &NodeId, until: Time, now: Time) {
    let over = matches!(&row.state, TaskState::Leased { .. });
    row.fence = if over && planted::is(Bug::FenceRestartsAtExpiry) { Fence(1) } else { row.fence.next() };
    row.state = TaskState::Leased { node: node.clone(), until };
    row.updated_at = now;
}

/// Refuses every caller but the holder of the latest fence.
pub(crate) fn check_held(row: &TaskRow, fence: Fence) -> Result<(), Refusal> {
    match &row.state {
        TaskState::Leased { .. } if row.fence == fence || planted::is(Bug::AcceptsOldFence) => Ok(()),
        TaskState::Leased { .. } | TaskState::Queued | TaskState::Done | TaskState::Dead | TaskState::Blocked => {
            Err(fenced(row, fence))
        }
    }
}

/// Extends the lease until `until`.
pub(crate) fn renew(row: &mut TaskRow, fence: Fence, until: Time, now: Time) -> Result<(), Refusal> {
    check_held(row, fence)?;
    if let TaskState::Leased { until: end, .. } = &mut row.state {
        *end = until;
    }
    row.updated_at = now;
    Ok(())
}

/// Ends the task. The caller has run [`check_held`].
pub(crate) fn finish(row: &mut TaskRow, end: TaskEnd, result: &str, now: Time) {
    row.state = match end {
        TaskEnd::Done => TaskState::Done,
        TaskEnd::Dead => TaskState::Dead,
    };
    row.result = Some(result.to_owned());
    row.updated_at = now;
}

/// Stored label of the state after such an end.
pub(crate) fn end_label(end: TaskEnd) -> &'static str {
    match end {
        TaskEnd::Done => "done",
        TaskEnd::Dead => "dead",
    }
}

/// Puts the task back into the queue. The caller has run [`check_held`].
pub(crate) fn release(row: &mut TaskRow, ready_at: Time, failures: u32, now: Time) {
    row.state = TaskState::Queued;
    row.task.ready_at = ready_at;
    row.failures = row.failures.saturating_add(failures);
    row.updated_at = now;
}

/// Applies a person's change, regardless of the holder.
pub(crate) fn amend(row: &mut TaskRow, change: &Amendment, now: Time) -> Result<(), Refusal> {
    let fell_short = row.state == TaskState::Done && !row.unlocks();
    match (change, &row.state) {
        (Amendment::Block, TaskState::Queued) => row.state = TaskState::Blocked,
        (Amendment::Retry, state)
            if fell_short || matches!(state, TaskState::Blocked | TaskState::Dead | TaskState::Leased { .. }) =>
        {
            row.state = TaskState::Queued;
            row.task.ready_at = now;
            row.fence = row.fence.next();
            row.failures = 0;
            // What a finished turn came to stays on record until the next one ends.
            if !fell_short {
                row.result = None;
            }
        }
        (Amendment::Cancel, TaskState::Queued | TaskState::Leased { .. } | TaskState::Dead | TaskState::Blocked) => {
            row.state = TaskState::Dead;
            row.fence = row.fence.next();
        }
        (Amendment::Block, TaskState::Leased { .. } | TaskState::Done | TaskState::Dead | TaskState::Blocked)
        | (Amendment::Retry, _)
        | (Amendment::Cancel, TaskState::Done) => return Err(wrong_state(row)),
    }
    row.updated_at = now;
    Ok(())
}

/// The refusal for an unknown task.
pub(crate) fn gone(task: &TaskId) -> Refusal {
    Refusal::Gone { what: format!("task {task}") }
}

fn fenced(row: &TaskRow, fence: Fence) -> Refusal {
    Refusal::Fenced { task: row.task.id.clone(), fence }
}

fn wrong_state(row: &TaskRow) -> Refusal {
    Refusal::WrongState { task: row.task.id.clone(), state: row.state.label().to_owned() }
}

#[cfg(test)]
mod tests {
    use everloop_core::op::Trust;

    use super::*;

    const NOW: Time = Time(100);

    fn row(state: TaskState) -> TaskRow {
        let task = NewTask {
            id: TaskId::new("t"),
            owner: None,
            kind: String::new(),
            title: String::new(),
            prompt: String::new(),
            priority: 0,
            deps: vec![],
            author: String::new(),
            trust: Trust::Operator,
            ready_at: Time(50),
        };
        TaskRow { state, fence: Fence(3), failures: 2, result: Some("r".to_owned()), ..queued(&task, Time(1)) }
    }

    /// Queued, live lease, lease over, done, dead, blocked.
    fn rows() -> [TaskRow; 6] {
        let leased = |until| TaskState::Leased { node: NodeId::new("n"), until: Time(until) };
        [TaskState::Queued, leased(101), leased(100), TaskState::Done, TaskState::Dead, TaskState::Blocked].map(row)
    }

    /// One letter per state for the result.
    fn letters(mut outcome: impl FnMut(&mut TaskRow) -> Result<(), Refusal>) -> String {
        let letter = |mut row| match outcome(&mut row) {
            Ok(()) => row.state.label()[..1].to_uppercase(),
            Err(Refusal::Fenced { .. }) => "f".to_owned(),
            Err(Refusal::WrongState { .. }) => "w".to_owned(),
            Err(other) => panic!("{other}"),
        };
        rows().map(letter).concat()
    }

    #[test]
    fn every_state_allows_what_it_should_and_nothing_else() {
        let take = |fence| {
            letters(|row| {
                check_take(row, Fence(fence), NOW)?;
                lease(row, &NodeId::new("m"), Time(200), NOW);
                Ok(())
            })
        };
        //          queued, live, over, done, dead, blocked
        assert_eq!(take(4), "LfLwww");
        assert_eq!(take(3), "fffwww");
        assert_eq!(letters(|row| renew(row, Fence(3), Time(200), NOW)), "fLLfff");
        assert_eq!(letters(|row| renew(row, Fence(2), Time(200), NOW)), "ffffff");
        assert_eq!(letters(|row| check_held(row, Fence(4))), "ffffff");
        assert_eq!(letters(|row| amend(row, &Amendment::Block, NOW)), "Bwwwww");
        assert_eq!(letters(|row| amend(row, &Amendment::Retry, NOW)), "wQQwQQ");
        assert_eq!(letters(|row| amend(row, &Amendment::Cancel, NOW)), "DDDwDD");
        assert_eq!(rows().map(|row| is_due(&row, NOW)), [true, false, true, false, false, false]);
        assert!(!is_due(&row(TaskState::Queued), Time(49)));
    }

    #[test]
    fn the_fence_grows_where_a_holder_changes_and_nowhere_falls() {
        let [queued, live, ..] = rows();
        let after = |row: &TaskRow, change: &dyn Fn(&mut TaskRow)| {
            let mut row = row.clone();
            change(&mut row);
            assert_eq!(row.updated_at, NOW);
            row
        };
        assert_eq!(after(&queued, &|row| lease(row, &NodeId::new("m"), Time(200), NOW)).fence, Fence(4));
        assert_eq!(after(&live, &|row| finish(row, TaskEnd::Dead, "x", NOW)).fence, Fence(3));
        let released = after(&live, &|row| release(row, Time(300), 1, NOW));
        assert_eq!((released.fence, released.failures, released.task.ready_at), (Fence(3), 3, Time(300)));
        let retried = after(&live, &|row| amend(row, &Amendment::Retry, NOW).unwrap());
        assert_eq!((retried.fence, retried.failures, retried.task.ready_at), (Fence(4), 0, NOW));
        assert_eq!(retried.result, None);
        let cancelled = after(&live, &|row| amend(row, &Amendment::Cancel, NOW).unwrap());
        assert_eq!((cancelled.fence, cancelled.failures, cancelled.result.as_deref()), (Fence(4), 2, Some("r")));
    }
}
