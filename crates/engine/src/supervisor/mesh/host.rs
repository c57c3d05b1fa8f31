//! What the node's thread works with, and how effects on this machine are carried out: files, the
//! ledger, the log. Calls to the hub are in [`super::hub`], actions that take time in
//! [`super::attempt`] and [`super::merge`].

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};

use everloop_agents::job::ShimProgram;
use everloop_core::action::LoopCommand;
use everloop_core::event::Event;
use everloop_core::guard::{Guards, Scope};
use everloop_core::ids::LoopId;
use everloop_core::mesh::keys::{Keyring, Seal, TrustList};
use everloop_core::mesh::node::{
    Claim, LocalLoop, LocalPhase, MeshAction, MeshOutcome, NodeEffects, NodeEvent, NodeInput, Weight,
};
use everloop_core::mesh::offline::Replica;
use everloop_core::mesh::work::mesh_loop_of;
use everloop_core::op::{Op, Ticket};
use everloop_core::reason::Reason;
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_core::why::waiting;
use everloop_store::mirror::Mirror;
use everloop_store::{Ledger, LoopRow, OpenMode, Postgres, Sqlite, Tickets};
use tokio::runtime::Handle;

use super::node_clock::NodeClock;
use super::status::MeshStatus;
use super::thread::News;
use super::{attempt, leftovers, merge};
use crate::error::Failure;
use crate::hold;
use crate::membership::Membership;
use crate::node_files::claims::ClaimStore;
use crate::node_files::replica;
use crate::node_keys::NodeKeys;
use crate::quantities;
use crate::record::read_state;
use crate::state_folder::StateFolder;

/// Closed copies of tickets that are compared with the hub.
const REMEMBERED: usize = 500;

/// What a node works with.
pub(super) struct Host {
    pub home: StateFolder,
    pub shim: ShimProgram,
    pub membership: Membership,
    pub keys: NodeKeys,
    /// Its key stands in the hub.
    pub announced: bool,
    pub pace: NodeClock,
    /// The ledger of this machine, in which the loops for its tasks live.
    pub local: Sqlite,
    pub claims: ClaimStore,
    pub hub: Option<Postgres>,
    pub mirror: Option<Mirror>,
    pub status: MeshStatus,
    /// The supervisor's: actions run beside its own.
    pub runner: Handle,
    pub news: mpsc::Sender<News>,
}

impl Host {
    /// Opens what a node needs on this machine.
    pub fn open(
        home: &StateFolder,
        shim: &ShimProgram,
        membership: &Membership,
        news: mpsc::Sender<News>,
    ) -> Result<Self, Failure> {
        let cannot = |e: &std::io::Error| Failure::failed("cannot make this machine a node").because(e);
        Ok(Self {
            local: Sqlite::open(&home.database(), OpenMode::ReadWrite)?,
            claims: ClaimStore::open(&home.mesh().join("held")).map_err(|e| cannot(&e))?,
            home: home.clone(),
            shim: shim.clone(),
            membership: membership.clone(),
            keys: NodeKeys::open(home, &membership.node)?,
            announced: false,
            pace: NodeClock::new(),
            hub: None,
            mirror: None,
            status: MeshStatus::default(),
            runner: Handle::current(),
            news,
        })
    }

    fn state_of(&self, claim: &Claim) -> Option<LoopState> {
        self.local.get_loop(&claim.local).ok().flatten().and_then(|row| read_state(&row).ok())
    }

    fn run(&self, action: impl Future<Output = MeshOutcome> + Send + 'static) {
        let news = self.news.clone();
        self.runner.spawn(async move {
            // The receiver is gone only with the node, and then the next one looks for itself.
            news.send(News::Input(NodeInput::Done(Box::new(action.await)))).ok();
        });
    }
}

impl Keyring for Host {
    fn sign(&self, bytes: &[u8]) -> Seal {
        self.keys.sign(bytes)
    }

    fn fits(&self, seal: &Seal, bytes: &[u8]) -> bool {
        self.keys.fits(seal, bytes)
    }

    fn trust(&self) -> &TrustList {
        self.keys.trust()
    }
}

impl NodeEffects for Host {
    fn now(&self) -> Time {
        self.pace.now()
    }

    fn wall(&self) -> Time {
        self.pace.wall()
    }

    fn own_at(&self, wall: Time) -> Time {
        self.pace.own_at(wall)
    }

    fn wall_at(&self, own: Time) -> Time {
        self.pace.wall_at(own)
    }

    fn seed(&mut self) -> u64 {
        self.pace.now().0.unsigned_abs() ^ (u64::from(std::process::id()) << 32)
    }

    fn reload_trust(&mut self) -> bool {
        self.keys.reload()
    }

    fn put_claim(&mut self, claim: &Arc<Claim>) -> Result<(), String> {
        self.claims.put(claim).map_err(|e| e.to_string())
    }

    fn remove_claim(&mut self, claim: &Claim) {
        self.claims.remove(claim);
    }

    fn put_replica(&mut self, replica: &Arc<Replica>) {
        if let Err(error) = replica::write(&self.home, replica) {
            tracing::warn!(%error, "the replica of the hub cannot be written");
        }
    }

    fn local_phase(&mut self, claim: &Claim) -> LocalPhase {
        match self.local.get_loop(&claim.local) {
            Ok(None) => LocalPhase::Missing,
            Ok(Some(row)) if row.is_over() => LocalPhase::Over { reached: row.phase == "reached" },
            // Read only while it waits: a state is not small, and this runs every second.
            Ok(Some(row)) if row.phase == "waiting" => {
                let waits =
                    |state: LoopState| LocalPhase::Waiting { untouched: state.task.turns == 0, phase: state.phase };
                read_state(&row).map_or(LocalPhase::Running, waits)
            }
            Ok(Some(_)) | Err(_) => LocalPhase::Running,
        }
    }

    fn local_loop(&mut self, claim: &Claim) -> Option<LocalLoop> {
        self.state_of(claim).as_ref().map(LocalLoop::of)
    }

    fn stop_local(&mut self, claim: &Claim) {
        let id = &claim.local;
        if !self.local.get_loop(id).is_ok_and(|row| row.is_some_and(|row| !row.is_over())) {
            return;
        }
        let body = serde_json::to_string(&LoopCommand::Stop { now: true }).expect("a command always has a JSON form");
        let stop = Op::Signal { to: id.to_string(), by: "mesh".to_owned(), body };
        if let Err(error) = self.local.transact(self.pace.now(), &[stop]) {
            tracing::warn!(%id, %error, "the loop of a lost task cannot be stopped");
        }
        self.home.wake();
    }

    fn ended_locals(&mut self, before: Time) -> Vec<LoopId> {
        let rows = self.local.loops().unwrap_or_default();
        let old = |row: &LoopRow| row.is_over() && row.updated_at < before && mesh_loop_of(&row.id).is_some();
        rows.into_iter().filter(old).map(|row| row.id).collect()
    }

    fn forget_local(&mut self, id: &LoopId) {
        self.runner.spawn(leftovers::remove_local(self.home.clone(), id.clone()));
        if let Err(error) = self.local.forget(self.pace.now(), id) {
            tracing::warn!(%id, %error, "the loop of a task that is over cannot be forgotten");
        }
    }

    fn unused_clones(&mut self, before: Time) -> Vec<LoopId> {
        let used = self.local.loops().unwrap_or_default();
        let used: BTreeSet<LoopId> = used.iter().filter_map(|row| mesh_loop_of(&row.id)).collect();
        let before = self.pace.wall_at(before);
        leftovers::clones(&self.home, before).into_iter().filter(|id| !used.contains(id)).collect()
    }

    fn forget_clone(&mut self, id: &LoopId) {
        leftovers::remove_clone(&self.home, id);
    }

    fn guards(&mut self, scopes: &BTreeSet<Scope>) -> Guards {
        scopes.iter().filter_map(|scope| Some((scope.clone(), self.local.guard(scope).ok()?))).collect()
    }

    fn note_limit(&mut self, scope: &Scope, event: &Event) -> Result<(), String> {
        hold::write(&mut self.local, scope, (event, self.pace.now()), &[]).map_err(|e| e.to_string())
    }

    fn explain(&self, reason: &Reason) -> String {
        waiting(reason, self.pace.now(), &quantities::here)
    }

    fn local_tickets(&mut self) -> Option<Vec<Ticket>> {
        self.local.tickets(Tickets::Newest(REMEMBERED)).ok()
    }

    fn write_tickets(&mut self, ops: &[Op]) -> Result<(), String> {
        self.local.transact(self.pace.now(), ops).map_err(|e| e.to_string())?;
        self.home.wake();
        Ok(())
    }

    fn start(&mut self, action: MeshAction) {
        match action {
            MeshAction::Begin { claim, title, state, spec } => {
                let new = attempt::NewLoop { title, state: *state, spec: *spec, now: self.pace.now() };
                self.run(attempt::begin(claim, new, self.home.clone()));
            }
            MeshAction::Push { claim, reference, reached } => {
                let local = self.state_of(&claim);
                let row = local.as_ref().and_then(|state| state.research.as_deref()?.only_row().cloned());
                // The commit of an experiment counts, kept or not, and no branch.
                let work = match row {
                    Some(row) => (false, row.commit),
                    None => (reached, local.and_then(|state| state.progress.work)),
                };
                self.run(attempt::push(claim, reference, work, self.home.clone()));
            }
            MeshAction::Judge(state) => self.run(merge::judge(merge::Checkout::of(self, *state))),
            MeshAction::Merge(request) => {
                self.run(merge::merge(merge::Checkout::of(self, request.state.clone()), request));
            }
            MeshAction::Land(request) => {
                self.run(merge::land(merge::Checkout::of(self, request.state.clone()), request));
            }
        }
    }

    fn observe(&mut self, event: &NodeEvent<'_>) {
        match event.weight() {
            Weight::Silent => {}
            Weight::Step => tracing::info!("{event}"),
            Weight::Warning => tracing::warn!("{event}"),
        }
        if let NodeEvent::Remembered = event {
            self.status.remembered();
        }
    }
}
