//! What goes wrong: at a chosen place, by chance at any place, or for a while. Numbers in comments
//! are rows of the list of faults.

use everloop_core::ids::{LoopId, NodeId};
use everloop_core::op::Op;
use everloop_store::{Ledger, Tickets};

use super::hub::{Cut, Mood};
use super::node::{Disk, LocalWork, OFFSETS};
use super::world::{World, ms};
use crate::random::Random;
use crate::sim::fault::Faults;

/// Something that goes wrong at a place: a call to the hub, a write to a disk, a move of the
/// branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeshFault {
    /// The node is killed before it (1, 2).
    KillBefore,
    /// The node is killed afterwards, and does not receive the result (1, 2, 11).
    KillAfter,
    /// The call is lost on its way to the hub (11, 14).
    LoseRequest,
    /// The answer is lost on its way back (11, 14).
    LoseAnswer,
    /// The hub refuses the call for reasons of its own (10).
    HubError(&'static str),
    /// The call arrives so many milliseconds late, and no node waits for the answer.
    Late(u64),
    /// The node pauses for so long after it has decided and before its call (5, 6).
    Stop(u64),
    /// The hub goes away for so long (8).
    HubAway(u64),
    /// The disk is full (19).
    DiskFull,
}

/// The kinds that the exhaustive tests try at every place.
pub const EVERY: [MeshFault; 8] = [
    MeshFault::KillBefore,
    MeshFault::KillAfter,
    MeshFault::LoseRequest,
    MeshFault::LoseAnswer,
    MeshFault::Late(20_000),
    MeshFault::Stop(200_000),
    MeshFault::HubAway(100_000),
    MeshFault::DiskFull,
];

/// The hub's own errors, after each of which nothing happened.
const HUB_ERRORS: [&str; 4] =
    ["hub: serialization", "hub: deadlock", "hub: too many connections", "hub: admin shutdown"];

impl MeshFault {
    fn draw(dice: &mut Random) -> Self {
        let wait = dice.pick(&[500, 3_000, 7_000, 12_000, 20_000, 100_000, 300_000]);
        match dice.below(16) {
            0 | 1 => MeshFault::KillBefore,
            2 | 3 => MeshFault::KillAfter,
            4..=6 => MeshFault::LoseRequest,
            7..=9 => MeshFault::LoseAnswer,
            10 => MeshFault::Late(wait),
            11 => MeshFault::Stop(wait),
            12 => MeshFault::DiskFull,
            _ => MeshFault::HubError(dice.pick(&HUB_ERRORS)),
        }
    }

    fn name(self) -> &'static str {
        match self {
            MeshFault::KillBefore => "killed before a call",
            MeshFault::KillAfter => "killed after a call",
            MeshFault::LoseRequest => "request lost",
            MeshFault::LoseAnswer => "answer lost",
            MeshFault::HubError(kind) => kind,
            MeshFault::Late(_) => "request late",
            MeshFault::Stop(_) => "stopped before a call",
            MeshFault::HubAway(_) => "hub away at a call",
            MeshFault::DiskFull => "write failed",
        }
    }
}

/// A plan under way, and what came of it.
pub(super) struct MeshFaults {
    pub chance: Faults<MeshFault>,
    pub healed: bool,
    pub healed_at: u64,
    /// The request that the hub handles now was sent long ago.
    pub late: bool,
}

/// For how long something stays wrong, mostly: around every limit that there is, and far beyond.
const LONG_MS: [u64; 9] = [1_000, 8_000, 13_000, 17_000, 20_000, 60_000, 120_000, 400_000, 2_000_000];
const HOUR_MS: u64 = 3_600_000;

impl World {
    /// Comes to the next place at which something can go wrong.
    pub(super) fn meet(&mut self) -> Option<MeshFault> {
        let fault = self.faults.chance.meet(MeshFault::draw);
        if let Some(fault) = fault {
            self.count(fault.name());
        }
        fault
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.tally.faults.entry(what).or_default() += 1;
        self.trace.say(self.now, "fault", what);
    }

    pub(super) fn next_fault(&mut self) {
        if let Some(every) = self.setup.fault_every {
            let wait = self.dice.between(ms(every) / 4, ms(every) * 2);
            self.later(wait, Self::go_wrong);
        }
    }

    fn go_wrong(&mut self) {
        if self.faults.healed {
            return;
        }
        let node = self.dice.below(self.nodes.len() as u64) as usize;
        let wait = self.dice.pick(&LONG_MS);
        if self.dice.one_in(3) {
            self.hub.backup = Some(self.hub.model.clone());
        }
        match self.dice.below(44) {
            0..=5 => self.pull_the_plug(node, wait),
            6..=8 => self.kill_twice(node),
            9..=11 => self.stop_thread(node, wait),
            12 | 13 => self.suspend(node, wait),
            14..=18 => self.cut(node, wait),
            19..=22 => self.hub_goes(wait),
            23 => {
                let hours = self.dice.pick(&[24, 60]);
                self.hub_goes(hours * HOUR_MS);
            }
            24 => self.hub_is(Mood::ReadOnly, wait, "hub: read-only"),
            25 => self.hub_is(Mood::Crowded, wait, "hub: too many connections for a while"),
            26 => self.force_the_seat(),
            27 => self.set_back(),
            28 => self.set_the_hubs_clock(),
            29 | 30 => self.set_a_clock(node),
            31 => self.fill_the_disk(node, wait),
            32 => self.lose_a_file(node),
            33 => self.roll_back_a_disk(node, wait),
            34 | 35 => self.freeze(node, wait),
            36 | 37 => self.take_the_remote(node, wait),
            _ => self.meddle(node, wait),
        }
        self.next_fault();
    }

    /// The plug is pulled (1, 2): what was only in memory is gone.
    pub(super) fn kill(&mut self, node: usize) {
        let wait = self.dice.pick(&LONG_MS);
        self.kill_for(node, wait);
    }

    fn pull_the_plug(&mut self, node: usize, wait: u64) {
        if self.nodes[node].alive {
            self.count("killed");
            self.kill_for(node, wait);
        }
    }

    pub(super) fn kill_for(&mut self, node: usize, wait: u64) {
        if self.nodes[node].alive {
            self.trace.say(self.now, "kill", self.nodes[node].id.as_str());
            self.nodes[node].die();
            self.later(wait, move |w| w.start(node));
        }
    }

    /// Killed again while it recovers (4).
    fn kill_twice(&mut self, node: usize) {
        if self.nodes[node].alive {
            self.count("killed twice");
            self.kill_for(node, 1_000);
            let wait = self.dice.between(1_050, 4_000);
            // The second start finds the node alive and does nothing, unless it was killed at one
            // of its calls meanwhile.
            self.later(wait, move |w| w.start(node));
        }
    }

    fn start(&mut self, node: usize) {
        if self.nodes[node].alive {
            // The second half of a double kill.
            return self.kill_for(node, 500);
        }
        self.trace.say(self.now, "start", self.nodes[node].id.as_str());
        self.nodes[node].alive = true;
        self.well_again(node);
        self.wake(node, 100);
        // Loops of this machine go on where they were.
        let loops = self.nodes[node].disk.loops.iter();
        let going: Vec<LoopId> = loops.filter(|(_, l)| l.over.is_none()).map(|(id, _)| id.clone()).collect();
        for id in going {
            self.let_work(node, &id);
        }
    }

    /// The thread stands still and agents go on (5, 6).
    pub(super) fn stop_thread(&mut self, node: usize, wait: u64) {
        if self.nodes[node].alive && !self.nodes[node].stopped() {
            self.count("stopped");
            self.nodes[node].paused = true;
            let life = self.nodes[node].life;
            self.later(wait, move |w| w.wake_up(node, life));
        }
    }

    /// All of the machine stands still (18).
    fn suspend(&mut self, node: usize, wait: u64) {
        if self.nodes[node].alive && !self.nodes[node].stopped() {
            self.count("suspended");
            self.nodes[node].asleep = true;
            let (wait, life) = (self.dice.pick(&[wait, 8 * HOUR_MS]), self.nodes[node].life);
            self.later(wait, move |w| w.wake_up(node, life));
        }
    }

    fn wake_up(&mut self, node: usize, life: u64) {
        if self.nodes[node].life != life || !self.nodes[node].alive {
            return;
        }
        self.nodes[node].paused = false;
        self.nodes[node].asleep = false;
        self.well_again(node);
        for event in std::mem::take(&mut self.nodes[node].unread) {
            self.later(0, event);
        }
        self.wake(node, 1);
    }

    /// Cut off, both ways, one way, or every ten seconds (14).
    fn cut(&mut self, node: usize, wait: u64) {
        if self.nodes[node].cut.is_some() {
            return;
        }
        let (cut, name) = match self.dice.below(4) {
            0 => (Cut::Both, "cut off"),
            1 => (Cut::Requests, "requests cut off"),
            2 => (Cut::Answers, "answers cut off"),
            _ => (Cut::Flapping(self.now), "line flaps"),
        };
        self.count(name);
        self.nodes[node].cut = Some(cut);
        self.later(wait, move |w| {
            w.nodes[node].cut = None;
            w.well_again(node);
        });
    }

    pub(super) fn hub_goes(&mut self, wait: u64) {
        let name = self.dice.pick(&["hub away", "hub away", "hub: lets nobody in", "hub: tables missing"]);
        self.hub_is(Mood::Away, wait, name);
    }

    fn hub_is(&mut self, mood: Mood, wait: u64, name: &'static str) {
        if self.hub.mood == Mood::Well {
            self.count(name);
            self.hub.mood = mood;
            self.later(wait, Self::hub_back);
        }
    }

    fn hub_back(&mut self) {
        self.hub.mood = Mood::Well;
        self.hub.since = self.now;
        self.trace.say(self.now, "hub", "is back");
    }

    /// A person releases the leader's row while the leader still considers itself the leader (16).
    fn force_the_seat(&mut self) {
        if let Some(leader) = self.hub.model.leader().expect("the model answers") {
            self.count("two supervisors");
            let resign = Op::Resign { node: leader.node, term: leader.term };
            self.hub.model.transact(self.time(), &[resign]).expect("a resignation is never refused");
            self.lease_was_forced();
        }
    }

    /// The hub becomes what it was at its last backup (12). Nodes that saw more refuse to work with
    /// it until they are restarted, which happens within ten minutes.
    fn set_back(&mut self) {
        if self.hub.mood != Mood::Well || !self.hub.restore() {
            return;
        }
        self.count("hub set back");
        self.forgive();
        self.hub_is(Mood::Away, 5_000, "hub away");
        for node in 0..self.nodes.len() {
            let wait = self.dice.between(10_000, 600_000);
            // A start of one that is alive kills it first.
            self.later(wait, move |w| w.start(node));
        }
    }

    /// The hub's clock is set (17).
    fn set_the_hubs_clock(&mut self) {
        self.count("hub's clock set");
        let hour = HOUR_MS as i64;
        let by = self.dice.pick(&[1_000, -1_000, hour, -hour]);
        self.hub.ahead += by;
        self.hub.odd_until = self.now + by.unsigned_abs() + 300_000;
    }

    /// A node's clock is set (17). A running node counts on; it sees the new time when it is
    /// started again.
    fn set_a_clock(&mut self, node: usize) {
        self.count("clock set");
        self.nodes[node].next_offset = self.dice.pick(&OFFSETS[1..]);
    }

    fn fill_the_disk(&mut self, node: usize, wait: u64) {
        if !self.nodes[node].full {
            self.count("disk full");
            self.nodes[node].full = true;
            self.later(wait, move |w| w.nodes[node].full = false);
        }
    }

    /// The record of a node about a task is torn or gone (20): it is not read, and the task is
    /// silent.
    fn lose_a_file(&mut self, node: usize) {
        let Some(key) = self.nodes[node].disk.held.keys().next().cloned() else { return };
        self.count("file lost");
        if let Some(claim) = self.nodes[node].disk.held.remove(&key) {
            // What was never reported and is on no disk can only be found among the pushed
            // branches.
            self.facts.forgiven.insert((claim.task.clone(), format!("{} {key}", self.nodes[node].id)));
        }
        // A file is torn by a power cut, and missed at the next start.
        self.kill_for(node, 1_000);
    }

    /// A person holds a machine: nothing starts there, and what is under way waits.
    fn freeze(&mut self, node: usize, wait: u64) {
        if self.nodes[node].frozen.is_none() {
            self.count("machine held");
            self.nodes[node].frozen = Some(self.now);
            self.later(wait, move |w| w.thaw(node));
        }
    }

    fn thaw(&mut self, node: usize) {
        let now = self.now;
        let n = &mut self.nodes[node];
        n.frozen = None;
        n.idle_since = now;
        let waits = |l: &mut LocalWork| l.waits.take().is_some() && l.over.is_none();
        let waiting = n.disk.loops.iter_mut().filter_map(|(id, l)| waits(l).then(|| id.clone()));
        let waiting: Vec<LoopId> = waiting.filter(|_| n.alive).collect();
        for id in waiting {
            self.let_work(node, &id);
        }
    }

    /// One machine does not reach the remote.
    fn take_the_remote(&mut self, node: usize, wait: u64) {
        if self.nodes[node].no_remote.is_none() {
            self.count("remote away for a machine");
            self.nodes[node].no_remote = Some(self.now);
            self.later(wait, move |w| w.nodes[node].no_remote = None);
        }
    }

    /// A machine is set back to an older copy of its disk (18, 20).
    fn roll_back_a_disk(&mut self, node: usize, wait: u64) {
        let copy = self.nodes[node].disk.clone();
        if self.nodes[node].alive && !copy.held.is_empty() {
            self.count("disk set back");
            self.later(wait.min(400_000), move |w| w.rolled_back(node, copy));
        }
    }

    fn rolled_back(&mut self, node: usize, copy: Disk) {
        let id = &self.nodes[node].id;
        let held = self.nodes[node].disk.held.values();
        let lost: Vec<_> = held.map(|claim| (claim.task.clone(), format!("{id} {}", claim.key))).collect();
        self.facts.forgiven.extend(lost);
        for ticket in copy.ledger.tickets(Tickets::Open).expect("the model answers") {
            self.will_answer(node, ticket.key);
        }
        self.nodes[node].disk = copy;
        self.kill_for(node, 2_000);
    }

    pub(super) fn heal(&mut self) {
        self.faults.healed = true;
        self.faults.chance.heal();
        self.faults.healed_at = self.now;
        self.people_go();
    }

    fn well_again(&mut self, node: usize) {
        let n = &mut self.nodes[node];
        if n.alive && !n.stopped() && n.cut.is_none() {
            n.healthy_since = self.now;
            // The recovery of a node that slept is the last repair.
            self.faults.healed_at = self.now;
        }
    }

    pub(super) fn named(&self, id: &NodeId) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == *id)
    }
}
