//! Rules on top of the tiers, set by people or learned: "do not use pane X until T", "tasks of kind
//! Y only on Z".
//!
//! A rule always has an end. A correction that repeats, by a person or by the tiers, becomes a rule
//! by itself.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::tier::StepDraft;
use super::{Immune, ImmuneStep, Subject, caps};
use crate::planted::{self, Bug};
use crate::reason::{Reason, RuleId};
use crate::time::Time;

/// Repetitions of a correction…
const REPEATED: usize = 3;
/// …within this time that make it a rule…
const WITHIN: Duration = Duration::from_secs(7 * 24 * 3600);
/// …for this long.
const LEARNED_FOR: Duration = Duration::from_secs(24 * 3600);
/// The longest lifetime of a rule: a permanent one belongs into the configuration.
pub const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// Author of learned rules.
pub const EXPERIENCE: &str = "experience";
/// Maximum number of rules and corrections: the document is written with every outcome.
pub(super) const LISTED: usize = 64;

/// Content of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum RuleEffect {
    /// This subject gets no work.
    Avoid { subject: Subject },
    /// Tasks of this kind go to this subject only.
    Only { kind: String, subject: Subject },
}

impl std::fmt::Display for RuleEffect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RuleEffect::Avoid { subject } => write!(f, "{subject}"),
            RuleEffect::Only { kind, subject } => write!(f, "kind:{kind} only on {subject}"),
        }
    }
}

/// A rule with author, reason and lifetime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImmuneRule {
    /// Unique, from 1 on.
    pub id: u32,
    #[serde(flatten)]
    pub what: RuleEffect,
    /// A person's name, or `experience`.
    pub by: String,
    pub why: String,
    pub since: Time,
    pub until: Time,
}

/// A correction and the times at which it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Correction {
    pub what: RuleEffect,
    /// Times, oldest first.
    pub at: Vec<Time>,
}

/// A rule that a person requests.
#[derive(Clone, Debug)]
pub struct RuleRequest<'a> {
    pub what: RuleEffect,
    pub by: &'a str,
    pub why: &'a str,
    pub time: Duration,
}

/// Adds a rule of a person; refused when a cap forbids it.
pub fn add(state: &Immune, wish: &RuleRequest<'_>, now: Time) -> Result<Vec<ImmuneStep>, Reason> {
    if let RuleEffect::Avoid { subject } = &wish.what {
        person_may(state, subject, now)?;
    }
    let mut draft = StepDraft { state: state.clone(), candidates: &[], now, dids: Vec::new() };
    let until = now + wish.time.min(LONGEST);
    let (by, why) = (wish.by.to_owned(), wish.why.to_owned());
    let id = draft.state.next_rule;
    draft.say(ImmuneStep::Ruled { rule: ImmuneRule { id, what: wish.what.clone(), by, why, since: now, until } });
    draft.correct(wish.what.clone());
    Ok(draft.dids)
}

/// A person knows more than the record: a subject without outcomes may be barred, and a doubt about
/// the observer does not matter.
fn person_may(state: &Immune, subject: &Subject, now: Time) -> Result<(), Reason> {
    match caps::allows(state, subject, &[], now) {
        Err(cap) if matches!(cap.rule, RuleId::ImmuneThird | RuleId::ImmuneNobody) => {
            let seen = state.record.live(subject.dimension).any(|s| s == subject);
            if seen || subject.dimension == super::Dimension::Node { Err(cap) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

/// Ends a rule or a tier on behalf of a person.
pub fn lift(state: &Immune, what: &RuleEffect, by: &str, why: &str) -> Option<ImmuneStep> {
    let ruled = state.rules.iter().any(|r| r.what == *what);
    let stands = matches!(what, RuleEffect::Avoid { subject } if state.standings.contains_key(subject));
    (ruled || stands).then(|| ImmuneStep::Lifted { what: what.clone(), by: by.to_owned(), why: why.to_owned() })
}

impl Immune {
    /// The rules that hold now.
    pub fn rules_at(&self, now: Time) -> impl Iterator<Item = &ImmuneRule> {
        self.rules.iter().filter(move |r| r.until > now || planted::is(Bug::RuleNeverExpires))
    }
}

impl StepDraft<'_> {
    /// Records a correction; one that repeats becomes a rule.
    pub(super) fn correct(&mut self, what: RuleEffect) {
        self.say(ImmuneStep::Corrected { what: what.clone() });
        let known = self.state.corrections.iter().find(|c| c.what == what);
        let lately = known.map_or(0, |c| c.at.iter().filter(|at| self.now.since(**at) < WITHIN).count());
        let until = self.now + LEARNED_FOR;
        if lately < REPEATED || self.state.rules.iter().any(|r| r.what == what && r.until >= until) {
            return;
        }
        let id = self.state.next_rule;
        let why = format!("the same correction {lately} times");
        self.say(ImmuneStep::Ruled {
            rule: ImmuneRule { id, what, by: EXPERIENCE.to_owned(), why, since: self.now, until },
        });
    }
}
