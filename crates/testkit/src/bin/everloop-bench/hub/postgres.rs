//! Plain `SKIP LOCKED` in PostgreSQL: the same table and indexes; prepared statements, no fence, no
//! dependencies, no deadline, nothing read back but ids.

use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls, Statement};

use super::race::Queue;
use crate::Result;

/// A hand-written queue over one `SKIP LOCKED` table.
pub struct PlainQueue {
    runtime: Runtime,
    client: Client,
    finish: Statement,
}

impl PlainQueue {
    pub fn open(url: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (client, finish) = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            client
                .batch_execute("create schema raw; create table raw.tasks (like everloop.tasks including all)")
                .await?;
            let finish =
                "update raw.tasks set state = 'done', node = null, until = null, result = 'ok' where id = any($1)";
            let finish = client.prepare(finish).await?;
            Ok::<_, tokio_postgres::Error>((client, finish))
        })?;
        Ok(Self { runtime, client, finish })
    }
}

impl Queue for PlainQueue {
    fn name(&self) -> &'static str {
        "plain SKIP LOCKED, prepared"
    }

    fn fill(&mut self, prefix: &str, n: u32) -> Result<()> {
        let sql = format!(
            "insert into raw.tasks select '{prefix}-' || i, null, 'batch', 'a task', 'do it', 0, '[]', 'bench', 'operator', 0,
                 'queued', null, null, 0, 0, null, 1, 1 from generate_series(1, {n}) i"
        );
        self.runtime.block_on(self.client.batch_execute(&sql))?;
        // Plans are made for the tables as they are now, on both sides.
        Ok(self.runtime.block_on(self.client.batch_execute("analyze everloop.tasks; analyze raw.tasks"))?)
    }

    fn work(&mut self, batch: u32, rounds: u32) -> Result<Duration> {
        let sql = format!(
            "update raw.tasks set state = 'leased', node = 'bench', until = 90000, fence = fence + 1
             where id = any(array(select id from raw.tasks where owner is null and state in ('queued', 'leased')
                                  and case state when 'queued' then ready_at else until end <= 1000
                                  order by priority desc, created_at, id limit {batch} for update skip locked))
             returning id"
        );
        self.runtime.block_on(async {
            let claim = self.client.prepare(&sql).await?;
            let start = Instant::now();
            for _ in 0..rounds {
                let rows = self.client.query(&claim, &[]).await?;
                let ids: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
                self.client.execute(&self.finish, &[&ids]).await?;
            }
            Ok(start.elapsed())
        })
    }
}
