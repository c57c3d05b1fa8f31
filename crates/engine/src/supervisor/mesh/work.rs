//! Tasks of the mesh on this machine: taking them, working on them as loops of its own, and telling the hub what came of it.

use everloop_agents::workspace::{Remote, result_ref};
use everloop_core::action::LoopCommand;
use everloop_core::event::LoopEnd;
use everloop_core::ids::{LoopId, NodeId};
use everloop_core::mesh::work::{self, Held, Local, Stage, Standing, Step, View};
use everloop_core::mesh::{KIND, MeshLoop, Report};
use everloop_core::op::{Op, Refusal, TaskEnd, TaskRow};
use everloop_core::spec::{Integrate, LoopSpec, WorkspaceMode};
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::Time;
use everloop_store::{Error, Ledger, StateName, TaskFilter, TaskOwner};

use super::node::{BEAT, FAR, Hint, Node, Outcome};
use crate::record::read_state;
use crate::supervisor::action_run::full_text;

/// Free tasks that are looked at: among more, somebody else takes those that are not seen.
const SEEN: usize = 200;
/// The file that says where a clone came from: beside the clone, because agents work inside of it.
const ADDRESS: &str = "remote";

impl Node {
    /// Does what there is to do about every task that this node holds.
    pub(super) fn tend(&mut self) {
        for held in self.late_results.all() {
            if !self.action_runs.contains(&held.key()) {
                self.tend_one(&held);
            }
        }
        self.compare_limits();
    }

    fn tend_one(&mut self, held: &Held) {
        let local = self.local_of(held);
        let (standing, row) = self.stand(held, &local);
        let failures = row.as_ref().map_or(0, |row| row.failures);
        let (again_at, node) = (self.again_at(), self.membership.node.clone());
        let last = held.stage != Stage::Working && failures + 1 >= work::POISON;
        let elsewhere = last && self.failed_elsewhere(held);
        match work::next(held, standing, &local, &View { node: &node, failures, elsewhere, again_at }) {
            Step::Wait => {}
            Step::Begin => self.begin(held, row),
            Step::Stop => {
                tracing::info!(task = %held.task, fence = %held.fence, "a task was lost to somebody else");
                self.renewed.insert(held.key(), self.pace.now());
                self.stop_local(&held.local());
            }
            Step::GiveBack(reason) => self.give_back(held, &reason),
            Step::Push { reached } => self.push(held, reached),
            Step::Claim => self.claim(held),
            Step::Adopt => self.adopt(held),
            Step::Tell(ops) => {
                if self.tell(held, &ops) {
                    self.note_end(held, row.as_ref());
                }
            }
            Step::Forget => self.forget(held),
        }
    }

    /// Whether another node tried a task and came to nothing too, or there is none that could.
    fn failed_elsewhere(&mut self, held: &Held) -> bool {
        let (task, own) = (held.task.clone(), self.membership.node.clone());
        let found = self.at_hub("look at the shelf", |hub| Ok((hub.late_results(&task)?, hub.nodes()?)));
        let Some(Ok((late_results, nodes))) = found else { return false };
        work::failed_elsewhere(&own, &self.members(&nodes), late_results.iter().map(|late| late.result.as_str()))
    }

    /// When a task that came to nothing may be tried again, by the hub's clock.
    fn again_at(&self) -> Time {
        self.hub_now() + self.pace.real(work::AGAIN)
    }

    fn local_of(&self, held: &Held) -> Local {
        match self.local.get_loop(&held.local()) {
            Ok(Some(row)) if row.is_over() => Local::Over { reached: row.phase == "reached" },
            Ok(Some(row)) => self.stuck(&row).unwrap_or(Local::Running),
            Err(_) => Local::Running,
            Ok(None) => Local::Missing,
        }
    }

    /// Asks the hub about a task, where its answer matters now; holds on to it where it is time to.
    fn stand(&mut self, held: &Held, local: &Local) -> (Standing, Option<TaskRow>) {
        let now = self.pace.now();
        let node = self.membership.node.clone();
        let due = self.renewed.get(&held.key()).is_none_or(|at| now.since(*at) >= work::RENEW);
        if held.stage == Stage::Working && *local != Local::Missing {
            if !due {
                return (Standing::Unknown, None);
            }
            if !held.alone {
                return (self.renew(held), None);
            }
        }
        let task = held.task.clone();
        let Some(Ok(row)) = self.at_hub("look at a task", |hub| hub.task(&task)) else {
            return (Standing::Unknown, None);
        };
        let standing = work::standing(held, row.as_ref(), &node);
        match standing {
            // It waits for something before it can begin.
            Standing::Mine if due && !held.alone => drop(self.renew(held)),
            _ if held.alone => drop(self.renewed.insert(held.key(), now)),
            _ => {}
        }
        (standing, row)
    }

    fn renew(&mut self, held: &Held) -> Standing {
        // From before it is sent: the hub's time for it begins later.
        let now = self.pace.now();
        let op = held.renew(self.pace.real(work::LEASE));
        match self.at_hub("hold on to a task", |hub| hub.transact(now, &[op])) {
            Some(Ok(_)) => {
                self.renewed.insert(held.key(), now);
                Standing::Mine
            }
            Some(Err(Error::Refused(Refusal::Fenced { .. } | Refusal::Gone { .. }))) => Standing::Lost,
            Some(Err(_)) | None => Standing::Unknown,
        }
    }

    /// Tells the hub what came of a task; when it knows, the task is forgotten here. Whether it knows.
    fn tell(&mut self, held: &Held, ops: &[Op]) -> bool {
        match self.at_hub("tell what came of a task", |hub| hub.transact(Time::default(), ops)) {
            Some(Ok(_)) => {
                tracing::info!(task = %held.task, fence = %held.fence, "the hub knows what came of a task");
                self.forget(held);
                self.hint(&Hint::Work);
                return true;
            }
            // The hub was set back to before the task was made. What came of it was pushed, and nobody else can hear of it.
            Some(Err(Error::Refused(Refusal::Gone { .. }))) => {
                tracing::warn!(task = %held.task, fence = %held.fence, "the hub does not know this task any more");
                self.forget(held);
            }
            // Somebody took it in this very moment: the next look finds that out.
            Some(Err(error)) => tracing::info!(task = %held.task, %error, "a result does not count"),
            None => {}
        }
        false
    }

    /// Makes the loop that works on a task.
    fn begin(&mut self, held: &Held, row: Option<TaskRow>) {
        let (owner, task) = (held.owner.to_string(), held.task.clone());
        let Some((row, state)) = self.about(held, row) else { return };
        // Somebody may have retried a task of a loop that is over.
        if state.check_of(&task).is_none() || state.ended.is_some() {
            let why = "the loop does not know this task any more";
            let nothing = Report::nothing(&self.membership.node, held.fence, why);
            self.tell(held, &[held.finish(TaskEnd::Dead, &nothing)]);
            return;
        }
        let Some(spec) = work::local_spec(&state, &row, held.fence, self.replica.members.len()) else {
            // Until it is known what must not break, or what may be used, it waits; when nothing may be used, somebody else does.
            if let Some(waits) = &state.waits {
                self.release(held, waits.until.unwrap_or_else(|| self.again_at()), "there is nothing to spend");
            }
            return;
        };
        self.action_runs.insert(held.key());
        self.renewed.insert(held.key(), self.pace.now());
        let (held, dir, database) = (held.clone(), self.home.mesh().join(&owner), self.home.clone());
        let (title, now) = (row.task.title, self.pace.now());
        self.start_run(async move {
            let made = async {
                let spec = prepare(&held, &state, spec, &dir).await?;
                let home = database;
                let mut ledger = everloop_store::Sqlite::open(&home.database(), everloop_store::OpenMode::ReadWrite)
                    .map_err(|e| full_text(&e))?;
                let id = held.local();
                if ledger.get_loop(&id).map_err(|e| full_text(&e))?.is_none() {
                    let new = LoopState::new(id, title, spec, now);
                    ledger.transact(now, &new.birth()).map_err(|e| full_text(&e))?;
                }
                home.wake();
                Ok(())
            };
            let made = made.await;
            Outcome::Begun { held, made }
        });
    }

    /// A task and its loop: as the hub has them, or as it had them before it went away.
    fn about(&mut self, held: &Held, row: Option<TaskRow>) -> Option<(TaskRow, MeshLoop)> {
        if held.alone {
            return self.remembered(held);
        }
        let owner = held.owner.to_string();
        let Some(Ok(doc)) = self.at_hub("look at a loop", |hub| hub.doc(KIND, &owner)) else { return None };
        let Some(doc) = doc else {
            // It would be held for ever.
            let nothing = Report::nothing(&self.membership.node, held.fence, "the hub knows no such loop");
            self.tell(held, &[held.finish(TaskEnd::Dead, &nothing)]);
            return None;
        };
        Some((row?, MeshLoop::read(&doc.body).ok()?))
    }

    pub(super) fn begun(&mut self, held: &Held, made: Result<(), String>) {
        self.action_runs.remove(&held.key());
        match made {
            Ok(()) => tracing::info!(task = %held.task, owner = %held.local(), "works on a task of the mesh"),
            // Not the task's fault: somebody else may have better luck.
            Err(error) => {
                tracing::warn!(task = %held.task, error, "a task cannot be begun here; it is given back");
                self.decline(&held.task);
                if self.release(held, self.again_at(), &error) {
                    self.could_not_begin(held);
                }
            }
        }
    }

    /// The loop is over: what it made is pushed, whatever it is.
    fn push(&mut self, held: &Held, reached: bool) {
        let Ok(Some(row)) = self.local.get_loop(&held.local()) else { return };
        let Ok(state) = read_state(&row) else { return };
        self.action_runs.insert(held.key());
        let (held, node, dir) =
            (held.clone(), self.membership.node.clone(), self.home.mesh().join(held.owner.as_str()));
        self.start_run(async move {
            let reference = held.reference(&node);
            let pushed = push_work((&held, &reference), &state, reached, &dir).await.map(|commit| Report {
                reached: reached && commit.is_some(),
                reference: commit.is_some().then_some(reference),
                commit,
                short: is_short(&state),
                ..so_far(&node, &held, &state, &ending(&state))
            });
            if pushed.is_err() {
                tokio::time::sleep(work::AGAIN).await;
            }
            Outcome::Pushed { held, pushed }
        });
    }

    pub(super) fn pushed(&mut self, held: Held, pushed: Result<Report, String>) {
        self.action_runs.remove(&held.key());
        match pushed {
            Ok(report) => {
                let told = Held { stage: Stage::Pushed { report }, ..held };
                if let Err(e) = self.late_results.put(&told) {
                    tracing::warn!(task = %told.task, error = %e, "cannot write down that work was pushed");
                }
            }
            Err(error) => tracing::warn!(task = %held.task, error, "work cannot be pushed; it is tried again"),
        }
    }

    fn forget(&mut self, held: &Held) {
        self.late_results.remove(held);
        self.renewed.remove(&held.key());
    }

    /// Gives a task back, for somebody else from `ready_at` on, with a word about what was used. Whether that was possible.
    pub(super) fn release(&mut self, held: &Held, ready_at: Time, why: &str) -> bool {
        let now = self.pace.now();
        let state = self.local.get_loop(&held.local()).ok().flatten().and_then(|row| read_state(&row).ok());
        let used = state.filter(|state| state.turns > 0);
        let said = used.map(|state| held.shelve(&so_far(&self.membership.node, held, &state, why)));
        let back = (!held.alone).then(|| held.give_back(ready_at, false));
        let ops: Vec<Op> = said.into_iter().chain(back).collect();
        let gone = self.at_hub("give a task back", |hub| hub.transact(now, &ops)).is_some() || held.alone;
        if gone {
            self.stop_local(&held.local());
            self.forget(held);
        }
        gone
    }

    /// The node goes: others take over what is not finished. What is finished is told by whoever comes next here.
    pub(super) fn give_all_back(&mut self) {
        for held in self.late_results.all() {
            if held.stage == Stage::Working && !matches!(self.local_of(&held), Local::Over { .. }) {
                self.release(&held, self.again_at(), "the node was stopped");
            }
        }
    }

    fn stop_local(&mut self, id: &LoopId) {
        if !self.local.get_loop(id).is_ok_and(|row| row.is_some_and(|row| !row.is_over())) {
            return;
        }
        let body = serde_json::to_string(&LoopCommand::Stop { now: true }).expect("a command always has a JSON form");
        let stop = Op::Signal { to: id.to_string(), by: "mesh".to_owned(), body };
        if let Err(error) = self.local.transact(self.pace.now(), &[stop]) {
            tracing::warn!(%id, %error, "the loop of a lost task could not be told to stop");
        }
        self.home.wake();
    }

    /// Takes tasks as long as there is room.
    pub(super) fn take_more(&mut self) {
        let (free, now) = (self.room(), self.pace.now());
        if now < self.list_at || (free == 0 && !self.must_remember()) {
            return;
        }
        self.list_at = now + FAR;
        let filter = TaskFilter { owner: TaskOwner::Any, states: vec![StateName::Queued], limit: SEEN };
        let Some(Ok(rows)) = self.at_hub("look for tasks", |hub| hub.tasks(&filter)) else { return };
        let rows: Vec<TaskRow> = rows.into_iter().filter(|row| row.task.owner.is_some()).collect();
        self.remember(&rows);
        if !rows.is_empty() {
            self.list_at = now + BEAT / 2;
        }
        let rows: Vec<TaskRow> = rows.into_iter().filter(|row| self.replica.is_lent(row)).collect();
        let free = if self.pace.now() < self.claim_at { 0 } else { free };
        let offer = self.fitting(rows, free);
        let now = self.hub_now();
        let node = self.membership.node.clone();
        for (task, fence) in work::pick(&node, &self.late_results.all(), &offer.rows, offer.most, now) {
            let Some(row) = offer.rows.iter().find(|row| row.task.id == task) else { continue };
            let Some(owner) = row.task.owner.clone() else { continue };
            let held = Held { task: task.clone(), fence, owner, stage: Stage::Working, alone: false };
            // Written down first: a node that dies in between finds out whether it holds it.
            if let Err(e) = self.late_results.put(&held) {
                tracing::warn!(%task, error = %e, "a task cannot be written down, and is not taken");
                return;
            }
            let sent = self.pace.now();
            let take = held.take(&node, self.pace.real(work::LEASE));
            match self.at_hub("take a task", |hub| hub.transact(sent, &[take])) {
                Some(Ok(_)) => {
                    self.renewed.insert(held.key(), sent);
                    self.hint(&Hint::Taken(task));
                    if offer.trial {
                        self.note_trial(&held, row);
                    }
                }
                Some(Err(_)) => self.late_results.remove(&held),
                // Whether it was taken is unknown, and found out at the next look.
                None => {}
            }
        }
    }
}

/// The clone, the branch in it, and the folder in which to work.
async fn prepare(held: &Held, state: &MeshLoop, spec: LoopSpec, dir: &std::path::Path) -> Result<LoopSpec, String> {
    let remote = Remote::open(&dir.join("repo"), &state.spec.remote).await.map_err(|e| full_text(&e))?;
    let base = remote.fetch(&state.spec.branch).await.map_err(|e| full_text(&e))?;
    let noted = std::fs::write(dir.join(ADDRESS), &state.spec.remote);
    noted.map_err(|e| format!("cannot write down where work goes: {e}"))?;
    let base = base.ok_or_else(|| format!("the remote has no `{}`", state.spec.branch))?;
    let target = result_ref(&held.local());
    remote.begin(&target, &base).await.map_err(|e| full_text(&e))?;
    let mut spec = spec;
    let folder = remote.folder(&state.spec.below).map_err(|e| full_text(&e))?;
    spec.workspace.dir = folder.to_string_lossy().into_owned();
    spec.workspace.mode = WorkspaceMode::Git { target };
    spec.workspace.integrate = Integrate::Reached;
    Ok(spec)
}

/// Pushes what a loop made; the commit, if there is any.
async fn push_work(
    (held, reference): (&Held, &str),
    state: &LoopState,
    reached: bool,
    dir: &std::path::Path,
) -> Result<Option<String>, String> {
    let url = std::fs::read_to_string(dir.join(ADDRESS)).map_err(|e| format!("cannot read where work goes: {e}"))?;
    let remote = Remote::open(&dir.join("repo"), &url).await.map_err(|e| full_text(&e))?;
    let commit = if reached {
        remote.local(&result_ref(&held.local())).await.map_err(|e| full_text(&e))?
    } else {
        state.work.clone()
    };
    if let Some(commit) = &commit {
        remote.pin(commit, reference).await.map_err(|e| full_text(&e))?;
    }
    Ok(commit)
}

/// What was used so far, without work.
fn so_far(node: &NodeId, held: &Held, state: &LoopState, why: &str) -> Report {
    let (turns, microusd, tokens) = (state.turns, state.spent.microusd, state.spent.tokens);
    Report { turns, microusd, tokens, ..Report::nothing(node, held.fence, why) }
}

/// Whether what was set aside for it was used up; the number of turns of a task is a limit of its own.
fn is_short(state: &LoopState) -> bool {
    matches!(&state.phase, Phase::Ended { ending: LoopEnd::Exhausted { bound }, .. } if bound != "turns")
}

fn ending(state: &LoopState) -> String {
    match &state.phase {
        Phase::Ended { ending: LoopEnd::Reached, .. } => String::new(),
        Phase::Ended { ending: LoopEnd::Exhausted { bound }, .. } => format!("the limit on {bound} was used up"),
        Phase::Ended { ending: LoopEnd::Stopped { by }, .. } => format!("stopped by {by}"),
        Phase::Ended { ending: LoopEnd::Failed { why }, .. } => why.clone(),
        other => other.label().to_owned(),
    }
}
