//! Heartbeat, the lease of the leader, and leaving the mesh.

use std::time::Duration;

use super::{BEAT, BeatReply, Hint, MeshNode, NodeEffects, NodeEvent, NodeStatus, Wish};
use crate::jitter;
use crate::mesh::leader_lease::LeaderLease;
use crate::mesh::rights::Rights;
use crate::op::{Op, Reply};
use crate::planted::{self, Bug};
use crate::time::Time;

/// For the mistake of a lease that is counted from its answer: a call takes so long at most.
const CALL: Duration = Duration::from_secs(7);

impl MeshNode {
    pub(super) fn beat(&mut self, fx: &mut impl NodeEffects) {
        let now = fx.now();
        self.beat_at = now + jitter::between(BEAT.mul_f64(0.9), BEAT.mul_f64(1.1), fx.seed());
        let next_beat = self.hub_now(fx) + self.real(self.beat_at.since(now));
        let (status, sent) = (self.status(now, Some(next_beat)), fx.wall());
        if let Some(reply) = self.at_hub(fx, "send a heartbeat", |fx| fx.beat(&status)) {
            self.beaten(fx, &reply, sent);
        }
    }

    fn status(&self, now: Time, next_beat: Option<Time>) -> NodeStatus {
        NodeStatus {
            holds: self.claims.values().map(|claim| claim.task.clone()).collect(),
            leads: self.leads(now),
            draining: self.draining || next_beat.is_none(),
            next_beat,
        }
    }

    /// The hub answered a heartbeat that was sent at `sent`, by this machine's clock.
    fn beaten(&mut self, fx: &mut impl NodeEffects, reply: &BeatReply, sent: Time) {
        let now = fx.now();
        // A node with a wrong clock could not know otherwise when a task is to be tried again.
        let sent = if planted::is(Bug::HubClockFromTheAnswer) { fx.wall() } else { sent };
        self.hub_clock.learn(reply.at, sent, fx.wall());
        // A node that was removed and comes back takes nothing, too.
        self.draining = reply.wish.is_some_and(|wish| wish != Wish::Work);
        if reply.waiting || !self.replica.free.is_empty() {
            self.list_at = self.list_at.min(now);
        } else {
            fx.observe(&NodeEvent::Remembered);
        }
        self.mirror.known = Some(reply.seq);
        self.rights = reply.rights;
        if !self.may_lead() && self.lease.granted().is_some() {
            // Its login was changed: what it would write as the leader is refused.
            self.lease.answered(now, None);
            fx.observe(&NodeEvent::LeaderChanged { term: None });
        }
        if self.lease.granted().is_none() {
            let left = reply.led_until.map_or(Duration::ZERO, |until| until.since(reply.at));
            self.ask_at = LeaderLease::ask_after(now, self.own(left), fx.seed());
        }
    }

    /// Whether its login is a leader's.
    fn may_lead(&self) -> bool {
        self.rights == Rights::Leader || planted::is(Bug::LeadsWithoutRights)
    }

    /// Requests the leader lease, or its renewal.
    pub(super) fn ask(&mut self, fx: &mut impl NodeEffects) {
        let asked = fx.now();
        self.ask_at = LeaderLease::ask_next(asked, fx.seed());
        if self.draining || !self.may_lead() || self.lease.is_backing_off(asked) {
            return;
        }
        let elect = self.elect.clone();
        let answer = self.at_hub(fx, "request the leader lease", |fx| fx.transact(None, &elect));
        let Some(Ok(replies)) = answer else { return };
        let term = replies.iter().find_map(|r| if let Reply::Elected(term) = r { *term } else { None });
        if self.lease.granted() != term {
            fx.observe(&NodeEvent::LeaderChanged { term });
        }
        // Counted from before the request was sent: the hub's time for it begins later.
        let asked = if planted::is(Bug::LeaseFromTheReply) { asked + CALL } else { asked };
        self.lease.answered(asked, term);
    }

    /// Gives the lease back, so that the next leader does not have to wait for its end.
    pub(super) fn resign(&mut self, fx: &mut impl NodeEffects) {
        if let Some(term) = self.lease.granted() {
            let resign = [Op::Resign { node: self.settings.node.clone(), term }];
            self.at_hub(fx, "give up the leader lease", |fx| fx.transact(None, &resign));
            self.lease.answered(Time::default(), None);
            fx.observe(&NodeEvent::LeaderChanged { term: None });
            self.hint(fx, &Hint::Leader);
        }
    }

    /// Ends: gives the lease and unfinished tasks back. What is finished is reported by the next
    /// process here.
    pub fn leave(&mut self, fx: &mut impl NodeEffects) {
        self.resign(fx);
        self.give_all_back(fx);
        let status = self.status(fx.now(), None);
        self.at_hub(fx, "announce that it ends", |fx| fx.beat(&status));
        self.mirror.seq = None;
        self.mirror_hub(fx);
        // Also wakes its own listener, which then finds that the node is gone.
        self.hint(fx, &Hint::Work);
    }
}
