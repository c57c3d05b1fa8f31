//! Signs of life of running turns, and the renewal of their leases.

use std::path::Path;
use std::time::Duration;

use everloop_agents::job;
use everloop_core::action::Input;
use everloop_core::evidence::Sample;
use everloop_core::ids::{LoopId, TurnId};
use everloop_core::op::Op;
use everloop_core::phase::Pulse;
use everloop_core::state::{Phase, Stage};
use everloop_core::time::Time;
use everloop_store::{Error, Ledger};
use tokio::sync::watch;

use super::commit::LEASE;
use super::stream::Sighting;
use super::{Supervisor, Watcher};
use crate::error::Failure;

/// Signs of life are looked for this often.
const LOOK: Duration = Duration::from_secs(5);
/// Leases are renewed this often: four chances within one lease.
const RENEW: Duration = Duration::from_secs(20);
/// A turn that was told to stop has 10 s for itself and is then killed by its shim; after this, by us.
const OBEY: Duration = Duration::from_secs(20);
/// CPU time below this is idling, not life.
const CPU_LIFE_MS: u64 = 20;

/// What is known about a running turn's signs of life.
pub struct Life {
    turn: TurnId,
    started: Time,
    seen: job::Evidence,
    changed: Time,
    looked: Time,
    renewed: Time,
    stopping: Option<Time>,
    /// What its stream shows.
    stream: Option<watch::Receiver<Sighting>>,
    /// Time that the machine slept through since the stream last moved.
    slept: Duration,
    quiet: Duration,
}

impl Life {
    /// A turn that begins now, or is found now.
    pub fn new(turn: TurnId, started: Time, now: Time) -> Self {
        Self {
            turn,
            started,
            seen: job::Evidence::default(),
            changed: now,
            looked: now,
            renewed: now,
            stopping: None,
            stream: None,
            slept: Duration::ZERO,
            quiet: Duration::ZERO,
        }
    }

    /// Whoever waits for the turn shows its stream here.
    pub fn seeing(mut self, stream: watch::Receiver<Sighting>) -> Self {
        self.stream = Some(stream);
        self
    }

    /// When to look next.
    pub fn next_look(&self) -> Time {
        self.looked + LOOK
    }

    /// How long there was no sign of life.
    pub fn silent(&self, now: Time) -> Duration {
        now.since(self.changed)
    }

    fn look(&mut self, dir: &Path, now: Time, late: Duration) -> Sample {
        self.looked = now;
        // Time that the machine slept through is nobody's: neither the turn's limits nor its silence count it.
        self.started = self.started + late;
        self.changed = self.changed + late;
        // What cannot be looked at is not taken for dead.
        let seen = job::sample(dir).unwrap_or_else(|e| {
            tracing::debug!(turn = %self.turn, error = %e, "no signs of life to be read");
            job::Evidence { out_bytes: self.seen.out_bytes + 1, ..self.seen.clone() }
        });
        let alive = seen.out_bytes != self.seen.out_bytes
            || seen.processes != self.seen.processes
            || seen.cpu_ms.saturating_sub(self.seen.cpu_ms) >= CPU_LIFE_MS;
        if alive {
            self.seen = seen;
            self.changed = now;
        }
        let pulse = self.pulse(now, late);
        Sample { running: now.since(self.started), silent: self.silent(now), timer_late: Duration::ZERO, pulse }
    }

    /// What the stream shows, without the time that the machine slept through.
    fn pulse(&mut self, now: Time, late: Duration) -> Option<Pulse> {
        let (mut pulse, at) = (*self.stream.as_ref()?.borrow())?;
        let quiet = pulse.quiet + now.since(at);
        self.slept = if quiet < self.quiet { Duration::ZERO } else { self.slept + late };
        self.quiet = quiet;
        pulse.quiet = quiet.saturating_sub(self.slept);
        Some(pulse)
    }
}

impl Supervisor {
    pub(super) async fn look_at_turns(&mut self, late: Duration, watcher: &mut impl Watcher) -> Result<(), Failure> {
        let now = self.clock.now();
        let ids: Vec<LoopId> = self.slots.keys().cloned().collect();
        for id in ids {
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            let running = match &slot.state.phase {
                Phase::Turn(t) if t.stage == Stage::Running => Some((**t).clone()),
                _ => None,
            };
            let Some(turn) = running else {
                slot.life = None;
                continue;
            };
            let Some(life) = slot.life.as_mut().filter(|l| l.turn == turn.id) else {
                slot.life = Some(Life::new(turn.id, turn.started_at, now));
                continue;
            };
            if now < life.next_look() {
                continue;
            }
            let dir = self.home.turn(&turn.id);
            let sample = life.look(&dir, now, late);
            if turn.stopping.is_some() && now.since(*life.stopping.get_or_insert(now)) > OBEY {
                // The shim itself does not obey; its exit, or its absence, is heard of like any other.
                tracing::warn!(turn = %turn.id, "the turn did not stop when told to and is killed");
                if let Err(e) = job::kill(&dir) {
                    tracing::warn!(error = %e, "and could not be killed");
                }
            }
            if now.since(life.renewed) >= RENEW {
                life.renewed = now;
                let renew = Op::Renew { task: turn.task, fence: turn.fence, lease: LEASE };
                match self.ledger.transact(now, &[renew]) {
                    // A person took the task away: the turn ends by itself and its result goes on the shelf.
                    Ok(_) | Err(Error::Refused(_) | Error::Full { .. }) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            self.handle(&id, &Input::Evidence { turn: turn.id, sample }, watcher).await?;
        }
        Ok(())
    }
}
