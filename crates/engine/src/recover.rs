//! Plans what of a mirror goes into a new ledger. Reads and writes no file: the
//! service of that name does.
//!
//! Two things must never happen: a fence is given out twice, and something is made up. So every
//! task that is not done gets a fence that was never given out, except one that a turn of its loop
//! holds and that the supervisor will look for; and what cannot be known is listed.

use std::collections::{BTreeMap, BTreeSet};

use everloop_core::event::Event;
use everloop_core::ids::{Fence, LoopId, TaskId, TurnId};
use everloop_core::op::{TaskRow, TaskState};
use everloop_core::state::{LoopState, Phase, Turn};
use everloop_core::time::Time;
use everloop_store::LoopRow;
use everloop_store::mirror::{COMPLETED_MOST, Lost, MirrorContents, Rows};

use crate::record::read_state;

/// New fences and epochs start this far above the last known one. The files are behind by seconds,
/// or by as long as the disk was full; no task changes hands a thousand times in that time.
const LEAP: u64 = 1_000;

/// The rows to write, and what is lost.
#[derive(Debug)]
pub struct RestorePlan {
    pub rows: Rows,
    /// What cannot be known, or is not as it was.
    pub lost: Vec<Lost>,
    /// Turns that the supervisor will look for.
    pub under_way: Vec<TurnId>,
    /// Turns with a folder, but without a trace in the mirror: they began after its last write.
    pub strangers: Vec<TurnId>,
    /// Tasks with a new fence: no turn can finish them under the old one.
    pub leapt: usize,
    journal_is_whole: bool,
}

impl RestorePlan {
    /// For the ledger of a machine. `turns` are those with a folder.
    pub fn local(found: MirrorContents, turns: &[TurnId], now: Time) -> Self {
        let mut plan = Self::new(found, now);
        plan.rebuild_loops();
        let held = plan.turns_under_way();
        let given = plan.fences_given(turns);
        let (strange, strangers): (BTreeSet<TaskId>, Vec<TurnId>) = plan.find_strangers(turns).into_iter().unzip();
        plan.strangers = strangers;
        for row in &mut plan.rows.tasks {
            let kept = held.get(&row.task.id).is_some_and(|turn| turn.fence == row.fence);
            if kept && !strange.contains(&row.task.id) && matches!(row.state, TaskState::Leased { .. }) {
                continue;
            }
            plan.leapt += usize::from(leap(row, given.get(&row.task.id).copied(), now));
        }
        plan.under_way = held.into_values().map(|turn| turn.id).collect();
        plan.finish();
        plan
    }

    /// For a hub: claims are not known here, so every lease is void.
    pub fn hub(found: MirrorContents, now: Time) -> Self {
        let mut plan = Self::new(found, now);
        for row in &mut plan.rows.tasks {
            plan.leapt += usize::from(leap(row, None, now));
        }
        if let Some(leader) = &mut plan.rows.leader {
            leader.term += LEAP;
            leader.until = Time(0);
        }
        plan.finish();
        plan
    }

    fn new(found: MirrorContents, now: Time) -> Self {
        let journal = found.mended_journal(now);
        let MirrorContents { mut rows, mut lost, journal_is_whole, .. } = found;
        rows.journal = journal;
        let broken: Vec<(LoopId, String)> =
            rows.loops.iter().filter_map(|row| read_state(row).err().map(|e| (row.id.clone(), e.message))).collect();
        for (id, why) in broken {
            rows.loops.retain(|row| row.id != id);
            lost.push(Lost { what: format!("loop {id}"), why });
        }
        if !journal_is_whole {
            lost.push(Lost {
                what: "`everloop replay`".to_owned(),
                why: "the journal was renumbered, and states are not the sum of what is left of it".to_owned(),
            });
        }
        Self { rows, lost, under_way: Vec::new(), strangers: Vec::new(), leapt: 0, journal_is_whole }
    }

    /// Rebuilds a loop with a missing or untrusted file from its journal, if that is complete.
    fn rebuild_loops(&mut self) {
        let known: BTreeSet<LoopId> = self.rows.loops.iter().map(|row| row.id.clone()).collect();
        let mut rebuilt: BTreeMap<LoopId, LoopState> = BTreeMap::new();
        for stored in self.rows.journal.iter().filter(|_| self.journal_is_whole) {
            let Some(id) = stored.owner.as_ref().filter(|id| !known.contains(*id)) else { continue };
            let Ok(event) = serde_json::from_str::<Event>(&stored.body) else { continue };
            match (rebuilt.get_mut(id), event) {
                (_, Event::Forgotten) => drop(rebuilt.remove(id)),
                (Some(state), event) => state.apply(&event, stored.at),
                (None, Event::LoopCreated { name, spec }) => {
                    rebuilt.insert(id.clone(), LoopState::new(id.clone(), name, *spec, stored.at));
                }
                (None, _) => {}
            }
        }
        for (id, state) in rebuilt {
            self.lost.push(Lost {
                what: format!("the file of loop {id}"),
                why: "the loop was rebuilt from its journal instead".to_owned(),
            });
            self.rows.loops.push(LoopRow {
                phase: state.phase.label().to_owned(),
                updated_at: state.updated_at,
                state: serde_json::to_string(&state).expect("a state is plain data and always has a JSON form"),
                version: 1,
                id,
            });
        }
    }

    fn turns_under_way(&self) -> BTreeMap<TaskId, Turn> {
        let states = self.rows.loops.iter().filter_map(|row| read_state(row).ok());
        let turn = |state: LoopState| match state.phase {
            Phase::Turn(turn) => Some((turn.task.clone(), *turn)),
            _ => None,
        };
        states.filter_map(turn).collect()
    }

    /// The highest fence of each task in the journal or in the folder of a turn.
    fn fences_given(&self, turns: &[TurnId]) -> BTreeMap<TaskId, Fence> {
        let mut given: BTreeMap<TaskId, Fence> = BTreeMap::new();
        let started = self.rows.journal.iter().filter(|stored| stored.body.contains("turn_started"));
        let started = started.filter_map(|stored| match serde_json::from_str(&stored.body) {
            Ok(Event::TurnStarted { task, fence, .. }) => Some((task, fence)),
            _ => None,
        });
        for (task, fence) in started.chain(turns.iter().map(|turn| (turn.task().clone(), turn.fence()))) {
            let highest = given.entry(task).or_default();
            *highest = fence.max(*highest);
        }
        given
    }

    /// Runs before any fence leaps: only the mirror counts as known.
    fn find_strangers(&self, turns: &[TurnId]) -> Vec<(TaskId, TurnId)> {
        let given = self.fences_given(&[]);
        let known = |task: &TaskId| {
            let row = self.rows.tasks.iter().find(|row| row.task.id == *task).map(|row| row.fence);
            row.max(given.get(task).copied())
        };
        // A task without any trace may also be one that was over long ago.
        let strange = |turn: &&TurnId| known(turn.task()).map_or(!self.is_old(turn.task()), |last| turn.fence() > last);
        turns.iter().filter(strange).map(|turn| (turn.task().clone(), turn.clone())).collect()
    }

    /// Whether a missing task belongs to a loop that has made newer ones.
    fn is_old(&self, task: &TaskId) -> bool {
        let Some((owner, number)) = task.as_str().rsplit_once('-') else { return true };
        let made = self.rows.loops.iter().find(|row| row.id.as_str() == owner).and_then(|row| read_state(row).ok());
        match (made, number.parse::<u32>()) {
            (Some(state), Ok(number)) => number <= state.task.number,
            _ => true,
        }
    }

    /// Blocks tasks that need a missing task until a person decides; lists what else is not as it
    /// was.
    fn finish(&mut self) {
        let there: BTreeSet<TaskId> = self.rows.tasks.iter().map(|row| row.task.id.clone()).collect();
        for row in &mut self.rows.tasks {
            let before = row.task.deps.len();
            row.task.deps.retain(|dep| there.contains(dep));
            if row.task.deps.len() < before && row.state == TaskState::Queued {
                row.state = TaskState::Blocked;
                self.lost.push(Lost {
                    what: format!("what task {} waited for", row.task.id),
                    why: "those tasks are not in the mirror; check it, then `everloop task retry` it".to_owned(),
                });
            }
        }
        let over = |row: &&TaskRow| row.state == TaskState::Done;
        if self.rows.tasks.iter().filter(over).count() >= COMPLETED_MOST {
            let why = format!("a mirror keeps the newest {COMPLETED_MOST}");
            self.lost.push(Lost { what: "older finished tasks".to_owned(), why });
        }
        let reserved: BTreeSet<&TurnId> =
            self.rows.guards.values().flat_map(|guard| guard.state.reserved.keys()).collect();
        for turn in reserved.into_iter().filter(|turn| !self.under_way.contains(turn)) {
            self.lost.push(Lost {
                what: format!("what turn {turn} used"),
                why: "it counts as its whole reservation".to_owned(),
            });
        }
    }
}

/// Makes sure that no other holder's fence matches. A done task stays done: no claim can take it
/// again.
fn leap(row: &mut TaskRow, given: Option<Fence>, now: Time) -> bool {
    if row.state == TaskState::Done {
        return false;
    }
    row.fence = Fence(row.fence.max(given.unwrap_or_default()).0 + LEAP);
    if let TaskState::Leased { .. } = row.state {
        row.state = TaskState::Queued;
        row.task.ready_at = now;
    }
    row.updated_at = now;
    true
}

#[cfg(test)]
mod tests {
    use everloop_core::ids::NodeId;
    use everloop_core::op::{NewTask, Trust};
    use everloop_store::Leader;

    use super::*;

    const NOW: Time = Time(900);

    fn row(id: &str, state: TaskState, fence: u64) -> TaskRow {
        let task = NewTask {
            id: TaskId::new(id),
            owner: None,
            kind: "batch".to_owned(),
            title: String::new(),
            prompt: String::new(),
            priority: 0,
            deps: vec![],
            author: String::new(),
            trust: Trust::Operator,
            ready_at: Time(5),
        };
        let (created_at, updated_at) = (Time(1), Time(2));
        TaskRow { task, state, fence: Fence(fence), failures: 0, result: None, created_at, updated_at }
    }

    fn turn(id: &str) -> TurnId {
        id.parse().expect("the id of a turn")
    }

    fn leased() -> TaskState {
        TaskState::Leased { node: NodeId::new("n"), until: Time(800) }
    }

    fn found(tasks: Vec<TaskRow>) -> MirrorContents {
        let leader = Some(Leader { node: NodeId::new("n"), term: 4, until: Time(800) });
        MirrorContents {
            rows: Rows { tasks, leader, ..Rows::default() },
            journal_is_whole: true,
            ..MirrorContents::default()
        }
    }

    #[test]
    fn no_fence_that_was_given_out_fits_afterwards_and_what_is_done_stays_done() {
        let tasks = vec![row("a", TaskState::Queued, 3), row("b", leased(), 7), row("c", TaskState::Done, 2)];
        for plan in [RestorePlan::local(found(tasks.clone()), &[turn("a.9")], NOW), RestorePlan::hub(found(tasks), NOW)]
        {
            let [a, b, c] = plan.rows.tasks.as_slice() else { panic!("{plan:?}") };
            assert!(a.fence.0 > 9 && b.fence.0 > 1_000, "{plan:?}");
            assert_eq!((&a.state, &b.state), (&TaskState::Queued, &TaskState::Queued));
            assert_eq!((c.fence, &c.state, plan.leapt), (Fence(2), &TaskState::Done, 2));
        }
        let plan = RestorePlan::hub(found(vec![]), NOW);
        let leader = plan.rows.leader.expect("there was one");
        assert!(leader.term > 1_000 && leader.until < NOW, "{leader:?}");
    }

    #[test]
    fn a_turn_that_began_after_the_last_moment_is_a_stranger() {
        let mut with_loop = found(vec![row("k3f9-2", leased(), 1)]);
        let mut state = LoopState::new(LoopId::new("k3f9"), "x".to_owned(), everloop_testkit::sample::spec(), Time(1));
        state.task.number = 2;
        with_loop.rows.loops.push(LoopRow {
            id: state.id.clone(),
            version: 3,
            phase: "ready".to_owned(),
            updated_at: Time(1),
            state: serde_json::to_string(&state).unwrap(),
        });
        let turns = ["k3f9-1.1", "k3f9-2.1", "k3f9-2.2", "k3f9-3.1", "zzzz-1.1"].map(turn);
        let plan = RestorePlan::local(with_loop, &turns, NOW);
        // The first is older than what is known, the fifth is of an unknown loop.
        assert_eq!(plan.strangers, [turn("k3f9-2.2"), turn("k3f9-3.1")]);
    }

    #[test]
    fn what_waits_for_something_lost_waits_for_a_person() {
        let mut waits = row("a", TaskState::Queued, 0);
        waits.task.deps = vec![TaskId::new("gone"), TaskId::new("b")];
        let plan = RestorePlan::local(found(vec![waits, row("b", TaskState::Done, 1)]), &[], NOW);
        assert_eq!(
            (&plan.rows.tasks[0].state, &plan.rows.tasks[0].task.deps),
            (&TaskState::Blocked, &vec![TaskId::new("b")])
        );
        assert_eq!(plan.lost[0].what, "what task a waited for");
    }
}
