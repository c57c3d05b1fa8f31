//! Whether this node is eligible for tasks of the mesh: it gives back what it cannot work on, takes
//! nothing that would have to wait here, and lets other nodes go first when it fails more often
//! than they do. The record of that is in the hub. It is statistics: what cannot be written is
//! logged and dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Claim, Hint, MeshNode, NEVER, NodeEffects, NodeEvent};
use crate::event::Event;
use crate::guard::{AccountHold as Hold, Guards, Scope};
use crate::ids::{Fence, TaskId, TurnId};
use crate::immune::choice::Admission;
use crate::immune::{Immune, ImmuneStep};
use crate::mesh::eligibility::{self, ACCOUNT, Attempt, Limited, Tried};
use crate::mesh::work::{self, Held, RENEW, Stage};
use crate::op::{Op, Refusal, TaskRow};
use crate::planted::{self, Bug};
use crate::reason::Reason;
use crate::spec::LoopSpec;
use crate::time::Time;

/// Other nodes write to the record, too; so often it is tried again.
const MAX_RECORD_RETRIES: u32 = 8;
/// What two clocks that are compared now and then may differ.
const ROUGHLY: Duration = Duration::from_secs(5);

/// What a node knows about whether it can work.
#[derive(Debug)]
pub(super) struct Eligibility {
    /// Tasks that the node gave back because it could not work on them: when, and for how long
    /// others have them first.
    gave_back: BTreeMap<TaskId, (Time, Duration)>,
    /// When it last compared accounts with the hub.
    compared_at: Time,
    /// The versions of the hub's documents about them: a person here may know better, and is not
    /// overruled twice.
    applied: BTreeMap<String, u64>,
}

impl Default for Eligibility {
    fn default() -> Self {
        Self { gave_back: BTreeMap::new(), compared_at: NEVER, applied: BTreeMap::new() }
    }
}

/// What a node may take.
#[derive(Default)]
pub(super) struct Offer {
    pub rows: Vec<TaskRow>,
    /// So many of them at once.
    pub most: usize,
    /// The next one is a trial.
    pub trial: bool,
}

/// What is known of an attempt that is over.
pub(super) struct AttemptEnd {
    pub kind: Option<String>,
    pub spec: Option<LoopSpec>,
    pub tried: Tried,
}

impl MeshNode {
    /// Gives back a task that this node cannot work on, so that another node takes it.
    pub(super) fn give_back(&mut self, fx: &mut impl NodeEffects, claim: &Claim, reason: &Reason) {
        let why = fx.explain(reason);
        let spec = fx.local_loop(claim).map(|local| local.spec);
        if !self.release(fx, claim, self.hub_now(fx), &why) {
            return;
        }
        fx.observe(&NodeEvent::GivenBack { key: &claim.key, why: &why });
        self.decline(&claim.task);
        self.eligibility.gave_back.insert(claim.task.clone(), (fx.now(), eligibility::NOBODY_ELSE));
        let accounts = eligibility::shared(&spec);
        if let Some(tried) = Tried::stuck(reason) {
            let reset_at = tried.reset_at.map(|at| self.hub_clock.at_hub(fx.wall_at(at)));
            self.note(fx, claim, &AttemptEnd { kind: None, spec, tried: Tried { reset_at, ..tried } });
        }
        self.eligibility.compared_at = NEVER;
        self.compare_accounts(fx, &accounts);
        self.hint(fx, &Hint::Work);
    }

    /// A task could not even be begun here.
    pub(super) fn could_not_begin(&mut self, fx: &mut impl NodeEffects, claim: &Claim) {
        // The reason may be over soon: a remote that is away for all nodes must not keep the last
        // one waiting.
        self.eligibility.gave_back.insert(claim.task.clone(), (fx.now(), eligibility::OTHERS_FIRST));
        self.note(fx, claim, &AttemptEnd { kind: None, spec: None, tried: Tried::not_begun() });
    }

    /// Records the end of an attempt.
    pub(super) fn note(&mut self, fx: &mut impl NodeEffects, held: &Held, end: &AttemptEnd) {
        let replica = self.replica.clone();
        let known = || replica.loops.iter().find(|state| state.id == held.owner).map(|state| &state.spec.wanted);
        let spec = end.spec.as_ref().or_else(known);
        let (node, members) = (self.settings.node.clone(), replica.members.as_slice());
        let attempt = Attempt { held, node: &node, kind: end.kind.as_deref(), spec, members };
        self.record(fx, |immune, now| attempt.ended(immune, &end.tried, now));
    }

    /// A task was taken as a trial of a node, agent or account that was out.
    pub(super) fn note_trial(&mut self, fx: &mut impl NodeEffects, row: &TaskRow, fence: Fence) {
        let Some(owner) = row.task.owner.clone() else { return };
        let held = Held { task: row.task.id.clone(), fence, owner, stage: Stage::Working, alone: false };
        let (node, replica) = (self.settings.node.clone(), self.replica.clone());
        let spec = replica.loop_of(row).map(|state| &state.spec.wanted);
        let attempt = Attempt { held: &held, node: &node, kind: Some(&row.task.kind), spec, members: &[] };
        fx.observe(&NodeEvent::Trial { key: &held.key() });
        self.record(fx, |immune, now| attempt.began(immune, now));
    }

    /// Writes steps to the record of the fleet.
    fn record(&mut self, fx: &mut impl NodeEffects, steps: impl Fn(&Immune, Time) -> Vec<ImmuneStep>) {
        let now = self.hub_now(fx);
        for _ in 0..MAX_RECORD_RETRIES {
            let Some(Some((version, immune))) = self.at_hub(fx, "read the record", super::effects::HubCalls::fleet)
            else {
                break;
            };
            let steps = steps(&immune, now);
            if steps.is_empty() {
                return;
            }
            let alerts = eligibility::alerts(&steps);
            let mut next = Immune::clone(&immune);
            let ops: Vec<Op> = next.save(version, steps, now).into_iter().chain(alerts).collect();
            match self.at_hub(fx, "write the record", |fx| fx.transact(None, &ops)) {
                Some(Err(Refusal::Conflict { .. })) => {}
                Some(Ok(_)) => return,
                Some(Err(_)) | None => break,
            }
        }
        fx.observe(&NodeEvent::NotRecorded);
    }

    /// Of what is free, what this node may take.
    pub(super) fn eligible(&mut self, fx: &mut impl NodeEffects, mut rows: Vec<TaskRow>, most: usize) -> Offer {
        let now = self.hub_now(fx);
        rows.retain(|row| work::is_free(row, now));
        let offer = if most == 0 || rows.is_empty() { None } else { self.offer(fx, rows, most) };
        offer.unwrap_or_else(|| {
            fx.observe(&NodeEvent::NothingOffered);
            Offer::default()
        })
    }

    fn offer(&mut self, fx: &mut impl NodeEffects, mut rows: Vec<TaskRow>, most: usize) -> Option<Offer> {
        let now = self.hub_now(fx);
        self.compare_accounts(fx, &eligibility::shared(self.replica.loops.iter().map(|state| &state.spec.wanted)));
        let (guards, replica) = (self.guards(fx), self.replica.clone());
        rows.retain(|row| !Self::is_held_for_long(fx, &guards, replica.loop_of(row).map(|state| &state.spec.wanted)));
        if rows.is_empty() {
            return None;
        }
        let immune = self.fleet(fx, &rows)?;
        let holds = self.claims.values().filter(|claim| claim.stage == Stage::Working).count();
        let uses = eligibility::standing(&immune, &replica, &self.settings.node, &rows, now);
        let here = fx.now();
        self.eligibility.gave_back.retain(|_, (at, _)| here.since(*at) < eligibility::LONG);
        let others = |row: &TaskRow| {
            let gave_back = self.eligibility.gave_back.get(&row.task.id);
            gave_back.map_or(Duration::ZERO, |(_, others)| *others)
        };
        let may = |(row, how): &(TaskRow, Admission)| {
            let waited = self.own(now.since(replica.free_since(row)));
            waited >= others(row) && eligibility::may_take(how, waited, holds)
        };
        let oldest = rows.iter().map(|row| replica.free_since(row) + others(row)).min().unwrap_or(now);
        let (rows, uses): (Vec<TaskRow>, Vec<Admission>) = rows.into_iter().zip(uses).filter(may).unzip();
        if rows.is_empty() {
            fx.observe(&NodeEvent::LeftToOthers { holds, oldest });
            return Some(Offer::default());
        }
        let since =
            |(row, how): (&TaskRow, &Admission)| replica.free_since(row) + eligibility::timeouts(how).max(others(row));
        let since = rows.iter().zip(&uses).map(since).min().unwrap_or(now);
        fx.observe(&NodeEvent::Offered { rows: rows.len(), since });
        let most = if uses.iter().any(eligibility::is_single) { 1 } else { most };
        Some(Offer { rows, most, trial: uses.iter().any(|how| matches!(how, Admission::Trial(_))) })
    }

    /// The record of the fleet, without trials that are over and of which no end was recorded.
    fn fleet(&mut self, fx: &mut impl NodeEffects, rows: &[TaskRow]) -> Option<std::sync::Arc<Immune>> {
        // Without a record that can be read all are equal.
        let found = self.at_hub(fx, "read the record", super::effects::HubCalls::fleet)?;
        let Some((_, immune)) = found else { return Some(std::sync::Arc::default()) };
        if immune.standings.is_empty() {
            return Some(immune);
        }
        let all = rows.iter().flat_map(|row| {
            let spec = self.replica.loop_of(row).map(|state| &state.spec.wanted);
            eligibility::subjects(&self.settings.node, Some(&row.task.kind), spec)
        });
        let mut turns: Vec<TurnId> = eligibility::on_trial(&immune, &all.collect::<Vec<_>>());
        turns.dedup();
        for turn in turns {
            let Some((task, _)) = eligibility::attempt_of(&turn) else { continue };
            let Some(row) = self.at_hub(fx, "look at a trial", |fx| fx.task(&task)) else { continue };
            if !eligibility::given_up(&immune, &turn, row.as_ref()).is_empty() {
                self.record(fx, |immune, _| eligibility::given_up(immune, &turn, row.as_ref()));
            }
        }
        Some(immune)
    }

    /// Writes to the hub which accounts are limited here, and notes here which are so elsewhere,
    /// now and then.
    fn compare_accounts(&mut self, fx: &mut impl NodeEffects, accounts: &BTreeSet<String>) {
        let now = fx.now();
        if accounts.is_empty() || now.since(self.eligibility.compared_at) < RENEW {
            return;
        }
        self.eligibility.compared_at = now;
        for account in accounts {
            self.compare_account(fx, account);
        }
    }

    fn compare_account(&mut self, fx: &mut impl NodeEffects, account: &str) {
        let scope = Scope::Account(account.to_owned());
        let Some(doc) = self.at_hub(fx, "look at an account", |fx| fx.doc(ACCOUNT, account)) else { return };
        let (now, ahead) = (fx.now(), self.hub_clock.ahead_ms());
        let version = doc.as_ref().map_or(0, |(version, _)| *version);
        let there = doc.and_then(|(_, body)| Limited::read(&body)).map(|limited| limited.by_clock(-ahead));
        let there = there.map(|limited| with_times(limited, |at| fx.own_at(at)));
        let there = there.filter(|limited| limited.held.until > now);
        let mut guards = fx.guards(&BTreeSet::from([scope.clone()]));
        let Some(guard) = guards.remove(&scope) else { return };
        let here = guard.state.held.filter(|held| held.until > now);
        // Clocks are compared to some seconds; a difference of less is none.
        let until = |held: Option<&Hold>| held.map_or(Time::default(), |held| held.until);
        let (known, said) = (until(here.as_ref()), until(there.as_ref().map(|limited| &limited.held)));
        if let Some(held) = here.filter(|_| known.since(said) > ROUGHLY) {
            let limited = Limited { held, node: self.settings.node.clone() };
            let limited = with_times(limited, |at| fx.wall_at(at)).by_clock(ahead);
            let save = [limited.save(account, version)];
            self.at_hub(fx, "write a limit", |fx| fx.transact(None, &save));
        } else if let Some(Limited { held, node }) = there.filter(|_| said.since(known) > ROUGHLY)
            && self.eligibility.applied.insert(account.to_owned(), version) != Some(version)
        {
            fx.observe(&NodeEvent::LimitLearned { account, node: &node });
            let (limit, until, strikes) = (held.limit, held.until, held.strikes);
            let event = Event::Limited { scope: scope.clone(), limit, until, strikes };
            if let Err(error) = fx.note_limit(&scope, &event) {
                fx.observe(&NodeEvent::NotWritten { what: "a limit that another node found", error: &error });
            }
        }
    }

    /// The same for the loops with which this node works on tasks.
    pub(super) fn compare_limits(&mut self, fx: &mut impl NodeEffects) {
        if fx.now().since(self.eligibility.compared_at) >= RENEW {
            let claims = self.claims.values();
            let specs: Vec<LoopSpec> = claims.filter_map(|claim| Some(fx.local_loop(claim)?.spec)).collect();
            self.compare_accounts(fx, &eligibility::shared(&specs));
        }
    }

    /// Whether a task of this loop could not be begun here for a long time.
    pub(super) fn is_held_for_long(fx: &impl NodeEffects, guards: &Guards, spec: Option<&LoopSpec>) -> bool {
        eligibility::is_held_for_long(guards, spec, fx.now(), eligibility::LONG) && !planted::is(Bug::TakesWhileHeld)
    }

    /// The guards of this node for the loops that are known.
    pub(super) fn guards(&self, fx: &mut impl NodeEffects) -> Guards {
        let specs = self.replica.loops.iter().map(|state| &state.spec.wanted);
        fx.guards(&eligibility::scopes(&self.settings.here, specs))
    }
}

/// A limit with its times as another clock shows them.
fn with_times(mut limited: Limited, shown: impl Fn(Time) -> Time) -> Limited {
    let held = &mut limited.held;
    for at in held.limit.reset_at.iter_mut().chain([&mut held.until]) {
        *at = shown(*at);
    }
    limited
}
