//! The thread of a node: signs of life, the office of supervisor, and what errands bring back.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use everloop_core::ids::{Fence, LoopId, NodeId, TaskId};
use everloop_core::jitter;
use everloop_core::mesh::alone::{Line, Replica};
use everloop_core::mesh::seat::{self, Seat};
use everloop_core::mesh::work::{Held, Stage};
use everloop_core::op::{Op, Reply};
use everloop_core::planted::{self, Bug};
use everloop_core::time::Time;

use super::Setup;
use super::git::Commit;
use super::line::Cut;
use super::world::{EPOCH, Event, World, ms};
use crate::sim::random::Random;

pub(super) const BEAT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// When nothing is free: the next sign of life tells, or a hint.
pub(super) const FAR: Duration = Duration::from_secs(3600);
/// For the mistake of a node that looks only when it is told to.
const TOO_LONG: Duration = Duration::from_secs(600);

/// What nodes tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// The office of supervisor is free.
    Seat,
    /// There is something to take, or to merge.
    Work,
}

/// Something that a node sent out.
#[derive(Clone, Debug)]
pub(super) enum Errand {
    /// Make the loop of a held task, for this check and at most so many turns.
    Begin(Rc<File>, String, u64),
    /// Push what a loop made.
    Push(Rc<File>),
    /// Ask the checks of the loop with this number about this commit of the branch.
    Judge(u64, Commit),
    /// Merge a task's work, seen when the branch was here.
    Merge(Merge),
}

/// A merge that is under way.
#[derive(Clone, Debug)]
pub(super) struct Merge {
    /// For the loop with this number.
    pub number: u64,
    pub task: TaskId,
    pub fence: Fence,
    pub node: NodeId,
    pub check: String,
    pub work: Commit,
    pub target: Commit,
    /// Whether the task's trailer stood on the branch when it was looked for.
    pub landed: bool,
}

/// What a node wrote down about a task, with the names that follow from it.
#[derive(Debug)]
pub(super) struct File {
    pub held: Held,
    pub key: String,
    pub local: LoopId,
}

impl File {
    pub fn new(held: Held) -> Rc<Self> {
        let (key, local) = (held.key(), held.local());
        Rc::new(Self { held, key, local })
    }
}

/// A loop of the node's own.
#[derive(Clone, Debug)]
pub(super) struct Local1 {
    pub base: Commit,
    pub check: String,
    /// Turns that it takes.
    pub turns: u64,
    /// Somebody wanted it to end.
    pub stopped: bool,
    /// Whether it reached what it should, when it is over.
    pub over: Option<bool>,
    pub commit: Option<Commit>,
}

/// What is on a node's disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub held: BTreeMap<String, Rc<File>>,
    pub loops: BTreeMap<LoopId, Local1>,
    /// What the hub said last.
    pub replica: Rc<Replica>,
}

/// A machine.
#[derive(Debug)]
pub(super) struct Node {
    pub id: NodeId,
    /// Thousandths of the real rate at which its clock runs.
    pub rate: u64,
    /// What its clock is ahead of a right one since it was started.
    pub offset: i64,
    /// What it is ahead from the next start on.
    pub next_offset: i64,
    pub slots: usize,
    pub alive: bool,
    /// Its thread stands still; agents go on.
    pub paused: bool,
    /// All of it stands still.
    pub asleep: bool,
    /// It dies at the end of this step, and nothing that it does until then happens.
    pub dying: bool,
    pub cut: Option<Cut>,
    /// Nothing can be written to its disk.
    pub full: bool,
    /// A person wants it to take nothing; it learns of that with its next sign of life.
    pub wished_away: bool,
    pub healthy_since: u64,
    pub idle_since: u64,
    /// Since when it leaves all that is free to others, with nothing to do.
    pub lets_others_since: Option<u64>,
    /// Looks at which it was on trial in an attempt that is over.
    pub odd_trial: u32,
    pub life: u64,
    /// Which of its arranged steps counts.
    pub turn: u64,
    /// News that wait until it wakes up.
    pub unread: Vec<Event>,
    pub disk: Disk,
    // In its memory.
    pub seat: Seat,
    /// The hub's clock is so far ahead of its own.
    pub ahead: i64,
    beat_at: Time,
    /// Free tasks are not listed again before this, unless there is news.
    pub list_at: Time,
    pub ask_at: Time,
    pub renewed: BTreeMap<String, Time>,
    pub action_runs: BTreeSet<String>,
    pub judging: bool,
    pub draining: bool,
    pub line: Line,
    pub remembered_at: Time,
    /// When the hub was away, no task is taken before this.
    pub claim_at: Time,
    pub call_at: Time,
    pub reconcile_at: Time,
    /// How far the hub's journal was, and of which copy of the hub.
    pub seen: u64,
    pub copy: u64,
    // What it says again and again, made once.
    beat: Rc<[Op; 1]>,
    elect: Rc<[Op; 1]>,
}

impl Node {
    pub fn new(id: &str, setup: &Setup, dice: &mut Random) -> Self {
        let hour = 3_600_000;
        let (rate, offset) = if setup.drift {
            let offsets = [0, 0, 1_000, -1_000, hour, -hour, -EPOCH, 20 * 365 * 24 * hour];
            (dice.pick(&[500, 900, 1000, 1100, 2000]), dice.pick(&offsets))
        } else {
            (1000, 0)
        };
        Self::start(NodeId::new(id), setup.slots as usize, rate, offset)
    }

    fn start(id: NodeId, slots: usize, rate: u64, offset: i64) -> Self {
        Self {
            beat: Rc::new([Op::Heartbeat { node: id.clone(), info: String::new() }]),
            elect: Rc::new([Op::Elect { node: id.clone(), lease: seat::LEASE }]),
            id,
            rate,
            offset,
            next_offset: offset,
            slots,
            alive: true,
            paused: false,
            asleep: false,
            dying: false,
            cut: None,
            full: false,
            wished_away: false,
            healthy_since: 0,
            idle_since: 0,
            lets_others_since: None,
            odd_trial: 0,
            life: 0,
            turn: 0,
            unread: Vec::new(),
            disk: Disk::default(),
            seat: Seat::default(),
            ahead: 0,
            beat_at: Time(i64::MIN),
            list_at: Time(i64::MIN),
            ask_at: Time(i64::MIN),
            renewed: BTreeMap::new(),
            action_runs: BTreeSet::new(),
            judging: false,
            draining: false,
            line: Line::default(),
            remembered_at: Time(i64::MIN),
            claim_at: Time(i64::MIN),
            call_at: Time::default(),
            reconcile_at: Time(i64::MIN),
            seen: 0,
            copy: 0,
        }
    }

    /// All that was in memory goes.
    pub fn die(&mut self) {
        let fresh = Self::start(self.id.clone(), self.slots, self.rate, self.next_offset);
        let old = std::mem::replace(self, fresh);
        self.alive = false;
        self.life = old.life + 1;
        self.turn = old.turn;
        self.cut = old.cut;
        self.full = old.full;
        self.wished_away = old.wished_away;
        self.disk = old.disk;
    }

    /// Its thread does nothing.
    pub fn stopped(&self) -> bool {
        self.paused || self.asleep
    }

    pub fn room(&self) -> usize {
        let busy = self.disk.held.values().filter(|file| file.held.stage == Stage::Working).count();
        self.slots.saturating_sub(busy)
    }

    /// Nothing is wrong with it, and it has nothing to do and nothing to tell.
    pub fn is_quiet(&self) -> bool {
        let idle = self.disk.held.is_empty() && self.disk.loops.values().all(|l| l.over.is_some());
        idle && self.alive && !self.stopped() && self.cut.is_none()
    }
}

impl World {
    /// A node's own clock.
    pub(super) fn clock(&self, n: usize) -> Time {
        let node = &self.nodes[n];
        let ran = if node.rate == 1000 { self.now } else { self.now * node.rate / 1000 };
        Time(EPOCH + node.offset + ran as i64)
    }

    /// What the hub's clock says, as far as a node knows.
    pub(super) fn hub_now(&self, n: usize) -> Time {
        Time(self.clock(n).0 + self.nodes[n].ahead)
    }

    pub(super) fn step(&mut self, n: usize) {
        self.steps += 1;
        let now = self.clock(n);
        // What a hub that was away is asked first is to take a sign of life, and to compare clocks.
        let asks_again = self.nodes[n].line.is_broken() && now >= self.nodes[n].call_at;
        if asks_again || now >= self.nodes[n].beat_at {
            self.beat(n);
        }
        if now >= self.nodes[n].ask_at {
            self.ask(n);
        }
        self.tend(n);
        if let Some(term) = self.nodes[n].seat.term(self.clock(n)) {
            self.lead(n, term);
            self.reconcile(n, term);
        }
        if self.nodes[n].line.is_away(self.clock(n)) {
            self.begin_alone(n);
        } else {
            self.take_more(n);
        }
        self.after_step(n);
        if self.nodes[n].dying {
            return self.kill(n);
        }
        let now = self.clock(n);
        let node = &self.nodes[n];
        let timers = node.beat_at.min(node.ask_at).since(now);
        let idle = node.disk.held.is_empty() && !node.line.is_broken() && node.seat.term(now).is_none();
        let nap = if idle { timers } else { timers.min(POLL_INTERVAL) };
        let nap = if idle && planted::is(Bug::TrustsHints) { TOO_LONG } else { nap };
        let wait = (ms(nap) * 1000 / node.rate).max(1);
        self.wake(n, wait);
    }

    /// What a node does after any news.
    pub(super) fn finish_step(&mut self, n: usize) {
        if self.nodes[n].dying {
            self.kill(n);
        } else {
            self.step(n);
        }
    }

    fn beat(&mut self, n: usize) {
        let seed = self.dice.draw();
        let now = self.clock(n);
        self.nodes[n].beat_at = now + jitter::between(BEAT.mul_f64(0.9), BEAT.mul_f64(1.1), seed);
        let beat = self.nodes[n].beat.clone();
        if !matches!(self.transact(n, None, &*beat), Some(Ok(_))) {
            return;
        }
        self.hear_back(n, now);
    }

    /// What the hub says to a sign of life that was sent at `sent`; on the real line it comes with the answer.
    fn hear_back(&mut self, n: usize, sent: Time) {
        let (at, seed) = (self.time(), self.dice.draw());
        let leader = self.hub.model.peek_leader().filter(|leader| leader.node != self.nodes[n].id);
        let led_until = leader.map_or(at, |leader| leader.until);
        let waiting = self.hub.model.has_queued() || !self.nodes[n].disk.replica.free.is_empty();
        let now = self.clock(n);
        let node = &mut self.nodes[n];
        if node.draining && !node.wished_away {
            node.idle_since = self.now;
        }
        node.draining = node.wished_away;
        node.ahead = at.0 - sent.0;
        if waiting {
            node.list_at = node.list_at.min(now);
        }
        if node.seat.granted().is_none() {
            node.ask_at = Seat::ask_after(now, led_until.since(at), seed);
        }
    }

    fn ask(&mut self, n: usize) {
        let asked = self.clock(n);
        self.nodes[n].ask_at = Seat::ask_next(asked, self.dice.draw());
        if self.nodes[n].draining {
            return;
        }
        let elect = self.nodes[n].elect.clone();
        let Some(Ok(replies)) = self.transact(n, None, &*elect) else { return };
        let term = replies.into_iter().find_map(|r| if let Reply::Elected(term) = r { term } else { None });
        let asked = if planted::is(Bug::LeaseFromTheReply) { asked + Duration::from_secs(7) } else { asked };
        self.nodes[n].seat.answered(asked, term);
    }

    pub(super) fn hear(&mut self, n: usize, hint: Hint) {
        if !self.nodes[n].alive {
            return;
        }
        if self.nodes[n].stopped() {
            return self.nodes[n].unread.push(Event::Hint(n, hint));
        }
        match hint {
            Hint::Seat => {
                let seed = self.dice.draw();
                self.nodes[n].ask_at = Seat::ask_after(self.clock(n), Duration::ZERO, seed);
            }
            Hint::Work => self.nodes[n].list_at = Time(i64::MIN),
        }
        self.step(n);
    }

    /// An errand is over.
    pub(super) fn over(&mut self, n: usize, action_run: Errand) {
        self.nodes[n].list_at = Time(i64::MIN);
        match action_run {
            Errand::Begin(file, check, most) => self.begun(n, &file, check, most),
            Errand::Push(file) => self.pushed(n, &file),
            Errand::Judge(number, commit) => {
                self.nodes[n].judging = false;
                let board = self.board(commit);
                self.change(n, number, |state| state.judge(commit.to_string(), board));
            }
            Errand::Merge(merge) => {
                self.nodes[n].judging = false;
                self.merge(n, &merge);
            }
        }
    }

    /// The node is told to go: the office is given back at once, and so are tasks.
    pub(super) fn leave(&mut self, n: usize) {
        if let Some(term) = self.nodes[n].seat.granted() {
            let node = self.nodes[n].id.clone();
            self.transact(n, None, &[Op::Resign { node, term }]);
            self.hint(n, Hint::Seat);
        }
        self.give_all_back(n);
        self.hint(n, Hint::Work);
    }
}
