//! A real mesh under faults: three nodes as processes, each in a network of its own, a real
//! PostgreSQL that each of them reaches through a proxy of its own, a git remote, scripted agents.
//! Faults are drawn from a seed; then everything is healed and the invariants are checked: nothing
//! lost, nothing counted twice, nothing left behind, and no long stall while a node could work.
//!
//! - [`net`]: networks with cables that can be pulled; [`machine`]: a state folder and its
//!   processes
//! - [`faults`]: which fault strikes when; [`watch`]: progress; [`proof`]: the invariants at the
//!   end
//! - [`outage`]: the same mesh without its hub for some minutes
//!
//! Has to run inside of a private network namespace, see [`crate::offline`].

pub mod faults;
pub mod machine;
pub mod net;
pub mod outage;
pub mod proof;
pub mod watch;

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use everloop_store::postgres::{HubClock, HubOptions, Url};
use everloop_store::{Ledger, Postgres};

use crate::postgres::{PostgresServer, ServerSetup};
use faults::FaultSchedule;
use machine::{Machine, Make};
use proof::Proof;
use watch::{ChaosWatch, HubSnapshot};

/// Step of the fault injection.
const TICK: Duration = Duration::from_millis(50);
/// Poll interval for the hub.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Nodes in the mesh.
const MACHINES: u8 = 3;
/// A healthy mesh ends its work within this, with production leases: those of dead nodes expire
/// first.
const END_WITHIN: Duration = Duration::from_secs(900);
/// The longest time without progress while a node could work.
pub const STALL: Duration = Duration::from_secs(30);

/// Configuration of a run.
#[derive(Clone, Debug)]
pub struct ChaosOptions {
    pub everloop: PathBuf,
    /// Where folders are created.
    pub dir: PathBuf,
    /// Seed of the faults.
    pub seed: u64,
    /// How long faults are injected.
    pub length: Duration,
    /// The least number of tasks to create.
    pub tasks: u32,
    /// Checks of one loop.
    pub checks: u32,
    /// Factor by which leases run faster than in production.
    pub time_scale: u32,
    /// Receives progress messages.
    pub tell: fn(&str),
}

/// The result of a run.
#[derive(Debug)]
pub struct ChaosReport {
    /// The invariants and their violations.
    pub proof: Proof,
    /// Restarts of killed nodes.
    pub restarts: u32,
    /// Faults that struck, by kind.
    pub faults: Vec<(String, u32)>,
    /// The longest time without progress although it was possible.
    pub stall: Duration,
    /// When that ended, from the beginning.
    pub stall_at: Duration,
    /// How long progress was possible.
    pub able: Duration,
    /// How long it took in all.
    pub took: Duration,
}

impl ChaosReport {
    /// The violated invariants.
    pub fn violations(&self) -> Vec<String> {
        let mut all = self.proof.violations.clone();
        let faults: u32 = self.faults.iter().map(|(_, times)| times).sum();
        // An agent's result counts, or is among the late results, or its node was struck during the
        // work: each node runs one agent at a time.
        let (calls, kept) = (self.proof.calls, self.proof.landed + self.proof.late_result);
        if calls > kept + faults as usize {
            all.push(format!("{calls} calls of agents, {kept} results and {faults} faults"));
        }
        if self.stall > STALL {
            all.push(format!("nothing moved for {:.1} s though it could", self.stall.as_secs_f64()));
        }
        all
    }
}

impl fmt::Display for ChaosReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: u32 = self.faults.iter().map(|(_, times)| times).sum();
        let faults: Vec<String> = self.faults.iter().map(|(fault, times)| format!("{fault} {times}")).collect();
        writeln!(f, "faults        {total}: {}", faults.join(", "))?;
        writeln!(f, "restarts      {} of nodes", self.restarts)?;
        write!(f, "{}", self.proof)?;
        let [stall, at, able, took] = [self.stall, self.stall_at, self.able, self.took].map(|d| d.as_secs_f64());
        writeln!(f, "longest stall {stall:.1} s, at {at:.0} s; the hub and a healthy node were there for {able:.0} s")?;
        writeln!(f, "time          {took:.0} s")?;
        for violation in self.violations() {
            writeln!(f, "VIOLATION     {violation}")?;
        }
        Ok(())
    }
}

/// A mesh and the person's machine.
pub struct ChaosMesh {
    sender: Machine,
    machines: Vec<Machine>,
    hub: PostgresServer,
    url: String,
    loops: u32,
    checks: u32,
}

impl ChaosMesh {
    /// Starts all of it; agents work for at most this many seconds.
    pub fn new(options: &ChaosOptions, seconds: u32) -> Self {
        net::lay_out();
        let hub = PostgresServer::start(ServerSetup { dir: options.dir.clone(), ..ServerSetup::default() });
        let url = hub.database();
        let make =
            Make { everloop: options.everloop.clone(), dir: options.dir.clone(), time_scale: options.time_scale };
        let sender = Machine::sender(&make, &url);
        sender.git(&["init", "-q", "-b", "main"]);
        std::fs::write(sender.path("project/README"), "a project\n").expect("the folder is ours");
        sender.git(&["add", "-A"]);
        sender.git(&["commit", "-q", "-m", "first"]);
        sender.git(&["clone", "-q", "--bare", ".", "../shared.git"]);
        sender.git(&["remote", "add", "origin", "../shared.git"]);
        std::fs::write(sender.path("agent.sh"), agent(&sender.path("calls"), seconds)).expect("the folder is ours");
        std::fs::write(sender.path("calls"), "").expect("the folder is ours");
        let mut machines: Vec<Machine> =
            (1..=MACHINES).map(|number| Machine::node(&make, number, (&url, hub.port()))).collect();
        machines.iter().for_each(Machine::trust_all);
        machines.iter_mut().for_each(Machine::start);
        Self { sender, machines, hub, url, loops: 0, checks: options.checks }
    }

    /// A connection to the hub past all proxies.
    fn open(&self) -> Option<Postgres> {
        let url = Url::parse(&self.url).expect("our own address");
        Postgres::open(HubOptions { url, clock: HubClock::Hub, hub: None }).ok()
    }

    /// Adds one more loop to the mesh: a check for each of its files.
    fn add_loop(&mut self) {
        let command = format!("sh {}", self.sender.path("agent.sh").display());
        let checks: Vec<String> =
            (0..self.checks).map(|check| format!("test -f {}", file(self.loops, check))).collect();
        let width = self.checks.to_string();
        let calls = self.sender.path("calls").display().to_string();
        let mut args = vec!["run", "write them all", "--mesh", "--detach", "--min-gap=0", "--width", &width];
        // The same goal as the loop before, but a new loop.
        args.extend(["--new", "--agent-cmd", &command, "--writable", &calls]);
        for check in &checks {
            args.extend(["--check", check]);
        }
        self.sender.everloop(&args);
        self.loops += 1;
    }

    fn supervisor(&self, hub: &Postgres) -> Option<usize> {
        let leader = hub.leader().ok()??;
        self.machines.iter().position(|machine| machine.name == leader.node)
    }

    /// The last log lines of all nodes.
    fn last_words(&self) -> String {
        let words = |machine: &Machine| format!("--- {}\n{}\n", machine.name, machine.last_words(60));
        self.machines.iter().map(words).collect()
    }
}

/// The file that a check of a loop expects.
fn file(number: u32, check: u32) -> String {
    format!("done/{number}x{check}")
}

/// The agent's script: records its call, waits, and writes the file that the check of its task
/// expects.
fn agent(calls: &std::path::Path, seconds: u32) -> String {
    format!(
        r#"file=$(sed -n 's/^Make the check .*\(done\/[a-z0-9]*\).*/\1/p' "$EVERLOOP_PROMPT_FILE" | head -1)
echo "$(date +%s%3N) $file $PWD" >>'{calls}'
sleep $(($$ % {seconds} + 1))
mkdir -p done && echo "$EVERLOOP_TURN" >"$file"
"#,
        calls = calls.display()
    )
}

/// Injects faults into a mesh, heals it, waits for its end, and checks the invariants.
pub fn run(options: &ChaosOptions) -> ChaosReport {
    let began = Instant::now();
    let mut fleet = ChaosMesh::new(options, 3);
    fleet.add_loop();
    let mut faults = FaultSchedule::new(options.seed, options.time_scale);
    let mut eye = Eye { hub: None, watch: ChaosWatch::new(), look_at: began, supervisor: None };
    let tell = |line: &str| (options.tell)(&format!("{:>7.1} s  {line}", began.elapsed().as_secs_f64()));
    // When fewer tasks wait, the next loop is created: there is work nearly all the time.
    let backlog = options.checks as usize * 3 / 5;
    let end = Instant::now() + options.length;
    while Instant::now() < end {
        faults.pass(&mut fleet.machines, &mut fleet.hub, eye.supervisor).iter().for_each(|line| tell(line));
        if eye.look(&fleet, &faults).is_some_and(|sight| sight.is_hungry(backlog)) {
            fleet.add_loop();
        }
        std::thread::sleep(TICK);
    }
    faults.clear(&mut fleet.machines, &mut fleet.hub);
    tell("the faults are over");
    let healed = Instant::now();
    while healed.elapsed() < END_WITHIN {
        if let Some(sight) = eye.look(&fleet, &faults) {
            if fleet.loops * options.checks < options.tasks && sight.is_hungry(backlog) {
                fleet.add_loop();
            } else if sight.is_over() {
                break;
            }
        }
        std::thread::sleep(TICK);
    }
    let restarts = fleet.machines.iter().map(|machine| machine.starts - 1).sum();
    let faults = faults.struck.iter().map(|(fault, times)| (format!("{fault:?}"), *times)).collect();
    let (stall, stall_at, able) = (eye.watch.longest, eye.watch.longest_at - began, eye.watch.able);
    let proof = Proof::new(&mut fleet);
    if !proof.violations.is_empty() {
        tell(&fleet.last_words());
    }
    ChaosReport { proof, restarts, faults, stall, stall_at, able, took: began.elapsed() }
}

/// Polls the hub now and then, past all proxies.
struct Eye {
    hub: Option<Postgres>,
    watch: ChaosWatch,
    look_at: Instant,
    supervisor: Option<usize>,
}

impl Eye {
    /// A snapshot of the hub, when it is due.
    fn look(&mut self, fleet: &ChaosMesh, faults: &FaultSchedule) -> Option<HubSnapshot> {
        if Instant::now() < self.look_at {
            return None;
        }
        self.look_at = Instant::now() + POLL_INTERVAL;
        if !faults.hub_is_there() {
            self.watch.pause();
            return None;
        }
        self.hub = self.hub.take().or_else(|| fleet.open());
        let hub = self.hub.as_ref()?;
        let sight = HubSnapshot::new(hub).ok();
        match &sight {
            Some(sight) if faults.is_any_well(fleet.machines.len()) => self.watch.see(sight),
            _ => self.watch.pause(),
        }
        self.supervisor = fleet.supervisor(hub);
        sight
    }
}
