//! Research: experiments on a metric. One change at a time is committed, measured, and kept or
//! discarded; the agent only edits.
//!
//! - [`metric`]: the number in a command's output
//! - [`sample`]: one measurement, and the kinds of crashes
//! - [`race`]: whether a candidate is better than the champion, or has to be measured again
//! - [`simplicity`]: gains that are not worth their code, and less code at the same metric
//! - [`pareto`]: the frontier where further metrics count
//! - [`ladder`]: what changes after many experiments without a keep
//! - [`idea`]: what the next experiment is about, and whether it was tried
//! - [`row`]: one experiment on record; [`summary`]: all of them in a few lines; [`chart`],
//!   [`report`]: the same as a picture and as a page; [`steps`]: what to do next
//! - [`shared`]: the findings of a run with several workers
//! - [`import`]: tables of other tools, for ideas that were tried
//! - [`judge`]: what a turn's work means for the run; [`prompt`]: what the next one is asked for

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::LoopId;
use crate::spec::CheckSpec;
use crate::test_evidence::Proof;

pub mod chart;
pub mod idea;
pub mod import;
pub mod judge;
pub mod ladder;
pub mod metric;
pub mod pareto;
pub mod prompt;
pub mod race;
pub mod report;
pub mod row;
pub mod sample;
pub mod shared;
pub mod simplicity;
pub mod state;
pub mod steps;
pub mod summary;

/// What makes a loop a research run. Its checks are the guards, which must not break.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResearchSpec {
    pub metric: MetricSpec,
    /// Globs of the files that experiments may change; empty for all that nothing protects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scope: Vec<String>,
    /// The run ends at the first champion that is at least this good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal_value: Option<f64>,
    #[serde(default)]
    pub rule: KeepRule,
    /// Whether small gains with much code are discarded, and less code at the same metric is kept.
    #[serde(default = "yes")]
    pub simplicity: bool,
    /// The run ends after this many experiments in a row without a keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<u32>,
    /// Strategies of the plan file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan: Vec<String>,
    /// Ideas of an earlier table, which decide nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<import::PastIdeas>,
    /// Lines that an experiment may add and remove.
    #[serde(default = "max_lines")]
    pub max_lines: u32,
    /// The file of the results, if not the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<String>,
    /// Experiments at a time.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub workers: u32,
    /// The loop that the run is named after, where several workers share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<LoopId>,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_one(n: &u32) -> bool {
    *n == 1
}

fn yes() -> bool {
    true
}

/// Lines that an experiment may add and remove, unless configured.
pub const MAX_LINES: u32 = 5_000;

fn max_lines() -> u32 {
    MAX_LINES
}

impl ResearchSpec {
    /// A run with this metric and the usual rules.
    pub fn new(metric: MetricSpec) -> Self {
        Self {
            metric,
            scope: Vec::new(),
            goal_value: None,
            rule: KeepRule::default(),
            simplicity: true,
            patience: None,
            plan: Vec::new(),
            history: None,
            max_lines: MAX_LINES,
            results: None,
            workers: 1,
            run: None,
        }
    }
}

/// The command that is measured, and how its output is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricSpec {
    /// The command, pinned like a check. Its timeout holds until a normal time is known.
    pub check: CheckSpec,
    pub direction: Direction,
    /// The `METRIC name=value` line that decides; otherwise the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where the number is in a JSON output, as `a.b.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json_path: Option<String>,
    /// A value outside of these bounds is an error of the metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// One measurement at a time on a machine.
    #[serde(default)]
    pub exclusive: bool,
    /// Further `METRIC` lines that count for the frontier.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pareto: Vec<pareto::SecondaryMetric>,
}

/// Time limit of a measurement before a normal time is known, unless configured.
const FIRST_LIMIT: Duration = Duration::from_secs(600);

/// Words in a metric's name or command that mean time or memory, which others disturb.
const DISTURBED: [&str; 10] =
    ["time", "latency", "_ms", "seconds", "speed", "throughput", "bench", "rss", "memory", "ops"];

impl MetricSpec {
    /// A command whose last number counts.
    pub fn new(run: String, direction: Direction) -> Self {
        let check = CheckSpec {
            name: "metric".to_owned(),
            run,
            timeout: FIRST_LIMIT,
            weight: 1,
            pin: String::new(),
            proof: Proof::default(),
            parallel: false,
        };
        Self {
            check,
            direction,
            name: None,
            json_path: None,
            min: None,
            max: None,
            exclusive: false,
            pareto: Vec::new(),
        }
    }

    /// Whether other measurements at the same time would disturb it, as far as its name and command
    /// show.
    pub fn is_disturbed(&self) -> bool {
        let words = format!("{} {}", self.name.as_deref().unwrap_or_default(), self.check.run).to_lowercase();
        DISTURBED.iter().any(|word| words.contains(word))
    }
}

/// Which values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    Lower,
    Higher,
}

impl Direction {
    /// Name in flags and files.
    pub fn label(self) -> &'static str {
        match self {
            Direction::Lower => "lower",
            Direction::Higher => "higher",
        }
    }

    /// How much better `new` is than `old`; negative when it is worse.
    pub fn gain(self, new: f64, old: f64) -> f64 {
        match self {
            Direction::Lower => old - new,
            Direction::Higher => new - old,
        }
    }

    /// Whether a value is at least as good as a goal.
    pub fn meets(self, value: f64, goal: f64) -> bool {
        self.gain(value, goal) >= 0.0
    }
}

/// When a candidate is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepRule {
    /// Candidate and champion are measured again until one of them is ahead beyond the noise.
    #[default]
    Race,
    /// One look decides, whatever the noise.
    Single,
    /// One look, better by two standard deviations.
    Sigma2,
    /// One look at a metric that never varies.
    Exact,
}

impl KeepRule {
    /// All rules, in the order of the reference.
    pub const ALL: [KeepRule; 4] = [KeepRule::Race, KeepRule::Single, KeepRule::Sigma2, KeepRule::Exact];

    /// Name in flags and files.
    pub fn label(self) -> &'static str {
        match self {
            KeepRule::Race => "race",
            KeepRule::Single => "single",
            KeepRule::Sigma2 => "sigma2",
            KeepRule::Exact => "exact",
        }
    }
}

/// Measurements that the normal time is the median of.
pub const TIMES_KEPT: usize = 10;

/// The time limit of a measurement: twice the normal time, and at least ten seconds more than it.
pub fn time_limit(times: &[u64], first: Duration) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let Some(normal) = sorted.get(sorted.len() / 2).copied().map(Duration::from_millis) else { return first };
    (normal * 2).max(normal + Duration::from_secs(10))
}

#[cfg(test)]
pub(crate) mod tests_support;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_twice_the_normal_time_and_at_least_ten_seconds_more() {
        let first = Duration::from_secs(600);
        assert_eq!(time_limit(&[], first), first);
        assert_eq!(time_limit(&[1_000], first), Duration::from_secs(11));
        assert_eq!(time_limit(&[60_000, 1, 60_000], first), Duration::from_secs(120));
    }

    #[test]
    fn time_and_memory_are_disturbed_by_others() {
        let of = |run: &str| MetricSpec::new(run.to_owned(), Direction::Lower).is_disturbed();
        assert!(of("./bench.sh") && of("/usr/bin/time -f %M app") && !of("stat -c %s app"));
    }

    #[test]
    fn better_is_what_the_direction_says() {
        assert!(Direction::Lower.gain(1.0, 2.0) > 0.0 && Direction::Higher.gain(1.0, 2.0) < 0.0);
        assert!(Direction::Lower.meets(2.0, 2.0) && !Direction::Higher.meets(1.9, 2.0));
    }
}
