//! The same long random story for several ledgers: every reply and every read must be the same, and
//! the invariants hold. A new kind of ledger joins by being put into the slice.

use std::collections::BTreeMap;
use std::time::Instant;

use everloop_core::guard::Scope;
use everloop_core::ids::{Fence, LoopId, TaskId};
use everloop_core::journal::JournalRecord;
use everloop_core::op::{Op, Refusal, Reply, TaskEnd, TaskState};
use everloop_core::time::Time;
use everloop_store::replay::replay;
use everloop_store::{Error, Ledger, Model, OpenMode, Recipients, Sqlite, StateName, TaskFilter, TaskOwner, Tickets};
use everloop_testkit::budget::Budget;

use crate::draw::{Dice, Drawer};
use crate::postgres::hub;

/// Batches between two comparisons of everything that can be read.
const BATCHES_PER_COMPARISON: u64 = 400;

/// A story under way. The first ledger is the reference.
pub struct Story {
    dice: Dice,
    now: Time,
    drawn: u64,
    batches: u64,
    /// How often each operation was accepted, each refusal given, each kind of reply seen.
    pub seen: BTreeMap<&'static str, u64>,
    fences: BTreeMap<TaskId, Fence>,
    done: BTreeMap<TaskId, Fence>,
}

impl Story {
    pub fn new(seed: u64) -> Self {
        Self {
            dice: Dice::new(seed),
            now: Time(1_700_000_000_000),
            drawn: 0,
            batches: 0,
            seen: BTreeMap::new(),
            fences: BTreeMap::new(),
            done: BTreeMap::new(),
        }
    }

    /// Runs the next `n` operations on all ledgers.
    pub fn tell(&mut self, ledgers: &mut [Box<dyn Ledger>], n: u64) {
        let end = self.drawn + n;
        while self.drawn < end {
            self.pass_time();
            let count = 1 + self.dice.roll(4);
            let mut ops = Vec::new();
            for _ in 0..count {
                let ledger = ledgers[0].as_ref();
                ops.push(Drawer { dice: &mut self.dice, ledger, drawn: self.drawn, now: self.now }.op());
                self.drawn += 1;
            }
            self.batch(ledgers, &ops);
            self.batches += 1;
            if self.batches.is_multiple_of(BATCHES_PER_COMPARISON) {
                compare(ledgers, 30);
            }
        }
        compare(ledgers, usize::MAX);
        compare_chain(ledgers);
    }

    fn pass_time(&mut self) {
        self.now.0 += match self.dice.roll(40) {
            0 => 60_000,
            1 => -500, // clocks are set back
            _ => self.dice.roll(1500) as i64,
        };
    }

    fn batch(&mut self, ledgers: &mut [Box<dyn Ledger>], ops: &[Op]) {
        let mut answers = ledgers.iter_mut().map(|ledger| answer(ledger.transact(self.now, ops)));
        let first = answers.next().expect("a story needs a ledger");
        for (i, other) in answers.enumerate() {
            assert_eq!(first, other, "ledger {} at {} to {ops:#?}", i + 1, self.now.0);
        }
        match &first {
            Ok(replies) => {
                for (op, reply) in ops.iter().zip(replies) {
                    self.count(op_name(op));
                    self.count_reply(reply);
                    self.watch_finish(op);
                }
            }
            Err(refusal) => self.count(refusal_name(refusal)),
        }
        self.watch_tasks(ledgers[0].as_ref(), ops);
    }

    /// At most one accepted `Finish(Done)` per task, ever.
    fn watch_finish(&mut self, op: &Op) {
        if let Op::Finish { task, fence, state: TaskEnd::Done, .. } = op {
            let before = self.done.insert(task.clone(), *fence);
            assert_eq!(before, None, "task `{task}` was finished twice");
        }
    }

    /// Fences never fall, not even through a refused batch; a finished task stays finished under
    /// its fence.
    fn watch_tasks(&mut self, ledger: &dyn Ledger, ops: &[Op]) {
        for id in ops.iter().filter_map(task_of) {
            let Some(row) = ledger.task(id).unwrap() else { continue };
            let before = self.fences.insert(id.clone(), row.fence).unwrap_or_default();
            assert!(row.fence >= before, "the fence of `{id}` fell from {before} to {}", row.fence);
            if let Some(fence) = self.done.get(id) {
                assert_eq!((&row.state, row.fence), (&TaskState::Done, *fence), "`{id}` was done");
            }
        }
    }

    fn count_reply(&mut self, reply: &Reply) {
        self.count(match reply {
            Reply::Made(false) => "made nothing",
            Reply::Claimed(rows) if rows.is_empty() => "claimed nothing",
            Reply::Claimed(_) => "claimed",
            Reply::Elected(None) => "not elected",
            Reply::Elected(Some(_)) => "elected",
            Reply::Delivered(delivered) if delivered.missed > 0 => "missed entries",
            Reply::Delivered(delivered) if delivered.entries.is_empty() => "delivered nothing",
            Reply::Delivered(_) => "delivered",
            Reply::Added(_) => "added",
            Reply::Trimmed(0) => "trimmed nothing",
            Reply::Trimmed(_) => "trimmed",
            Reply::Ok | Reply::Made(true) | Reply::Appended(_) | Reply::Saved(_) | Reply::Sent(_) => "plain reply",
        });
    }

    fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }
}

/// A refusal is an answer like any other; every other error ends the test.
fn answer(result: Result<Vec<Reply>, Error>) -> Result<Vec<Reply>, Refusal> {
    match result {
        Ok(replies) => Ok(replies),
        Err(Error::Refused(refusal)) => Err(refusal),
        Err(other) => panic!("{other:?}"),
    }
}

/// Compares everything that can be read from the ledgers: the newest `depth` rows of what grows.
pub fn compare(ledgers: &[Box<dyn Ledger>], depth: usize) {
    let (first, others) = ledgers.split_first().expect("a story needs a ledger");
    one_state_each(first.as_ref());
    for other in others {
        compare_small(first.as_ref(), other.as_ref());
        compare_tasks(first.as_ref(), other.as_ref(), depth);
        compare_journal(first.as_ref(), other.as_ref(), depth);
    }
}

fn compare_small(a: &dyn Ledger, b: &dyn Ledger) {
    assert_eq!(a.loops().unwrap(), b.loops().unwrap());
    for id in ["l0", "l1", "nowhere"].map(LoopId::new) {
        assert_eq!(a.get_loop(&id).unwrap(), b.get_loop(&id).unwrap());
    }
    for kind in ["k0", "k1", "session", "nothing"] {
        assert_eq!(a.docs(kind).unwrap(), b.docs(kind).unwrap());
        assert_eq!(a.doc(kind, "d1").unwrap(), b.doc(kind, "d1").unwrap());
    }
    assert_eq!(a.nodes().unwrap(), b.nodes().unwrap());
    assert_eq!(a.leader().unwrap(), b.leader().unwrap());
    assert_eq!(a.guards().unwrap(), b.guards().unwrap());
    for scope in [Scope::All, Scope::Account("nobody".to_owned())] {
        assert_eq!(a.guard(&scope).unwrap(), b.guard(&scope).unwrap());
    }
    let names = ["l0".to_owned(), "*".to_owned(), "l0".to_owned()];
    for to in [Recipients::All, Recipients::These(&names), Recipients::These(&[])] {
        for limit in [0, 2, usize::MAX] {
            assert_eq!(a.messages(to, limit).unwrap(), b.messages(to, limit).unwrap());
        }
    }
    let streams = a.streams().unwrap();
    assert_eq!(streams, b.streams().unwrap());
    for name in streams.iter().map(|row| row.name.as_str()).chain(["nowhere"]) {
        let entries = a.entries(name, 0, usize::MAX).unwrap();
        assert_eq!(entries, b.entries(name, 0, usize::MAX).unwrap());
        assert_eq!(a.entries(name, 3, 2).unwrap(), b.entries(name, 3, 2).unwrap());
        for entry in entries.iter().filter(|entry| entry.key.is_some()) {
            let key = entry.key.as_deref().unwrap_or_default();
            for ledger in [a, b] {
                assert_eq!(ledger.entry_with_key(name, &entry.source, key).unwrap().as_ref(), Some(entry));
            }
        }
    }
    for which in [Tickets::Open, Tickets::Newest(0), Tickets::Newest(5), Tickets::Newest(usize::MAX)] {
        assert_eq!(a.tickets(which).unwrap(), b.tickets(which).unwrap());
    }
}

fn compare_tasks(a: &dyn Ledger, b: &dyn Ledger, limit: usize) {
    for owner in [TaskOwner::Any, TaskOwner::Nobody, TaskOwner::Loop(LoopId::new("l1"))] {
        for states in [vec![], vec![StateName::Queued], vec![StateName::Done, StateName::Leased], StateName::ALL.into()]
        {
            let filter = TaskFilter { owner: owner.clone(), states, limit };
            assert_eq!(a.tasks(&filter).unwrap(), b.tasks(&filter).unwrap(), "{filter:?}");
        }
    }
    let filter = TaskFilter { owner: TaskOwner::Any, states: vec![], limit };
    for row in a.tasks(&filter).unwrap() {
        assert_eq!(a.late_results(&row.task.id).unwrap(), b.late_results(&row.task.id).unwrap());
        assert_eq!(Some(row.clone()), b.task(&row.task.id).unwrap());
    }
}

/// Records without the format they were written in: an old ledger stores the same facts in an older
/// one.
fn facts(records: Vec<JournalRecord>) -> Vec<JournalRecord> {
    records.into_iter().map(|record| JournalRecord { version: 0, ..record }).collect()
}

fn compare_journal(a: &dyn Ledger, b: &dyn Ledger, depth: usize) {
    let last = a.last_seq().unwrap();
    assert_eq!(last, b.last_seq().unwrap());
    let after = last.saturating_sub(depth as u64);
    for owner in [None, Some(LoopId::new("l1"))] {
        let owner = owner.as_ref();
        assert_eq!(facts(a.journal(after, owner, 7).unwrap()), facts(b.journal(after, owner, 7).unwrap()));
        assert_eq!(facts(a.journal(after, owner, depth).unwrap()), facts(b.journal(after, owner, depth).unwrap()));
        assert_eq!(facts(a.journal_tail(owner, depth).unwrap()), facts(b.journal_tail(owner, depth).unwrap()));
    }
    assert_eq!(a.journal(last, None, depth).unwrap(), []);
    assert_eq!(a.journal(u64::MAX, None, depth).unwrap(), b.journal(u64::MAX, None, depth).unwrap());
}

/// The journal is the same to the byte and its chain holds from the first record to the last.
fn compare_chain(ledgers: &[Box<dyn Ledger>]) {
    let rows = ledgers[0].journal_raw(0, usize::MAX).unwrap();
    for ledger in ledgers {
        assert_eq!(ledger.journal_raw(0, usize::MAX).unwrap(), rows);
        assert_eq!(ledger.journal_raw(3, 5).unwrap(), rows[3.min(rows.len())..8.min(rows.len())]);
        assert_eq!(replay(ledger.as_ref(), drop).unwrap(), rows.len() as u64);
    }
}

/// Each task is listed under exactly one state.
fn one_state_each(ledger: &dyn Ledger) {
    let list = |states| TaskFilter { owner: TaskOwner::Any, states, limit: usize::MAX };
    let all = ledger.tasks(&list(vec![])).unwrap();
    let mut listed: Vec<TaskId> = Vec::new();
    for state in StateName::ALL {
        listed.extend(ledger.tasks(&list(vec![state])).unwrap().into_iter().map(|row| row.task.id));
    }
    assert_eq!(listed.len(), all.len());
    listed.sort();
    listed.dedup();
    assert_eq!(listed.len(), all.len(), "a task is in two states");
}

fn task_of(op: &Op) -> Option<&TaskId> {
    match op {
        Op::Enqueue(task) => Some(&task.id),
        Op::Take { task, .. }
        | Op::Renew { task, .. }
        | Op::Finish { task, .. }
        | Op::Release { task, .. }
        | Op::Shelve { task, .. }
        | Op::Amend { task, .. } => Some(task),
        _ => None,
    }
}

const OP_NAMES: [&str; 21] = [
    "enqueue",
    "claim",
    "take",
    "renew",
    "finish",
    "release",
    "shelve",
    "amend",
    "heartbeat",
    "elect",
    "save guard",
    "save loop",
    "signal",
    "consume",
    "open ticket",
    "close ticket",
    "append",
    "save doc",
    "lead",
    "resign",
    "stream",
];

fn op_name(op: &Op) -> &'static str {
    OP_NAMES[match op {
        Op::Enqueue(_) => 0,
        Op::Claim { .. } => 1,
        Op::Take { .. } => 2,
        Op::Renew { .. } => 3,
        Op::Finish { .. } => 4,
        Op::Release { .. } => 5,
        Op::Shelve { .. } => 6,
        Op::Amend { .. } => 7,
        Op::Heartbeat { .. } => 8,
        Op::Elect { .. } => 9,
        Op::SaveGuard { .. } => 10,
        Op::SaveLoop { .. } => 11,
        Op::Signal { .. } => 12,
        Op::Consume { .. } => 13,
        Op::OpenTicket { .. } => 14,
        Op::CloseTicket { .. } => 15,
        Op::Append { .. } => 16,
        Op::SaveDoc { .. } => 17,
        Op::Lead { .. } => 18,
        Op::Resign { .. } => 19,
        Op::Stream(_) => 20,
    }]
}

const REFUSAL_NAMES: [&str; 7] =
    ["fenced", "conflict", "gone", "wrong state", "bad dependency", "not the leader", "repeated"];

fn refusal_name(refusal: &Refusal) -> &'static str {
    REFUSAL_NAMES[match refusal {
        Refusal::Fenced { .. } => 0,
        Refusal::Conflict { .. } => 1,
        Refusal::Gone { .. } => 2,
        Refusal::WrongState { .. } => 3,
        Refusal::BadDependency { .. } => 4,
        Refusal::NotLeader { .. } => 5,
        Refusal::Repeated { .. } => 6,
        Refusal::Rights { .. } => unreachable!("the logins of this story are leaders'"),
    }]
}

const REPLY_NAMES: [&str; 10] = [
    "made nothing",
    "claimed nothing",
    "claimed",
    "not elected",
    "elected",
    "missed entries",
    "delivered nothing",
    "delivered",
    "trimmed nothing",
    "trimmed",
];

/// Operations that are compared however long it takes: enough for each kind of answer.
const LEAST: u64 = 20_000;

#[test]
#[expect(clippy::print_stderr, reason = "the speed is worth a line")]
fn long_operations_get_the_same_answers_as_long_as_there_is_time() {
    let mut ledgers: Vec<Box<dyn Ledger>> =
        vec![Box::<Model>::default(), Box::new(Sqlite::in_memory().unwrap()), Box::new(hub())];
    let (budget, started) = (Budget::new(LEAST), Instant::now());
    let (seed, time) = (budget.first_seed() + 7, budget.time());
    eprintln!("the story of the seed {seed}");
    let mut story = Story::new(seed);
    let mut told = 0;
    while told < LEAST || started.elapsed() < time {
        story.tell(&mut ledgers, 1_000);
        told += 1_000;
    }
    let took = started.elapsed();
    eprintln!("{told} operations in {took:?}: {:.0} a second", told as f64 / took.as_secs_f64());
    eprintln!("{:?}", story.seen);
    for name in OP_NAMES.iter().chain(&REFUSAL_NAMES).chain(&REPLY_NAMES) {
        let times = story.seen.get(name).copied().unwrap_or(0);
        assert!(times >= 10, "`{name}` happened only {times} times");
    }
}

#[test]
fn a_file_that_is_closed_and_opened_again_goes_on_with_the_story() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ledger.db");
    let mut story = Story::new(11);
    let mut ledgers: Vec<Box<dyn Ledger>> = vec![Box::<Model>::default()];
    for _ in 0..10 {
        ledgers.truncate(1);
        ledgers.push(Box::new(Sqlite::open(&path, OpenMode::ReadWrite).unwrap()));
        compare(&ledgers, usize::MAX);
        story.tell(&mut ledgers, 100);
    }
}

#[test]
fn a_clone_of_the_model_goes_its_own_way() {
    let mut ledgers: Vec<Box<dyn Ledger>> = vec![Box::<Model>::default()];
    Story::new(3).tell(&mut ledgers, 500);
    let mut model = Model::default();
    let op = Op::Signal { to: "*".to_owned(), by: "me".to_owned(), body: "1".to_owned() };
    model.transact(Time(1), std::slice::from_ref(&op)).unwrap();
    let copy = model.clone();
    model.transact(Time(2), &[op]).unwrap();
    assert_eq!(copy.messages(Recipients::All, 9).unwrap().len(), 1);
    assert_eq!(model.messages(Recipients::All, 9).unwrap().len(), 2);
}
