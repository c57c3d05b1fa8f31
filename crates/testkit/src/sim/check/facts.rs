//! Processes, timers, tasks and repositories: facts of the simulated world against the ledger.

use std::collections::BTreeSet;

use everloop_core::event::LoopEnd;
use everloop_core::guard::Scope;
use everloop_core::ids::LoopId;
use everloop_core::op::TaskState;
use everloop_core::state::{Phase, TurnStage};
use everloop_core::watch::{PARKED, WATCHING};
use everloop_store::{Ledger as _, Tickets};

use super::{Invariants, broken};
use crate::sim::ledger::all_tasks;
use crate::sim::shell::Held;
use crate::sim::world::{Violation, World};

/// A process of a turn that is over must be gone after this.
const GONE_MS: u64 = 20_000;
/// A supervisor that just came up is given this long.
const SETTLE_MS: u64 = 30_000;
/// Checks, worktrees and refs take less than this.
const WORK_MS: u64 = 900_000;

impl World {
    /// I7, and one live agent per loop: every agent belongs to a turn that the ledger knows and
    /// that is under way.
    pub(super) fn check_processes(&self) -> Result<(), Violation> {
        let mut busy = BTreeSet::new();
        for (turn, shim) in self.shims.iter().filter(|(_, s)| s.agent) {
            if !busy.insert(shim.owner.clone()) {
                return broken("one agent", format!("two agents work for loop {} (turn {turn})", shim.owner));
            }
            let Some(invariants) = self.watch.loops.get(&shim.owner) else { continue };
            if invariants.current.as_ref().is_some_and(|c| c.turn == *turn) {
                continue;
            }
            match invariants.over.get(turn) {
                Some(at_ms) if self.now_ms - at_ms <= GONE_MS => {}
                Some(_) => return broken("I7", format!("the agent of turn {turn} lives on after its end")),
                None if !self.ledger.is_settled() => {}
                None => return broken("I7", format!("an agent works on turn {turn}, of which nobody knows")),
            }
        }
        Ok(())
    }

    /// I5: no state without a timer, a person, or something under way.
    pub(super) fn check_timers(&self) -> Result<(), Violation> {
        let Some(supervisor) = &self.supervisor else { return Ok(()) };
        if supervisor.draining || self.now_ms - supervisor.since_ms < SETTLE_MS {
            return Ok(());
        }
        for (id, held) in &supervisor.held {
            self.check_timer(id, held)?;
        }
        Ok(())
    }

    fn check_timer(&self, id: &LoopId, held: &Held) -> Result<(), Violation> {
        let since = |invariants: Option<&Invariants>| self.now_ms - invariants.map_or(self.now_ms, |w| w.moved_ms);
        let idle_ms = since(self.watch.loops.get(id));
        let wall_ms = held.state.spec.guard.turn_timeout.as_millis() as u64;
        match &held.state.phase {
            Phase::Ended { .. } => Ok(()),
            Phase::Ready => broken("I5", format!("loop {id} is ready and nothing will start it")),
            Phase::Waiting { reason, .. } => {
                if [WATCHING, PARKED].contains(&reason.rule) && held.rounds.next.is_none() {
                    return broken("I5", format!("loop {id} watches and nobody will look"));
                }
                let person = reason.until.is_none();
                if held.timer.is_some() || person {
                    return Ok(());
                }
                broken("I5", format!("loop {id} waits ({}) without a timer", reason.rule))
            }
            Phase::Turn(turn) if turn.stage == TurnStage::Running => match idle_ms {
                ms if ms > wall_ms + 2 * WORK_MS => broken("I5", format!("turn {} never ends", turn.id)),
                _ => Ok(()),
            },
            Phase::New | Phase::Turn(_) => match idle_ms {
                ms if ms > WORK_MS => broken("I5", format!("loop {id} stands still: {}", held.state.phase.label())),
                _ => Ok(()),
            },
        }
    }

    /// I1: a leased task is the one of a turn under way, and the other way round.
    pub(super) fn check_tasks(&self) -> Result<(), Violation> {
        for row in all_tasks(self.ledger.model()) {
            let task = &row.task.id;
            let held = self.watch.loops.values().filter_map(|w| w.current.as_ref()).find(|c| c.task == *task);
            let amended = self.watch.amended.contains(task);
            match (&row.state, held) {
                (TaskState::Leased { .. }, None) => {
                    return broken("I1", format!("task {task} is leased and nobody works on it"));
                }
                (TaskState::Leased { .. }, Some(current)) if current.fence != row.fence && !amended => {
                    return broken("I3", format!("task {task} is leased under another fence"));
                }
                (state, Some(_)) if !matches!(state, TaskState::Leased { .. }) && !amended => {
                    return broken("I1", format!("task {task} is worked on and {}", state.label()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What must hold when all is over.
    pub(in crate::sim) fn check_end(&mut self) -> Result<(), Violation> {
        self.check_fold()?;
        self.check_tasks()?;
        if let Some((turn, _)) = self.shims.iter().find(|(_, s)| s.agent || s.alive) {
            return broken("I7", format!("turn {turn} has processes after the end"));
        }
        match self.ledger.agrees() {
            Ok(true) => {}
            Ok(false) => return broken("durability", "the log holds something else than the ledger says"),
            Err(e) => return broken("durability", e.to_string()),
        }
        for (scope, guard) in self.ledger.guards() {
            if !guard.state.reserved.is_empty() {
                return broken("reservations", format!("{scope} has {:?} set aside", guard.state.reserved));
            }
        }
        for id in self.sites.keys() {
            self.check_repository(id)?;
        }
        self.check_tasks_at_end()?;
        self.check_heard()?;
        self.check_tickets()
    }

    /// I2, and nothing that was kept is lost.
    fn check_repository(&self, id: &LoopId) -> Result<(), Violation> {
        let (site, invariants) = (&self.sites[id], &self.watch.loops[id]);
        let mut seen = BTreeSet::new();
        for task in site.git.history(&site.git.target).filter_map(|(_, c)| c.task.as_ref()) {
            if !seen.insert(task) {
                return broken("I2", format!("the trailer of task {task} stands twice on the target"));
            }
        }
        let log = site.result().log;
        if !site.setup.in_place() && log.iter().collect::<BTreeSet<_>>().len() != log.len() {
            return broken("I2", format!("a task's work is on the target twice: {log:?}"));
        }
        if let Some((pin, _)) = invariants.pins.iter().find(|(pin, commit)| site.git.pins.get(pin) != Some(commit)) {
            return broken("work", format!("the pin {pin} is gone"));
        }
        if invariants.fold.progress.work.as_ref().is_some_and(|work| !site.git.is_held(work)) {
            return broken("work", format!("the work of loop {id} stands under no name"));
        }
        Ok(())
    }

    /// I1: no task is left over, and every result is in the ledger or among the late results.
    fn check_tasks_at_end(&self) -> Result<(), Violation> {
        for row in all_tasks(self.ledger.model()) {
            let task = &row.task.id;
            let owner = row.task.owner.as_ref().and_then(|id| self.watch.loops.get(id));
            let Some(invariants) = owner else { continue };
            let goes_on = invariants.fold.task.retry && invariants.fold.task.id.as_ref() == Some(task);
            let own = row.task.kind == "batch" && !self.watch.amended.contains(task);
            if row.state == TaskState::Queued && own && !goes_on {
                return broken("I1", format!("task {task} is queued and nobody will take it"));
            }
            let late_result = self.ledger.model().late_results(task).expect("the model always answers");
            if invariants.done.contains(task) && row.result.is_none() && late_result.is_empty() {
                return broken(
                    "I1",
                    format!("the result of task {task} is neither in the ledger nor among the late results"),
                );
            }
        }
        Ok(())
    }

    /// I11: a ticket stands for a cause that is still there.
    fn check_tickets(&self) -> Result<(), Violation> {
        for ticket in self.ledger.model().tickets(Tickets::Open).expect("the model always answers") {
            let frozen =
                |text: &str| Scope::try_from(text.to_owned()).is_ok_and(|scope| self.watch.frozen.contains_key(&scope));
            let healthy = match ticket.key.split_once(':') {
                Some(("guard.freeze", scope)) => !frozen(scope),
                Some(("stagnation", id)) => {
                    let invariants = self.watch.loops.get(&LoopId::new(id));
                    invariants.is_some_and(|w| w.ended == Some(LoopEnd::Reached))
                }
                Some(("stalled", id)) => self.watch.loops.get(&LoopId::new(id)).is_some_and(|w| w.ended.is_some()),
                None if ticket.key == "immune.observer" => !self.watch.is_suspicious(),
                _ => false,
            };
            if healthy {
                return broken("I11", format!("ticket {} is open and its cause is gone", ticket.key));
            }
        }
        for (key, told) in &self.watch.told {
            let opened = self.watch.opened.get(key).copied().unwrap_or(0);
            if *told > opened {
                return broken("I11", format!("a person was told {told} times of {key}, opened {opened} times"));
            }
        }
        Ok(())
    }
}
