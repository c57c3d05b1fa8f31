//! The semantics in the documentation of [`Ledger`], one by one, of every ledger.

use std::time::Duration;

use everloop_core::event::Event;
use everloop_core::ids::{Fence, LoopId, NodeId, TaskId};
use everloop_core::op::streams::{DeliverRequest, NewStreamEntry, StreamOp};
use everloop_core::op::{Amendment, NewTask, Op, Refusal, Reply, TaskEnd, TaskState, Trust};
use everloop_core::time::Time;
use everloop_store::{Ledger, Model, Recipients, Sqlite, TaskFilter, TaskOwner, Tickets};

use crate::postgres::hub;
use crate::story::compare;

/// Runs the same test on every kind of ledger and compares them afterwards.
fn each(test: impl Fn(&mut dyn Ledger)) {
    let mut ledgers: Vec<Box<dyn Ledger>> =
        vec![Box::<Model>::default(), Box::new(Sqlite::in_memory().unwrap()), Box::new(hub())];
    for ledger in &mut ledgers {
        test(ledger.as_mut());
    }
    compare(&ledgers, usize::MAX);
}

fn at(secs: i64) -> Time {
    Time(secs * 1000)
}

fn task(id: &str, deps: &[&str]) -> NewTask {
    NewTask {
        id: TaskId::new(id),
        owner: None,
        kind: "batch".into(),
        title: "title".into(),
        prompt: "prompt".into(),
        priority: 0,
        deps: deps.iter().map(|id| TaskId::new(*id)).collect(),
        author: "me".into(),
        trust: Trust::Operator,
        ready_at: at(0),
    }
}

fn take(id: &str, fence: u64) -> Op {
    Op::Take { task: TaskId::new(id), fence: Fence(fence), node: NodeId::new("n"), lease: Duration::from_secs(90) }
}

fn finish(id: &str, fence: u64) -> Op {
    Op::Finish { task: TaskId::new(id), fence: Fence(fence), state: TaskEnd::Done, result: "ok".into() }
}

fn amend(id: &str, change: Amendment) -> Op {
    Op::Amend { task: TaskId::new(id), change }
}

fn claimed(ledger: &mut dyn Ledger, now: Time, n: u32) -> Vec<(String, u64)> {
    let op = Op::Claim { node: NodeId::new("n"), n, owner: None, lease: Duration::from_secs(90) };
    match ledger.transact(now, &[op]).unwrap().remove(0) {
        Reply::Claimed(rows) => rows.iter().map(|row| (row.task.id.to_string(), row.fence.0)).collect(),
        other => panic!("{other:?}"),
    }
}

fn names(claimed: &[(String, u64)]) -> Vec<&str> {
    claimed.iter().map(|(id, _)| id.as_str()).collect()
}

fn refused(ledger: &mut dyn Ledger, now: Time, ops: &[Op]) -> Refusal {
    ledger.transact(now, ops).unwrap_err().refusal().expect("a refusal").clone()
}

#[test]
fn claims_go_by_priority_then_age_then_id() {
    each(|ledger| {
        let later = NewTask { ready_at: at(50), priority: 9, ..task("later", &[]) };
        let owned = NewTask { owner: Some(LoopId::new("l")), priority: 9, ..task("owned", &[]) };
        ledger.transact(at(1), &[Op::Enqueue(task("b", &[])), Op::Enqueue(later), Op::Enqueue(owned)]).unwrap();
        let low = NewTask { priority: -5, ..task("0", &[]) };
        let high = NewTask { priority: 5, ..task("z", &[]) };
        ledger.transact(at(1), &[Op::Enqueue(task("a", &[])), Op::Enqueue(low), Op::Enqueue(high)]).unwrap();
        ledger.transact(at(0), &[Op::Enqueue(task("c", &[]))]).unwrap();
        assert_eq!(names(&claimed(ledger, at(2), 3)), ["z", "c", "a"]);
        assert_eq!(names(&claimed(ledger, at(3), 9)), ["b", "0"]);
        assert_eq!(names(&claimed(ledger, at(50), 9)), ["later"]);
    });
}

#[test]
fn a_lease_that_is_over_is_claimed_under_the_next_fence_and_the_late_holder_is_refused() {
    each(|ledger| {
        ledger.transact(at(0), &[Op::Enqueue(task("a", &[]))]).unwrap();
        assert_eq!(claimed(ledger, at(0), 1), [("a".into(), 1)]);
        assert_eq!(claimed(ledger, at(89), 1), []);
        assert_eq!(claimed(ledger, at(90), 1), [("a".into(), 2)]);
        let late = refused(ledger, at(91), &[finish("a", 1)]);
        assert_eq!(late, Refusal::Fenced { task: TaskId::new("a"), fence: Fence(1) });
        let shelve = Op::Shelve { task: TaskId::new("a"), fence: Fence(1), result: "late".into() };
        ledger.transact(at(91), &[shelve.clone(), shelve]).unwrap();
        assert_eq!(ledger.late_results(&TaskId::new("a")).unwrap().len(), 1);
        ledger.transact(at(500), &[finish("a", 2)]).unwrap();
        let row = ledger.task(&TaskId::new("a")).unwrap().unwrap();
        assert_eq!((row.state, row.result.as_deref()), (TaskState::Done, Some("ok")));
    });
}

#[test]
fn a_task_waits_for_all_that_it_needs() {
    each(|ledger| {
        let ops = [task("a", &[]), task("b", &[]), task("c", &["b", "a", "b"])].map(Op::Enqueue);
        ledger.transact(at(0), &ops).unwrap();
        assert_eq!(names(&claimed(ledger, at(1), 9)), ["a", "b"]);
        let held = refused(ledger, at(2), &[take("c", 1)]);
        assert_eq!(held.to_string(), "task `c` is waiting for its dependencies, so this cannot be done");
        ledger.transact(at(2), &[finish("a", 1), amend("b", Amendment::Cancel)]).unwrap();
        assert_eq!(claimed(ledger, at(3), 9), [], "`b` is dead, not done");
        ledger.transact(at(3), &[amend("b", Amendment::Retry)]).unwrap();
        ledger.transact(at(4), &[take("b", 4), finish("b", 4), take("c", 1)]).unwrap();
        let row = ledger.task(&TaskId::new("c")).unwrap().unwrap();
        assert_eq!(row.task.deps, ["b", "a", "b"].map(TaskId::new), "kept as they were given");
    });
}

#[test]
fn bad_dependencies_are_refused_and_known_tasks_left_alone() {
    each(|ledger| {
        let why = |ledger: &mut dyn Ledger, deps: &[&str]| match refused(ledger, at(0), &[Op::Enqueue(task("a", deps))])
        {
            Refusal::BadDependency { why, .. } => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(why(ledger, &["a"]), "it depends on itself");
        assert_eq!(why(ledger, &["b"]), "it depends on `b`, which is not there");
        let made = ledger.transact(at(0), &[Op::Enqueue(task("a", &[])), Op::Enqueue(task("a", &["a", "b"]))]);
        assert_eq!(made.unwrap(), [Reply::Made(true), Reply::Made(false)]);
        assert_eq!(ledger.task(&TaskId::new("a")).unwrap().unwrap().task.deps, []);
    });
}

#[test]
fn take_needs_the_next_fence_but_not_the_hour() {
    each(|ledger| {
        ledger.transact(at(0), &[Op::Enqueue(NewTask { ready_at: at(999), ..task("a", &[]) })]).unwrap();
        assert!(matches!(refused(ledger, at(1), &[take("x", 1)]), Refusal::Gone { what } if what == "task x"));
        assert!(matches!(refused(ledger, at(1), &[take("a", 2)]), Refusal::Fenced { .. }));
        ledger.transact(at(1), &[take("a", 1)]).unwrap();
        assert!(matches!(refused(ledger, at(2), &[take("a", 2)]), Refusal::Fenced { .. }), "its lease is live");
        ledger.transact(at(91), &[take("a", 2), finish("a", 2)]).unwrap();
        assert!(
            matches!(refused(ledger, at(92), &[take("a", 3)]), Refusal::WrongState { state, .. } if state == "done")
        );
    });
}

/// One of everything that leaves a trace, none of it refused.
fn a_bit_of_everything(known: &str) -> Vec<Op> {
    let (owner, node) = (LoopId::new("l"), NodeId::new("other"));
    vec![
        Op::Enqueue(task("new", &[])),
        take(known, 2),
        Op::Shelve { task: TaskId::new(known), fence: Fence(1), result: "x".into() },
        amend(known, Amendment::Cancel),
        Op::Heartbeat { node: node.clone(), info: "x".into() },
        Op::Elect { node, lease: Duration::from_secs(1) },
        Op::SaveGuard { scope: everloop_core::guard::Scope::All, version: 1, state: Box::default() },
        Op::SaveLoop { id: owner.clone(), version: 1, phase: "x".into(), state: "x".into() },
        Op::Consume { ids: vec![1] },
        deliver("s", 9),
        Op::Stream(StreamOp::Ack { stream: "s".into(), group: "g".into(), ids: vec![1] }),
        entry("s", Some("b"), 1),
        Op::Signal { to: "*".into(), by: "me".into(), body: "x".into() },
        Op::CloseTicket { key: "a".into(), answer: "x".into() },
        Op::OpenTicket { key: "a".into(), owner: Some(owner.clone()), text: "x".into() },
        Op::Append { owner: Some(owner), events: vec![Event::Note { text: "x".into() }] },
    ]
}

fn everything(ledger: &dyn Ledger) -> String {
    let filter = TaskFilter { owner: TaskOwner::Any, states: vec![], limit: 99 };
    let tasks = (ledger.tasks(&filter).unwrap(), ledger.late_results(&TaskId::new("a")).unwrap());
    let people = (ledger.messages(Recipients::All, 99).unwrap(), ledger.tickets(Tickets::Newest(99)).unwrap());
    let rest = (ledger.nodes().unwrap(), ledger.leader().unwrap(), ledger.guards().unwrap(), ledger.loops().unwrap());
    let streams = (ledger.streams().unwrap(), ledger.entries("s", 0, 99).unwrap());
    format!("{tasks:#?} {people:#?} {streams:#?} {rest:#?} {:#?}", ledger.journal_raw(0, 99).unwrap())
}

#[test]
fn a_refused_batch_leaves_no_trace_and_its_numbers_are_used_again() {
    each(|ledger| {
        let first = [
            Op::Enqueue(task("a", &[])),
            take("a", 1),
            Op::Heartbeat { node: NodeId::new("n"), info: "1".into() },
            Op::Elect { node: NodeId::new("n"), lease: Duration::from_secs(5) },
            Op::SaveGuard { scope: everloop_core::guard::Scope::All, version: 0, state: Box::default() },
            Op::SaveLoop { id: LoopId::new("l"), version: 0, phase: "p".into(), state: "s".into() },
            Op::Signal { to: "*".into(), by: "me".into(), body: "1".into() },
            Op::OpenTicket { key: "a".into(), owner: None, text: "1".into() },
            entry("s", Some("a"), 9),
        ];
        ledger.transact(at(0), &first).unwrap();
        let before = everything(ledger);
        let mut ops = a_bit_of_everything("a");
        ops.push(Op::Consume { ids: vec![2, 2] });
        assert_eq!(refused(ledger, at(100), &ops), Refusal::Gone { what: "message 2".into() });
        assert_eq!(everything(ledger), before);
        ops.pop();
        let replies = ledger.transact(at(100), &ops).unwrap();
        assert_eq!(replies[5..9], [Reply::Elected(Some(2)), Reply::Saved(2), Reply::Saved(2), Reply::Ok]);
        let taken = matches!(&replies[9], Reply::Delivered(taken) if taken.entries.len() == 1 && taken.missed == 0);
        assert!(taken, "{:?}", replies[9]);
        assert_eq!(replies[10..13], [Reply::Ok, Reply::Added(2), Reply::Sent(2)]);
        assert_eq!(replies[13..], [Reply::Ok, Reply::Made(true), Reply::Appended(1)]);
    });
}

fn entry(stream: &str, key: Option<&str>, keep: u32) -> Op {
    let (stream, key) = (stream.to_owned(), key.map(str::to_owned));
    let fields = vec![("status".to_owned(), "up".to_owned())];
    Op::Stream(StreamOp::Add(NewStreamEntry { stream, source: "cli".into(), key, fields, keep }))
}

fn deliver(stream: &str, n: u32) -> Op {
    let (stream, group, consumer) = (stream.into(), "g".into(), "c".into());
    Op::Stream(StreamOp::Deliver(DeliverRequest { stream, group, consumer, n, idle: Duration::from_secs(60) }))
}

/// The ids that a group takes, and how many entries it missed.
fn taken(ledger: &mut dyn Ledger, now: Time, n: u32) -> (Vec<u64>, u64) {
    match ledger.transact(now, &[deliver("s", n)]).unwrap().remove(0) {
        Reply::Delivered(taken) => (taken.entries.iter().map(|entry| entry.id).collect(), taken.missed),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stream_has_each_entry_once_as_long_as_it_keeps_it() {
    each(|ledger| {
        let made = ledger.transact(at(0), &[entry("s", Some("a"), 2), entry("s", None, 2), entry("s", None, 2)]);
        assert_eq!(made.unwrap(), [Reply::Added(1), Reply::Added(2), Reply::Added(3)]);
        ledger.transact(at(1), &[entry("s", Some("a"), 2)]).expect("the first one was dropped");
        let again = refused(ledger, at(2), &[entry("t", None, 2), entry("s", Some("a"), 2)]);
        assert_eq!(again, Refusal::Repeated { stream: "s".into(), id: 4 });
        let within = refused(ledger, at(2), &[entry("t", Some("a"), 2), entry("t", Some("a"), 2)]);
        assert_eq!(within, Refusal::Repeated { stream: "t".into(), id: 1 });
        let ids = |name| ledger.entries(name, 0, 9).unwrap().iter().map(|entry| entry.id).collect::<Vec<_>>();
        assert_eq!((ids("s"), ids("t")), (vec![3, 4], vec![]), "a refused batch adds nothing");
        assert_eq!(ledger.entry_with_key("s", "cli", "a").unwrap().map(|entry| entry.id), Some(4));
        assert_eq!(ledger.entry_with_key("s", "other", "a").unwrap(), None);
    });
}

#[test]
fn a_group_takes_entries_once_reclaims_them_and_is_told_of_a_gap() {
    each(|ledger| {
        assert_eq!(taken(ledger, at(0), 9), (vec![], 0));
        assert_eq!(ledger.streams().unwrap(), [], "a delivery from an unknown stream makes nothing");
        let five = || (0..5).map(|_| entry("s", None, 9)).collect::<Vec<_>>();
        ledger.transact(at(0), &five()).unwrap();
        assert_eq!(taken(ledger, at(1), 2), (vec![1, 2], 0));
        let ack = |ids: &[u64]| Op::Stream(StreamOp::Ack { stream: "s".into(), group: "g".into(), ids: ids.to_vec() });
        ledger.transact(at(2), &[ack(&[1, 77])]).unwrap();
        assert_eq!(taken(ledger, at(60), 2), (vec![3, 4], 0), "2 is held until 61");
        assert_eq!(taken(ledger, at(61), 9), (vec![2, 5], 0));
        ledger.transact(at(62), &five()).unwrap();
        let trim = |up_to| Op::Stream(StreamOp::Trim { stream: "s".into(), up_to });
        assert_eq!(
            ledger.transact(at(63), &[trim(7), trim(7), trim(99)]).unwrap(),
            [Reply::Trimmed(6), Reply::Trimmed(0), Reply::Trimmed(3)]
        );
        assert_eq!(taken(ledger, at(64), 9), (vec![], 9), "2 to 5 were held, 6 to 10 never taken");
        assert_eq!(ledger.transact(at(65), &[entry("s", None, 9), deliver("s", 9)]).unwrap()[0], Reply::Added(11));
    });
}

#[test]
fn the_id_of_a_consumed_message_is_never_used_again() {
    each(|ledger| {
        let signal = || Op::Signal { to: "l".into(), by: "me".into(), body: "1".into() };
        let replies = ledger.transact(at(0), &[signal(), Op::Consume { ids: vec![1] }, signal()]).unwrap();
        assert_eq!(replies, [Reply::Sent(1), Reply::Ok, Reply::Sent(2)]);
        ledger.transact(at(1), &[Op::Consume { ids: vec![2] }]).unwrap();
        assert_eq!(ledger.transact(at(2), &[signal()]).unwrap(), [Reply::Sent(3)]);
        let none = Op::Append { owner: None, events: vec![] };
        assert_eq!(
            ledger.transact(at(3), &[none, Op::Consume { ids: vec![] }]).unwrap(),
            [Reply::Appended(0), Reply::Ok]
        );
    });
}

#[test]
fn one_open_ticket_per_cause() {
    each(|ledger| {
        let open = |text: &str| Op::OpenTicket { key: "k".into(), owner: None, text: text.into() };
        let close = || Op::CloseTicket { key: "k".into(), answer: "solved".into() };
        let replies = ledger.transact(at(0), &[close(), open("1"), open("2"), close(), open("3")]).unwrap();
        let made = [Reply::Ok, Reply::Made(true), Reply::Made(false), Reply::Ok, Reply::Made(true)];
        assert_eq!(replies, made);
        let texts = |which| ledger.tickets(which).unwrap().into_iter().map(|t| t.text).collect::<Vec<_>>();
        assert_eq!(texts(Tickets::Newest(9)), ["1", "3"]);
        assert_eq!(texts(Tickets::Open), ["3"]);
    });
}
