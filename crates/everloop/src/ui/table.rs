//! Plain tables: a heading, columns as wide as they need to be, never wider than the terminal.

use super::text::{fit, pad, width};

/// Spaces between two columns.
const GUTTER: usize = 2;
/// A column is not squeezed below this.
const COLUMN_MIN: usize = 6;

/// Rows under a heading.
#[derive(Clone, Debug, Default)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(|cell| (*cell).to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row; cells may be coloured, and their text must be clean.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The lines, at most `terminal` cells wide.
    pub fn lines(&self, terminal: usize) -> Vec<String> {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let column = |i: usize| all().filter_map(|row| row.get(i)).map(|cell| width(cell)).max().unwrap_or(0);
        let mut widths: Vec<usize> = (0..self.head.len()).map(column).collect();
        squeeze(&mut widths, terminal);
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).map(|(cell, cells)| pad(&fit(cell, *cells), *cells));
            let joined = cells.collect::<Vec<_>>().join(&" ".repeat(GUTTER));
            fit(joined.trim_end(), terminal)
        };
        all().map(line).collect()
    }
}

/// Takes from the widest column until the table fits or nothing more can be taken.
fn squeeze(widths: &mut [usize], terminal: usize) {
    let gutters = GUTTER * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gutters > terminal {
        match widths.iter_mut().max() {
            Some(widest) if *widest > COLUMN_MIN => *widest -= 1,
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_column_gives_way() {
        let mut table = Table::new(&["ID", "GOAL", "STATE"]);
        table.row(["k3f9".to_owned(), "make every single test pass".to_owned(), "running".to_owned()]);
        insta::assert_snapshot!(table.lines(30).join("\n"), @r"
        ID    GOAL             STATE
        k3f9  make every sin…  running
        ");
        assert!(table.lines(12).iter().all(|line| width(line) <= 12));
    }
}
