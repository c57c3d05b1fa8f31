//! Evidence of a pass: the counts that a test runner prints, and what they say next to those of the
//! baseline. A pass without evidence is *suspicious*: not a pass.
//!
//! Nothing is inferred where the baseline had no counts that are known here, and nothing from the
//! part of an output that was not kept.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

mod runners;

use serde::{Deserialize, Serialize};

use crate::planted::{self, Bug};

/// What a check says itself about a true pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// A regular expression that the output has to match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// Tests that have to run, skipped ones not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_tests: Option<u32>,
}

impl Proof {
    /// Whether the check says nothing about it.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Tests of one run, as its runners count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Tests that ran, whatever their result.
    pub ran: u32,
    /// Tests that were skipped or expected to fail.
    pub skipped: u32,
    /// Failures in the last closing line: an earlier run may have been repeated.
    pub failed: u32,
}

/// The counts with which a pass is compared: those of the baseline or of later accepted work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    pub ran: u32,
    pub skipped: u32,
    /// The check passes although its runner reports failures, because its command is made so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failures_pass: bool,
    /// `ran` counts packages, because the runner did not name tests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub packages: bool,
    /// Packages that passed without a word of their own, or could not be built.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub silent: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The output of one run.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    /// Its beginning and, if a part is missing, nothing else.
    pub head: &'a str,
    /// Its end; `None` when `head` is all of it.
    pub tail: Option<&'a str>,
}

impl<'a> Output<'a> {
    /// An output of which everything was kept.
    pub fn whole(text: &'a str) -> Self {
        Self { head: text, tail: None }
    }
}

/// What was read in an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// `None`: no closing line of a known runner.
    pub counts: Option<Counts>,
    /// A runner began and has no closing line.
    pub unclosed: bool,
    /// A part of the output is missing, so there may have been more tests.
    pub cut: bool,
    /// The counts are of packages.
    pub packages: bool,
    /// Packages that passed although their tests did not say so.
    pub silent: u32,
    /// Packages that could not be built.
    pub unbuilt: u32,
}

/// Reads the counts of all runners that the output shows.
pub fn read(output: Output<'_>) -> Reading {
    let head = runners::read(output.head);
    let Some(tail) = output.tail else { return head };
    // A runner that began in the head may have ended where nothing was kept.
    let end = runners::read(tail);
    let counts = match (head.counts, end.counts) {
        (Some(a), Some(b)) => Some(runners::sum(a, b)),
        (a, b) => a.or(b),
    };
    let (silent, unbuilt) = (head.silent.saturating_add(end.silent), head.unbuilt.saturating_add(end.unbuilt));
    Reading { counts, unclosed: end.unclosed, cut: true, packages: head.packages && end.packages, silent, unbuilt }
}

/// Why a passed run proves nothing; `None` when it is a pass.
pub fn doubt(proof: &Proof, reference: Option<&Reference>, reading: &Reading) -> Option<String> {
    if planted::is(Bug::CountsIgnored) {
        return None;
    }
    if let Some(least) = proof.min_tests {
        match reading.counts {
            None => return Some(format!("no count of tests in its output, and {least} have to run")),
            Some(counts) if ran(&counts) < least => {
                return Some(format!("{} ran, and {least} have to", tests(ran(&counts))));
            }
            Some(_) => {}
        }
    }
    if reading.unclosed {
        return Some("the runner began and did not come to its closing line".to_owned());
    }
    let reference = reference?;
    let Some(counts) = reading.counts else {
        return Some("the runner's closing line, which was there before, is missing".to_owned());
    };
    if counts.failed > 0 && !reference.failures_pass {
        return Some(format!("the runner reports {} although the check passes", failures(counts.failed)));
    }
    if reading.silent > reference.silent && !planted::is(Bug::SilentPackagesPass) {
        let more = reading.silent - reference.silent;
        return Some(format!(
            "{more} package{} passed without a report of its tests",
            if more == 1 { "" } else { "s" }
        ));
    }
    let missing = reference.ran.saturating_sub(ran(&counts));
    if reading.cut {
        return None;
    }
    if missing == 0 {
        let unnamed = reading.packages && !reference.packages;
        return unnamed.then(|| "the runner names no test, as it did before".to_owned());
    }
    if counts.skipped > reference.skipped {
        let skipped = counts.skipped - reference.skipped;
        return Some(format!("{} skipped that ran before", are(skipped.min(missing))));
    }
    Some(format!("{} ran, and {} before", tests(ran(&counts)), reference.ran))
}

fn ran(counts: &Counts) -> u32 {
    counts.ran.saturating_add(if planted::is(Bug::SkippedCountAsRun) { counts.skipped } else { 0 })
}

fn tests(n: u32) -> String {
    format!("{n} test{}", if n == 1 { "" } else { "s" })
}

fn are(n: u32) -> String {
    format!("{} {}", tests(n), if n == 1 { "is" } else { "are" })
}

fn failures(n: u32) -> String {
    format!("{n} failure{}", if n == 1 { "" } else { "s" })
}

/// The reference after a run: the first run sets it, a later pass may only raise it.
pub fn reference(before: Option<Option<Reference>>, reading: &Reading, passed: bool) -> Option<Reference> {
    let now = reading.counts.map(|counts| Reference {
        ran: counts.ran,
        skipped: counts.skipped,
        failures_pass: passed && counts.failed > 0,
        packages: reading.packages,
        silent: reading.silent.saturating_add(reading.unbuilt),
    });
    match before {
        Some(old) if !passed => old,
        // Work that is accepted later makes counts known that the baseline had not, when it could
        // not be built.
        None | Some(None) => now,
        Some(Some(old)) => {
            let skipped = now.map_or(old.skipped, |now| now.skipped);
            let packages = old.packages && now.is_none_or(|now| now.packages);
            Some(Reference { ran: old.ran.max(now.map_or(0, |now| now.ran)), skipped, packages, ..old })
        }
    }
}

#[cfg(test)]
mod tests;
