//! What a node says about itself to those who ask this machine (`/health`, `/metrics`): who it is, whether it supervises, what it
//! holds, and since when the hub is away.

use std::sync::Arc;
use std::time::Duration;

use everloop_agents::clock;
use everloop_core::time::Time;

use super::node::Node;
use crate::figures::{Figures, Membership};

/// Where it is said, and what was seen of the hub. Moments are by CLOCK_BOOTTIME: how long ago they were does not depend on
/// what people do to the clock.
#[derive(Default)]
pub(super) struct Tells {
    figures: Arc<Figures>,
    away_since: Option<Time>,
    heard_at: Option<Duration>,
    free_at: Option<Duration>,
    /// Nodes that took tasks when it last looked, itself included.
    pub members: Option<usize>,
}

impl Tells {
    pub fn new(figures: Arc<Figures>) -> Self {
        Self { figures, ..Self::default() }
    }

    /// The hub answered.
    pub fn heard(&mut self) {
        self.heard_at = Some(clock::boottime());
    }

    /// It said which tasks are free, and that is remembered.
    pub fn remembered(&mut self) {
        self.free_at = self.heard_at;
    }
}

impl Drop for Tells {
    fn drop(&mut self) {
        self.figures.belongs(None);
    }
}

impl Node {
    /// Says how it is.
    pub(super) fn say_how_it_is(&mut self) {
        let now = self.pace.now();
        let since = &mut self.tells.away_since;
        *since = if self.line.is_broken() { since.or(Some(now)) } else { None };
        let tells = &self.tells;
        tells.figures.belongs(Some(Membership {
            node: self.membership.node.clone(),
            leads: self.seat.lock().expect("no holder panics").term(self.pace.now()).is_some(),
            holds: self.late_results.all().len(),
            away_since: tells.away_since,
            members: tells.members,
            heard_at: tells.heard_at,
            remembered_at: tells.free_at,
        }));
    }
}
