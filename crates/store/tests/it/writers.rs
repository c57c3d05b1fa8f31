//! Several connections on one file: nothing is lost, readers are never in the way.

use std::path::Path;
use std::thread;
use std::time::Duration;

use everloop_core::event::Event;
use everloop_core::guard::{GuardState, Scope};
use everloop_core::ids::{LoopId, NodeId};
use everloop_core::op::{Op, Refusal, Reply};
use everloop_core::time::Time;
use everloop_store::replay::replay;
use everloop_store::{Error, Ledger, OpenMode, Sqlite};

fn open(path: &Path, mode: OpenMode) -> Sqlite {
    Sqlite::open(path, mode).unwrap()
}

fn save(version: u64, state: &str) -> Op {
    Op::SaveLoop { id: LoopId::new("k3f9"), version, phase: "ready".into(), state: state.into() }
}

fn note() -> Op {
    Op::Append { owner: None, events: vec![Event::Note { text: "n".into() }] }
}

#[test]
fn the_slower_of_two_writers_gets_a_conflict_and_no_update_is_lost() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ledger.db");
    let (mut one, mut two) = (open(&path, OpenMode::ReadWrite), open(&path, OpenMode::ReadWrite));
    one.transact(Time(1), &[save(0, "first")]).unwrap();
    two.transact(Time(2), &[save(1, "second")]).unwrap();
    let refused = one.transact(Time(3), &[note(), save(1, "late")]).unwrap_err();
    assert_eq!(refused.refusal(), Some(&Refusal::Conflict { what: "loop k3f9".into() }));
    assert_eq!(refused.to_string(), "`loop k3f9` was changed by another writer");
    let row = two.get_loop(&LoopId::new("k3f9")).unwrap().unwrap();
    assert_eq!((row.version, row.state.as_str()), (2, "second"));
    assert_eq!(two.last_seq().unwrap(), 0, "nothing of the refused batch happened");

    let guard = |version| Op::SaveGuard { scope: Scope::All, version, state: Box::<GuardState>::default() };
    one.transact(Time(4), &[guard(0)]).unwrap();
    let refused = two.transact(Time(5), &[guard(0)]).unwrap_err();
    assert_eq!(refused.refusal(), Some(&Refusal::Conflict { what: "guard all".into() }));
}

#[test]
fn many_writers_count_together_without_losing_one() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ledger.db");
    thread::scope(|scope| {
        for _ in 0..4 {
            // Each creates or migrates the file as if it were the first.
            scope.spawn(|| {
                let mut ledger = open(&path, OpenMode::ReadWrite);
                let mut counted = 0;
                while counted < 25 {
                    let version = ledger.get_loop(&LoopId::new("k3f9")).unwrap().map_or(0, |row| row.version);
                    match ledger.transact(Time(1), &[note(), save(version, "{}")]) {
                        Ok(_) => counted += 1,
                        Err(Error::Refused(Refusal::Conflict { .. })) => {}
                        Err(other) => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    let ledger = open(&path, OpenMode::ReadOnly);
    assert_eq!(ledger.get_loop(&LoopId::new("k3f9")).unwrap().unwrap().version, 100);
    assert_eq!(replay(&ledger, drop).unwrap(), 100, "and the chain of the journal holds");
}

#[test]
fn a_reader_follows_a_writer_and_cannot_write() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ledger.db");
    let mut writer = open(&path, OpenMode::ReadWrite);
    let mut reader = open(&path, OpenMode::ReadOnly);
    let before = reader.data_version().unwrap();
    assert_eq!(reader.data_version().unwrap(), before, "nothing happened");
    writer.transact(Time(1), &[note(), save(0, "{}")]).unwrap();
    assert_ne!(reader.data_version().unwrap(), before, "look again");
    assert_eq!(reader.journal(0, None, 9).unwrap().len(), 1);
    assert_eq!(reader.loops().unwrap(), writer.loops().unwrap());
    assert!(matches!(reader.transact(Time(2), &[note()]), Err(Error::Sql { .. })));
    drop(writer);
    assert_eq!(open(&path, OpenMode::ReadOnly).last_seq().unwrap(), 1, "also when the writer is gone");
}

#[test]
fn only_one_of_two_nodes_is_elected() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ledger.db");
    let (mut one, mut two) = (open(&path, OpenMode::ReadWrite), open(&path, OpenMode::ReadWrite));
    let elect = |node| Op::Elect { node: NodeId::new(node), lease: Duration::from_secs(15) };
    assert_eq!(one.transact(Time(0), &[elect("a")]).unwrap(), [Reply::Elected(Some(1))]);
    assert_eq!(two.transact(Time(14_999), &[elect("b")]).unwrap(), [Reply::Elected(None)]);
    assert_eq!(two.transact(Time(15_000), &[elect("b")]).unwrap(), [Reply::Elected(Some(2))]);
    assert_eq!(one.leader().unwrap(), two.leader().unwrap());
}
