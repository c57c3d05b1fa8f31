//! Many idle nodes, and what they cost the hub. A few connections simulate them; each sends the
//! queries of a real one (`supervisor/mesh/node.rs`), at its own times.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use everloop_core::ids::NodeId;
use everloop_core::jitter;
use everloop_core::op::Op;
use everloop_core::time::Time;
use everloop_store::{Ledger, Postgres};
use everloop_testkit::postgres::PostgresServer;

use crate::measure::usage;
use crate::report::{BenchRow, remark};
use crate::{Options, Result};

pub const NODES: u32 = 1000;
/// Connections that simulate them.
const PLAYERS: u32 = 20;
/// The status document of a node.
const INFO: &str = r#"{"version":"0.1.0","pid":4711,"holds":[],"leads":false,"draining":false,"next_beat":1}"#;
/// Interval between two heartbeats.
const BEAT: Duration = Duration::from_secs(5);
/// Goal, as a share of one core.
const MOST: f64 = 0.10;

pub fn run(options: &Options, server: &PostgresServer, url: &str) -> Result<()> {
    // The state a minute after the last work: autovacuum has run.
    server.psql("test0", "vacuum analyze");
    let players = (0..PLAYERS).map(|_| super::open(url)).collect::<Result<Vec<_>>>()?;
    let measured = options.length.pick(Duration::from_secs(20), Duration::from_secs(6));
    let asked = AtomicU64::new(0);
    // Every node beats once before: statements are prepared, rows exist.
    let warm = Instant::now() + BEAT.mul_f64(1.2);
    let end = warm + measured;
    let mut leader = super::open(url)?;
    let elect = Op::Elect { node: NodeId::new("leader"), lease: Duration::from_secs(15) };
    leader.transact(Time(0), &[elect])?;
    let used = std::thread::scope(|scope| {
        let leading = scope.spawn(move || lead(leader, end).map_err(|e| e.to_string()));
        let playing = players.into_iter().enumerate().map(|(i, hub)| {
            let asked = &asked;
            scope.spawn(move || play(hub, i, end, asked).map_err(|e| e.to_string()))
        });
        let playing: Vec<_> = std::iter::once(leading).chain(playing).collect();
        std::thread::sleep(warm.saturating_duration_since(Instant::now()));
        let before = (cpu(server.pid())?, asked.load(Ordering::Relaxed));
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        let after = (cpu(server.pid())?, asked.load(Ordering::Relaxed));
        for player in playing {
            player.join().map_err(|_| "a connection thread panicked")??;
        }
        Ok::<_, Box<dyn std::error::Error>>((after.0.saturating_sub(before.0), after.1 - before.1))
    })?;
    let share = used.0.as_secs_f64() / measured.as_secs_f64();
    BenchRow::new("CPU of all its processes", format!("{:.1} % of a core", share * 100.0))
        .goal("< 10 %", share < MOST)
        .print();
    let each = used.0.as_secs_f64() * 1e6 / used.1.max(1) as f64;
    remark(&format!("{:.0} calls per second, {each:.0} µs each", used.1 as f64 / measured.as_secs_f64()));
    Ok(())
}

/// One connection simulates its share of the nodes, one after the other, each at its time.
fn play(mut hub: Postgres, player: usize, end: Instant, asked: &AtomicU64) -> Result<()> {
    let start = Instant::now();
    let mut due: Vec<(Duration, u32)> = Vec::new();
    for node in 0..NODES / PLAYERS {
        let seed = u64::from(node) << 32 | player as u64;
        due.push((jitter::between(Duration::ZERO, BEAT, seed), node));
    }
    let mut seed = player as u64;
    loop {
        due.sort();
        let (at, node) = due[0];
        if start + at > end {
            return Ok(());
        }
        std::thread::sleep((start + at).saturating_duration_since(Instant::now()));
        let heard = hub.beat(Time(0), &NodeId::new(format!("n{player}-{node}")), INFO)?;
        // There is a leader, so no other node campaigns; no task is free, so none is listed.
        if heard.waiting || heard.led_until.is_none_or(|until| until <= heard.at) {
            return Err("these nodes should have nothing to do".into());
        }
        asked.fetch_add(1, Ordering::Relaxed);
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        due[0].0 = at + jitter::between(BEAT.mul_f64(0.9), BEAT.mul_f64(1.1), seed);
    }
}

/// One node is the leader, and renews its lease as often as a real one does.
fn lead(mut hub: Postgres, end: Instant) -> Result<()> {
    while Instant::now() < end {
        hub.transact(Time(0), &[Op::Elect { node: NodeId::new("leader"), lease: Duration::from_secs(15) }])?;
        hub.docs("mesh")?;
        std::thread::sleep(Duration::from_secs(1).min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// CPU of a server and all its processes so far.
fn cpu(pid: u32) -> Result<Duration> {
    let mut sum = usage(pid)?.cpu + ended(pid)?;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if parent(&entry.path()) == Some(pid) {
            // A process that ends right now is counted by its parent.
            sum += usage(child).map(|used| used.cpu).unwrap_or_default();
        }
    }
    Ok(sum)
}

fn parent(proc: &Path) -> Option<u32> {
    stat(proc).get(1)?.parse().ok()
}

/// CPU of children that ended, in the kernel's steps of 10 ms.
fn ended(pid: u32) -> Result<Duration> {
    let fields = stat(&Path::new("/proc").join(pid.to_string()));
    let ticks = |n: usize| fields.get(n).and_then(|field| field.parse::<u64>().ok()).ok_or("no such process");
    Ok(Duration::from_millis((ticks(13)? + ticks(14)?) * 10))
}

/// The fields after the program's name, which may contain anything: state, parent, …
fn stat(proc: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(proc.join("stat")).unwrap_or_default();
    let fields = text.rsplit_once(") ").map_or("", |(_, fields)| fields);
    fields.split(' ').map(str::to_owned).collect()
}
