//! The leader's work: it runs the checks on the branch, makes tasks of what fails, merges what
//! comes back, and frees tasks of silent nodes. Every write carries the term, so nothing counts
//! that a former leader still does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Hint, LandRequest, LoopDoc, MergeRequest, Merged, MeshAction, MeshNode, NEVER, NodeEffects, NodeEvent};
use crate::ids::{Fence, LoopId, NodeId, TaskId};
use crate::mesh::keys::{self, DocFault};
use crate::mesh::leader::{self, LeaderStep, LeaderTerm};
use crate::mesh::reconcile::{Known, ReconcileNotes};
use crate::mesh::research::FirstValues;
use crate::mesh::{Judged, Landed, MeshLoop, Said, TaskReport, accept};
use crate::op::{LateResult, Op, Refusal, TaskRow};
use crate::planted::{self, Bug};
use crate::research::row::Row;
use crate::scoreboard::Scoreboard;
use crate::time::Time;

/// After an action that failed for reasons of its own, before it is tried again.
const ACTION_AGAIN: Duration = Duration::from_secs(10);

/// What a leader remembers between two rounds. All of it can be read again, and is under another
/// term.
#[derive(Debug)]
pub(super) struct LoopCache {
    pub term: u64,
    pub loops: BTreeMap<LoopId, Known>,
    pub reconcile_notes: Option<(u64, ReconcileNotes)>,
    pub reconcile_at: Time,
    /// What the hub had when the cache was last compared with it.
    compared: Option<Arc<[(LoopId, u64)]>>,
    versions: BTreeMap<LoopId, u64>,
    rows: BTreeMap<LoopId, Vec<TaskRow>>,
    open: Arc<[LoopId]>,
}

impl Default for LoopCache {
    fn default() -> Self {
        Self {
            term: 0,
            loops: BTreeMap::new(),
            reconcile_notes: None,
            reconcile_at: NEVER,
            compared: None,
            versions: BTreeMap::new(),
            rows: BTreeMap::new(),
            open: Arc::from([]),
        }
    }
}

impl LoopCache {
    fn is_as(&self, versions: &Arc<[(LoopId, u64)]>) -> bool {
        self.compared.as_ref().is_some_and(|known| Arc::ptr_eq(known, versions) || known == versions)
    }

    fn learn(&mut self, id: LoopId, version: u64, known: Known) {
        self.versions.insert(id.clone(), version);
        self.loops.insert(id, known);
    }

    /// It is read again.
    fn forget(&mut self, id: &LoopId) {
        self.versions.remove(id);
        self.loops.remove(id);
        self.compared = None;
    }

    /// All of them are.
    pub fn forget_all(&mut self) {
        *self = Self { term: self.term, reconcile_at: self.reconcile_at, ..Self::default() };
    }

    fn list_open(&mut self) {
        let open = self.loops.iter().filter(|(_, known)| matches!(known, Known::Open(_)));
        self.open = open.map(|(id, _)| id.clone()).collect();
    }
}

/// Merged work while its branch is being moved.
#[derive(Clone, Debug)]
pub(super) struct PendingLanding {
    task: TaskId,
    fence: Fence,
    node: NodeId,
    commit: String,
    /// The results of the checks there; `None`: they have to be run again.
    board: Option<Scoreboard>,
    /// The experiment that it is.
    row: Option<Box<Row>>,
}

/// What is written for a loop besides the loop itself.
#[derive(Default)]
pub(super) struct LoopChange {
    pub ops: Vec<Op>,
    pub notes: Vec<String>,
}

impl MeshNode {
    /// Looks after all loops of the mesh.
    pub(super) fn lead(&mut self, fx: &mut impl NodeEffects, term: u64) {
        if !self.refresh(fx, term) {
            return;
        }
        for id in self.cache.open.clone().iter() {
            self.lead_one(fx, id, term);
        }
        self.reconcile(fx, term);
    }

    /// Brings the cache to where the hub is: only loops that changed are read. Whether the hub
    /// answered.
    fn refresh(&mut self, fx: &mut impl NodeEffects, term: u64) -> bool {
        if self.cache.term != term {
            self.cache = LoopCache { term, reconcile_at: self.cache.reconcile_at, ..LoopCache::default() };
        }
        let Some(found) = self.at_hub(fx, "look at loops", super::effects::HubCalls::loop_versions) else {
            return false;
        };
        if self.cache.is_as(&found) {
            return true;
        }
        let versions: BTreeMap<&LoopId, u64> = found.iter().map(|(id, version)| (id, *version)).collect();
        self.cache.versions.retain(|id, version| versions.get(id) == Some(version));
        self.cache.loops.retain(|id, _| versions.contains_key(id));
        let changed = versions.keys().filter(|id| !self.cache.versions.contains_key(**id));
        let changed: Vec<LoopId> = changed.map(|id| (*id).clone()).collect();
        if !changed.is_empty() {
            let Some(docs) = self.at_hub(fx, "read loops", |fx| fx.loops(&changed)) else { return false };
            for LoopDoc { id, version, state } in docs {
                let known = match state {
                    Ok(state) => {
                        self.trusts(fx, &id);
                        Known::of(state)
                    }
                    // Its tasks are ended; nothing is written to it.
                    Err(DocFault::Distrusted { over: true, .. }) => Known::Over(None),
                    Err(DocFault::Distrusted { why, .. }) => {
                        self.distrusts(fx, &id, &why);
                        Known::Unreadable
                    }
                    Err(DocFault::Unreadable(error)) => {
                        fx.observe(&NodeEvent::LoopUnreadable { id: &id, error: &error });
                        Known::Unreadable
                    }
                };
                self.cache.learn(id, version, known);
            }
        }
        self.cache.compared = Some(found);
        self.cache.list_open();
        true
    }

    fn lead_one(&mut self, fx: &mut impl NodeEffects, id: &LoopId, term: u64) {
        // Taken out of the cache, and put back unless it changes: a loop is not small.
        let Some(version) = self.cache.versions.get(id).copied() else { return };
        let Some(known) = self.cache.loops.get_mut(id) else { return };
        let Known::Open(mut state) = std::mem::replace(known, Known::Unreadable) else { return };
        let mut rows = self.cache.rows.remove(id).unwrap_or_default();
        let Some(late) = self.rows_of(fx, &state, &mut rows) else {
            self.cache.loops.insert(id.clone(), Known::Open(state));
            return;
        };
        self.reclaim(fx, &rows, term);
        let busy = self.judging.contains(id) || self.retry_at.get(id).is_some_and(|at| fx.now() < *at);
        let plan = leader::plan(&mut state, &rows, &late, busy, self.hub_now(fx));
        match plan.action_run {
            Some(LeaderStep::Judge) => self.judge(fx, &state),
            Some(LeaderStep::Integrate { task, fence, report }) => {
                self.integrate(fx, &state, (task, fence, term), report);
            }
            _ => {}
        }
        self.cache.rows.insert(id.clone(), rows);
        if plan.changed {
            self.write(fx, (*state, version), term, LoopChange { ops: plan.ops, notes: plan.notes });
        } else {
            self.cache.loops.insert(id.clone(), Known::Open(state));
        }
    }

    /// The open tasks of a loop, and late results of those for which something is reserved.
    pub(super) fn rows_of(
        &mut self,
        fx: &mut impl NodeEffects,
        state: &MeshLoop,
        rows: &mut Vec<TaskRow>,
    ) -> Option<Vec<Said>> {
        let found = self.at_hub(fx, "look at tasks", |fx| {
            fx.rows(&state.open, rows)?;
            let mut late = Vec::new();
            for (task, fence) in state.unsettled() {
                // While it is held under that fence, there is no report yet.
                if rows.iter().any(|row| row.task.id == task && leader::is_awaited(row, fence)) {
                    continue;
                }
                let found = fx.late_results(&task)?;
                let signed = |late: &&LateResult| keys::verify_report((&task, late.fence), &late.result, fx).is_ok();
                let reports = found.iter().filter(signed).filter_map(|late| TaskReport::read(&late.result));
                late.extend(reports.map(|report| (task.clone(), report)));
            }
            Ok(late)
        });
        self.verify_reports(fx, rows);
        found
    }

    /// Writes a loop, if this node still is the leader and the document is as it was read.
    pub(super) fn write(
        &mut self,
        fx: &mut impl NodeEffects,
        (state, version): (MeshLoop, u64),
        term: u64,
        change: LoopChange,
    ) {
        let id = state.id.clone();
        let ops = keys::sealed(change.ops.into_iter().chain(state.save(version, &change.notes)), fx);
        let batch = self.leader_term(term).batch(ops);
        self.cache.forget(&id);
        match self.at_hub(fx, "write a loop", |fx| fx.transact(Some(term), &batch)) {
            Some(Ok(_)) => {
                for note in &change.notes {
                    fx.observe(&NodeEvent::LoopNoted { id: &id, note });
                }
                self.cache.learn(id, version + 1, Known::of(state));
                self.cache.list_open();
                self.hint(fx, &Hint::Work);
            }
            Some(Err(error)) => {
                if let Refusal::NotLeader { .. } = error {
                    self.lease.answered(fx.now(), None);
                }
                fx.observe(&NodeEvent::LoopNotWritten { id: &id, error: &error.to_string() });
                if matches!(error, Refusal::Conflict { .. }) && planted::is(Bug::OverwritesOthers) {
                    self.overwrite(fx, &state, term);
                }
            }
            None => {}
        }
    }

    /// For the mistake of a leader that writes over what a person wrote.
    fn overwrite(&mut self, fx: &mut impl NodeEffects, state: &MeshLoop, term: u64) {
        let id = [state.id.clone()];
        let docs = self.at_hub(fx, "read a loop", |fx| fx.loops(&id)).unwrap_or_default();
        if let Some(doc) = docs.first() {
            let batch = self.leader_term(term).batch(keys::sealed(state.save(doc.version, &[]), fx));
            self.at_hub(fx, "write a loop", |fx| fx.transact(Some(term), &batch));
        }
    }

    /// Frees tasks with an expired lease, unless the leader is new.
    fn reclaim(&mut self, fx: &mut impl NodeEffects, rows: &[TaskRow], term: u64) {
        if !self.lease.reclaims(fx.now()) {
            return;
        }
        let now = if planted::is(Bug::ReclaimsByItsOwnClock) { fx.wall() } else { self.hub_now(fx) };
        for (task, fence) in leader::overdue(rows, now) {
            let batch = self.leader_term(term).take_back(&task, fence);
            if let Some(Ok(_)) = self.at_hub(fx, "free a task", |fx| fx.transact(Some(term), &batch)) {
                fx.observe(&NodeEvent::Reclaimed { task: &task });
            }
        }
    }

    pub(super) fn leader_term(&self, term: u64) -> LeaderTerm {
        LeaderTerm { node: self.settings.node.clone(), term }
    }

    fn judge(&mut self, fx: &mut impl NodeEffects, state: &MeshLoop) {
        self.judging.insert(state.id.clone());
        fx.start(MeshAction::Judge(Box::new(state.clone())));
    }

    fn integrate(
        &mut self,
        fx: &mut impl NodeEffects,
        state: &MeshLoop,
        (task, fence, term): (TaskId, Fence, u64),
        report: TaskReport,
    ) {
        if state.judged.is_none() {
            return;
        }
        let Some(check) = state.check_of(&task).map(str::to_owned) else { return };
        self.judging.insert(state.id.clone());
        let state = state.clone();
        fx.start(MeshAction::Merge(Box::new(MergeRequest { state, task, fence, report, check, term })));
    }

    /// An action for a loop came back. A leader that cannot reach the remote, or has no room, lets
    /// another node try, and opens a ticket.
    fn came_back(&mut self, fx: &mut impl NodeEffects, id: &LoopId, error: Option<(&'static str, &str)>) {
        self.judging.remove(id);
        let now = fx.now();
        let gives_up = self.lease.tried(error.is_none(), now);
        let key = format!("remote:{id}");
        let Some((doing, error)) = error else {
            self.retry_at.remove(id);
            if self.served.insert(id.clone()) {
                let close = [Op::CloseTicket { key, answer: "it went well".to_owned() }];
                self.at_hub(fx, "close a ticket", |fx| fx.transact(None, &close));
            }
            return;
        };
        fx.observe(&NodeEvent::ActionFailed { id, doing, error });
        self.retry_at.insert(id.clone(), now + ACTION_AGAIN);
        self.served.remove(id);
        if gives_up {
            fx.observe(&NodeEvent::GivesUpLeading { id, error });
            let text = format!("{} cannot merge or run the checks of loop {id}: {error}", self.settings.node);
            let ticket = [Op::OpenTicket { key, owner: Some(id.clone()), text }];
            self.at_hub(fx, "open a ticket", |fx| fx.transact(None, &ticket));
            self.resign(fx);
        }
    }

    pub(super) fn judged(
        &mut self,
        fx: &mut impl NodeEffects,
        id: &LoopId,
        judged: Result<(Judged, FirstValues), String>,
    ) {
        self.came_back(fx, id, judged.as_ref().err().map(|error| ("run the checks", error.as_str())));
        if let Ok((judged, first)) = judged {
            let board = &judged.board;
            let note = format!("{} of {} checks pass on the branch", board.passing().len(), board.0.len());
            let now = self.hub_now(fx);
            self.change(fx, id, note, |state| {
                if state.spec.wanted.research.is_some() && state.research.is_none() {
                    return state.begin_research(judged, &first, now);
                }
                state.judged = Some(judged);
                Vec::new()
            });
        }
    }

    pub(super) fn merged(&mut self, fx: &mut impl NodeEffects, request: MergeRequest, merged: Merged) {
        let MergeRequest { state, task, fence, report, check, term } = request;
        let id = state.id.clone();
        let landing = |commit, board| PendingLanding {
            task: task.clone(),
            fence,
            node: report.node.clone(),
            commit,
            board,
            row: None,
        };
        match merged {
            // Another leader may have moved the champion meanwhile; then the experiment is weighed again.
            Merged::Weighed { .. } if self.lease.term(fx.now()) != Some(term) => drop(self.judging.remove(&id)),
            Merged::Weighed { target, row, board } => {
                if let Some(commit) = row.commit.clone().filter(|_| row.status.keeps()) {
                    let landing = PendingLanding { row: Some(row), ..landing(commit, Some(board)) };
                    self.land(fx, state, target, landing);
                } else {
                    self.came_back(fx, &id, None);
                    let note = format!("task {task} of {} is over: {}", report.node, row.status.label());
                    self.change(fx, &id, note, |state| state.fold(&task, *row, None));
                }
            }
            Merged::Ready { target, commit, before, after } => match accept(&before, &after, &check) {
                Ok(()) => {
                    let landing = landing(commit, Some(after));
                    self.land(fx, state, target, landing);
                }
                Err(why) => self.refuse(fx, &id, &task, &why),
            },
            // For the mistake of merging again what stands there.
            Merged::Landed { commit } if planted::is(Bug::LandsWithoutLook) => {
                let landing = landing(commit.clone(), None);
                self.land(fx, state, commit, landing);
            }
            Merged::Landed { commit } => {
                self.came_back(fx, &id, None);
                let base = state.research.as_ref().and_then(|found| found.champion.commit.clone());
                let made = report.experiment.as_deref().map(|made| made.row.clone());
                let row = made.map(|row| Box::new(Row { commit: Some(commit.clone()), base, ..row }));
                self.stands(fx, &id, PendingLanding { row, ..landing(commit, None) });
            }
            Merged::Refused(why) => self.refuse(fx, &id, &task, &why),
            Merged::Contained => {
                self.came_back(fx, &id, None);
                let note = format!("task {task}: the branch has all of it");
                self.change(fx, &id, note, |state| {
                    state.refuse(&task, "the branch had all of it, and the check still failed");
                    state.judged = None;
                    Vec::new()
                });
            }
            Merged::Later(error) => self.came_back(fx, &id, Some(("merge", &error))),
        }
    }

    fn refuse(&mut self, fx: &mut impl NodeEffects, id: &LoopId, task: &TaskId, why: &str) {
        self.came_back(fx, id, None);
        let note = format!("task {task} may not stand on the branch: {why}");
        self.change(fx, id, note, |state| {
            state.refuse(task, why);
            Vec::new()
        });
    }

    /// Moves the branch, if this node still is the leader: what was begun then ends before the
    /// lease does.
    fn land(&mut self, fx: &mut impl NodeEffects, state: MeshLoop, target: String, landing: PendingLanding) {
        let id = state.id.clone();
        if self.lease.term(fx.now()).is_none() {
            self.judging.remove(&id);
            return;
        }
        let (task, commit, until) = (landing.task.clone(), landing.commit.clone(), self.lease.acts_until());
        self.landings.insert(id, landing);
        fx.start(MeshAction::Land(Box::new(LandRequest { state, task, target, commit, until })));
    }

    pub(super) fn landed(&mut self, fx: &mut impl NodeEffects, id: &LoopId, landed: Result<bool, String>) {
        let Some(landing) = self.landings.remove(id) else { return };
        match landed {
            Ok(moved) if moved || planted::is(Bug::CountsMovedAsLanded) => {
                self.came_back(fx, id, None);
                self.stands(fx, id, landing);
            }
            Ok(_) => {
                self.came_back(fx, id, None);
                fx.observe(&NodeEvent::BranchMoved { task: &landing.task });
                self.retry_at.insert(id.clone(), fx.now() + ACTION_AGAIN);
            }
            Err(error) => self.came_back(fx, id, Some(("move the branch", &error))),
        }
    }

    fn stands(&mut self, fx: &mut impl NodeEffects, id: &LoopId, landing: PendingLanding) {
        let PendingLanding { task, fence, node, commit, board, row } = landing;
        if let Some(row) = row {
            let note = format!("task {task} of {node} is the champion: {commit}");
            return self.change(fx, id, note, |state| state.fold(&task, *row, board));
        }
        let note = format!("task {task} of {node} stands on the branch: {commit}");
        self.change(fx, id, note, |state| {
            let check = state.check_of(&task).unwrap_or_default().to_owned();
            state.land(Landed { task, check, node, fence, commit }, board);
            Vec::new()
        });
    }

    /// Reads a loop again, changes it and writes it, while this node is the leader. Otherwise the
    /// next one finds out.
    fn change(
        &mut self,
        fx: &mut impl NodeEffects,
        id: &LoopId,
        note: String,
        change: impl FnOnce(&mut MeshLoop) -> Vec<Op>,
    ) {
        let Some(term) = self.lease.term(fx.now()) else { return };
        let ids = [id.clone()];
        let Some(docs) = self.at_hub(fx, "read a loop", |fx| fx.loops(&ids)) else { return };
        let Some(LoopDoc { version, state: Ok(mut state), .. }) = docs.into_iter().next() else { return };
        let ops = change(&mut state);
        self.write(fx, (state, version), term, LoopChange { ops, notes: vec![note] });
    }
}
