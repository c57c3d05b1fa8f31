//! What the thread of a node does, step by step as the real one does it; only its errands are models.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use everloop_core::ids::{Fence, LoopId, NodeId, TaskId};
use everloop_core::mesh::alone::{Line, Replica};
use everloop_core::mesh::lead::{self, Office, Step as LeadStep};
use everloop_core::mesh::purse::Loan;
use everloop_core::mesh::seat::{self, Seat};
use everloop_core::mesh::work::{self, Held, Local, Stage, Standing, Step, View};
use everloop_core::mesh::{KIND, Landed, MeshLoop, Report, Said, accept};
use everloop_core::op::{Op, Refusal, Reply, TaskEnd, TaskRow, TaskState};
use everloop_core::planted::{self, Bug};
use everloop_core::time::Time;
use everloop_store::{Error, Ledger, Model, Owner, StateName, TaskFilter};

use super::git::Commit;
use super::world::{Event, LOOP, World, ms};
use crate::sim::random::of_text;

pub(super) const BEAT: Duration = Duration::from_secs(5);
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
    /// Turns that it takes.
    turns: u64,
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
    pub replica: Replica,
    // In its memory.
    seat: Seat,
    beat_at: Time,
    ask_at: Time,
    pub renewed: BTreeMap<String, Time>,
    pub line: Line,
    pub remembered_at: Time,
    pub claim_at: Time,
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
            replica: Replica::default(),
            seat: Seat::default(),
            beat_at: Time::default(),
            ask_at: Time::default(),
            renewed: BTreeMap::new(),
            line: Line::default(),
            remembered_at: Time::default(),
            claim_at: Time::default(),
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
        self.replica = old.replica;
    }

    fn free(&self) -> bool {
        self.held.is_empty()
    }
}

impl World {
    pub(super) fn clock(&self, n: usize) -> Time {
        Time(i64::try_from(self.now * self.nodes[n].rate / 1000).unwrap_or(i64::MAX))
    }

    /// A call to the hub. `None`: what became of it is unknown. Now and then a call is lost on its way there, or its answer
    /// on the way back.
    pub(super) fn at_hub<T>(
        &mut self,
        n: usize,
        call: impl FnOnce(&mut Model) -> Result<T, Error>,
    ) -> Option<Result<T, Error>> {
        let fate = if self.setup.fault_every.is_some() { self.dice.below(800) } else { 1 };
        let reached = self.hub_up && !self.nodes[n].cut && fate != 0;
        let answer = reached.then(|| call(&mut self.hub)).filter(|_| fate != 799);
        if answer.is_none() {
            let now = self.clock(n);
            self.nodes[n].line.failed(now);
        } else if self.nodes[n].line.is_broken() {
            self.back(n);
        }
        answer
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
        if self.nodes[n].line.is_away(self.clock(n)) {
            self.begin_alone(n);
        } else {
            self.take_more(n);
        }
        let now = self.clock(n);
        let node = &self.nodes[n];
        let timers = node.beat_at.since(now).min(node.ask_at.since(now));
        let idle = node.free() && !node.line.is_broken() && node.seat.epoch(now).is_none();
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
        let node = self.nodes[n].id.clone();
        let elsewhere = self.failed_elsewhere(n, held);
        match work::next(held, standing, &local, &View { node: &node, failures, elsewhere, again_at }) {
            Step::Wait => {}
            Step::Begin => self.begin(n, held),
            Step::Stop => {
                let now = self.clock(n);
                self.nodes[n].renewed.insert(held.key(), now);
                if let Some(local) = self.nodes[n].loops.get_mut(&held.local()) {
                    local.over.get_or_insert(false);
                }
            }
            Step::Claim => self.claim(n, held),
            Step::Adopt => self.adopt(n, held),
            Step::Push { .. } => self.send(n, held, Errand::Push(held.key()), 1_000),
            Step::Tell(ops) => self.tell(n, held, &ops),
            Step::Forget => self.forget(n, held),
        }
    }

    fn failed_elsewhere(&self, n: usize, held: &Held) -> bool {
        let shelf = self.hub.shelf(&held.task).expect("the model answers");
        let own = format!("\"node\":\"{}\"", self.nodes[n].id);
        self.nodes.len() == 1 || shelf.iter().any(|late| !late.result.contains(&own))
    }

    fn stand(&mut self, n: usize, held: &Held, local: &Local) -> (Standing, Option<TaskRow>) {
        let now = self.clock(n);
        let due = self.nodes[n].renewed.get(&held.key()).is_none_or(|at| now.since(*at) >= work::RENEW);
        if held.stage == Stage::Working && *local != Local::Missing {
            if !due {
                return (Standing::Unknown, None);
            }
            if !held.alone {
                return (self.renew(n, held), None);
            }
        }
        let (task, node) = (held.task.clone(), self.nodes[n].id.clone());
        let Some(Ok(row)) = self.at_hub(n, |hub| hub.task(&task)) else { return (Standing::Unknown, None) };
        let standing = work::standing(held, row.as_ref(), &node);
        match standing {
            Standing::Mine if due && !held.alone => drop(self.renew(n, held)),
            _ if held.alone => drop(self.nodes[n].renewed.insert(held.key(), now)),
            _ => {}
        }
        (standing, row)
    }

    fn renew(&mut self, n: usize, held: &Held) -> Standing {
        let (now, at, renew) = (self.clock(n), self.time(), held.renew(work::LEASE));
        match self.at_hub(n, |hub| hub.transact(at, &[renew])) {
            Some(Ok(_)) => {
                self.nodes[n].renewed.insert(held.key(), now);
                Standing::Mine
            }
            Some(Err(Error::Refused(Refusal::Fenced { .. } | Refusal::Gone { .. }))) => Standing::Lost,
            Some(Err(_)) | None => Standing::Unknown,
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
        let Some(state) = self.about(n, held) else { return };
        if state.check_of(&held.task).is_none() {
            let nothing = Report::nothing(&self.nodes[n].id, held.fence, "unknown");
            return self.tell(n, held, &[held.finish(TaskEnd::Dead, &nothing)]);
        }
        let ready = state.judged.is_some() && state.loan(&held.task, held.fence).is_some();
        let now = self.clock(n);
        if ready {
            self.nodes[n].renewed.insert(held.key(), now);
            self.send(n, held, Errand::Begin(held.key()), 2_000);
        } else if let Some(waits) = &state.waits {
            let (at, until) = (self.time(), waits.until.unwrap_or(self.time() + work::AGAIN));
            if self.at_hub(n, |hub| hub.transact(at, &[held.give_back(until, false)])).is_some() {
                self.forget(n, held);
            }
        }
    }

    /// The loop of a task: as the hub has it, or as it had it before it went away.
    fn about(&mut self, n: usize, held: &Held) -> Option<MeshLoop> {
        if held.alone {
            return self.remembered(n, held);
        }
        let Some(Ok(Some(doc))) = self.at_hub(n, |hub| hub.doc(KIND, LOOP)) else { return None };
        Some(self.parsed(&doc))
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
        let state = if held.alone { self.remembered(n, &held) } else { Some(self.state()) };
        let Some(state) = state else { return };
        let Some(check) = state.check_of(&held.task).map(str::to_owned) else { return };
        let most = state.loan(&held.task, held.fence).and_then(|loan| loan.calls).unwrap_or(1);
        let (base, turns) = (self.git.target, 1 + of_text(self.seed, &held.key()) % most);
        let local = Local1 { base, check, turns, over: None, commit: None };
        if !self.nodes[n].loops.contains_key(&held.local()) {
            self.attempt(n, &held, turns);
            self.nodes[n].loops.insert(held.local(), local);
        }
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
            self.git.refs.insert(held.reference(&self.nodes[n].id), commit);
        }
        let report = self.report(n, &held, &local);
        self.facts.pushed.insert((held.task.clone(), report.why.clone()));
        self.nodes[n].held.insert(key.to_owned(), Held { stage: Stage::Pushed { report }, ..held });
    }

    fn report(&self, n: usize, held: &Held, local: &Local1) -> Report {
        let node = &self.nodes[n].id;
        // Says which one it is, so that it can be looked for at the end.
        let nothing = Report::nothing(node, held.fence, &format!("{node} {}", held.key()));
        let (turns, commit) = (u32::try_from(local.turns).unwrap_or(u32::MAX), local.commit.map(|c| c.to_string()));
        Report { reached: local.over == Some(true) && commit.is_some(), commit, turns, ..nothing }
    }

    fn take_more(&mut self, n: usize) {
        let free = usize::from(self.nodes[n].free());
        if free == 0 && !self.must_remember(n) {
            return;
        }
        let mut states = vec![StateName::Queued];
        if planted::is(Bug::TakesFromTheLiving) {
            states.push(StateName::Leased);
        }
        let filter = TaskFilter { owner: Owner::Any, states, limit: 200 };
        let Some(Ok(rows)) = self.at_hub(n, |hub| hub.tasks(&filter)) else { return };
        self.remember(n, &rows);
        let rows: Vec<TaskRow> = rows.into_iter().filter(|row| self.nodes[n].replica.is_lent(row)).collect();
        let free = if self.clock(n) < self.nodes[n].claim_at { 0 } else { free };
        let (node, at) = (self.nodes[n].id.clone(), self.time());
        for (task, fence) in work::pick(&node, &rows, free, at) {
            let free = rows.iter().find(|r| r.task.id == task).map_or(0, |r| r.updated_at.0.max(r.task.ready_at.0));
            // Before something was set aside for it, it waited for that.
            let lent = |loan: &&Loan| loan.task == task && loan.fence == fence;
            let free = free.max(self.state().loans.iter().find(lent).map_or(0, |loan| loan.at.0));
            let owner = LoopId::new(LOOP);
            let held = Held { task: task.clone(), fence, owner, stage: Stage::Working, alone: false };
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
        let Some(late) = self.late(n, &state, &rows) else { return };
        self.reclaim(n, &rows, epoch);
        let plan = lead::plan(&mut state, &rows, &late, self.nodes[n].judging, self.time());
        match plan.errand {
            Some(LeadStep::Judge) => self.judge(n),
            Some(LeadStep::Integrate { task, fence, report }) => self.integrate(n, task, fence, &report),
            _ => {}
        }
        for note in &plan.notes {
            self.trace.say(self.now, "writes", note);
        }
        if plan.changed {
            self.write(n, &state, (doc.version, epoch), plan.ops);
        }
    }

    /// What the shelf says about tasks for which something is set aside.
    fn late(&mut self, n: usize, state: &MeshLoop, rows: &[TaskRow]) -> Option<Vec<Said>> {
        let mut late = Vec::new();
        for (task, fence) in state.unsettled() {
            if rows.iter().any(|row| row.task.id == task && lead::is_awaited(row, fence)) {
                continue;
            }
            let Some(Ok(shelf)) = self.at_hub(n, |hub| hub.shelf(&task)) else { return None };
            let said = shelf.into_iter().filter_map(|late| serde_json::from_str(&late.result).ok());
            late.extend(said.map(|report| (task.clone(), report)));
        }
        Some(late)
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
