//! The cost of the ledger beside plain SQL with the same client, on a private PostgreSQL and in
//! SQLite, both of which sync every commit; how soon a task is known to another node; and the load
//! that a hub bears.
//!
//! `hub/race.rs` compares two queues, `hub/postgres.rs` and `hub/sqlite.rs` are the queues,
//! `hub/wake.rs` measures the way from one node to another, `hub/nodes.rs` many idle nodes,
//! `hub/peers.rs` other programs.

mod nodes;
mod peers;
mod postgres;
mod race;
mod sqlite;
mod wake;

use std::time::Instant;

use everloop_store::Postgres;
use everloop_store::postgres::{HubClock, HubOptions, Url};
use everloop_testkit::postgres::{PostgresServer, ServerSetup, Sync};

use crate::measure::Times;
use crate::report::{BenchRow, heading, ms};
use crate::{Options, Result};
use race::{Ours, claim, enqueue};

/// Finished tasks that a claim has to skip.
const FINISHED: u32 = 1_000_000;
/// Bound of a claim among them.
const CROWDED_MS: u128 = 50;

pub fn run(options: &Options) -> Result<()> {
    let server =
        PostgresServer::start(ServerSetup { sync: Sync::Durable, dir: options.dir.clone(), ..ServerSetup::default() });
    let url = server.database();
    heading("hub: claim and finish, tasks per second, every batch two synced transactions");
    let mut ours = Ours(made(&url)?);
    let mut plain = postgres::PlainQueue::open(&url)?;
    for batch in race::BATCHES {
        race::run(options, (&mut ours, &mut plain), batch)?;
    }
    if options.peers {
        peers::run(options, &server)?;
    }
    heading("SQLite: the same, next to bare rusqlite");
    sqlite::run(options)?;
    heading("from queueing a task to the lease of a waiting node");
    wake::run(options, &url)?;
    heading(&format!("hub: {} idle nodes", nodes::NODES));
    nodes::run(options, &server, &url)?;
    heading(&format!("hub: a claim among {FINISHED} finished tasks"));
    crowded(options, &server, &mut ours.0)
}

/// Initialises a hub at `url`.
fn made(url: &str) -> Result<Postgres> {
    Postgres::init(&Url::parse(url)?)?;
    open(url)
}

/// The ledger at `url`.
fn open(url: &str) -> Result<Postgres> {
    Ok(Postgres::open(HubOptions { url: Url::parse(url)?, clock: HubClock::Hub, hub: None })?)
}

fn crowded(options: &Options, server: &PostgresServer, ledger: &mut Postgres) -> Result<()> {
    let fill = format!(
        "insert into everloop.tasks select 'f' || i, null, 'batch', '', 'do it', 0, '[]', 'me', 'operator', 0, 'done',
             null, null, 1, 0, 'ok', i, i from generate_series(1, {FINISHED}) i"
    );
    server.psql("test0", &fill);
    server.psql("test0", "vacuum analyze everloop.tasks");
    let rounds = options.length.pick(1000, 100);
    enqueue(ledger, "c", rounds)?;
    let mut all = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        let ops = claim(ledger, 1)?;
        all.push(start.elapsed());
        race::finish(ledger, &ops)?;
    }
    let times = Times::new(all)?;
    BenchRow::new("claim of one, median", ms(times.median())).print();
    BenchRow::new("claim of one, p99", ms(times.p99())).goal("< 50 ms", times.p99().as_millis() < CROWDED_MS).print();
    Ok(())
}
