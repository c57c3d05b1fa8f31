//! Virtual time, what is still to come, and what goes wrong.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use everloop_core::board::{Board, CheckResult, Verdict};
use everloop_core::ids::LoopId;
use everloop_core::mesh::{KIND, MeshLoop, MeshSpec};
use everloop_core::spec::{AgentSpec, Bounds, CheckSpec, GuardSpec, Integrate, LoopSpec, WorkspaceMode, WorkspaceSpec};
use everloop_core::time::Time;
use everloop_core::watch::WatchSpec;
use everloop_store::{DocRow, Ledger, Model};

use super::alone::Limits;
use super::facts::Facts;
use super::git::{Commit, Git};
use super::node::{Errand, Node};
use super::{Report, Setup};
use crate::sim::random::Random;
use crate::sim::trace::Trace;

/// The loop that is simulated.
pub(super) const LOOP: &str = "k3f9";
/// After everything was mended, the loop has so long to end: leases, amnesties and many attempts fit in.
const LIVENESS: Duration = Duration::from_secs(24 * 3600);
/// So long after the loop ended every node is back, whatever was wrong with it, and has told what it still had to tell.
const LAST_WORDS: Duration = Duration::from_secs(5400);

/// Something to come.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A node looks around; only in this life of it.
    Step(usize, u64),
    /// An errand of a node is over.
    Errand(usize, u64, Errand),
    /// The agents of a node's loop are done.
    Local(usize, u64, LoopId),
    /// Something goes wrong.
    Fault,
    /// A node comes back.
    Start(usize),
    /// A node wakes up.
    Wake(usize),
    /// A node's line to the hub is mended.
    Mend(usize),
    /// The hub comes back.
    HubBack,
    /// Nothing goes wrong any more.
    Heal,
}

pub(super) struct World {
    pub setup: Setup,
    pub limits: Limits,
    pub now: u64,
    pub hub: Model,
    pub hub_up: bool,
    pub hub_since: u64,
    pub git: Git,
    pub nodes: Vec<Node>,
    pub facts: Facts,
    pub trace: Trace,
    pub dice: Random,
    pub seed: u64,
    pub steps: u64,
    faults: u64,
    healed: Option<u64>,
    /// The loop as it was last read, with its version: most reads find it unchanged.
    read: (u64, MeshLoop),
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
}

impl World {
    pub fn new(setup: &Setup, seed: u64) -> Self {
        let mut dice = Random::new(seed);
        let width = dice.between(1, 8) as u32;
        let limits = Limits {
            calls: dice.one_in(3).then(|| dice.between(3, 60)),
            per_hour: dice.one_in(3).then(|| dice.between(2, 20)),
        };
        let state = new_loop(setup, width, limits);
        let rate = |dice: &mut Random| if setup.drift { dice.pick(&[500, 900, 1000, 1100, 2000]) } else { 1000 };
        let nodes = (1..=setup.nodes).map(|i| Node::new(&format!("n{i}"), rate(&mut dice))).collect();
        let mut world = Self {
            setup: setup.clone(),
            limits,
            now: 0,
            hub: Model::default(),
            hub_up: true,
            hub_since: 0,
            git: Git::new(),
            nodes,
            facts: Facts::default(),
            trace: Trace::default(),
            dice,
            seed,
            steps: 0,
            faults: 0,
            healed: None,
            read: (0, state.clone()),
            heap: BinaryHeap::new(),
            sequence: 0,
        };
        world.hub.transact(Time(0), &state.save(0, &[])).expect("an empty model takes everything");
        for node in 0..world.nodes.len() {
            let delay = world.dice.below(5_000);
            world.later(delay, Event::Step(node, 0));
        }
        let bad = ms(setup.bad);
        world.later(bad, Event::Heal);
        world.next_fault();
        world
    }

    /// Runs to the end.
    pub fn run(mut self) -> Report {
        let mut over = None;
        while let Some(Reverse((at, _, event))) = self.heap.pop() {
            self.now = at;
            self.happen(event);
            if self.facts.violation.is_some() {
                break;
            }
            if self.healed.is_some() && over.is_none() && self.facts.ended {
                over = Some(self.now);
            }
            let done = over.is_some_and(|at| self.since(at) > LAST_WORDS);
            if done || self.healed.is_some_and(|at| self.since(at) > LIVENESS) {
                self.at_the_end();
                break;
            }
        }
        let shelved = self.facts.pushed.iter().filter(|(task, which)| {
            self.hub.shelf(task).expect("the model answers").iter().any(|late| late.result.contains(which))
        });
        let shelved = shelved.count() as u64;
        Report {
            time: Duration::from_millis(self.now),
            steps: self.steps,
            faults: self.faults,
            landed: self.git.landed.len() as u64,
            shelved,
            epochs: self.facts.epochs,
            longest_stall: self.facts.longest_stall,
            trace_hash: self.trace.hash(),
            tail: self.trace.tail(),
            violation: self.facts.violation,
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Step(node, life) => {
                let n = &self.nodes[node];
                if n.alive && n.life == life && !n.paused {
                    self.steps += 1;
                    self.step(node);
                }
            }
            Event::Errand(node, life, errand) => {
                if self.nodes[node].paused && self.nodes[node].life == life {
                    self.later(1_000, Event::Errand(node, life, errand));
                } else if self.nodes[node].alive && self.nodes[node].life == life {
                    self.over(node, errand);
                }
            }
            Event::Local(node, life, id) => {
                if self.nodes[node].paused && self.nodes[node].life == life {
                    self.later(1_000, Event::Local(node, life, id));
                } else if self.nodes[node].alive && self.nodes[node].life == life {
                    self.local_over(node, &id);
                }
            }
            Event::Fault => self.go_wrong(),
            Event::Start(node) => self.start(node),
            Event::Wake(node) => {
                self.nodes[node].paused = false;
                self.well_again(node);
                self.later(0, Event::Step(node, self.nodes[node].life));
            }
            Event::Mend(node) => {
                self.nodes[node].cut = false;
                self.well_again(node);
            }
            Event::HubBack => {
                self.hub_up = true;
                self.hub_since = self.now;
                self.trace.say(self.now, "hub", "is back");
            }
            Event::Heal => self.healed = Some(self.now),
        }
    }

    fn next_fault(&mut self) {
        if let Some(every) = self.setup.fault_every {
            let wait = self.dice.between(ms(every) / 4, ms(every) * 2);
            self.later(wait, Event::Fault);
        }
    }

    fn go_wrong(&mut self) {
        if self.healed.is_some() {
            return;
        }
        self.faults += 1;
        let node = self.dice.below(self.nodes.len() as u64) as usize;
        let long = [1_000, 8_000, 13_000, 17_000, 20_000, 60_000, 120_000, 400_000, 2_000_000];
        let wait = self.dice.pick(&long);
        match self.dice.below(5) {
            0 | 1 => self.kill(node, wait),
            2 => {
                if self.nodes[node].alive && !self.nodes[node].paused {
                    self.nodes[node].paused = true;
                    self.trace.say(self.now, "pause", self.nodes[node].id.as_str());
                    self.later(wait, Event::Wake(node));
                }
            }
            3 => {
                if !self.nodes[node].cut {
                    self.nodes[node].cut = true;
                    self.trace.say(self.now, "cut", self.nodes[node].id.as_str());
                    self.later(wait, Event::Mend(node));
                }
            }
            _ => {
                if self.hub_up {
                    self.hub_up = false;
                    self.trace.say(self.now, "hub", "is away");
                    self.later(wait, Event::HubBack);
                }
            }
        }
        self.next_fault();
    }

    /// The plug is pulled: what was only in memory is gone.
    fn kill(&mut self, node: usize, wait: u64) {
        if !self.nodes[node].alive {
            return;
        }
        self.trace.say(self.now, "kill", self.nodes[node].id.as_str());
        self.nodes[node].die();
        self.later(wait, Event::Start(node));
    }

    fn start(&mut self, node: usize) {
        self.trace.say(self.now, "start", self.nodes[node].id.as_str());
        self.nodes[node].alive = true;
        self.nodes[node].paused = false;
        self.well_again(node);
        let life = self.nodes[node].life;
        self.later(100, Event::Step(node, life));
        // Loops of this machine go on where they were.
        let going: Vec<LoopId> =
            self.nodes[node].loops.iter().filter(|(_, l)| l.over.is_none()).map(|(id, _)| id.clone()).collect();
        for id in going {
            let wait = self.dice.between(1_000, ms(self.setup.work));
            self.later(wait, Event::Local(node, life, id));
        }
    }

    fn well_again(&mut self, node: usize) {
        let n = &mut self.nodes[node];
        if n.alive && !n.paused && !n.cut {
            n.healthy_since = self.now;
        }
    }

    pub fn later(&mut self, wait: u64, event: Event) {
        self.sequence += 1;
        self.heap.push(Reverse((self.now + wait, self.sequence, event)));
    }

    pub fn since(&self, at: u64) -> Duration {
        Duration::from_millis(self.now.saturating_sub(at))
    }

    /// The hub's clock.
    pub fn time(&self) -> Time {
        Time(i64::try_from(self.now).unwrap_or(i64::MAX))
    }

    /// The loop as the hub has it.
    pub fn state(&mut self) -> MeshLoop {
        let doc = self.hub.doc(KIND, LOOP).expect("the model answers").expect("it was made at the beginning");
        self.parsed(&doc)
    }

    pub fn parsed(&mut self, doc: &DocRow) -> MeshLoop {
        if self.read.0 != doc.version {
            self.read = (doc.version, MeshLoop::read(&doc.body).expect("it was written by us"));
        }
        self.read.1.clone()
    }

    /// What the checks say about a commit.
    pub fn board(&self, commit: Commit) -> Board {
        let files = self.git.files(commit);
        let row = |name: String| CheckResult {
            verdict: if files.contains(&name) { Verdict::Pass } else { Verdict::Fail },
            name,
            weight: 1,
            millis: 1,
            output: String::new(),
            fingerprint: 0,
        };
        Board((0..self.setup.checks).map(|i| row(format!("c{i}"))).collect())
    }
}

/// The loop that all of them work on.
fn new_loop(setup: &Setup, width: u32, limits: Limits) -> MeshLoop {
    let mut guard = GuardSpec::default();
    guard.budget.calls = limits.calls;
    guard.caps.per_hour = limits.per_hour.and_then(|n| n.try_into().ok());
    let check = |i: u64| CheckSpec {
        name: format!("c{i}"),
        run: String::new(),
        timeout: Duration::from_secs(1),
        weight: 1,
        pin: String::new(),
    };
    let wanted = LoopSpec {
        goal: "all of them".to_owned(),
        checks: (0..setup.checks).map(check).collect(),
        agent: AgentSpec::default(),
        others: Vec::new(),
        workspace: WorkspaceSpec {
            dir: String::new(),
            mode: WorkspaceMode::InPlace,
            integrate: Integrate::Reached,
            setup: None,
            include_dirty: false,
            protect: Vec::new(),
        },
        bounds: Bounds::default(),
        guard,
        watch: WatchSpec::default(),
    };
    let spec = MeshSpec {
        wanted,
        remote: String::new(),
        branch: "refs/heads/main".to_owned(),
        below: String::new(),
        width,
        attempts: 5,
        task_turns: 5,
    };
    MeshLoop::new(LoopId::new(LOOP), "all".to_owned(), spec, Time(0))
}

pub(super) fn ms(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}
