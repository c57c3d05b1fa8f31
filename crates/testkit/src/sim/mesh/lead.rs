//! What the supervisor of the mesh does: it asks the checks about the branch, makes tasks of what fails, merges what comes
//! back, and gives tasks of silent nodes to others.

use everloop_core::ids::{Fence, TaskId};
use everloop_core::mesh::lead::{self, Office, Step};
use everloop_core::mesh::{Landed, MeshLoop, Report, Said, accept};
use everloop_core::op::{Op, Refusal, TaskRow};
use everloop_core::planted::{self, Bug};
use everloop_store::{Error, Ledger};

use super::node::{Errand, Hint, Merge};
use super::weather::Fault;
use super::world::{Event, World};
use crate::sim::random::of_text;

impl World {
    pub(super) fn lead(&mut self, n: usize, term: u64) {
        // Loops that are over are read and left alone; the one that is not is looked after.
        if self.at_hub(n, |_, _| ()).is_none() || self.facts.ended {
            return;
        }
        self.read();
        let (version, mut state) = self.current.read.take().expect("it was just read");
        if state.ended.is_some() || self.at_hub(n, |_, _| ()).is_none() {
            self.current.read = Some((version, state));
            return;
        }
        let mut rows = std::mem::take(&mut self.current.rows);
        self.look_at_tasks(&state, &mut rows);
        let late = self.late(&state, &rows);
        self.reclaim(n, &rows, term);
        let plan = lead::plan(&mut state, &rows, &late, self.nodes[n].judging, self.hub_now(n));
        match plan.action_run {
            Some(Step::Judge) => self.judge(n),
            Some(Step::Integrate { task, fence, report }) => self.integrate(n, &state, (task, fence), &report),
            _ => {}
        }
        self.current.rows = rows;
        if !plan.changed {
            // Nothing changed it, so it is still what was read.
            self.current.read = Some((version, state));
            return;
        }
        for note in &plan.notes {
            self.trace.say(self.now, "writes", note);
        }
        self.write(n, &state, (version, term), (plan.ops, &plan.notes));
    }

    /// The open tasks of a loop, copied only where they changed.
    fn look_at_tasks(&self, state: &MeshLoop, rows: &mut Vec<TaskRow>) {
        let mut known = 0;
        for open in &state.open {
            let Some(row) = self.hub.model.peek_task(&open.task) else { continue };
            match rows.get_mut(known) {
                Some(old) if old == row => {}
                Some(old) => old.clone_from(row),
                None => rows.push(row.clone()),
            }
            known += 1;
        }
        rows.truncate(known);
    }

    /// What the shelf says about tasks for which something is set aside.
    fn late(&self, state: &MeshLoop, rows: &[TaskRow]) -> Vec<Said> {
        let mut late = Vec::new();
        for (task, fence) in state.unsettled() {
            if rows.iter().any(|row| row.task.id == task && lead::is_awaited(row, fence)) {
                continue;
            }
            let late_results = self.hub.model.late_results(&task).expect("the model answers");
            let said = late_results.iter().filter_map(|late| Report::read(&late.result));
            late.extend(said.map(|report| (task.clone(), report)));
        }
        late
    }

    pub(super) fn office(&self, n: usize, term: u64) -> Office {
        Office { node: self.nodes[n].id.clone(), term }
    }

    fn write(&mut self, n: usize, state: &MeshLoop, (version, term): (u64, u64), (ops, notes): (Vec<Op>, &[String])) {
        let batch = self.office(n, term).batch(ops.into_iter().chain(state.save(version, notes)));
        self.worst_moment();
        match self.transact(n, Some(term), &batch) {
            Some(Ok(_)) => self.hint(n, Hint::Work),
            Some(Err(Error::Refused(Refusal::NotLeader { .. }))) => {
                let now = self.clock(n);
                self.nodes[n].seat.answered(now, None);
            }
            Some(Err(Error::Refused(Refusal::Conflict { .. }))) if planted::is(Bug::OverwritesOthers) => {
                let version = self.read().0;
                let batch = self.office(n, term).batch(state.save(version, notes));
                self.transact(n, Some(term), &batch);
            }
            Some(Err(_)) | None => {}
        }
    }

    fn reclaim(&mut self, n: usize, rows: &[TaskRow], term: u64) {
        if !self.nodes[n].seat.reclaims(self.clock(n)) {
            return;
        }
        let now = if planted::is(Bug::ReclaimsByItsOwnClock) { self.clock(n) } else { self.hub_now(n) };
        for (task, fence) in lead::overdue(rows, now) {
            let batch = self.office(n, term).take_back(&task, fence);
            let wrong = self.taken_from(&task);
            let answer = self.transact(n, Some(term), &batch);
            if let Some(Ok(_)) = answer {
                self.trace.say(self.now, "reclaims", &format!("{task} {fence}"));
            }
            if let Some(wrong) = wrong.filter(|_| !matches!(answer, Some(Err(_)))) {
                self.violated(wrong.invariant, wrong.text);
            }
        }
    }

    fn judge(&mut self, n: usize) {
        self.nodes[n].judging = true;
        let action_run = Errand::Judge(self.current.number, self.git.target);
        let (wait, life) = (self.dice.between(100, 5_000), self.nodes[n].life);
        self.later(wait, Event::Errand(n, life, Box::new(action_run)));
    }

    fn integrate(&mut self, n: usize, state: &MeshLoop, (task, fence): (TaskId, Fence), report: &Report) {
        let Some(work) = report.commit.as_ref().and_then(|c| c.parse().ok()) else { return };
        let Some(check) = state.check_of(&task).map(str::to_owned) else { return };
        self.nodes[n].judging = true;
        let (node, target, landed) = (report.node.clone(), self.git.target, self.git.times(&task) > 0);
        let (wait, life) = (self.dice.between(100, 20_000), self.nodes[n].life);
        let merge = Merge { number: self.current.number, task, fence, node, check, work, target, landed };
        self.later(wait, Event::Errand(n, life, Box::new(Errand::Merge(merge))));
    }

    /// The checks said what they say about the merged tree, when the branch was at `target`.
    pub(super) fn merge(&mut self, n: usize, merge: &Merge) {
        let Merge { number, task, fence, node, check, work, target, landed } = merge;
        let stands = |commit: String| Landed {
            task: task.clone(),
            check: check.clone(),
            node: node.clone(),
            fence: *fence,
            commit,
        };
        if *landed && !planted::is(Bug::LandsWithoutLook) {
            return self.change(n, *number, |state| state.land(stands(target.to_string()), None));
        }
        if of_text(self.seed, &format!("{task}.{fence} conflicts")).is_multiple_of(12) {
            return self.change(n, *number, |state| state.refuse(task, "conflict"));
        }
        let merged = self.git.join(*target, *work);
        let (before, after) = (self.board(*target), self.board(merged));
        if let Err(why) = accept(&before, &after, check) {
            return self.change(n, *number, |state| state.refuse(task, &why));
        }
        let Some(term) = self.nodes[n].seat.term(self.clock(n)) else { return };
        let fault = self.meet();
        if fault == Some(Fault::KillBefore) {
            self.nodes[n].dying = true;
            return;
        }
        let before_it = self.git.target;
        if self.git.land(*target, merged, task) {
            self.nodes[n].dying = fault == Some(Fault::KillAfter);
            self.trace.say(self.now, "lands", task.as_str());
            self.landed(n, term, task, before_it);
            self.change(n, *number, |state| state.land(stands(merged.to_string()), Some(after)));
        }
    }

    /// Reads the loop again, changes it and writes it, while this node is the supervisor. Otherwise the next one finds out.
    pub(super) fn change(&mut self, n: usize, number: u64, change: impl FnOnce(&mut MeshLoop)) {
        let Some(term) = self.nodes[n].seat.term(self.clock(n)) else { return };
        if self.at_hub(n, |_, _| ()).is_none() || number != self.current.number {
            return;
        }
        let (version, mut state) = self.read().clone();
        change(&mut state);
        self.write(n, &state, (version, term), (Vec::new(), &["a change".to_owned()]));
    }
}
