//! Reads of the mirror, and the restoration of a ledger from one.

use everloop_core::ids::{LoopId, TaskId};
use rusqlite::{Connection, Params, Transaction, TransactionBehavior, params};

use super::batch::insert_task;
use super::read::Query;
use super::{Sqlite, chain, sql};
use crate::mirror::{MirrorSource, Rows, TaskMark};
use crate::{Error, Ledger};

/// Open tasks along `tasks_waiting` and `tasks_by_state`, like listings.
const MARKS: Query = Query {
    doing: "look for changed tasks",
    sql: "SELECT id, state, updated_at, fence, failures, coalesce(until, 0) FROM tasks
          WHERE state = ?1 ORDER BY created_at DESC, id DESC LIMIT ?2",
};

impl MirrorSource for Sqlite {
    fn loop_marks(&self) -> Result<Vec<(LoopId, u64)>, Error> {
        let query = Query { doing: "look for changed loops", sql: "SELECT id, version FROM loops" };
        query.all(&self.conn, (), |row| Ok((LoopId::new(row.get::<_, String>(0)?), row.get::<_, i64>(1)? as u64)))
    }

    fn doc_marks(&self) -> Result<Vec<(String, String, u64)>, Error> {
        let query = Query { doing: "look for changed documents", sql: "SELECT kind, key, version FROM docs" };
        query.all(&self.conn, (), |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)? as u64)))
    }

    fn task_marks(&self, completed: usize) -> Result<Vec<TaskMark>, Error> {
        let mut all = Vec::new();
        let completed = i64::try_from(completed).unwrap_or(i64::MAX);
        for (state, limit) in [
            ("queued", i64::MAX),
            ("leased", i64::MAX),
            ("blocked", i64::MAX),
            ("done", completed),
            ("dead", completed),
        ] {
            all.extend(MARKS.all(&self.conn, params![state, limit], |row| {
                Ok(TaskMark::new(row.get(0)?, state, [row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?]))
            })?);
        }
        Ok(all)
    }

    fn late_results_after(&self, number: u64) -> Result<Vec<(u64, TaskId)>, Error> {
        let query =
            Query { doing: "look for late results", sql: "SELECT id, task FROM shelf WHERE id > ?1 ORDER BY id" };
        let after = i64::try_from(number).unwrap_or(i64::MAX);
        query.all(&self.conn, [after], |row| Ok((row.get::<_, i64>(0)? as u64, TaskId::new(row.get::<_, String>(1)?))))
    }
}

impl Sqlite {
    /// Lets `look` see one moment of the ledger, however many reads it makes. Writers do not wait
    /// for that.
    pub fn frozen<T>(&self, look: impl FnOnce(&Self) -> T) -> Result<T, Error> {
        let doing = "read at one moment";
        self.conn.execute_batch("BEGIN").map_err(sql(doing))?;
        let seen = look(self);
        self.conn.execute_batch("COMMIT").map_err(sql(doing))?;
        Ok(seen)
    }

    /// Writes all of `rows` into an empty ledger, in one transaction. False when the ledger is not
    /// empty.
    pub fn restore(&mut self, rows: &Rows) -> Result<bool, Error> {
        let empty = self.last_seq()? == 0 && self.loops()?.is_empty() && self.task_marks(1)?.is_empty();
        if !empty {
            return Ok(false);
        }
        let doing = "begin a transaction";
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql(doing))?;
        tasks(&tx, rows)?;
        states(&tx, rows)?;
        records(&tx, rows)?;
        // A mirror has checksums and no signatures; the chain begins anew.
        if let Some(key) = &self.key {
            chain::sign(&tx, key, &rows.journal)?;
        }
        tx.commit().map_err(sql("commit a transaction"))?;
        Ok(true)
    }
}

fn insert(tx: &Transaction<'_>, text: &str, params: impl Params) -> Result<(), Error> {
    let doing = "give back a row";
    let conn: &Connection = tx;
    conn.prepare_cached(text).and_then(|mut statement| statement.execute(params)).map_err(sql(doing)).map(drop)
}

fn tasks(tx: &Transaction<'_>, rows: &Rows) -> Result<(), Error> {
    for row in &rows.tasks {
        insert_task(tx, row).map_err(sql("give back a task"))?;
    }
    for late in &rows.late_results {
        let text = "INSERT INTO shelf (task, fence, at, result) VALUES (?1, ?2, ?3, ?4)";
        insert(tx, text, params![late.task.as_str(), late.fence.0 as i64, late.at.0, late.result])?;
    }
    Ok(())
}

fn states(tx: &Transaction<'_>, rows: &Rows) -> Result<(), Error> {
    for row in &rows.loops {
        let text = "INSERT INTO loops (id, version, phase, updated_at, state) VALUES (?1, ?2, ?3, ?4, ?5)";
        insert(tx, text, params![row.id.as_str(), row.version as i64, row.phase, row.updated_at.0, row.state])?;
    }
    for (scope, guard) in &rows.guards {
        let state = serde_json::to_string(&guard.state).expect("a guard is plain data and always has a JSON form");
        let text = "INSERT INTO guards (scope, version, state) VALUES (?1, ?2, ?3)";
        insert(tx, text, params![scope.to_string(), guard.version as i64, state])?;
    }
    for (kind, doc) in &rows.docs {
        let text = "INSERT INTO docs (kind, key, version, updated_at, body) VALUES (?1, ?2, ?3, ?4, ?5)";
        insert(tx, text, params![kind, doc.key, doc.version as i64, doc.updated_at.0, doc.body])?;
    }
    if let Some(leader) = &rows.leader {
        let text = "INSERT INTO leader (only, node, epoch, until) VALUES (1, ?1, ?2, ?3)";
        insert(tx, text, params![leader.node.as_str(), leader.term as i64, leader.until.0])?;
    }
    Ok(())
}

fn records(tx: &Transaction<'_>, rows: &Rows) -> Result<(), Error> {
    for m in &rows.messages {
        let text = "INSERT INTO messages (id, at, recipient, sender, body) VALUES (?1, ?2, ?3, ?4, ?5)";
        insert(tx, text, params![m.id as i64, m.at.0, m.to, m.by, m.body])?;
    }
    for t in &rows.tickets {
        let (closed_at, answer) = t.closed.as_ref().map(|(at, answer)| (at.0, answer)).unzip();
        insert(
            tx,
            "INSERT INTO tickets (id, key, owner, text, opened_at, closed_at, answer) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![t.id as i64, t.key, t.owner.as_ref().map(LoopId::as_str), t.text, t.opened_at.0, closed_at, answer],
        )?;
    }
    for r in &rows.journal {
        let text = "INSERT INTO journal (seq, at, owner, version, body, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let owner = r.owner.as_ref().map(LoopId::as_str);
        insert(tx, text, params![r.seq as i64, r.at.0, owner, r.version, r.body, r.sum])?;
    }
    Ok(())
}
