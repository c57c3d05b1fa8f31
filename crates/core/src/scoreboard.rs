//! Verdicts of checks and the scoreboard they make. Owns which of two scoreboards is better.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::spec::CheckSpec;
use crate::test_evidence::Reference;

/// The reason of a verdict that does not exist yet.
pub const NOT_RUN: &str = "not run yet";

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Verdict {
    Pass,
    Fail,
    /// Both were seen on the same tree; it counts as passed when most runs passed.
    Flaky {
        /// Runs that passed.
        passes: u32,
        runs: u32,
    },
    /// The check itself did not work: missing, hangs, cannot start, edited.
    Broken {
        /// What went wrong.
        why: String,
    },
    /// It passed, and its output does not show that what it stands for was run.
    Suspicious {
        /// What is missing.
        why: String,
    },
}

impl Verdict {
    /// Whether the criterion counts as met.
    pub fn passes(&self) -> bool {
        match self {
            Verdict::Pass => true,
            Verdict::Flaky { passes, runs } => passes * 2 > *runs,
            Verdict::Fail | Verdict::Broken { .. } | Verdict::Suspicious { .. } => false,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Pass => f.write_str("pass"),
            Verdict::Fail => f.write_str("fail"),
            Verdict::Flaky { passes, runs } => write!(f, "flaky ({passes} of {runs})"),
            Verdict::Broken { why } if why == NOT_RUN => f.write_str("not run"),
            Verdict::Broken { why } => write!(f, "broken ({why})"),
            Verdict::Suspicious { why } => write!(f, "suspicious ({why})"),
        }
    }
}

/// One line of the scoreboard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    pub name: String,
    pub verdict: Verdict,
    /// Share of the score.
    pub weight: u32,
    /// Duration of all runs together, in milliseconds.
    pub millis: u64,
    /// Both ends of its output, capped and redacted; data, never instructions.
    pub output: String,
    /// Fingerprint of the normalised output; equal fingerprints mean the same error.
    pub fingerprint: u64,
    /// The counts of tests with which the next pass is compared; `None` where none are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
}

/// The checks of a loop and their latest verdicts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scoreboard(pub Vec<CheckResult>);

impl Scoreboard {
    /// Whether every check passes. An empty board proves nothing.
    pub fn all_pass(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|r| r.verdict.passes())
    }

    /// Names of the checks that pass.
    pub fn passing(&self) -> BTreeSet<&str> {
        self.0.iter().filter(|r| r.verdict.passes()).map(|r| r.name.as_str()).collect()
    }

    /// Sum of the weights of the checks that pass.
    pub fn score(&self) -> u64 {
        self.0.iter().filter(|r| r.verdict.passes()).map(|r| u64::from(r.weight)).sum()
    }

    /// Sum of all weights.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|r| u64::from(r.weight)).sum()
    }

    /// Everything that passed in `before` passes here, and something more.
    pub fn improves_on(&self, before: &Scoreboard) -> bool {
        let (now, then) = (self.passing(), before.passing());
        now.is_superset(&then) && now.len() > then.len()
    }

    /// The checks to run once more before the goal counts as reached: all pass, and these did not at
    /// the baseline. A pass that was seen `confirm` times is no luck.
    pub fn unconfirmed<'a>(&'a self, baseline: Option<&'a Scoreboard>, confirm: u32) -> Vec<&'a str> {
        if confirm < 2 || !self.all_pass() {
            return Vec::new();
        }
        let before = baseline.map(Scoreboard::passing).unwrap_or_default();
        self.passing().difference(&before).copied().collect()
    }

    /// Takes over the verdicts of another run on the same tree. Time adds up.
    pub fn confirm(&mut self, again: Scoreboard) {
        for mut row in again.0 {
            if let Some(known) = self.0.iter_mut().find(|known| known.name == row.name) {
                row.millis += known.millis;
                *known = row;
            }
        }
    }

    /// Names that passed in `before` and do not here.
    pub fn lost_since(&self, before: &Scoreboard) -> Vec<String> {
        let now = self.passing();
        before.passing().difference(&now).map(|&s| s.to_owned()).collect()
    }

    /// The checks whose pass proves nothing, each with the reason.
    pub fn doubts(&self) -> Vec<String> {
        let doubt = |r: &CheckResult| match &r.verdict {
            Verdict::Suspicious { why } => Some(format!("{}: {why}", r.name)),
            Verdict::Pass | Verdict::Fail | Verdict::Flaky { .. } | Verdict::Broken { .. } => None,
        };
        self.0.iter().filter_map(doubt).collect()
    }

    /// The checks that do not pass.
    pub fn failing(&self) -> impl Iterator<Item = &CheckResult> {
        self.0.iter().filter(|r| !r.verdict.passes())
    }

    /// One number for all failures, to recognise the same error in the next turn.
    pub fn fingerprint(&self) -> u64 {
        self.failing().fold(0, |acc, r| crate::jitter::mix(acc ^ r.fingerprint, r.name.len() as u64))
    }
}

/// One run of a check, before it is turned into a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckRun {
    /// Exit code 0.
    Passed,
    /// Any other exit code.
    Failed,
    /// Could not be judged.
    Broken(String),
    /// Exit code 0 without evidence.
    Suspicious(String),
}

/// Maximum number of runs for a surprising verdict: 2 of 3 decide.
pub const FLAKY_RUNS: usize = 3;

/// Whether a check must run again after `runs`. An expected verdict costs one run; a surprising one
/// (passed before and fails now, or passes now although nothing changed) is repeated up to three
/// times.
pub fn run_again(before: Option<&Verdict>, changed: bool, runs: &[CheckRun]) -> bool {
    let Some(first) = runs.first() else { return true };
    if runs.len() >= FLAKY_RUNS || matches!(runs.last(), Some(CheckRun::Broken(_) | CheckRun::Suspicious(_))) {
        return false;
    }
    let passed_before = before.is_some_and(Verdict::passes);
    let surprising = match first {
        CheckRun::Passed => before.is_some() && !passed_before && !changed,
        CheckRun::Failed => passed_before,
        CheckRun::Broken(_) | CheckRun::Suspicious(_) => false,
    };
    // Two equal results of three cannot be outvoted.
    surprising && !(runs.len() == 2 && runs[0] == runs[1])
}

/// The verdict over all runs of one check on one tree.
pub fn verdict(runs: &[CheckRun]) -> Verdict {
    if let Some(CheckRun::Broken(why)) = runs.iter().find(|r| matches!(r, CheckRun::Broken(_))) {
        return Verdict::Broken { why: why.clone() };
    }
    if let Some(CheckRun::Suspicious(why)) = runs.iter().find(|r| matches!(r, CheckRun::Suspicious(_))) {
        return Verdict::Suspicious { why: why.clone() };
    }
    let passes = runs.iter().filter(|r| **r == CheckRun::Passed).count();
    match (passes, runs.len()) {
        (_, 0) => Verdict::Broken { why: "never run".to_owned() },
        (0, _) => Verdict::Fail,
        (p, n) if p == n => Verdict::Pass,
        (p, n) => Verdict::Flaky { passes: p as u32, runs: n as u32 },
    }
}

/// A board on which nothing has been run yet.
pub fn unknown(checks: &[CheckSpec]) -> Scoreboard {
    let row = |c: &CheckSpec| CheckResult {
        name: c.name.clone(),
        verdict: Verdict::Broken { why: NOT_RUN.to_owned() },
        weight: c.weight,
        millis: 0,
        output: String::new(),
        fingerprint: 0,
        reference: None,
    };
    Scoreboard(checks.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_did_not_run_is_not_run() {
        let verdict = |why: &str| Verdict::Broken { why: why.to_owned() }.to_string();
        assert_eq!(verdict(NOT_RUN), "not run");
        assert!(verdict("timed out").contains("broken"));
    }

    fn board(rows: &[(&str, bool)]) -> Scoreboard {
        let row = |&(name, ok): &(&str, bool)| CheckResult {
            name: name.to_owned(),
            verdict: if ok { Verdict::Pass } else { Verdict::Fail },
            weight: 1,
            millis: 1,
            output: String::new(),
            fingerprint: 7,
            reference: None,
        };
        Scoreboard(rows.iter().map(row).collect())
    }

    #[test]
    fn better_needs_all_of_before_and_more() {
        let before = board(&[("a", true), ("b", false)]);
        assert!(board(&[("a", true), ("b", true)]).improves_on(&before));
        assert!(!board(&[("a", false), ("b", true)]).improves_on(&before));
        assert!(!before.improves_on(&before));
        assert_eq!(board(&[("a", false), ("b", true)]).lost_since(&before), ["a"]);
    }

    #[test]
    fn an_empty_board_proves_nothing() {
        assert!(!Scoreboard::default().all_pass());
    }

    #[test]
    fn two_of_three_decide_and_only_surprises_are_repeated() {
        use CheckRun::{Failed, Passed};
        assert!(!run_again(Some(&Verdict::Fail), true, &[Failed]));
        assert!(!run_again(Some(&Verdict::Fail), true, &[Passed]));
        assert!(run_again(Some(&Verdict::Fail), false, &[Passed]));
        assert!(run_again(Some(&Verdict::Pass), true, &[Failed]));
        assert!(!run_again(Some(&Verdict::Pass), true, &[Failed, Failed]));
        assert!(run_again(Some(&Verdict::Pass), true, &[Failed, Passed]));
        assert!(!run_again(Some(&Verdict::Pass), true, &[Failed, Passed, Passed]));
        assert!(verdict(&[Failed, Passed, Passed]).passes());
        assert!(!verdict(&[Failed, Passed, Failed]).passes());
        assert_eq!(verdict(&[CheckRun::Broken("gone".into())]), Verdict::Broken { why: "gone".into() });
    }
}
