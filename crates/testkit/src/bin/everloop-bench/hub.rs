//! What the ledger in PostgreSQL costs next to plain `SKIP LOCKED` with the same client, on a server of our own that syncs
//! every commit.

use std::time::{Duration, Instant};

use everloop_core::ids::{NodeId, TaskId};
use everloop_core::op::{NewTask, Op, Reply, TaskEnd, Trust};
use everloop_core::time::Time;
use everloop_store::postgres::{Clock, Options as HubOptions, Url};
use everloop_store::{Ledger, Postgres};
use everloop_testkit::postgres::{Server, Setup, Sync};
use tokio_postgres::{Client, NoTls, Statement};

use crate::measure::Times;
use crate::report::{Row, heading, ms, remark};
use crate::{Options, Result};

/// Blocks of the two are taken in turns, so that a busy moment of the machine hits both.
const BLOCKS: usize = 5;
/// Finished tasks that a claim has to ignore.
const FINISHED: u32 = 1_000_000;

pub fn run(options: &Options) -> Result<()> {
    let server = Server::start(Setup { sync: Sync::Durable, dir: options.dir.clone(), ..Setup::default() });
    let url = server.database();
    Postgres::init(&Url::parse(&url)?)?;
    let open = || -> Result<Postgres> {
        Ok(Postgres::open(HubOptions { url: Url::parse(&url)?, clock: Clock::Hub, hub: None })?)
    };
    let mut ledger = open()?;
    heading("hub: claim and finish, tasks per second, every batch two synced transactions");
    let mut raw = Raw::open(&url)?;
    for batch in [1, 10, 100] {
        compare(options, &mut ledger, &mut raw, batch)?;
    }
    heading("hub: from queueing a task to another node that holds it");
    visible(options, &mut ledger, &mut open()?)?;
    heading(&format!("hub: a claim among {FINISHED} finished tasks"));
    crowded(options, &server, &mut ledger)
}

fn compare(options: &Options, ledger: &mut Postgres, raw: &mut Raw, batch: u32) -> Result<()> {
    let rounds = options.effort.pick(200, 20).max(2) / if batch == 100 { 4 } else { 1 };
    let (mut ours, mut bare) = (Duration::ZERO, Duration::ZERO);
    for block in 0..BLOCKS {
        enqueue(ledger, &format!("b{batch}-{block}"), batch * rounds)?;
        raw.fill(batch * rounds, &format!("b{batch}-{block}"))?;
        // Plans are made for the tables as they are now, on both sides.
        raw.analyze()?;
        let start = Instant::now();
        for _ in 0..rounds {
            let ids = claim(ledger, batch)?;
            finish(ledger, &ids)?;
        }
        ours += start.elapsed();
        bare += raw.work(batch, rounds)?;
    }
    let total = f64::from(batch * rounds) * BLOCKS as f64;
    let rate = |took: Duration| total / took.as_secs_f64();
    Row::new(format!("batches of {batch}"), format!("{:.0} tasks/s", rate(ours)))
        .floor("plain SKIP LOCKED, prepared", &format!("{:.0} tasks/s", rate(bare)), rate(ours) / rate(bare))
        .goal("≥ 0.80x", rate(ours) >= 0.8 * rate(bare))
        .print();
    let per = |took: Duration| took.as_secs_f64() * 1e3 / (f64::from(rounds) * BLOCKS as f64);
    remark(&format!("claim and finish {:.2} ms, plain {:.2} ms", per(ours), per(bare)));
    Ok(())
}

fn visible(options: &Options, ledger: &mut Postgres, other: &mut Postgres) -> Result<()> {
    let mut all = Vec::new();
    for i in 0..options.effort.pick(200, 20) {
        let start = Instant::now();
        enqueue(ledger, &format!("v{i}"), 1)?;
        let ids = claim(other, 1)?;
        all.push(start.elapsed());
        finish(other, &ids)?;
    }
    let times = Times::new(all)?;
    Row::new("queue, then claim elsewhere", ms(times.median())).print();
    remark(&format!("p99 {}", ms(times.p99())));
    Ok(())
}

fn crowded(options: &Options, server: &Server, ledger: &mut Postgres) -> Result<()> {
    let fill = format!(
        "insert into everloop.tasks select 'f' || i, null, 'batch', '', 'do it', 0, '[]', 'me', 'operator', 0, 'done',
             null, null, 1, 0, 'ok', i, i from generate_series(1, {FINISHED}) i"
    );
    server.psql("test0", &fill);
    server.psql("test0", "vacuum analyze everloop.tasks");
    let rounds = options.effort.pick(1000, 100);
    enqueue(ledger, "c", rounds)?;
    let mut all = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        let ids = claim(ledger, 1)?;
        all.push(start.elapsed());
        finish(ledger, &ids)?;
    }
    let times = Times::new(all)?;
    Row::new("claim of one, median", ms(times.median())).print();
    Row::new("claim of one, p99", ms(times.p99())).print();
    Ok(())
}

fn enqueue(ledger: &mut Postgres, prefix: &str, n: u32) -> Result<()> {
    let task = |i: u32| {
        Op::Enqueue(NewTask {
            id: TaskId::new(format!("{prefix}-{i}")),
            owner: None,
            kind: "batch".to_owned(),
            title: "a task".to_owned(),
            prompt: "do it".to_owned(),
            priority: 0,
            deps: Vec::new(),
            author: "bench".to_owned(),
            trust: Trust::Operator,
            ready_at: Time(0),
        })
    };
    let all: Vec<Op> = (0..n).map(task).collect();
    for chunk in all.chunks(1000) {
        ledger.transact(Time(0), chunk)?;
    }
    Ok(())
}

fn claim(ledger: &mut Postgres, n: u32) -> Result<Vec<Op>> {
    let claim = Op::Claim { node: NodeId::new("bench"), n, owner: None, lease: Duration::from_secs(90) };
    let Some(Reply::Claimed(rows)) = ledger.transact(Time(0), &[claim])?.pop() else { return Err("no claim".into()) };
    if rows.len() != n as usize {
        return Err(format!("{} tasks of {n} were claimed", rows.len()).into());
    }
    let (state, result) = (TaskEnd::Done, "ok".to_owned());
    let finish = |row: everloop_core::op::TaskRow| Op::Finish {
        task: row.task.id,
        fence: row.fence,
        state,
        result: result.clone(),
    };
    Ok(rows.into_iter().map(finish).collect())
}

fn finish(ledger: &mut Postgres, ops: &[Op]) -> Result<()> {
    ledger.transact(Time(0), ops)?;
    Ok(())
}

/// The same table and indexes; prepared statements, no fence, no dependencies, no deadline, nothing read back but ids.
struct Raw {
    runtime: tokio::runtime::Runtime,
    client: Client,
    finish: Statement,
}

impl Raw {
    fn open(url: &str) -> Result<Self> {
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

    fn fill(&mut self, n: u32, prefix: &str) -> Result<()> {
        let sql = format!(
            "insert into raw.tasks select '{prefix}-' || i, null, 'batch', 'a task', 'do it', 0, '[]', 'bench', 'operator', 0,
                 'queued', null, null, 0, 0, null, 1, 1 from generate_series(1, {n}) i"
        );
        Ok(self.runtime.block_on(self.client.batch_execute(&sql))?)
    }

    fn analyze(&mut self) -> Result<()> {
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
