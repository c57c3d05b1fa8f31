//! Tasks that a node holds: it works on them as on loops of its own, holds on to them, and reports
//! what came of them.

use std::sync::Arc;

use super::eligibility::AttemptEnd;
use super::{Claim, Hint, LocalLoop, LocalPhase, MeshAction, MeshNode, NodeEffects, NodeEvent};
use crate::mesh::keys::{self, DocFault};
use crate::mesh::work::{self, ClaimState, Held, Local, Stage, View, WorkStep};
use crate::mesh::{MeshLoop, TaskReport, eligibility, leader};
use crate::op::{Op, Refusal, TaskEnd, TaskRow};
use crate::planted::{self, Bug};
use crate::time::Time;

impl MeshNode {
    /// Does what there is to do about every task that this node holds.
    pub(super) fn tend(&mut self, fx: &mut impl NodeEffects) {
        if self.claims.is_empty() {
            return;
        }
        let claims: Vec<Arc<Claim>> = self.claims.values().cloned().collect();
        for claim in claims {
            if self.under_way.contains(&claim.key) {
                self.hold_on(fx, &claim);
            } else {
                self.tend_one(fx, &claim);
            }
        }
        self.compare_limits(fx);
    }

    /// Renews a task while its clone is made or its work is pushed, which may take longer than the
    /// lease. That it was lost is found out when the action is over.
    fn hold_on(&mut self, fx: &mut impl NodeEffects, claim: &Claim) {
        if claim.alone || !self.is_due(claim, fx.now()) || planted::is(Bug::SilentWhileItClones) {
            return;
        }
        if self.renew(fx, claim) == ClaimState::Lost {
            self.renewed.insert(claim.key.clone(), fx.now());
        }
    }

    fn is_due(&self, claim: &Claim, now: Time) -> bool {
        self.renewed.get(&claim.key).is_none_or(|at| now.since(*at) >= work::RENEW)
    }

    fn tend_one(&mut self, fx: &mut impl NodeEffects, claim: &Arc<Claim>) {
        let local = Self::local_of(fx, claim);
        let (standing, row) = self.stand(fx, claim, &local);
        let failures = row.as_ref().map_or(0, |row| row.failures);
        let again_at = self.again_at(fx);
        let last = claim.stage != Stage::Working && failures + 1 >= work::POISON;
        let elsewhere = last && self.failed_elsewhere(fx, claim);
        let view = View { node: &self.settings.node, failures, elsewhere, again_at };
        match work::next(claim, standing, &local, &view) {
            WorkStep::Wait => {}
            WorkStep::Begin => self.begin(fx, claim, row),
            WorkStep::Stop => {
                fx.observe(&NodeEvent::Lost { key: &claim.key });
                self.renewed.insert(claim.key.clone(), fx.now());
                fx.stop_local(claim);
            }
            WorkStep::GiveBack(reason) => self.give_back(fx, claim, &reason),
            WorkStep::Push { reached } => self.push(fx, claim, reached),
            WorkStep::Claim => self.claim(fx, claim),
            WorkStep::Adopt => self.adopt(fx, claim),
            WorkStep::Tell(ops) => {
                let local = fx.local_loop(claim);
                if self.report(fx, claim, &ops)
                    && let Some(LocalLoop { tried: Some(tried), spec, .. }) = local
                {
                    let kind = row.map(|row| row.task.kind);
                    self.note(fx, claim, &AttemptEnd { kind, spec: Some(spec), tried });
                }
            }
            WorkStep::Forget => self.forget(fx, claim),
        }
    }

    /// Whether another node tried a task and came to nothing too, or there is none that could.
    fn failed_elsewhere(&mut self, fx: &mut impl NodeEffects, held: &Held) -> bool {
        let found = self.at_hub(fx, "read late results", |fx| Ok((fx.late_results(&held.task)?, fx.nodes()?)));
        let Some((late, nodes)) = found else { return false };
        let members = self.members_of(&nodes);
        work::failed_elsewhere(&self.settings.node, &members, late.iter().map(|late| late.result.as_str()))
    }

    /// When a task that came to nothing may be tried again, by the hub's clock.
    fn again_at(&self, fx: &impl NodeEffects) -> Time {
        self.hub_now(fx) + self.real(work::RETRY_DELAY)
    }

    fn local_of(fx: &mut impl NodeEffects, claim: &Claim) -> Local {
        match fx.local_phase(claim) {
            LocalPhase::Missing => Local::Missing,
            LocalPhase::Running => Local::Running,
            LocalPhase::Over { reached } => Local::Over { reached },
            LocalPhase::Waiting { phase, untouched } => {
                let stuck = eligibility::stuck(&phase, fx.now(), |period| period);
                stuck.map_or(Local::Running, |reason| Local::Stuck { reason: reason.clone(), untouched })
            }
        }
    }

    /// Looks a task up at the hub, where its answer matters now; holds on to it where it is time
    /// to.
    fn stand(&mut self, fx: &mut impl NodeEffects, claim: &Claim, local: &Local) -> (ClaimState, Option<TaskRow>) {
        let now = fx.now();
        let due = self.is_due(claim, now);
        if claim.stage == Stage::Working && *local != Local::Missing {
            if !due {
                return (ClaimState::Unknown, None);
            }
            if !claim.alone {
                return (self.renew(fx, claim), None);
            }
        }
        let Some(row) = self.at_hub(fx, "look at a task", |fx| fx.task(&claim.task)) else {
            return (ClaimState::Unknown, None);
        };
        let standing = work::standing(claim, row.as_ref(), &self.settings.node);
        match standing {
            // It waits for something before it can begin.
            ClaimState::Mine if due && !claim.alone => drop(self.renew(fx, claim)),
            _ if claim.alone => drop(self.renewed.insert(claim.key.clone(), now)),
            _ => {}
        }
        (standing, row)
    }

    fn renew(&mut self, fx: &mut impl NodeEffects, claim: &Claim) -> ClaimState {
        if planted::is(Bug::NeverRenews) {
            return ClaimState::Unknown;
        }
        // From before it is sent: the hub's time for it begins later.
        let now = fx.now();
        let op = [claim.renew(self.real(work::LEASE))];
        match self.at_hub(fx, "hold on to a task", |fx| fx.transact(None, &op)) {
            Some(Ok(_)) => {
                self.renewed.insert(claim.key.clone(), now);
                ClaimState::Mine
            }
            Some(Err(Refusal::Fenced { .. } | Refusal::Gone { .. })) => ClaimState::Lost,
            Some(Err(_)) | None => ClaimState::Unknown,
        }
    }

    /// Reports what came of a task; when the hub has it, the claim is removed. Whether it has.
    fn report(&mut self, fx: &mut impl NodeEffects, claim: &Claim, ops: &[Op]) -> bool {
        if planted::is(Bug::ForgetsBeforeTold) {
            self.forget(fx, claim);
        }
        let ops = keys::sealed(ops.iter().cloned(), fx);
        match self.at_hub(fx, "report what came of a task", |fx| fx.transact(None, &ops)) {
            Some(Ok(_)) => {
                fx.observe(&NodeEvent::Reported { key: &claim.key });
                self.forget(fx, claim);
                self.hint(fx, &Hint::Work);
                return true;
            }
            // The hub was set back to before the task was made. What came of it was pushed; nothing
            // else can be done.
            Some(Err(Refusal::Gone { .. })) => {
                fx.observe(&NodeEvent::UnknownToHub { key: &claim.key });
                self.forget(fx, claim);
            }
            // Another node took it in this very moment: the next look finds that out.
            Some(Err(error)) => fx.observe(&NodeEvent::NotCounted { key: &claim.key, error: &error.to_string() }),
            None => {}
        }
        false
    }

    /// Makes the loop that works on a task.
    fn begin(&mut self, fx: &mut impl NodeEffects, claim: &Arc<Claim>, row: Option<TaskRow>) {
        let Some((row, state)) = self.about(fx, claim, row) else { return };
        // A person may have retried a task of a loop that is over.
        let Some(check) = state.check_of(&claim.task).filter(|_| state.ended.is_none()) else {
            return self.end_unwanted(fx, claim, "the loop does not know this task any more");
        };
        let title = leader::title(&state, check);
        let Some(spec) = work::local_spec(&state, &row, claim.fence, self.replica.members.len()) else {
            // Until it is known what must not break, or what may be used, it waits; when nothing
            // may be used, another node does.
            if let Some(waits) = &state.waits {
                let until = waits.until.unwrap_or_else(|| self.again_at(fx));
                self.release(fx, claim, until, "there is nothing to spend");
            }
            return;
        };
        self.under_way.insert(claim.key.clone());
        self.renewed.insert(claim.key.clone(), fx.now());
        let (state, spec) = (Box::new(state), Box::new(spec));
        fx.start(MeshAction::Begin { claim: Arc::clone(claim), title, state, spec });
    }

    /// A task and its loop: as the hub has them, or as it had them before it went away.
    fn about(&mut self, fx: &mut impl NodeEffects, claim: &Claim, row: Option<TaskRow>) -> Option<(TaskRow, MeshLoop)> {
        if claim.alone {
            return self.remembered(claim);
        }
        let owner = [claim.owner.clone()];
        let docs = self.at_hub(fx, "read a loop", |fx| fx.loops(&owner))?;
        let Some(doc) = docs.into_iter().next() else {
            // It would be held for ever.
            self.end_unwanted(fx, claim, "the hub knows no such loop");
            return None;
        };
        match doc.state {
            Ok(state) => Some((row?, state)),
            Err(DocFault::Unreadable(_)) => None,
            Err(DocFault::Distrusted { over: true, .. }) => {
                self.end_unwanted(fx, claim, "the loop is over");
                None
            }
            Err(DocFault::Distrusted { why, .. }) => {
                self.leave_to_others(fx, claim, &why);
                None
            }
        }
    }

    fn end_unwanted(&mut self, fx: &mut impl NodeEffects, claim: &Claim, why: &str) {
        let nothing = TaskReport::nothing(&self.settings.node, claim.fence, why);
        self.report(fx, claim, &[claim.finish(TaskEnd::Dead, &nothing)]);
    }

    pub(super) fn begun(&mut self, fx: &mut impl NodeEffects, key: &str, made: Result<(), String>) {
        self.under_way.remove(key);
        let Some(claim) = self.claims.get(key).cloned() else { return };
        match made {
            Ok(()) => fx.observe(&NodeEvent::Begun { key }),
            // Not the task's fault: another node may be able to.
            Err(error) => {
                fx.observe(&NodeEvent::NotBegun { key, error: &error });
                self.decline(&claim.task);
                if self.release(fx, &claim, self.again_at(fx), &error) {
                    self.could_not_begin(fx, &claim);
                }
            }
        }
    }

    /// The loop is over: what it made is pushed, whatever it is.
    fn push(&mut self, fx: &mut impl NodeEffects, claim: &Arc<Claim>, reached: bool) {
        if self.push_at.get(&claim.key).is_some_and(|at| fx.now() < *at) {
            return;
        }
        self.under_way.insert(claim.key.clone());
        let reference = claim.reference(&self.settings.node);
        fx.start(MeshAction::Push { claim: Arc::clone(claim), reference, reached });
    }

    pub(super) fn pushed(
        &mut self,
        fx: &mut impl NodeEffects,
        key: &str,
        (reference, reached): (String, bool),
        pushed: Result<Option<String>, String>,
    ) {
        self.under_way.remove(key);
        let commit = match pushed {
            Ok(commit) => commit,
            Err(error) => {
                fx.observe(&NodeEvent::PushFailed { key, error: &error });
                self.push_at.insert(key.to_owned(), fx.now() + work::RETRY_DELAY);
                return;
            }
        };
        let Some(claim) = self.claims.get(key).cloned() else { return };
        let Some(local) = fx.local_loop(&claim) else { return };
        let report = TaskReport {
            // An experiment that was not kept is a result, too.
            reached: local.experiment.is_some() || (reached && commit.is_some()),
            reference: commit.is_some().then_some(reference),
            commit,
            short: local.short,
            experiment: local.experiment.clone(),
            ..local.report(&self.settings.node, claim.fence, &local.why)
        };
        // When it cannot be written, the loop is still over, so it is pushed again.
        self.put(fx, Held { stage: Stage::Pushed { report }, ..claim.held.clone() }, "that work was pushed");
    }

    /// Writes a claim, on disk first; whether that was possible.
    pub(super) fn put(&mut self, fx: &mut impl NodeEffects, held: Held, what: &'static str) -> bool {
        let claim = Claim::new(held);
        match fx.put_claim(&claim) {
            Ok(()) => {
                self.claims.insert(claim.key.clone(), claim);
                true
            }
            Err(error) => {
                fx.observe(&NodeEvent::NotWritten { what, error: &error });
                false
            }
        }
    }

    pub(super) fn forget(&mut self, fx: &mut impl NodeEffects, claim: &Claim) {
        fx.remove_claim(claim);
        self.claims.remove(&claim.key);
        self.renewed.remove(&claim.key);
        self.push_at.remove(&claim.key);
    }

    /// Gives a task back, for another node from `ready_at` on, with a report about what was used.
    /// Whether that was possible.
    pub(super) fn release(&mut self, fx: &mut impl NodeEffects, claim: &Claim, ready_at: Time, why: &str) -> bool {
        let used = fx.local_loop(claim).filter(|local| local.spent.calls > 0);
        let said = used.map(|local| claim.shelve(&local.report(&self.settings.node, claim.fence, why)));
        let back = (!claim.alone).then(|| claim.give_back(ready_at, false));
        let ops = keys::sealed(said.into_iter().chain(back), fx);
        let gone = self.at_hub(fx, "give a task back", |fx| fx.transact(None, &ops)).is_some() || claim.alone;
        if gone {
            fx.observe(&NodeEvent::Released { key: &claim.key });
            fx.stop_local(claim);
            self.forget(fx, claim);
        }
        gone
    }

    /// The node ends: others take over what is not finished.
    pub(super) fn give_all_back(&mut self, fx: &mut impl NodeEffects) {
        for claim in self.claims.values().cloned().collect::<Vec<_>>() {
            if claim.stage == Stage::Working && !matches!(Self::local_of(fx, &claim), Local::Over { .. }) {
                self.release(fx, &claim, self.again_at(fx), "the node was stopped");
            }
        }
    }
}
