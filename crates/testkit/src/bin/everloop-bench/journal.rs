//! How fast the journal takes events, beside bare SQLite doing the same inserts with the same
//! durability.

use std::path::Path;
use std::time::{Duration, Instant};

use everloop_core::event::Event;
use everloop_core::ids::LoopId;
use everloop_core::journal::encode;
use everloop_core::op::{Op, Trust};
use everloop_core::time::Time;
use everloop_store::{Ledger, OpenMode, Sqlite};
use rusqlite::{Connection, params};

use crate::report::{BenchRow, heading, remark};
use crate::{Options, Result};

/// Blocks of the two alternate, so that a busy moment of the machine hits both.
const BLOCKS: u32 = 5;

pub fn run(options: &Options) -> Result<()> {
    heading("journal: events per second, each batch one synced transaction");
    let dir = tempfile::Builder::new().prefix("everloop-bench.").tempdir_in(&options.dir)?;
    for batch in [1, 10, 100] {
        let commits = options.length.pick(100, 20);
        let mut ours = Duration::ZERO;
        let mut bare = Duration::ZERO;
        let mut ledger = Sqlite::open(&dir.path().join(format!("ledger-{batch}.db")), OpenMode::ReadWrite)?;
        let mut raw = open_raw(&dir.path().join(format!("raw-{batch}.db")))?;
        for _ in 0..BLOCKS {
            ours += through_the_store(&mut ledger, batch, commits)?;
            bare += through_rusqlite(&mut raw, batch, commits)?;
        }
        let total = f64::from(BLOCKS) * commits as f64;
        let rate = |took: Duration| total * batch as f64 / took.as_secs_f64();
        BenchRow::new(format!("batches of {batch}"), format!("{:.0} events/s", rate(ours)))
            .floor("bare rusqlite", &format!("{:.0} events/s", rate(bare)), rate(ours) / rate(bare))
            .print();
        let per_commit = |took: Duration| took.as_secs_f64() * 1e3 / total;
        remark(&format!("per commit {:.2} ms, bare {:.2} ms", per_commit(ours), per_commit(bare)));
    }
    Ok(())
}

fn owner() -> LoopId {
    LoopId::new("k3f9")
}

fn event(i: usize) -> Event {
    Event::Steered {
        by: "bench".to_owned(),
        message: format!("event number {i} of a batch, about as long as most are"),
        trust: Trust::Operator,
    }
}

fn through_the_store(ledger: &mut Sqlite, batch: usize, commits: usize) -> Result<Duration> {
    let events: Vec<Event> = (0..batch).map(event).collect();
    let start = Instant::now();
    for _ in 0..commits {
        ledger.transact(Time(1), &[Op::Append { owner: Some(owner()), events: events.clone() }])?;
    }
    Ok(start.elapsed())
}

/// The same settings, columns and index as the journal of the store; no checksum, no JSON, no
/// reading back.
fn open_raw(path: &Path) -> Result<Connection> {
    let conn = Connection::open(path)?;
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -1024;
         CREATE TABLE journal (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, owner TEXT, version INTEGER NOT NULL,
                               body TEXT NOT NULL, sum INTEGER NOT NULL) STRICT;
         CREATE INDEX journal_by_owner ON journal (owner, seq);",
    )?;
    Ok(conn)
}

fn through_rusqlite(conn: &mut Connection, batch: usize, commits: usize) -> Result<Duration> {
    let rows: Vec<_> = (0..batch).map(|i| encode(i as u64, Time(1), Some(&owner()), &event(i), 0)).collect();
    let start = Instant::now();
    for _ in 0..commits {
        let transaction = conn.transaction()?;
        {
            let mut insert = transaction
                .prepare_cached("INSERT INTO journal (at, owner, version, body, sum) VALUES (?1, ?2, ?3, ?4, ?5)")?;
            for row in &rows {
                let owner = row.owner.as_ref().map(LoopId::as_str);
                insert.execute(params![row.at.0, owner, row.version, row.body, row.sum])?;
            }
        }
        transaction.commit()?;
    }
    Ok(start.elapsed())
}
