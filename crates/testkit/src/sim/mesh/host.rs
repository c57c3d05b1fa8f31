//! How the effects of the product's node are carried out in the simulation: the hub is the model
//! ledger, the disk a map, git a list of commits. Nothing is decided here.

use std::collections::BTreeSet;
use std::sync::Arc;

use everloop_core::event::Event as Entry;
use everloop_core::guard::{Freeze, GuardState, Guards, Scope, Spend, Versioned};
use everloop_core::ids::{LoopId, NodeId, TaskId};
use everloop_core::immune::{Class, Immune};
use everloop_core::mesh::eligibility::Tried;
use everloop_core::mesh::keys::read_loop;
use everloop_core::mesh::node::{
    BeatReply, Claim, Hint, HubCalls, HubResult, LandRequest, Listed, LocalLoop, LocalPhase, LoopDoc, MergeRequest,
    Merged, MeshAction, MeshOutcome, NodeEffects, NodeEvent, NodeInput, NodeStatus, Wish,
};
use everloop_core::mesh::offline::Replica;
use everloop_core::mesh::reconcile::Sign;
use everloop_core::mesh::work::Stage;
use everloop_core::mesh::{Judged, KIND, OpenTask};
use everloop_core::op::{LateResult, Op, Refusal, Reply, TaskRow, TaskState, Ticket};
use everloop_core::reason::Reason;
use everloop_core::state::Phase;
use everloop_core::time::Time;
use everloop_store::{Ledger, Model, StateName, TaskFilter, TaskOwner, Tickets};

use super::Ill;
use super::faults::MeshFault;
use super::git::Commit;
use super::node::{LastBeat, LocalWork, Node};
use super::stranger::Stranger;
use super::world::{World, ms};
use crate::random::of_text;

/// Free tasks that are listed.
const MAX_LISTED: usize = 200;
/// Tickets of a machine that are compared with those of the hub.
const MAX_TICKETS: usize = 40;

/// The world, as the node of one machine reaches it.
pub(super) struct Host<'a> {
    pub world: &'a mut World,
    pub n: usize,
}

impl Host<'_> {
    /// What the hub holds, if it answers.
    fn hub(&mut self) -> HubResult<&Model> {
        self.world.read_hub(self.n)?;
        Ok(&self.world.hub.model)
    }
}

impl HubCalls for Host<'_> {
    fn beat(&mut self, status: &NodeStatus) -> HubResult<BeatReply> {
        let (world, n) = (&mut *self.world, self.n);
        let (ops, sent) = (world.nodes[n].heartbeat.clone(), world.clock(n));
        world.write_hub(n, None, &*ops)?.ok();
        let leader = world.hub.model.peek_leader().filter(|leader| leader.node != world.nodes[n].id);
        let reply = BeatReply {
            at: world.time(),
            led_until: leader.map(|leader| leader.until),
            wish: world.nodes[n].wished_away.then_some(Wish::Drain),
            waiting: world.hub.model.has_queued(),
            seq: world.nodes[n].seen,
            rights: world.nodes[n].rights,
        };
        let (now, node) = (world.now, &mut world.nodes[n]);
        if node.draining && !node.wished_away {
            node.idle_since = now;
        }
        node.draining = node.wished_away;
        node.ahead = reply.at.0 - sent.0;
        node.beat = LastBeat { drains: status.draining, next: status.next_beat, holds: status.holds.len() };
        world.knows_the_hubs_time(n, status);
        world.now += ms(world.setup.answer);
        Ok(reply)
    }

    fn transact(&mut self, term: Option<u64>, ops: &[Op]) -> HubResult<Result<Vec<Reply>, Refusal>> {
        if term.is_some() {
            self.world.worst_moment();
        }
        self.world.write_hub(self.n, term, ops)
    }

    fn hint(&mut self, hint: &Hint) -> HubResult<()> {
        self.world.read_hub(self.n)?;
        self.world.spread(self.n, hint);
        Ok(())
    }

    fn task(&mut self, id: &TaskId) -> HubResult<Option<TaskRow>> {
        Ok(self.hub()?.peek_task(id).cloned())
    }

    fn tasks(&mut self, which: Listed) -> HubResult<Vec<TaskRow>> {
        let states = match which {
            Listed::Queued => vec![StateName::Queued],
            Listed::Open => vec![StateName::Queued, StateName::Leased],
        };
        let filter = TaskFilter { owner: TaskOwner::Any, states, limit: MAX_LISTED };
        Ok(self.hub()?.tasks(&filter).expect("the model answers"))
    }

    /// Copied only where they changed.
    fn rows(&mut self, open: &[OpenTask], rows: &mut Vec<TaskRow>) -> HubResult<()> {
        let hub = self.hub()?;
        let mut known = 0;
        for open in open {
            let Some(row) = hub.peek_task(&open.task) else { continue };
            match rows.get_mut(known) {
                Some(old) if old == row => {}
                Some(old) => old.clone_from(row),
                None => rows.push(row.clone()),
            }
            known += 1;
        }
        rows.truncate(known);
        Ok(())
    }

    fn resting(&mut self, queued: Time, leased: Time) -> HubResult<Vec<TaskRow>> {
        let rests = |row: &&TaskRow| match &row.state {
            TaskState::Leased { until, .. } => *until <= leased,
            _ => row.updated_at <= queued,
        };
        Ok(self.hub()?.peek_waiting().filter(rests).cloned().collect())
    }

    fn late_results(&mut self, task: &TaskId) -> HubResult<Vec<LateResult>> {
        Ok(self.hub()?.late_results(task).expect("the model answers"))
    }

    fn nodes(&mut self) -> HubResult<Vec<Sign>> {
        self.world.read_hub(self.n)?;
        let world = &*self.world;
        let sign = |row: everloop_store::NodeRow| {
            let beat = world.named(&row.node).map(|n| world.nodes[n].beat).unwrap_or_default();
            let LastBeat { drains, next, holds } = beat;
            Sign { node: row.node, seen_at: row.seen_at, next, leaves: next.is_none(), drains, holds }
        };
        Ok(world.hub.model.nodes().expect("the model answers").into_iter().map(sign).collect())
    }

    fn wishes(&mut self) -> HubResult<Vec<(NodeId, Wish)>> {
        self.hub().map(|_| Vec::new())
    }

    fn loop_versions(&mut self) -> HubResult<Arc<[(LoopId, u64)]>> {
        self.world.read_hub(self.n)?;
        Ok(self.world.loop_versions())
    }

    fn loops(&mut self, ids: &[LoopId]) -> HubResult<Vec<LoopDoc>> {
        self.world.read_hub(self.n)?;
        let mut docs = Vec::with_capacity(ids.len());
        for id in ids {
            let Some((version, state)) = self.world.loop_doc(id) else { continue };
            let mut state = Ok(state.clone());
            // Only a stranger's are not signed, and JSON is slow.
            if self.world.setup.stranger != Stranger::Absent {
                let doc = self.world.hub.model.peek_doc(&(KIND.to_owned(), id.to_string()));
                state = read_loop(id, &doc.expect("it was just there").body, self);
            }
            docs.push(LoopDoc { id: id.clone(), version, state });
        }
        Ok(docs)
    }

    fn doc(&mut self, kind: &str, key: &str) -> HubResult<Option<(u64, String)>> {
        let doc = self.hub()?.peek_doc(&(kind.to_owned(), key.to_owned()));
        Ok(doc.map(|doc| (doc.version, doc.body.clone())))
    }

    fn fleet(&mut self) -> HubResult<Option<(u64, Arc<Immune>)>> {
        self.world.read_hub(self.n)?;
        let (version, immune) = self.world.record();
        self.world.look_at_trials(self.n, &immune);
        Ok(Some((version, immune)))
    }

    fn tickets(&mut self) -> HubResult<Vec<Ticket>> {
        Ok(self.hub()?.tickets(Tickets::Open).expect("the model answers"))
    }

    fn mirror(&mut self) -> HubResult<Option<u64>> {
        Ok(Some(self.hub()?.last_seq().expect("the model answers")))
    }
}

impl NodeEffects for Host<'_> {
    fn now(&self) -> Time {
        self.world.clock(self.n)
    }

    fn wall(&self) -> Time {
        self.world.clock(self.n)
    }

    fn own_at(&self, wall: Time) -> Time {
        wall
    }

    fn wall_at(&self, own: Time) -> Time {
        own
    }

    fn seed(&mut self) -> u64 {
        self.world.dice.draw()
    }

    fn reload_trust(&mut self) -> bool {
        false
    }

    fn put_claim(&mut self, claim: &Arc<Claim>) -> Result<(), String> {
        let fault = self.world.meet();
        let (now, node) = (self.world.now, &mut self.world.nodes[self.n]);
        match fault {
            _ if node.dying || node.full => node.idle_since = now,
            Some(MeshFault::KillBefore) => node.dying = true,
            Some(MeshFault::DiskFull) => node.idle_since = now,
            other => {
                node.dying = other == Some(MeshFault::KillAfter);
                if claim.alone && claim.stage == Stage::Working {
                    self.world.begun_offline(self.n, claim);
                }
                self.world.nodes[self.n].disk.held.insert(claim.key.clone(), Arc::clone(claim));
                return Ok(());
            }
        }
        Err(String::new())
    }

    fn remove_claim(&mut self, claim: &Claim) {
        if self.world.nodes[self.n].dying {
            return;
        }
        if self.world.meet() == Some(MeshFault::KillBefore) {
            self.world.nodes[self.n].dying = true;
            return;
        }
        let (now, node) = (self.world.now, &mut self.world.nodes[self.n]);
        node.disk.held.remove(&claim.key);
        if node.disk.loops.get(&claim.local).is_some_and(|local| local.over.is_some()) {
            node.disk.loops.remove(&claim.local);
        }
        node.idle_since = now;
    }

    fn put_replica(&mut self, replica: &Arc<Replica>) {
        let node = &mut self.world.nodes[self.n];
        if !node.dying {
            node.disk.replica = Arc::clone(replica);
            node.told.clear();
        }
    }

    fn local_phase(&mut self, claim: &Claim) -> LocalPhase {
        match self.world.nodes[self.n].disk.loops.get(&claim.local) {
            None => LocalPhase::Missing,
            Some(LocalWork { over: Some(reached), .. }) => LocalPhase::Over { reached: *reached },
            Some(LocalWork { waits: Some(since), .. }) => {
                let reason = Reason::new(everloop_core::reason::RuleId::from("guard.freeze")).with("by", "a person");
                LocalPhase::Waiting { phase: Phase::Waiting { reason, since: *since }, untouched: false }
            }
            Some(_) => LocalPhase::Running,
        }
    }

    fn local_loop(&mut self, claim: &Claim) -> Option<LocalLoop> {
        let spec = self.world.loop_doc(&claim.owner)?.1.spec.wanted.clone();
        let (world, n) = (&*self.world, self.n);
        let local = world.nodes[n].disk.loops.get(&claim.local)?;
        Some(LocalLoop {
            spec,
            spent: Spend { calls: local.turns, ..Spend::default() },
            short: false,
            // Names the attempt, so that it can be looked for at the end.
            why: format!("{} {}", world.nodes[n].id, claim.key),
            tried: world.tried(n, local),
            experiment: local.experiment.clone(),
        })
    }

    fn stop_local(&mut self, claim: &Claim) {
        let now = self.world.clock(self.n);
        let node = &mut self.world.nodes[self.n];
        if let Some(local) = node.disk.loops.get_mut(&claim.local).filter(|_| !node.dying) {
            if local.over.is_none() {
                local.over_at = now;
            }
            local.stopped |= local.over.is_none();
            local.over.get_or_insert(false);
        }
    }

    fn ended_locals(&mut self, before: Time) -> Vec<LoopId> {
        let loops = self.world.nodes[self.n].disk.loops.iter();
        loops.filter(|(_, local)| local.over.is_some() && local.over_at < before).map(|(id, _)| id.clone()).collect()
    }

    fn forget_local(&mut self, id: &LoopId) {
        let node = &mut self.world.nodes[self.n];
        if node.dying {
            return;
        }
        node.disk.loops.remove(id);
        if node.disk.held.values().any(|claim| claim.local == *id) {
            let text = format!("{} threw {id} away before the hub knew what came of it", node.id);
            self.world.violated("in hand", text);
        }
    }

    fn unused_clones(&mut self, _before: Time) -> Vec<LoopId> {
        Vec::new()
    }

    fn forget_clone(&mut self, _id: &LoopId) {}

    fn guards(&mut self, scopes: &BTreeSet<Scope>) -> Guards {
        let frozen = self.world.nodes[self.n].frozen.is_some();
        let freeze = || Freeze::by_person("a person".to_owned(), "said so", Time::default(), None);
        let guard = |scope: &Scope| {
            let freeze = (frozen && *scope == Scope::All).then(freeze);
            Versioned { version: 0, state: GuardState { freeze, ..GuardState::default() } }
        };
        scopes.iter().map(|scope| (scope.clone(), guard(scope))).collect()
    }

    fn note_limit(&mut self, _scope: &Scope, _event: &Entry) -> Result<(), String> {
        Ok(())
    }

    fn explain(&self, reason: &Reason) -> String {
        reason.rule.to_string()
    }

    fn local_tickets(&mut self) -> Option<Vec<Ticket>> {
        self.world.nodes[self.n].disk.ledger.tickets(Tickets::Newest(MAX_TICKETS)).ok()
    }

    fn write_tickets(&mut self, ops: &[Op]) -> Result<(), String> {
        let time = self.world.time();
        self.world.nodes[self.n].disk.ledger.transact(time, ops).map_err(|e| e.to_string())?;
        let opened = ops.iter().filter_map(|op| if let Op::OpenTicket { key, .. } = op { Some(key) } else { None });
        opened.for_each(|key| self.world.will_answer(self.n, key.clone()));
        Ok(())
    }

    fn start(&mut self, action: MeshAction) {
        let (world, n) = (&mut *self.world, self.n);
        let (most, goal) = match &action {
            MeshAction::Begin { claim, spec, .. } => {
                if !claim.alone {
                    world.works_on(&claim.task);
                }
                (ms(world.setup.clone), Some(&spec.goal))
            }
            MeshAction::Push { .. } => (ms(world.setup.push), None),
            MeshAction::Land(_) => (1_000, None),
            MeshAction::Judge(state) => (5_000, Some(&state.spec.wanted.goal)),
            MeshAction::Merge(request) => (20_000, Some(&request.state.spec.wanted.goal)),
        };
        if let Some(goal) = goal {
            world.runs(goal);
        }
        let (wait, life, branch) = (world.dice.between(10, most), world.nodes[n].life, world.git.target);
        world.later(wait, move |w| w.reach((n, life), Node::stopped, move |w| w.over(n, action, branch)));
    }

    fn observe(&mut self, event: &NodeEvent<'_>) {
        self.world.observed(self.n, event);
    }
}

impl World {
    /// An action is over; the branch was at `branch` when it was started.
    fn over(&mut self, n: usize, action: MeshAction, branch: Commit) {
        let away = self.nodes[n].no_remote.map(|_| "the remote is away".to_owned());
        let outcome = match action {
            MeshAction::Begin { claim, state, spec, .. } => {
                let made = away.map_or(Ok(()), Err);
                if made.is_ok() {
                    let check = state.check_of(&claim.task).unwrap_or_default().to_owned();
                    self.begun(n, &claim, check, spec.guard.budget.calls.unwrap_or(1));
                    self.seeded(n, &claim, &state);
                }
                MeshOutcome::Begun { key: claim.key.clone(), made }
            }
            MeshAction::Push { claim, reference, reached } => {
                let commit = self.nodes[n].disk.loops.get(&claim.local).and_then(|local| local.commit);
                let pushed = away.map_or(Ok(commit.map(|commit| commit.to_string())), Err);
                if pushed.is_ok() {
                    let which = format!("{} {}", self.nodes[n].id, claim.key);
                    self.facts.pushed.insert((claim.task.clone(), which), n);
                }
                MeshOutcome::Pushed { key: claim.key.clone(), reference, reached, pushed }
            }
            MeshAction::Judge(state) => {
                let judged = away.map_or_else(|| Ok((self.judged(branch), self.first_values())), Err);
                self.leader_tried(n, judged.is_ok());
                MeshOutcome::Judged { id: state.id, judged }
            }
            MeshAction::Merge(request) => {
                let merged = away.map_or_else(|| self.merge(&request, branch), Merged::Later);
                self.leader_tried(n, !matches!(merged, Merged::Later(_)));
                MeshOutcome::Merged { request, merged }
            }
            MeshAction::Land(request) => {
                let landed = away.map_or_else(|| self.land(n, &request), Err);
                MeshOutcome::Landed { id: request.state.id, landed }
            }
        };
        self.act(n, NodeInput::Done(Box::new(outcome)));
    }

    fn judged(&self, branch: Commit) -> Judged {
        Judged { commit: branch.to_string(), board: self.board(branch) }
    }

    fn merge(&mut self, request: &MergeRequest, target: Commit) -> Merged {
        if let Some(made) = &request.report.experiment {
            return self.weigh(request, made);
        }
        let (task, fence) = (&request.task, request.fence);
        if self.git.times(task) > 0 {
            return Merged::Landed { commit: self.git.target.to_string() };
        }
        let Some(work) = request.report.commit.as_ref().and_then(|commit| commit.parse().ok()) else {
            return Merged::Refused("there is no work".to_owned());
        };
        if of_text(self.seed, &format!("{task}.{fence} conflicts")).is_multiple_of(12) {
            return Merged::Refused("conflict".to_owned());
        }
        let commit = self.git.join(target, work);
        let (before, after) = (self.board(target), self.board(commit));
        Merged::Ready { target: target.to_string(), commit: commit.to_string(), before, after }
    }

    fn land(&mut self, n: usize, request: &LandRequest) -> Result<bool, String> {
        if self.clock(n) >= request.until {
            return Err("the leader lease is over".to_owned());
        }
        let commit = |text: &str| text.parse::<Commit>().map_err(|e| e.to_string());
        let (old, new) = (commit(&request.target)?, commit(&request.commit)?);
        let fault = self.meet();
        if fault == Some(MeshFault::KillBefore) {
            self.nodes[n].dying = true;
            return Err(String::new());
        }
        // An experiment stands on the champion of the document, wherever the ref was.
        let champion = request.state.research.as_ref().and_then(|found| found.champion.commit.as_ref());
        let champion = champion.map(|champion| commit(champion)).transpose()?;
        let before = champion.unwrap_or(self.git.target);
        let moved = match champion {
            Some(champion) => self.git.crown((old, champion), new, &request.task),
            None => self.git.land(old, new, &request.task),
        };
        if !moved {
            return Ok(false);
        }
        self.nodes[n].dying = fault == Some(MeshFault::KillAfter);
        self.trace.say(self.now, "lands", request.task.as_str());
        self.landed(n, &request.task, before);
        Ok(true)
    }

    /// What the end of an attempt reveals about its machine; `None`: nothing.
    fn tried(&self, n: usize, local: &LocalWork) -> Option<Tried> {
        let ill = self.setup.ill == Ill::All || (self.setup.ill == Ill::Machine && n == 0);
        let class = match local.over? {
            true => Class::Good,
            false if local.stopped => return None,
            false if ill => Class::AgentFailed,
            false => Class::NotYet,
        };
        Some(Tried { class, reset_at: None })
    }
}
