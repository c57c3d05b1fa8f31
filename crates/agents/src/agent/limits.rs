//! Classifies limits: a catalogue of rules, as data with ids, and how they are matched.
//!
//! A [`VendorRefusal`] is built by a parser from a record that the vendor's program wrote about
//! itself. It cannot be built from the model's text, a tool's input or its output; this is the
//! whole protection against agents that write about limits.

mod catalogue;
mod texts;

use everloop_core::spec::AgentKind;
use everloop_core::stream::{LimitClass, VendorLimit};
use everloop_core::time::Time;
use jiff::tz::TimeZone;

pub use catalogue::CATALOGUE;
pub use texts::TEXT_DIALECTS;

use super::{record, reset};

/// The record of a CLI that contains a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VendorRecord {
    /// A record about an allowance: claude's `rate_limit_event`.
    Allowance,
    /// A message that the CLI generated in place of an answer: claude's `<synthetic>` ones.
    Synthetic,
    /// The last record of a failed turn: claude's and gemini's `result`, codex's `turn.failed`.
    Result,
    /// An error record: codex's and opencode's `error`.
    Error,
    /// The exit code, where it has a meaning of its own: gemini.
    Exit,
    /// A notice that the CLI retries by itself; gives a class, never a limit.
    Retry,
}

/// A refused request, as the vendor's program reported it.
#[derive(Clone, Debug)]
pub struct VendorRefusal<'a> {
    pub agent: AgentKind,
    pub record: VendorRecord,
    /// The HTTP status, where it is known.
    pub status: Option<u64>,
    /// Codes for programs: `usage_limit_reached`, `five_hour`, `insufficient_quota`.
    pub codes: &'a [&'a str],
    /// The message for people.
    pub text: &'a str,
    /// The end of the limit, from a field of the record.
    pub reset_at: Option<Time>,
}

/// The part of a refusal that a rule matches.
#[derive(Clone, Copy, Debug)]
pub enum RefusalSign {
    /// One of its codes equals this.
    Code(&'static str),
    /// One of its codes begins with this.
    CodeBegins(&'static str),
    /// Its status is in this range, ends included.
    Status(u64, u64),
    /// Its text contains this; lower case, with plain apostrophes.
    Says(&'static str),
    /// Its text contains both, in this order.
    SaysBoth(&'static str, &'static str),
}

/// Where the end of a limit is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// In a field of the record, then in its text.
    Told,
    /// In the record, else at the next midnight of this zone.
    Midnight(&'static str),
    /// Nowhere: the end is unknown, and numbers in the text mean something else.
    Untold,
}

/// Recognises one limit: where its signs count, and which class it is then.
#[derive(Clone, Copy, Debug)]
pub struct LimitRule {
    /// Stable, because it is written to journals.
    pub id: &'static str,
    /// The CLIs that it applies to; empty means all.
    pub agents: &'static [AgentKind],
    /// The records that it applies to; empty means all.
    pub records: &'static [VendorRecord],
    /// One match is enough.
    pub signs: &'static [RefusalSign],
    pub class: LimitClass,
    pub ends: Ends,
}

impl LimitRule {
    fn fits(&self, refusal: &VendorRefusal<'_>, text: &str) -> bool {
        let agent = self.agents.is_empty() || self.agents.contains(&refusal.agent);
        let record = self.records.is_empty() || self.records.contains(&refusal.record);
        agent && record && self.signs.iter().any(|sign| sign.fits(refusal, text))
    }
}

impl RefusalSign {
    fn fits(self, refusal: &VendorRefusal<'_>, text: &str) -> bool {
        match self {
            RefusalSign::Code(code) => refusal.codes.contains(&code),
            RefusalSign::CodeBegins(begin) => refusal.codes.iter().any(|c| c.starts_with(begin)),
            RefusalSign::Status(from, to) => refusal.status.is_some_and(|s| (from..=to).contains(&s)),
            RefusalSign::Says(words) => text.contains(words),
            RefusalSign::SaysBoth(first, then) => text.split_once(first).is_some_and(|(_, rest)| rest.contains(then)),
        }
    }
}

fn find(refusal: &VendorRefusal<'_>) -> Option<&'static LimitRule> {
    // Vendors use both apostrophes, and change between releases.
    let text = refusal.text.to_lowercase().replace('\u{2019}', "'");
    CATALOGUE.iter().find(|rule| rule.fits(refusal, &text))
}

/// The limit that a refusal stands for; `None` when no rule matches, as for other errors.
pub fn limit(refusal: &VendorRefusal<'_>, now: Time, zone: Option<&TimeZone>) -> Option<VendorLimit> {
    let rule = find(refusal)?;
    let told = || refusal.reset_at.and_then(|t| reset::sane(t, now)).or_else(|| reset::told(refusal.text, now, zone));
    let reset_at = match rule.ends {
        Ends::Told => told(),
        Ends::Midnight(zone) => told().or_else(|| reset::midnight(zone, now)),
        Ends::Untold => None,
    };
    Some(VendorLimit { rule: rule.id.to_owned(), class: rule.class, reset_at, text: record::saying(refusal.text) })
}

/// The class alone, without an end.
pub fn class(refusal: &VendorRefusal<'_>) -> Option<LimitClass> {
    find(refusal).map(|rule| rule.class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_unique_and_needles_can_be_found() {
        let ids: BTreeSet<_> = CATALOGUE.iter().map(|r| r.id).collect();
        assert_eq!(ids.len(), CATALOGUE.len());
        for rule in CATALOGUE {
            assert!(!rule.signs.is_empty(), "{}", rule.id);
            for sign in rule.signs {
                if let RefusalSign::Says(words) = sign {
                    assert_eq!(words.to_lowercase(), *words, "{}", rule.id);
                    assert!(words.len() >= 8, "{}: `{words}` is too short to be sure", rule.id);
                }
            }
        }
    }
}
