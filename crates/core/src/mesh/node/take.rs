//! New tasks: which are free, which of them this node may take, and taking them.

use super::{BEAT, FAR, Hint, Listed, MeshNode, NodeEffects, NodeEvent};
use crate::ids::Fence;
use crate::mesh::work::{self, Held, Stage};
use crate::op::TaskRow;
use crate::planted::{self, Bug};

/// What came of an attempt to take a task.
enum Took {
    Yes,
    No,
    /// Nothing can be written here.
    Unwritten,
}

impl MeshNode {
    /// Takes tasks as long as there is room.
    pub(super) fn take_more(&mut self, fx: &mut impl NodeEffects) {
        let now = fx.now();
        if now < self.list_at {
            return;
        }
        let free = self.room();
        if free == 0 && !self.must_remember(now) {
            return;
        }
        self.list_at = now + FAR;
        let which = if planted::is(Bug::TakesFromTheLiving) { Listed::Open } else { Listed::Queued };
        let Some(mut rows) = self.at_hub(fx, "list free tasks", |fx| fx.tasks(which)) else { return };
        rows.retain(|row| row.task.owner.is_some());
        self.remember(fx, &rows);
        if !rows.is_empty() {
            self.list_at = now + BEAT / 2;
        }
        let replica = self.replica.clone();
        rows.retain(|row| replica.is_reserved(row) && !self.distrusted.has_loop_of(row));
        let free = if fx.now() < self.claim_at { 0 } else { free };
        let offer = self.eligible(fx, rows, free);
        let has = self.held();
        let picked = work::pick(&self.settings.node, &has, &offer.rows, offer.most, self.hub_now(fx));
        for (task, fence) in picked {
            let Some(row) = offer.rows.iter().find(|row| row.task.id == task) else { continue };
            match self.take(fx, row, fence) {
                Took::Unwritten => return,
                Took::Yes if offer.trial => self.note_trial(fx, row, fence),
                Took::Yes | Took::No => {}
            }
        }
    }

    fn take(&mut self, fx: &mut impl NodeEffects, row: &TaskRow, fence: Fence) -> Took {
        let Some(owner) = row.task.owner.clone() else { return Took::No };
        let held = Held { task: row.task.id.clone(), fence, owner, stage: Stage::Working, alone: false };
        // Written first: a node that dies in between finds out whether it holds the task.
        let late = planted::is(Bug::WritesDownAfterTaking);
        if !late && !self.put(fx, held.clone(), "a claim, so the task is not taken") {
            return Took::Unwritten;
        }
        let sent = fx.now();
        let take = [held.take(&self.settings.node, self.real(work::LEASE))];
        let answer = self.at_hub(fx, "take a task", |fx| fx.transact(None, &take));
        let key = held.key();
        match answer {
            Some(Ok(_)) => {
                fx.observe(&NodeEvent::Taken { key: &key });
                self.hint(fx, &Hint::Taken(held.task.clone()));
                if late {
                    self.put(fx, held, "a claim");
                }
                self.renewed.insert(key, sent);
                Took::Yes
            }
            Some(Err(_)) => {
                if let Some(claim) = self.claims.get(&key).cloned() {
                    self.forget(fx, &claim);
                }
                Took::No
            }
            // Whether it was taken is unknown, and found out at the next look.
            None => Took::No,
        }
    }
}
