//! The leader's regular reads from the hub: only what changed, and only what is stale. Of hundreds
//! of finished loops in a hub, it reads just their names.

use everloop_core::op::TaskRow;
use everloop_core::time::Time;
use tokio_postgres::Row;

use super::connection::Statement;
use super::{Postgres, columns, mirror};
use crate::Error;
use crate::rows::DocRow;

impl Postgres {
    /// The hub's clock.
    pub fn clock(&self) -> Result<Time, Error> {
        let sql = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now";
        let read = |row: &Row| columns::time(row, "now").map_err(columns::shape("the clock"));
        Ok(self.one(Statement::new("read the hub's clock", sql), read)?.unwrap_or_default())
    }

    /// Every document of a kind and its version, by key: shows which of them changed, without their
    /// bodies.
    pub fn doc_versions(&self, kind: &str) -> Result<Vec<(String, u64)>, Error> {
        let sql = "SELECT key AS id, version FROM everloop.docs WHERE kind = $1 ORDER BY key";
        self.all(Statement::new("look for changed documents", sql).text(kind), mirror::pair)
    }

    /// These documents of a kind, by key; missing ones are left out.
    pub fn docs_named(&self, kind: &str, keys: &[String]) -> Result<Vec<DocRow>, Error> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let sql = "SELECT * FROM everloop.docs WHERE kind = $1 AND key = ANY($2) ORDER BY key";
        self.all(Statement::new("read documents", sql).text(kind).texts(keys), columns::doc)
    }

    /// Tasks of loops that are queued unchanged since `queued`, and tasks with a lease that ended
    /// before `leased`: of each the oldest, `limit` at most.
    pub fn resting(&self, queued: Time, leased: Time, limit: usize) -> Result<Vec<TaskRow>, Error> {
        let sql = format!(
            "(SELECT * FROM everloop.tasks WHERE state = 'queued' AND owner IS NOT NULL AND updated_at <= $1
              ORDER BY created_at, id LIMIT {limit})
             UNION ALL
             (SELECT * FROM everloop.tasks WHERE state = 'leased' AND until <= $2 ORDER BY created_at, id LIMIT {limit})"
        );
        let statement = Statement::new("look for tasks that rest", sql).number(queued.0).number(leased.0);
        self.all(statement, columns::task)
    }
}
