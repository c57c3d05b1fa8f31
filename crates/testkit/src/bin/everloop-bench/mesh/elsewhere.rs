//! A node dies with everything on it: how long until an agent works on its task on another node.
//! Several meshes at once, because nearly all of it is waiting for leases to expire.

use std::path::Path;
use std::time::{Duration, Instant};

use everloop_store::Postgres;
use everloop_store::postgres::Url;
use everloop_testkit::chaos::machine::Machine;
use everloop_testkit::postgres::PostgresServer;

use super::{make, open, seconds, wait};
use crate::measure::Times;
use crate::report::{BenchRow, heading};
use crate::{Options, Result};

/// Longer than all leases and the grace period together.
const WAIT_TIMEOUT: Duration = Duration::from_secs(300);
/// Before the kill: leases and heartbeats were renewed at least once, as in production.
const CALM: Duration = Duration::from_secs(25);
/// Poll interval for the task.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The process that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Node,
    Supervisor,
}

pub fn run(options: &Options, server: &PostgresServer, dir: &Path) -> Result<()> {
    let trials = options.length.pick(3, 1);
    heading(&format!("mesh: a node dies, its task is begun elsewhere, {trials} trials each"));
    let trial = |victim: Victim, number: usize| {
        let dir = dir.join(format!("{victim:?}{number}"));
        one(options, server, (victim, &dir)).map_err(|e| e.to_string())
    };
    let all = [Victim::Node, Victim::Supervisor].into_iter().flat_map(|v| (0..trials).map(move |n| (v, n)));
    let gaps: Vec<(Victim, Duration)> = std::thread::scope(|scope| {
        let threads: Vec<_> = all.map(|(v, n)| (v, scope.spawn(move || trial(v, n)))).collect();
        let join = |(v, thread): (Victim, std::thread::ScopedJoinHandle<'_, _>)| {
            Ok((v, thread.join().expect("a trial does not panic")?))
        };
        threads.into_iter().map(join).collect::<std::result::Result<_, String>>()
    })?;
    for (victim, what, most) in [
        (Victim::Node, "node killed: its task elsewhere, worst", 120),
        (Victim::Supervisor, "supervisor killed: its task, worst", 210),
    ] {
        let times = Times::new(gaps.iter().filter(|(v, _)| *v == victim).map(|(_, gap)| *gap).collect())?;
        let met = times.max() <= Duration::from_secs(most);
        BenchRow::new(what, seconds(times.max())).goal(&format!("<= {most} s"), met).print();
    }
    Ok(())
}

/// Two nodes with a task each, one of them the leader; a third joins, and one of the two is killed.
fn one(options: &Options, server: &PostgresServer, (victim, dir): (Victim, &Path)) -> Result<Duration> {
    let url = server.database();
    Postgres::init(&Url::parse(&url)?)?;
    let make = make(options, dir);
    let sender = Machine::sender(&make, &url);
    let calls = dir.join("calls");
    let script = format!("echo $PWD >>'{}'\nsleep 1000\n", calls.display());
    std::fs::write(dir.join("agent.sh"), script)?;
    for args in [&["init", "-q", "-b", "main"][..], &["commit", "-q", "--allow-empty", "-m", "first"]] {
        sender.git(args);
    }
    sender.git(&["clone", "-q", "--bare", ".", "../shared.git"]);
    sender.git(&["remote", "add", "origin", "../shared.git"]);
    let mut nodes: Vec<Machine> = (1..=3).map(|i| Machine::plain(&make, &format!("n{i}"), &url)).collect();
    nodes.iter().for_each(Machine::trust_all);
    nodes[0].start();
    let hub = open(&url)?;
    wait(&hub, |leader| leader.node == nodes[0].name)?;
    nodes[1].start();
    let agent = format!("sh {}", dir.join("agent.sh").display());
    let run = ["run", "x", "--mesh", "--detach", "--min-gap=0", "--check", "test -f a", "--check", "test -f b"];
    std::fs::write(&calls, "")?;
    let writable = calls.display().to_string();
    sender.everloop(&[&run[..], &["--agent-cmd", &agent, "--writable", &writable]].concat());
    let works = |node: &Machine| {
        let text = std::fs::read_to_string(&calls).unwrap_or_default();
        text.lines().any(|line| Path::new(line).starts_with(node.state()))
    };
    until(|| works(&nodes[0]) && works(&nodes[1]))?;
    nodes[2].start();
    std::thread::sleep(CALM);
    wait(&hub, |leader| leader.node == nodes[0].name)?;
    let start = Instant::now();
    let victim = match victim {
        Victim::Supervisor => 0,
        Victim::Node => 1,
    };
    nodes[victim].pull_the_plug();
    until(|| works(&nodes[2]))?;
    Ok(start.elapsed())
}

fn until(holds: impl Fn() -> bool) -> Result<()> {
    let end = Instant::now() + WAIT_TIMEOUT;
    while !holds() {
        if Instant::now() >= end {
            return Err("timed out waiting for the mesh".into());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
