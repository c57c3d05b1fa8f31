//! Draws operations from a small world, so that conflicts, lost fences and expiries are common.
//! Mostly valid ones, deliberately wrong every few times.

use std::time::Duration;

use everloop_core::event::Event;
use everloop_core::guard::{GuardState, Scope, Spend};
use everloop_core::ids::{Fence, LoopId, NodeId, TaskId, TurnId};
use everloop_core::jitter::mix;
use everloop_core::op::streams::{DeliverRequest, NewStreamEntry, StreamOp};
use everloop_core::op::{Amendment, NewTask, Op, TaskEnd, Trust};
use everloop_core::time::Time;
use everloop_store::{Ledger, Recipients, StateName, TaskFilter, TaskOwner};

/// A stream of numbers that depends on its seed only.
pub struct Dice {
    seed: u64,
    rolled: u64,
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self { seed, rolled: 0 }
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.rolled += 1;
        mix(self.seed, self.rolled) % sides
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.roll(n) == 0
    }
}

/// Tasks that are in play at a time, and operations after which the window moves on by one.
const TASKS_IN_PLAY: u64 = 10;
const OPS_PER_TASK: u64 = 40;

/// Draws operations; reads `ledger` so that most of them are valid.
pub struct Drawer<'a> {
    pub dice: &'a mut Dice,
    pub ledger: &'a dyn Ledger,
    /// Operations drawn so far in the story.
    pub drawn: u64,
    pub now: Time,
}

impl Drawer<'_> {
    pub fn op(&mut self) -> Op {
        match self.dice.roll(42) {
            0..=4 => Op::Enqueue(self.new_task()),
            5..=7 => {
                Op::Claim { node: self.node(), n: self.dice.roll(4) as u32, owner: self.owner(), lease: self.lease() }
            }
            8..=10 => self.take(),
            11..=17 => self.held(),
            18..=19 => self.amend(),
            20 => Op::Heartbeat { node: self.node(), info: self.text("info") },
            21 => Op::Elect { node: self.node(), lease: self.lease() },
            33 => {
                let (node, term) = self.leader_term();
                Op::Lead { node, term }
            }
            34 => {
                let (node, term) = self.leader_term();
                Op::Resign { node, term }
            }
            22..=23 => self.save_guard(),
            24..=25 => self.save_loop(),
            31..=32 => self.save_doc(),
            26..=27 => {
                Op::Signal { to: self.recipient(), by: self.node().to_string(), body: self.text("{\"say\":\"ü\"}") }
            }
            28 => self.consume(),
            29 => Op::OpenTicket { key: self.key(), owner: self.owner(), text: self.text("look") },
            36..=41 => Op::Stream(self.stream()),
            30 => Op::CloseTicket { key: self.key(), answer: self.text("done") },
            _ => self.append(),
        }
    }

    /// Mostly the present leader; sometimes another node, or a term that is over.
    fn leader_term(&mut self) -> (NodeId, u64) {
        let leader = self.ledger.leader().unwrap();
        let term = leader.as_ref().map_or(0, |leader| leader.term);
        match leader {
            Some(leader) if !self.dice.one_in(4) => (leader.node, term),
            _ => (self.node(), term.saturating_sub(u64::from(self.dice.one_in(2)))),
        }
    }

    fn new_task(&mut self) -> NewTask {
        let newest = self.drawn / OPS_PER_TASK;
        let count = if self.dice.one_in(3) { 1 + self.dice.roll(2) } else { 0 };
        let mut deps = Vec::new();
        for _ in 0..count {
            // Mostly a task in play or an older one; now and then itself or an unknown one.
            deps.push(match self.dice.roll(25) {
                0 => TaskId::new("nowhere"),
                1 => task_id(newest),
                _ => task_id(newest.saturating_sub(1 + self.dice.roll(TASKS_IN_PLAY))),
            });
        }
        let id = if self.dice.one_in(2) { task_id(newest) } else { self.task() };
        NewTask {
            id,
            owner: self.owner(),
            kind: "batch".to_owned(),
            title: self.text("title"),
            prompt: self.text("prompt\n\"quoted\" 'text' \u{0} ü"),
            priority: self.dice.roll(3) as i32 - 1,
            deps,
            author: self.node().to_string(),
            trust: if self.dice.one_in(2) { Trust::Agent } else { Trust::Operator },
            ready_at: if self.dice.one_in(4) { self.now + self.lease() } else { Time(0) },
        }
    }

    fn take(&mut self) -> Op {
        let task = self.task();
        let fence = match self.fence(&task) {
            fence if self.dice.one_in(8) => fence,
            fence => fence.next(),
        };
        Op::Take { task, fence, node: self.node(), lease: self.lease() }
    }

    fn held(&mut self) -> Op {
        let task = if self.dice.one_in(4) { self.task() } else { self.leased_task() };
        let fence = match self.fence(&task) {
            _ if self.dice.one_in(8) => Fence(self.dice.roll(6)),
            fence => fence,
        };
        match self.dice.roll(9) {
            0..=1 => Op::Renew { task, fence, lease: self.lease() },
            2..=4 => {
                let state = if self.dice.one_in(4) { TaskEnd::Dead } else { TaskEnd::Done };
                Op::Finish { task, fence, state, result: self.text("result") }
            }
            5..=7 => {
                let ready_at = self.now + self.lease();
                Op::Release { task, fence, ready_at, failed: self.dice.one_in(2) }
            }
            _ => Op::Shelve { task, fence, result: self.text("late") },
        }
    }

    fn amend(&mut self) -> Op {
        let change = match self.dice.roll(3) {
            0 => Amendment::Block,
            1 => Amendment::Retry,
            _ => Amendment::Cancel,
        };
        Op::Amend { task: self.task(), change }
    }

    fn save_guard(&mut self) -> Op {
        let scope = match self.dice.roll(4) {
            0 => Scope::All,
            1 => Scope::Node(self.node()),
            2 => Scope::Account("main".to_owned()),
            _ => Scope::Loop(LoopId::new("l1")),
        };
        let read = self.ledger.guard(&scope).expect("the yardstick can always be read");
        let mut state = GuardState { failures: self.dice.roll(9) as u32, ..read.state };
        state.last_start = Some(self.now);
        state.starts.add(self.now);
        state.reserved.clear();
        state.reserved.insert(
            TurnId::of(&TaskId::new("t"), Fence(1)),
            Spend { calls: 1, tokens: self.dice.roll(1000), microusd: 3 },
        );
        Op::SaveGuard { scope, version: self.version(read.version), state: Box::new(state) }
    }

    fn save_loop(&mut self) -> Op {
        let id = LoopId::new(format!("l{}", self.dice.roll(3)));
        let read = self.ledger.get_loop(&id).expect("the yardstick can always be read").map_or(0, |row| row.version);
        Op::SaveLoop { id, version: self.version(read), phase: self.text("ready"), state: self.text("{}") }
    }

    fn save_doc(&mut self) -> Op {
        let (kind, key) = (format!("k{}", self.dice.roll(2)), format!("d{}", self.dice.roll(3)));
        let read = self.ledger.doc(&kind, &key).expect("the yardstick can always be read").map_or(0, |row| row.version);
        Op::SaveDoc { kind, key, version: self.version(read), body: self.text("{\"ü\":1}") }
    }

    /// The version that was read, or now and then an outdated one.
    fn version(&mut self, read: u64) -> u64 {
        if self.dice.one_in(6) { self.dice.roll(read + 2) } else { read }
    }

    fn consume(&mut self) -> Op {
        let messages = self.ledger.messages(Recipients::All, 3).expect("the yardstick can always be read");
        let mut ids: Vec<u64> = messages.iter().map(|m| m.id).collect();
        if self.dice.one_in(6) {
            ids.push(1 + self.dice.roll(50));
        }
        Op::Consume { ids }
    }

    fn append(&mut self) -> Op {
        let mut events = Vec::new();
        for _ in 0..self.dice.roll(4) {
            events.push(match self.dice.roll(3) {
                0 => Event::Note { text: self.text("line\n\u{0}ü") },
                1 => Event::Paused { by: self.node().to_string(), reason: self.text("why"), until: None },
                _ => Event::Cooldown { scope: Scope::All, until: self.now + self.lease(), level: 2 },
            });
        }
        Op::Append { owner: self.owner(), events }
    }

    /// Streams are kept short, so that groups fall behind what is dropped.
    fn stream(&mut self) -> StreamOp {
        let (stream, group) = (format!("s{}", self.dice.roll(3)), format!("g{}", self.dice.roll(2)));
        match self.dice.roll(8) {
            0..=3 => StreamOp::Add(NewStreamEntry {
                source: self.node().to_string(),
                key: self.dice.one_in(2).then(|| format!("k{}", self.dice.roll(30))),
                fields: vec![("status".to_owned(), self.text("\u{0} ü")), (String::new(), "\u{1}".to_owned())],
                keep: self.dice.roll(20) as u32,
                stream,
            }),
            4..=5 => StreamOp::Deliver(DeliverRequest {
                consumer: self.node().to_string(),
                n: self.dice.roll(5) as u32,
                idle: self.lease(),
                stream,
                group,
            }),
            6 => {
                let rows = self.ledger.streams().expect("the yardstick can always be read");
                let known = rows.iter().find(|row| row.name == stream).and_then(|row| row.groups.get(&group));
                let pending = known.map_or(&[][..], |state| &state.pending[..]);
                let mut ids: Vec<u64> = pending.iter().map(|pending| pending.id).take(3).collect();
                ids.push(self.dice.roll(50));
                StreamOp::Ack { stream, group, ids }
            }
            _ => {
                let rows = self.ledger.streams().expect("the yardstick can always be read");
                let last = rows.iter().find(|row| row.name == stream).map_or(0, |row| row.ends.last);
                StreamOp::Trim { stream, up_to: (last + 2).saturating_sub(self.dice.roll(9)) }
            }
        }
    }

    fn task(&mut self) -> TaskId {
        if self.dice.one_in(60) {
            return TaskId::new("nowhere");
        }
        task_id((self.drawn / OPS_PER_TASK).saturating_sub(self.dice.roll(TASKS_IN_PLAY)))
    }

    /// A leased task, if there is one.
    fn leased_task(&mut self) -> TaskId {
        let filter = TaskFilter { owner: TaskOwner::Any, states: vec![StateName::Leased], limit: 5 };
        let rows = self.ledger.tasks(&filter).expect("the yardstick can always be read");
        match rows.len() as u64 {
            0 => self.task(),
            n => rows[self.dice.roll(n) as usize].task.id.clone(),
        }
    }

    fn fence(&self, task: &TaskId) -> Fence {
        self.ledger.task(task).expect("the yardstick can always be read").map_or(Fence(0), |row| row.fence)
    }

    fn owner(&mut self) -> Option<LoopId> {
        [None, Some("l0"), Some("l1")][self.dice.roll(3) as usize].map(LoopId::new)
    }

    fn node(&mut self) -> NodeId {
        NodeId::new(format!("n{}", self.dice.roll(3)))
    }

    fn recipient(&mut self) -> String {
        ["*", "l0", "l1"][self.dice.roll(3) as usize].to_owned()
    }

    fn key(&mut self) -> String {
        format!("cause-{}", self.dice.roll(5))
    }

    fn text(&mut self, about: &str) -> String {
        format!("{about} {}", self.dice.roll(3))
    }

    fn lease(&mut self) -> Duration {
        Duration::from_millis(self.dice.roll(20_000))
    }
}

fn task_id(number: u64) -> TaskId {
    TaskId::new(format!("t{number}"))
}
