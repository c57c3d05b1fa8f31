//! Bounds of the immune system: it never quarantines more than a third of the nodes, never removes
//! the last worker or the last choice, and never believes that half of a dimension went bad at
//! once.

use std::collections::BTreeSet;

use super::record::Lately;
use super::{Dimension, Immune, RuleEffect, Subject, Tier};
use crate::planted::{self, Bug};
use crate::reason::{Reason, RuleId};
use crate::time::Time;

/// Number of latest outcomes that decide whether a subject looks bad…
const LATEST: usize = 5;
/// …and the failures among them that make it so.
const LOOKS_BAD: usize = 3;
/// Minimum number of ways to go on.
const CHOICES: usize = 2;
/// A charge this many beats ago still makes a subject look bad.
const CHARGED_LATELY: u64 = 10;

/// All subjects that get no work.
pub fn out(state: &Immune, now: Time) -> BTreeSet<Subject> {
    let held = state.standings.iter().filter(|(_, s)| matches!(s.tier, Tier::Out { .. })).map(|(s, _)| s.clone());
    let barred = state.rules.iter().filter(|r| r.until > now).filter_map(|r| match &r.what {
        RuleEffect::Avoid { subject } => Some(subject.clone()),
        RuleEffect::Only { .. } => None,
    });
    held.chain(barred).collect()
}

/// Whether a subject may be quarantined; otherwise the cap that forbids it. `candidates`: the
/// possible workers, besides those in the record.
pub fn allows(state: &Immune, subject: &Subject, candidates: &[Vec<Subject>], now: Time) -> Result<(), Reason> {
    let refuse = |rule: RuleId| Err(Reason::new(rule).with("subject", subject));
    let mut out = out(state, now);
    out.insert(subject.clone());
    if too_many_nodes(state, &out) {
        return refuse(RuleId::ImmuneThird);
    }
    if half_look_bad(state, subject) || state.suspicion.is_some() {
        return refuse(RuleId::ImmuneObserver);
    }
    let (workers, choices) = left(state, candidates, &out);
    if workers == 0 && !planted::is(Bug::CapsLeaveNobody) {
        return refuse(RuleId::ImmuneNobody);
    }
    if choices < CHOICES && !planted::is(Bug::CapsLeaveNobody) {
        return refuse(RuleId::ImmuneChoice);
    }
    Ok(())
}

/// A node to be released because the fleet became smaller.
pub(super) fn too_many(state: &Immune, now: Time) -> Option<Subject> {
    if !too_many_nodes(state, &out(state, now)) {
        return None;
    }
    let held = state.standings.iter().filter(|(s, _)| s.dimension == Dimension::Node);
    let out = held.filter_map(|(s, standing)| match standing.tier {
        Tier::Out { until, .. } => Some((until, s)),
        Tier::Watched | Tier::Soft { .. } => None,
    });
    out.min().map(|(_, s)| s.clone())
}

fn too_many_nodes(state: &Immune, out: &BTreeSet<Subject>) -> bool {
    let out: BTreeSet<&Subject> = out.iter().filter(|s| s.dimension == Dimension::Node).collect();
    let all: BTreeSet<&Subject> = state.record.live(Dimension::Node).chain(out.iter().copied()).collect();
    let allowed = all.len() / 3 + usize::from(planted::is(Bug::CapOffByOne));
    out.len() > allowed
}

/// The number of remaining workers, and of remaining ways to go on (workers with kinds of tasks).
fn left(state: &Immune, candidates: &[Vec<Subject>], out: &BTreeSet<Subject>) -> (usize, usize) {
    let seen = state.record.newest().map(|row| row.subjects().collect::<Vec<_>>());
    let all = seen.chain(candidates.iter().map(|who| who.iter().collect()));
    let (mut workers, mut choices) = (BTreeSet::new(), BTreeSet::new());
    for who in all.filter(|who| !who.iter().any(|s| out.contains(*s))) {
        let (kind, worker): (BTreeSet<&Subject>, BTreeSet<&Subject>) =
            who.into_iter().partition(|s| s.dimension == Dimension::Kind);
        choices.insert((worker.clone(), kind));
        workers.insert(worker);
    }
    (workers.len(), choices.len())
}

/// Whether half of a dimension was charged lately, the subject among them.
fn half_look_bad(state: &Immune, subject: &Subject) -> bool {
    let all: BTreeSet<&Subject> = state.record.live(subject.dimension).collect();
    let bad = |s: &&&Subject| {
        let standing = state.standings.get(**s);
        let lately = |c: &u64, beats: u64| beats - c < CHARGED_LATELY;
        standing
            .is_some_and(|s| s.charges.last().is_some_and(|c| lately(c, s.beats)) || matches!(s.tier, Tier::Out { .. }))
    };
    let bad = all.iter().filter(bad).count();
    bad >= 2 && bad * 2 >= all.len()
}

/// Result of the plausibility check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// No reason for doubt.
    Nobody,
    /// Neither clearly one nor the other.
    Undecided,
    /// The observer itself: everything fails, in every dimension.
    Observer(Reason),
}

/// Whether everything fails at once. One bad account makes half of the nodes look bad, too;
/// therefore all dimensions must agree before the observer is suspected.
pub fn doubt(state: &Immune) -> Doubt {
    let lately: Vec<(&Subject, Lately)> = state.record.lately(LATEST).collect();
    let agents = family(&lately, &[Dimension::Node, Dimension::Account, Dimension::Agent, Dimension::Pane]);
    let tasks = family(&lately, &[Dimension::Kind, Dimension::Node]);
    match (agents, tasks) {
        (Doubt::Observer(reason), _) | (_, Doubt::Observer(reason)) => Doubt::Observer(reason),
        (Doubt::Nobody, Doubt::Nobody) => Doubt::Nobody,
        _ => Doubt::Undecided,
    }
}

fn family(lately: &[(&Subject, Lately)], dimensions: &[Dimension]) -> Doubt {
    let mut reason = Reason::new(RuleId::ImmuneObserver);
    let (mut several, mut all_half, mut some_few) = (false, true, false);
    for dimension in dimensions {
        let known = lately.iter().filter(|(s, l)| s.dimension == *dimension && l.outcomes >= LOOKS_BAD);
        let looks: Vec<bool> = known.map(|(_, l)| l.failed >= LOOKS_BAD).collect();
        if looks.len() < 2 {
            continue;
        }
        let bad = looks.iter().filter(|bad| **bad).count();
        several = true;
        all_half &= bad >= 2 && bad * 2 >= looks.len();
        some_few |= bad * 4 < looks.len();
        reason = reason.with(dimension.label(), format!("{bad} of {}", looks.len()));
    }
    match (several, all_half, some_few) {
        (true, true, _) => Doubt::Observer(reason),
        (true, false, false) => Doubt::Undecided,
        _ => Doubt::Nobody,
    }
}
