//! Tasks that a node holds: taking them, working on them as loops of its own, and telling the hub what came of it.

use std::rc::Rc;

use everloop_core::ids::LoopId;
use everloop_core::mesh::work::{self, Held, Local, Stage, Standing, Step, View};
use everloop_core::mesh::{MeshLoop, Report};
use everloop_core::op::{Op, Refusal, TaskEnd, TaskRow, TaskState};
use everloop_core::planted::{self, Bug};
use everloop_core::time::Time;
use everloop_store::{Error, Ledger, StateName, TaskFilter, TaskOwner};

use super::Ill;
use super::node::{BEAT, Errand, FAR, File, Hint, Local1};
use super::weather::Fault;
use super::world::{Event, World, ms};
use crate::sim::random::of_text;

/// Free tasks that are looked at.
const SEEN: usize = 200;

impl World {
    pub(super) fn tend(&mut self, n: usize) {
        if self.nodes[n].disk.held.is_empty() {
            return;
        }
        let all: Vec<Rc<File>> = self.nodes[n].disk.held.values().cloned().collect();
        for file in all {
            if !self.nodes[n].action_runs.contains(&file.key) {
                self.tend_one(n, &file);
            }
        }
    }

    fn tend_one(&mut self, n: usize, file: &Rc<File>) {
        let local = match self.nodes[n].disk.loops.get(&file.local) {
            None => Local::Missing,
            Some(Local1 { over: None, .. }) => Local::Running,
            Some(Local1 { over: Some(reached), .. }) => Local::Over { reached: *reached },
        };
        let (standing, failures) = self.stand(n, file, &local);
        let again_at = self.hub_now(n) + work::AGAIN;
        let elsewhere = self.failed_elsewhere(n, &file.held);
        let view = View { node: &self.nodes[n].id, failures, elsewhere, again_at };
        match work::next(&file.held, standing, &local, &view) {
            Step::Wait => {}
            Step::Begin => self.begin(n, file),
            Step::Stop => {
                let now = self.clock(n);
                self.nodes[n].renewed.insert(file.key.clone(), now);
                self.stop_local(n, &file.local);
            }
            // Nothing of a machine but its record holds up its loops here.
            Step::GiveBack(_) => self.release(n, file, self.hub_now(n)),
            Step::Claim => self.claim(n, file),
            Step::Adopt => self.adopt(n, file),
            Step::Push { .. } => self.send(n, file, Errand::Push(file.clone()), 1_000),
            Step::Tell(ops) => self.tell(n, file, &ops),
            Step::Forget => self.forget(n, file),
        }
    }

    fn failed_elsewhere(&self, n: usize, held: &Held) -> bool {
        let late_results = self.hub.model.late_results(&held.task).expect("the model answers");
        let members: Vec<_> = self.nodes.iter().map(|node| node.id.clone()).collect();
        work::failed_elsewhere(&self.nodes[n].id, &members, late_results.iter().map(|late| late.result.as_str()))
    }

    fn stand(&mut self, n: usize, file: &Rc<File>, local: &Local) -> (Standing, u32) {
        let (now, held) = (self.clock(n), &file.held);
        let due = self.nodes[n].renewed.get(&file.key).is_none_or(|at| now.since(*at) >= work::RENEW);
        if held.stage == Stage::Working && *local != Local::Missing {
            if !due {
                return (Standing::Unknown, 0);
            }
            if !held.alone {
                return (self.renew(n, file), 0);
            }
        }
        let found = self.at_hub(n, |hub, node| {
            let row = hub.peek_task(&held.task);
            (work::standing(held, row, &node.id), row.map_or(0, |row| row.failures))
        });
        let Some((standing, failures)) = found else { return (Standing::Unknown, 0) };
        match standing {
            Standing::Mine if due && !held.alone => drop(self.renew(n, file)),
            _ if held.alone => drop(self.nodes[n].renewed.insert(file.key.clone(), now)),
            _ => {}
        }
        (standing, failures)
    }

    fn renew(&mut self, n: usize, file: &Rc<File>) -> Standing {
        if planted::is(Bug::NeverRenews) {
            return Standing::Unknown;
        }
        let now = self.clock(n);
        match self.transact(n, None, &[file.held.renew(work::LEASE)]) {
            Some(Ok(_)) => {
                self.nodes[n].renewed.insert(file.key.clone(), now);
                Standing::Mine
            }
            Some(Err(Error::Refused(Refusal::Fenced { .. } | Refusal::Gone { .. }))) => Standing::Lost,
            Some(Err(_)) | None => Standing::Unknown,
        }
    }

    fn tell(&mut self, n: usize, file: &Rc<File>, ops: &[Op]) {
        if planted::is(Bug::ForgetsBeforeTold) {
            self.forget(n, file);
        }
        let tried = self.nodes[n].disk.loops.get(&file.local).and_then(|local| self.tried(n, local));
        let told = self.transact(n, None, ops);
        if let Some(Ok(_)) = told {
            self.trace.say(self.now, "told", &format!("{} {}", self.nodes[n].id, file.key));
            self.forget(n, file);
            self.hint(n, Hint::Work);
            if let Some(tried) = tried {
                self.note_end(n, file, &tried);
            }
        } else if let Some(Err(Error::Refused(Refusal::Gone { .. }))) = told {
            // A hub that was set back did not know the task, and may make another one of the same name.
            if self.hub.copies > 0 {
                self.facts.forgiven.insert((file.held.task.clone(), format!("{} {}", self.nodes[n].id, file.key)));
            }
            self.forget(n, file);
        }
    }

    /// Writes down what a node holds, whole or not at all; whether that was possible.
    pub(super) fn put(&mut self, n: usize, held: Held) -> bool {
        let file = File::new(held);
        let fault = self.meet();
        let node = &mut self.nodes[n];
        match fault {
            _ if node.dying || node.full => {
                node.idle_since = self.now;
                false
            }
            Some(Fault::KillBefore) => {
                node.dying = true;
                false
            }
            Some(Fault::DiskFull) => {
                node.idle_since = self.now;
                false
            }
            other => {
                node.dying = other == Some(Fault::KillAfter);
                node.disk.held.insert(file.key.clone(), file);
                true
            }
        }
    }

    fn forget(&mut self, n: usize, file: &Rc<File>) {
        if self.nodes[n].dying {
            return;
        }
        if self.meet() == Some(Fault::KillBefore) {
            self.nodes[n].dying = true;
            return;
        }
        let node = &mut self.nodes[n];
        node.disk.held.remove(&file.key);
        node.renewed.remove(&file.key);
        if node.disk.loops.get(&file.local).is_some_and(|local| local.over.is_some()) {
            node.disk.loops.remove(&file.local);
        }
        node.idle_since = self.now;
    }

    fn send(&mut self, n: usize, file: &Rc<File>, action_run: Errand, most: u64) {
        self.nodes[n].action_runs.insert(file.key.clone());
        let (wait, life) = (self.dice.between(10, most), self.nodes[n].life);
        self.later(wait, Event::Errand(n, life, Box::new(action_run)));
    }

    fn begin(&mut self, n: usize, file: &Rc<File>) {
        let held = &file.held;
        let Some(state) = self.about(n, file) else { return };
        let check = state.check_of(&held.task).filter(|_| state.ended.is_none());
        let Some(check) = check.map(str::to_owned) else {
            let nothing = Report::nothing(&self.nodes[n].id, held.fence, "the loop does not know this task any more");
            return self.tell(n, file, &[held.finish(TaskEnd::Dead, &nothing)]);
        };
        match state.loan(&held.task, held.fence).filter(|_| state.judged.is_some()) {
            Some(loan) => {
                if !held.alone {
                    self.works_on(&held.task);
                }
                let (now, most) = (self.clock(n), loan.calls.unwrap_or(1));
                self.nodes[n].renewed.insert(file.key.clone(), now);
                self.send(n, file, Errand::Begin(file.clone(), check, most), 2_000);
            }
            None => {
                if let Some(waits) = &state.waits {
                    let until = waits.until.unwrap_or(self.hub_now(n) + work::AGAIN);
                    self.release(n, file, until);
                }
            }
        }
    }

    /// The loop of a task: as the hub has it, or as it had it before it went away.
    fn about(&mut self, n: usize, file: &Rc<File>) -> Option<MeshLoop> {
        let held = &file.held;
        if held.alone {
            return self.remembered(n, held);
        }
        self.at_hub(n, |_, _| ())?;
        let state = self.loop_at_hub(&held.owner);
        if state.is_none() {
            let nothing = Report::nothing(&self.nodes[n].id, held.fence, "the hub knows no such loop");
            self.tell(n, file, &[held.finish(TaskEnd::Dead, &nothing)]);
        }
        state
    }

    pub(super) fn begun(&mut self, n: usize, file: &Rc<File>, check: String, most: u64) {
        self.nodes[n].action_runs.remove(&file.key);
        self.begun += 1;
        let (base, turns) = (self.git.target, 1 + of_text(self.seed, &file.key) % most);
        let local = Local1 { base, check, turns, stopped: false, over: None, commit: None };
        if !self.nodes[n].disk.loops.contains_key(&file.local) {
            self.attempt(n, &file.held, turns);
            self.nodes[n].disk.loops.insert(file.local.clone(), local);
        }
        self.let_work(n, &file.local);
    }

    /// The agents of a loop begin, or go on.
    pub(super) fn let_work(&mut self, n: usize, id: &LoopId) {
        let most = if self.setup.ill == Ill::All { 1_000 } else { ms(self.setup.work) };
        let (wait, life) = (self.dice.between(1_000, most), self.nodes[n].life);
        self.later(wait, Event::Local(n, life, Box::new(id.clone())));
    }

    fn stop_local(&mut self, n: usize, id: &LoopId) {
        if let Some(local) = self.nodes[n].disk.loops.get_mut(id) {
            local.stopped |= local.over.is_none();
            local.over.get_or_insert(false);
        }
    }

    /// The agents of a loop are done: mostly well, sometimes not.
    pub(super) fn local_over(&mut self, n: usize, id: &LoopId) {
        let luck = of_text(self.seed, id.as_str()) % 10;
        let Some(local) = self.nodes[n].disk.loops.get(id).filter(|l| l.over.is_none()).cloned() else { return };
        let ill = match self.setup.ill {
            Ill::Nobody => false,
            Ill::Machine => n == 0,
            Ill::Check => local.check == "c0",
            Ill::All => true,
        };
        let reached = luck > 1 && !ill;
        let commit = reached.then(|| {
            let mut files = self.git.files(local.base).clone();
            files.insert(local.check.clone());
            self.git.commit(files)
        });
        self.nodes[n].disk.loops.insert(id.clone(), Local1 { over: Some(reached), commit, ..local });
    }

    pub(super) fn pushed(&mut self, n: usize, file: &Rc<File>) {
        self.nodes[n].action_runs.remove(&file.key);
        // What it says now may differ from what was said when it was sent out: it was adopted meanwhile.
        let Some(file) = self.nodes[n].disk.held.get(&file.key).cloned() else { return };
        let Some(local) = self.nodes[n].disk.loops.get(&file.local) else { return };
        let report = self.report(n, &file, local);
        self.facts.pushed.insert((file.held.task.clone(), report.why.clone()), n);
        // A full disk: the loop is still over, so it is pushed again.
        self.put(n, Held { stage: Stage::Pushed { report }, ..file.held.clone() });
    }

    fn report(&self, n: usize, file: &File, local: &Local1) -> Report {
        let node = &self.nodes[n].id;
        // Says which one it is, so that it can be looked for at the end.
        let nothing = Report::nothing(node, file.held.fence, &format!("{node} {}", file.key));
        let (turns, commit) = (u32::try_from(local.turns).unwrap_or(u32::MAX), local.commit.map(|c| c.to_string()));
        Report { reached: local.over == Some(true) && commit.is_some(), commit, turns, ..nothing }
    }

    pub(super) fn take_more(&mut self, n: usize) {
        let greedy = usize::from(planted::is(Bug::TakesMoreThanItsSlots));
        let drained = self.nodes[n].draining && !planted::is(Bug::DrainIgnored);
        let room = if drained { 0 } else { self.nodes[n].room() + greedy };
        let now = self.clock(n);
        if now < self.nodes[n].list_at || (room == 0 && !self.must_remember(n)) || self.nodes[n].dying {
            return;
        }
        self.nodes[n].list_at = now + FAR;
        let mut states = vec![StateName::Queued];
        if planted::is(Bug::TakesFromTheLiving) {
            states.push(StateName::Leased);
        }
        let filter = TaskFilter { owner: TaskOwner::Any, states, limit: SEEN };
        let Some(Ok(mut rows)) = self.at_hub(n, |hub, _| hub.tasks(&filter)) else { return };
        self.remember(n, &rows);
        if !rows.is_empty() {
            self.nodes[n].list_at = now + BEAT / 2;
        }
        let replica = self.nodes[n].disk.replica.clone();
        rows.retain(|row| replica.is_lent(row));
        if rows.is_empty() || room == 0 || self.clock(n) < self.nodes[n].claim_at {
            self.nodes[n].lets_others_since = None;
            return;
        }
        let Some(offer) = self.fitting(n, rows, room) else { return };
        let has: Vec<Held> = self.nodes[n].disk.held.values().map(|file| file.held.clone()).collect();
        let picked = work::pick(&self.nodes[n].id, &has, &offer.rows, offer.most, self.hub_now(n));
        for (task, fence) in picked {
            let Some(row) = offer.rows.iter().find(|r| r.task.id == task) else { continue };
            let Some(owner) = row.task.owner.clone() else { continue };
            let held = Held { task, fence, owner, stage: Stage::Working, alone: false };
            if !self.take(n, row, held.clone()) {
                return;
            }
            if offer.trial && self.nodes[n].renewed.contains_key(&held.key()) {
                self.note_trial(n, &held, row);
            }
        }
    }

    /// Takes a task; whether another one may be tried.
    fn take(&mut self, n: usize, row: &TaskRow, held: Held) -> bool {
        let late = planted::is(Bug::WritesDownAfterTaking);
        if !late && !self.put(n, held.clone()) {
            return false;
        }
        let sent = self.clock(n);
        let expired = matches!(&row.state, TaskState::Leased { until, .. } if *until <= self.time());
        if let Some(wrong) = self.taken_from(&held.task).filter(|_| expired) {
            self.violated(wrong.invariant, wrong.text);
        }
        let take = held.take(&self.nodes[n].id, work::LEASE);
        let key = held.key();
        match self.transact(n, None, &[take]) {
            Some(Ok(_)) => {
                self.trace.say(self.now, "takes", &format!("{} {key}", self.nodes[n].id));
                self.nodes[n].renewed.insert(key, sent);
                if late {
                    self.put(n, held);
                }
            }
            Some(Err(_)) if late => {}
            Some(Err(_)) => self.forget(n, &File::new(held)),
            // Whether it was taken is unknown, and found out at the next look.
            None => {}
        }
        true
    }

    /// The node goes: others take over what is not finished.
    pub(super) fn give_all_back(&mut self, n: usize) {
        let all: Vec<Rc<File>> = self.nodes[n].disk.held.values().cloned().collect();
        for file in all {
            let over = self.nodes[n].disk.loops.get(&file.local).is_some_and(|local| local.over.is_some());
            if file.held.stage == Stage::Working && !over {
                self.release(n, &file, self.hub_now(n) + work::AGAIN);
            }
        }
    }

    /// Gives a task back, for somebody else from `ready_at` on, with a word about what was used.
    fn release(&mut self, n: usize, file: &Rc<File>, ready_at: Time) {
        let local = self.nodes[n].disk.loops.get(&file.local);
        let used = local.map(|local| Report { reached: false, commit: None, ..self.report(n, file, local) });
        let said = used.map(|report| file.held.shelve(&report));
        let back = (!file.held.alone).then(|| file.held.give_back(ready_at, false));
        let ops: Vec<Op> = said.into_iter().chain(back).collect();
        if self.transact(n, None, &ops).is_some() || file.held.alone {
            self.stop_local(n, &file.local);
            self.forget(n, file);
        }
    }
}
