//! Consequences of charges: a smaller share, quarantine, a trial, one threshold moved; and the way
//! back.
//!
//! | tier | after | means |
//! |---|---|---|
//! | 1, soft | 2 charges in 10 beats | half of its work for 5 beats |
//! | 2, out | two softs in 30 beats, or 3 charges in a row | none for 20 beats, then one trial |
//! | 3 | 3 subjects out, or 2 relapses in 100 beats | one threshold moved, reviewed after 50 |
//!
//! A trial that passes leads to tier 1; one that fails doubles the quarantine, up to 160 beats. Ten
//! beats without a charge are one step down.

use std::time::Duration;

use super::blame::charge;
use super::caps::{self, Doubt};
use super::{BEAT, Immune, ImmuneStep, Moved, ObservedOutcome, RuleEffect, Subject, Threshold, Tier};
use crate::ids::TurnId;
use crate::planted::{self, Bug};
use crate::reason::{Reason, RuleId};
use crate::time::Time;

/// Number of charges…
const SOFT_CHARGES: usize = 2;
/// …within this many beats that halve the work…
const SOFT_WITHIN: u64 = 10;
/// …for this many beats.
const SOFT_BEATS: u32 = 5;
/// Two reductions within this many beats, or…
pub(super) const OUT_WITHIN: u64 = 30;
/// …this many charges in a row lead to quarantine…
const OUT_ROW: u64 = 3;
/// …for this many beats, doubled after every trial that fails…
const OUT_BEATS: u32 = 20;
/// …up to this maximum.
const OUT_BEATS_MOST: u32 = 160;
/// 20 × 2³ is the maximum.
const LEVEL_MOST: u32 = 3;
/// Beats without a charge for a step down.
const CLEAN: u64 = 10;
/// Number of subjects quarantined at once that makes the margin doubtful.
const MANY_OUT: usize = 3;
/// Number of relapses…
const RELAPSES: usize = 2;
/// …within this many beats that makes the length of a quarantine doubtful.
const RELAPSE_WITHIN: u32 = 100;
/// Beats after which a moved threshold is reviewed.
const MOVED_BEATS: u32 = 50;
/// Size of a move, in thousandths; the bounds are half and double.
const MOVE_PERMILLE: u32 = 1500;
const PERMILLE_MOST: u32 = 2000;

/// Duration of this many beats of a quarantined subject.
pub(super) fn beats(n: u32) -> Duration {
    BEAT * n
}

/// Time for which the work of a subject is halved.
pub(super) fn soft_for() -> Duration {
    beats(SOFT_BEATS)
}

/// All steps that follow from the end of a turn, with their reasons. `candidates`: the other
/// possible workers, also without any outcome.
pub fn observe(
    state: &Immune,
    turn: &TurnId,
    seen: &ObservedOutcome,
    candidates: &[Vec<Subject>],
    now: Time,
) -> Vec<ImmuneStep> {
    let mut draft = StepDraft { state: state.clone(), candidates, now, dids: Vec::new() };
    let tried = on_trial(state, turn);
    draft.say(ImmuneStep::Seen { turn: turn.clone(), seen: seen.clone() });
    draft.look_at_observer();
    for subject in &tried {
        draft.after_trial(subject, seen);
    }
    if seen.class.failed()
        && draft.state.suspicion.is_none()
        && let Some((subject, reason)) = charge(&draft.state, &seen.subjects, seen.class)
    {
        draft.say(ImmuneStep::Charged { subject: subject.clone(), reason: reason.clone() });
        if !tried.contains(&subject) {
            draft.step_up(&subject, seen, &reason);
        }
    }
    for subject in &seen.subjects {
        draft.step_down(subject);
    }
    draft.recalibrate();
    draft.keep_caps();
    draft.dids
}

/// A turn ended without a verdict: subjects on trial in it may be tried again.
pub fn untried(state: &Immune, turn: &TurnId) -> Vec<ImmuneStep> {
    if planted::is(Bug::TrialNeverComesBack) {
        return Vec::new();
    }
    on_trial(state, turn).into_iter().map(|subject| ImmuneStep::Untried { subject }).collect()
}

fn on_trial(state: &Immune, turn: &TurnId) -> Vec<Subject> {
    let tried = |tier: &Tier| matches!(tier, Tier::Out { trial: Some(t), .. } if t == turn);
    state.standings.iter().filter(|(_, s)| tried(&s.tier)).map(|(s, _)| s.clone()).collect()
}

/// Steps in the making: each is applied at once, so that the next one sees it.
pub(super) struct StepDraft<'a> {
    pub(super) state: Immune,
    pub(super) candidates: &'a [Vec<Subject>],
    pub(super) now: Time,
    pub(super) dids: Vec<ImmuneStep>,
}

impl StepDraft<'_> {
    pub(super) fn say(&mut self, did: ImmuneStep) {
        self.state.apply(&did, self.now);
        self.dids.push(did);
    }

    fn look_at_observer(&mut self) {
        match (caps::doubt(&self.state), &self.state.suspicion) {
            (Doubt::Observer(reason), None) => self.say(ImmuneStep::Suspected { reason }),
            (Doubt::Nobody, Some(_)) => self.say(ImmuneStep::Trusted),
            _ => {}
        }
    }

    fn after_trial(&mut self, subject: &Subject, seen: &ObservedOutcome) {
        match seen.class.failed_for(subject.dimension) {
            None => self.say(ImmuneStep::Untried { subject: subject.clone() }),
            Some(false) => {
                let reason = Reason::new(RuleId::ImmunePassed).with("subject", subject);
                self.say(ImmuneStep::Eased { subject: subject.clone(), reason });
            }
            Some(true) => {
                let level = self.state.standings.get(subject).map_or(0, |s| s.level + 1).min(LEVEL_MOST);
                let reason = Reason::new(RuleId::ImmuneFailed).with("subject", subject).with("level", level);
                self.put_out(subject, level, seen, reason);
            }
        }
    }

    fn put_out(&mut self, subject: &Subject, level: u32, seen: &ObservedOutcome, reason: Reason) {
        let (subject, until) = (subject.clone(), self.out_until(level, seen, subject));
        self.say(ImmuneStep::Out { subject, until, level, reason: reason.until(until) });
    }

    /// For an account the vendor's reset time counts, if it gave one.
    fn out_until(&self, level: u32, seen: &ObservedOutcome, subject: &Subject) -> Time {
        let reset = seen.reset_at.filter(|at| *at > self.now && subject.dimension == super::Dimension::Account);
        let plain = OUT_BEATS << level.min(LEVEL_MOST);
        let moved = plain * self.state.thresholds.out_permille / 1000;
        reset.unwrap_or(self.now + beats(moved.min(OUT_BEATS_MOST)))
    }

    /// Raises the tier if a charge was one too many.
    fn step_up(&mut self, subject: &Subject, seen: &ObservedOutcome, why: &Reason) {
        let Some(standing) = self.state.standings.get(subject) else { return };
        if matches!(standing.tier, Tier::Out { .. }) {
            // The turn had begun before the quarantine.
            return;
        }
        let lately = |at: u64, within| standing.beats - at < within;
        let fresh = standing.charges.iter().filter(|c| **c > standing.stepped && lately(**c, SOFT_WITHIN)).count();
        let soft_before = standing.softs.iter().any(|at| lately(*at, OUT_WITHIN));
        let row = standing.row();
        let enough = fresh >= SOFT_CHARGES;
        let reason = Reason { inputs: why.inputs.clone(), ..Reason::new(RuleId::ImmuneSoft) };
        let reason = reason.with("charges", standing.charges.len());
        if row >= OUT_ROW || enough && soft_before {
            let how =
                if row >= OUT_ROW { format!("{row} in a row") } else { "again after it had less work".to_owned() };
            let level = standing.level;
            self.take_out(subject, level, seen, reason.with("how", how));
        } else if enough {
            let until = self.now + soft_for();
            self.say(ImmuneStep::Soft { subject: subject.clone(), until, reason: reason.until(until) });
        }
    }

    /// Quarantines a subject, unless a cap forbids it.
    fn take_out(&mut self, subject: &Subject, level: u32, seen: &ObservedOutcome, reason: Reason) {
        if let Err(cap) = caps::allows(&self.state, subject, self.candidates, self.now) {
            let until = self.now + soft_for();
            let standing = self.state.standings.get(subject);
            let soft = standing.is_some_and(|s| matches!(s.tier, Tier::Soft { until } if until > self.now));
            if !soft {
                let reason = reason.with("instead", cap.rule).until(until);
                self.say(ImmuneStep::Soft { subject: subject.clone(), until, reason });
            }
            return;
        }
        let relapsed = self.state.standings.get(subject).is_some_and(|s| s.let_back.is_some());
        let level = if relapsed { (level + 1).min(LEVEL_MOST) } else { level };
        self.put_out(subject, level, seen, Reason { rule: RuleId::ImmuneOut, ..reason });
        self.correct(RuleEffect::Avoid { subject: subject.clone() });
    }

    fn step_down(&mut self, subject: &Subject) {
        let Some(standing) = self.state.standings.get(subject) else { return };
        let since = standing.charges.last().copied().unwrap_or(0).max(standing.stepped);
        if matches!(standing.tier, Tier::Out { .. }) || standing.beats - since < CLEAN {
            return;
        }
        let reason = Reason::new(RuleId::ImmuneClean).with("subject", subject).with("beats", CLEAN);
        self.say(ImmuneStep::Eased { subject: subject.clone(), reason });
    }

    /// Tier 3: one threshold, for a time, within bounds. Limits that protect people and accounts
    /// are not among them.
    fn recalibrate(&mut self) {
        let out = caps::out(&self.state, self.now).len();
        if let Some(moved) = self.state.moved {
            if self.now >= moved.at + beats(MOVED_BEATS) {
                self.settle(moved, out);
            }
            return;
        }
        let lately = self.state.relapses.iter().filter(|at| self.now.since(**at) < beats(RELAPSE_WITHIN)).count();
        let (threshold, reason) = if out >= MANY_OUT {
            (Threshold::Margin, Reason::new(RuleId::ImmuneMany).with("out", out))
        } else if lately >= RELAPSES {
            (Threshold::Out, Reason::new(RuleId::ImmuneRelapses).with("relapses", lately))
        } else {
            return;
        };
        let from = self.state.thresholds.get(threshold);
        let permille = (from * MOVE_PERMILLE / 1000).min(PERMILLE_MOST);
        if permille > from {
            let until = self.now + beats(MOVED_BEATS);
            self.say(ImmuneStep::Moved { threshold, permille, reason: reason.until(until) });
        }
    }

    fn settle(&mut self, moved: Moved, out: usize) {
        let helped = match moved.threshold {
            Threshold::Margin => out < moved.out as usize,
            Threshold::Out => self.state.relapses.iter().all(|at| *at <= moved.at),
        };
        let threshold = moved.threshold;
        let permille = if helped { self.state.thresholds.get(threshold) } else { moved.from };
        let reason =
            Reason::new(RuleId::ImmuneSettled).with("helped", helped).with("out", out).with("before", moved.out);
        self.say(ImmuneStep::Settled { threshold, permille, reason });
    }

    /// The fleet may have become smaller since the quarantine.
    fn keep_caps(&mut self) {
        while let Some(subject) = caps::too_many(&self.state, self.now) {
            let reason = Reason::new(RuleId::ImmuneCap).with("subject", &subject);
            self.say(ImmuneStep::Eased { subject, reason });
        }
    }
}
