//! Removes what is no longer needed: loops that are over, and old documents. The journal keeps its
//! records; only SQLite has this, because a hub is shared.

use everloop_core::event::Event;
use everloop_core::guard::Scope;
use everloop_core::ids::LoopId;
use everloop_core::time::Time;
use rusqlite::params;

use super::batch::Batch;
use super::{Sqlite, read, sql};
use crate::Error;

impl Sqlite {
    /// Removes a loop that is over, with its tasks, their late results and its guard, and notes that
    /// in the journal, in one transaction. False when there is no such loop, or it is not over.
    pub fn forget(&mut self, now: Time, id: &LoopId) -> Result<bool, Error> {
        let batch = Batch::begin(&mut self.conn, self.key.as_ref(), now)?;
        let over = read::get_loop(&batch.tx, id)?.is_some_and(|row| row.is_over());
        if !over {
            return Ok(false);
        }
        let (doing, name) = ("forget a loop", id.as_str());
        batch.append(Some(id), &[Event::Forgotten])?;
        let tasks = "DELETE FROM shelf WHERE task IN (SELECT id FROM tasks WHERE owner = ?1)";
        batch.write(doing, tasks, params![name])?;
        batch.write(doing, "DELETE FROM tasks WHERE owner = ?1", params![name])?;
        batch.write(doing, "DELETE FROM guards WHERE scope = ?1", params![Scope::Loop(id.clone()).to_string()])?;
        batch.write(doing, "DELETE FROM loops WHERE id = ?1", params![name])?;
        batch.tx.commit().map_err(sql("commit a transaction"))?;
        Ok(true)
    }

    /// Removes a document that was not written since `before`. False when it was, or is not there.
    pub fn prune_doc(&mut self, kind: &str, key: &str, before: Time) -> Result<bool, Error> {
        let text = "DELETE FROM docs WHERE kind = ?1 AND key = ?2 AND updated_at < ?3";
        let gone = self.conn.execute(text, params![kind, key, before.0]).map_err(sql("remove a document"))?;
        Ok(gone > 0)
    }
}
