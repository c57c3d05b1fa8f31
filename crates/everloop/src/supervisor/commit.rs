//! Decide, commit, then perform: the one path that every input takes.

use std::time::Duration;

use everloop_core::action::Input;
use everloop_core::decide::{Context, Decision, decide};
use everloop_core::guard::permit::Request;
use everloop_core::guard::{Guards, Spend};
use everloop_core::ids::{Fence, LoopId, TaskId};
use everloop_core::jitter::mix;
use everloop_core::op::{Op, Refusal, Reply, TaskState};
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::Time;
use everloop_store::{Error, Ledger, Owner, StateName, TaskFilter};
use tokio::time::sleep;

use super::{Supervisor, Watcher, read_state};
use crate::error::Failure;

/// How long a task is held without renewal; renewed well before (see `life`).
pub const LEASE: Duration = Duration::from_secs(90);
/// Somebody else wrote first: decide again, this often.
const ATTEMPTS: u32 = 8;
/// A full disk is waited out in steps of this.
const FULL_WAIT: Duration = Duration::from_secs(5);
/// Queued tasks of a loop that are looked at for the next one.
const BOARD_LOOK: usize = 100;

impl Supervisor {
    /// What an input means for a loop.
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
        for _ in 0..ATTEMPTS {
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
                // Somebody wrote first: a person changed a task, the guard or the loop. What is true now decides.
                Err(Error::Refused(refusal)) => {
                    tracing::debug!(owner = %id, %refusal, "decided again");
                    self.read_again(id)?;
                }
                Err(e) => return Err(e.into()),
            }
        }
        Err(Failure::failed(format!("loop `{id}` is written by somebody else all the time")))
    }

    fn decide(&mut self, state: &LoopState, input: &Input, now: Time) -> Result<Decision, Failure> {
        self.decisions += 1;
        let guards = self.guards_for(state)?;
        let ctx = Context {
            now,
            seed: mix(self.decisions, now.0.unsigned_abs() ^ u64::from(std::process::id())),
            node: &self.node,
            guards: &guards,
            lease: LEASE,
            draining: self.draining,
            current_fence: self.current_fence(state)?,
            board_task: self.board_task(state)?,
        };
        Ok(decide(state, input, &ctx))
    }

    fn guards_for(&self, state: &LoopState) -> Result<Guards, Failure> {
        let request = Request {
            owner: &state.id,
            account: &state.spec.agent.account,
            node: &self.node,
            spec: &state.spec.guard,
            reserve: Spend::default(),
            noops: 0,
        };
        let mut guards = Guards::new();
        for scope in request.scopes() {
            guards.insert(scope.clone(), self.ledger.guard(&scope)?);
        }
        Ok(guards)
    }

    /// The fence after which the loop can take its current task again: it holds it, or nobody does.
    fn current_fence(&self, state: &LoopState) -> Result<Option<Fence>, Failure> {
        let Some(row) = state.task.as_ref().map(|t| self.ledger.task(t)).transpose()?.flatten() else {
            return Ok(None);
        };
        let held = matches!(&state.phase, Phase::Turn(turn) if turn.fence == row.fence);
        let free = match row.state {
            TaskState::Queued => true,
            TaskState::Leased { until, .. } => held || until <= self.clock.now(),
            TaskState::Done | TaskState::Dead | TaskState::Blocked => false,
        };
        Ok(free.then_some(row.fence))
    }

    /// The most urgent ready task that somebody put on the board for this loop.
    fn board_task(&self, state: &LoopState) -> Result<Option<(TaskId, Fence)>, Failure> {
        let filter =
            TaskFilter { owner: Owner::Loop(state.id.clone()), states: vec![StateName::Queued], limit: BOARD_LOOK };
        let mut rows = self.ledger.tasks(&filter)?;
        rows.retain(|r| r.task.kind != "batch");
        rows.sort_by_key(|r| (-r.task.priority, r.created_at, r.task.id.clone()));
        for row in rows {
            let mut ready = row.task.ready_at <= self.clock.now();
            for dep in &row.task.deps {
                ready &= self.ledger.task(dep)?.is_some_and(|d| d.state == TaskState::Done);
            }
            if ready {
                return Ok(Some((row.task.id, row.fence)));
            }
        }
        Ok(None)
    }

    /// One durable transaction; returns the loop's new version. A full disk is waited out: finished work is kept.
    async fn commit(&mut self, now: Time, mut batch: Vec<Op>) -> Result<Option<u64>, Error> {
        if batch.is_empty() {
            return Ok(None);
        }
        let mut told = false;
        loop {
            match self.ledger.transact(now, &batch) {
                Ok(replies) => return Ok(replies.iter().rev().find_map(saved)),
                Err(Error::Refused(Refusal::Fenced { task, fence })) if shelve(&mut batch, &task, fence) => {}
                Err(e @ Error::Full { .. }) => {
                    if !told {
                        tracing::warn!(error = %e, "the disk is full: waiting for room, nothing is lost");
                        told = true;
                    }
                    sleep(FULL_WAIT).await;
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
            watcher.committed(&slot.state, &decision.events, now);
        }
        for action in decision.actions {
            self.perform(&id, action);
        }
    }
}

fn saved(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::Saved(version) => Some(*version),
        _ => None,
    }
}

/// Somebody took the task away (a person cancelled it): the turn's end is kept, its result goes on the shelf. False when
/// there is nothing to shelve, so that the refusal stands.
fn shelve(batch: &mut Vec<Op>, task: &TaskId, fence: Fence) -> bool {
    let mut results = Vec::new();
    batch.retain(|op| match op {
        Op::Finish { task: t, fence: f, result, .. } if t == task && *f == fence => {
            results.push(result.clone());
            false
        }
        Op::Release { task: t, fence: f, .. } if t == task && *f == fence => {
            results.push("given back".to_owned());
            false
        }
        _ => true,
    });
    let found = !results.is_empty();
    batch.extend(results.into_iter().map(|result| Op::Shelve { task: task.clone(), fence, result }));
    found
}
