//! What a supervisor publishes about itself while it works: its last beat, its next wake, and sums
//! of what it committed. Readers never wait for it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everloop_agents::clock;
use everloop_core::event::Event;
use everloop_core::ids::{LoopId, NodeId};
use everloop_core::time::Time;
use tokio::sync::watch;

/// A round of the supervisor never takes longer than this beyond its sleep, except on a full disk,
/// which it waits out and is then not well.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// The next timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wake {
    pub at: Time,
    /// The loop that it belongs to.
    pub owner: LoopId,
    /// What the loop is waiting for; the rule, or the name of its phase.
    pub why: String,
}

/// What a node of a mesh publishes about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Its name there.
    pub node: NodeId,
    /// Whether it is the leader.
    pub leads: bool,
    /// Tasks that it holds.
    pub holds: usize,
    /// Since when the hub does not answer.
    pub away_since: Option<Time>,
    /// Nodes that took tasks when it last looked, itself included.
    pub members: Option<usize>,
    /// When the hub answered last, by CLOCK_BOOTTIME.
    pub heard_at: Option<Duration>,
    /// When it last listed what is free, by CLOCK_BOOTTIME: a node without its hub goes by that.
    pub remembered_at: Option<Duration>,
}

impl Membership {
    /// Seconds since such a moment.
    pub fn seconds_since(moment: Option<Duration>) -> Option<u64> {
        Some(clock::boottime().saturating_sub(moment?).as_secs())
    }
}

/// Sums since the supervisor began.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Turns that started.
    pub started: u64,
    /// Turns that ended, by outcome.
    pub ended: BTreeMap<&'static str, u64>,
    /// Waits that began because a rule allowed no turn.
    pub refused: BTreeMap<String, u64>,
    /// Tokens that were charged.
    pub tokens: u64,
    /// Millionths of a dollar that were charged.
    pub microusd: u64,
}

#[derive(Debug, Default)]
struct Inner {
    /// By CLOCK_BOOTTIME, and how long the supervisor meant to sleep from then on.
    beat: Option<(Duration, Duration)>,
    wake: Option<Wake>,
    counts: Counts,
    membership: Option<Membership>,
}

/// Written by the supervisor, read by answers of the port; neither waits for the other.
#[derive(Debug, Default)]
pub struct Figures {
    inner: Mutex<Inner>,
    /// Grows with every beat, for readers that wait for news.
    beats: watch::Sender<u64>,
}

impl Figures {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing is left half done under this lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The supervisor is about to sleep this long at most.
    pub fn beat(&self, nap: Duration, wake: Option<Wake>) {
        let mut inner = self.inner();
        inner.beat = Some((clock::boottime(), nap));
        inner.wake = wake;
        drop(inner);
        self.beats.send_modify(|beats| *beats += 1);
    }

    /// Changes with every beat. What the supervisor committed before it can be read then.
    pub fn beats(&self) -> watch::Receiver<u64> {
        self.beats.subscribe()
    }

    /// Events were committed.
    pub fn take(&self, events: &[Event]) {
        let counts = &mut self.inner().counts;
        for event in events {
            match event {
                Event::TurnStarted { .. } => counts.started += 1,
                Event::TurnEnded { outcome, settled, .. } => {
                    *counts.ended.entry(outcome.label()).or_default() += 1;
                    counts.tokens = counts.tokens.saturating_add(settled.spend.tokens);
                    counts.microusd = counts.microusd.saturating_add(settled.spend.microusd);
                }
                Event::Waiting { reason } => *counts.refused.entry(reason.rule.to_string()).or_default() += 1,
                _ => {}
            }
        }
    }

    /// The counters of this process so far.
    pub fn counts(&self) -> Counts {
        self.inner().counts.clone()
    }

    /// The next timer.
    pub fn wake(&self) -> Option<Wake> {
        self.inner().wake.clone()
    }

    /// What this machine is in a mesh, if it is part of one.
    pub fn membership(&self) -> Option<Membership> {
        self.inner().membership.clone()
    }

    /// Publishes the state of the node; `None` when it leaves.
    pub fn belongs(&self, membership: Option<Membership>) {
        self.inner().membership = membership;
    }

    /// How long the next beat is overdue; `None` while all is well.
    pub fn overdue(&self) -> Option<Duration> {
        let (at, nap) = self.inner().beat?;
        let late = clock::boottime().saturating_sub(at).saturating_sub(nap);
        (late > WAIT_TIMEOUT).then_some(late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supervisor_that_does_not_come_back_is_missed() {
        let figures = Figures::default();
        assert_eq!(figures.overdue(), None, "it has not begun");
        figures.beat(Duration::from_secs(30), None);
        assert_eq!(figures.overdue(), None);
        let ago = |seconds| clock::boottime().checked_sub(Duration::from_secs(seconds)).unwrap_or_default();
        figures.inner().beat = Some((ago(80), Duration::from_secs(30)));
        assert_eq!(figures.overdue(), None, "late, but not beyond patience");
        figures.inner().beat = Some((ago(95), Duration::from_secs(30)));
        assert!(figures.overdue().is_some());
    }
}
