//! Whether the use by all machines stays within the loop's limits, and whether the record of the
//! fleet does no harm: a third of the machines at most is quarantined, every quarantine has an end,
//! and one machine is always left.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use everloop_core::immune::{DOC, Dimension, FLEET, Immune, Subject, caps};
use everloop_core::mesh::eligibility;
use everloop_core::mesh::node::{Claim, NodeEvent};
use everloop_core::mesh::reconcile::ReconcilePlan;
use everloop_core::mesh::work::Held;
use everloop_core::op::TaskState;
use everloop_core::time::Time;

use super::facts::STALL;
use super::hub::Mood;
use super::world::{World, ms};
use crate::sim::check::OUT_MOST;

/// A trial that is over is found out within so many looks.
const LOOKS: u32 = 20;
/// A leader that can do nothing leaves its lease to others within this time, and a held machine its
/// tasks.
const GIVES_UP: Duration = Duration::from_secs(240);

/// Kind and key of the record, made once.
static FLEET_NAME: LazyLock<(String, String)> = LazyLock::new(|| (DOC.to_owned(), FLEET.to_owned()));

/// What the loop may use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    pub calls: Option<u64>,
    pub per_hour: Option<u64>,
}

impl World {
    /// The product's node reports something.
    pub(super) fn observed(&mut self, n: usize, event: &NodeEvent<'_>) {
        if self.nodes[n].dying {
            return;
        }
        match event {
            NodeEvent::HubBack { turn } => {
                let node = &mut self.nodes[n];
                // No task is waited for until then.
                node.idle_since = node.idle_since.max(self.now + ms(*turn));
            }
            NodeEvent::Offered { since, .. } => {
                self.nodes[n].lets_others_since = None;
                return self.waited(n, *since);
            }
            NodeEvent::NothingOffered => {
                self.nodes[n].lets_others_since = None;
                return;
            }
            NodeEvent::LeftToOthers { holds, oldest } => return self.let_others_go_first(n, *holds, *oldest),
            NodeEvent::Reconciled { plan } => self.reconciled(plan),
            NodeEvent::UnknownToHub { key } if self.hub.copies > 0 => {
                // A hub that was restored from a backup did not know the task, and may make another
                // one of the same name.
                let known = self.nodes[n].disk.held.get(*key).map(|claim| claim.task.clone());
                self.facts.forgiven.extend(known.map(|task| (task, format!("{} {key}", self.nodes[n].id))));
            }
            NodeEvent::GivesUpLeading { .. } => self.count("leader gives up"),
            NodeEvent::GivenBack { .. } => self.count("stuck task given back"),
            NodeEvent::Remembered | NodeEvent::HubAway { .. } => return,
            _ => {}
        }
        self.trace.say(self.now, self.nodes[n].id.as_str(), &event.to_string());
    }

    fn reconciled(&mut self, plan: &ReconcilePlan) {
        self.tally.reconciled.0 += plan.repairs.len() as u64;
        self.tally.reconciled.1 += plan.missed.len() as u64;
        let Some(node) = plan.missed.iter().find_map(|id| self.named(id)).map(|n| &self.nodes[n]) else { return };
        let long = self.since(node.healthy_since).min(self.since(self.hub.since));
        if self.can_compare(node) && long > 2 * everloop_core::mesh::offline::DOWN {
            let text = format!("{} is called silent, and sends a heartbeat every five seconds", node.id);
            self.violated("wake", text);
        }
    }

    /// Nodes with the same knowledge begin different tasks, and no node begins a task after a
    /// report that another node took it.
    pub(super) fn begun_offline(&mut self, n: usize, held: &Held) {
        if self.nodes[n].told.contains(&held.task) {
            let text = format!("{} begins {}, and was told that it is taken", self.nodes[n].id, held.task);
            return self.violated("told", text);
        }
        if self.nodes[n].frozen.is_some() {
            return self.violated("shut", format!("{} begins {}, and is held", self.nodes[n].id, held.task));
        }
        let knows = |n: usize| (&self.nodes[n].disk.replica.members, &self.nodes[n].disk.replica.free);
        let is_same = |claim: &Arc<Claim>| claim.alone && claim.task == held.task && claim.fence == held.fence;
        let begun = |o: &usize| *o != n && self.nodes[*o].disk.held.values().any(is_same) && knows(*o) == knows(n);
        if let Some(other) = (0..self.nodes.len()).find(begun) {
            let text = format!("{} and {} both begin {}", self.nodes[n].id, self.nodes[other].id, held.task);
            self.violated("overlap", text);
        }
    }

    /// An attempt begins that takes so many turns. What two nodes do under one fence, because one
    /// of them could not reach the hub, is the offline allowance; everything else is within the
    /// limits.
    pub(super) fn attempt(&mut self, n: usize, held: &Held, turns: u64) {
        let row = self.hub.model.peek_task(&held.task);
        let mine = row.is_some_and(|row| match &row.state {
            TaskState::Queued => row.fence.next() == held.fence,
            TaskState::Leased { node, .. } => row.fence == held.fence && *node == self.nodes[n].id,
            _ => false,
        });
        let is_same = |claim: &Arc<Claim>| claim.task == held.task && claim.fence == held.fence;
        let beside = (0..self.nodes.len()).any(|o| o != n && self.nodes[o].disk.held.values().any(is_same));
        // What a hub knew before it was restored from a backup does not count.
        if !mine || beside || held.owner != self.current.id || self.hub.copies > 0 {
            return;
        }
        // The other one may have ended, or lost its disk, meanwhile.
        let key = (held.task.clone(), held.fence);
        if self.facts.attempted.contains_key(&key) {
            return;
        }
        self.facts.attempted.insert(key, (n, (self.now, turns)));
        self.facts.calls.push((self.now, turns));
        let limits = &self.limits;
        let within = |window: u64| -> u64 {
            let lately = self.facts.calls.iter().rev().take_while(|(at, _)| self.now - at < window);
            lately.map(|(_, turns)| turns).sum()
        };
        // A leader with a clock of another rate knows the hub's time to some seconds.
        let an_hour = ms(Duration::from_secs(if self.setup.drift { 3540 } else { 3600 }));
        let (all, hour) = (within(u64::MAX), within(an_hour));
        // An hour is one by the hub's clock: when that was set, it may be none.
        let fair = self.hub.odd_until == 0 || self.now > self.hub.odd_until + an_hour;
        if limits.calls.is_some_and(|most| all > most) {
            self.violated("I6", format!("{all} turns of {limits:?}"));
        } else if limits.per_hour.is_some_and(|most| hour > most) && fair {
            self.violated("I6", format!("{hour} turns in an hour of {limits:?}"));
        }
    }

    /// The leader's action came back: one that cannot do its work lets another try.
    pub(super) fn leader_tried(&mut self, n: usize, well: bool) {
        let Some(term) = self.nodes[n].term.filter(|_| !well) else {
            self.facts.helpless = None;
            return;
        };
        let known = self.facts.helpless.filter(|(known, _)| *known == term);
        let (_, since) = *self.facts.helpless.insert(known.unwrap_or((term, self.now)));
        let can = |o: &super::node::Node| {
            let may = !o.wished_away && !o.draining && o.no_remote.is_none();
            may && o.is_well(self.hub.copies) && self.since(o.healthy_since) > GIVES_UP
        };
        let fair = self.hub.mood == Mood::Well && self.since(self.hub.since) > GIVES_UP;
        if fair && self.since(since) > GIVES_UP && self.nodes.iter().any(can) {
            let text = format!("{} leads, cannot reach the remote, and lets no other node try", self.nodes[n].id);
            self.violated("office", text);
        }
    }

    /// A machine that is held keeps no task for long.
    pub(super) fn keeps_nothing(&mut self, n: usize) {
        let node = &self.nodes[n];
        let Some(since) = node.frozen else { return };
        let since = since.max(node.healthy_since).max(self.hub.since).max(node.idle_since);
        let fair = node.is_well(self.hub.copies) && self.hub.mood == Mood::Well && node.rate == 1000 && !node.full;
        if !fair || self.since(since) <= GIVES_UP {
            return;
        }
        let long = |at: Time| self.clock(n).since(at) > GIVES_UP;
        let waits = |claim: &&Arc<Claim>| {
            node.disk.loops.get(&claim.local).is_some_and(|local| local.over.is_none() && local.waits.is_some_and(long))
        };
        if let Some(claim) = node.disk.held.values().find(waits) {
            let text = format!("{} is held and keeps {}", node.id, claim.key);
            self.violated("stuck", text);
        }
    }

    /// The record as the hub has it; read once for each version of it.
    pub(super) fn record(&mut self) -> (u64, Arc<Immune>) {
        let row = self.hub.model.peek_doc(&FLEET_NAME);
        let version = row.map_or(0, |row| row.version);
        match &self.fleet {
            Some((known, immune)) if *known == version => (version, immune.clone()),
            _ => {
                let immune = row.map_or_else(Immune::default, |row| Immune::read(&row.body).expect("we wrote it"));
                let immune = Arc::new(immune);
                self.fleet = Some((version, immune.clone()));
                (version, immune)
            }
        }
    }

    /// A node leaves all that is free to others. It is not idle, as long as they come.
    fn let_others_go_first(&mut self, n: usize, holds: usize, oldest: Time) {
        let now = self.now;
        let node = &mut self.nodes[n];
        node.idle_since = now;
        if holds > 0 {
            node.lets_others_since = None;
            return;
        }
        let since = *node.lets_others_since.get_or_insert(now);
        let since = since.max(node.healthy_since);
        let fair = !self.setup.drift && now > self.hub.odd_until && self.hub.mood == Mood::Well;
        let waits = self.since(since.max(self.hub.since).max(self.moment(oldest)));
        if fair && waits > eligibility::NOBODY_ELSE + STALL {
            let text = format!("{} leaves what is free to others for {} s", self.nodes[n].id, waits.as_secs());
            self.violated("I5", text);
        }
    }

    /// Trials without a recorded end.
    pub(super) fn look_at_trials(&mut self, n: usize, immune: &Immune) {
        if immune.standings.is_empty() {
            return;
        }
        let own = [Subject::new(Dimension::Node, self.nodes[n].id.as_str())];
        let over =
            eligibility::on_trial(immune, &own).iter().filter_map(eligibility::attempt_of).any(|(task, fence)| {
                let row = self.hub.model.peek_task(&task);
                row.is_none_or(|row| row.fence != fence || row.state.label() != "leased")
            });
        let node = &mut self.nodes[n];
        node.odd_trial = if over && self.hub.mood == Mood::Well { node.odd_trial + 1 } else { 0 };
        if node.odd_trial > LOOKS {
            let text = format!("{} is on trial in an attempt that is over", self.nodes[n].id);
            self.violated("I8", text);
        }
    }

    /// The record was written: it may never do more harm than good.
    pub(super) fn does_no_harm(&mut self, n: usize) {
        let (immune, now) = (self.record().1, Time(self.clock(n).0 + self.nodes[n].ahead));
        let out = caps::out(&immune, now);
        let out: Vec<&Subject> = out.iter().filter(|s| s.dimension == Dimension::Node).collect();
        let all: std::collections::BTreeSet<&Subject> =
            immune.record.live(Dimension::Node).chain(out.iter().copied()).collect();
        if out.len() > all.len() / 3 {
            self.violated("I8", format!("{} of {} machines are out", out.len(), all.len()));
        }
        self.tally.most_out = self.tally.most_out.max(out.len() as u64);
        // When clocks differ, an end that one of them saw may be far away for another.
        if self.setup.drift || self.hub.odd_until > 0 {
            return;
        }
        let late = |at: Option<Time>| at.is_some_and(|at| at.since(now) > OUT_MOST);
        let endless = immune.standings.iter().find(|(_, standing)| late(standing.tier.until()));
        if let Some(subject) = endless.map(|(subject, _)| subject.to_string()) {
            self.violated("I8", format!("{subject} is out without an end"));
        }
    }
}
