//! Tells limits apart: a catalogue of rules, as data with ids, and how they are matched.
//!
//! A [`VendorRefusal`] is made by a parser from a record that the vendor's program wrote about itself. There is no way to make
//! one from an agent's words, a tool's input or its output, and that is the whole protection against agents that write
//! about limits.

mod catalogue;

use everloop_core::spec::AgentKind;
use everloop_core::stream::{LimitClass, VendorLimit};
use everloop_core::time::Time;
use jiff::tz::TimeZone;

pub use catalogue::CATALOGUE;

use super::{record, reset};

/// In which record of a CLI a refusal stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VendorRecord {
    /// A record about an allowance: claude's `rate_limit_event`.
    Allowance,
    /// A message that the CLI made up itself in the place of an answer: claude's `<synthetic>` ones.
    Synthetic,
    /// The last record of a turn that failed: claude's and gemini's `result`, codex's `turn.failed`.
    Result,
    /// An error record: codex's and opencode's `error`.
    Error,
    /// The exit code, where it has a meaning of its own: gemini.
    Exit,
    /// A notice that the CLI tries again by itself; gives a class, never a limit.
    Retry,
}

/// What a vendor's program said when it was not served.
#[derive(Clone, Debug)]
pub struct VendorRefusal<'a> {
    /// Which program.
    pub agent: AgentKind,
    /// In which record.
    pub record: VendorRecord,
    /// The HTTP status, where it is known.
    pub status: Option<u64>,
    /// Words for machines: `usage_limit_reached`, `five_hour`, `insufficient_quota`.
    pub codes: &'a [&'a str],
    /// Words for people.
    pub text: &'a str,
    /// The end of it, from a field of the record.
    pub reset_at: Option<Time>,
}

/// By what a refusal is recognised.
#[derive(Clone, Copy, Debug)]
pub enum RefusalSign {
    /// One of its codes is this.
    Code(&'static str),
    /// One of its codes begins so.
    CodeBegins(&'static str),
    /// Its status is in this range, ends included.
    Status(u64, u64),
    /// Its text has this in it; lower case, with plain apostrophes.
    Says(&'static str),
    /// Its text has both in it, in this order.
    SaysBoth(&'static str, &'static str),
}

/// Where its end is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// In a field of the record, then in its text.
    Told,
    /// Nowhere: nobody knows, and numbers in the text mean something else.
    Untold,
}

/// One rule.
#[derive(Clone, Copy, Debug)]
pub struct LimitRule {
    /// Stable; stands in journals.
    pub id: &'static str,
    /// Whose words these are; empty stands for everybody's.
    pub agents: &'static [AgentKind],
    /// In which records they count; empty stands for all.
    pub records: &'static [VendorRecord],
    /// Any of these is enough.
    pub signs: &'static [RefusalSign],
    /// What it is then.
    pub class: LimitClass,
    /// Where its end is looked for.
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

/// The first rule of the catalogue that fits.
fn find(refusal: &VendorRefusal<'_>) -> Option<&'static LimitRule> {
    // Vendors write both apostrophes, and change their minds about it.
    let text = refusal.text.to_lowercase().replace('\u{2019}', "'");
    CATALOGUE.iter().find(|rule| rule.fits(refusal, &text))
}

/// Which limit it is; `None` when it is none that we know, which an error of another kind is.
pub fn limit(refusal: &VendorRefusal<'_>, now: Time, zone: Option<&TimeZone>) -> Option<VendorLimit> {
    let rule = find(refusal)?;
    let reset_at = match rule.ends {
        Ends::Told => {
            refusal.reset_at.and_then(|t| reset::sane(t, now)).or_else(|| reset::told(refusal.text, now, zone))
        }
        Ends::Untold => None,
    };
    Some(VendorLimit { rule: rule.id.to_owned(), class: rule.class, reset_at, text: record::saying(refusal.text) })
}

/// Only its class.
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
