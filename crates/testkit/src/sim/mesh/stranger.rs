//! Keys of simulated machines, and a stranger that can write to the hub but has no trusted key: it
//! changes loops, reports in the name of machines, and signs with a key of its own. Nothing of that
//! may be run or land.

use everloop_core::ids::{Fence, NodeId};
use everloop_core::mesh::keys::{Keyring, PublicKey, Seal, TrustList, TrustedKey, sealed, unsealed};
use everloop_core::mesh::{KIND, MeshLoop, TaskReport, work};
use everloop_core::op::{Op, TaskEnd, TaskRow};
use everloop_core::time::Time;
use everloop_store::{Ledger, StateName, TaskFilter, TaskOwner};

use super::host::Host;
use super::world::World;
use crate::random::of_bytes;

/// The mark of what a stranger made: in the goal of a loop, or as a file.
pub(super) const MARK: &str = "evil";
/// Between two attempts of a stranger, in milliseconds.
const AGAIN_MS: u64 = 20_000;
/// After so long a person finds a changed loop, repairs and signs it.
const REPAIR_MS: u64 = 90_000;
/// So often a stranger tries.
const ATTEMPTS: u32 = 3;
/// The number of the person's key; those of machines are smaller.
const PERSON: usize = 1_000;
/// The number of a stranger's key.
const OWN: usize = 2_000;

/// What a stranger does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranger {
    /// There is none; signatures are not computed then.
    Absent,
    /// It changes the commands of a loop.
    ChangesLoops,
    /// It reports work of its own in the name of a machine.
    Reports,
    /// It changes the commands of a loop and signs it with a key of its own.
    SignsLoops,
}

/// Signs as one of all; knows every secret of the simulation.
pub(super) struct SimKeys<'a> {
    number: usize,
    stranger: Stranger,
    trust: &'a TrustList,
}

fn key(number: usize) -> PublicKey {
    PublicKey::new(&format!("{number:032x}{number:032x}")).expect("these are 64 digits")
}

/// The keys that every simulated machine trusts: of all machines and of the person.
pub(super) fn trusted(nodes: impl Iterator<Item = NodeId>) -> TrustList {
    let mut list = TrustList::default();
    let all = nodes.enumerate().chain([(PERSON, NodeId::new("desk"))]);
    all.for_each(|(n, node)| list.add(TrustedKey { key: key(n), node, at: Time::default() }));
    list
}

impl Keyring for SimKeys<'_> {
    fn sign(&self, bytes: &[u8]) -> Seal {
        let key = key(self.number);
        let signature = if self.stranger == Stranger::Absent { String::new() } else { signature(&key, bytes) };
        Seal { key, signature }
    }

    fn fits(&self, seal: &Seal, bytes: &[u8]) -> bool {
        self.stranger == Stranger::Absent || seal.signature == signature(&seal.key, bytes)
    }

    fn trust(&self) -> &TrustList {
        self.trust
    }
}

fn signature(key: &PublicKey, bytes: &[u8]) -> String {
    let seed = of_bytes(1, key.as_str().as_bytes());
    format!("{:016x}", of_bytes(seed, bytes))
}

impl Keyring for Host<'_> {
    fn sign(&self, bytes: &[u8]) -> Seal {
        self.world.keys(self.n).sign(bytes)
    }

    fn fits(&self, seal: &Seal, bytes: &[u8]) -> bool {
        self.world.keys(self.n).fits(seal, bytes)
    }

    fn trust(&self) -> &TrustList {
        &self.world.trust
    }
}

impl World {
    fn keys(&self, number: usize) -> SimKeys<'_> {
        SimKeys { number, stranger: self.setup.stranger, trust: &self.trust }
    }

    /// The operations that save a loop, as a person signs it.
    pub(super) fn saved_by_person(&self, state: &MeshLoop, version: u64) -> Vec<Op> {
        sealed(state.save(version, &[]), &self.keys(PERSON))
    }

    /// A new loop, with its commands signed by a person.
    pub(super) fn signed_by_person(&self, mut state: MeshLoop) -> MeshLoop {
        state.sign(&self.keys(PERSON));
        state
    }

    /// A stranger begins, if there is one.
    pub(super) fn expect_stranger(&mut self) {
        if self.setup.stranger != Stranger::Absent {
            for attempt in 1..=ATTEMPTS {
                self.later(u64::from(attempt) * AGAIN_MS, Self::meet_stranger);
            }
        }
    }

    fn meet_stranger(&mut self) {
        if self.facts.ended {
            return;
        }
        match self.setup.stranger {
            Stranger::Absent => {}
            Stranger::Reports => self.forge_report(),
            Stranger::ChangesLoops | Stranger::SignsLoops => self.change_loop(),
        }
    }

    fn change_loop(&mut self) {
        let (version, state) = self.current_doc().clone();
        if state.spec.wanted.goal.contains(MARK) {
            return;
        }
        let mut changed = state.clone();
        MARK.clone_into(&mut changed.spec.wanted.goal);
        let ops = if self.setup.stranger == Stranger::SignsLoops {
            changed.sign(&self.keys(OWN));
            sealed(changed.save(version, &[]), &self.keys(OWN))
        } else {
            self.with_old_seal(&changed, version)
        };
        self.count("stranger changes the loop");
        self.hub.model.transact(self.time(), &ops).expect("the version was just read");
        self.versions = None;
        self.later(REPAIR_MS, move |w| w.repair(state.spec));
    }

    /// A changed document with the seal of the one before.
    fn with_old_seal(&self, changed: &MeshLoop, version: u64) -> Vec<Op> {
        let name = (KIND.to_owned(), changed.id.to_string());
        let old = self.hub.model.peek_doc(&name).and_then(|doc| unsealed(&doc.body)).map(|(_, seal)| seal);
        let seal = serde_json::to_string(&old.expect("our own are sealed")).expect("a seal is plain data");
        let mut ops = changed.save(version, &[]);
        for op in &mut ops {
            if let Op::SaveDoc { body, .. } = op {
                let open = body.strip_suffix('}').expect("it is an object");
                *body = format!("{open},\"seal\":{seal}}}");
            }
        }
        ops
    }

    /// A person puts the commands back and signs the loop (`everloop mesh sign`).
    fn repair(&mut self, spec: everloop_core::mesh::MeshSpec) {
        let (version, mut state) = self.current_doc().clone();
        if state.spec.wanted.goal.contains(MARK) {
            state.spec = spec;
            let state = self.signed_by_person(state);
            let ops = self.saved_by_person(&state, version);
            self.hub.model.transact(self.time(), &ops).expect("the version was just read");
            self.versions = None;
            // No machine could take a task meanwhile.
            self.nodes.iter_mut().for_each(|node| node.idle_since = self.now);
        }
    }

    /// Takes a free task in the name of the first machine, and ends it with work that was not done.
    fn forge_report(&mut self) {
        let owner = TaskOwner::Loop(self.current.id.clone());
        let filter = TaskFilter { owner, states: vec![StateName::Queued], limit: 1 };
        let rows = self.hub.model.tasks(&filter).expect("the model answers");
        let Some(TaskRow { task, fence, .. }) = rows.into_iter().next() else {
            return self.later(AGAIN_MS / 20, Self::meet_stranger);
        };
        let Some(check) = self.current_doc().1.check_of(&task.id).map(str::to_owned) else { return };
        let commit = self.git.commit([MARK.to_owned(), check].into());
        let (node, fence) = (self.nodes[0].id.clone(), fence.next());
        let report = TaskReport {
            reached: true,
            commit: Some(commit.to_string()),
            reference: Some(MARK.to_owned()),
            ..TaskReport::nothing(&node, fence, MARK)
        };
        let result = serde_json::to_string(&report).expect("a report is plain data");
        let finish = Op::Finish { task: task.id.clone(), fence, state: TaskEnd::Done, result };
        // The seal of another task does not fit.
        let finish = if commit.is_multiple_of(2) { finish } else { self.sealed_for_another(finish) };
        let take = Op::Take { task: task.id.clone(), fence, node, lease: work::LEASE };
        self.count("stranger reports");
        let ops = [take, finish];
        if self.hub.model.transact(self.time(), &ops).is_ok() {
            self.after(None, &ops);
        }
    }

    fn sealed_for_another(&self, finish: Op) -> Op {
        let Op::Finish { task, fence, state, result } = finish else { return finish };
        let other = Op::Finish { task: task.clone(), fence: Fence(99), state, result };
        match sealed([other], &self.keys(0)).remove(0) {
            Op::Finish { result, .. } => Op::Finish { task, fence, state, result },
            other => other,
        }
    }

    /// Nothing that a stranger made is run.
    pub(super) fn runs(&mut self, goal: &str) {
        if goal.contains(MARK) {
            self.violated("signed", "commands are run that no trusted key signed".to_owned());
        }
    }
}
