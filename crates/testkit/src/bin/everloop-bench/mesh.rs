//! How long a mesh of three nodes is without a supervisor: when the one there was is killed, and when it goes by itself.
//! Real processes, a real hub, the leases of real life.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use everloop_core::ids::NodeId;
use everloop_store::postgres::{Clock, Options as HubOptions, Url};
use everloop_store::{Leader, Ledger, Postgres};
use everloop_testkit::postgres::{Server, Setup, Sync};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::measure::Times;
use crate::report::{Row, heading};
use crate::scene::{Project, Scene};
use crate::{Options, Result};

/// Longer than any lease.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn run(options: &Options) -> Result<()> {
    let server = Server::start(Setup { sync: Sync::Durable, dir: options.dir.clone(), ..Setup::default() });
    let url = server.database();
    Postgres::init(&Url::parse(&url)?)?;
    let hub = Postgres::open(HubOptions { url: Url::parse(&url)?, clock: Clock::Hub, hub: None })?;
    let mut nodes = (1..=3).map(|i| Node::new(options, &format!("n{i}"), &url)).collect::<Result<Vec<_>>>()?;
    let (kills, ends) = (options.effort.pick(20, 3), options.effort.pick(10, 3));
    heading(&format!("mesh: three nodes without their supervisor, {kills} kills and {ends} clean ends"));
    let mut gaps = Vec::new();
    for _ in 0..kills {
        gaps.push(without(&hub, &mut nodes, Signal::SIGKILL)?);
    }
    let gaps = Times::new(gaps)?;
    Row::new("killed: until another supervises, median", seconds(gaps.median()))
        .goal("<= 16 s", gaps.median() <= Duration::from_secs(16))
        .print();
    Row::new("killed: worst", seconds(gaps.max())).goal("<= 22 s", gaps.max() <= Duration::from_secs(22)).print();
    let mut gaps = Vec::new();
    for _ in 0..ends {
        gaps.push(without(&hub, &mut nodes, Signal::SIGTERM)?);
    }
    let gaps = Times::new(gaps)?;
    Row::new("`everloop down`: median", seconds(gaps.median())).print();
    Row::new("`everloop down`: worst", seconds(gaps.max()))
        .goal("<= 2 s", gaps.max() <= Duration::from_secs(2))
        .print();
    Ok(())
}

/// Ends whoever supervises, and measures until somebody else does.
fn without(hub: &Postgres, nodes: &mut [Node], signal: Signal) -> Result<Duration> {
    let before = wait(hub, |leader| nodes.iter().any(|node| node.name == leader.node))?;
    // All others have to be there, and between two of their questions, as in real life.
    std::thread::sleep(Duration::from_secs(6));
    let victim = nodes.iter_mut().find(|node| node.name == before.node).ok_or("the supervisor is one of ours")?;
    let start = Instant::now();
    kill(Pid::from_raw(victim.up.id().cast_signed()), signal)?;
    wait(hub, |leader| leader.epoch > before.epoch && leader.node != before.node)?;
    let gap = start.elapsed();
    victim.up.wait()?;
    victim.up = Node::start(&victim.scene)?;
    Ok(gap)
}

fn wait(hub: &Postgres, fits: impl Fn(&Leader) -> bool) -> Result<Leader> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some(leader) = hub.leader()?.filter(|leader| fits(leader)) {
            return Ok(leader);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err("nobody supervises".into())
}

/// A machine.
struct Node {
    name: NodeId,
    scene: Scene,
    up: Child,
}

impl Node {
    fn new(options: &Options, name: &str, url: &str) -> Result<Self> {
        let scene = Scene::new(options, Project::Plain)?;
        scene.finish(&["join", url, "--name", name], 0)?;
        let up = Self::start(&scene)?;
        Ok(Self { name: NodeId::new(name), scene, up })
    }

    fn start(scene: &Scene) -> Result<Child> {
        Ok(scene.everloop(&["up", "--listen", "off"]).stdin(Stdio::null()).spawn()?)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // An error means that it is gone already.
        self.up.kill().ok();
        self.up.wait().ok();
    }
}

fn seconds(d: Duration) -> String {
    format!("{:.2} s", d.as_secs_f64())
}
