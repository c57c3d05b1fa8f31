//! What the supervisor of the simulation sets right every minute, as the real one does it, and whether it may.

use std::collections::BTreeMap;

use everloop_core::ids::{LoopId, TaskId};
use everloop_core::mesh::alone::DOWN;
use everloop_core::mesh::reconcile::{self, Book, EVERY, KEY, KIND, Known, Look, Patience, Plan, Sign};
use everloop_core::op::{Refusal, TaskRow, TaskState};
use everloop_store::{Error, Ledger};

use super::line::Mood;
use super::node::BEAT;
use super::world::World;
use crate::sim::world::Violation;

/// A task that somebody changed meanwhile is left out; so often the rest is tried again.
const TRIES: u32 = 4;

impl World {
    pub(super) fn reconcile(&mut self, n: usize, term: u64) {
        let now = self.clock(n);
        if now < self.nodes[n].reconcile_at || !self.nodes[n].seat.reclaims(now) {
            return;
        }
        self.nodes[n].reconcile_at = now + EVERY;
        let (hub_now, patience) = (self.hub_now(n), Patience::new(|period| period));
        let name = (KIND.to_owned(), KEY.to_owned());
        let Some((book, rows, nodes)) = self.at_hub(n, |hub, _| {
            let read = |body: &str| Book::read(body).expect("it was written by us");
            let book = hub.peek_doc(&name).map_or((0, Book::default()), |doc| (doc.version, read(&doc.body)));
            let rows = hub.peek_waiting().filter(|row| patience.is_over(row, hub_now)).cloned();
            (book, rows.collect::<Vec<TaskRow>>(), hub.nodes().expect("the model answers"))
        }) else {
            return;
        };
        // What a node would say of itself when it gives a sign of life.
        let sign = |row: everloop_store::NodeRow| Sign {
            next: Some(row.seen_at + BEAT.mul_f64(1.1)),
            seen_at: row.seen_at,
            leaves: false,
            drains: self.named(&row.node).is_none_or(|n| self.nodes[n].draining),
            holds: 0,
            node: row.node,
        };
        let nodes: Vec<Sign> = nodes.into_iter().map(sign).collect();
        let loops = if rows.is_empty() { BTreeMap::new() } else { self.known_loops() };
        let (office, version) = (self.office(n, term), book.0);
        let look = Look { office: &office, loops: &loops, rows: &rows, nodes: &nodes, patience, now: hub_now };
        let mut plan = reconcile::plan(&book.1, &look);
        for _ in 0..TRIES {
            if plan.is_empty() {
                return;
            }
            let wrong = self.is_unfair(&plan, &rows);
            let answer = self.transact(n, Some(term), &plan.batch(&office, version));
            if let Some(wrong) = wrong.filter(|_| !matches!(answer, Some(Err(_)))) {
                return self.violated(wrong.invariant, wrong.text);
            }
            match answer {
                Some(Err(Error::Refused(Refusal::Fenced { task, .. } | Refusal::WrongState { task, .. }))) => {
                    plan.leave_out(&task);
                }
                Some(Ok(_)) => return self.was_set_right(&plan),
                Some(Err(_)) | None => return,
            }
        }
    }

    /// All loops that were made so far; only the last one can go on.
    fn known_loops(&mut self) -> BTreeMap<LoopId, Known> {
        let state = self.state();
        let before = (1..self.current.number).map(|i| (LoopId::new(format!("k{i}")), Known::Over(None)));
        before.chain([(state.id.clone(), Known::of(state))]).collect()
    }

    fn was_set_right(&mut self, plan: &Plan) {
        for text in plan.said() {
            self.trace.say(self.now, "reconciles", &text);
        }
        self.facts.reconciled += plan.repairs.len() as u64;
        self.facts.missed += plan.missed.len() as u64;
    }

    /// Nothing is taken from a node that is well, and nobody is called silent who is heard: what a plan breaks, should the hub
    /// take it.
    fn is_unfair(&self, plan: &Plan, rows: &[TaskRow]) -> Option<Violation> {
        let is_held = |row: &&TaskRow| matches!(row.state, TaskState::Leased { .. });
        let held: Vec<&TaskId> = rows.iter().filter(is_held).map(|row| &row.task.id).collect();
        let taken = plan.repairs.iter().map(|repair| &repair.task).filter(|task| held.contains(task));
        if let Some(wrong) = taken.into_iter().find_map(|task| self.taken_from(task)) {
            return Some(wrong);
        }
        let fair = self.hub.mood == Mood::Well && self.now > self.hub.odd_until;
        let node = &self.nodes[plan.missed.iter().find_map(|id| self.named(id))?];
        let well = node.alive && !node.stopped() && node.cut.is_none() && node.copy == self.hub.copies;
        let long = self.since(node.healthy_since).min(self.since(self.hub.since)) > 2 * DOWN;
        let text = || format!("{} is called silent, and gives a sign of life every five seconds", node.id);
        (fair && well && long && node.rate == 1000).then(|| Violation { invariant: "wake", text: text() })
    }
}
