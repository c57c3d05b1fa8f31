//! The calls of a node to its hub, one after the other over one connection.

use std::sync::Arc;

use everloop_core::ids::{LoopId, NodeId, TaskId};
use everloop_core::immune::{DOC, FLEET, Immune};
use everloop_core::mesh::keys::read_loop;
use everloop_core::mesh::node::{
    BeatReply, Hint, HubAway, HubCalls, HubResult, Listed, LoopDoc, NODE, NodeStatus, Wish,
};
use everloop_core::mesh::reconcile::Sign;
use everloop_core::mesh::rights::Rights;
use everloop_core::mesh::{KIND, OpenTask};
use everloop_core::op::{LateResult, Op, Refusal, Reply, TaskRow, Ticket};
use everloop_core::time::Time;
use everloop_store::mirror::{Mirror, MirrorError};
use everloop_store::{Error, Ledger, Postgres, StateName, TaskFilter, TaskOwner, Tickets};
use serde_json::json;

use super::host::Host;
use crate::error::Failure;
use crate::node_keys::FormerKey;
use crate::supervisor::mirror::{SCORES, open_for_hub};

/// Free tasks that are listed: among more, other nodes take those that are not seen.
const MAX_LISTED: usize = 200;
/// Tasks that rest and are read at most: what is set right in one run is far less.
const MAX_RESTING: usize = 500;

impl Host {
    /// Calls the hub. An answer is also a refusal.
    fn call<T>(&mut self, work: impl FnOnce(&mut Postgres) -> Result<T, Error>) -> HubResult<Result<T, Refusal>> {
        if self.hub.is_none() {
            self.hub = Some(self.connect().map_err(|failure| HubAway(failure.message))?);
        }
        let hub = self.hub.as_mut().expect("it was just connected");
        let answer = match work(hub) {
            Ok(answer) => Ok(answer),
            Err(Error::Refused(refusal)) => Err(refusal),
            Err(error) => return Err(HubAway(error.to_string())),
        };
        self.status.answered();
        Ok(answer)
    }

    /// A connection to the hub; the first one of this process also lists the node's key there.
    fn connect(&mut self) -> Result<Postgres, Failure> {
        let mut hub = self.membership.open()?;
        if !self.announced {
            self.keys.announce(&mut hub, FormerKey::Keep)?;
            self.announced = true;
        }
        Ok(hub)
    }

    /// Reads from the hub, which refuses no reads.
    fn read<T>(&mut self, work: impl FnOnce(&mut Postgres) -> Result<T, Error>) -> HubResult<T> {
        self.call(work)?.map_err(|refusal| HubAway(refusal.to_string()))
    }
}

fn info(status: &NodeStatus, rights: Rights) -> String {
    let info = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "holds": status.holds,
        "leads": status.leads,
        "may_lead": rights == Rights::Leader,
        "draining": status.draining,
        "next_beat": status.next_beat,
        "leaving": status.next_beat.is_none(),
    });
    info.to_string()
}

fn keys(ids: &[LoopId]) -> Vec<String> {
    ids.iter().map(LoopId::to_string).collect()
}

impl HubCalls for Host {
    fn beat(&mut self, status: &NodeStatus) -> HubResult<BeatReply> {
        let node = self.membership.node.clone();
        let beat = |hub: &mut Postgres| hub.beat(Time::default(), &node, &info(status, hub.rights()));
        let (reply, rights) = self.read(|hub| Ok((beat(hub)?, hub.rights())))?;
        // A wish of a newer version, unknown here, is not to work.
        let wish = reply.wish.map(|wish| serde_json::from_str(&wish).unwrap_or(Wish::Drain));
        Ok(BeatReply { at: reply.at, led_until: reply.led_until, wish, waiting: reply.waiting, seq: reply.seq, rights })
    }

    fn transact(&mut self, _term: Option<u64>, ops: &[Op]) -> HubResult<Result<Vec<Reply>, Refusal>> {
        self.call(|hub| hub.transact(Time::default(), ops))
    }

    fn hint(&mut self, hint: &Hint) -> HubResult<()> {
        self.read(|hub| hub.hint(&hint.word()))
    }

    fn task(&mut self, id: &TaskId) -> HubResult<Option<TaskRow>> {
        self.read(|hub| hub.task(id))
    }

    fn tasks(&mut self, which: Listed) -> HubResult<Vec<TaskRow>> {
        let states = match which {
            Listed::Queued => vec![StateName::Queued],
            Listed::Open => vec![StateName::Queued, StateName::Leased],
        };
        self.read(|hub| hub.tasks(&TaskFilter { owner: TaskOwner::Any, states, limit: MAX_LISTED }))
    }

    fn rows(&mut self, open: &[OpenTask], rows: &mut Vec<TaskRow>) -> HubResult<()> {
        let found = self.read(|hub| open.iter().map(|open| hub.task(&open.task)).collect::<Result<Vec<_>, Error>>())?;
        *rows = found.into_iter().flatten().collect();
        Ok(())
    }

    fn resting(&mut self, queued: Time, leased: Time) -> HubResult<Vec<TaskRow>> {
        self.read(|hub| hub.resting(queued, leased, MAX_RESTING))
    }

    fn late_results(&mut self, task: &TaskId) -> HubResult<Vec<LateResult>> {
        self.read(|hub| hub.late_results(task))
    }

    fn nodes(&mut self) -> HubResult<Vec<Sign>> {
        let rows = self.read(|hub| hub.nodes())?;
        Ok(rows.into_iter().map(|row| Sign::read(row.node, row.seen_at, &row.info)).collect())
    }

    fn wishes(&mut self) -> HubResult<Vec<(NodeId, Wish)>> {
        let docs = self.read(|hub| hub.docs(NODE))?;
        let wish = |body: &str| serde_json::from_str(body).ok();
        Ok(docs.into_iter().filter_map(|doc| Some((NodeId::new(&*doc.key), wish(&doc.body)?))).collect())
    }

    fn loop_versions(&mut self) -> HubResult<Arc<[(LoopId, u64)]>> {
        let versions = self.read(|hub| hub.doc_versions(KIND))?;
        Ok(versions.into_iter().map(|(key, version)| (LoopId::new(key), version)).collect())
    }

    fn loops(&mut self, ids: &[LoopId]) -> HubResult<Vec<LoopDoc>> {
        let docs = self.read(|hub| hub.docs_named(KIND, &keys(ids)))?;
        let read = |doc: everloop_store::DocRow| {
            let id = LoopId::new(doc.key);
            LoopDoc { state: read_loop(&id, &doc.body, self), id, version: doc.version }
        };
        Ok(docs.into_iter().map(read).collect())
    }

    fn doc(&mut self, kind: &str, key: &str) -> HubResult<Option<(u64, String)>> {
        Ok(self.read(|hub| hub.doc(kind, key))?.map(|doc| (doc.version, doc.body)))
    }

    fn fleet(&mut self) -> HubResult<Option<(u64, Arc<Immune>)>> {
        let Some(row) = self.read(|hub| hub.doc(DOC, FLEET))? else { return Ok(Some((0, Arc::default()))) };
        let unreadable = |error: &String| tracing::warn!(error, "the record of the fleet cannot be read");
        let immune = Immune::read(&row.body).inspect_err(unreadable).ok();
        Ok(immune.map(|immune| (row.version, Arc::new(immune))))
    }

    fn tickets(&mut self) -> HubResult<Vec<Ticket>> {
        self.read(|hub| hub.tickets(Tickets::Open))
    }

    /// Brings the mirror up to date. This costs nothing while nothing changed: the answer to every
    /// heartbeat has the end of the journal, to which the leader writes with all that it does for a
    /// loop. Changes without an entry (a claim, a late result) wait for the next regular pass.
    fn mirror(&mut self) -> HubResult<Option<u64>> {
        let (root, mut known) = (self.home.mirror(), self.mirror.take());
        let passed = self.read(|hub| {
            let seq = hub.last_seq()?;
            match pass(known.take(), hub, &root) {
                Ok(mirror) => known = Some(mirror),
                Err(MirrorError::Ledger(error)) => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "the mirror of the hub cannot be written; everything else goes on");
                    return Ok(None);
                }
            }
            Ok(Some(seq))
        });
        self.mirror = known;
        passed
    }
}

fn pass(known: Option<Mirror>, hub: &mut Postgres, root: &std::path::Path) -> Result<Mirror, MirrorError> {
    let mut mirror = match known {
        Some(mirror) => mirror,
        None => open_for_hub(root, hub.id())?,
    };
    mirror.pass(hub, SCORES)?;
    Ok(mirror)
}
