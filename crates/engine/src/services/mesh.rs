//! Loops and nodes of the mesh: as the hub has them, or, while it is away, as this node's copy of
//! the hub does.
//!
//! - `loops`: a list of loops, and ending one; `nodes`: the machines; `join`, `leave`: this one
//! - `trust`: keys, and signing with this node's own; `hub`: the database that the nodes share

use std::collections::BTreeMap;

use everloop_core::ids::{LoopId, NodeId};
use everloop_core::immune::Immune;
use everloop_core::journal::JournalRecord;
use everloop_core::mesh::eligibility::{self, ACCOUNT, Limited};
use everloop_core::mesh::keys::{Keyring, read_loop};
use everloop_core::mesh::why::{LoopView, reason};
use everloop_core::mesh::{KIND, MeshLoop};
use everloop_core::op::{TaskRow, Ticket};
use everloop_core::reason::Reason;
use everloop_core::time::Time;
use everloop_store::{Leader, Ledger, Postgres, Tickets};

use super::ServiceContext;
use crate::error::{Code, Failure};
use crate::membership::Membership;
use crate::node_files::copy::HubCopy;
use crate::node_keys::NodeKeys;

pub mod hub;
pub mod join;
pub mod leave;
pub mod loops;
pub mod nodes;
pub mod trust;

/// Entries of the hub's journal that are read about a loop.
const NOTES: usize = 5;

/// What a node can read of its mesh.
#[derive(Debug)]
pub struct MeshView {
    pub membership: Membership,
    pub keys: NodeKeys,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Hub(Box<Postgres>),
    Copy(Box<HubCopy>),
}

impl MeshView {
    /// The hub of this node, or its copy while the hub is away.
    pub fn open(context: &ServiceContext) -> Result<Self, Failure> {
        let home = context.home()?;
        let Some(membership) = Membership::read(&home)? else { return Err(no_mesh()) };
        let keys = NodeKeys::open(&home, &membership.node)?;
        let source = match membership.open() {
            Ok(hub) => Source::Hub(Box::new(hub)),
            Err(failure) if failure.code == Code::Away => {
                Source::Copy(Box::new(HubCopy::read(&home, &membership.hub, failure)?))
            }
            Err(failure) => return Err(failure),
        };
        Ok(Self { membership, keys, source })
    }

    /// What is read.
    pub fn ledger(&self) -> &dyn Ledger {
        match &self.source {
            Source::Hub(hub) => &**hub,
            Source::Copy(copy) => &copy.ledger,
        }
    }

    /// The copy, when the hub is away.
    pub fn copy(&self) -> Option<&HubCopy> {
        match &self.source {
            Source::Hub(_) => None,
            Source::Copy(copy) => Some(copy),
        }
    }

    /// The hub's time: now, or when it last answered.
    pub fn now(&self) -> Result<Time, Failure> {
        match &self.source {
            Source::Hub(hub) => Ok(hub.clock()?),
            Source::Copy(copy) => Ok(copy.hub_time()),
        }
    }

    /// The leader whose lease is not over.
    pub fn leader(&self) -> Result<Option<Leader>, Failure> {
        let now = self.now()?;
        // The lease at the last answer was renewed since the copy was made, if its node is well.
        let over = |leader: &Leader| self.copy().is_none() && leader.until <= now;
        Ok(self.ledger().leader()?.filter(|leader| !over(leader)))
    }

    /// All loops that can be read, with the reason why this node runs nothing of one.
    pub fn loops(&self) -> Result<Vec<(MeshLoop, Option<String>)>, Failure> {
        let docs = self.ledger().docs(KIND)?;
        let read = |body: &str| {
            let state = MeshLoop::read(body).ok()?;
            let distrust = read_loop(&state.id, body, &self.keys).err().map(|fault| fault.to_string());
            Some((state, distrust))
        };
        Ok(docs.iter().filter_map(|doc| read(&doc.body)).collect())
    }

    /// One loop with all that concerns it; `None` when the mesh has no such loop.
    pub fn find(&self, id: &str) -> Result<Option<MeshDetail>, Failure> {
        let Some(doc) = self.ledger().doc(KIND, id)? else { return Ok(None) };
        let state = MeshLoop::read(&doc.body)
            .map_err(|why| Failure::failed(format!("cannot read loop `{id}` of the mesh: {why}")))?;
        let distrust = read_loop(&state.id, &doc.body, &self.keys).err().map(|fault| fault.to_string());
        self.detail(state, distrust).map(Some)
    }

    /// As [`Self::find`], for a loop that has to be there.
    pub fn get(&self, id: &str) -> Result<MeshDetail, Failure> {
        self.find(id)?.ok_or_else(|| loops::no_such(id))
    }

    fn detail(&self, state: MeshLoop, distrust: Option<String>) -> Result<MeshDetail, Failure> {
        let ledger = self.ledger();
        let rows: Result<Vec<_>, _> = state.open.iter().map(|open| ledger.task(&open.task)).collect();
        let mut limited = BTreeMap::new();
        for account in eligibility::shared([&state.spec.wanted]) {
            let found = ledger.doc(ACCOUNT, &account)?.and_then(|doc| Limited::read(&doc.body));
            limited.extend(found.map(|found| (account, found)));
        }
        let mut tickets = ledger.tickets(Tickets::Open)?;
        tickets.retain(|ticket| ticket.owner.as_ref() == Some(&state.id));
        let signer = state.signed.as_ref().map(|made| {
            let node = self.keys.trust().node_of(&made.seal.key).map_or("an unknown node", NodeId::as_str);
            format!("{} of {node}", made.seal.key.fingerprint())
        });
        let (rows, leader, now): (Vec<TaskRow>, _, _) =
            (rows?.into_iter().flatten().collect(), self.leader()?, self.now()?);
        let view = LoopView { state: &state, rows: &rows, leader: leader.as_ref().map(|leader| &leader.node), now };
        Ok(MeshDetail {
            reason: reason(&view),
            immune: crate::immune::read(ledger)?.1,
            notes: self.notes(&state.id),
            rows,
            leader,
            now,
            signer,
            distrust,
            limited,
            tickets,
            state,
        })
    }

    /// The last entries of the hub's journal about a loop; a damaged journal explains nothing.
    fn notes(&self, id: &LoopId) -> Vec<JournalRecord> {
        self.ledger().journal_tail(Some(id), NOTES).unwrap_or_default()
    }
}

/// A loop of the mesh and all that explains it.
#[derive(Clone, Debug)]
pub struct MeshDetail {
    pub state: MeshLoop,
    /// Its open tasks.
    pub rows: Vec<TaskRow>,
    pub leader: Option<Leader>,
    /// The hub's time.
    pub now: Time,
    /// The rule that decides now.
    pub reason: Reason,
    /// The key that made it, and its node.
    pub signer: Option<String>,
    /// Why this node runs nothing of it.
    pub distrust: Option<String>,
    /// Accounts of the loop that are limited.
    pub limited: BTreeMap<String, Limited>,
    /// Open tickets about it.
    pub tickets: Vec<Ticket>,
    pub immune: Immune,
    /// What happened last.
    pub notes: Vec<JournalRecord>,
}

/// This machine belongs to no mesh.
pub fn no_mesh() -> Failure {
    Failure::config("this machine is not a node of a mesh").hint("join one: everloop mesh join postgres://…")
}
