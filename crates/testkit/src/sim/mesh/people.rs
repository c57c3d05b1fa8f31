//! People at the worst moment (37): they stop loops, cancel and retry tasks, drain and remove
//! nodes, and commit to the branch themselves.

use everloop_core::ids::{Fence, LoopId, NodeId, TaskId};
use everloop_core::mesh::work;
use everloop_core::op::{Amendment, Op};
use everloop_store::{Ledger, StateName, TaskFilter, TaskOwner};

use super::hub::Mood;
use super::world::World;
use crate::sim::scenario;

/// In one of so many worlds people stop loops: such a loop has nothing more to show.
const STOPS_IN: u64 = 4;
/// There, one of so many writes of a loop comes a moment after that.
const WORST_MOMENT: u64 = 100;

impl World {
    pub(super) fn meddle(&mut self, node: usize, wait: u64) {
        if self.hub.mood != Mood::Well {
            return;
        }
        if self.seed.is_multiple_of(STOPS_IN) && self.dice.one_in(STOPS_IN) {
            return self.stop();
        }
        match self.dice.below(8) {
            0 => self.amend("person cancels", &Amendment::Cancel),
            1 | 2 => self.amend("person retries", &Amendment::Retry),
            3 => self.amend("person blocks", &Amendment::Block),
            4 => {
                self.count("person drains");
                self.nodes[node].wished_away = true;
                self.later(wait, move |w| w.nodes[node].wished_away = false);
            }
            5 => {
                if self.nodes[node].alive && !self.nodes[node].stopped() {
                    self.count("person sends a node home");
                    self.leave(node);
                    self.kill_for(node, wait);
                }
            }
            6 => self.queue_a_stray(),
            _ => {
                self.count("person commits");
                // The champion is on no branch of a person.
                if self.setup.experiments == 0 {
                    self.git.push(format!("own {}", self.now));
                }
            }
        }
    }

    /// A person queues a task for a loop that does not exist.
    fn queue_a_stray(&mut self) {
        self.count("person queues for no loop");
        let stray = scenario::task(format!("stray-{}", self.now), LoopId::new("stray"), "batch", self.time());
        // Half of them were taken by a machine that never reports again: only the leader can
        // resolve that.
        let (task, node) = (stray.id.clone(), NodeId::new("elsewhere"));
        let take = Op::Take { task, fence: Fence(1), node, lease: work::LEASE };
        let taken = self.dice.one_in(2).then_some(take);
        self.ask_hub(&std::iter::once(Op::Enqueue(stray)).chain(taken).collect::<Vec<_>>());
    }

    /// A person stops the loop after the leader read it and before it writes.
    pub(super) fn worst_moment(&mut self) {
        if self.faults.chance.is_random() && self.seed.is_multiple_of(STOPS_IN) && self.dice.one_in(WORST_MOMENT) {
            self.stop();
        }
    }

    fn stop(&mut self) {
        let (version, mut state) = self.current_doc().clone();
        if state.ended.is_none() {
            self.count("person stops");
            state.stop = true;
            let ops = self.saved_by_person(&state, version);
            self.ask_hub(&ops);
        }
    }

    fn amend(&mut self, name: &'static str, change: &Amendment) {
        // A task that is blocked or called off after the end would have to be waited for again; a
        // task that is retried then is ended.
        if self.facts.ended && *change != Amendment::Retry {
            return;
        }
        let owner = TaskOwner::Loop(self.current.id.clone());
        let filter = TaskFilter { owner, states: Vec::new(), limit: 20 };
        let rows = self.hub.model.tasks(&filter).expect("the model answers");
        let Some(row) = (!rows.is_empty()).then(|| self.dice.pick(&rows)) else { return };
        // Twice, because people click twice.
        for _ in 0..2 {
            self.count(name);
            self.ask_hub(&[Op::Amend { task: row.task.id.clone(), change: change.clone() }]);
        }
    }

    /// Refused or not, a person sees it and goes on.
    fn ask_hub(&mut self, ops: &[Op]) {
        if self.hub.model.transact(self.time(), ops).is_ok() {
            self.after(None, ops);
        }
    }

    /// A person reads a ticket, and answers it some minutes later.
    pub(super) fn will_answer(&mut self, n: usize, key: String) {
        let wait = self.dice.between(10_000, 600_000);
        self.later(wait, move |w| w.answer(n, key));
    }

    fn answer(&mut self, n: usize, key: String) {
        let time = self.time();
        let close = Op::CloseTicket { key, answer: "it is known".to_owned() };
        self.nodes[n].disk.ledger.transact(time, &[close]).expect("a ticket is closed or is not there");
    }

    /// What people hold up they let go.
    pub(super) fn people_go(&mut self) {
        for node in &mut self.nodes {
            node.wished_away = false;
        }
        let filter = TaskFilter { owner: TaskOwner::Any, states: vec![StateName::Blocked], limit: usize::MAX };
        let rows = self.hub.model.tasks(&filter).expect("the model answers");
        let blocked: Vec<TaskId> = rows.into_iter().map(|row| row.task.id).collect();
        for task in blocked {
            self.ask_hub(&[Op::Amend { task, change: Amendment::Retry }]);
        }
    }
}
