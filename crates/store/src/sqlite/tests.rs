//! Internals of the SQLite ledger: query plans, settings of the connection, a full disk.

use std::time::Duration;

use everloop_core::event::Event;
use everloop_core::ids::{LoopId, NodeId, TaskId};
use everloop_core::op::{NewTask, Op, Reply, Trust};
use everloop_core::time::Time;
use rusqlite::params_from_iter;
use rusqlite::types::Null;

use super::census::{ADDRESSED, MARKS, NAMED, NEW, OFFERED};
use super::read::{JOURNAL, JOURNAL_OF, Query, READY, TAIL, TAIL_OF, TASKS, TASKS_OF};
use super::{OpenMode, Sqlite};
use crate::{Error, Ledger};

fn plan(ledger: &Sqlite, query: &Query) -> String {
    let mut statement = ledger.conn.prepare(&format!("EXPLAIN QUERY PLAN {}", query.sql)).unwrap();
    let nulls = vec![Null; statement.parameter_count()];
    let lines = statement.query_map(params_from_iter(nulls), |row| row.get::<_, String>("detail")).unwrap();
    lines.collect::<Result<Vec<_>, _>>().unwrap().join("\n")
}

#[test]
fn great_tables_are_read_along_an_index_and_never_sorted() {
    let ledger = Sqlite::in_memory().unwrap();
    let expected = [
        (&READY, "SEARCH tasks USING INDEX tasks_waiting (owner=?"),
        (&TASKS, "SEARCH tasks USING INDEX tasks_by_state (state=?"),
        (&TASKS_OF, "SEARCH tasks USING INDEX tasks_by_owner (owner=? AND state=?"),
        (&JOURNAL, "SEARCH j USING INTEGER PRIMARY KEY (rowid>?"),
        (&JOURNAL_OF, "SEARCH j USING INDEX journal_by_owner (owner=? AND seq>?"),
        (&TAIL, "SCAN j"),
        (&TAIL_OF, "SEARCH j USING INDEX journal_by_owner (owner=?"),
    ];
    for (query, start) in expected {
        let plan = plan(&ledger, query);
        assert!(plan.contains(start), "{}: {plan}", query.doing);
        assert!(!plan.contains("TEMP B-TREE"), "{}: {plan}", query.doing);
    }
}

#[test]
fn sleeping_loops_are_found_along_an_index_and_without_their_states() {
    let ledger = Sqlite::in_memory().unwrap();
    let expected = [
        (&MARKS, "SCAN loops USING COVERING INDEX loops_by_phase"),
        (&NEW, "SEARCH loops USING INTEGER PRIMARY KEY (rowid>?"),
        (&NAMED, "SEARCH loops USING INDEX loops_by_name (<expr>=?"),
        (&ADDRESSED, "SEARCH messages USING COVERING INDEX messages_by_recipient (recipient>?"),
        (&ADDRESSED, "SEARCH loops USING COVERING INDEX sqlite_autoindex_loops_1 (id=?"),
        (&OFFERED, "SEARCH tasks USING INDEX tasks_offered (owner>?"),
    ];
    for (query, part) in expected {
        let plan = plan(&ledger, query);
        assert!(plan.contains(part), "{}: {plan}", query.doing);
        assert!(!plan.contains("SCAN tasks\n") && !plan.contains("SCAN messages\n"), "{}: {plan}", query.doing);
    }
}

#[test]
fn loops_are_found_by_what_is_new_for_them() {
    let mut ledger = Sqlite::in_memory().unwrap();
    let save = |id: &str, phase: &str, name: &str| Op::SaveLoop {
        id: LoopId::new(id),
        version: 0,
        phase: phase.to_owned(),
        state: format!("{{\"name\":\"{name}\"}}"),
    };
    let to = |id: &str| Op::Signal { to: id.to_owned(), by: "me".to_owned(), body: String::new() };
    let task = |id: &str, owner: Option<&str>, kind: &str| {
        Op::Enqueue(NewTask {
            id: TaskId::new(id),
            owner: owner.map(LoopId::new),
            kind: kind.to_owned(),
            title: String::new(),
            prompt: String::new(),
            priority: 0,
            deps: Vec::new(),
            author: "me".to_owned(),
            trust: Trust::Agent,
            ready_at: Time(i64::MAX),
        })
    };
    let all = |ids: &[LoopId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    ledger
        .transact(Time(0), &[save("a", "asleep", "echo"), save("b", "stopped", "echo"), save("c", "asleep", "x")])
        .unwrap();
    let open: Vec<LoopId> = ledger.open_loops().unwrap().into_iter().map(|mark| mark.id).collect();
    assert_eq!(all(&open), "a c", "b is over");
    let newest = ledger.newest_loop().unwrap().unwrap();
    assert_eq!(ledger.loops_since(&newest).unwrap(), Some(Vec::new()));
    ledger.transact(Time(0), &[save("0", "baseline", "y"), save("d", "stopped", "z")]).unwrap();
    let since: Vec<LoopId> = ledger.loops_since(&newest).unwrap().unwrap().into_iter().map(|mark| mark.id).collect();
    assert_eq!(all(&since), "0", "d is over already");
    ledger.conn.execute("DELETE FROM loops WHERE id = 'c'", ()).unwrap();
    assert_eq!(ledger.loops_since(&newest).unwrap(), None, "its number may be that of another loop soon");
    let named: Vec<LoopId> =
        crate::LocalLedger::named(&ledger, "echo").unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(all(&named), "a b");
    ledger.transact(Time(0), &[to("@mail"), to("b"), to("b"), to("*"), to("0")]).unwrap();
    assert_eq!(all(&ledger.addressed_loops().unwrap()), "0 b");
    ledger
        .transact(
            Time(0),
            &[
                task("1", Some("a"), "persona-signal"),
                task("2", None, "task"),
                task("3", Some("d"), "task"),
                task("4", Some("d"), "task"),
                task("5", Some("b"), "batch"),
                task("6", Some("0"), "signal"),
            ],
        )
        .unwrap();
    assert_eq!(all(&ledger.loops_with_work().unwrap()), "0 d");
}

#[test]
fn a_writer_syncs_every_commit_and_stays_small() {
    let home = tempfile::tempdir().unwrap();
    let ledger = Sqlite::open(&home.path().join("ledger.db"), OpenMode::ReadWrite).unwrap();
    let number = |name: &str| ledger.conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
    let journal: String = ledger.conn.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(journal, "wal");
    assert_eq!(number("synchronous"), 2, "FULL");
    assert_eq!(number("busy_timeout"), 5000);
    assert_eq!(number("cache_size"), -1024);
    assert_eq!(number("user_version"), i64::from(super::FORMAT));
}

#[test]
fn a_full_disk_refuses_the_whole_batch_and_work_goes_on_later() {
    let home = tempfile::tempdir().unwrap();
    let mut ledger = Sqlite::open(&home.path().join("ledger.db"), OpenMode::ReadWrite).unwrap();
    let id = LoopId::new("k3f9");
    let save = |version, state: &str| Op::SaveLoop {
        id: id.clone(),
        version,
        phase: "ready".to_owned(),
        state: state.to_owned(),
    };
    let note = Op::Append { owner: None, events: vec![Event::Note { text: "n".to_owned() }] };
    ledger.transact(Time(1), &[save(0, "{}"), note.clone()]).unwrap();

    let pages: i64 = ledger.conn.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    let limit = |ledger: &Sqlite, n: i64| {
        ledger.conn.query_row(&format!("PRAGMA max_page_count = {n}"), [], |_| Ok(())).unwrap();
    };
    limit(&ledger, pages + 2);
    let big = "x".repeat(100_000);
    let refused = ledger.transact(Time(2), &[note.clone(), save(1, &big)]);
    assert!(matches!(refused, Err(Error::Full { doing: "save a loop" })), "{refused:?}");
    assert_eq!(ledger.last_seq().unwrap(), 1, "the first half did not happen either");
    assert_eq!(ledger.get_loop(&id).unwrap().unwrap().version, 1);

    limit(&ledger, 1_000_000);
    let replies = ledger.transact(Time(3), &[note, save(1, &big)]).unwrap();
    assert_eq!(replies, [Reply::Appended(2), Reply::Saved(2)]);
}

#[test]
fn a_claim_does_not_look_at_finished_tasks() {
    let mut ledger = Sqlite::in_memory().unwrap();
    let task = NewTask {
        id: TaskId::new("last"),
        owner: None,
        kind: "batch".to_owned(),
        title: String::new(),
        prompt: String::new(),
        priority: 0,
        deps: vec![],
        author: "me".to_owned(),
        trust: Trust::Operator,
        ready_at: Time(0),
    };
    ledger.transact(Time(5), &[Op::Enqueue(task)]).unwrap();
    let finished = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
        INSERT INTO tasks SELECT 't' || i, NULL, 'batch', '', '', 9, '[]', 'me', 'operator', 0,
                                 'done', NULL, NULL, 1, 0, '', 1, 1 FROM n";
    ledger.conn.execute(finished, []).unwrap();
    let mut statement = ledger.conn.prepare(READY.sql).unwrap();
    let found = statement.query_map((10, Null, 1), |row| row.get::<_, String>("id")).unwrap().count();
    let steps = statement.get_status(rusqlite::StatementStatus::VmStep);
    assert_eq!(found, 1);
    assert!(steps < 500, "{steps} steps for one task among 20,000 finished ones");
    drop(statement);
    let op = Op::Claim { node: NodeId::new("a"), n: 5, owner: None, lease: Duration::from_secs(1) };
    assert!(matches!(&ledger.transact(Time(10), &[op]).unwrap()[..], [Reply::Claimed(rows)] if rows.len() == 1));
}
