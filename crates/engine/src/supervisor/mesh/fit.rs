//! Whether this machine is fit for tasks of the mesh: it gives back what it can do nothing with, takes nothing that would have to
//! wait here, and lets others go first when it fails more often than they do. The record of that stands in the hub. It is
//! statistics: what cannot be written is said and dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use everloop_core::event::Event;
use everloop_core::guard::{AccountHold as Hold, Guards, Scope};
use everloop_core::ids::{LoopId, NodeId, TaskId};
use everloop_core::immune::choice::Admission;
use everloop_core::immune::{DOC, FLEET, Immune, ImmuneStep};
use everloop_core::mesh::fit::{self, ACCOUNT, Attempt, Limited, Tried};
use everloop_core::mesh::work::{self, Held, Local, RENEW, Stage};
use everloop_core::op::{Op, Refusal, TaskRow};
use everloop_core::reason::Reason;
use everloop_core::spec::LoopSpec;
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_core::why::waiting;
use everloop_store::{Error, Ledger, LoopRow};

use super::node::{Hint, Node};
use super::pace::with_times;
use crate::hold;
use crate::quantities;
use crate::record::read_state;
use crate::state_folder::node_id;

/// Other nodes write to the record, too; so often it is tried again.
const MAX_CONFLICT_RETRIES: u32 = 8;
/// What two clocks that are compared now and then may differ.
const ROUGHLY: Duration = Duration::from_secs(5);

/// What a node knows about whether it can work.
#[derive(Default)]
pub(super) struct Fit {
    /// Tasks that it gave back because it could do nothing with them: when, and for how long others have them first.
    gave_back: BTreeMap<TaskId, (Time, Duration)>,
    /// When it last compared accounts with the hub.
    compared_at: Time,
    /// The versions of what the hub said about them: a person here may know better, and is not told the same twice.
    heard: BTreeMap<String, u64>,
}

/// What a node may take.
#[derive(Default)]
pub(super) struct Offer {
    /// These tasks.
    pub rows: Vec<TaskRow>,
    /// So many of them at once.
    pub most: usize,
    /// The next one is a trial.
    pub trial: bool,
}

impl Node {
    /// A loop for a task that can do nothing here for a long time.
    pub(super) fn stuck(&self, row: &LoopRow) -> Option<Local> {
        // Read only when there is a chance: a state is not small, and this is asked every second.
        let state = if row.phase == "waiting" { read_state(row).ok()? } else { return None };
        let reason = fit::stuck(&state.phase, self.pace.now(), |period| period)?.clone();
        Some(Local::Stuck { reason, untouched: state.turns == 0 })
    }

    /// Lets another machine have a task with which this one can do nothing.
    pub(super) fn give_back(&mut self, held: &Held, reason: &Reason) {
        let why = waiting(reason, self.pace.now(), &quantities::here);
        let spec = self.local_state(held).map(|state| state.spec);
        if !self.release(held, self.hub_now(), &why) {
            return;
        }
        tracing::warn!(task = %held.task, why, "nothing can be done about a task here; it is given back");
        self.decline(&held.task);
        self.fit.gave_back.insert(held.task.clone(), (self.pace.now(), fit::NOBODY_ELSE));
        if let Some(tried) = Tried::stuck(reason) {
            let ahead = self.hub_now().0 - self.pace.wall().0;
            let reset_at = tried.reset_at.map(|at| Time(self.pace.wall_at(at).0 + ahead));
            self.note(held, None, &Tried { reset_at, ..tried });
        }
        self.fit.compared_at = Time::default();
        self.compare_accounts(&fit::shared(&spec));
        self.hint(&Hint::Work);
    }

    /// A task could not even be begun here.
    pub(super) fn could_not_begin(&mut self, held: &Held) {
        // The reason may be over soon: a remote that is away for everybody must not keep the last one waiting.
        self.fit.gave_back.insert(held.task.clone(), (self.pace.now(), fit::OTHERS_FIRST));
        self.note(held, None, &Tried::not_begun());
    }

    /// The hub knows what came of a task; what that says about those who took part is written down there, too.
    pub(super) fn note_end(&mut self, held: &Held, row: Option<&TaskRow>) {
        if let Some(tried) = self.local_state(held).as_ref().and_then(Tried::over) {
            self.note(held, row, &tried);
        }
    }

    fn local_state(&self, held: &Held) -> Option<LoopState> {
        self.local.get_loop(&held.local()).ok().flatten().and_then(|row| read_state(&row).ok())
    }

    fn note(&mut self, held: &Held, row: Option<&TaskRow>, tried: &Tried) {
        let known = self.replica.loops.iter().find(|state| state.id == held.owner);
        let spec = self.local_state(held).map(|state| state.spec).or_else(|| known.map(|s| s.spec.wanted.clone()));
        let (node, members) = (self.membership.node.clone(), self.replica.members.clone());
        let kind = row.map(|row| row.task.kind.as_str());
        let attempt = Attempt { held, node: &node, kind, spec: spec.as_ref(), members: &members };
        self.record(|immune, now| attempt.ended(immune, tried, now));
    }

    /// A task was taken as a trial of somebody who was out.
    pub(super) fn note_trial(&mut self, held: &Held, row: &TaskRow) {
        let spec = self.replica.loop_of(row).map(|state| state.spec.wanted.clone());
        let node = self.membership.node.clone();
        let kind = Some(row.task.kind.as_str());
        let attempt = Attempt { held, node: &node, kind, spec: spec.as_ref(), members: &[] };
        self.record(|immune, now| attempt.began(immune, now));
    }

    /// Writes steps to the record of the mesh.
    fn record(&mut self, steps: impl Fn(&Immune, Time) -> Vec<ImmuneStep>) {
        let now = self.hub_now();
        let written = self.at_hub("write down who fails", |hub| {
            for _ in 0..MAX_CONFLICT_RETRIES {
                let Some((version, mut immune)) = read(hub)? else { return Ok(false) };
                let steps = steps(&immune, now);
                if steps.is_empty() {
                    return Ok(true);
                }
                let alerts = fit::alerts(&steps);
                let ops: Vec<Op> = immune.save(version, steps, now).into_iter().chain(alerts).collect();
                match hub.transact(now, &ops) {
                    Err(Error::Refused(Refusal::Conflict { .. })) => {}
                    other => return other.map(|_| true),
                }
            }
            Ok(false)
        });
        if !matches!(written, Some(Ok(true))) {
            tracing::info!("what came of a task is missing in the record of who fails");
        }
    }

    /// Of what is free, what this node may take.
    pub(super) fn fitting(&mut self, mut rows: Vec<TaskRow>, most: usize) -> Offer {
        let now = self.hub_now();
        rows.retain(|row| work::is_free(row, now));
        if most == 0 || rows.is_empty() {
            return Offer::default();
        }
        self.compare_accounts(&fit::shared(self.replica.loops.iter().map(|state| &state.spec.wanted)));
        let guards = self.guards();
        rows.retain(|row| !self.is_held(&guards, self.replica.loop_of(row).map(|state| &state.spec.wanted)));
        if rows.is_empty() {
            return Offer::default();
        }
        let Some(immune) = self.fleet(&rows) else { return Offer::default() };
        let own = self.late_results.all();
        let holds = own.iter().filter(|held| held.stage == Stage::Working).count();
        let hows = fit::standing(&immune, &self.replica, &self.membership.node, &rows, now);
        let now_here = self.pace.now();
        self.fit.gave_back.retain(|_, (at, _)| now_here.since(*at) < fit::LONG);
        let may = |(row, how): &(TaskRow, Admission)| {
            let waited = self.pace.own(now.since(self.replica.free_since(row)));
            let others = self.fit.gave_back.get(&row.task.id).map_or(Duration::ZERO, |(_, others)| *others);
            waited >= others && fit::may_take(how, waited, holds)
        };
        let (rows, hows): (Vec<TaskRow>, Vec<Admission>) = rows.into_iter().zip(hows).filter(may).unzip();
        let most = if hows.iter().any(fit::is_single) { 1 } else { most };
        Offer { rows, most, trial: hows.iter().any(|how| matches!(how, Admission::Trial(_))) }
    }

    /// The record of the mesh, without trials that are over and of which nobody told how they ended.
    fn fleet(&mut self, rows: &[TaskRow]) -> Option<Immune> {
        let Some(Ok(found)) = self.at_hub("look who fails", |hub| read(hub)) else { return None };
        // Without a record everybody is as good as everybody else.
        let Some((_, immune)) = found else { return Some(Immune::default()) };
        let node = &self.membership.node;
        let everybody = rows.iter().flat_map(|row| {
            let spec = self.replica.loop_of(row).map(|state| &state.spec.wanted);
            fit::subjects(node, Some(&row.task.kind), spec)
        });
        let mut turns = fit::on_trial(&immune, &everybody.collect::<Vec<_>>());
        turns.dedup();
        for turn in turns {
            let Some((task, _)) = fit::attempt_of(&turn) else { continue };
            let Some(Ok(row)) = self.at_hub("look at a trial", |hub| hub.task(&task)) else { continue };
            if !fit::given_up(&immune, &turn, row.as_ref()).is_empty() {
                self.record(|immune, _| fit::given_up(immune, &turn, row.as_ref()));
            }
        }
        Some(immune)
    }

    /// Tells the hub which accounts are limited here, and notes here which are so elsewhere, now and then.
    pub(super) fn compare_accounts(&mut self, accounts: &BTreeSet<String>) {
        let now = self.pace.now();
        if accounts.is_empty() || now.since(self.fit.compared_at) < RENEW {
            return;
        }
        self.fit.compared_at = now;
        for account in accounts {
            self.compare_account(account);
        }
    }

    fn compare_account(&mut self, account: &str) {
        let scope = Scope::Account(account.to_owned());
        let (now, ahead) = (self.pace.now(), self.hub_now().0 - self.pace.wall().0);
        let Some(Ok(doc)) = self.at_hub("look at an account", |hub| hub.doc(ACCOUNT, account)) else { return };
        let version = doc.as_ref().map_or(0, |doc| doc.version);
        let there = doc.and_then(|doc| Limited::read(&doc.body));
        let there = there.map(|limited| with_times(limited.by_clock(-ahead), |at| self.pace.own_at(at)));
        let there = there.filter(|limited| limited.held.until > now);
        let Ok(guard) = self.local.guard(&scope) else { return };
        let here = guard.state.held.filter(|held| held.until > now);
        // Clocks are compared to some seconds; a difference of less is none.
        let until = |held: Option<&Hold>| held.map_or(Time::default(), |held| held.until);
        let (known, said) = (until(here.as_ref()), until(there.as_ref().map(|limited| &limited.held)));
        if let Some(held) = here.filter(|_| known.since(said) > ROUGHLY) {
            let limited = Limited { held, node: self.membership.node.clone() };
            let limited = with_times(limited, |at| self.pace.wall_at(at)).by_clock(ahead);
            let save = limited.save(account, version);
            self.at_hub("tell of a limit", |hub| hub.transact(now, &[save]));
        } else if let Some(Limited { held, node }) = there.filter(|_| said.since(known) > ROUGHLY)
            && self.fit.heard.insert(account.to_owned(), version) != Some(version)
        {
            tracing::info!(account, %node, "the vendor does not serve an account now, another node says");
            let (limit, until, strikes) = (held.limit, held.until, held.strikes);
            let event = Event::Limited { scope: scope.clone(), limit, until, strikes };
            if let Err(error) = hold::write(&mut self.local, &scope, (&event, now), &[]) {
                tracing::warn!(account, %error, "a limit of which another node told cannot be noted");
            }
        }
    }

    /// The same for the loops with which this node works on tasks.
    pub(super) fn compare_limits(&mut self) {
        let held = self.late_results.all();
        if !held.is_empty() && self.pace.now().since(self.fit.compared_at) >= RENEW {
            let specs: Vec<LoopSpec> = held.iter().filter_map(|held| Some(self.local_state(held)?.spec)).collect();
            self.compare_accounts(&fit::shared(&specs));
        }
    }

    /// Whether a task of this loop could not be begun here for a long time.
    pub(super) fn is_shut(&self, owner: &LoopId) -> bool {
        let known = self.replica.loops.iter().find(|state| state.id == *owner);
        self.is_held(&self.guards(), known.map(|state| &state.spec.wanted))
    }

    fn is_held(&self, guards: &Guards, spec: Option<&LoopSpec>) -> bool {
        fit::is_shut(guards, spec, self.pace.now(), fit::LONG)
    }

    /// What the guard of this machine says about the loops that are known. What cannot be read holds nothing.
    fn guards(&self) -> Guards {
        let here: NodeId = node_id();
        let scopes = fit::scopes(&here, self.replica.loops.iter().map(|state| &state.spec.wanted));
        scopes.into_iter().filter_map(|scope| Some((scope.clone(), self.local.guard(&scope).ok()?))).collect()
    }
}

/// The record of the mesh with its version; `None` when a newer everloop wrote it.
fn read(hub: &impl Ledger) -> Result<Option<(u64, Immune)>, Error> {
    let Some(row) = hub.doc(DOC, FLEET)? else { return Ok(Some((0, Immune::default()))) };
    match Immune::read(&row.body) {
        Ok(immune) => Ok(Some((row.version, immune))),
        Err(error) => {
            tracing::warn!(error, "the record of who fails cannot be read");
            Ok(None)
        }
    }
}
