//! Decide, commit, then perform: the one path that every input takes.

use std::time::Duration;

use everloop_agents::clock::machine_period;
use everloop_core::action::Input;
use everloop_core::decide::{Context, Decision, Ready, decide};
use everloop_core::guard::Guards;
use everloop_core::guard::permit::concerned;
use everloop_core::ids::LoopId;
use everloop_core::jitter::mix;
use everloop_core::op::{Op, Refusal, Reply, TaskState, shelve_late};
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::Time;
use everloop_store::{Error, Ledger};
use tokio::time::sleep;

use super::{Supervisor, Watcher};
use crate::board;
use crate::error::Failure;
use crate::immune;
use crate::record::read_state;

/// The lease of a task without renewal; renewed well before (see `liveness`).
pub const LEASE: Duration = Duration::from_secs(90);
/// How often an input is decided again after a write conflict.
const MAX_CONFLICT_RETRIES: u32 = 8;
/// A full disk is waited out in steps of this.
const FULL_WAIT: Duration = Duration::from_secs(5);

impl Supervisor {
    /// Decides, commits and performs an input of a loop.
    pub(super) async fn handle(
        &mut self,
        id: &LoopId,
        input: &Input,
        watcher: &mut impl Watcher,
    ) -> Result<(), Failure> {
        self.handle_with(id, input, &[], watcher).await
    }

    /// The same, with operations that belong into the same transaction.
    pub(super) async fn handle_with(
        &mut self,
        id: &LoopId,
        input: &Input,
        extra: &[Op],
        watcher: &mut impl Watcher,
    ) -> Result<(), Failure> {
        for _ in 0..MAX_CONFLICT_RETRIES {
            let Some(slot) = self.slots.get(id) else { return Ok(()) };
            let now = self.clock.now();
            let version = slot.version;
            let decision = self.decide(&slot.state.clone(), input, now)?;
            let mut batch = extra.to_vec();
            batch.extend(decision.batch(version));
            match self.commit(now, batch).await {
                Ok(saved) => {
                    self.take_effect(decision, saved.unwrap_or(version), now, watcher);
                    return Ok(());
                }
                // A write conflict: a person changed a task, the guard or the loop. The current
                // state decides.
                Err(Error::Refused(refusal)) => {
                    tracing::debug!(owner = %id, %refusal, "write conflict: decided again");
                    self.read_again(id)?;
                }
                Err(e) => return Err(e.into()),
            }
        }
        Err(Failure::failed(format!("gave up after {MAX_CONFLICT_RETRIES} write conflicts on loop `{id}`")))
    }

    fn decide(&mut self, state: &LoopState, input: &Input, now: Time) -> Result<Decision, Failure> {
        self.decisions += 1;
        let guards = self.guards_for(state)?;
        let (version, immune) = immune::read(&self.ledger)?;
        let ctx = Context {
            now,
            seed: mix(self.decisions, now.0.unsigned_abs() ^ u64::from(std::process::id())),
            node: &self.node,
            guards: &guards,
            immune: (version, &immune),
            lease: LEASE,
            draining: self.draining,
            current_task: self.current_task(state)?,
            board_task: self.board_task(state, &immune.kinds_out(now))?,
            keepalive: self.keepalive(state)?,
        };
        Ok(decide(state, input, &ctx))
    }

    pub(super) fn guards_for(&self, state: &LoopState) -> Result<Guards, Failure> {
        let mut guards = Guards::new();
        for scope in concerned(state, &self.node) {
            guards.insert(scope.clone(), self.ledger.guard(&scope)?);
        }
        Ok(guards)
    }

    /// The loop's current task, if the loop holds it or it is free.
    fn current_task(&self, state: &LoopState) -> Result<Option<Ready>, Failure> {
        let Some(row) = state.task.as_ref().map(|t| self.ledger.task(t)).transpose()?.flatten() else {
            return Ok(None);
        };
        let held = matches!(&state.phase, Phase::Turn(turn) if turn.fence == row.fence);
        let free = match &row.state {
            TaskState::Queued => true,
            TaskState::Leased { until, .. } => held || *until <= self.clock.now(),
            TaskState::Done | TaskState::Dead | TaskState::Blocked => false,
        };
        Ok(free.then(|| Ready::from(&row)))
    }

    /// The most urgent task on the board; those of a quarantined kind stay there for now.
    fn board_task(&self, state: &LoopState, kinds_out: &[&str]) -> Result<Option<Ready>, Failure> {
        let row = board::most_urgent(&self.ledger, &state.id, kinds_out, self.clock.now())?;
        Ok(row.as_ref().map(Ready::from))
    }

    /// One durable transaction; returns the loop's new version. A full disk is waited out: finished
    /// work is kept.
    async fn commit(&mut self, now: Time, mut batch: Vec<Op>) -> Result<Option<u64>, Error> {
        if batch.is_empty() {
            return Ok(None);
        }
        let mut told = false;
        loop {
            match self.ledger.transact(now, &batch) {
                Ok(replies) => {
                    if let Some(mirror) = &self.mirror {
                        mirror.changed();
                    }
                    return Ok(replies.iter().rev().find_map(Reply::version));
                }
                Err(Error::Refused(Refusal::Fenced { task, fence })) if shelve_late(&mut batch, &task, fence) => {}
                Err(e @ Error::Full { .. }) => {
                    if !told {
                        tracing::warn!(error = %e, "the disk is full: waiting for space, nothing is lost");
                        told = true;
                    }
                    self.watchdog.alive();
                    sleep(machine_period(FULL_WAIT)).await;
                }
                Err(e) => return Err(e),
            }
        }
    }

    fn read_again(&mut self, id: &LoopId) -> Result<(), Failure> {
        let row = self.ledger.get_loop(id)?;
        if let (Some(row), Some(slot)) = (row, self.slots.get_mut(id)) {
            slot.state = read_state(&row)?;
            slot.version = row.version;
        }
        Ok(())
    }

    fn take_effect(&mut self, decision: Decision, version: u64, now: Time, watcher: &mut impl Watcher) {
        let id = decision.state.id.clone();
        let Some(slot) = self.slots.get_mut(&id) else { return };
        slot.state = decision.state;
        slot.version = version;
        slot.wake_at = decision.wake_at;
        if !decision.events.is_empty() {
            self.port.figures().take(&decision.events);
            self.notify.see(&decision.events);
            watcher.committed(&slot.state, &decision.events, now);
            self.mail(&id);
        }
        for action in decision.actions {
            self.perform(&id, action);
        }
    }
}
