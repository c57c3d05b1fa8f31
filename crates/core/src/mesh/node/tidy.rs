//! What is left of attempts that are over: their loops, clones and folders go after a day, unless
//! the hub does not know yet what came of them.

use std::time::Duration;

use super::{MeshNode, NodeEffects, NodeEvent};
use crate::ids::LoopId;
use crate::mesh::work;
use crate::planted::{self, Bug};

/// Between two looks.
const TIDY: Duration = Duration::from_secs(3600);

impl MeshNode {
    /// Removes what is old enough, now and then.
    pub(super) fn tidy(&mut self, fx: &mut impl NodeEffects) {
        let now = fx.now();
        if now < self.tidy_at {
            return;
        }
        self.tidy_at = now + TIDY;
        let before = now - work::KEPT;
        let in_hand = |id: &LoopId| self.claims.values().any(|claim| claim.local == *id);
        for id in fx.ended_locals(before) {
            if !in_hand(&id) || planted::is(Bug::PrunesWhatIsHeld) {
                fx.observe(&NodeEvent::Forgotten { id: &id });
                fx.forget_local(&id);
            }
        }
        let needed = |id: &LoopId| self.claims.values().any(|claim| claim.owner == *id) || self.judging.contains(id);
        for id in fx.unused_clones(before) {
            if !needed(&id) {
                fx.forget_clone(&id);
            }
        }
    }
}
