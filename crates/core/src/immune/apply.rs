//! How steps change the state. The only writer of [`Immune`].

use super::rules::{Correction, LISTED};
use super::tier::{OUT_WITHIN, soft_for};
use super::{Immune, ImmuneRule, ImmuneStep, Moved, RuleEffect, Subject, SubjectTier, Tier, caps};
use crate::planted::{self, Bug};
use crate::reason::Reason;
use crate::time::Time;

/// Number of remembered corrections and relapses; older ones decide nothing.
const TIMES: usize = 8;

impl Immune {
    /// Applies a step of the journal.
    pub fn apply(&mut self, did: &ImmuneStep, at: Time) {
        match did {
            ImmuneStep::Seen { seen, .. } => {
                self.record.push(seen);
                for subject in &seen.subjects {
                    if let Some(standing) = self.standings.get_mut(subject) {
                        standing.beats += 1;
                    }
                }
                self.rules.retain(|r| r.until > at || planted::is(Bug::RuleNeverExpires));
            }
            ImmuneStep::Charged { subject, reason } => {
                self.standings.entry(subject.clone()).or_insert_with(|| SubjectTier::new(reason)).charge();
            }
            ImmuneStep::Soft { subject, until, reason } => self.change(subject, reason, |standing| {
                standing.softs.push(standing.beats);
                standing.tier = Tier::Soft { until: *until };
            }),
            ImmuneStep::Out { subject, until, level, reason } => {
                let relapse = self.standings.get(subject).is_some_and(|s| s.let_back.is_some());
                if relapse {
                    remember(&mut self.relapses, at);
                }
                self.change(subject, reason, |standing| {
                    standing.tier = Tier::Out { until: *until, trial: None };
                    standing.level = *level;
                    standing.let_back = None;
                });
            }
            ImmuneStep::Trial { subject, turn } => self.set_trial(subject, Some(turn.clone())),
            ImmuneStep::Untried { subject } => self.set_trial(subject, None),
            ImmuneStep::Eased { subject, reason } => self.ease(subject, reason, at),
            ImmuneStep::Suspected { reason } => self.suspicion = Some(reason.clone()),
            ImmuneStep::Trusted => self.suspicion = None,
            ImmuneStep::Moved { threshold, permille, .. } => {
                let (from, out) = (self.thresholds.get(*threshold), caps::out(self, at).len() as u32);
                self.moved = Some(Moved { threshold: *threshold, from, at, out });
                self.thresholds.set(*threshold, *permille);
            }
            ImmuneStep::Settled { threshold, permille, .. } => {
                self.moved = None;
                self.thresholds.set(*threshold, *permille);
            }
            ImmuneStep::Corrected { what } => self.correct(what, at),
            ImmuneStep::Ruled { rule } => self.add_rule(rule),
            ImmuneStep::Lifted { what, .. } => self.lift(what),
        }
    }

    fn change(&mut self, subject: &Subject, reason: &Reason, change: impl FnOnce(&mut SubjectTier)) {
        let standing = self.standings.entry(subject.clone()).or_insert_with(|| SubjectTier::new(reason));
        change(standing);
        standing.reason = reason.clone();
        standing.stepped = standing.beats;
    }

    fn set_trial(&mut self, subject: &Subject, turn: Option<crate::ids::TurnId>) {
        if let Some(Tier::Out { trial, .. }) = self.standings.get_mut(subject).map(|s| &mut s.tier) {
            *trial = turn;
        }
    }

    fn ease(&mut self, subject: &Subject, reason: &Reason, at: Time) {
        let Some(standing) = self.standings.get_mut(subject) else { return };
        standing.stepped = standing.beats;
        match standing.tier {
            Tier::Out { .. } => {
                let until = at + soft_for();
                standing.tier = Tier::Soft { until };
                standing.let_back = Some(at);
                standing.reason = reason.clone().until(until);
                return;
            }
            Tier::Soft { .. } => standing.tier = Tier::Watched,
            Tier::Watched => standing.level = standing.level.saturating_sub(1),
        }
        standing.reason = reason.clone();
        let beats = standing.beats;
        standing.charges.retain(|c| beats - c < OUT_WITHIN);
        if standing.tier == Tier::Watched && standing.level == 0 && standing.charges.is_empty() {
            self.standings.remove(subject);
        }
    }

    fn correct(&mut self, what: &RuleEffect, at: Time) {
        if let Some(known) = self.corrections.iter_mut().find(|c| c.what == *what) {
            return remember(&mut known.at, at);
        }
        if self.corrections.len() >= LISTED {
            self.corrections.remove(0);
        }
        self.corrections.push(Correction { what: what.clone(), at: vec![at] });
    }

    /// A rule replaces an earlier one with the same content.
    fn add_rule(&mut self, rule: &ImmuneRule) {
        self.rules.retain(|r| r.what != rule.what);
        if self.rules.len() >= LISTED {
            self.rules.remove(0);
        }
        self.next_rule = rule.id + 1;
        self.rules.push(rule.clone());
    }

    fn lift(&mut self, what: &RuleEffect) {
        self.rules.retain(|r| r.what != *what);
        self.corrections.retain(|c| c.what != *what);
        if let RuleEffect::Avoid { subject } = what {
            self.standings.remove(subject);
        }
    }
}

impl SubjectTier {
    fn new(reason: &Reason) -> Self {
        Self {
            tier: Tier::Watched,
            beats: 1,
            charges: Vec::new(),
            softs: Vec::new(),
            level: 0,
            stepped: 0,
            let_back: None,
            reason: reason.clone(),
        }
    }

    fn charge(&mut self) {
        let beats = self.beats;
        self.charges.retain(|c| beats - c < OUT_WITHIN);
        self.softs.retain(|s| beats - s < OUT_WITHIN);
        self.charges.push(beats);
    }

    /// Charges in a row up to now.
    pub fn row(&self) -> u64 {
        let newest = self.charges.iter().rev();
        newest.zip((0..=self.beats).rev()).take_while(|(charge, beat)| **charge == *beat).count() as u64
    }
}

fn remember(times: &mut Vec<Time>, at: Time) {
    times.push(at);
    if times.len() > TIMES {
        times.remove(0);
    }
}
