//! One experiment on record, and the table of all of them: `autoresearch-results.tsv`, which is only
//! appended to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::pareto::FrontierStep;
use super::{Direction, shared};
use crate::ids::{LoopId, TaskId};
use crate::time::Time;

/// The columns, in the order of the file.
pub const COLUMNS: [&str; 11] = [
    "iteration",
    "commit",
    "metric",
    "delta",
    "guard",
    "status",
    "description",
    "task_id",
    "duration_s",
    "agent",
    "cost_usd",
];

/// Digits of a commit in the table.
const COMMIT_DIGITS: usize = 12;

/// How an experiment came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The metric before the first experiment.
    Baseline,
    Keep,
    /// Kept, because it is shorter and not worse.
    Simpler,
    /// Not kept, and not dominated by anything on the frontier.
    Frontier,
    Discard,
    Crash,
    Timeout,
    NoOp,
    /// It changed what no experiment may change.
    Refused,
    /// The same change was measured before.
    Repeat,
    MetricError,
}

impl Status {
    /// All of them, in the order of the summary.
    pub const ALL: [Status; 11] = [
        Status::Baseline,
        Status::Keep,
        Status::Simpler,
        Status::Frontier,
        Status::Discard,
        Status::Crash,
        Status::Timeout,
        Status::NoOp,
        Status::Refused,
        Status::Repeat,
        Status::MetricError,
    ];

    /// Name in the table.
    pub fn label(self) -> &'static str {
        match self {
            Status::Baseline => "baseline",
            Status::Keep => "keep",
            Status::Simpler => "simpler",
            Status::Frontier => "frontier",
            Status::Discard => "discard",
            Status::Crash => "crash",
            Status::Timeout => "timeout",
            Status::NoOp => "no-op",
            Status::Refused => "refused",
            Status::Repeat => "repeat",
            Status::MetricError => "metric-error",
        }
    }

    /// Whether the experiment became the champion.
    pub fn keeps(self) -> bool {
        matches!(self, Status::Keep | Status::Simpler)
    }

    /// Whether its change is worth something: it was kept or put on the frontier.
    pub fn succeeds(self) -> bool {
        self.keeps() || self == Status::Frontier
    }
}

/// An experiment as it stands in the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Counts from 1; 0 is the baseline.
    pub number: u32,
    pub commit: Option<String>,
    /// The commit that the experiment began from.
    pub base: Option<String>,
    /// Mean of its measurements without the first look, which chose it; a crash has none.
    pub value: Option<f64>,
    /// Difference to the champion at that time.
    pub delta: Option<f64>,
    /// All values, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<f64>,
    /// Whether the guards passed; `None` when they did not run.
    pub guard: Option<bool>,
    pub status: Status,
    /// The change in one sentence; data.
    pub description: String,
    /// Why it was decided so.
    pub why: String,
    pub task: TaskId,
    /// Time of agent, guards and measurements.
    pub millis: u64,
    pub agent: String,
    pub microusd: u64,
    /// Further values of the metric's command.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, f64>,
    /// Turns that mended a crash of it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fixes: u32,
    /// The strategy of the plan that it was about, counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<u32>,
    /// Fingerprint of its difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<u64>,
    /// The chance that a keep is luck.
    #[serde(default)]
    pub luck: f64,
    /// How it changes the frontier; `None` if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frontier: Option<FrontierStep>,
    pub at: Time,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// The first two lines of the table.
pub fn header(direction: Direction) -> String {
    format!("# metric_direction: {}\n{}\n", direction.label(), COLUMNS.join("\t"))
}

impl Row {
    /// An experiment of which nothing else is known.
    pub fn new(number: u32, status: Status, task: TaskId, at: Time) -> Self {
        Self {
            number,
            commit: None,
            base: None,
            value: None,
            delta: None,
            samples: Vec::new(),
            guard: None,
            status,
            description: String::new(),
            why: String::new(),
            task,
            millis: 0,
            agent: String::new(),
            microusd: 0,
            others: BTreeMap::new(),
            fixes: 0,
            plan: None,
            hash: None,
            luck: 0.0,
            frontier: None,
            at,
        }
    }

    /// The row as a line of the table.
    pub fn line(&self) -> String {
        let number = |value: Option<f64>| value.map_or_else(String::new, short);
        let guard = match self.guard {
            Some(true) => "pass",
            Some(false) => "fail",
            None => "-",
        };
        let commit = self.commit.as_deref().unwrap_or("-");
        let cells = [
            self.number.to_string(),
            commit.chars().take(COMMIT_DIGITS).collect(),
            number(self.value),
            number(self.delta),
            guard.to_owned(),
            self.status.label().to_owned(),
            one_line(&self.description),
            self.task.to_string(),
            format!("{:.1}", self.millis as f64 / 1000.0),
            one_line(&self.agent),
            format!("{:.4}", self.microusd as f64 / 1e6),
        ];
        format!("{}\n", cells.join("\t"))
    }
}

/// A number with as many digits as tell it apart, at most nine after the point.
pub fn short(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-6 {
        return format!("{value:e}");
    }
    let text = format!("{value:.9}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_control()).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The number of the last whole row of a run in a table; `None` without one. Rows of other runs and
/// tools, and a row that a crash cut off, do not count.
pub fn last_number(table: &str, owner: &LoopId) -> Option<u32> {
    let task = COLUMNS.iter().position(|column| *column == "task_id")?;
    let whole = table.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.rev().find_map(|line| {
        let cells: Vec<&str> = line.trim_end().split('\t').collect();
        let own = cells.len() == COLUMNS.len() && shared::is_of(owner, cells[task]);
        own.then(|| cells[0].parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::tests_support::row;

    #[test]
    fn a_row_is_one_line_with_eleven_cells() {
        let mut row = row(7, Status::Keep, Some(12.5));
        row.description = "use a\ttable\ninstead of a loop".to_owned();
        row.delta = Some(-0.25);
        let line = row.line();
        assert_eq!(line.trim_end().split('\t').count(), COLUMNS.len());
        assert!(line.starts_with("7\tabc\t12.5\t-0.25\tpass\tkeep\tuse a table instead of a loop\t"), "{line}");
    }

    #[test]
    fn only_whole_rows_of_the_run_itself_count() {
        let line = row(7, Status::Keep, Some(12.5)).line();
        let (head, owner) = (header(Direction::Lower), LoopId::new("k3f9"));
        assert_eq!(last_number(&format!("{head}{line}"), &owner), Some(7));
        assert_eq!(last_number(&head, &owner), None);
        let cut = row(8, Status::Keep, Some(12.0)).line();
        assert_eq!(last_number(&format!("{head}{line}{}", &cut[..cut.len() - 5]), &owner), Some(7), "it was cut off");
        assert_eq!(last_number(&format!("{head}{line}"), &LoopId::new("x2y9")), None, "another run's");
    }

    #[test]
    fn a_crash_has_an_empty_cell_and_never_a_zero() {
        let line = row(1, Status::Crash, None).line();
        assert!(line.contains("\tabc\t\t\tpass\tcrash\t"), "{line}");
    }

    #[test]
    fn numbers_are_short_and_true() {
        for (value, text) in [(1.0, "1"), (0.5, "0.5"), (-2.25, "-2.25"), (0.0, "0"), (1e-12, "1e-12"), (100.0, "100")]
        {
            assert_eq!(short(value), text);
        }
    }
}
