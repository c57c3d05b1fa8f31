//! What a node does not accept: loops that no trusted key signed, and, as the leader, reports that
//! are not of the node that they name. It leaves them as they are, for others, and opens a ticket
//! once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Claim, MeshNode, NEVER, NodeEffects, NodeEvent};
use crate::event::Event;
use crate::ids::{Fence, LoopId, TaskId};
use crate::mesh::TaskReport;
use crate::mesh::keys::{self, Distrust, ReportFault};
use crate::op::{Op, TaskRow, TaskState};

/// How long the report of an unknown node waits for a person who trusts its key; then the work is
/// given to another attempt.
const TRUST_WAIT: Duration = Duration::from_secs(15 * 60);

/// The answer to a ticket that trust closed.
const TRUSTED: &str = "it is trusted now";

/// What a node does not accept now. It only keeps tickets from being opened again: everything else
/// is found out with the next look.
#[derive(Debug, Default)]
pub(super) struct Distrusted {
    loops: BTreeMap<LoopId, Distrust>,
    tasks: BTreeSet<TaskId>,
}

impl Distrusted {
    /// Whether the loop of a task is one of them.
    pub fn has_loop_of(&self, row: &TaskRow) -> bool {
        row.task.owner.as_ref().is_some_and(|owner| self.loops.contains_key(owner))
    }
}

impl MeshNode {
    /// The trust list changed: every loop is read again.
    pub(super) fn look_again(&mut self) {
        self.cache.forget_all();
        self.list_at = NEVER;
        self.remembered_at = NEVER;
    }

    /// Nothing of this loop is run here.
    pub(super) fn distrusts(&mut self, fx: &mut impl NodeEffects, id: &LoopId, why: &Distrust) {
        if self.distrusted.loops.insert(id.clone(), why.clone()).as_ref() == Some(why) {
            return;
        }
        let why = why.to_string();
        fx.observe(&NodeEvent::LoopDistrusted { id, why: &why });
        let text = format!("node {} runs nothing of loop {id}: {why}", self.settings.node);
        let (key, owner) = (self.distrust_key(id), Some(id.clone()));
        // Here too: what a leader opens in the hub is copied to its node, and only there.
        if self.lease.granted().is_none() {
            let here = [Op::OpenTicket { key: key.clone(), owner: None, text: text.clone() }];
            write_here(fx, &here);
        }
        let note = Op::Append { owner: owner.clone(), events: vec![Event::Note { text: text.clone() }] };
        let ops = [Op::OpenTicket { key, owner, text }, note];
        self.at_hub(fx, "open a ticket", |fx| fx.transact(None, &ops));
    }

    /// This loop is accepted, again perhaps.
    pub(super) fn trusts(&mut self, fx: &mut impl NodeEffects, id: &LoopId) {
        if self.distrusted.loops.remove(id).is_some() {
            let key = self.distrust_key(id);
            write_here(fx, &[Op::CloseTicket { key: key.clone(), answer: TRUSTED.to_owned() }]);
            self.close_ticket(fx, key);
        }
    }

    fn distrust_key(&self, id: &LoopId) -> String {
        format!("distrust:{id}:{}", self.settings.node)
    }

    fn close_ticket(&mut self, fx: &mut impl NodeEffects, key: String) {
        let close = [Op::CloseTicket { key, answer: TRUSTED.to_owned() }];
        self.at_hub(fx, "close a ticket", |fx| fx.transact(None, &close));
    }

    /// Gives a task back whose loop is not accepted here; other nodes may trust it.
    pub(super) fn leave_to_others(&mut self, fx: &mut impl NodeEffects, claim: &Claim, why: &Distrust) {
        self.distrusts(fx, &claim.owner, why);
        self.decline(&claim.task);
        self.release(fx, claim, self.hub_now(fx), &why.to_string());
    }

    /// Replaces reports that do not count: what is forged reads as an attempt that came to nothing,
    /// and what an unknown node signed as one that is under way until a person trusts its key.
    pub(super) fn verify_reports(&mut self, fx: &mut impl NodeEffects, rows: &mut [TaskRow]) {
        let now = self.hub_now(fx);
        for row in rows {
            let Some(result) = &row.result else { continue };
            let id = row.task.id.clone();
            let Err(fault) = keys::verify_report((&id, row.fence), result, fx) else {
                if self.distrusted.tasks.remove(&id) {
                    self.close_ticket(fx, report_key(&id));
                }
                continue;
            };
            let why = format!("its report does not count: {fault}");
            match fault {
                ReportFault::Stranger { node, .. }
                    if row.state == TaskState::Done && now.since(row.updated_at) < self.real(TRUST_WAIT) =>
                {
                    row.state = TaskState::Leased { node, until: now + TRUST_WAIT };
                    row.result = None;
                }
                // Fence 0 belongs to no attempt: what was reserved for the real one stays reserved.
                ReportFault::Forged(_) | ReportFault::Stranger { .. } => {
                    row.result = Some(TaskReport::nothing(&self.settings.node, Fence(0), &why).to_json());
                }
            }
            if self.distrusted.tasks.insert(id.clone()) {
                fx.observe(&NodeEvent::ReportRefused { task: &id, why: &why });
                let text = format!("task {id}: {why}");
                let ticket = [Op::OpenTicket { key: report_key(&id), owner: row.task.owner.clone(), text }];
                self.at_hub(fx, "open a ticket", |fx| fx.transact(None, &ticket));
            }
        }
    }
}

fn write_here(fx: &mut impl NodeEffects, ops: &[Op]) {
    if let Err(error) = fx.write_tickets(ops) {
        fx.observe(&NodeEvent::NotWritten { what: "a ticket", error: &error });
    }
}

/// The cause of a ticket about a report.
fn report_key(task: &TaskId) -> String {
    format!("report:{task}")
}
