//! Whether a node is eligible for a task. A node that cannot work on a task gives it back, a node
//! on which it would have to wait does not take it, and a node that fails more often than others
//! ([`crate::immune`], one record for the whole mesh) lets them go first. A task never stays
//! without a node: one that gets no work takes what no other node took.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::MeshLoop;
use super::offline::Replica;
use super::work::Held;
use crate::decide::immune::{alert, all_clear};
use crate::event::LoopEnd;
use crate::guard::{GuardState, Guards, Scope};
use crate::ids::{Fence, NodeId, TaskId, TurnId};
use crate::immune::choice::Admission;
use crate::immune::rules::EXPERIENCE;
use crate::immune::tier::untried;
use crate::immune::{Class, Dimension, Immune, ImmuneStep, ObservedOutcome, Subject, Tier, observe};
use crate::op::{Op, TaskRow, TaskState};
use crate::planted::{self, Bug};
use crate::reason::Reason;
use crate::spec::{DEFAULT_ACCOUNT, LoopSpec};
use crate::state::{LoopState, Phase, TurnTally};
use crate::time::Time;

/// Kind of the documents about accounts that are not served.
pub const ACCOUNT: &str = "account";
/// If a wait is so much longer, another node should try.
pub const LONG: Duration = Duration::from_secs(600);
/// What has no end is, after so long: a person may be about to end it.
pub const ENDLESS: Duration = Duration::from_secs(60);
/// A node that gets less work leaves a task to others for so long.
pub const OTHERS_FIRST: Duration = Duration::from_secs(10);
/// A node that gets no work takes a task that was free for so long: then there is no other node for
/// it.
pub const NOBODY_ELSE: Duration = Duration::from_secs(60);

/// Why a node's own loop for a task cannot go on here for a long time, unless a rule of the loop
/// itself is the reason: another node may do better. `real`: how long a period is by the clock of
/// `now`.
pub fn stuck(phase: &Phase, now: Time, real: impl Fn(Duration) -> Duration) -> Option<&Reason> {
    let Phase::Waiting { reason, since } = phase else { return None };
    let here = match reason.rule.as_str() {
        "guard.freeze" | "guard.limit" | "guard.pace" | "guard.cooldown" | "guard.backoff" | "paused" | "asleep" => {
            true
        }
        rule => rule.starts_with("immune."),
    };
    let long = match reason.until {
        Some(until) => until.since(now) >= real(LONG),
        None => now.since(*since) >= real(ENDLESS),
    };
    (here && long && !planted::is(Bug::KeepsWhatIsStuck)).then_some(reason)
}

/// The guards that decide whether tasks of these loops could be begun here. `here`: this node's
/// name in its own ledger.
pub fn scopes<'a>(here: &NodeId, loops: impl IntoIterator<Item = &'a LoopSpec>) -> BTreeSet<Scope> {
    let agents = loops.into_iter().flat_map(LoopSpec::agents);
    let accounts = agents.map(|agent| Scope::Account(agent.guard_account()));
    accounts.chain([Scope::All, Scope::Node(here.clone())]).collect()
}

/// Whether a task of this loop could not be begun here for a long time: everything is frozen, or
/// every account that it can use is held.
pub fn is_held_for_long(guards: &Guards, spec: Option<&LoopSpec>, now: Time, long: Duration) -> bool {
    let holds = |scope: &Scope| guards.get(scope).map_or(Duration::ZERO, |guard| holds_for(&guard.state, now));
    let frozen = |scope: &Scope| {
        let held = holds(scope);
        held >= long || (!held.is_zero() && guards.get(scope).is_some_and(|guard| guard.state.freeze.is_some()))
    };
    let whole = guards.keys().filter(|scope| matches!(scope, Scope::All | Scope::Node(_)));
    let mut whole = whole.filter(|scope| frozen(scope));
    let held = |account: &str| holds(&Scope::Account(account.to_owned())) >= long;
    whole.next().is_some() || spec.is_some_and(|spec| spec.agents().all(|agent| held(&agent.guard_account())))
}

/// For how long a guard lets nothing start. A trial start that is due is one.
fn holds_for(state: &GuardState, now: Time) -> Duration {
    let freeze = state.freeze.as_ref().map(|freeze| {
        let end = [freeze.until, freeze.canary_at].into_iter().flatten().min();
        end.map_or(Duration::MAX, |end| end.since(now))
    });
    let limit = state.held.as_ref().map(|held| held.until.since(now));
    let cooling = state.cooling.map(|cooling| cooling.until.since(now));
    [freeze, limit, cooling].into_iter().flatten().max().unwrap_or_default()
}

/// All subjects that take part in an attempt at a task, as far as they are known beforehand. Which
/// of several agents will run is unknown; and the default account is a different one on every node.
pub fn subjects(node: &NodeId, kind: Option<&str>, spec: Option<&LoopSpec>) -> Vec<Subject> {
    let mut all = vec![Subject::new(Dimension::Node, node.as_str())];
    if let Some(agent) = spec.filter(|spec| spec.others.is_empty()).map(|spec| &spec.agent) {
        all.push(Subject::new(Dimension::Agent, &agent.name));
        if agent.account != DEFAULT_ACCOUNT {
            all.push(Subject::new(Dimension::Account, &agent.account));
        }
    }
    all.extend(kind.map(|kind| Subject::new(Dimension::Kind, kind)));
    all.retain(|subject| !subject.name.is_empty());
    all
}

/// How a node stands towards each of these tasks, by the record of the mesh.
pub fn standing(immune: &Immune, replica: &Replica, node: &NodeId, rows: &[TaskRow], now: Time) -> Vec<Admission> {
    let mut all: Vec<Admission> = Vec::new();
    for (n, row) in rows.iter().enumerate() {
        // Tasks of one kind and loop differ in nothing that is known.
        let is_same = |other: &TaskRow| other.task.owner == row.task.owner && other.task.kind == row.task.kind;
        let known = rows[..n].iter().position(is_same).map(|same| all[same].clone());
        let spec = replica.loop_of(row).map(|state| &state.spec.wanted);
        let how = || immune.may(&subjects(node, Some(&row.task.kind), spec), now);
        all.push(known.unwrap_or_else(how));
    }
    all
}

/// Whether a task that was free for so long is for a node that holds so many.
pub fn may_take(how: &Admission, waited: Duration, holds: usize) -> bool {
    match how {
        Admission::Free => true,
        Admission::Barred(reason) if reason.input("by") != EXPERIENCE => false,
        Admission::Less(_) | Admission::Trial(_) | Admission::Out(_) | Admission::Barred(_) => {
            waited >= timeouts(how) && (holds == 0 || !is_single(how))
        }
    }
}

/// How long a task has to be free before such a node takes it.
pub fn timeouts(how: &Admission) -> Duration {
    match how {
        Admission::Free | Admission::Trial(_) => Duration::ZERO,
        Admission::Less(_) => OTHERS_FIRST,
        Admission::Out(_) | Admission::Barred(_) if planted::is(Bug::QuarantineLeavesNobody) => Duration::MAX,
        Admission::Out(_) | Admission::Barred(_) => NOBODY_ELSE,
    }
}

/// Whether such a node takes one task at a time.
pub fn is_single(how: &Admission) -> bool {
    matches!(how, Admission::Trial(_) | Admission::Out(_) | Admission::Barred(_))
}

impl Replica {
    /// Since when a task could be taken, by the hub's clock.
    pub fn free_since(&self, row: &TaskRow) -> Time {
        let reserved = |state: &MeshLoop| state.reserved_at(&row.task.id, row.fence.next());
        let reserved = self.loop_of(row).and_then(reserved).unwrap_or_default();
        row.updated_at.max(row.task.ready_at).max(reserved)
    }
}

/// What is known of an attempt that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// What the outcome means for the subjects that took part.
    pub class: Class,
    /// When the vendor serves the account again, if that was it.
    pub reset_at: Option<Time>,
}

impl Tried {
    fn of(class: Class) -> Self {
        Self { class, reset_at: None }
    }

    /// It could not even be begun: the repository, the disk, git.
    pub fn not_begun() -> Self {
        Self::of(Class::AgentFailed)
    }

    /// The node's own loop can do nothing here; `None` when a person wants that.
    pub fn stuck(reason: &Reason) -> Option<Self> {
        match reason.rule.as_str() {
            "guard.limit" => Some(Self { class: Class::Unserved, reset_at: reason.until }),
            "guard.freeze" if !reason.input("by").is_empty() => None,
            "guard.freeze" | "guard.cooldown" | "guard.backoff" => Some(Self::of(Class::AgentFailed)),
            _ => None,
        }
    }

    /// The outcome of a node's own loop that is over; `None` when it means nothing: the loop was
    /// stopped, or its reservation was used up.
    pub fn over(state: &LoopState) -> Option<Self> {
        let Phase::Ended { ending, .. } = &state.phase else { return None };
        match ending {
            LoopEnd::Reached => Some(Self::of(Class::Good)),
            LoopEnd::Exhausted { bound } if bound == "turns" => Some(Self::of(turns(&state.progress.tally))),
            LoopEnd::Failed { .. } => Some(Self::of(Class::TaskFailed)),
            LoopEnd::Exhausted { .. } | LoopEnd::Stopped { .. } => None,
        }
    }
}

/// The class of an attempt that failed, by its turns: an agent that completed none of them failed.
fn turns(tally: &TurnTally) -> Class {
    let taken = tally.progress + tally.not_yet + tally.no_op + tally.refused + tally.regressed + tally.discarded;
    match (taken, tally.agent_failed, tally.task_failed) {
        (0, 1.., _) => Class::AgentFailed,
        (0, 0, 1..) => Class::TaskFailed,
        _ => Class::NotYet,
    }
}

/// An attempt under way or over, and the subjects that could have made it.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    pub held: &'a Held,
    pub node: &'a NodeId,
    /// The kind of the task, where it is known.
    pub kind: Option<&'a str>,
    /// The loop's agents, where they are known.
    pub spec: Option<&'a LoopSpec>,
    /// Nodes that were there.
    pub members: &'a [NodeId],
}

impl Attempt<'_> {
    /// Its name in the record.
    pub fn turn(&self) -> TurnId {
        TurnId::of(&self.held.task, self.held.fence)
    }

    /// What follows from its end, for the record of the mesh.
    pub fn ended(&self, immune: &Immune, tried: &Tried, now: Time) -> Vec<ImmuneStep> {
        let subjects = subjects(self.node, self.kind, self.spec);
        let seen = ObservedOutcome { subjects, class: tried.class, reset_at: tried.reset_at };
        let candidates: Vec<_> = self.members.iter().map(|node| self::subjects(node, self.kind, self.spec)).collect();
        observe(immune, &self.turn(), &seen, &candidates, now)
    }

    /// The trials that this attempt is, if one of its subjects was quarantined.
    pub fn began(&self, immune: &Immune, now: Time) -> Vec<ImmuneStep> {
        immune.trials(&subjects(self.node, self.kind, self.spec), &self.turn(), now)
    }
}

/// The attempts that are trials of these subjects.
pub fn on_trial(immune: &Immune, subjects: &[Subject]) -> Vec<TurnId> {
    let trial = |subject: &Subject| match &immune.standings.get(subject)?.tier {
        Tier::Out { trial, .. } => trial.clone(),
        Tier::Watched | Tier::Soft { .. } => None,
    };
    subjects.iter().filter_map(trial).collect()
}

/// The task and the fence that an attempt is named after.
pub fn attempt_of(turn: &TurnId) -> Option<(TaskId, Fence)> {
    Some((turn.task().clone(), turn.fence()))
}

/// The steps that follow when a trial is over without a report of its outcome: its node died, or
/// lost its disk. Another trial may be made. `row`: the task as the hub has it.
pub fn given_up(immune: &Immune, turn: &TurnId, row: Option<&TaskRow>) -> Vec<ImmuneStep> {
    let goes_on = attempt_of(turn).zip(row).is_some_and(|((task, fence), row)| {
        row.task.id == task && row.fence == fence && matches!(row.state, TaskState::Leased { .. })
    });
    if goes_on || planted::is(Bug::TrialOfTheDeadStays) { Vec::new() } else { untried(immune, turn) }
}

/// The operations that open and close tickets of the hub about steps of the record.
pub fn alerts(steps: &[ImmuneStep]) -> Vec<Op> {
    let open = steps.iter().filter_map(|step| alert(step, "the hub")).map(|(key, text)| {
        let key = key.to_owned();
        Op::OpenTicket { key, owner: None, text }
    });
    let close = steps.iter().filter_map(all_clear).map(|(key, answer)| {
        let (key, answer) = (key.to_owned(), answer.to_owned());
        Op::CloseTicket { key, answer }
    });
    open.chain(close).collect()
}

/// An account that its vendor does not serve now; a document of the hub, by the account's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limited {
    /// The limit as the vendor reported it, and until when nothing starts, by the hub's clock.
    pub held: crate::guard::AccountHold,
    /// The node that received the limit.
    pub node: NodeId,
}

impl Limited {
    /// Reads a document; `None` when it is something else.
    pub fn read(body: &str) -> Option<Self> {
        serde_json::from_str(body).ok()
    }

    /// The operation that saves the document, provided that no other write happened since
    /// `version`.
    pub fn save(&self, account: &str, version: u64) -> Op {
        let body = serde_json::to_string(self).expect("it is plain data and always has a JSON form");
        Op::SaveDoc { kind: ACCOUNT.to_owned(), key: account.to_owned(), version, body }
    }

    /// The same by a clock that is so many milliseconds ahead.
    #[must_use]
    pub fn by_clock(mut self, ahead: i64) -> Self {
        let held = &mut self.held;
        for at in held.limit.reset_at.iter_mut().chain([&mut held.until]) {
            at.0 = at.0.saturating_add(ahead);
        }
        self
    }
}

/// The accounts of these loops that are the same on every node: those with a name of their own.
pub fn shared<'a>(loops: impl IntoIterator<Item = &'a LoopSpec>) -> BTreeSet<String> {
    let accounts = loops.into_iter().flat_map(LoopSpec::agents).map(|agent| agent.account.clone());
    accounts.filter(|account| account != DEFAULT_ACCOUNT).collect()
}

/// Each node's part of a rate: what it means for an account holds for all of them together.
pub(super) fn share(spec: &mut LoopSpec, nodes: usize) {
    let nodes = u32::try_from(nodes.max(1)).unwrap_or(u32::MAX);
    if let Some(bucket) = &mut spec.guard.bucket {
        bucket.every = bucket.every.saturating_mul(nodes);
        bucket.burst = (bucket.burst / nodes).max(1);
    }
}

#[cfg(test)]
mod tests;
