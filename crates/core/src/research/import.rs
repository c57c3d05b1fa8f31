//! Tables of other tools and older headers: what was tried before a run. Their rows decide nothing
//! and are no part of the champion; their descriptions are data for the prompt.

use serde::{Deserialize, Serialize};

use super::Direction;
use super::row::short;
use crate::picture::svg::fit;

/// A larger table is refused: its summary and its latest ideas do not need more, and it is held in
/// memory. At 200 bytes a row this is 40,000 experiments.
pub const MAX_BYTES: usize = 8 << 20;
/// Columns of a description that are kept, as of an own one.
const DESCRIPTION_COLUMNS: usize = 200;
/// Ideas of each kind that a run takes over, as many as the prompt lists of its own.
const IDEAS_KEPT: usize = 20;

/// A table that was read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct History {
    /// Which values are better, where the table has a line about it.
    pub direction: Option<Direction>,
    pub rows: Vec<PastRow>,
}

/// A row of such a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PastRow {
    /// As the table counts; without such a column the place among the rows, from 0.
    pub number: u32,
    pub commit: Option<String>,
    /// `None` for an empty cell, and for a crash whatever its cell holds.
    pub value: Option<f64>,
    pub outcome: PastOutcome,
    /// The change in one sentence; data.
    pub description: String,
}

/// How a past experiment came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PastOutcome {
    Baseline,
    Kept,
    /// Measured and not kept.
    Discarded,
    /// It has no value.
    Failed,
}

/// What a run takes over from a table, the newest first; data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PastIdeas {
    pub kept: Vec<String>,
    pub failed: Vec<String>,
}

/// Why a table cannot be read, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}{}: {why}", .column.as_ref().map_or_else(String::new, |(at, name)| format!(", column {at} (`{name}`)")))]
pub struct ImportError {
    pub line: usize,
    /// Its place, counted from 1, and its name.
    pub column: Option<(usize, String)>,
    pub why: String,
    pub hint: String,
}

/// Names of a column in the tables that are known, ours first.
const ITERATION: &[&str] = &["iteration", "iter", "experiment", "number", "n"];
const COMMIT: &[&str] = &["commit", "hash", "sha"];
const METRIC: &[&str] = &["metric", "value", "score", "val_bpb", "val_loss", "result"];
const STATUS: &[&str] = &["status", "outcome", "decision"];
const DESCRIPTION: &[&str] = &["description", "change", "idea", "summary"];

/// Words of a status.
const STATUSES: &[(PastOutcome, &[&str])] = &[
    (PastOutcome::Baseline, &["baseline"]),
    (PastOutcome::Kept, &["keep", "kept", "simpler", "frontier"]),
    (PastOutcome::Discarded, &["discard", "discarded", "revert", "reverted", "rejected"]),
    (
        PastOutcome::Failed,
        &[
            "crash",
            "crashed",
            "timeout",
            "no-op",
            "noop",
            "refused",
            "repeat",
            "metric-error",
            "hook-blocked",
            "error",
            "failed",
        ],
    ),
];

/// Cells that hold no number.
const NO_VALUE: [&str; 5] = ["", "-", "n/a", "na", "nan"];

/// Where the columns of a table are.
struct Columns {
    names: Vec<String>,
    iteration: Option<usize>,
    commit: Option<usize>,
    metric: usize,
    status: usize,
    description: Option<usize>,
}

/// A line of a table with its number, counted from 1.
struct Line<'a> {
    number: usize,
    cells: Vec<&'a str>,
}

impl Columns {
    fn read(line: &Line<'_>) -> Result<Self, ImportError> {
        let names: Vec<String> = line.cells.iter().map(|cell| cell.to_lowercase().replace(' ', "_")).collect();
        let find = |known: &[&str]| known.iter().find_map(|name| names.iter().position(|found| found == name));
        let needed = |known: &[&str]| {
            find(known).ok_or_else(|| ImportError {
                line: line.number,
                column: None,
                why: format!("no column is named `{}`; there are {}", known.join("`, `"), shown(&names)),
                hint: "the first line that is no comment names the columns, with tabs between them".to_owned(),
            })
        };
        let (metric, status) = (needed(METRIC)?, needed(STATUS)?);
        let (iteration, commit, description) = (find(ITERATION), find(COMMIT), find(DESCRIPTION));
        Ok(Self { names, iteration, commit, metric, status, description })
    }

    fn wrong(&self, line: &Line<'_>, at: usize, (why, hint): (String, &str)) -> ImportError {
        ImportError { line: line.number, column: Some((at + 1, self.names[at].clone())), why, hint: hint.to_owned() }
    }

    /// A cell that the row must have.
    fn cell<'a>(&self, line: &Line<'a>, at: usize) -> Result<&'a str, ImportError> {
        line.cells.get(at).copied().ok_or_else(|| {
            let why = format!("there is no such cell: the line has {} of {}", line.cells.len(), self.names.len());
            self.wrong(line, at, (why, "the line may have been cut off: remove or complete it"))
        })
    }

    fn row(&self, line: &Line<'_>, place: usize) -> Result<PastRow, ImportError> {
        let optional = |at: Option<usize>| at.and_then(|at| line.cells.get(at)).copied().unwrap_or_default();
        let outcome = self.outcome(line)?;
        let value = self.value(line)?.filter(|_| outcome != PastOutcome::Failed);
        let number = match (self.iteration, optional(self.iteration)) {
            (Some(at), text) if !text.is_empty() => text.parse().map_err(|_| {
                let why = format!("`{}` is no number of an experiment", fit(text, 40));
                self.wrong(line, at, (why, "experiments are counted 0, 1, 2, …"))
            })?,
            _ => u32::try_from(place).unwrap_or(u32::MAX),
        };
        let commit = Some(optional(self.commit)).filter(|text| !text.is_empty() && *text != "-");
        Ok(PastRow {
            number,
            commit: commit.map(|text| fit(text, 40)),
            value,
            outcome,
            description: fit(&self.description(line), DESCRIPTION_COLUMNS),
        })
    }

    /// The description; as the last column it may hold tabs.
    fn description(&self, line: &Line<'_>) -> String {
        let Some(at) = self.description else { return String::new() };
        let is_last = at + 1 == self.names.len();
        let rest = line.cells.get(at..).unwrap_or_default();
        if is_last { rest.join(" ") } else { rest.first().copied().unwrap_or_default().to_owned() }
    }

    fn outcome(&self, line: &Line<'_>) -> Result<PastOutcome, ImportError> {
        let text = self.cell(line, self.status)?;
        // `keep (reworked)` is a keep.
        let word = text.split([' ', '(', ':']).next().unwrap_or_default().to_lowercase().replace('_', "-");
        let found = STATUSES.iter().find(|(_, words)| words.contains(&word.as_str()));
        found.map(|(outcome, _)| *outcome).ok_or_else(|| {
            let why = format!("`{}` is no known status", fit(text, 40));
            self.wrong(line, self.status, (why, "it is baseline, keep, discard, crash, timeout or no-op"))
        })
    }

    fn value(&self, line: &Line<'_>) -> Result<Option<f64>, ImportError> {
        let text = self.cell(line, self.metric)?;
        if NO_VALUE.contains(&text.to_lowercase().as_str()) {
            return Ok(None);
        }
        let value = text.parse::<f64>().ok().filter(|value| value.is_finite());
        value.map(Some).ok_or_else(|| {
            let why = format!("`{}` is no finite number", fit(text, 40));
            self.wrong(line, self.metric, (why, "an experiment without a value has an empty cell"))
        })
    }
}

fn shown(names: &[String]) -> String {
    fit(&format!("`{}`", names.join("`, `")), 200)
}

/// Reads a table. Lines that begin with `#` are comments, of which one may name the direction.
pub fn read(table: &str) -> Result<History, ImportError> {
    let nowhere = |why: String, hint: &str| ImportError { line: 1, column: None, why, hint: hint.to_owned() };
    if table.len() > MAX_BYTES {
        let why = format!("the table has {} bytes, and at most {MAX_BYTES} are read", table.len());
        return Err(nowhere(
            why,
            "keep its header and the latest rows: (head -n 2 FILE; tail -n 1000 FILE) > short.tsv",
        ));
    }
    let (mut direction, mut columns, mut rows) = (None, None::<Columns>, Vec::new());
    let mut head = "";
    for (at, text) in table.trim_start_matches('\u{feff}').lines().enumerate() {
        let text = text.trim_end_matches('\r');
        if let Some(comment) = text.strip_prefix('#') {
            direction = direction_of(comment, at + 1)?.or(direction);
            continue;
        }
        // A table that was begun again has its header twice.
        if text.trim().is_empty() || text == head {
            continue;
        }
        let line = Line { number: at + 1, cells: text.split('\t').map(str::trim).collect() };
        if let Some(columns) = &columns {
            rows.push(columns.row(&line, rows.len())?);
        } else {
            (columns, head) = (Some(Columns::read(&line)?), text);
        }
    }
    if columns.is_none() {
        return Err(nowhere(
            "the table is empty".to_owned(),
            "its first line names the columns: iteration, metric, status",
        ));
    }
    Ok(History { direction, rows })
}

/// The direction in a comment such as `metric_direction: lower`.
fn direction_of(comment: &str, line: usize) -> Result<Option<Direction>, ImportError> {
    let Some(way) = comment.trim().strip_prefix("metric_direction:").map(str::trim) else { return Ok(None) };
    let all = [Direction::Lower, Direction::Higher];
    // Some tools write `lower_is_better`.
    let found = all.into_iter().find(|known| way.split('_').next() == Some(known.label()));
    found.map(Some).ok_or_else(|| ImportError {
        line,
        column: None,
        why: format!("`{}` is no direction", fit(way, 40)),
        hint: "it is `# metric_direction: lower` or `higher`".to_owned(),
    })
}

impl History {
    /// Rows that were kept.
    pub fn keeps(&self) -> usize {
        self.rows.iter().filter(|row| row.outcome == PastOutcome::Kept).count()
    }

    /// The best row that was kept, or the baseline; without a direction the last one, because a keep
    /// is better than all before.
    pub fn best(&self) -> Option<&PastRow> {
        let leads = |row: &&PastRow| matches!(row.outcome, PastOutcome::Kept | PastOutcome::Baseline);
        let mut leading = self.rows.iter().filter(leads).filter(|row| row.value.is_some());
        let value = |row: &PastRow| row.value.unwrap_or_default();
        match self.direction {
            Some(Direction::Lower) => leading.min_by(|a, b| value(a).total_cmp(&value(b))),
            Some(Direction::Higher) => leading.max_by(|a, b| value(a).total_cmp(&value(b))),
            None => leading.next_back(),
        }
    }

    /// What a run takes over: the newest ideas of each kind.
    pub fn ideas(&self) -> PastIdeas {
        let named = |row: &&PastRow| !row.description.is_empty();
        let told = |row: &PastRow| {
            let value = row.value.map_or_else(String::new, |value| format!(" -> {}", short(value)));
            format!("{}{value}", row.description)
        };
        let newest = |outcomes: &[PastOutcome]| {
            let rows = self.rows.iter().rev().filter(|row| outcomes.contains(&row.outcome));
            rows.filter(named).take(IDEAS_KEPT).map(told).collect()
        };
        PastIdeas { kept: newest(&[PastOutcome::Kept]), failed: newest(&[PastOutcome::Discarded, PastOutcome::Failed]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::row::{Status, header};
    use crate::research::tests_support::row;

    const KARPATHY: &str = "commit\tval_bpb\tmemory_gb\tstatus\tdescription\n\
        a1b2c3d\t0.997900\t44.0\tkeep\tbaseline\n\
        b2c3d4e\t0.993200\t44.2\tkeep\tincrease LR to 0.04\n\
        c3d4e5f\t1.005000\t44.0\tdiscard\tswitch to GeLU activation\n\
        d4e5f6g\t0.000000\t0.0\tcrash\tdouble model width (OOM)\n";

    #[test]
    fn a_table_of_another_tool_is_read() {
        let found = read(KARPATHY).unwrap();
        assert_eq!((found.rows.len(), found.keeps(), found.direction), (4, 2, None));
        let best = found.best().unwrap();
        assert_eq!((best.number, best.value, best.commit.as_deref()), (1, Some(0.9932), Some("b2c3d4e")));
        assert_eq!(found.rows[3].value, None, "a crash has no value, whatever its cell holds");
        let ideas = found.ideas();
        assert_eq!(ideas.kept, ["increase LR to 0.04 -> 0.9932", "baseline -> 0.9979"]);
        assert_eq!(ideas.failed, ["double model width (OOM)", "switch to GeLU activation -> 1.005"]);
    }

    #[test]
    fn an_own_table_is_read_as_it_was_written() {
        let rows = [
            row(0, Status::Baseline, Some(10.0)),
            row(1, Status::Keep, Some(8.0)),
            row(2, Status::Simpler, Some(8.5)),
            row(3, Status::MetricError, None),
            row(4, Status::NoOp, None),
        ];
        let table: String =
            std::iter::once(header(Direction::Lower)).chain(rows.iter().map(crate::research::row::Row::line)).collect();
        let found = read(&table).unwrap();
        assert_eq!(found.direction, Some(Direction::Lower));
        assert_eq!(found.best().map(|row| (row.number, row.value)), Some((1, Some(8.0))));
        for status in Status::ALL {
            assert!(
                read(&format!("{}{}", header(Direction::Lower), row(1, status, None).line())).is_ok(),
                "{status:?}"
            );
        }
    }

    #[test]
    fn columns_may_stand_in_any_order_and_lines_end_in_any_way() {
        for table in [
            "# metric_direction: higher_is_better\r\nstatus\tScore\tchange\titer\r\nkeep\t5\tx\t7\r\n",
            "\u{feff}# metric_direction: higher\niter\tvalue\tstatus\tchange\n7\t5\tkeep (reworked)\tx",
            "# metric_direction: higher\nmetric\tval_bpb\tstatus\titeration\tidea\n5\t9\tKEPT\t7\tx\n\n",
            "# metric_direction: higher\niter\tvalue\tstatus\tchange\n\n7\t5\tkeep\tx\niter\tvalue\tstatus\tchange\n",
        ] {
            let found = read(table).unwrap_or_else(|wrong| panic!("{table:?}: {wrong}"));
            let row = PastRow {
                number: 7,
                commit: None,
                value: Some(5.0),
                outcome: PastOutcome::Kept,
                description: "x".to_owned(),
            };
            assert_eq!(found, History { direction: Some(Direction::Higher), rows: vec![row] }, "{table:?}");
        }
    }

    #[test]
    fn empty_cells_have_no_value_and_a_description_may_hold_tabs() {
        let table = "iter\tmetric\tstatus\tdescription\n1\t\tdiscard\ta\tb\n2\t-\tkeep\n3\tNaN\tcrash\tx\u{1b}[31m\n";
        let found = read(table).unwrap();
        assert_eq!(found.rows.iter().map(|row| row.value).collect::<Vec<_>>(), [None, None, None]);
        assert_eq!(found.rows[0].description, "a b");
        assert!(!found.rows[2].description.contains('\u{1b}'));
        assert_eq!((found.best(), found.ideas().kept.len()), (None, 0), "no value, and no words");
    }

    #[test]
    fn mistakes_have_a_line_a_column_and_a_hint() {
        let head = "iter\tmetric\tstatus\n";
        for (table, expected) in [
            (String::new(), "line 1: the table is empty"),
            ("# only a comment\n".to_owned(), "line 1: the table is empty"),
            ("iter,metric,status\n1,2,keep\n".to_owned(), "line 1: no column is named `metric`"),
            ("iter\tmetric\n1\t2\n".to_owned(), "line 1: no column is named `status`"),
            (format!("{head}1\tfast\tkeep\n"), "line 2, column 2 (`metric`): `fast` is no finite number"),
            (format!("{head}1\tinf\tkeep\n"), "line 2, column 2 (`metric`): `inf` is no finite number"),
            (format!("{head}1\t2\tkeep\n2\t2\tmaybe\n"), "line 3, column 3 (`status`): `maybe` is no known status"),
            (format!("{head}1\t2\n"), "line 2, column 3 (`status`): there is no such cell: the line has 2 of 3"),
            (format!("{head}one\t2\tkeep\n"), "line 2, column 1 (`iter`): `one` is no number of an experiment"),
            ("# metric_direction: down\n".to_owned(), "line 1: `down` is no direction"),
        ] {
            let wrong = read(&table).unwrap_err();
            assert!(wrong.to_string().starts_with(expected), "{table:?}: {wrong}");
            assert!(!wrong.hint.is_empty(), "{wrong}");
        }
    }

    #[test]
    fn a_huge_table_is_bounded() {
        let head = "iter\tmetric\tstatus\tdescription\n";
        let line = format!("1\t2\tdiscard\t{}\n", "x".repeat(900));
        let found = read(&format!("{head}{}", line.repeat(5_000))).unwrap();
        assert_eq!((found.rows.len(), found.ideas().failed.len()), (5_000, IDEAS_KEPT));
        assert!(found.ideas().failed.iter().all(|idea| idea.chars().count() < 220));
        let wrong = read(&format!("{head}{}", line.repeat(10_000))).unwrap_err();
        assert!(wrong.why.contains("at most") && wrong.hint.contains("tail"), "{wrong}");
    }
}
