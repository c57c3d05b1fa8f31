//! Admission of subjects: what tiers and rules mean for the next turn.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use super::{Immune, ImmuneStep, RuleEffect, Subject, Tier};
use crate::ids::TurnId;
use crate::planted::{self, Bug};
use crate::reason::{Reason, RuleId};
use crate::time::Time;

/// Failures in a row without any comparison that justify trying another subject.
const DOUBT: usize = 3;
/// Number of outcomes that are searched: this concerns one node and its few agents.
const OUTCOME_WINDOW: usize = 60;

/// Admission of the subjects of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    Free,
    /// Every other time, if there is an alternative.
    Less(Reason),
    /// Admitted as a trial.
    Trial(Reason),
    /// Not admitted, unless there is no alternative.
    Out(Reason),
    /// Never admitted: a rule forbids it.
    Barred(Reason),
}

impl Admission {
    /// The reason for any restriction.
    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Admission::Free => None,
            Admission::Less(reason) | Admission::Trial(reason) | Admission::Out(reason) | Admission::Barred(reason) => {
                Some(reason)
            }
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Admission::Free => 0,
            Admission::Less(_) => 1,
            Admission::Trial(_) => 2,
            Admission::Out(_) => 3,
            Admission::Barred(_) => 4,
        }
    }
}

impl Immune {
    /// Admission of a turn with these subjects: the worst that applies to any of them.
    pub fn may(&self, subjects: &[Subject], now: Time) -> Admission {
        let ruled = self.rules_at(now).filter_map(|rule| {
            let hit = match &rule.what {
                RuleEffect::Avoid { subject } => subjects.iter().any(|s| subject.covers(s)),
                RuleEffect::Only { kind, subject } => {
                    let of_kind = subjects.iter().any(|s| s.dimension == super::Dimension::Kind && s.name == *kind);
                    of_kind && !subjects.iter().any(|s| subject.covers(s))
                }
            };
            let reason = Reason::new(RuleId::ImmuneRule).with("rule", rule.id).with("says", &rule.what);
            hit.then(|| Admission::Barred(reason.with("by", &rule.by).with("why", &rule.why).until(rule.until)))
        });
        let held = subjects.iter().filter_map(|s| self.standing(s, now));
        // Of several the one that holds longest is named.
        let worst = ruled.chain(held).max_by_key(|found| (found.rank(), found.reason().and_then(|r| r.until)));
        worst.or_else(|| self.doubted(subjects)).unwrap_or(Admission::Free)
    }

    fn standing(&self, subject: &Subject, now: Time) -> Option<Admission> {
        let standing = self.standings.get(subject)?;
        match &standing.tier {
            Tier::Soft { until } if *until > now => Some(Admission::Less(standing.reason.clone())),
            Tier::Out { until, trial: None } if *until <= now => Some(Admission::Trial(standing.reason.clone())),
            Tier::Out { .. } => Some(Admission::Out(standing.reason.clone())),
            Tier::Watched | Tier::Soft { .. } => None,
        }
    }

    /// A subject that fails repeatedly and was never compared is worth a comparison.
    fn doubted(&self, subjects: &[Subject]) -> Option<Admission> {
        let worker = |s: &&Subject| s.dimension != super::Dimension::Kind;
        let worker: Vec<&Subject> = subjects.iter().filter(worker).collect();
        let same = self.record.newest().take(OUTCOME_WINDOW).filter(|row| worker.iter().all(|s| row.has(s)));
        let lately: Vec<bool> = same.take(DOUBT).map(|row| row.class().failed()).collect();
        let failed = lately.len() == DOUBT && lately.into_iter().all(|f| f);
        failed.then(|| Admission::Less(Reason::new(RuleId::ImmuneDoubt).with("failures", DOUBT)))
    }

    /// The subject's share of the work, in thousandths.
    pub fn weight_permille(&self, subject: &Subject, now: Time) -> u32 {
        match self.may(std::slice::from_ref(subject), now) {
            Admission::Free => 1000,
            Admission::Less(_) => 500,
            Admission::Trial(_) | Admission::Out(_) | Admission::Barred(_) => 0,
        }
    }

    /// Trials that a turn with these subjects performs.
    pub fn trials(&self, subjects: &[Subject], turn: &TurnId, now: Time) -> Vec<ImmuneStep> {
        let due = |s: &&Subject| {
            let tier = self.standings.get(*s).map(|s| &s.tier);
            matches!(tier, Some(Tier::Out { until, trial: None }) if *until <= now)
        };
        let never = planted::is(Bug::TrialNeverComesBack);
        let due = subjects.iter().filter(due).filter(|_| !never);
        due.map(|s| ImmuneStep::Trial { subject: s.clone(), turn: turn.clone() }).collect()
    }

    /// Kinds of tasks that stay on the board for now.
    pub fn kinds_out(&self, now: Time) -> Vec<&str> {
        let kinds = self.standings.keys().filter(|s| s.dimension == super::Dimension::Kind);
        let out = kinds.filter(|s| matches!(self.standing(s, now), Some(Admission::Out(_))));
        let barred = self.rules_at(now).filter_map(|r| match &r.what {
            RuleEffect::Avoid { subject } if subject.dimension == super::Dimension::Kind => Some(subject.name.as_str()),
            RuleEffect::Avoid { .. } | RuleEffect::Only { .. } => None,
        });
        out.map(|s| s.name.as_str()).chain(barred).collect()
    }
}
