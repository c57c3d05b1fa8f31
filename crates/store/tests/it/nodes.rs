//! Several nodes at one hub at the same time: their replies equal those of some sequential order.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;

use everloop_core::event::Event;
use everloop_core::ids::{Fence, NodeId, TaskId};
use everloop_core::op::{Op, Refusal, Reply, TaskEnd, TaskState};
use everloop_core::time::Time;
use everloop_store::replay::replay;
use everloop_store::{Error, Ledger, Model, Postgres, TaskFilter, TaskOwner};

use crate::draw::{Dice, Drawer};
use crate::postgres::{claim, made, open, task};
use crate::story::compare;

const NODES: u64 = 8;
const BATCHES: u64 = 120;

/// An accepted batch: its time, its operations and its replies.
type Done = (Time, Vec<Op>, Vec<Reply>);

/// Each batch ends with a note in the journal, so that its number shows the order in which the hub
/// accepted them. The model then runs the same batches in that order and has to give the same
/// replies.
#[test]
fn eight_nodes_get_the_answers_of_one_after_the_other() {
    let url = made();
    let accepted: Mutex<BTreeMap<u64, Done>> = Mutex::default();
    let refused: Mutex<BTreeMap<&'static str, u64>> = Mutex::default();
    thread::scope(|scope| {
        for node in 0..NODES {
            let (url, accepted, refused) = (&url, &accepted, &refused);
            scope.spawn(move || {
                let mut ledger = open(url).unwrap();
                let mut dice = Dice::new(100 + node);
                for batch in 0..BATCHES {
                    let now = Time(1_000_000 + (batch * 300) as i64);
                    let ops = draw(&mut dice, &ledger, batch, now);
                    match ledger.transact(now, &ops) {
                        Ok(replies) => keep(accepted, (now, ops, replies)),
                        Err(Error::Refused(refusal)) => {
                            *refused.lock().unwrap().entry(kind(&refusal)).or_default() += 1;
                        }
                        Err(other) => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    let accepted = accepted.into_inner().unwrap();
    assert!(accepted.len() > 300, "only {} batches were accepted", accepted.len());
    let refused = refused.into_inner().unwrap();
    assert!(refused.len() >= 3, "they did not get in each other's way: {refused:?}");
    let mut model = Model::default();
    for (now, ops, replies) in accepted.into_values() {
        tell(&mut model, now, &ops, &replies);
    }
    let ledger = open(&url).unwrap();
    assert_eq!(replay(&ledger, drop).unwrap(), model.last_seq().unwrap());
    compare(&[Box::new(model), Box::new(ledger)], usize::MAX);
}

fn draw(dice: &mut Dice, ledger: &Postgres, batch: u64, now: Time) -> Vec<Op> {
    let mut ops: Vec<Op> = (0..=dice.roll(3)).map(|_| Drawer { dice, ledger, drawn: batch * 20, now }.op()).collect();
    ops.push(Op::Append { owner: None, events: vec![Event::Note { text: "here".into() }] });
    ops
}

fn keep(accepted: &Mutex<BTreeMap<u64, Done>>, done: Done) {
    let Some(Reply::Appended(seq)) = done.2.last() else { panic!("the last reply is the journal's") };
    let before = accepted.lock().unwrap().insert(*seq, done);
    assert!(before.is_none(), "two batches got the same number");
}

/// A claim may skip tasks that others had locked at that moment, so the model takes exactly the
/// tasks that it gave.
fn tell(model: &mut Model, now: Time, ops: &[Op], replies: &[Reply]) {
    let (mut told, mut expected) = (Vec::new(), Vec::new());
    for (op, reply) in ops.iter().zip(replies) {
        let (Op::Claim { node, n, owner, lease }, Reply::Claimed(rows)) = (op, reply) else {
            told.push(op.clone());
            expected.push(reply.clone());
            continue;
        };
        assert!(rows.len() <= *n as usize && rows.iter().all(|row| row.task.owner == *owner));
        for row in rows {
            told.push(Op::Take { task: row.task.id.clone(), fence: row.fence, node: node.clone(), lease: *lease });
            expected.push(Reply::Ok);
        }
    }
    assert_eq!(model.transact(now, &told).unwrap(), expected, "to {told:#?}");
}

fn kind(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Fenced { .. } => "fenced",
        Refusal::Conflict { .. } => "conflict",
        Refusal::Gone { .. } => "gone",
        Refusal::WrongState { .. } => "wrong state",
        Refusal::BadDependency { .. } => "bad dependency",
        Refusal::NotLeader { .. } => "not the leader",
        Refusal::Repeated { .. } => "repeated",
        Refusal::Rights { .. } => "rights",
    }
}

#[test]
fn eight_nodes_empty_a_queue_and_no_task_is_done_twice() {
    let url = made();
    let mut ledger = open(&url).unwrap();
    let ops: Vec<Op> = (0..400).map(|i| task(&format!("t{i}"))).collect();
    ledger.transact(Time(1), &ops).unwrap();
    let done: Mutex<BTreeMap<TaskId, u64>> = Mutex::default();
    thread::scope(|scope| {
        for node in 0..NODES {
            let (url, done) = (&url, &done);
            scope.spawn(move || {
                let mut ledger = open(url).unwrap();
                while done.lock().unwrap().len() < 400 {
                    for task in work(&mut ledger, &format!("n{node}")) {
                        *done.lock().unwrap().entry(task).or_default() += 1;
                    }
                }
            });
        }
    });
    assert!(done.into_inner().unwrap().values().all(|times| *times == 1));
    let all = ledger.tasks(&TaskFilter { owner: TaskOwner::Any, states: vec![], limit: 999 }).unwrap();
    assert!(all.iter().all(|row| row.state == TaskState::Done && row.fence == Fence(1)));
}

/// Claims some tasks, finishes them, and returns their ids.
fn work(ledger: &mut Postgres, node: &str) -> Vec<TaskId> {
    let Op::Claim { n, owner, lease, .. } = claim(3) else { panic!("a claim") };
    let claim = Op::Claim { node: NodeId::new(node), n, owner, lease };
    let Reply::Claimed(rows) = ledger.transact(Time(2), &[claim]).unwrap().remove(0) else { panic!("a claim") };
    assert!(rows.iter().all(|row| matches!(&row.state, TaskState::Leased { node: n, .. } if n.as_str() == node)));
    let finish = |row: &everloop_core::op::TaskRow| Op::Finish {
        task: row.task.id.clone(),
        fence: row.fence,
        state: TaskEnd::Done,
        result: node.to_owned(),
    };
    let ops: Vec<Op> = rows.iter().map(finish).collect();
    ledger.transact(Time(3), &ops).unwrap();
    rows.into_iter().map(|row| row.task.id).collect()
}
