//! The invariants of a mesh after the faults: every pushed result is known, everything that counts
//! is on the branch once, and no process is left.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use everloop_core::event::Event;
use everloop_core::mesh::{End, MeshLoop, TaskReport};
use everloop_core::op::TaskState;
use everloop_store::{Ledger, Postgres};

use super::watch::{ALL, HubSnapshot};
use super::{ChaosMesh, file};
use crate::processes::processes_of;

/// Healthy nodes have delivered their results to the hub by then.
const TOLD_WITHIN: Duration = Duration::from_secs(60);
/// No process of a stopped node is alive after this.
const GONE_WITHIN: Duration = Duration::from_secs(20);
/// Poll interval of the waits.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Counts, and violations.
#[derive(Debug, Default)]
pub struct Proof {
    /// Loops that reached their goal.
    pub reached: usize,
    /// Tasks that were created.
    pub tasks: usize,
    /// Tasks that are on the branch.
    pub landed: usize,
    /// Tasks, results or files that are gone.
    pub lost: usize,
    /// Tasks that count twice, in the hub or on the branch.
    pub twice: usize,
    /// Results that came too late and were kept.
    pub late_result: usize,
    /// Calls of the scripted agents.
    pub calls: usize,
    pub violations: Vec<String>,
}

impl Proof {
    /// Checks a healthy mesh and shuts it down.
    pub fn new(fleet: &mut ChaosMesh) -> Self {
        let mut proof = Self::default();
        let Some(hub) = fleet.open() else {
            proof.violations.push("the hub cannot be opened".to_owned());
            return proof;
        };
        let sight = proof.wait_for_what_is_told(fleet, &hub);
        proof.loops(fleet, &hub, &sight);
        let calls = std::fs::read_to_string(fleet.sender.path("calls")).unwrap_or_default();
        proof.calls = calls.lines().count();
        proof.nothing_is_left(fleet);
        proof
    }

    /// Every pushed result is in the hub, as the one that counts or among the late ones. Late
    /// deliveries get some time.
    fn wait_for_what_is_told(&mut self, fleet: &ChaosMesh, hub: &Postgres) -> HubSnapshot {
        let end = Instant::now() + TOLD_WITHIN;
        loop {
            let sight = HubSnapshot::new(hub).expect("the faults are over");
            let mut known = BTreeSet::new();
            self.late_result = 0;
            for row in &sight.tasks {
                let late_results = hub.late_results(&row.task.id).expect("the faults are over");
                self.late_result += late_results.len();
                let counts = row.result.as_deref().filter(|_| row.state == TaskState::Done);
                known.extend(late_results.iter().map(|late| late.result.as_str()).chain(counts).filter_map(reference));
            }
            let pushed = fleet.shared(&["for-each-ref", "--format=%(refname)", "refs/everloop"]);
            let lost: Vec<&str> = pushed.lines().filter(|name| !known.contains(*name)).collect();
            if lost.is_empty() || Instant::now() >= end {
                self.lost += lost.len();
                self.violations.extend(lost.iter().map(|name| format!("`{name}` was pushed and is not in the hub")));
                return sight;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn loops(&mut self, fleet: &ChaosMesh, hub: &Postgres, sight: &HubSnapshot) {
        self.tasks = sight.tasks.len();
        let log = fleet.shared(&["log", "--format=%(trailers:key=Task-Id,valueonly)", "main"]);
        let mut trailers: BTreeMap<&str, u32> = BTreeMap::new();
        // A node's own loop for a task, `m-…`, is part of the merge.
        for line in log.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("m-")) {
            *trailers.entry(line).or_default() += 1;
        }
        self.landed = trailers.len();
        for (task, times) in trailers.iter().filter(|(_, times)| **times > 1) {
            self.twice += 1;
            self.violations.push(format!("the trailer of `{task}` stands on the branch {times} times"));
        }
        let mut told = BTreeMap::new();
        for state in &sight.loops {
            self.one_loop(state, &told_of(hub, state), &mut told);
        }
        for (task, times) in &told {
            if *times > 1 {
                self.twice += 1;
                self.violations.push(format!("the hub recorded {times} times that `{task}` stands on the branch"));
            }
            if !trailers.contains_key(task.as_str()) {
                self.lost += 1;
                self.violations.push(format!("`{task}` counts and does not stand on the branch"));
            }
        }
        for task in trailers.keys().filter(|task| !told.contains_key(**task)) {
            self.violations.push(format!("`{task}` stands on the branch and does not count"));
        }
        let files = fleet.shared(&["ls-tree", "-r", "--name-only", "main"]);
        let missing: Vec<String> = fleet.files().filter(|file| !files.lines().any(|line| line == file)).collect();
        self.lost += missing.len();
        self.violations.extend(missing.iter().map(|file| format!("`{file}` does not stand on the branch")));
        let waiting = sight.tasks.iter().filter(|row| !matches!(row.state, TaskState::Done | TaskState::Dead));
        for row in waiting {
            self.lost += 1;
            self.violations.push(format!("task `{}` is still {}", row.task.id, row.state.label()));
        }
    }

    fn one_loop(&mut self, state: &MeshLoop, landings: &[String], told: &mut BTreeMap<String, u32>) {
        for task in landings {
            *told.entry(task.clone()).or_default() += 1;
        }
        match &state.ended {
            Some(End::Reached) => self.reached += 1,
            other => self.violations.push(format!("loop {} did not reach its goal: {other:?}", state.id)),
        }
        // A check is made to pass once; a second landing would be work that counts twice.
        if state.landed_count as usize != state.spec.wanted.checks.len() {
            let (landed, checks) = (state.landed_count, state.spec.wanted.checks.len());
            self.violations.push(format!("loop {}: {landed} tasks landed for {checks} checks", state.id));
        }
    }

    /// Shuts all nodes down and searches for leftover processes.
    fn nothing_is_left(&mut self, fleet: &mut ChaosMesh) {
        for machine in &mut fleet.machines {
            if machine.has_ended() {
                self.violations.push(format!("{} ended by itself: {}", machine.name, machine.last_words(5)));
            } else if !machine.down(GONE_WITHIN) {
                self.violations.push(format!("{} does not shut down", machine.name));
            }
            let end = Instant::now() + GONE_WITHIN;
            while !processes_of(&machine.state()).is_empty() && Instant::now() < end {
                std::thread::sleep(POLL_INTERVAL);
            }
            let left = processes_of(&machine.state()).len();
            if left > 0 {
                self.violations.push(format!("{left} processes of {} are left", machine.name));
            }
        }
    }
}

/// The ref of the work that a result reports.
fn reference(result: &str) -> Option<String> {
    TaskReport::read(result)?.reference
}

/// The tasks that landed according to the journal of a loop.
fn told_of(hub: &Postgres, state: &MeshLoop) -> Vec<String> {
    let records = hub.journal(0, Some(&state.id), ALL).expect("the faults are over");
    let landing = |event: &Event| match event {
        Event::Note { text } if text.contains("stands on the branch") => {
            text.strip_prefix("task ")?.split(' ').next().map(str::to_owned)
        }
        _ => None,
    };
    records.iter().filter_map(|record| landing(&record.event)).collect()
}

impl ChaosMesh {
    /// Runs git in the shared repository.
    fn shared(&self, args: &[&str]) -> String {
        let bare = self.sender.path("shared.git").display().to_string();
        let all: Vec<&str> = ["-C", bare.as_str()].into_iter().chain(args.iter().copied()).collect();
        self.sender.git(&all)
    }

    /// All files that the checks of all loops expect.
    fn files(&self) -> impl Iterator<Item = String> {
        let checks = self.checks;
        (0..self.loops).flat_map(move |number| (0..checks).map(move |check| file(number, check)))
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "loops         {} reached their goal", self.reached)?;
        let (tasks, landed) = (self.tasks, self.landed);
        writeln!(f, "tasks         {tasks} made, {landed} landed, {} lost, {} counted twice", self.lost, self.twice)?;
        writeln!(f, "late results  {} kept", self.late_result)?;
        writeln!(f, "agents        {} calls", self.calls)
    }
}
