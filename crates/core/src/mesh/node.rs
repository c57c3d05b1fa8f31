//! A node of the mesh, without I/O: the order of its steps and all that it decides. Pure; the host
//! carries out [`NodeEffects`] and hands in [`NodeInput`]s. The product and the simulator run this
//! same node.
//!
//! - [`MeshNode::on`]: an input, then one round of steps: heartbeat, leader lease, mirror, claims,
//!   leader's work, new claims
//! - `leadership`: heartbeat, the lease of the leader, leaving; `claims`: tasks that the node
//!   holds; `take`: new ones
//! - `offline`: while the hub is away; `eligibility`: whether the node is eligible for tasks, and
//!   the record of the fleet
//! - `distrust`: what is not signed, or not by a trusted key
//! - `leader`: loops, merges; `upkeep`: what no loop looks after; `tickets`: what people have to
//!   know
//! - `tidy`: what is left of attempts that are over
//! - [`effects`]: what a node can make happen; [`event`]: what it reports
//!
//! Every effect is a place at which a node may die. What a node has in memory is lost then; claims
//! and the replica are read again, and everything else is found out at the hub.

mod claims;
mod distrust;
pub mod effects;
mod eligibility;
pub mod event;
mod leader;
mod leadership;
mod offline;
mod take;
pub mod tickets;
mod tidy;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub use effects::{
    BeatReply, Claim, Claims, Hint, HubAway, HubCalls, HubResult, LandRequest, Listed, LocalLoop, LocalPhase, LoopDoc,
    MergeRequest, Merged, MeshAction, MeshOutcome, NODE, NodeEffects, NodeStatus, Wish,
};
pub use event::{NodeEvent, Weight};

use self::distrust::Distrusted;
use self::eligibility::Eligibility;
use self::leader::{LoopCache, PendingLanding};
use super::clock_offset::ClockOffset;
use super::leader_lease::{self, LeaderLease};
use super::offline::{Line, Replica};
use super::rights::Rights;
use super::work::{self, Held};
use crate::ids::{LoopId, NodeId};
use crate::op::Op;
use crate::planted::{self, Bug};
use crate::time::Time;

/// Between two heartbeats.
pub const BEAT: Duration = Duration::from_secs(5);
/// Between two rounds, as long as there is something to do; the rest comes as an input.
const ROUND: Duration = Duration::from_secs(1);
/// When nothing is free: the answer to a heartbeat brings the news, or a hint.
const FAR: Duration = Duration::from_secs(3600);
/// After a call that the hub did not answer, before the next one: a call may take seconds to fail.
const CALL_AGAIN: Duration = Duration::from_secs(1);
/// For the mistake of a node that looks only when a hint comes.
const TOO_LONG: Duration = Duration::from_secs(600);
/// Between two looks whether the hub moved since it was mirrored.
const MIRROR: Duration = Duration::from_secs(20);
/// Between two passes of the mirror when it seems that nothing happened.
const MIRROR_ANYHOW: Duration = Duration::from_secs(300);
/// A time before all others.
const NEVER: Time = Time(i64::MIN);

/// The settings of a new node.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Its name in the mesh.
    pub node: NodeId,
    /// This node's name in its own ledger.
    pub here: NodeId,
    /// Tasks that it works on at once.
    pub slots: u32,
    /// How many times faster than the clock on the wall its time runs; for tests.
    pub time_scale: u32,
}

/// What makes a node act.
#[derive(Clone, Debug)]
pub enum NodeInput {
    Timer,
    /// Something changed on this node or at the hub.
    Look,
    /// Another node sent a hint.
    Hint(Hint),
    /// An action is over.
    Done(Box<MeshOutcome>),
}

/// A node of the mesh.
#[derive(Debug)]
pub struct MeshNode {
    settings: NodeSettings,
    claims: Claims,
    replica: Arc<Replica>,
    lease: LeaderLease,
    rights: Rights,
    hub_clock: ClockOffset,
    beat_at: Time,
    ask_at: Time,
    /// Free tasks are not listed again before this, unless there is news.
    list_at: Time,
    tickets_at: Time,
    tidy_at: Time,
    mirror: MirrorTimes,
    /// Claims about which an action is under way.
    under_way: BTreeSet<String>,
    /// Claims with work that could not be pushed, and when that is tried again.
    push_at: BTreeMap<String, Time>,
    /// When the hub last confirmed that a task is still held.
    renewed: BTreeMap<String, Time>,
    draining: bool,
    connection: Line,
    /// A hub that is away is called again then.
    call_at: Time,
    remembered_at: Time,
    /// After the hub was away, no task is taken before this: nodes begin one after the other.
    claim_at: Time,
    eligibility: Eligibility,
    distrusted: Distrusted,
    cache: LoopCache,
    /// Loops for which an action is under way.
    judging: BTreeSet<LoopId>,
    /// Loops with a failed last action, and when the next one may be started.
    retry_at: BTreeMap<LoopId, Time>,
    /// Loops for which the last action went well.
    served: BTreeSet<LoopId>,
    landings: BTreeMap<LoopId, PendingLanding>,
    /// Nodes that took tasks when they were last listed, itself included.
    members: Option<usize>,
    elect: [Op; 1],
}

/// When the mirror of the hub was written.
#[derive(Debug)]
struct MirrorTimes {
    look_at: Time,
    passed_at: Time,
    /// The end of the journal then.
    seq: Option<u64>,
    /// The end of the journal at the last heartbeat.
    known: Option<u64>,
}

impl MeshNode {
    /// A node with the contents of its files.
    pub fn new(settings: NodeSettings, held: impl IntoIterator<Item = Held>, replica: Replica) -> Self {
        let claims = held.into_iter().map(|held| (held.key(), Claim::new(held))).collect();
        Self::with(settings, claims, Arc::new(replica))
    }

    /// The same, without a copy.
    pub fn with(settings: NodeSettings, claims: Claims, replica: Arc<Replica>) -> Self {
        let elect = [Op::Elect { node: settings.node.clone(), lease: leader_lease::LEASE / settings.time_scale }];
        Self {
            settings,
            claims,
            replica,
            lease: LeaderLease::default(),
            rights: Rights::default(),
            hub_clock: ClockOffset::default(),
            beat_at: NEVER,
            ask_at: NEVER,
            list_at: NEVER,
            tickets_at: NEVER,
            tidy_at: NEVER,
            mirror: MirrorTimes { look_at: NEVER, passed_at: NEVER, seq: None, known: None },
            under_way: BTreeSet::new(),
            push_at: BTreeMap::new(),
            renewed: BTreeMap::new(),
            draining: false,
            connection: Line::default(),
            call_at: NEVER,
            remembered_at: NEVER,
            claim_at: NEVER,
            eligibility: Eligibility::default(),
            distrusted: Distrusted::default(),
            cache: LoopCache::default(),
            judging: BTreeSet::new(),
            retry_at: BTreeMap::new(),
            served: BTreeSet::new(),
            landings: BTreeMap::new(),
            members: None,
            elect,
        }
    }

    /// Takes an input in and does one round; for how long there is nothing to do then, by the
    /// node's time.
    pub fn on(&mut self, input: NodeInput, fx: &mut impl NodeEffects) -> Duration {
        match input {
            NodeInput::Timer => {}
            NodeInput::Look | NodeInput::Hint(Hint::Work) => self.list_at = NEVER,
            NodeInput::Hint(Hint::Leader) => {
                self.ask_at = LeaderLease::ask_after(fx.now(), Duration::ZERO, fx.seed());
            }
            NodeInput::Hint(Hint::Taken(task)) => {
                if !planted::is(Bug::IgnoresTakenTasks) {
                    self.decline(&task);
                }
            }
            NodeInput::Done(outcome) => {
                self.list_at = NEVER;
                self.done(*outcome, fx);
            }
        }
        self.round(fx);
        self.nap(fx.now())
    }

    fn round(&mut self, fx: &mut impl NodeEffects) {
        let now = fx.now();
        if fx.reload_trust() {
            self.look_again();
        }
        // The first call to a hub that was away is a heartbeat; its answer carries the hub's time.
        let calls_again = self.connection.is_broken() && fx.wall() >= self.call_at;
        if calls_again || now >= self.beat_at {
            self.beat(fx);
        }
        if now >= self.ask_at {
            self.ask(fx);
        }
        if now >= self.mirror.look_at {
            self.mirror_hub(fx);
        }
        self.tend(fx);
        self.tidy(fx);
        if let Some(term) = self.lease.term(fx.now()) {
            self.lead(fx, term);
            self.copy_tickets(fx);
        }
        if self.connection.is_away(fx.now()) {
            self.begin_offline(fx);
        } else {
            self.take_more(fx);
        }
    }

    fn nap(&self, now: Time) -> Duration {
        let timers = self.beat_at.min(self.ask_at).since(now);
        let idle = self.claims.is_empty() && !self.connection.is_broken() && self.lease.term(now).is_none();
        match idle {
            true if planted::is(Bug::TrustsHints) => TOO_LONG,
            true => timers,
            false => timers.min(ROUND),
        }
    }

    fn done(&mut self, outcome: MeshOutcome, fx: &mut impl NodeEffects) {
        match outcome {
            MeshOutcome::Begun { key, made } => self.begun(fx, &key, made),
            MeshOutcome::Pushed { key, reference, reached, pushed } => {
                self.pushed(fx, &key, (reference, reached), pushed);
            }
            MeshOutcome::Judged { id, judged } => self.judged(fx, &id, judged),
            MeshOutcome::Merged { request, merged } => self.merged(fx, *request, merged),
            MeshOutcome::Landed { id, landed } => self.landed(fx, &id, landed),
        }
    }

    /// Calls the hub. `None`: it is away, and what it would have answered is unknown.
    fn at_hub<E: NodeEffects, T>(
        &mut self,
        fx: &mut E,
        doing: &'static str,
        call: impl FnOnce(&mut E) -> HubResult<T>,
    ) -> Option<T> {
        if self.connection.is_broken() && fx.wall() < self.call_at {
            return None;
        }
        match call(fx) {
            Ok(answer) => {
                if self.connection.is_broken() {
                    self.back(fx);
                }
                Some(answer)
            }
            Err(HubAway(error)) => {
                if !self.connection.is_broken() {
                    fx.observe(&NodeEvent::HubAway { doing, error: &error });
                }
                self.connection.failed(fx.now());
                self.call_at = fx.wall() + CALL_AGAIN;
                None
            }
        }
    }

    /// Passes a hint on. Lost hints cost time and nothing else.
    fn hint(&mut self, fx: &mut impl NodeEffects, hint: &Hint) {
        self.at_hub(fx, "give a hint", |fx| fx.hint(hint));
    }

    /// The hub's time, as far as this node knows.
    fn hub_now(&self, fx: &impl NodeEffects) -> Time {
        self.hub_clock.at_hub(fx.wall())
    }

    /// How long a period of the node's time is on the wall and for the hub.
    fn real(&self, period: Duration) -> Duration {
        period / self.settings.time_scale
    }

    /// How long a period of the hub's is in the node's time.
    fn own(&self, period: Duration) -> Duration {
        period * self.settings.time_scale
    }

    /// Tasks that it can still take.
    fn room(&self) -> usize {
        let greedy = u32::from(planted::is(Bug::TakesMoreThanItsSlots));
        let drained = self.draining && !planted::is(Bug::DrainIgnored);
        let slots = if drained { 0 } else { self.settings.slots + greedy };
        work::room(slots, self.claims.values().map(|claim| &claim.held))
    }

    /// What it holds, as plain claims.
    fn held(&self) -> Vec<Held> {
        self.claims.values().map(|claim| claim.held.clone()).collect()
    }

    fn mirror_hub(&mut self, fx: &mut impl NodeEffects) {
        let now = fx.now();
        self.mirror.look_at = now + MIRROR;
        let as_known = self.mirror.seq.is_some() && self.mirror.seq == self.mirror.known;
        if as_known && now.since(self.mirror.passed_at) < MIRROR_ANYHOW {
            return;
        }
        if let Some(Some(seq)) = self.at_hub(fx, "mirror it", effects::HubCalls::mirror) {
            (self.mirror.seq, self.mirror.passed_at) = (Some(seq), now);
        }
    }

    /// Its name in the mesh.
    pub fn name(&self) -> &NodeId {
        &self.settings.node
    }

    /// Whether it is the leader.
    pub fn leads(&self, now: Time) -> bool {
        self.lease.term(now).is_some()
    }

    /// Tasks that it holds.
    pub fn holds(&self) -> usize {
        self.claims.len()
    }

    /// Whether the last call to the hub was not answered.
    pub fn is_cut_off(&self) -> bool {
        self.connection.is_broken()
    }

    /// Nodes that took tasks when they were last listed, itself included.
    pub fn members(&self) -> Option<usize> {
        self.members
    }

    /// What it remembers of the hub.
    pub fn replica(&self) -> &Arc<Replica> {
        &self.replica
    }
}
