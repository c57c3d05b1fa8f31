//! Whether somebody is to be used now: what tiers and rules mean for the next turn.

use super::{Did, Immune, Subject, Tier, What};
use crate::ids::TurnId;
use crate::planted::{self, Bug};
use crate::reason::Reason;
use crate::time::Time;

/// So many failures in a row without anybody to compare with are a reason to try somebody else.
const DOUBT: usize = 3;
/// Outcomes among which they are looked for: this is about one machine and its few agents.
const LOOK: usize = 60;

/// Whether those who would take a turn are to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// Yes.
    Free,
    /// Every other time, if there is somebody else.
    Less(Reason),
    /// Yes, as a trial.
    Trial(Reason),
    /// No, unless there is nobody else.
    Out(Reason),
    /// No.
    Barred(Reason),
}

impl Use {
    /// Why it is not simply yes.
    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Use::Free => None,
            Use::Less(reason) | Use::Trial(reason) | Use::Out(reason) | Use::Barred(reason) => Some(reason),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Use::Free => 0,
            Use::Less(_) => 1,
            Use::Trial(_) => 2,
            Use::Out(_) => 3,
            Use::Barred(_) => 4,
        }
    }
}

impl Immune {
    /// Whether a turn with these subjects is a good idea: the worst that is said about any of them.
    pub fn may(&self, subjects: &[Subject], now: Time) -> Use {
        let ruled = self.rules_at(now).filter_map(|rule| {
            let hit = match &rule.what {
                What::Avoid { subject } => subjects.contains(subject),
                What::Only { kind, subject } => {
                    let of_kind = subjects.iter().any(|s| s.dimension == super::Dimension::Kind && s.name == *kind);
                    of_kind && !subjects.contains(subject)
                }
            };
            let reason = Reason::new("immune.rule").with("rule", rule.id).with("says", &rule.what);
            hit.then(|| Use::Barred(reason.with("by", &rule.by).with("why", &rule.why).until(rule.until)))
        });
        let held = subjects.iter().filter_map(|s| self.standing(s, now));
        // Of several the one that holds longest is named.
        let worst = ruled.chain(held).max_by_key(|found| (found.rank(), found.reason().and_then(|r| r.until)));
        worst.or_else(|| self.doubted(subjects)).unwrap_or(Use::Free)
    }

    fn standing(&self, subject: &Subject, now: Time) -> Option<Use> {
        let standing = self.standings.get(subject)?;
        match &standing.tier {
            Tier::Soft { until } if *until > now => Some(Use::Less(standing.reason.clone())),
            Tier::Out { until, trial: None } if *until <= now => Some(Use::Trial(standing.reason.clone())),
            Tier::Out { .. } => Some(Use::Out(standing.reason.clone())),
            Tier::Watched | Tier::Soft { .. } => None,
        }
    }

    /// Whoever fails again and again and was never compared with anybody is worth a comparison.
    fn doubted(&self, subjects: &[Subject]) -> Option<Use> {
        let worker = |s: &&Subject| s.dimension != super::Dimension::Kind;
        let worker: Vec<&Subject> = subjects.iter().filter(worker).collect();
        let same = self.record.newest().take(LOOK).filter(|row| worker.iter().all(|s| row.has(s)));
        let lately: Vec<bool> = same.take(DOUBT).map(|row| row.class().failed()).collect();
        let failed = lately.len() == DOUBT && lately.into_iter().all(|f| f);
        failed.then(|| Use::Less(Reason::new("immune.doubt").with("failures", DOUBT)))
    }

    /// The share of the work that a subject gets, in thousandths.
    pub fn weight_permille(&self, subject: &Subject, now: Time) -> u32 {
        match self.may(std::slice::from_ref(subject), now) {
            Use::Free => 1000,
            Use::Less(_) => 500,
            Use::Trial(_) | Use::Out(_) | Use::Barred(_) => 0,
        }
    }

    /// Trials that a turn with these subjects is.
    pub fn trials(&self, subjects: &[Subject], turn: &TurnId, now: Time) -> Vec<Did> {
        let due = |s: &&Subject| {
            let tier = self.standings.get(*s).map(|s| &s.tier);
            matches!(tier, Some(Tier::Out { until, trial: None }) if *until <= now)
        };
        let never = planted::is(Bug::TrialNeverComesBack);
        let due = subjects.iter().filter(due).filter(|_| !never);
        due.map(|s| Did::Trial { subject: s.clone(), turn: turn.clone() }).collect()
    }

    /// Kinds of tasks that are left on the board for now.
    pub fn kinds_out(&self, now: Time) -> Vec<&str> {
        let kinds = self.standings.keys().filter(|s| s.dimension == super::Dimension::Kind);
        let out = kinds.filter(|s| matches!(self.standing(s, now), Some(Use::Out(_))));
        let barred = self.rules_at(now).filter_map(|r| match &r.what {
            What::Avoid { subject } if subject.dimension == super::Dimension::Kind => Some(subject.name.as_str()),
            What::Avoid { .. } | What::Only { .. } => None,
        });
        out.map(|s| s.name.as_str()).chain(barred).collect()
    }
}
