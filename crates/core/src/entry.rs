//! Admission of tasks that agents put on the board. Pure: the existing tasks come from the ledger.
//!
//! People add tasks without limits. Agents that create tasks for agents may do so without end, so
//! the number of open tasks and the depth of derived tasks are bounded.

use crate::ids::{TaskId, TurnId};
use crate::op::{NewTask, Trust};

/// Depth of derived tasks: a person's task may have tasks, these may have tasks, and these too.
pub const DEPTH_MOST: u32 = 3;
/// Maximum open tasks of one author.
pub const OPEN_MOST: usize = 20;
/// Maximum open tasks of all agents together.
pub const OPEN_ALL_MOST: usize = 500;
/// Maximum size of an agent's prompt.
pub const PROMPT_MAX_BYTES: usize = 32_000;
/// Maximum dependencies of an agent's task.
pub const DEPS_MOST: usize = 20;

/// Why a task is not admitted, and what to do instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The violated limit, as a sentence.
    pub why: String,
    /// The hint for the author.
    pub instead: &'static str,
}

/// Lookups that the rules need besides the task.
pub trait EntryContext {
    /// An existing task.
    fn task(&self, id: &TaskId) -> Option<NewTask>;
    /// Open tasks of agents: those of `author`, and all.
    fn open(&self, author: &str) -> (usize, usize);
}

/// The task that a task was derived from: its author is a turn on that task, or names it (`NAME for
/// TASK`).
pub fn parent(author: &str) -> Option<TaskId> {
    if let Some(turn) = author.strip_prefix("turn ") {
        return turn.parse().ok().map(|turn: TurnId| turn.task().clone());
    }
    author.rsplit_once(" for ").map(|(_, task)| TaskId::new(task))
}

/// Number of agents' tasks between a task and a person's, itself included.
pub fn depth(task: &NewTask, board: &impl EntryContext) -> u32 {
    let mut depth = 0;
    let mut next = Some(task.clone());
    while let Some(task) = next.filter(|t| t.trust == Trust::Agent && depth <= DEPTH_MOST) {
        depth += 1;
        next = parent(&task.author).and_then(|id| board.task(&id));
    }
    depth
}

/// Whether a new task may be put on the board.
pub fn admit(task: &NewTask, board: &impl EntryContext) -> Result<(), Refused> {
    let refuse = |why: String, instead| Err(Refused { why, instead });
    if task.trust == Trust::Operator {
        return Ok(());
    }
    if task.prompt.len() > PROMPT_MAX_BYTES {
        return refuse(
            format!("the prompt of an agent's task is longer than {PROMPT_MAX_BYTES} bytes"),
            "write it into a file of the project and name that file",
        );
    }
    if task.deps.len() > DEPS_MOST {
        return refuse(format!("it waits for more than {DEPS_MOST} tasks"), "name the last ones only");
    }
    if depth(task, board) > DEPTH_MOST {
        return refuse(
            format!("tasks of tasks of agents are only {DEPTH_MOST} deep"),
            "do it in this turn, or leave it to a person",
        );
    }
    let (own, all) = board.open(&task.author);
    if own >= OPEN_MOST {
        return refuse(format!("{own} tasks of {} are open already", task.author), "end some of them first");
    }
    if all >= OPEN_ALL_MOST {
        return refuse(format!("{all} tasks of agents are open already"), "end some of them first");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::time::Time;

    #[derive(Default)]
    struct Known {
        tasks: BTreeMap<TaskId, NewTask>,
        open: (usize, usize),
    }

    impl EntryContext for Known {
        fn task(&self, id: &TaskId) -> Option<NewTask> {
            self.tasks.get(id).cloned()
        }

        fn open(&self, _: &str) -> (usize, usize) {
            self.open
        }
    }

    fn task(id: &str, author: &str, trust: Trust) -> NewTask {
        NewTask {
            id: TaskId::new(id),
            owner: None,
            kind: "task".to_owned(),
            title: id.to_owned(),
            prompt: String::new(),
            priority: 0,
            deps: Vec::new(),
            author: author.to_owned(),
            trust,
            ready_at: Time(0),
        }
    }

    /// `a` is a person's; `b` was added in a turn on it, and so on.
    fn chain() -> Known {
        let of = |id, author, trust| (TaskId::new(id), task(id, author, trust));
        let tasks = [
            of("a", "me", Trust::Operator),
            of("b", "turn a.1", Trust::Agent),
            of("c", "agent claude for b", Trust::Agent),
            of("d", "turn c.7", Trust::Agent),
        ];
        Known { tasks: tasks.into(), open: (0, 0) }
    }

    #[test]
    fn tasks_of_tasks_have_a_bottom() {
        let board = chain();
        for (author, deep) in [("turn a.2", 1), ("turn b.1", 2), ("turn c.1", 3), ("agent x", 1), ("turn k3f9-4.1", 1)]
        {
            let new = task("new", author, Trust::Agent);
            assert_eq!((depth(&new, &board), admit(&new, &board)), (deep, Ok(())), "{author}");
        }
        for author in ["turn d.1", "agent claude for d"] {
            let refused = admit(&task("new", author, Trust::Agent), &board).expect_err(author);
            assert!(refused.why.contains("3 deep"), "{}", refused.why);
        }
        assert_eq!(admit(&task("new", "turn d.1", Trust::Operator), &board), Ok(()), "a person may");
    }

    #[test]
    fn a_ring_of_authors_is_no_way_around() {
        let of = |id, author| (TaskId::new(id), task(id, author, Trust::Agent));
        let board = Known { tasks: [of("a", "x for b"), of("b", "x for a")].into(), open: (0, 0) };
        assert!(admit(&task("new", "turn a.1", Trust::Agent), &board).is_err());
    }

    #[test]
    fn few_at_a_time_and_short() {
        let new = task("new", "agent x", Trust::Agent);
        assert!(admit(&new, &Known { open: (OPEN_MOST - 1, OPEN_ALL_MOST - 1), ..Known::default() }).is_ok());
        assert!(admit(&new, &Known { open: (OPEN_MOST, OPEN_MOST), ..Known::default() }).is_err());
        assert!(admit(&new, &Known { open: (0, OPEN_ALL_MOST), ..Known::default() }).is_err());
        let long = NewTask { prompt: "x".repeat(PROMPT_MAX_BYTES + 1), ..new.clone() };
        assert!(admit(&long, &Known::default()).is_err());
        let waiting = NewTask { deps: vec![TaskId::new("a"); DEPS_MOST + 1], ..new };
        assert!(admit(&waiting, &Known::default()).is_err());
    }
}
