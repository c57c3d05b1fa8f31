//! What a node says about itself to those who ask this machine (`/health`): who it is, whether it supervises, what it holds, and
//! since when the hub is away.

use std::sync::Arc;

use everloop_core::time::Time;

use super::node::Node;
use crate::api::{Figures, Membership};

/// Where it is said, and since when the hub does not answer.
#[derive(Default)]
pub(super) struct Tells {
    figures: Arc<Figures>,
    away_since: Option<Time>,
}

impl Tells {
    pub fn new(figures: Arc<Figures>) -> Self {
        Self { figures, away_since: None }
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
        let now = self.pace.wall();
        let since = &mut self.tells.away_since;
        *since = if self.line.is_broken() { since.or(Some(now)) } else { None };
        self.tells.figures.belongs(Some(Membership {
            node: self.membership.node.clone(),
            leads: self.seat.lock().expect("no holder panics").epoch(self.pace.now()).is_some(),
            holds: self.shelf.all().len(),
            away_since: self.tells.away_since,
        }));
    }
}
