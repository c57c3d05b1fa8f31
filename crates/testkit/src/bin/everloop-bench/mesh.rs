//! How long a mesh of three nodes is without a leader, when it is killed and when it shuts down,
//! and how long it takes until another node begins the task of a dead one. Real processes, a real
//! hub, production leases.

mod elsewhere;

use std::path::Path;
use std::time::{Duration, Instant};

use everloop_store::postgres::{HubClock, HubOptions, Url};
use everloop_store::{Leader, Ledger, Postgres};
use everloop_testkit::chaos::machine::{Machine, Make};
use everloop_testkit::postgres::{PostgresServer, ServerSetup, Sync};
use nix::sys::signal::Signal;

use crate::measure::Times;
use crate::report::{BenchRow, heading};
use crate::{Options, Result};

/// Longer than any lease.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Bound of a clean shutdown of a node.
const FAREWELL: Duration = Duration::from_secs(20);

pub fn run(options: &Options) -> Result<()> {
    let server =
        PostgresServer::start(ServerSetup { sync: Sync::Durable, dir: options.dir.clone(), ..ServerSetup::default() });
    let root = tempfile::Builder::new().prefix("everloop-bench.").tempdir_in(&options.dir)?;
    failover(options, &server, &root.path().join("failover"))?;
    elsewhere::run(options, &server, root.path())
}

fn make(options: &Options, dir: &Path) -> Make {
    Make { everloop: options.everloop.clone(), dir: dir.to_owned(), time_scale: 1 }
}

fn open(url: &str) -> Result<Postgres> {
    Ok(Postgres::open(HubOptions { url: Url::parse(url)?, clock: HubClock::Hub, hub: None })?)
}

fn failover(options: &Options, server: &PostgresServer, dir: &Path) -> Result<()> {
    let url = server.database();
    Postgres::init(&Url::parse(&url)?)?;
    let (hub, make) = (open(&url)?, make(options, dir));
    let mut nodes: Vec<Machine> = (1..=3).map(|i| Machine::plain(&make, &format!("n{i}"), &url)).collect();
    nodes.iter_mut().for_each(Machine::start);
    let trials = options.length.pick(20, 3);
    heading(&format!("mesh: three nodes without a leader, {trials} kills and {trials} clean ends"));
    let gaps = (0..trials).map(|_| without(&hub, &mut nodes, Signal::SIGKILL)).collect::<Result<Vec<_>>>()?;
    let gaps = Times::new(gaps)?;
    BenchRow::new("killed: until there is another leader, median", seconds(gaps.median()))
        .goal("<= 16 s", gaps.median() <= Duration::from_secs(16))
        .print();
    BenchRow::new("killed: worst", seconds(gaps.max())).goal("<= 22 s", gaps.max() <= Duration::from_secs(22)).print();
    let gaps = (0..trials).map(|_| without(&hub, &mut nodes, Signal::SIGTERM)).collect::<Result<Vec<_>>>()?;
    let gaps = Times::new(gaps)?;
    BenchRow::new("`everloop down`: median", seconds(gaps.median())).print();
    BenchRow::new("`everloop down`: worst", seconds(gaps.max()))
        .goal("<= 2 s", gaps.max() <= Duration::from_secs(2))
        .print();
    Ok(())
}

/// Ends the leader, and measures until another node leads.
fn without(hub: &Postgres, nodes: &mut [Machine], signal: Signal) -> Result<Duration> {
    let before = wait(hub, |leader| nodes.iter().any(|node| node.name == leader.node))?;
    // All other nodes have to be up, and between two of their polls, as in production.
    std::thread::sleep(Duration::from_secs(6));
    let victim = nodes.iter_mut().find(|node| node.name == before.node).ok_or("the leader is one of the nodes")?;
    let start = Instant::now();
    victim.signal(signal);
    wait(hub, |leader| leader.term > before.term && leader.node != before.node)?;
    let gap = start.elapsed();
    if !victim.is_gone(FAREWELL) {
        return Err("a node does not shut down".into());
    }
    victim.start();
    Ok(gap)
}

fn wait(hub: &Postgres, fits: impl Fn(&Leader) -> bool) -> Result<Leader> {
    let end = Instant::now() + WAIT_TIMEOUT;
    while Instant::now() < end {
        if let Some(leader) = hub.leader()?.filter(|leader| fits(leader)) {
            return Ok(leader);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err("there is no leader".into())
}

fn seconds(d: Duration) -> String {
    format!("{:.2} s", d.as_secs_f64())
}
