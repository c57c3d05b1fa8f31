//! A machine: its clock, its disk, its loops, and the node of [`everloop_core::mesh::node`] that
//! runs on it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use everloop_core::ids::{LoopId, NodeId, TaskId};
use everloop_core::mesh::node::{Claim, Claims, Hint, MeshNode, NodeInput, NodeSettings};
use everloop_core::mesh::offline::Replica;
use everloop_core::mesh::research::ReportedExperiment;
use everloop_core::mesh::rights::Rights;
use everloop_core::op::Op;
use everloop_core::time::Time;
use everloop_store::Model;

use super::host::Host;
use super::hub::Cut;
use super::world::{EPOCH, Event, World, ms};
use super::{Ill, Setup};
use crate::random::{Random, of_text};

const HOUR: i64 = 3_600_000;
/// What a clock that is wrong is ahead, in milliseconds; half of the small ones are right.
pub(super) const OFFSETS: [i64; 8] = [0, 0, 1_000, -1_000, HOUR, -HOUR, -EPOCH, 20 * 365 * 24 * HOUR];

/// A loop of the machine's own.
#[derive(Clone, Debug)]
pub(super) struct LocalWork {
    pub base: usize,
    pub check: String,
    pub turns: u64,
    /// It was stopped before its end.
    pub stopped: bool,
    /// The machine is held, so the loop waits since then, by the machine's clock.
    pub waits: Option<Time>,
    /// Whether it reached what it should, when it is over.
    pub over: Option<bool>,
    /// Since when, by the machine's clock.
    pub over_at: Time,
    pub commit: Option<usize>,
    /// The champion that an experiment begins from.
    pub champion: Option<String>,
    pub experiment: Option<Box<ReportedExperiment>>,
}

/// What is on a machine's disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub held: Claims,
    pub loops: BTreeMap<LoopId, LocalWork>,
    pub replica: Arc<Replica>,
    pub ledger: Model,
}

/// What a machine's last heartbeat carried.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastBeat {
    pub drains: bool,
    pub next: Option<Time>,
    pub holds: usize,
}

/// A simulated machine of the mesh.
pub(super) struct Node {
    pub id: NodeId,
    /// Thousandths of the real rate at which its clock runs.
    pub rate: u64,
    /// What its clock is ahead of a right one since it was started.
    pub offset: i64,
    /// What it is ahead from the next start on.
    pub next_offset: i64,
    pub slots: usize,
    /// What its login may write at the hub.
    pub rights: Rights,
    pub alive: bool,
    /// Its thread stands still; agents go on.
    pub paused: bool,
    /// All of it stands still.
    pub asleep: bool,
    /// It dies at the end of this round, and nothing that it does until then happens.
    pub dying: bool,
    pub cut: Option<Cut>,
    /// Nothing can be written to its disk.
    pub full: bool,
    /// A person wants it to take nothing; it learns of that with its next heartbeat.
    pub wished_away: bool,
    /// A person holds it since then: nothing starts there.
    pub frozen: Option<u64>,
    /// Its git does not reach the remote since then.
    pub no_remote: Option<u64>,
    pub healthy_since: u64,
    pub idle_since: u64,
    /// Since when it leaves all that is free to others, with nothing to do.
    pub lets_others_since: Option<u64>,
    /// Looks at which it was on trial in an attempt that is over.
    pub odd_trial: u32,
    pub life: u64,
    /// Which of its arranged rounds counts.
    pub turn: u64,
    /// Inputs that wait until it wakes up.
    pub unread: Vec<Event>,
    pub disk: Disk,
    pub beat: LastBeat,
    /// The hub's clock is so far ahead of its own, by the last heartbeat.
    pub ahead: i64,
    /// It is instructed to take nothing.
    pub draining: bool,
    /// The term under which it takes itself for the leader.
    pub term: Option<u64>,
    /// Tasks that other nodes took, as reported to this node since it last listed what is free.
    pub told: BTreeSet<TaskId>,
    /// How far the hub's journal was, and of which copy of the hub.
    pub seen: u64,
    pub copy: u64,
    /// The product's node, while there is power.
    pub core: Option<Box<MeshNode>>,
    /// What it sends again and again, made once.
    pub heartbeat: Rc<[Op; 1]>,
}

impl Node {
    pub fn new(id: &str, setup: &Setup, dice: &mut Random) -> Self {
        let (rate, offset) =
            if setup.drift { (dice.pick(&[500, 900, 1000, 1100, 2000]), dice.pick(&OFFSETS)) } else { (1000, 0) };
        Self::start(NodeId::new(id), setup.slots as usize, rate, offset)
    }

    fn start(id: NodeId, slots: usize, rate: u64, offset: i64) -> Self {
        Self {
            heartbeat: Rc::new([Op::Heartbeat { node: id.clone(), info: String::new() }]),
            id,
            rate,
            offset,
            next_offset: offset,
            slots,
            rights: Rights::Leader,
            alive: true,
            paused: false,
            asleep: false,
            dying: false,
            cut: None,
            full: false,
            wished_away: false,
            frozen: None,
            no_remote: None,
            healthy_since: 0,
            idle_since: 0,
            lets_others_since: None,
            odd_trial: 0,
            life: 0,
            turn: 0,
            unread: Vec::new(),
            disk: Disk::default(),
            beat: LastBeat::default(),
            ahead: 0,
            draining: false,
            term: None,
            told: BTreeSet::new(),
            seen: 0,
            copy: 0,
            core: None,
        }
    }

    /// All that was in memory goes.
    pub fn die(&mut self) {
        let fresh = Self::start(self.id.clone(), self.slots, self.rate, self.next_offset);
        let old = std::mem::replace(self, fresh);
        self.alive = false;
        self.life = old.life + 1;
        self.rights = old.rights;
        self.turn = old.turn;
        self.cut = old.cut;
        self.full = old.full;
        self.wished_away = old.wished_away;
        self.frozen = old.frozen;
        self.no_remote = old.no_remote;
        self.beat = old.beat;
        self.disk = old.disk;
    }

    /// The node as its disk makes it.
    fn boot(&self) -> Box<MeshNode> {
        let (node, here, slots) = (self.id.clone(), self.id.clone(), u32::try_from(self.slots).unwrap_or(u32::MAX));
        let settings = NodeSettings { node, here, slots, time_scale: 1 };
        Box::new(MeshNode::with(settings, self.disk.held.clone(), self.disk.replica.clone()))
    }

    /// Its thread does nothing.
    pub fn stopped(&self) -> bool {
        self.paused || self.asleep
    }

    /// It runs, and has a line to the hub that it works with.
    pub fn is_well(&self, copies: u64) -> bool {
        self.alive && !self.stopped() && self.cut.is_none() && self.copy == copies
    }

    /// Nothing is wrong with it, and it has nothing to do and nothing to report.
    pub fn is_quiet(&self) -> bool {
        let idle = self.disk.held.is_empty() && self.disk.loops.values().all(|l| l.over.is_some());
        idle && self.alive && !self.stopped() && self.cut.is_none()
    }
}

impl World {
    /// A machine's own clock.
    pub(super) fn clock(&self, n: usize) -> Time {
        let node = &self.nodes[n];
        let ran = if node.rate == 1000 { self.now } else { self.now * node.rate / 1000 };
        Time(EPOCH + node.offset + ran as i64)
    }

    /// The product's node takes an input in and does one round.
    pub(super) fn act(&mut self, n: usize, input: NodeInput) {
        self.tally.steps += 1;
        let mut node = self.nodes[n].core.take().unwrap_or_else(|| self.nodes[n].boot());
        let nap = node.on(input, &mut Host { world: self, n });
        self.nodes[n].core = Some(node);
        self.after_step(n);
        if self.nodes[n].dying {
            return self.kill(n);
        }
        let wait = (ms(nap) * 1000 / self.nodes[n].rate).max(1);
        self.wake(n, wait);
    }

    /// Something reaches a machine: in this life of it, and when it is awake again.
    pub(super) fn reach(
        &mut self,
        (n, life): (usize, u64),
        halts: fn(&Node) -> bool,
        event: impl FnOnce(&mut Self) + 'static,
    ) {
        let node = &mut self.nodes[n];
        if node.life != life || !node.alive {
            return;
        }
        if halts(node) {
            return node.unread.push(Box::new(move |w| w.reach((n, life), halts, event)));
        }
        event(self);
    }

    pub(super) fn hear(&mut self, n: usize, hint: Hint) {
        self.reach((n, self.nodes[n].life), Node::stopped, move |w| {
            if let Hint::Taken(task) = &hint {
                w.nodes[n].told.insert(task.clone());
            }
            w.act(n, NodeInput::Hint(hint));
        });
    }

    pub(super) fn leave(&mut self, n: usize) {
        let mut node = self.nodes[n].core.take().unwrap_or_else(|| self.nodes[n].boot());
        node.leave(&mut Host { world: self, n });
    }

    /// The loop of a task is made.
    pub(super) fn begun(&mut self, n: usize, claim: &Claim, check: String, most: u64) {
        self.tally.begun += 1;
        let (base, turns) = (self.git.target, 1 + of_text(self.seed, &claim.key) % most);
        if !self.nodes[n].disk.loops.contains_key(&claim.local) {
            self.attempt(n, claim, turns);
            let work = LocalWork {
                base,
                check,
                turns,
                stopped: false,
                waits: None,
                over: None,
                over_at: Time::default(),
                commit: None,
                champion: None,
                experiment: None,
            };
            self.nodes[n].disk.loops.insert(claim.local.clone(), work);
        }
        self.let_work(n, &claim.local);
    }

    /// The agents of a loop begin, or go on.
    pub(super) fn let_work(&mut self, n: usize, id: &LoopId) {
        let most = if self.setup.ill == Ill::All { 1_000 } else { ms(self.setup.work) };
        let (wait, life, id) = (self.dice.between(1_000, most), self.nodes[n].life, id.clone());
        self.later(wait, move |w| w.reach((n, life), |node| node.asleep, move |w| w.local_over(n, &id)));
    }

    /// The agents of a loop are done: mostly well, sometimes not. On a machine that is held the
    /// loop waits instead.
    fn local_over(&mut self, n: usize, id: &LoopId) {
        let (luck, now) = (of_text(self.seed, id.as_str()) % 10, self.clock(n));
        let held = self.nodes[n].frozen.is_some();
        let Some(local) = self.nodes[n].disk.loops.get_mut(id).filter(|l| l.over.is_none()) else { return };
        if held {
            local.waits.get_or_insert(now);
            return;
        }
        let ill = match self.setup.ill {
            Ill::Nobody => false,
            Ill::Machine => n == 0,
            Ill::Check => local.check == "c0",
            Ill::All => true,
        };
        let reached = luck > 1 && !ill;
        if local.champion.is_some() {
            return self.experimented(n, id, reached);
        }
        local.over = Some(reached);
        local.over_at = now;
        local.waits = None;
        if reached {
            let (base, check) = (local.base, local.check.clone());
            let mut files = self.git.files(base).clone();
            files.insert(check);
            local.commit = Some(self.git.commit(files));
        }
    }
}
