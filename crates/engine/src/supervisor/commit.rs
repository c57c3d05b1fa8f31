//! Decide, commit, then perform: the one path that every input takes. The order is that of
//! [`everloop_store::shell`]; here are its effects.

use std::time::Duration;

use everloop_agents::clock::machine_period;
use everloop_core::action::{Action, Input};
use everloop_core::ids::LoopId;
use everloop_core::immune::Immune;
use everloop_core::jitter::mix;
use everloop_core::op::{Op, Reply};
use everloop_core::rhythm::calendar::Calendar;
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_store::shell::{
    Circumstances, Committed, InputRun, MAX_CONFLICT_RETRIES, Progress, Rejected, ShellEffects,
};
use everloop_store::{Error, Ledger, Sqlite};
use tokio::time::sleep;

use super::{Interrupt, Supervisor, Until, Watcher, next_signal};
use crate::brought;
use crate::calendar::Zones;
use crate::error::{Code, Failure};
use crate::immune;
use crate::record::read_state;

/// A full disk is waited out in steps of this.
const FULL_WAIT: Duration = Duration::from_secs(5);

/// The supervisor as the shell sees it.
struct Owner<'a, W> {
    supervisor: &'a mut Supervisor,
    watcher: &'a mut W,
}

impl<W: Watcher> ShellEffects for Owner<'_, W> {
    type Ledger = Sqlite;
    type Error = Failure;

    fn ledger(&self) -> &Sqlite {
        &self.supervisor.ledger
    }

    fn live(&self, id: &LoopId) -> Option<(&LoopState, u64)> {
        self.supervisor.slots.get(id).map(|slot| (&slot.state, slot.version))
    }

    fn immune(&self) -> Result<(u64, Immune), Failure> {
        immune::read(&self.supervisor.ledger)
    }

    fn circumstances(&mut self) -> Circumstances {
        let supervisor = &mut *self.supervisor;
        supervisor.decisions += 1;
        let now = supervisor.clock.now();
        let seed = mix(supervisor.decisions, now.0.unsigned_abs() ^ u64::from(std::process::id()));
        Circumstances { now, seed, node: supervisor.node.clone(), draining: supervisor.draining }
    }

    fn calendar(&self) -> &dyn Calendar {
        &Zones
    }

    fn attends(&self, id: &LoopId) -> bool {
        self.supervisor.until == Until::LoopsEnd || self.supervisor.attended.contains_key(id)
    }

    fn missing(&self, id: &LoopId) -> Vec<String> {
        let supervisor = &self.supervisor;
        let is_here = supervisor.own.as_ref().is_some_and(|own| own.contains(id));
        if is_here || supervisor.attended.get(id).is_some_and(Option::is_some) {
            return Vec::new();
        }
        brought::missing(&supervisor.home, id, &supervisor.ours)
    }

    fn transact(&mut self, now: Time, batch: &[Op]) -> Result<Vec<Reply>, Rejected<Failure>> {
        match self.supervisor.ledger.transact(now, batch) {
            Ok(replies) => {
                if let Some(mirror) = &self.supervisor.mirror {
                    mirror.changed();
                }
                if let Some(exporter) = &self.supervisor.exporter {
                    exporter.changed();
                }
                Ok(replies)
            }
            Err(Error::Refused(refusal)) => {
                tracing::debug!(%refusal, "write refused");
                Err(Rejected::Refused(refusal))
            }
            Err(Error::Full { .. }) => Err(Rejected::Full),
            Err(e) => Err(Rejected::Failed(e.into())),
        }
    }

    fn read_again(&mut self, id: &LoopId) -> Result<(), Failure> {
        let row = self.supervisor.ledger.get_loop(id)?;
        if let (Some(row), Some(slot)) = (row, self.supervisor.slots.get_mut(id)) {
            slot.state = read_state(&row)?;
            slot.version = row.version;
        }
        Ok(())
    }

    fn committed(&mut self, committed: Committed) {
        let Committed { state, version, wake_at, events, at } = committed;
        let supervisor = &mut *self.supervisor;
        let id = state.id.clone();
        let Some(slot) = supervisor.slots.get_mut(&id) else { return };
        slot.state = state;
        slot.version = version;
        slot.wake_at = wake_at;
        if !events.is_empty() {
            supervisor.port.figures().take(&events);
            supervisor.outbound.see(&events);
            self.watcher.committed(&slot.state, &events, at);
            supervisor.report_status(&id);
        }
    }

    fn perform(&mut self, id: &LoopId, action: Action) -> Result<(), Failure> {
        self.supervisor.perform(id, action);
        Ok(())
    }
}

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

    /// The same, with operations that belong into the same transaction. A full disk is waited out:
    /// finished work is kept.
    pub(super) async fn handle_with(
        &mut self,
        id: &LoopId,
        input: &Input,
        extra: &[Op],
        watcher: &mut impl Watcher,
    ) -> Result<(), Failure> {
        let mut run = InputRun::new(id, input, extra);
        let mut told = false;
        loop {
            match run.go(&mut Owner { supervisor: self, watcher })? {
                Progress::Done => return Ok(()),
                Progress::Conflicts => {
                    let text = format!("gave up after {MAX_CONFLICT_RETRIES} write conflicts on loop `{id}`");
                    return Err(Failure::failed(text));
                }
                Progress::Full => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!("the disk is full: waiting for space, nothing is lost");
                    }
                    self.watchdog.alive();
                    // Not even a stop can be recorded: a signal ends the wait, as a kill would.
                    if let Some(interrupt) = self.ended_by {
                        return Err(full(interrupt));
                    }
                    tokio::select! {
                        () = sleep(machine_period(FULL_WAIT)) => {}
                        Some(interrupt) = next_signal(self.signals.as_mut()) => return Err(full(interrupt)),
                    }
                }
            }
        }
    }
}

/// A signal came while nothing can be written.
fn full(interrupt: Interrupt) -> Failure {
    let code = match interrupt {
        Interrupt::Int => Code::Interrupted,
        Interrupt::Term => Code::Terminated,
    };
    Failure::new(code, "the disk of the state folder is full, so the end of the loop cannot be recorded")
        .hint("make room, then the same command goes on; an agent that still works is found again")
}
