//! Why a loop of the mesh is as it is: the rule that decides, its inputs, and when it changes.
//! Reads what a node knows of the hub; decides nothing.

use crate::op::{TaskRow, TaskState};
use crate::reason::{Reason, RuleId};
use crate::time::Time;

use super::MeshLoop;
use crate::ids::NodeId;

/// What is known of a loop, at one moment of the hub.
#[derive(Clone, Copy, Debug)]
pub struct LoopView<'a> {
    pub state: &'a MeshLoop,
    /// Its open tasks.
    pub rows: &'a [TaskRow],
    /// The leader, if its lease is not over.
    pub leader: Option<&'a NodeId>,
    /// The time by the hub's clock.
    pub now: Time,
}

/// The rule that decides what happens next with a loop.
pub fn reason(view: &LoopView<'_>) -> Reason {
    let LoopView { state, rows, leader, now } = *view;
    let is = |wanted: fn(&TaskState) -> bool| rows.iter().filter(|row| wanted(&row.state)).collect::<Vec<&TaskRow>>();
    let ids = |rows: &[&TaskRow]| rows.iter().map(|row| row.task.id.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(end) = &state.ended {
        return Reason::new(RuleId::MeshEnded).with("end", end);
    }
    let Some(leader) = leader else {
        let held = is(|state| matches!(state, TaskState::Leased { .. }));
        return Reason::new(RuleId::MeshNoLeader).with("held", held.len());
    };
    let by_leader = |rule| Reason::new(rule).with("leader", leader);
    if state.stop {
        return by_leader(RuleId::MeshStops);
    }
    if state.judged.is_none() {
        return by_leader(RuleId::MeshJudges);
    }
    let done = is(|state| *state == TaskState::Done);
    if !done.is_empty() {
        return by_leader(RuleId::MeshMerges).with("tasks", ids(&done));
    }
    let held = is(|state| matches!(state, TaskState::Leased { .. }));
    if !held.is_empty() {
        let until = held
            .iter()
            .filter_map(|row| if let TaskState::Leased { until, .. } = &row.state { Some(*until) } else { None });
        let reason = Reason::new(RuleId::MeshWorks).with("tasks", held.len()).with("of", state.open.len());
        return until.min().map_or(reason.clone(), |at| reason.until(at));
    }
    if let Some(waits) = &state.waits {
        return waits.clone();
    }
    let queued = is(|state| *state == TaskState::Queued);
    let Some(ready) = queued.iter().map(|row| row.task.ready_at).min() else {
        return match &state.research {
            Some(found) => by_leader(RuleId::MeshPlans).with("experiments", found.number),
            None => by_leader(RuleId::MeshPlans).with("failing", failing(state)),
        };
    };
    let reason = Reason::new(RuleId::MeshQueued).with("tasks", ids(&queued)).with("tried", attempts(&queued));
    if ready > now { reason.until(ready) } else { reason }
}

fn failing(state: &MeshLoop) -> usize {
    state.judged.iter().map(|judged| judged.board.failing().count()).sum()
}

/// Attempts at these tasks that came to nothing.
fn attempts(rows: &[&TaskRow]) -> u32 {
    rows.iter().map(|row| row.failures).sum()
}

/// A sentence about it. `clock` prints a point in time for the reader's time zone.
pub fn sentence(reason: &Reason, now: Time, clock: &dyn Fn(Time) -> String) -> String {
    let input = |name| reason.input(name);
    let at = reason.until.map(clock).unwrap_or_default();
    let said = match &reason.rule {
        RuleId::MeshEnded => format!("it ended: {}", input("end")),
        RuleId::MeshNoLeader => format!(
            "no node leads the mesh, so nothing is merged and no task is made; {} held tasks go on",
            input("held")
        ),
        RuleId::MeshStops => {
            format!("a person wants it to stop; the leader {} ends it at its next look", input("leader"))
        }
        RuleId::MeshJudges => format!("the leader {} runs the checks on the branch", input("leader")),
        RuleId::MeshMerges => format!("the leader {} merges what is done: {}", input("leader"), input("tasks")),
        RuleId::MeshWorks if reason.until.is_some_and(|until| until <= now) => format!(
            "nodes work on {} of {} open tasks; the lease of one is over since {at}, and the leader gives that task to another",
            input("tasks"),
            input("of")
        ),
        RuleId::MeshWorks => format!("nodes work on {} of {} open tasks", input("tasks"), input("of")),
        RuleId::MeshQueued if reason.until.is_some() => {
            format!("{} waits until {at}, after an attempt that came to nothing", input("tasks"))
        }
        RuleId::MeshQueued => {
            format!("no node has taken {} yet; attempts that came to nothing: {}", input("tasks"), input("tried"))
        }
        RuleId::MeshPlans if !input("experiments").is_empty() => {
            format!(
                "{} experiments are over, and the leader {} makes tasks of the next",
                input("experiments"),
                input("leader")
            )
        }
        RuleId::MeshPlans => {
            format!("the leader {} makes tasks of {} failing checks", input("leader"), input("failing"))
        }
        _ => return format!("it waits: {}", crate::why::waiting(reason, now, clock)),
    };
    format!("{said} [{}].", reason.rule)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{self, board, state};
    use super::*;
    use crate::ids::TaskId;
    use crate::mesh::{End, leader};
    use crate::op::NewTask;

    fn row(id: &str, state: TaskState) -> TaskRow {
        let leader::LeaderStep::Open { task, .. } = leader::next(&failing_loop(), &[], false, Time(1_000)).remove(0)
        else {
            panic!("a failing check gets a task")
        };
        tests::row(&NewTask { id: TaskId::new(id), ..*task }, state, None)
    }

    fn failing_loop() -> MeshLoop {
        let mut state = state();
        state.judge("c0".to_owned(), board(&["a"]));
        state
    }

    fn rule(state: &MeshLoop, rows: &[TaskRow], leader: Option<&NodeId>) -> (String, String) {
        let reason = reason(&LoopView { state, rows, leader, now: Time(10_000) });
        (reason.rule.to_string(), sentence(&reason, Time(10_000), &|at| at.0.to_string()))
    }

    #[test]
    fn every_state_of_a_loop_has_a_rule_with_its_inputs() {
        let node = NodeId::new("n1");
        let leader = Some(&node);
        let mut state = failing_loop();
        let leased = TaskState::Leased { node: node.clone(), until: Time(20_000) };
        let over = TaskState::Leased { node: node.clone(), until: Time(9_000) };
        let mut later = row("k-1", TaskState::Queued);
        later.task.ready_at = Time(30_000);
        let told = [
            rule(&state, &[], None),
            rule(&state, &[], leader),
            rule(&state, &[row("k-1", TaskState::Done), row("k-2", leased.clone())], leader),
            rule(&state, &[row("k-1", leased.clone()), row("k-2", TaskState::Queued)], leader),
            rule(&state, &[row("k-1", over)], leader),
            rule(&state, &[row("k-1", TaskState::Queued)], leader),
            rule(&state, &[later], leader),
        ];
        let rules: Vec<&str> = told.iter().map(|(rule, _)| rule.as_str()).collect();
        let works = "mesh.works";
        assert_eq!(rules, ["mesh.leaderless", "mesh.plans", "mesh.merges", works, works, "mesh.queued", "mesh.queued"]);
        assert!(told.iter().all(|(rule, text)| text.ends_with(&format!("[{rule}]."))), "{told:?}");
        assert!(told[4].1.contains("over since 9000") && told[6].1.contains("until 30000"), "{told:?}");
        state.research = Some(Box::new(crate::research::tests_support::state()));
        let (plans, text) = rule(&state, &[], leader);
        assert!(plans == "mesh.plans" && text.starts_with("0 experiments are over, and the leader n1"), "{text}");
        state.research = None;
        state.waits = Some(Reason::new(RuleId::GuardBudget).with("bound", "calls"));
        assert_eq!(rule(&state, &[row("k-1", TaskState::Queued)], leader).0, "guard.budget");
        state.judged = None;
        assert_eq!(rule(&state, &[], leader).0, "mesh.judges");
        state.stop = true;
        assert_eq!(rule(&state, &[], leader).0, "mesh.stops");
        state.ended = Some(End::Stopped);
        assert_eq!(rule(&state, &[], None).0, "mesh.ended");
    }
}
