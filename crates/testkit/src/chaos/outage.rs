//! A mesh without its hub for some minutes, under work: running turns end, their results are in the
//! hub soon after it is back, and no two nodes do the same meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use everloop_core::mesh::work::Held;
use everloop_core::op::TaskState;
use everloop_store::{Ledger, Postgres};

use super::proof::Proof;
use super::watch::HubSnapshot;
use super::{ChaosMesh, ChaosOptions};

/// The longest turn of an agent here, in seconds.
const TURN: u32 = 8;
/// Work begins within this, on a busy machine too.
const BEGUN_WITHIN: Duration = Duration::from_secs(120);
/// After the hub is back, all results of the outage are in it within this.
pub const PRESENT: Duration = Duration::from_secs(30);
/// Everything is done within this.
const END_WITHIN: Duration = Duration::from_secs(900);
/// A claim is known to all nodes within this.
const TOLD_WITHIN: Duration = Duration::from_millis(500);
/// Poll interval of the waits.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The result of a run.
#[derive(Debug)]
pub struct OutageReport {
    /// How long the hub was down.
    pub away: Duration,
    /// Turns that ran when it went down.
    pub under_way: usize,
    /// Turns that were begun without it.
    pub begun: usize,
    /// Tasks that more than one node began meanwhile.
    pub overlap: usize,
    /// Tasks that one node began meanwhile, and another one just before: its knowledge was stale.
    pub stale: usize,
    /// Results that waited for delivery when it came back.
    pub results: usize,
    /// How long it took until all of them were in the hub; `None` if they never were.
    pub present: Option<Duration>,
    /// Starts in the first ten seconds after it came back, and in the first minute.
    pub starts: (usize, usize),
    /// The invariants at the end.
    pub proof: Proof,
}

impl OutageReport {
    /// The violated invariants.
    pub fn violations(&self) -> Vec<String> {
        let mut all = self.proof.violations.clone();
        if self.results < self.under_way {
            all.push(format!("only {} of {} turns under way came to a result", self.results, self.under_way));
        }
        if self.begun == 0 {
            all.push("no node went on with its own share".to_owned());
        }
        if self.overlap + self.stale > 0 {
            all.push(format!("{} tasks were worked on by two nodes", self.overlap + self.stale));
        }
        match self.present {
            Some(took) if took <= PRESENT => {}
            late => all.push(format!("results were not in the hub within {PRESENT:?}, but after {late:?}")),
        }
        all
    }
}

impl fmt::Display for OutageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (away, present) = (self.away.as_secs_f64(), self.present.map_or(f64::NAN, |took| took.as_secs_f64()));
        writeln!(f, "hub           {away:.0} s away, with {} turns under way", self.under_way)?;
        let (begun, overlap, stale) = (self.begun, self.overlap, self.stale);
        writeln!(
            f,
            "without it    {begun} turns begun, {overlap} tasks by two nodes, {stale} that another node had just claimed"
        )?;
        writeln!(f, "when back     {} results, all in the hub after {present:.1} s", self.results)?;
        writeln!(f, "              {} starts in 10 s, {} in 60 s", self.starts.0, self.starts.1)?;
        write!(f, "{}", self.proof)?;
        for violation in self.violations() {
            writeln!(f, "VIOLATION     {violation}")?;
        }
        Ok(())
    }
}

/// One call of an agent.
struct Call {
    at: u128,
    file: String,
    /// The folder of the machine that called it.
    folder: String,
}

/// Stops the hub of a working mesh for `options.length`.
pub fn run(options: &ChaosOptions) -> OutageReport {
    let mut fleet = ChaosMesh::new(options, TURN);
    fleet.add_loop();
    let under_way = all_work(&fleet);
    fleet.hub.crash();
    let (gone, went) = (Instant::now(), now());
    (options.tell)("the hub is down");
    std::thread::sleep(options.length);
    let waiting = fleet.held();
    fleet.hub.restart();
    let (back, came) = (Instant::now(), now());
    let away = back - gone;
    (options.tell)("the hub is back");
    let hub = fleet.open().expect("it is back");
    let present = wait(PRESENT * 4, || waiting.iter().all(|held| is_known(&hub, held))).then(|| back.elapsed());
    wait(END_WITHIN, || HubSnapshot::new(&hub).is_ok_and(|sight| sight.is_over()));
    let calls = fleet.calls();
    let by_two = |from: u128| {
        let mut nodes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for call in calls.iter().filter(|call| (from..came).contains(&call.at)) {
            nodes.entry(&call.file).or_default().insert(&call.folder);
        }
        nodes.values().filter(|nodes| nodes.len() > 1).count()
    };
    let overlap = by_two(went);
    // Turns that ran when the hub went down.
    let stale = by_two(went.saturating_sub(u128::from(TURN) * 1000)) - overlap;
    let within = |from: u128, to: u128| calls.iter().filter(|call| (from..to).contains(&call.at)).count();
    let (begun, starts) = (within(went, came), (within(came, came + 10_000), within(came, came + 60_000)));
    let (under_way, results) = (under_way.len(), waiting.len());
    let proof = Proof::new(&mut fleet);
    OutageReport { away, under_way, begun, overlap, stale, results, present, starts, proof }
}

/// Waits until every node has an agent at work and no task was claimed for a moment, and returns
/// what they hold. Nodes announce their claims to each other; a hub that goes down in the very
/// millisecond of a claim leaves the others with stale knowledge.
fn all_work(fleet: &ChaosMesh) -> Vec<Held> {
    let mut last = (Vec::new(), Instant::now());
    let begun = || {
        let folders: BTreeSet<String> = fleet.calls().into_iter().map(|call| call.folder).collect();
        let mut held: Vec<String> = fleet.held().iter().map(Held::key).collect();
        held.sort();
        if held != last.0 {
            last = (held, Instant::now());
        }
        let all = folders.len() == fleet.machines.len() && last.0.len() == fleet.machines.len();
        all && last.1.elapsed() >= TOLD_WITHIN
    };
    assert!(wait(BEGUN_WITHIN, begun), "not every node works:\n{}", fleet.last_words());
    fleet.held()
}

fn wait(within: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + within;
    while !holds() {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    true
}

/// Whether the hub has the result of a task that a node held, as the result that counts or among
/// the late ones.
fn is_known(hub: &Postgres, held: &Held) -> bool {
    let counts = hub
        .task(&held.task)
        .is_ok_and(|row| row.is_some_and(|row| row.fence == held.fence && row.state == TaskState::Done));
    counts || hub.late_results(&held.task).is_ok_and(|late| late.iter().any(|late| late.fence == held.fence))
}

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_millis()
}

impl ChaosMesh {
    /// What nodes hold, from their files: with the hub, running tasks; without it, also waiting
    /// results.
    fn held(&self) -> Vec<Held> {
        let folders = self.machines.iter().map(|machine| machine.state().join("mesh/held"));
        let files = folders.flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
        files.filter_map(|file| serde_json::from_slice(&std::fs::read(file.path()).ok()?).ok()).collect()
    }

    fn calls(&self) -> Vec<Call> {
        let text = std::fs::read_to_string(self.sender.path("calls")).unwrap_or_default();
        let read = |line: &str| {
            let mut words = line.split(' ');
            let (at, file, place) = (words.next()?.parse().ok()?, words.next()?.to_owned(), words.next()?);
            let lies_in = |folder: &Path| Path::new(place).starts_with(folder);
            let machine = self.machines.iter().find(|machine| lies_in(&machine.path("")))?;
            Some(Call { at, file, folder: machine.name.to_string() })
        };
        text.lines().filter_map(read).collect()
    }
}
