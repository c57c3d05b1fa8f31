//! The keepalive, and what monitors saw: exactly one keepalive, and each observation exactly once.

use everloop_core::event::LoopEnd;
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::op::TaskState;
use everloop_core::state::LoopState;
use everloop_core::watch::{KEEPALIVE, keepalive_of};
use everloop_store::Ledger as _;

use super::broken;
use crate::sim::ledger::all_tasks;
use crate::sim::world::{Flow, Halt, Violation, World};

impl World {
    /// The same, in the middle of an occurrence.
    pub(in crate::sim) fn must_be_alive(&self) -> Flow {
        self.check_keepalive().map_err(Halt::Violated)
    }

    /// After an occurrence, if it changed anything: every change to a keepalive is one of the
    /// journal, too.
    pub(super) fn check_keepalive_again(&mut self) -> Result<(), Violation> {
        let seq = Some(self.ledger.last_seq()).filter(|_| self.ledger.is_settled());
        if seq.is_none() || self.watch.kept == seq {
            return Ok(());
        }
        self.watch.kept = seq;
        self.check_keepalive()
    }

    /// Exactly one keepalive is open while there are monitors and the loop is not over, and none
    /// otherwise.
    pub(in crate::sim) fn check_keepalive(&self) -> Result<(), Violation> {
        if !self.ledger.is_settled() {
            return Ok(());
        }
        let watched = self.sites.iter().filter(|(_, site)| !site.setup.spec.watch.is_empty());
        let states: Vec<LoopState> = watched.filter_map(|(id, _)| self.stored(id)).collect();
        if states.is_empty() {
            return Ok(());
        }
        let tasks = all_tasks(self.ledger.model());
        for state in states {
            let (id, over) = (&state.id, state.is_over());
            let is_open = |s: &TaskState| matches!(s, TaskState::Queued | TaskState::Leased { .. });
            let mine = tasks.iter().filter(|r| r.task.kind == KEEPALIVE && r.task.owner.as_ref() == Some(id));
            let open: Vec<&TaskId> = mine.filter(|r| is_open(&r.state)).map(|r| &r.task.id).collect();
            match open[..] {
                [] if over => {}
                [one] if !over && Some(one) == keepalive_of(&state).as_ref() => {}
                _ => return broken("keepalive", format!("loop {id} ({}) has {open:?}", state.phase.label())),
            }
        }
        Ok(())
    }

    /// A signal, before it is applied: it reports something new, and its task exists.
    pub(super) fn check_signal(&mut self, id: &LoopId, cursor: &str, task: Option<&TaskId>) -> Result<(), Violation> {
        let news = cursor.parse::<u64>().ok();
        let there = task.is_none_or(|t| self.ledger.model().task(t).is_ok_and(|row| row.is_some()));
        let Some(invariants) = self.watch.loops.get_mut(id) else { return Ok(()) };
        if invariants.heard.is_some() != task.is_some() || news <= invariants.heard {
            return broken(
                "signal",
                format!("loop {id} had heard {:?} and is told {cursor} with {task:?}", invariants.heard),
            );
        }
        invariants.heard = news;
        if there { Ok(()) } else { broken("signal", format!("loop {id}: the task {task:?} is lost")) }
    }

    /// What there was to see was seen by a loop that had the time for it.
    pub(super) fn check_heard(&self) -> Result<(), Violation> {
        for (id, invariants) in &self.watch.loops {
            let watches = !invariants.fold.spec.watch.is_empty();
            // A loop that has used its turns up ends at once, and sees nothing that comes later.
            let used_up = invariants.fold.spec.bounds.max_turns.is_some_and(|n| invariants.fold.task.turns >= n);
            let had_time = match invariants.ended {
                Some(LoopEnd::Reached) => !used_up,
                Some(LoopEnd::Stopped { .. }) => true,
                Some(_) | None => false,
            };
            let news = self.sites[id].news;
            if watches && had_time && invariants.heard != Some(news) {
                return broken("signal", format!("loop {id} has heard {:?} of {news}", invariants.heard));
            }
        }
        Ok(())
    }
}
