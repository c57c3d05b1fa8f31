//! What the supervisor of the mesh does besides its loops: every minute it sets right what no loop looks after, and says who is
//! silent; and it remembers loops between two looks, so that those that are over cost nothing but their names.

use std::collections::BTreeMap;

use everloop_core::ids::LoopId;
use everloop_core::mesh::lead::Office;
use everloop_core::mesh::reconcile::{self, Book, EVERY, KEY, Known, Look, Patience, Plan, Sign};
use everloop_core::mesh::{KIND, MeshLoop};
use everloop_core::op::{Refusal, TaskRow};
use everloop_core::time::Time;
use everloop_store::{Error, Ledger, NodeRow};

use super::node::{NODE, Node, Wish};

/// Tasks that are read at most: what is set right in one run is far less.
const READ: usize = 500;
/// Loops that are over and have something to settle, in one run.
const SETTLED: usize = 10;
/// A task that somebody changed meanwhile is left out; so often the rest is tried again.
const TRIES: u32 = 4;

/// What a supervisor remembers between two looks. All of it can be read again, and is when the epoch is another one.
#[derive(Default)]
pub(super) struct Care {
    term: u64,
    versions: BTreeMap<LoopId, u64>,
    loops: BTreeMap<LoopId, Known>,
    book: Option<(u64, Book)>,
    next_at: Time,
}

impl Care {
    /// Loops that go on, with their versions.
    pub fn open(&self) -> Vec<(MeshLoop, u64)> {
        let open = |(id, known): (&LoopId, &Known)| match known {
            Known::Open(state) => Some((MeshLoop::clone(state), *self.versions.get(id)?)),
            Known::Over(_) | Known::Unreadable => None,
        };
        self.loops.iter().filter_map(open).collect()
    }

    fn learn(&mut self, key: &str, version: u64, body: &str) {
        let id = LoopId::new(key);
        let unreadable = |error: String| {
            tracing::warn!(key, error, "a loop of the mesh cannot be read");
            Known::Unreadable
        };
        let known = MeshLoop::read(body).map_or_else(unreadable, Known::of);
        self.versions.insert(id.clone(), version);
        self.loops.insert(id, known);
    }
}

impl Node {
    /// Brings what it knows of the loops to where the hub is: only those that changed are read. Whether the hub answered.
    pub(super) fn refresh(&mut self, term: u64) -> bool {
        if self.care.term != term {
            self.care = Care { term, next_at: self.care.next_at, ..Care::default() };
        }
        let Some(Ok(versions)) = self.at_hub("look at loops", |hub| hub.doc_versions(KIND)) else { return false };
        let versions: BTreeMap<LoopId, u64> = versions.into_iter().map(|(key, v)| (LoopId::new(key), v)).collect();
        self.care.versions.retain(|id, version| versions.get(id) == Some(version));
        self.care.loops.retain(|id, _| versions.contains_key(id));
        let is_new = |id: &&LoopId| !self.care.versions.contains_key(*id);
        let changed: Vec<String> = versions.keys().filter(is_new).map(LoopId::to_string).collect();
        if changed.is_empty() {
            return true;
        }
        let Some(Ok(docs)) = self.at_hub("read loops", |hub| hub.docs_named(KIND, &changed)) else { return false };
        for doc in docs {
            self.care.learn(&doc.key, doc.version, &doc.body);
        }
        true
    }

    /// Sets right what no loop looks after, when it is time to, and not before everybody who lives had time to say so.
    pub(super) fn reconcile(&mut self, term: u64) {
        let now = self.pace.now();
        if now < self.care.next_at || !self.seat.lock().expect("no holder panics").reclaims(now) {
            return;
        }
        self.care.next_at = now + EVERY;
        self.settle(term);
        let Some((version, book)) = self.book() else { return };
        let Some((rows, nodes)) = self.resting() else { return };
        let office = Office { node: self.membership.node.clone(), term };
        let patience = Patience::new(|period| self.pace.real(period));
        let (loops, hub_now) = (&self.care.loops, self.hub_now());
        let look = Look { office: &office, loops, rows: &rows, nodes: &nodes, patience, now: hub_now };
        let mut plan = reconcile::plan(&book, &look);
        for _ in 0..TRIES {
            if plan.is_empty() || self.set_right(&mut plan, &office, version) {
                return;
            }
        }
    }

    /// Writes what is to be done; whether that is the end of it.
    fn set_right(&mut self, plan: &mut Plan, office: &Office, version: u64) -> bool {
        let batch = plan.batch(office, version);
        match self.at_hub("set tasks right", |hub| hub.transact(Time::default(), &batch)) {
            Some(Ok(_)) => {
                for text in plan.said() {
                    tracing::info!("{text}");
                }
                self.care.book = Some((version + 1, plan.book.clone()));
                true
            }
            // Somebody did something about it in this very moment.
            Some(Err(Error::Refused(Refusal::Fenced { task, .. } | Refusal::WrongState { task, .. }))) => {
                plan.leave_out(&task);
                false
            }
            Some(Err(error)) => {
                tracing::info!(%error, "nothing was set right; it is looked at again");
                self.care.book = None;
                true
            }
            None => true,
        }
    }

    /// What was said already.
    fn book(&mut self) -> Option<(u64, Book)> {
        if let Some(known) = &self.care.book {
            return Some(known.clone());
        }
        let doc = self.at_hub("read what was said", |hub| hub.doc(reconcile::KIND, KEY))?.ok()?;
        let read = doc.map_or(Ok((0, Book::default())), |doc| Book::read(&doc.body).map(|book| (doc.version, book)));
        let book = read.inspect_err(|error| tracing::warn!(error, "nothing is set right: the book cannot be read"));
        self.care.book = book.ok();
        self.care.book.clone()
    }

    /// Tasks that rest for long, and the nodes but those that were removed.
    fn resting(&mut self) -> Option<(Vec<TaskRow>, Vec<Sign>)> {
        let (now, patience) = (self.hub_now(), Patience::new(|period| self.pace.real(period)));
        let (queued, leased) = (now - patience.stray, now - patience.orphan);
        let found = self.at_hub("look for tasks that rest", |hub| {
            Ok((hub.resting(queued, leased, READ)?, hub.nodes()?, hub.docs(NODE)?))
        });
        let (rows, nodes, wishes) = found?.ok()?;
        self.tells.members = Some(self.members(&nodes).len());
        let removed = |row: &NodeRow| {
            let wish = wishes.iter().find(|doc| doc.key == row.node.as_str());
            wish.and_then(|doc| serde_json::from_str(&doc.body).ok()) == Some(Wish::Remove)
        };
        let there = nodes.into_iter().filter(|row| !removed(row));
        Some((rows, there.map(|row| Sign::read(row.node, row.seen_at, &row.info)).collect()))
    }

    /// What loops that are over had set aside, and nobody can say any more what of it was used, is taken for used.
    fn settle(&mut self, term: u64) {
        let now = self.hub_now();
        let due = |(id, known): (&LoopId, &Known)| match known {
            Known::Over(Some(at)) if *at <= now => Some(id.to_string()),
            Known::Over(_) | Known::Open(_) | Known::Unreadable => None,
        };
        let due: Vec<String> = self.care.loops.iter().filter_map(due).take(SETTLED).collect();
        if due.is_empty() {
            return;
        }
        let Some(Ok(docs)) = self.at_hub("read loops that are over", |hub| hub.docs_named(KIND, &due)) else { return };
        for doc in docs {
            let Ok(mut state) = MeshLoop::read(&doc.body) else { continue };
            let Some((rows, late)) = self.rows_of(&state) else { return };
            state.settle(&rows, &late, now);
            let note = "what was still set aside for attempts is settled".to_owned();
            self.write(&state, doc.version, term, (Vec::new(), &[note]));
        }
    }
}
