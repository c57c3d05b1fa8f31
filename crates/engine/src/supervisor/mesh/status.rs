//! What a node publishes about itself on this machine (`/health`, `/metrics`): its name, whether it
//! leads, what it holds, and since when the hub is away.

use std::sync::Arc;
use std::time::Duration;

use everloop_agents::clock;
use everloop_core::mesh::node::MeshNode;
use everloop_core::time::Time;

use crate::figures::{Figures, Membership};

/// Where the status is published, and what was seen of the hub. Moments are by CLOCK_BOOTTIME:
/// their age does not depend on changes of the wall clock.
#[derive(Default)]
pub(super) struct MeshStatus {
    figures: Arc<Figures>,
    away_since: Option<Time>,
    answered_at: Option<Duration>,
    remembered_at: Option<Duration>,
}

impl MeshStatus {
    /// A status that is published in `figures`; nothing was seen of the hub yet.
    pub fn new(figures: Arc<Figures>) -> Self {
        Self { figures, ..Self::default() }
    }

    /// The hub answered.
    pub fn answered(&mut self) {
        self.answered_at = Some(clock::boottime());
    }

    /// Its free tasks are remembered.
    pub fn remembered(&mut self) {
        self.remembered_at = self.answered_at;
    }

    /// Publishes the state of the node.
    pub fn publish(&mut self, node: &MeshNode, now: Time, wall: Time) {
        self.away_since = if node.is_cut_off() { self.away_since.or(Some(wall)) } else { None };
        self.figures.belongs(Some(Membership {
            node: node.name().clone(),
            leads: node.leads(now),
            holds: node.holds(),
            away_since: self.away_since,
            members: node.members(),
            heard_at: self.answered_at,
            remembered_at: self.remembered_at,
        }));
    }
}

impl Drop for MeshStatus {
    fn drop(&mut self) {
        self.figures.belongs(None);
    }
}
