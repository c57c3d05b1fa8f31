//! What the leader does besides its loops: every minute it reconciles what no loop looks after, and
//! notes which nodes are silent.

use super::leader::LoopChange;
use super::{LoopDoc, MeshNode, NodeEffects, NodeEvent, Wish};
use crate::ids::{LoopId, NodeId};
use crate::mesh::keys;
use crate::mesh::leader::LeaderTerm;
use crate::mesh::reconcile::{
    self, EVERY, KEY, Known, ReconcileNotes, ReconcilePlan, ReconcileTimeouts, ReconcileView, Sign,
};
use crate::op::{Refusal, TaskRow};
use crate::planted::{self, Bug};
use crate::time::Time;

/// Loops that are over and have something to settle, in one run.
const SETTLED: usize = 10;
/// A task that changed meanwhile is left out; so often the rest is tried again.
const MAX_PLAN_RETRIES: u32 = 4;

impl MeshNode {
    /// Sets right what no loop looks after, when it is time to, and not before every live node had
    /// time to renew.
    pub(super) fn reconcile(&mut self, fx: &mut impl NodeEffects, term: u64) {
        let now = fx.now();
        if now < self.cache.reconcile_at || !self.lease.reclaims(now) {
            return;
        }
        self.cache.reconcile_at = now + EVERY;
        self.settle(fx, term);
        let Some((version, reconcile_notes)) = self.reconcile_notes(fx) else { return };
        let Some((rows, nodes)) = self.resting(fx) else { return };
        let leader_term = self.leader_term(term);
        let timeouts = ReconcileTimeouts::new(|period| self.real(period));
        let (loops, hub_now) = (&self.cache.loops, self.hub_now(fx));
        let look =
            ReconcileView { leader_term: &leader_term, loops, rows: &rows, nodes: &nodes, timeouts, now: hub_now };
        let mut plan = reconcile::plan(&reconcile_notes, &look);
        for _ in 0..MAX_PLAN_RETRIES {
            if plan.is_empty() || self.set_right(fx, &mut plan, &leader_term, version) {
                return;
            }
        }
    }

    /// Writes what is to be done; whether that is the end of it.
    fn set_right(
        &mut self,
        fx: &mut impl NodeEffects,
        plan: &mut ReconcilePlan,
        leader_term: &LeaderTerm,
        version: u64,
    ) -> bool {
        let batch = keys::sealed(plan.batch(leader_term, version), fx);
        match self.at_hub(fx, "reconcile", |fx| fx.transact(Some(leader_term.term), &batch)) {
            Some(Ok(_)) => {
                fx.observe(&NodeEvent::Reconciled { plan });
                self.cache.reconcile_notes = Some((version + 1, plan.reconcile_notes.clone()));
                true
            }
            // The task changed in this very moment.
            Some(Err(Refusal::Fenced { task, .. } | Refusal::WrongState { task, .. })) => {
                plan.leave_out(&task);
                false
            }
            Some(Err(error)) => {
                fx.observe(&NodeEvent::NotReconciled { error: &error.to_string() });
                self.cache.reconcile_notes = None;
                true
            }
            None => {
                // Whether it was written is unknown.
                self.cache.reconcile_notes = None;
                true
            }
        }
    }

    /// What was noted already.
    fn reconcile_notes(&mut self, fx: &mut impl NodeEffects) -> Option<(u64, ReconcileNotes)> {
        if let Some(known) = &self.cache.reconcile_notes {
            return Some(known.clone());
        }
        let doc = self.at_hub(fx, "read what was reconciled", |fx| fx.doc(reconcile::KIND, KEY))?;
        let read = doc.map_or(Ok((0, ReconcileNotes::default())), |(version, body)| {
            ReconcileNotes::read(&body).map(|reconcile_notes| (version, reconcile_notes))
        });
        self.cache.reconcile_notes = read.inspect_err(|error| fx.observe(&NodeEvent::NotReconciled { error })).ok();
        self.cache.reconcile_notes.clone()
    }

    /// Tasks that rest for long, and the nodes but those that were removed.
    fn resting(&mut self, fx: &mut impl NodeEffects) -> Option<(Vec<TaskRow>, Vec<Sign>)> {
        let (now, timeouts) = (self.hub_now(fx), ReconcileTimeouts::new(|period| self.real(period)));
        let all = planted::is(Bug::ReconcilesTheLiving);
        let (queued, leased) = (now - timeouts.stray, if all { Time(i64::MAX) } else { now - timeouts.orphan });
        let found = self
            .at_hub(fx, "look for tasks that rest", |fx| Ok((fx.resting(queued, leased)?, fx.nodes()?, fx.wishes()?)));
        let (rows, mut nodes, wishes) = found?;
        self.members = Some(self.members_of(&nodes).len());
        let removed = |node: &NodeId| wishes.iter().any(|(of, wish)| of == node && *wish == Wish::Remove);
        nodes.retain(|sign| !removed(&sign.node));
        Some((rows, nodes))
    }

    /// What loops that are over had reserved, and of which no report can come any more, is taken
    /// for used.
    fn settle(&mut self, fx: &mut impl NodeEffects, term: u64) {
        let now = self.hub_now(fx);
        let due = |(id, known): (&LoopId, &Known)| match known {
            Known::Over(Some(at)) if *at <= now => Some(id.clone()),
            Known::Over(_) | Known::Open(_) | Known::Unreadable => None,
        };
        let due: Vec<LoopId> = self.cache.loops.iter().filter_map(due).take(SETTLED).collect();
        if due.is_empty() {
            return;
        }
        let Some(docs) = self.at_hub(fx, "read loops that are over", |fx| fx.loops(&due)) else { return };
        for LoopDoc { version, state, .. } in docs {
            let Ok(mut state) = state else { continue };
            let mut rows = Vec::new();
            let Some(late) = self.rows_of(fx, &state, &mut rows) else { return };
            state.settle(&rows, &late, now);
            let notes = vec!["what was still reserved for attempts is settled".to_owned()];
            self.write(fx, (state, version), term, LoopChange { ops: Vec::new(), notes });
        }
    }
}
