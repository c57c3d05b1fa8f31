//! A queue in bare rusqlite: the same table, indexes, durability and cache; no fence, no
//! dependencies, nothing read back but ids. Each batch is two transactions, as everywhere.

use std::time::{Duration, Instant};

use everloop_store::{OpenMode, Sqlite};
use rusqlite::{Connection, TransactionBehavior, params};

use super::race::{self, Ours, Queue};
use crate::{Options, Result};

pub fn run(options: &Options) -> Result<()> {
    let dir = tempfile::Builder::new().prefix("everloop-bench.").tempdir_in(&options.dir)?;
    let (path, plain) = (dir.path().join("ledger.db"), dir.path().join("plain.db"));
    let mut ours = Ours(Sqlite::open(&path, OpenMode::ReadWrite)?);
    let mut plain = Plain::open(&plain)?;
    for batch in race::BATCHES {
        race::run(options, (&mut ours, &mut plain), batch)?;
    }
    Ok(())
}

struct Plain(Connection);

impl Plain {
    fn open(path: &std::path::Path) -> Result<Self> {
        // A ledger's own tables are the same tables.
        drop(Sqlite::open(path, OpenMode::ReadWrite)?);
        let conn = Connection::open(path)?;
        conn.execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA cache_size = -1024; PRAGMA journal_size_limit = 4194304;",
        )?;
        Ok(Self(conn))
    }
}

impl Queue for Plain {
    fn name(&self) -> &'static str {
        "bare rusqlite"
    }

    fn fill(&mut self, prefix: &str, n: u32) -> Result<()> {
        let tx = self.0.transaction()?;
        {
            let mut insert = tx.prepare_cached(
                "INSERT INTO tasks (id, kind, title, prompt, priority, deps, author, trust, ready_at, state, fence, failures,
                                    created_at, updated_at)
                 VALUES (?1, 'batch', 'a task', 'do it', 0, '[]', 'bench', 'operator', 0, 'queued', 0, 0, 1, 1)",
            )?;
            for i in 0..n {
                insert.execute([format!("{prefix}-{i}")])?;
            }
        }
        Ok(tx.commit()?)
    }

    fn work(&mut self, batch: u32, rounds: u32) -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..rounds {
            let ids = self.claim(batch)?;
            let tx = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
            {
                let mut finish = tx.prepare_cached(
                    "UPDATE tasks SET state = 'done', node = NULL, until = NULL, result = 'ok' WHERE id = ?1",
                )?;
                for id in &ids {
                    finish.execute([id])?;
                }
            }
            tx.commit()?;
        }
        Ok(start.elapsed())
    }
}

impl Plain {
    fn claim(&mut self, batch: u32) -> Result<Vec<String>> {
        let tx = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let ids = {
            let mut look = tx.prepare_cached(
                "SELECT id FROM tasks WHERE owner IS NULL AND state IN ('queued', 'leased')
                   AND CASE state WHEN 'queued' THEN ready_at ELSE until END <= 1000
                 ORDER BY priority DESC, created_at, id LIMIT ?1",
            )?;
            let ids = look.query_map([batch], |row| row.get(0))?.collect::<std::result::Result<Vec<String>, _>>()?;
            let mut lease = tx.prepare_cached(
                "UPDATE tasks SET state = 'leased', node = 'bench', until = ?2, fence = fence + 1 WHERE id = ?1",
            )?;
            for id in &ids {
                lease.execute(params![id, 90_000])?;
            }
            ids
        };
        tx.commit()?;
        if ids.len() != batch as usize {
            return Err(format!("{} tasks of {batch} were claimed", ids.len()).into());
        }
        Ok(ids)
    }
}
