//! For how long a node may regard itself as the leader. Counted on its own clock, from before it
//! sent the request: the hub granted the lease later than that, so here it is always over first.

use std::time::Duration;

use crate::jitter;
use crate::planted::{self, Bug};
use crate::time::Time;

/// The length of the lease that a node requests from the hub.
pub const LEASE: Duration = Duration::from_secs(15);
/// The leader acts only so long after its request: what was begun then ends before the lease does.
pub const ACT: Duration = Duration::from_secs(10);
/// Between two requests.
pub const RENEW: Duration = Duration::from_secs(5);
/// When the lease is free, nodes request it within this time.
const ELECTION_SPREAD: Duration = Duration::from_millis(500);
/// For how long a new leader takes no tasks from nodes: every live node renews its tasks in this
/// time.
pub const AMNESTY: Duration = super::work::LEASE;

/// Actions of the leader that fail in a row, after which another node should try…
const HOPELESS: u32 = 3;
/// …and for so long the former leader does not request the lease. If no other node took it, the
/// former leader tries again then.
const BACK_OFF: Duration = Duration::from_secs(60);

/// What a node knows about its own lease as the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderLease {
    term: Option<u64>,
    asked: Time,
    since: Time,
    /// Actions that failed, since the last one that did not.
    failed: u32,
    shy_until: Time,
}

impl LeaderLease {
    /// The hub answered a request that was sent at `asked`.
    pub fn answered(&mut self, asked: Time, term: Option<u64>) {
        if term != self.term {
            self.since = asked;
        }
        self.term = term;
        self.asked = asked;
    }

    /// The epoch under which it may act now.
    pub fn term(&self, now: Time) -> Option<u64> {
        self.term.filter(|_| planted::is(Bug::ActsPastItsLease) || now.since(self.asked) < ACT)
    }

    /// Until when it may act under its epoch.
    pub fn acts_until(&self) -> Time {
        if planted::is(Bug::ActsPastItsLease) { Time(i64::MAX) } else { self.asked + ACT }
    }

    /// The epoch that it may give back: it was granted, in time or not.
    pub fn granted(&self) -> Option<u64> {
        self.term
    }

    /// Whether it may take tasks from nodes that are silent.
    pub fn reclaims(&self, now: Time) -> bool {
        self.term(now).is_some() && (planted::is(Bug::NoAmnesty) || now.since(self.since) >= AMNESTY)
    }

    /// An action of the leader ended, well or not. Whether the leader should let another node try:
    /// what the action needs may be missing on this node only.
    pub fn tried(&mut self, well: bool, now: Time) -> bool {
        self.failed = if well { 0 } else { self.failed + 1 };
        let gives_up = self.failed >= HOPELESS && !planted::is(Bug::ClingsToLeadership);
        if gives_up {
            (self.failed, self.shy_until) = (0, now + BACK_OFF);
        }
        gives_up
    }

    /// Whether the node just gave the lease up and leaves it to others.
    pub fn is_backing_off(&self, now: Time) -> bool {
        now < self.shy_until
    }

    /// When to send the next request: a slightly different time on each node.
    pub fn ask_next(asked: Time, seed: u64) -> Time {
        asked + jitter::between(RENEW.mul_f64(0.8), RENEW.mul_f64(1.2), seed)
    }

    /// When a node requests the lease after it learned for how long another node is the leader:
    /// when that time is over, and not all nodes at once.
    pub fn ask_after(heard: Time, left: Duration, seed: u64) -> Time {
        heard + left + jitter::between(Duration::ZERO, ELECTION_SPREAD, seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_fails_three_times_in_a_row_leaves_the_office_to_others_for_a_minute() {
        let (mut leader_lease, now) = (LeaderLease::default(), Time(1_000_000));
        assert_eq!([false, false, true, false, false].map(|well| leader_lease.tried(well, now)), [false; 5]);
        assert!(!leader_lease.is_backing_off(now));
        assert!(leader_lease.tried(false, now));
        assert!(leader_lease.is_backing_off(now + BACK_OFF / 2));
        assert!(!leader_lease.is_backing_off(now + BACK_OFF));
        assert!(!leader_lease.tried(false, now + BACK_OFF), "it counts anew");
    }
}
