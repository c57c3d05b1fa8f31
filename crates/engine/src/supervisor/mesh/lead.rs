//! What the supervisor of the mesh does: it asks the checks about the branch, makes tasks of what fails, merges what comes
//! back, and gives tasks of silent nodes to others. Every write carries the epoch, so nothing counts that a former
//! supervisor still does.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use everloop_agents::job::ShimProgram;
use everloop_agents::workspace::{CommitMeta, Joining, Pushed, Remote, result_ref};
use everloop_core::ids::{Fence, LoopId, TaskId};
use everloop_core::mesh::lead::{self, Office, Step};
use everloop_core::mesh::seat::Seat;
use everloop_core::mesh::{Judged, KIND, Landed, MeshLoop, Report, Said, accept};
use everloop_core::op::{Op, Refusal, TaskRow};
use everloop_core::scoreboard::Scoreboard;
use everloop_core::spec::WorkspaceMode;
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_store::{Error, Ledger};
use tokio::sync::watch;

use super::node::{Hint, Merged, Node, Outcome};
use super::pace::Pace;
use crate::state_folder::StateFolder;
use crate::supervisor::action_run::{ActionRun, full_text};

/// After an errand that failed for reasons of its own, before it is tried again.
const AGAIN_AFTER: std::time::Duration = std::time::Duration::from_secs(10);

impl Node {
    /// Looks after all loops of the mesh.
    pub(super) fn lead(&mut self, term: u64) {
        if !self.refresh(term) {
            return;
        }
        for (state, version) in self.care.open() {
            self.lead_one(state, version, term);
        }
        self.reconcile(term);
    }

    fn lead_one(&mut self, mut state: MeshLoop, version: u64, term: u64) {
        let Some((rows, late)) = self.rows_of(&state) else { return };
        self.reclaim(&rows, term);
        let busy = self.judging.contains(&state.id);
        let plan = lead::plan(&mut state, &rows, &late, busy, self.hub_now());
        match plan.action_run {
            Some(Step::Judge) => self.judge(&state),
            Some(Step::Integrate { task, fence, report }) => self.integrate(&state, task, fence, report),
            _ => {}
        }
        if plan.changed {
            self.write(&state, version, term, (plan.ops, &plan.notes));
        }
    }

    /// The open tasks of a loop, and what the shelf says about those for which something is set aside.
    pub(super) fn rows_of(&mut self, state: &MeshLoop) -> Option<(Vec<TaskRow>, Vec<Said>)> {
        let (open, unsettled) = (state.open.clone(), state.unsettled());
        let found = self.at_hub("look at tasks", |hub| {
            let rows = open.iter().map(|open| hub.task(&open.task)).collect::<Result<Vec<_>, Error>>()?;
            let rows: Vec<TaskRow> = rows.into_iter().flatten().collect();
            let mut late = Vec::new();
            for (task, fence) in unsettled {
                // While it is held under that fence, there is nothing to hear yet.
                if rows.iter().any(|row| row.task.id == task && lead::is_awaited(row, fence)) {
                    continue;
                }
                let late_results = hub.late_results(&task)?;
                let said = late_results.iter().filter_map(|late| Report::read(&late.result));
                late.extend(said.map(|report| (task.clone(), report)));
            }
            Ok((rows, late))
        })?;
        found.ok()
    }

    /// Writes a loop, if this node is still the supervisor and nobody else wrote.
    pub(super) fn write(&mut self, state: &MeshLoop, version: u64, term: u64, (ops, notes): (Vec<Op>, &[String])) {
        let id = &state.id;
        let batch = self.office(term).batch(ops.into_iter().chain(state.save(version, notes)));
        match self.at_hub("write a loop", |hub| hub.transact(Time::default(), &batch)) {
            Some(Ok(_)) => {
                for note in notes {
                    tracing::info!(%id, "{note}");
                }
                self.hint(&Hint::Work);
            }
            Some(Err(error)) => {
                if let Error::Refused(Refusal::NotLeader { .. }) = error {
                    let now = self.pace.now();
                    self.seat.lock().expect("no holder panics").answered(now, None);
                }
                tracing::info!(%id, %error, "a loop was not written; it is looked at again");
            }
            None => {}
        }
    }

    /// Gives tasks whose lease is over to whoever wants them, unless there is an amnesty.
    fn reclaim(&mut self, rows: &[TaskRow], term: u64) {
        let now = self.pace.now();
        if !self.seat.lock().expect("no holder panics").reclaims(now) {
            return;
        }
        for (task, fence) in lead::overdue(rows, self.hub_now()) {
            let batch = self.office(term).take_back(&task, fence);
            if let Some(Ok(_)) = self.at_hub("take a task from a silent node", |hub| hub.transact(now, &batch)) {
                tracing::info!(%task, "the node that held a task is silent; it is free again");
            }
        }
    }

    fn office(&self, term: u64) -> Office {
        Office { node: self.membership.node.clone(), term }
    }

    fn judge(&mut self, state: &MeshLoop) {
        let (id, shop) = (state.id.clone(), self.shop(state));
        self.judging.insert(id.clone());
        let again_after = self.pace.real(AGAIN_AFTER);
        self.start_run(async move {
            let judged = shop.judge_branch().await;
            if judged.is_err() {
                tokio::time::sleep(again_after).await;
            }
            Outcome::Judged { id, judged }
        });
    }

    fn integrate(&mut self, state: &MeshLoop, task: TaskId, fence: Fence, report: Report) {
        let (Some(judged), Some(check)) = (state.judged.clone(), state.check_of(&task).map(str::to_owned)) else {
            return;
        };
        let (id, shop) = (state.id.clone(), self.shop(state));
        self.judging.insert(id.clone());
        let again_after = self.pace.real(AGAIN_AFTER);
        self.start_run(async move {
            let merged = shop.merge(&task, fence, &report, (&judged, &check)).await.unwrap_or_else(Merged::Later);
            match &merged {
                Merged::Later(error) => tracing::warn!(%task, error, "work could not be merged; it is tried again"),
                Merged::Moved => tracing::info!(%task, "the branch moved meanwhile; work is merged again"),
                Merged::Landed { .. } | Merged::Refused(_) | Merged::Contained => {}
            }
            if matches!(merged, Merged::Later(_) | Merged::Moved) {
                tokio::time::sleep(again_after).await;
            }
            Outcome::Merged { id, task, merged }
        });
    }

    fn shop(&self, state: &MeshLoop) -> Shop {
        Shop {
            home: self.home.clone(),
            shim: self.shim.clone(),
            dir: self.home.mesh().join(state.id.as_str()).join("lead"),
            state: state.clone(),
            seat: self.seat.clone(),
            pace: self.pace.clone(),
        }
    }

    /// An errand for a loop came back. A supervisor who cannot reach the remote, or has no room, lets somebody else try, and a
    /// person know.
    fn came_back(&mut self, id: &LoopId, error: Option<&String>) {
        let now = self.pace.now();
        let gives_up = self.seat.lock().expect("no holder panics").tried(error.is_none(), now);
        let key = format!("remote:{id}");
        if let Some(error) = error {
            self.served.remove(id);
            if gives_up {
                tracing::warn!(%id, error, "this machine cannot do what the supervisor of the mesh does; another one should try");
                let text = format!("{} cannot merge or ask the checks of loop {id}: {error}", self.membership.node);
                let ticket = Op::OpenTicket { key, owner: Some(id.clone()), text };
                self.at_hub("tell that a loop stands still", |hub| hub.transact(now, &[ticket]));
                self.resign();
            }
        } else if self.served.insert(id.clone()) {
            let answer = "it went well".to_owned();
            self.at_hub("tell that a loop goes on", |hub| hub.transact(now, &[Op::CloseTicket { key, answer }]));
        }
    }

    pub(super) fn judged(&mut self, id: &LoopId, judged: Result<(String, Scoreboard), String>) {
        self.came_back(id, judged.as_ref().err());
        match judged {
            Ok((commit, board)) => {
                let note = format!("{} of {} checks pass on the branch", board.passing().len(), board.0.len());
                self.change(id, note, |state| state.judge(commit, board));
            }
            Err(error) => tracing::warn!(%id, error, "the checks could not be asked; they are asked again"),
        }
    }

    pub(super) fn merged(&mut self, id: &LoopId, task: &TaskId, merged: Merged) {
        self.came_back(id, if let Merged::Later(error) = &merged { Some(error) } else { None });
        match merged {
            Merged::Landed { fence, node, commit, board } => {
                let note = format!("task {task} of {node} stands on the branch: {commit}");
                let task = task.clone();
                self.change(id, note, |state| {
                    let check = state.check_of(&task).unwrap_or_default().to_owned();
                    state.land(Landed { task, check, node, fence, commit }, board);
                });
            }
            Merged::Refused(why) => {
                let note = format!("task {task} may not stand on the branch: {why}");
                self.change(id, note, |state| state.refuse(task, &why));
            }
            Merged::Contained => {
                let note = format!("task {task}: the branch has all of it");
                self.change(id, note, |state| {
                    state.refuse(task, "the branch had all of it, and the check still failed");
                    state.judged = None;
                });
            }
            Merged::Moved | Merged::Later(_) => {}
        }
    }

    /// Reads a loop again, changes it and writes it, while this node is the supervisor. Otherwise the next one finds out.
    fn change(&mut self, id: &LoopId, note: String, change: impl FnOnce(&mut MeshLoop)) {
        let term = self.seat.lock().expect("no holder panics").term(self.pace.now());
        let Some(term) = term else { return };
        let Some(Ok(Some(doc))) = self.at_hub("look at a loop", |hub| hub.doc(KIND, id.as_str())) else { return };
        let Ok(mut state) = MeshLoop::read(&doc.body) else { return };
        change(&mut state);
        self.write(&state, doc.version, term, (Vec::new(), &[note]));
    }
}

/// Where the supervisor merges and asks the checks; everything travels with it.
struct Shop {
    home: StateFolder,
    shim: ShimProgram,
    dir: PathBuf,
    state: MeshLoop,
    seat: Arc<Mutex<Seat>>,
    pace: Pace,
}

impl Shop {
    async fn remote(&self) -> Result<Remote, String> {
        Remote::open(&self.dir, &self.state.spec.remote).await.map_err(|e| full_text(&e))
    }

    /// What the checks say about the branch as it is.
    async fn judge_branch(&self) -> Result<(String, Scoreboard), String> {
        let remote = self.remote().await?;
        let branch = &self.state.spec.branch;
        let commit = remote.fetch(branch).await.map_err(|e| full_text(&e))?;
        let commit = commit.ok_or_else(|| format!("the remote has no `{branch}`"))?;
        let board = self.board_of(&remote, &commit, None).await?;
        Ok((commit, board))
    }

    /// Merges the work of a task, asks all checks about the result, and moves the branch if they agree.
    async fn merge(
        &self,
        task: &TaskId,
        fence: Fence,
        report: &Report,
        (judged, check): (&Judged, &str),
    ) -> Result<Merged, String> {
        let remote = self.remote().await?;
        let (Some(reference), Some(work)) = (&report.reference, &report.commit) else {
            return Ok(Merged::Refused("there is no work".to_owned()));
        };
        let found = remote.fetch(reference).await.map_err(|e| full_text(&e))?;
        if found.as_ref() != Some(work) {
            return Ok(Merged::Refused(format!("`{reference}` is not at {work}, which was reported")));
        }
        let subject = format!("{}: {check}", self.state.name);
        let branch = &self.state.spec.branch;
        let commit_meta = CommitMeta { task, fence, subject: &subject };
        let landed = |commit: String, board| Merged::Landed { fence, node: report.node.clone(), commit, board };
        let (target, commit) = match remote.join(branch, work, &commit_meta).await.map_err(|e| full_text(&e))? {
            Joining::Ready { target, commit } => (target, commit),
            Joining::Landed { commit } => return Ok(landed(commit, None)),
            Joining::Contained => return Ok(Merged::Contained),
            Joining::Conflict { paths } => {
                return Ok(Merged::Refused(format!("it conflicts with the branch in {}", paths.join(", "))));
            }
        };
        let before =
            if target == judged.commit { judged.board.clone() } else { self.board_of(&remote, &target, None).await? };
        let after = self.board_of(&remote, &commit, Some(&before)).await?;
        if let Err(why) = accept(&before, &after, check) {
            return Ok(Merged::Refused(why));
        }
        if self.seat.lock().expect("no holder panics").term(self.pace.now()).is_none() {
            return Err("this node is not the supervisor any more".to_owned());
        }
        match remote.land(branch, &target, &commit).await.map_err(|e| full_text(&e))? {
            Pushed::Done => Ok(landed(commit, Some(after))),
            Pushed::Moved => Ok(Merged::Moved),
        }
    }

    /// What the checks say about a commit.
    async fn board_of(&self, remote: &Remote, commit: &str, before: Option<&Scoreboard>) -> Result<Scoreboard, String> {
        let target = result_ref(&self.state.id);
        remote.begin(&target, commit).await.map_err(|e| full_text(&e))?;
        let mut spec = self.state.spec.wanted.clone();
        let folder = remote.folder(&self.state.spec.below).map_err(|e| full_text(&e))?;
        spec.workspace.dir = folder.to_string_lossy().into_owned();
        spec.workspace.mode = WorkspaceMode::Git { target };
        spec.workspace.include_dirty = false;
        let now = self.pace.now();
        let state = LoopState::new(self.state.id.clone(), self.state.name.clone(), spec, now);
        let mut action_run = ActionRun {
            home: self.home.clone(),
            shim: self.shim.clone(),
            state,
            workspace: None,
            title: String::new(),
            phase_liveness: watch::channel(None).0,
            line: None,
            now,
        };
        action_run.board_of(commit, before).await
    }
}
