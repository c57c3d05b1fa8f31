//! This node's copy of the hub, for people while the hub is away: its mirror, as a ledger to read,
//! with its age, and what the node does meanwhile.

use everloop_agents::clock;
use everloop_core::ids::NodeId;
use everloop_core::mesh::work::{Held, Stage};
use everloop_core::time::Time;
use everloop_store::{Ledger, OpenMode, Sqlite, mirror};

use super::{claims, contact, replica};
use crate::error::Failure;
use crate::record::read_state;
use crate::state_folder::{LockOwner, StateFolder};

/// What a node knows of a hub that is away.
#[derive(Debug)]
pub struct HubCopy {
    /// The rows of the hub as they were.
    pub ledger: Sqlite,
    /// Why the hub itself was not read.
    pub failure: Failure,
    /// The hub last answered then; `None`: not since this node keeps that.
    pub as_of: Option<Time>,
    pub meanwhile: Meanwhile,
}

/// What this node does without its hub.
#[derive(Debug)]
pub struct Meanwhile {
    pub supervisor: Option<LockOwner>,
    /// The node found the hub away then.
    pub away_since: Option<Time>,
    /// Tasks that it holds.
    pub held: Vec<HeldTask>,
    /// Free tasks that it knows; those of its own share it may begin.
    pub free: usize,
    /// Nodes that were there when the hub last answered.
    pub members: Vec<NodeId>,
}

/// A task that this node holds, and the phase of its loop for it.
#[derive(Debug)]
pub struct HeldTask {
    pub held: Held,
    pub phase: Option<String>,
}

impl HeldTask {
    /// Where the node stands with it, in words.
    pub fn words(&self) -> String {
        match (&self.held.stage, &self.phase) {
            (Stage::Pushed { .. }, _) => "done and pushed, to be reported when the hub is back".to_owned(),
            (Stage::Working, Some(phase)) => format!("in work ({phase})"),
            (Stage::Working, None) => "about to begin".to_owned(),
        }
    }
}

impl HubCopy {
    /// Reads the copy of the hub `hub`. The failure itself when there is none.
    pub fn read(home: &StateFolder, hub: &str, failure: Failure) -> Result<Self, Failure> {
        let Ok(found) = mirror::found(&home.mirror().join("hub")) else { return Err(failure) };
        if found.of != hub {
            return Err(failure);
        }
        let mut ledger = Sqlite::in_memory()?;
        ledger.restore(&found.rows)?;
        let contact = contact::read(home);
        let known = replica::read(home);
        let meanwhile = Meanwhile {
            supervisor: home.owner(),
            away_since: contact.and_then(|contact| contact.away_since),
            held: held(home),
            free: known.free.len(),
            members: known.members,
        };
        Ok(Self { ledger, failure, as_of: contact.map(|contact| contact.answered_at), meanwhile })
    }

    /// The hub's time to which it belongs, as far as clocks agree.
    pub fn hub_time(&self) -> Time {
        self.as_of.map_or(Time::default(), |at| clock::program().machine(at))
    }
}

fn held(home: &StateFolder) -> Vec<HeldTask> {
    let Ok(claims) = claims::ClaimStore::open(&home.mesh().join("held")) else { return Vec::new() };
    let local = Sqlite::open(&home.database(), OpenMode::ReadOnly).ok();
    let phase = |held: &Held| {
        let row = local.as_ref()?.get_loop(&held.local()).ok().flatten()?;
        Some(read_state(&row).ok()?.phase.label().to_owned())
    };
    claims.all().into_iter().map(|held| HeldTask { phase: phase(&held), held }).collect()
}
