//! Liveness of running turns, and the renewal of their leases.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use everloop_agents::job;
use everloop_core::action::Input;
use everloop_core::evidence::{Health, Sample, health};
use everloop_core::ids::{LoopId, TurnId};
use everloop_core::phase::PhaseLiveness;
use everloop_core::state::{LoopState, Phase, Turn, TurnStage};
use everloop_core::time::Time;
use everloop_store::{Error, Ledger, shell};
use tokio::sync::watch;

use super::stream::Sighting;
use super::{Supervisor, Watcher};
use crate::error::Failure;

/// Liveness is sampled this often.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Leases are renewed this often: four chances within one lease.
const RENEW: Duration = Duration::from_secs(20);
/// A stopped turn has 10 s for itself and is then killed by its shim; after this, by the
/// supervisor.
const OBEY: Duration = Duration::from_secs(14);
/// CPU time below this is idling, not liveness.
const CPU_LIVENESS_MS: u64 = 20;
/// A timer may be this late without a suspend.
const JITTER: Duration = Duration::from_secs(1);

/// The liveness of a running turn.
pub struct Liveness {
    turn: TurnId,
    started: Time,
    seen: job::LivenessSample,
    changed: Time,
    looked: Time,
    renewed: Time,
    stopping: Option<Time>,
    /// Liveness seen in its stream.
    stream: Option<watch::Receiver<Sighting>>,
    /// Suspended time since the stream last moved.
    slept: Duration,
    quiet: Duration,
}

impl Liveness {
    /// A turn that starts now, or is adopted now.
    pub fn new(turn: TurnId, started: Time, now: Time) -> Self {
        Self {
            turn,
            started,
            seen: job::LivenessSample::default(),
            changed: now,
            looked: now,
            renewed: now,
            stopping: None,
            stream: None,
            slept: Duration::ZERO,
            quiet: Duration::ZERO,
        }
    }

    /// Attaches the stream's liveness.
    pub fn seeing(mut self, stream: watch::Receiver<Sighting>) -> Self {
        self.stream = Some(stream);
        self
    }

    /// Time of the next sample.
    pub fn next_look(&self) -> Time {
        self.looked + POLL_INTERVAL
    }

    /// Time since the last activity.
    pub fn silent(&self, now: Time) -> Duration {
        now.since(self.changed)
    }

    /// How much later than planned this sample comes: the machine was suspended, or the supervisor
    /// was held up.
    fn late(&self, now: Time) -> Duration {
        Some(now.since(self.next_look())).filter(|late| *late > JITTER).unwrap_or_default()
    }

    fn look(&mut self, dir: &Path, now: Time) -> Sample {
        let late = self.late(now);
        self.looked = now;
        // Suspended time counts for neither the turn's limits nor its silence.
        self.started = self.started + late;
        self.changed = self.changed + late;
        // A turn that cannot be sampled does not count as dead.
        let seen = job::sample(dir).unwrap_or_else(|e| {
            tracing::debug!(turn = %self.turn, error = %e, "cannot sample liveness");
            job::LivenessSample { out_bytes: self.seen.out_bytes + 1, ..self.seen.clone() }
        });
        let alive = seen.out_bytes != self.seen.out_bytes
            || seen.processes != self.seen.processes
            || seen.cpu_ms.saturating_sub(self.seen.cpu_ms) >= CPU_LIVENESS_MS;
        if alive {
            self.seen = seen;
            self.changed = now;
        }
        let phase_liveness = self.phase_liveness(now, late);
        Sample { running: now.since(self.started), silent: self.silent(now), phase_liveness, ..Sample::default() }
    }

    /// The stream's liveness, without suspended time.
    fn phase_liveness(&mut self, now: Time, late: Duration) -> Option<PhaseLiveness> {
        let (mut phase_liveness, at) = (*self.stream.as_ref()?.borrow())?;
        let quiet = phase_liveness.quiet + now.since(at);
        self.slept = if quiet < self.quiet { Duration::ZERO } else { self.slept + late };
        self.quiet = quiet;
        phase_liveness.quiet = quiet.saturating_sub(self.slept);
        Some(phase_liveness)
    }
}

impl Supervisor {
    pub(super) async fn look_at_turns(&mut self, watcher: &mut impl Watcher) -> Result<(), Failure> {
        let now = self.clock.now();
        let running: BTreeMap<LoopId, Turn> =
            self.slots.iter().filter_map(|(id, slot)| Some((id.clone(), running(&slot.state)?))).collect();
        self.stalls.keep(|turn| running.values().any(|t| t.id == *turn && t.stopping.is_none()));
        for (id, slot) in &mut self.slots {
            if !running.contains_key(id) {
                slot.liveness = None;
            }
        }
        let mut seen = Vec::new();
        for (id, turn) in &running {
            let Some(sample) = self.look_at(id, turn, now)? else { continue };
            if turn.stopping.is_none() {
                let stuck = self.looks_stuck(id, turn, &sample)?;
                self.stalls.see(&turn.id, stuck, now);
            }
            seen.push((id, turn, sample));
        }
        // Only now, because it takes several turns to distinguish a stuck agent from a stuck
        // machine.
        for (id, turn, mut sample) in seen {
            sample.company = self.stalls.company(&turn.id, running.len(), now);
            self.handle(id, &Input::Evidence { turn: turn.id.clone(), sample }, watcher).await?;
        }
        Ok(())
    }

    /// Samples a running turn, if a sample is due.
    fn look_at(&mut self, id: &LoopId, turn: &Turn, now: Time) -> Result<Option<Sample>, Failure> {
        let Some(slot) = self.slots.get_mut(id) else { return Ok(None) };
        let Some(liveness) = slot.liveness.as_mut().filter(|l| l.turn == turn.id) else {
            slot.liveness = Some(Liveness::new(turn.id.clone(), turn.started_at, now));
            return Ok(None);
        };
        if now < liveness.next_look() {
            return Ok(None);
        }
        let dir = self.home.turn(&turn.id);
        let sample = liveness.look(&dir, now);
        if turn.stopping.is_some() && now.since(*liveness.stopping.get_or_insert(now)) > OBEY {
            // The shim itself does not stop; its exit, or its absence, is seen like any other.
            tracing::warn!(turn = %turn.id, "the turn did not stop in time and is killed");
            if let Err(e) = job::kill(&dir) {
                tracing::warn!(error = %e, "cannot kill the turn");
            }
        }
        if now.since(liveness.renewed) >= RENEW {
            liveness.renewed = now;
            match self.ledger.transact(now, &[shell::renew(turn)]) {
                // A person took the task away: the turn ends by itself and its result is kept as a
                // late result.
                Ok(_) | Err(Error::Refused(_) | Error::Full { .. }) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(Some(sample))
    }

    /// Whether a turn looks stuck, without regard to other turns.
    fn looks_stuck(&self, id: &LoopId, turn: &Turn, sample: &Sample) -> Result<bool, Failure> {
        let quiet = sample.phase_liveness.map_or(sample.silent, |phase_liveness| phase_liveness.quiet);
        let Some(slot) = self.slots.get(id).filter(|_| quiet > POLL_INTERVAL) else { return Ok(false) };
        let guards = shell::guards_of(&self.ledger, &slot.state, &self.node)?;
        let account = turn.permit.account().and_then(|scope| guards.get(scope));
        let usual = account.map(|v| v.state.gaps.clone()).unwrap_or_default();
        Ok(health(sample, &slot.state.spec.guard, &usual) == Health::Stuck)
    }
}

fn running(state: &LoopState) -> Option<Turn> {
    match &state.phase {
        Phase::Turn(turn) if turn.stage == TurnStage::Running => Some((**turn).clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_a_machine_sleeps_through_is_nobodys() {
        let (empty, at) = (tempfile::tempdir().expect("a folder"), |secs| Time(0) + Duration::from_secs(secs));
        let mut liveness = Liveness::new("k-1.1".parse().expect("the id of a turn"), at(0), at(0));
        let steady = liveness.look(empty.path(), at(5));
        assert_eq!((steady.running.as_secs(), steady.silent.as_secs()), (5, 5));
        let late = liveness.look(empty.path(), at(5 + 5 + 7200));
        assert_eq!((late.running.as_secs(), late.silent.as_secs()), (10, 10), "a laptop that was shut for two hours");
        let jitter = liveness.look(empty.path(), at(7210 + 6));
        assert_eq!(jitter.silent.as_secs(), 16, "a second late is what timers are");
    }
}
