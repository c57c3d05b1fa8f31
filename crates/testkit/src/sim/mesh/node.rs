//! What the thread of a node does, step by step as the real one does it; only its errands are models.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use everloop_core::ids::{Fence, LoopId, NodeId, TaskId};
use everloop_core::mesh::lead::{self, Office, Step as LeadStep};
use everloop_core::mesh::seat::{self, Seat};
use everloop_core::mesh::work::{self, Held, Local, Stage, Standing, Step};
use everloop_core::mesh::{KIND, Landed, MeshLoop, Report, accept};
use everloop_core::op::{Op, Refusal, Reply, TaskEnd, TaskRow, TaskState};
use everloop_core::planted::{self, Bug};
use everloop_core::time::Time;
use everloop_store::{Error, Ledger, Model, Owner, StateName, TaskFilter};

use super::git::Commit;
use super::world::{Event, LOOP, World, ms};
use crate::sim::random::of_text;

const BEAT: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_secs(1);

/// Something that a node sent out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Errand {
    /// Make the loop of a held task.
    Begin(String),
    /// Push what a loop made.
    Push(String),
    /// Ask the checks about this commit of the branch.
    Judge(Commit),
    /// Merge a task's work, seen when the branch was here.
    Merge { task: TaskId, fence: Fence, node: NodeId, work: Commit, target: Commit },
}

/// A loop of the node's own.
#[derive(Clone, Debug)]
pub(super) struct Local1 {
    base: Commit,
    check: String,
    /// Whether it reached what it should, when it is over.
    pub over: Option<bool>,
    commit: Option<Commit>,
}

/// A machine.
#[derive(Debug)]
pub(super) struct Node {
    pub id: NodeId,
    /// Thousandths of the real rate at which its clock runs.
    pub rate: u64,
    pub alive: bool,
    pub paused: bool,
    /// Nothing comes through between it and the hub.
    pub cut: bool,
    pub healthy_since: u64,
    pub idle_since: u64,
    pub life: u64,
    // On its disk.
    pub held: BTreeMap<String, Held>,
    pub loops: BTreeMap<LoopId, Local1>,
    // In its memory.
    seat: Seat,
    beat_at: Time,
    ask_at: Time,
    renewed: BTreeMap<String, Time>,
    errands: BTreeSet<String>,
    judging: bool,
}

impl Node {
    pub fn new(id: &str, rate: u64) -> Self {
        Self {
            id: NodeId::new(id),
            rate,
            alive: true,
            paused: false,
            cut: false,
            healthy_since: 0,
            idle_since: 0,
            life: 0,
            held: BTreeMap::new(),
            loops: BTreeMap::new(),
            seat: Seat::default(),
            beat_at: Time::default(),
            ask_at: Time::default(),
            renewed: BTreeMap::new(),
            errands: BTreeSet::new(),
            judging: false,
        }
    }

    /// All that was in memory goes.
    pub fn die(&mut self) {
        let fresh = Self::new(self.id.as_str(), self.rate);
        let old = std::mem::replace(self, fresh);
        self.alive = false;
        self.life = old.life + 1;
        self.cut = old.cut;
        self.held = old.held;
        self.loops = old.loops;
    }

    fn free(&self) -> bool {
        self.held.is_empty()
    }
}

impl World {
    fn clock(&self, n: usize) -> Time {
        Time(i64::try_from(self.now * self.nodes[n].rate / 1000).unwrap_or(i64::MAX))
    }

    /// A call to the hub. `None`: what became of it is unknown. Now and then a call is lost on its way there, or its answer
    /// on the way back.
    fn at_hub<T>(&mut self, n: usize, call: impl FnOnce(&mut Model) -> Result<T, Error>) -> Option<Result<T, Error>> {
        let fate = if self.setup.fault_every.is_some() { self.dice.below(800) } else { 1 };
        if !self.hub_up || self.nodes[n].cut || fate == 0 {
            return None;
        }
        let answer = call(&mut self.hub);
        (fate != 799).then_some(answer)
    }

    pub(super) fn step(&mut self, n: usize) {
        let now = self.clock(n);
        if now >= self.nodes[n].beat_at {
            self.nodes[n].beat_at = now + BEAT;
            let (node, at) = (self.nodes[n].id.clone(), self.time());
            self.at_hub(n, |hub| hub.transact(at, &[Op::Heartbeat { node, info: String::new() }]));
        }
        if now >= self.nodes[n].ask_at {
            self.ask(n);
        }
        self.tend(n);
        if let Some(epoch) = self.nodes[n].seat.epoch(self.clock(n)) {
            self.lead(n, epoch);
        }
        self.take_more(n);
        let now = self.clock(n);
        let node = &self.nodes[n];
        let timers = node.beat_at.since(now).min(node.ask_at.since(now));
        let idle = node.free() && node.seat.epoch(now).is_none();
        let nap = if idle { timers } else { timers.min(LOOK) };
        let wait = (ms(nap) * 1000 / node.rate).max(1);
        let life = node.life;
        self.later(wait, Event::Step(n, life));
    }

    fn ask(&mut self, n: usize) {
        let asked = self.clock(n);
        self.nodes[n].ask_at = Seat::ask_next(asked, self.dice.draw());
        let (node, at) = (self.nodes[n].id.clone(), self.time());
        let answer = self.at_hub(n, |hub| hub.transact(at, &[Op::Elect { node, lease: seat::LEASE }]));
        let Some(Ok(replies)) = answer else { return };
        let epoch = replies.into_iter().find_map(|r| if let Reply::Elected(epoch) = r { epoch } else { None });
        if let Some(epoch) = epoch.filter(|e| *e > self.facts.last_epoch) {
            self.facts.last_epoch = epoch;
            self.facts.epochs += 1;
            self.trace.say(self.now, "leads", &format!("{} {epoch}", self.nodes[n].id));
        }
        self.nodes[n].seat.answered(asked, epoch);
    }

    fn tend(&mut self, n: usize) {
        let all: Vec<Held> = self.nodes[n].held.values().cloned().collect();
        for held in all {
            if !self.nodes[n].errands.contains(&held.key()) {
                self.tend_one(n, &held);
            }
        }
    }

    fn tend_one(&mut self, n: usize, held: &Held) {
        let local = match self.nodes[n].loops.get(&held.local()) {
            None => Local::Missing,
            Some(Local1 { over: None, .. }) => Local::Running,
            Some(Local1 { over: Some(reached), .. }) => Local::Over { reached: *reached },
        };
        let (standing, row) = self.stand(n, held, &local);
        let (failures, again_at) = (row.as_ref().map_or(0, |row| row.failures), self.time() + work::AGAIN);
        match work::next(held, standing, &local, failures, again_at) {
            Step::Wait => {}
            Step::Begin => self.begin(n, held),
            Step::Stop => {
                let now = self.clock(n);
                self.nodes[n].renewed.insert(held.key(), now);
                if let Some(local) = self.nodes[n].loops.get_mut(&held.local()) {
                    local.over.get_or_insert(false);
                }
            }
            Step::Push { .. } => self.send(n, held, Errand::Push(held.key()), 1_000),
            Step::Tell(ops) => self.tell(n, held, &ops),
            Step::Forget => self.forget(n, held),
        }
    }

    fn stand(&mut self, n: usize, held: &Held, local: &Local) -> (Standing, Option<TaskRow>) {
        let now = self.clock(n);
        if held.stage == Stage::Working && *local != Local::Missing {
            let due = self.nodes[n].renewed.get(&held.key()).is_none_or(|at| now.since(*at) >= work::RENEW);
            if !due {
                return (Standing::Unknown, None);
            }
            let renew = held.renew(work::LEASE);
            let at = self.time();
            let standing = match self.at_hub(n, |hub| hub.transact(at, &[renew])) {
                Some(Ok(_)) => {
                    self.nodes[n].renewed.insert(held.key(), now);
                    Standing::Mine
                }
                Some(Err(Error::Refused(Refusal::Fenced { .. } | Refusal::Gone { .. }))) => Standing::Lost,
                Some(Err(_)) | None => Standing::Unknown,
            };
            return (standing, None);
        }
        let (task, node) = (held.task.clone(), self.nodes[n].id.clone());
        match self.at_hub(n, |hub| hub.task(&task)) {
            Some(Ok(row)) => (work::standing(held, row.as_ref(), &node), row),
            _ => (Standing::Unknown, None),
        }
    }

    fn tell(&mut self, n: usize, held: &Held, ops: &[Op]) {
        if planted::is(Bug::ForgetsBeforeTold) {
            self.forget(n, held);
        }
        let at = self.time();
        if let Some(Ok(_)) = self.at_hub(n, |hub| hub.transact(at, ops)) {
            self.trace.say(self.now, "told", &format!("{} {}", self.nodes[n].id, held.key()));
            self.forget(n, held);
        }
    }

    fn forget(&mut self, n: usize, held: &Held) {
        self.nodes[n].held.remove(&held.key());
        self.nodes[n].renewed.remove(&held.key());
        if self.nodes[n].free() {
            self.nodes[n].idle_since = self.now;
        }
    }

    fn send(&mut self, n: usize, held: &Held, errand: Errand, most: u64) {
        self.nodes[n].errands.insert(held.key());
        let (wait, life) = (self.dice.between(10, most), self.nodes[n].life);
        self.later(wait, Event::Errand(n, life, errand));
    }

    fn begin(&mut self, n: usize, held: &Held) {
        let Some(Ok(Some(doc))) = self.at_hub(n, |hub| hub.doc(KIND, LOOP)) else { return };
        let state = self.parsed(&doc);
        if state.check_of(&held.task).is_none() {
            let nothing = Report::nothing(&self.nodes[n].id, "unknown");
            return self.tell(n, held, &[held.finish(TaskEnd::Dead, &nothing)]);
        }
        if state.judged.is_some() {
            let now = self.clock(n);
            self.nodes[n].renewed.insert(held.key(), now);
            self.send(n, held, Errand::Begin(held.key()), 2_000);
        }
    }

    /// An errand is over.
    pub(super) fn over(&mut self, n: usize, errand: Errand) {
        match errand {
            Errand::Begin(key) => self.begun(n, &key),
            Errand::Push(key) => self.pushed(n, &key),
            Errand::Judge(commit) => {
                self.nodes[n].judging = false;
                let board = self.board(commit);
                self.change(n, |state| state.judge(commit.to_string(), board));
            }
            Errand::Merge { task, fence, node, work, target } => {
                self.nodes[n].judging = false;
                self.merge(n, (task, fence, node), work, target);
            }
        }
    }

    fn begun(&mut self, n: usize, key: &str) {
        self.nodes[n].errands.remove(key);
        let Some(held) = self.nodes[n].held.get(key).cloned() else { return };
        let Some(check) = self.state().check_of(&held.task).map(str::to_owned) else { return };
        let base = self.git.target;
        let local = Local1 { base, check, over: None, commit: None };
        self.nodes[n].loops.entry(held.local()).or_insert(local);
        let wait = self.dice.between(1_000, ms(self.setup.work));
        let life = self.nodes[n].life;
        self.later(wait, Event::Local(n, life, held.local()));
    }

    /// The agents of a loop are done: mostly well, sometimes not.
    pub(super) fn local_over(&mut self, n: usize, id: &LoopId) {
        let luck = of_text(self.seed, id.as_str()) % 10;
        let Some(local) = self.nodes[n].loops.get(id).filter(|l| l.over.is_none()).cloned() else { return };
        let mut files = self.git.files(local.base).clone();
        let (reached, commit) = match luck {
            0 | 1 => (false, None),
            _ => {
                files.insert(local.check.clone());
                (true, Some(self.git.commit(files)))
            }
        };
        self.nodes[n].loops.insert(id.clone(), Local1 { over: Some(reached), commit, ..local });
    }

    fn pushed(&mut self, n: usize, key: &str) {
        self.nodes[n].errands.remove(key);
        let Some(held) = self.nodes[n].held.get(key).cloned() else { return };
        let Some(local) = self.nodes[n].loops.get(&held.local()).cloned() else { return };
        if let Some(commit) = local.commit {
            self.git.refs.insert(held.reference(), commit);
        }
        self.facts.pushed.insert((held.task.clone(), held.fence));
        let report = self.report(n, local.commit, local.over == Some(true));
        self.nodes[n].held.insert(key.to_owned(), Held { stage: Stage::Pushed { report }, ..held });
    }

    fn report(&self, n: usize, commit: Option<Commit>, reached: bool) -> Report {
        Report {
            node: self.nodes[n].id.clone(),
            reached: reached && commit.is_some(),
            commit: commit.map(|c| c.to_string()),
            reference: None,
            turns: 1,
            microusd: 0,
            why: String::new(),
        }
    }

    fn take_more(&mut self, n: usize) {
        if !self.nodes[n].free() {
            return;
        }
        let mut states = vec![StateName::Queued];
        if planted::is(Bug::TakesFromTheLiving) {
            states.push(StateName::Leased);
        }
        let filter = TaskFilter { owner: Owner::Any, states, limit: 200 };
        let Some(Ok(rows)) = self.at_hub(n, |hub| hub.tasks(&filter)) else { return };
        let (node, at) = (self.nodes[n].id.clone(), self.time());
        for (task, fence) in work::pick(&node, &rows, 1, at) {
            let free = rows.iter().find(|r| r.task.id == task).map_or(0, |r| r.updated_at.0.max(r.task.ready_at.0));
            let owner = LoopId::new(LOOP);
            let held = Held { task: task.clone(), fence, owner, stage: Stage::Working };
            self.nodes[n].held.insert(held.key(), held.clone());
            let before = self.hub.task(&task).expect("the model answers").map(|row| row.state);
            let take = held.take(&node, work::LEASE);
            if matches!(before, Some(TaskState::Leased { until, .. }) if until <= at) {
                self.taken_from(&task);
            }
            match self.at_hub(n, |hub| hub.transact(at, &[take])) {
                Some(Ok(_)) => {
                    let sent = self.clock(n);
                    self.nodes[n].renewed.insert(held.key(), sent);
                    self.trace.say(self.now, "takes", &format!("{node} {}", held.key()));
                    self.took(n, u64::try_from(free).unwrap_or(0));
                }
                Some(Err(_)) => drop(self.nodes[n].held.remove(&held.key())),
                None => {}
            }
        }
    }

    fn lead(&mut self, n: usize, epoch: u64) {
        let Some(Ok(Some(doc))) = self.at_hub(n, |hub| hub.doc(KIND, LOOP)) else { return };
        let mut state = self.parsed(&doc);
        if state.ended.is_some() {
            return;
        }
        let open = state.open.clone();
        let found = self.at_hub(n, |hub| open.iter().map(|o| hub.task(&o.task)).collect::<Result<Vec<_>, _>>());
        let Some(Ok(rows)) = found else { return };
        let rows: Vec<TaskRow> = rows.into_iter().flatten().collect();
        self.reclaim(n, &rows, epoch);
        let plan = lead::plan(&mut state, &rows, self.nodes[n].judging, self.time());
        match plan.errand {
            Some(LeadStep::Judge) => self.judge(n),
            Some(LeadStep::Integrate { task, fence, report }) => self.integrate(n, task, fence, &report),
            _ => {}
        }
        for note in &plan.notes {
            self.trace.say(self.now, "writes", note);
        }
        if !plan.notes.is_empty() {
            self.write(n, &state, (doc.version, epoch), plan.ops);
        }
    }

    fn office(&self, n: usize, epoch: u64) -> Office {
        Office { node: self.nodes[n].id.clone(), epoch }
    }

    fn write(&mut self, n: usize, state: &MeshLoop, (version, epoch): (u64, u64), ops: Vec<Op>) {
        let batch = self.office(n, epoch).batch(ops.into_iter().chain(state.save(version, &[])));
        let at = self.time();
        match self.at_hub(n, |hub| hub.transact(at, &batch)) {
            Some(Ok(_)) => self.wrote(n, epoch, state),
            Some(Err(Error::Refused(Refusal::Deposed { .. }))) => {
                let now = self.clock(n);
                self.nodes[n].seat.answered(now, None);
            }
            Some(Err(_)) | None => {}
        }
    }

    fn reclaim(&mut self, n: usize, rows: &[TaskRow], epoch: u64) {
        if !self.nodes[n].seat.reclaims(self.clock(n)) {
            return;
        }
        for (task, fence) in lead::overdue(rows, self.time()) {
            let (batch, at) = (self.office(n, epoch).take_back(&task, fence), self.time());
            self.taken_from(&task);
            if let Some(Ok(_)) = self.at_hub(n, |hub| hub.transact(at, &batch)) {
                self.trace.say(self.now, "reclaims", &format!("{task} {fence}"));
            }
        }
    }

    fn judge(&mut self, n: usize) {
        self.nodes[n].judging = true;
        let (wait, life, target) = (self.dice.between(100, 5_000), self.nodes[n].life, self.git.target);
        self.later(wait, Event::Errand(n, life, Errand::Judge(target)));
    }

    fn integrate(&mut self, n: usize, task: TaskId, fence: Fence, report: &Report) {
        let Some(work) = report.commit.as_ref().and_then(|c| c.parse().ok()) else { return };
        self.nodes[n].judging = true;
        let (node, target) = (report.node.clone(), self.git.target);
        let (wait, life) = (self.dice.between(100, 20_000), self.nodes[n].life);
        self.later(wait, Event::Errand(n, life, Errand::Merge { task, fence, node, work, target }));
    }

    /// The checks said what they say about the merged tree, when the branch was at `target`.
    fn merge(&mut self, n: usize, (task, fence, node): (TaskId, Fence, NodeId), work: Commit, target: Commit) {
        let Some(check) = self.state().check_of(&task).map(str::to_owned) else { return };
        let landed =
            |commit: String| Landed { task: task.clone(), check: check.clone(), node: node.clone(), fence, commit };
        // Looked for when it began, and again when the branch moved: here it is the same look.
        if self.git.landed.contains(&task) && !planted::is(Bug::LandsWithoutLook) {
            let commit = self.git.target.to_string();
            return self.change(n, |state| state.land(landed(commit), None));
        }
        if of_text(self.seed, &format!("{task}.{fence} conflicts")).is_multiple_of(12) {
            return self.change(n, |state| state.refuse(&task, "conflict"));
        }
        let merged = self.git.join(target, work);
        let (before, after) = (self.board(target), self.board(merged));
        if let Err(why) = accept(&before, &after, &check) {
            return self.change(n, |state| state.refuse(&task, &why));
        }
        let Some(epoch) = self.nodes[n].seat.epoch(self.clock(n)) else { return };
        if self.git.land(target, merged, &task) {
            self.trace.say(self.now, "lands", task.as_str());
            self.landed(n, epoch, &task);
            self.change(n, |state| state.land(landed(merged.to_string()), Some(after)));
        }
    }

    fn change(&mut self, n: usize, change: impl FnOnce(&mut MeshLoop)) {
        let Some(epoch) = self.nodes[n].seat.epoch(self.clock(n)) else { return };
        let Some(Ok(Some(doc))) = self.at_hub(n, |hub| hub.doc(KIND, LOOP)) else { return };
        let mut state = self.parsed(&doc);
        change(&mut state);
        self.write(n, &state, (doc.version, epoch), Vec::new());
    }
}
