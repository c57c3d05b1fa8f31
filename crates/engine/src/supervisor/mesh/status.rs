//! What a node publishes about itself on this machine (`/health`, `/metrics`): its name, whether it
//! leads, what it holds, and since when the hub is away. The last part is also kept in a file.

use std::sync::Arc;
use std::time::Duration;

use everloop_agents::clock;
use everloop_core::mesh::node::MeshNode;
use everloop_core::time::Time;

use crate::figures::{Figures, Membership};
use crate::node_files::contact::{self, Contact};
use crate::state_folder::StateFolder;

/// Between two writes of the file while the hub answers: so much older than it is can a copy of the
/// hub look after a crash.
const KEPT: Duration = Duration::from_secs(300);

/// Where the status is published, and what was seen of the hub. Moments are by CLOCK_BOOTTIME:
/// their age does not depend on changes of the wall clock.
#[derive(Default)]
pub(super) struct MeshStatus {
    figures: Arc<Figures>,
    away_since: Option<Time>,
    answered_at: Option<Duration>,
    remembered_at: Option<Duration>,
    /// Where contact with the hub is kept, what was written last, and the last answer.
    kept: Option<(StateFolder, Contact)>,
    last_answer: Option<Time>,
}

impl MeshStatus {
    /// A status that is published in `figures`; nothing was seen of the hub yet.
    pub fn new(figures: Arc<Figures>, home: &StateFolder) -> Self {
        let known = contact::read(home).unwrap_or_default();
        Self { figures, kept: Some((home.clone(), known)), ..Self::default() }
    }

    /// The hub answered.
    pub fn answered(&mut self) {
        self.answered_at = Some(clock::boottime());
        self.last_answer = Some(clock::now());
    }

    /// Writes when the hub last answered, if that matters for a reader.
    fn keep(&mut self, soon: Duration) {
        let Some((home, known)) = &mut self.kept else { return };
        let answered_at = self.last_answer.unwrap_or(known.answered_at);
        let contact = Contact { answered_at, away_since: self.away_since };
        if contact.away_since != known.away_since || answered_at.since(known.answered_at) >= soon {
            *known = contact;
            contact::write(home, &contact);
        }
    }

    /// Its free tasks are remembered.
    pub fn remembered(&mut self) {
        self.remembered_at = self.answered_at;
    }

    /// Publishes the state of the node.
    pub fn publish(&mut self, node: &MeshNode, now: Time, wall: Time) {
        self.away_since = if node.is_cut_off() { self.away_since.or(Some(wall)) } else { None };
        self.keep(KEPT);
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
        self.keep(Duration::from_millis(1));
        self.figures.belongs(None);
    }
}
