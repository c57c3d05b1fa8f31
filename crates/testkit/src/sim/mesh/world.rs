//! Virtual time, and what is still to come.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use everloop_core::ids::LoopId;
use everloop_core::immune::Immune;
use everloop_core::mesh::keys::TrustList;
use everloop_core::mesh::node::NodeInput;
use everloop_core::mesh::rights::Rights;
use everloop_core::mesh::{KIND, MeshLoop, MeshSpec, budget, work};
use everloop_core::scoreboard::{Scoreboard, Verdict};
use everloop_core::spec::{AgentSpec, Bounds, GuardSpec, LoopSpec};
use everloop_core::time::Time;
use everloop_store::{Ledger, Tickets};

use super::facts::Facts;
use super::faults::{MeshFault, MeshFaults};
use super::git::{Commit, MeshRepository};
use super::hub::{Hub, Mood};
use super::limits::Limits;
use super::node::Node;
use super::{MeshReport, Setup, Tally, stranger};
use crate::random::Random;
use crate::sample;
use crate::sim::fault::{FaultPlan, Faults};
use crate::sim::scenario;
use crate::sim::trace::Trace;

/// The time of correct clocks at the beginning, in milliseconds since 1970.
pub(super) const EPOCH: i64 = 1_800_000_000_000;
/// After all faults were repaired, a loop has so long to end besides all attempts that it may take;
/// this includes leases and amnesties.
const LIVENESS: Duration = Duration::from_secs(6 * 3600);
/// Tasks for a check, and attempts at each of them.
const MAX_ATTEMPTS_PER_CHECK: u32 = 5 * work::POISON;
/// Turns of an attempt.
const TURNS: u32 = 5;
/// So long after the last loop ended every node is back, whatever was wrong with it or its hub, and
/// has reported everything.
const LAST_WORDS: Duration = Duration::from_secs(66 * 3600);
/// When no node has anything left to report, the run waits so long to see whether that stays so.
const SILENCE: Duration = Duration::from_secs(150);

/// Something to come: what it does to the world.
pub(super) type Event = Box<dyn FnOnce(&mut World)>;

pub(super) struct Current {
    pub id: LoopId,
    pub since: u64,
    pub number: u64,
}

pub(super) struct World {
    pub setup: Setup,
    pub limits: Limits,
    pub now: u64,
    pub hub: Hub,
    pub git: MeshRepository,
    pub nodes: Vec<Node>,
    pub current: Current,
    pub facts: Facts,
    /// The record of the fleet as it was last read, with its version.
    pub fleet: Option<(u64, Arc<Immune>)>,
    /// Loops as they were last read, with their versions: most reads find them unchanged, and JSON
    /// is slow.
    pub docs: BTreeMap<LoopId, (u64, MeshLoop)>,
    /// The versions of all loops, until one of them is written.
    pub versions: Option<Arc<[(LoopId, u64)]>>,
    pub trace: Trace,
    pub dice: Random,
    pub faults: MeshFaults,
    /// The keys that all machines trust.
    pub trust: TrustList,
    pub seed: u64,
    pub tally: Tally,
    width: u32,
    /// When the last loop ended; from then on there is no new work.
    over: Option<u64>,
    /// What is to come, by time and by the order in which it was planned.
    heap: BTreeMap<(u64, u64), Event>,
    sequence: u64,
}

impl World {
    pub fn new(setup: &Setup, seed: u64, plan: FaultPlan<MeshFault>) -> Self {
        let mut dice = Random::new(seed);
        let width = dice.between(1, 8) as u32;
        let limits = Limits {
            calls: dice.one_in(3).then(|| dice.between(3, 60)),
            per_hour: dice.one_in(3).then(|| dice.between(2, 20)),
        };
        let limits = if setup.fault_every.is_some() { limits } else { Limits::default() };
        let mut nodes: Vec<Node> = (1..=setup.nodes).map(|i| Node::new(&format!("n{i}"), setup, &mut dice)).collect();
        let leaders = setup.nodes.saturating_sub(setup.workers).max(1) as usize;
        nodes.iter_mut().skip(leaders).for_each(|node| node.rights = Rights::Worker);
        let trust = stranger::trusted(nodes.iter().map(|node: &Node| node.id.clone()));
        let mut world = Self {
            setup: setup.clone(),
            limits,
            now: 0,
            hub: Hub::default(),
            git: MeshRepository::new(),
            nodes,
            current: Current { id: LoopId::new(""), since: 0, number: 0 },
            facts: Facts::default(),
            fleet: None,
            docs: BTreeMap::new(),
            versions: None,
            trace: Trace::default(),
            faults: MeshFaults { chance: Faults::new(plan, seed), healed: false, healed_at: 0, late: false },
            trust,
            dice,
            seed,
            tally: Tally::default(),
            width,
            over: None,
            heap: BTreeMap::new(),
            sequence: 0,
        };
        world.next_loop();
        world.expect_stranger();
        for node in 0..world.nodes.len() {
            let delay = world.dice.below(5_000);
            world.wake(node, delay);
        }
        world.later(ms(setup.bad), Self::heal);
        world.next_fault();
        world
    }

    pub fn run(mut self) -> MeshReport {
        while let Some(((at, _), event)) = self.heap.pop_first() {
            // Later than planned, when the world waited for an answer.
            self.now = self.now.max(at);
            event(&mut self);
            if self.facts.violation.is_some() || self.is_over() {
                break;
            }
        }
        MeshReport {
            points: self.faults.chance.steps,
            tally: Tally {
                time: Duration::from_millis(self.now),
                landed: self.git.landed(),
                late_result: self.facts.late_result.len() as u64,
                herd: self.hub.herd as f64 / self.nodes.len() as f64,
                trace_hash: self.trace.hash,
                ..self.tally
            },
            tail: self.trace.tail(),
            violation: self.facts.violation,
        }
    }

    fn is_over(&mut self) -> bool {
        // What no loop looks after is set right a quarter of an hour later.
        let answered = || self.hub.model.tickets(Tickets::Open).is_ok_and(|open| open.is_empty());
        let said =
            || self.nodes.iter().all(Node::is_quiet) && self.hub.model.peek_waiting().next().is_none() && answered();
        let silent = |at: u64| self.since(at) > SILENCE && said();
        let over = self.over.filter(|_| self.faults.healed).map(|at| at.max(self.faults.healed_at));
        if over.is_some_and(|at| self.since(at) > LAST_WORDS || silent(at)) {
            self.at_the_end();
            return true;
        }
        let all = self.setup.checks as u32
            * MAX_ATTEMPTS_PER_CHECK
            * (self.setup.work + self.setup.clone + 2 * self.setup.push + Duration::from_secs(60));
        let turns =
            self.limits.per_hour.map_or(0, |most| self.setup.checks * u64::from(MAX_ATTEMPTS_PER_CHECK * TURNS) / most);
        let silent = if self.limits.calls.or(self.limits.per_hour).is_some() { budget::SILENT } else { Duration::ZERO };
        let all = all + silent + Duration::from_secs(turns * 3600);
        let since = self.faults.healed_at.max(self.current.since).max(self.hub.since);
        if self.faults.healed
            && self.over.is_none()
            && !self.facts.ended
            && self.since(since) > LIVENESS + all
            && self.hub.mood == Mood::Well
        {
            let open = self.state().open;
            self.violated("I5", format!("long after all was mended the loop goes on: {open:?}"));
        }
        false
    }

    /// The loop ended: the mesh rests, or all is done.
    pub fn ended(&mut self) {
        self.facts.ended = true;
        if self.current.number < self.setup.loops {
            let rest = ms(self.setup.rest);
            self.later(rest.max(1), Self::next_loop);
        } else {
            self.over = Some(self.now);
        }
    }

    /// The hub was set back, and the loop that had ended goes on.
    pub fn goes_on(&mut self) {
        self.facts.ended = false;
        self.over = None;
    }

    /// Makes the next loop, if one is due.
    fn next_loop(&mut self) {
        let goes_on = self.current.number > 0 && !self.facts.ended;
        if goes_on || self.current.number >= self.setup.loops {
            return;
        }
        self.facts.ended = false;
        self.facts.calls.clear();
        self.current.number += 1;
        let id = LoopId::new(format!("k{}", self.current.number));
        self.current.id = id.clone();
        self.current.since = self.now;
        self.versions = None;
        // What the one before made has nothing to do with it.
        self.git.target = self.git.commit([format!("begin {id}")].into());
        let state = new_loop(&self.setup, id, (self.width, self.limits), self.time());
        let state = self.signed_by_person(state);
        let ops = self.saved_by_person(&state, 0);
        self.hub.model.transact(self.time(), &ops).expect("there is no such loop yet");
        self.hub.backup = None;
        self.trace.say(self.now, "loop", state.id.as_str());
    }

    /// Plans what happens in so many milliseconds.
    pub fn later(&mut self, wait: u64, event: impl FnOnce(&mut Self) + 'static) {
        self.sequence += 1;
        self.heap.insert((self.now + wait, self.sequence), Box::new(event));
    }

    /// A node looks around in so many milliseconds, and not before.
    pub fn wake(&mut self, node: usize, wait: u64) {
        self.nodes[node].turn += 1;
        let turn = self.nodes[node].turn;
        self.later(wait, move |w| {
            let n = &w.nodes[node];
            if n.turn == turn && n.alive && !n.stopped() {
                w.act(node, NodeInput::Timer);
            }
        });
    }

    pub fn since(&self, at: u64) -> Duration {
        Duration::from_millis(self.now.saturating_sub(at))
    }

    /// The hub's clock.
    pub fn time(&self) -> Time {
        Time(EPOCH + self.hub.ahead + i64::try_from(self.now).unwrap_or(i64::MAX))
    }

    /// When the hub's clock showed this time.
    pub fn moment(&self, time: Time) -> u64 {
        u64::try_from(time.0 - EPOCH - self.hub.ahead).unwrap_or(0)
    }

    /// The loop that is under way, as the hub has it.
    pub fn state(&mut self) -> MeshLoop {
        self.current_doc().1.clone()
    }

    /// The same, without a copy, and its version.
    pub fn current_doc(&mut self) -> &(u64, MeshLoop) {
        let id = self.current.id.clone();
        self.refresh_doc(&id);
        &self.docs[&id]
    }

    /// A loop as the hub has it, with its version.
    pub fn loop_doc(&mut self, id: &LoopId) -> Option<(u64, &MeshLoop)> {
        self.refresh_doc(id);
        self.docs.get(id).map(|(version, state)| (*version, state))
    }

    fn refresh_doc(&mut self, id: &LoopId) {
        let Some(doc) = self.hub.model.peek_doc(&(KIND.to_owned(), id.to_string())) else { return };
        if self.docs.get(id).is_none_or(|(version, _)| *version != doc.version) {
            let state = MeshLoop::read(&doc.body).expect("it was written by us");
            self.docs.insert(id.clone(), (doc.version, state));
        }
    }

    pub fn loop_versions(&mut self) -> Arc<[(LoopId, u64)]> {
        let hub = &self.hub.model;
        let version = |id: LoopId| {
            let version = hub.peek_doc(&(KIND.to_owned(), id.to_string()))?.version;
            Some((id, version))
        };
        let all = || (1..=self.current.number).filter_map(|i| version(LoopId::new(format!("k{i}")))).collect();
        self.versions.get_or_insert_with(all).clone()
    }

    /// The results of the checks on a commit.
    pub fn board(&self, commit: Commit) -> Scoreboard {
        if self.setup.experiments > 0 {
            return Scoreboard::default();
        }
        let files = self.git.files(commit);
        let row = |name: String| {
            let verdict = if files.contains(&name) { Verdict::Pass } else { Verdict::Fail };
            sample::check_result(name, verdict, 1)
        };
        Scoreboard((0..self.setup.checks).map(|i| row(format!("c{i}"))).collect())
    }
}

/// The loop that all of them work on.
fn new_loop(setup: &Setup, id: LoopId, (width, limits): (u32, Limits), now: Time) -> MeshLoop {
    let mut guard = GuardSpec::default();
    guard.budget.calls = limits.calls;
    guard.caps.per_hour = limits.per_hour.and_then(|n| n.try_into().ok());
    let check = |i: u64| scenario::check(format!("c{i}"));
    let checks = if setup.experiments > 0 { 0 } else { setup.checks };
    let wanted = LoopSpec {
        checks: (0..checks).map(check).collect(),
        agent: AgentSpec { name: "worker".to_owned(), account: "team".to_owned(), ..AgentSpec::default() },
        bounds: Bounds { max_turns: Some(setup.experiments).filter(|n| *n > 0), ..Bounds::default() },
        research: super::research::spec(setup),
        guard,
        ..scenario::spec(0)
    };
    let spec = MeshSpec {
        wanted,
        remote: String::new(),
        branch: "refs/heads/main".to_owned(),
        below: String::new(),
        width,
        attempts: 5,
        task_turns: TURNS,
    };
    MeshLoop::new(id, "all".to_owned(), spec, now)
}

pub(super) fn ms(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}
