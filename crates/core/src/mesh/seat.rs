//! For how long a node may take itself for the supervisor. Counted on its own clock, from before it asked: the hub granted
//! the lease later than that, so here it is always over first.

use std::time::Duration;

use crate::jitter;
use crate::planted::{self, Bug};
use crate::time::Time;

/// What the hub is asked for.
pub const LEASE: Duration = Duration::from_secs(15);
/// Acts only so long after it asked: what was begun then ends before the lease does.
pub const ACT: Duration = Duration::from_secs(10);
/// Between two requests.
pub const RENEW: Duration = Duration::from_secs(5);
/// When the office is free, nodes ask for it within this time.
const RUSH: Duration = Duration::from_millis(500);
/// For how long a new supervisor takes nothing from anybody: whoever lives holds on to his tasks in this time.
pub const AMNESTY: Duration = super::work::LEASE;

/// What a node knows about its own office.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seat {
    epoch: Option<u64>,
    asked: Time,
    since: Time,
}

impl Seat {
    /// The hub answered a request that was sent at `asked`.
    pub fn answered(&mut self, asked: Time, epoch: Option<u64>) {
        if epoch != self.epoch {
            self.since = asked;
        }
        self.epoch = epoch;
        self.asked = asked;
    }

    /// The epoch under which it may act now.
    pub fn epoch(&self, now: Time) -> Option<u64> {
        self.epoch.filter(|_| planted::is(Bug::ActsPastItsLease) || now.since(self.asked) < ACT)
    }

    /// The epoch that it may give back: it was granted, in time or not.
    pub fn granted(&self) -> Option<u64> {
        self.epoch
    }

    /// Whether it may take tasks from nodes that are silent.
    pub fn reclaims(&self, now: Time) -> bool {
        self.epoch(now).is_some() && (planted::is(Bug::NoAmnesty) || now.since(self.since) >= AMNESTY)
    }

    /// When to ask again: each node a little differently.
    pub fn ask_next(asked: Time, seed: u64) -> Time {
        asked + jitter::between(RENEW.mul_f64(0.8), RENEW.mul_f64(1.2), seed)
    }

    /// When a node asks that just heard for how long somebody else is the supervisor: when that is over, and not all at once.
    pub fn ask_after(heard: Time, left: Duration, seed: u64) -> Time {
        heard + left + jitter::between(Duration::ZERO, RUSH, seed)
    }
}
