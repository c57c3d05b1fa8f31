//! The faults: which strikes when, drawn from a seed, and which nodes are affected. Applies faults
//! and reverts them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::machine::Machine;
use super::net::Cable;
use crate::postgres::PostgresServer;
use crate::proxy::ProxyMode;
use crate::random::Random;

/// Time between two changes of a flapping line.
const FLAP: Duration = Duration::from_secs(10);
/// Delay of a slow line.
const LATER: Duration = Duration::from_millis(300);

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChaosFault {
    /// kill -9 of a node; its agents go on.
    Kill,
    /// kill -9 of the leader.
    KillSupervisor,
    /// All processes of a machine are killed at once.
    PullPlug,
    /// SIGSTOP of a node; its agents go on.
    Stop,
    /// SIGSTOP of all processes of a machine: a closed laptop.
    Suspend,
    /// The cable is pulled.
    CutOff,
    /// Responses of the hub do not arrive.
    OneWay,
    /// The cable is pulled and plugged in repeatedly.
    Flap,
    /// The hub accepts everything and does not respond.
    Silent,
    /// Everything arrives late.
    Slow,
    /// Connections are closed at once.
    Refuse,
    /// Cut at each commit, before it reaches the hub.
    BeforeCommit,
    /// Cut at each commit, after the hub executed it.
    AfterCommit,
    /// The hub crashes, and is restarted later.
    HubCrash,
}

/// The weight of each, and how many seconds it may last.
const TABLE: &[(ChaosFault, u64, &[u64])] = &[
    (ChaosFault::Kill, 3, &[1, 5, 20, 60]),
    (ChaosFault::KillSupervisor, 3, &[1, 5, 20, 60]),
    (ChaosFault::PullPlug, 2, &[1, 20, 60, 120]),
    // The longest exceed the lease of a task.
    (ChaosFault::Stop, 3, &[5, 20, 30, 110]),
    (ChaosFault::Suspend, 1, &[20, 120]),
    (ChaosFault::CutOff, 2, &[5, 20, 60, 110]),
    (ChaosFault::OneWay, 2, &[5, 20, 60]),
    (ChaosFault::Flap, 1, &[40, 60]),
    (ChaosFault::Silent, 1, &[5, 20, 40]),
    (ChaosFault::Slow, 1, &[20, 40]),
    (ChaosFault::Refuse, 1, &[3, 15]),
    (ChaosFault::BeforeCommit, 2, &[3, 10]),
    (ChaosFault::AfterCommit, 2, &[3, 10]),
    (ChaosFault::HubCrash, 2, &[1, 5, 20, 45]),
];

/// Seconds between two faults, minimum and maximum.
const GAP: (u64, u64) = (3, 14);
/// Every this many faults there is a long isolation: one node is cut off until its tasks are
/// reclaimed, and nothing else strikes, because a new leader would begin another grace period. When
/// the node is back, its results are late.
const NIGHTS: u32 = 7;
/// The first of them.
const FIRST_NIGHT: u32 = 3;
/// Seconds of an isolation: the lease of a task, the grace period, and another node's turn. Then a
/// moment for the node to come back.
const NIGHT: (u64, u64) = (140, 155);

/// A fault in effect.
struct Ill {
    fault: ChaosFault,
    since: Instant,
    until: Instant,
}

/// The fault injection of a mesh.
pub struct FaultSchedule {
    random: Random,
    time_scale: u32,
    next: Instant,
    ill: BTreeMap<usize, Ill>,
    strikes: u32,
    hub_until: Option<Instant>,
    /// How often each kind struck.
    pub struck: BTreeMap<ChaosFault, u32>,
}

impl FaultSchedule {
    /// From a seed; the first fault comes soon.
    pub fn new(seed: u64, time_scale: u32) -> Self {
        let next = Instant::now() + Duration::from_secs(5) / time_scale;
        let (ill, struck) = (BTreeMap::new(), BTreeMap::new());
        Self { random: Random::new(seed), time_scale, next, ill, strikes: 0, hub_until: None, struck }
    }

    /// Whether the hub is up.
    pub fn hub_is_there(&self) -> bool {
        self.hub_until.is_none()
    }

    /// Whether a node is free of faults.
    pub fn is_well(&self, machine: usize) -> bool {
        !self.ill.contains_key(&machine)
    }

    /// Whether any node is free of faults.
    pub fn is_any_well(&self, machines: usize) -> bool {
        (0..machines).any(|machine| self.is_well(machine))
    }

    /// Reverts faults that are over and injects due ones. `supervisor` is the current leader.
    /// Returns a log of its actions.
    pub fn pass(
        &mut self,
        machines: &mut [Machine],
        hub: &mut PostgresServer,
        supervisor: Option<usize>,
    ) -> Vec<String> {
        let mut said = self.mend(machines, hub, Instant::now());
        if Instant::now() >= self.next {
            let gap = Duration::from_millis(self.random.between(GAP.0 * 1000, GAP.1 * 1000));
            self.next = Instant::now() + gap / self.time_scale;
            self.strikes += 1;
            let is_night = self.strikes % NIGHTS == FIRST_NIGHT;
            said.extend(match supervisor {
                Some(supervisor) if is_night => self.night(machines, hub, supervisor),
                _ => self.strike(machines, hub, supervisor).into_iter().collect(),
            });
        }
        said
    }

    /// Heals everything but one node that is not the leader.
    fn night(&mut self, machines: &mut [Machine], hub: &mut PostgresServer, supervisor: usize) -> Vec<String> {
        self.clear(machines, hub);
        let (fault, victim) =
            (self.random.pick(&[ChaosFault::Stop, ChaosFault::CutOff]), (supervisor + 1) % machines.len());
        let now = Instant::now();
        let [until, next] = [NIGHT.0, NIGHT.1].map(|seconds| now + Duration::from_secs(seconds) / self.time_scale);
        self.next = next;
        self.fall_ill(victim, Ill { fault, since: now, until }, machines)
    }

    fn fall_ill(&mut self, victim: usize, ill: Ill, machines: &mut [Machine]) -> Vec<String> {
        begin(ill.fault, &mut machines[victim]);
        *self.struck.entry(ill.fault).or_default() += 1;
        let seconds = (ill.until - ill.since).as_secs_f64();
        let said = format!("{:?} strikes {} for {seconds:.1} s", ill.fault, machines[victim].name);
        self.ill.insert(victim, ill);
        vec![said]
    }

    /// Reverts all faults at once.
    pub fn clear(&mut self, machines: &mut [Machine], hub: &mut PostgresServer) {
        for ill in self.ill.values_mut() {
            ill.until = ill.since;
        }
        self.hub_until = self.hub_until.map(|_| Instant::now());
        let end = Instant::now() + Duration::from_millis(1);
        self.mend(machines, hub, end);
    }

    /// The fault depends on the seed alone; its target, also on the nodes already affected.
    fn strike(
        &mut self,
        machines: &mut [Machine],
        hub: &mut PostgresServer,
        supervisor: Option<usize>,
    ) -> Option<String> {
        let total: u64 = TABLE.iter().map(|(_, weight, _)| weight).sum();
        let mut drawn = self.random.below(total);
        let found = TABLE.iter().find(|(_, weight, _)| {
            let hit = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            hit
        });
        let (fault, _, seconds) = found.copied().expect("less than the sum of all was drawn");
        let until = Instant::now() + Duration::from_secs(self.random.pick(seconds)) / self.time_scale;
        let wish = self.random.below(machines.len() as u64) as usize;
        let all_ill = self.random.one_in(3);
        if fault == ChaosFault::HubCrash {
            if self.hub_until.is_none() {
                hub.crash();
                self.hub_until = Some(until);
                *self.struck.entry(fault).or_default() += 1;
                return Some("the hub crashes".to_owned());
            }
            return None;
        }
        let wish = if fault == ChaosFault::KillSupervisor { supervisor? } else { wish };
        // Mostly one node stays healthy.
        if self.ill.contains_key(&wish) || (self.ill.len() + 1 == machines.len() && !all_ill) {
            return None;
        }
        self.fall_ill(wish, Ill { fault, since: Instant::now(), until }, machines).pop()
    }

    fn mend(&mut self, machines: &mut [Machine], hub: &mut PostgresServer, now: Instant) -> Vec<String> {
        let mut said = Vec::new();
        if self.hub_until.is_some_and(|until| until <= now) {
            hub.restart();
            self.hub_until = None;
            said.push("the hub is back".to_owned());
        }
        for (machine, ill) in &self.ill {
            if ill.fault == ChaosFault::Flap {
                let flips = now.saturating_duration_since(ill.since).as_millis() / (FLAP / self.time_scale).as_millis();
                let cable = if flips.is_multiple_of(2) { Cable::Pulled } else { Cable::Whole };
                machines[*machine].cable(cable);
            }
        }
        let over: Vec<usize> =
            self.ill.iter().filter(|(_, ill)| ill.until <= now).map(|(machine, _)| *machine).collect();
        for machine in over {
            if let Some(ill) = self.ill.remove(&machine) {
                end(ill.fault, &mut machines[machine]);
                said.push(format!("{:?} of {} is over", ill.fault, machines[machine].name));
            }
        }
        said
    }
}

fn begin(fault: ChaosFault, machine: &mut Machine) {
    match fault {
        ChaosFault::Kill | ChaosFault::KillSupervisor => machine.kill(),
        ChaosFault::PullPlug => machine.pull_the_plug(),
        ChaosFault::Stop => machine.signal(Signal::SIGSTOP),
        ChaosFault::Suspend => machine.signal_all(Signal::SIGSTOP),
        ChaosFault::CutOff | ChaosFault::Flap => machine.cable(Cable::Pulled),
        ChaosFault::OneWay => machine.cable(Cable::Deaf),
        ChaosFault::Silent => machine.line(ProxyMode::Silent),
        ChaosFault::Slow => machine.line(ProxyMode::Slow(LATER)),
        ChaosFault::Refuse => machine.line(ProxyMode::Refuse),
        ChaosFault::BeforeCommit => machine.line(ProxyMode::CutBeforeCommit),
        ChaosFault::AfterCommit => machine.line(ProxyMode::CutAfterCommit),
        ChaosFault::HubCrash => {}
    }
}

fn end(fault: ChaosFault, machine: &mut Machine) {
    match fault {
        ChaosFault::Kill | ChaosFault::KillSupervisor | ChaosFault::PullPlug => machine.start(),
        ChaosFault::Stop => machine.signal(Signal::SIGCONT),
        ChaosFault::Suspend => machine.signal_all(Signal::SIGCONT),
        ChaosFault::CutOff | ChaosFault::Flap | ChaosFault::OneWay => machine.cable(Cable::Whole),
        ChaosFault::Silent
        | ChaosFault::Slow
        | ChaosFault::Refuse
        | ChaosFault::BeforeCommit
        | ChaosFault::AfterCommit => {
            machine.line(ProxyMode::Pass);
        }
        ChaosFault::HubCrash => {}
    }
}
