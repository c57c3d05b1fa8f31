//! Checks over turns: a mark for every verdict, by shape as well as by colour. Without rules of its
//! own: the classes are styled by the page.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use serde::Serialize;

use super::svg::{escape, fit, pixel, put, put_line, put_path, put_text};

/// Room for the names of rows, and above the cells.
const LEFT: f64 = 190.0;
const TOP: f64 = 26.0;
const CELL: f64 = 18.0;
/// Half of a mark.
const MARK: f64 = 5.0;
/// More rows are no picture; the first ones are drawn.
const MAX_ROWS: usize = 60;
const NAME_COLUMNS: usize = 24;
/// Every so many columns has a label, so that labels do not touch.
const LABEL_EVERY: usize = 4;

/// The verdict of a check after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    Pass,
    Fail,
    /// It passed before.
    Lost,
    Flaky,
    Broken,
    Suspicious,
    /// It was not run.
    Unknown,
}

impl Cell {
    const ALL: [Cell; 7] =
        [Cell::Pass, Cell::Fail, Cell::Lost, Cell::Flaky, Cell::Broken, Cell::Suspicious, Cell::Unknown];

    /// Its word, and its class.
    pub fn label(self) -> &'static str {
        match self {
            Cell::Pass => "pass",
            Cell::Fail => "fail",
            Cell::Lost => "lost",
            Cell::Flaky => "flaky",
            Cell::Broken => "broken",
            Cell::Suspicious => "suspicious",
            Cell::Unknown => "unknown",
        }
    }

    /// Its sign in text, where there is no colour.
    pub fn sign(self) -> &'static str {
        match self {
            Cell::Pass => "✓",
            Cell::Fail => "×",
            Cell::Lost => "▼",
            Cell::Flaky => "~",
            Cell::Broken => "!",
            Cell::Suspicious => "?",
            Cell::Unknown => "·",
        }
    }

    /// Its shape around a point.
    fn path(self, x: f64, y: f64) -> String {
        let at = |dx: f64, dy: f64| format!("{} {}", pixel(x + dx * MARK), pixel(y + dy * MARK));
        let joined = |points: &[(f64, f64)]| {
            let all: Vec<String> = points.iter().map(|(dx, dy)| at(*dx, *dy)).collect();
            format!("M{}z", all.join("L"))
        };
        match self {
            Cell::Pass => joined(&[(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)]),
            Cell::Fail => format!("M{}L{}M{}L{}", at(-0.9, -0.9), at(0.9, 0.9), at(0.9, -0.9), at(-0.9, 0.9)),
            Cell::Lost => joined(&[(-1.1, -0.9), (1.1, -0.9), (0.0, 1.1)]),
            Cell::Flaky | Cell::Suspicious => joined(&[(0.0, -1.1), (1.1, 0.0), (0.0, 1.1), (-1.1, 0.0)]),
            Cell::Broken => joined(&[(0.0, -1.1), (1.1, 0.9), (-1.1, 0.9)]),
            Cell::Unknown => joined(&[(-0.2, -0.2), (0.2, -0.2), (0.2, 0.2), (-0.2, 0.2)]),
        }
    }
}

/// Rows of checks, columns of turns.
#[derive(Clone, Debug)]
pub struct Matrix<'a> {
    pub title: &'a str,
    pub columns: &'a [String],
    pub rows: Vec<(&'a str, &'a [Cell])>,
}

impl Matrix<'_> {
    /// The finding in a sentence.
    pub fn describe(&self) -> String {
        let passing = |column: Option<usize>| {
            let at = |cells: &[Cell]| column.and_then(|column| cells.get(column).copied());
            self.rows.iter().filter(|(_, cells)| matches!(at(cells), Some(Cell::Pass | Cell::Flaky))).count()
        };
        let (checks, last) = (self.rows.len(), self.columns.len().checked_sub(1));
        let lost: usize = self.rows.iter().map(|(_, cells)| cells.iter().filter(|c| **c == Cell::Lost).count()).sum();
        let began = passing(last.map(|_| 0));
        let text = format!("Of {checks} checks {began} passed at the start and {} pass now", passing(last));
        match lost {
            0 => format!("{text}."),
            1 => format!("{text}; once a check was lost."),
            n => format!("{text}; {n} times a check was lost."),
        }
    }

    /// The cells as a drawing; empty without any.
    pub fn svg(&self) -> String {
        if self.columns.is_empty() || self.rows.is_empty() {
            return String::new();
        }
        let rows = &self.rows[..self.rows.len().min(MAX_ROWS)];
        let width = LEFT + CELL * self.columns.len() as f64 + CELL;
        let height = TOP + CELL * rows.len() as f64 + 8.0;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"matrix\" role=\"img\" \
             aria-labelledby=\"matrix-title matrix-desc\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\">\n<title id=\"matrix-title\">{}</title>\n<desc id=\"matrix-desc\">{}</desc>\n",
            escape(self.title),
            escape(&self.describe()),
        );
        let x = |column: usize| LEFT + CELL * (column as f64 + 0.5);
        for (column, label) in self.columns.iter().enumerate().filter(|(column, _)| column % LABEL_EVERY == 0) {
            put_text(&mut out, x(column), TOP - 10.0, "middle", label);
        }
        for (nth, (name, cells)) in rows.iter().enumerate() {
            let y = TOP + CELL * (nth as f64 + 0.5);
            put_text(&mut out, 4.0, y + 4.5, "start", &fit(name, NAME_COLUMNS));
            for kind in Cell::ALL {
                let mut path = String::new();
                for (column, _) in cells.iter().enumerate().filter(|(_, cell)| **cell == kind) {
                    put(&mut path, format_args!("{}", kind.path(x(column), y)));
                }
                if !path.is_empty() {
                    put_path(&mut out, kind.label(), &path);
                }
            }
        }
        put_line(&mut out, format_args!("</svg>"));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drawing_says_its_finding_and_differs_by_shape() {
        let columns: Vec<String> = ["start", "1", "2"].map(str::to_owned).into();
        let cells = [[Cell::Fail, Cell::Pass, Cell::Lost], [Cell::Pass, Cell::Pass, Cell::Pass]];
        let rows = vec![("<b>unit</b>", &cells[0][..]), ("build", &cells[1][..])];
        let matrix = Matrix { title: "Checks", columns: &columns, rows };
        assert_eq!(matrix.describe(), "Of 2 checks 1 passed at the start and 1 pass now; once a check was lost.");
        let svg = matrix.svg();
        assert!(svg.contains("&lt;b&gt;unit") && !svg.contains("<b>"), "{svg}");
        assert!(["pass", "fail", "lost"].iter().all(|class| svg.contains(&format!("class=\"{class}\""))), "{svg}");
        let shapes: std::collections::BTreeSet<String> = Cell::ALL.iter().map(|cell| cell.path(0.0, 0.0)).collect();
        assert_eq!(shapes.len(), Cell::ALL.len() - 1, "flaky and suspicious differ by their class");
        assert_eq!(Matrix { title: "Checks", columns: &[], rows: Vec::new() }.svg(), "");
    }
}
