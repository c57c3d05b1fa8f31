//! Two builds beside each other: the sections of each are run in turns by the bench that was built
//! with it, and the rows that both print become one table.
//!
//! Each build measures itself, because the ledger that a bench writes and the hub that it measures
//! are those of its own sources.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{BenchLength, Options, Result};

/// The sections that two builds are compared by.
const SECTIONS: [&str; 6] = ["turn", "idle", "cold", "flood", "hook", "hub"];

/// How often each build runs each section.
const ROUNDS: usize = 3;

/// A figure may be worse by this much: below it, the machine's own noise decides.
const TOLERATED: f64 = 1.10;

/// The rows of one section in the order in which they were printed.
#[derive(Default)]
struct Rows(Vec<(RowName, [Vec<Figure>; 2])>);

/// The name of a row, and how many rows of the same name are above it.
type RowName = (String, usize);

/// A number that was printed, and its unit.
#[derive(Clone, Debug, PartialEq)]
struct Figure {
    number: f64,
    unit: String,
}

/// One side of the comparison.
struct Build {
    bench: PathBuf,
    everloop: PathBuf,
}

/// Compares the build in the folder `before` with the one that is measured otherwise.
pub fn run(options: &Options, before: &Path) -> Result<()> {
    let builds = [Build::in_folder(before)?, Build::own(options)?];
    println!("before: {}", builds[0].everloop.display());
    println!("after:  {}", builds[1].everloop.display());
    println!("machine: {}; each figure is the median of {ROUNDS} runs, in turns", crate::measure::machine());
    let chosen = |name: &&&str| options.only.is_empty() || options.only.iter().any(|only| only == **name);
    for section in SECTIONS.iter().filter(chosen) {
        let mut rows = Rows::default();
        for round in 0..ROUNDS {
            for turn in 0..builds.len() {
                // Each is first every second time.
                let side = (round + turn) % builds.len();
                let printed = builds[side].run(section, options)?;
                rows.add(side, figures(&printed));
            }
        }
        print(section, &rows);
    }
    Ok(())
}

impl Build {
    fn in_folder(folder: &Path) -> Result<Self> {
        let at = |name: &str| {
            let path = folder.join(name);
            path.canonicalize().map_err(|e| format!("`{}`: {e}", path.display()))
        };
        Ok(Self { bench: at("everloop-bench")?, everloop: at("everloop")? })
    }

    fn own(options: &Options) -> Result<Self> {
        Ok(Self { bench: std::env::current_exe()?, everloop: options.everloop.clone() })
    }

    fn run(&self, section: &str, options: &Options) -> Result<String> {
        let mut command = Command::new(&self.bench);
        command.arg("--everloop").arg(&self.everloop).arg("--dir").arg(&options.dir).args(["--only", section]);
        if options.length == BenchLength::Quick {
            command.arg("--quick");
        }
        let done = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
        if !done.status.success() {
            return Err(format!("`{}` ended with {} in `{section}`", self.bench.display(), done.status).into());
        }
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }
}

impl Rows {
    fn add(&mut self, side: usize, figures: Vec<(String, Figure)>) {
        let mut seen: HashMap<String, usize> = HashMap::new();
        for (name, figure) in figures {
            let nth = seen.entry(name.clone()).or_default();
            let key = (name, *nth);
            *nth += 1;
            let at = self.0.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
                self.0.push((key, [Vec::new(), Vec::new()]));
                self.0.len() - 1
            });
            self.0[at].1[side].push(figure);
        }
    }
}

/// The rows of a report with a number, by their names.
fn figures(printed: &str) -> Vec<(String, Figure)> {
    printed.lines().filter(|line| !line.starts_with("  ") || line.contains(" | goal ")).filter_map(figure).collect()
}

/// The name and the first number of the value in a row: `everloop, git repository   9.01 ms p90 11 ms  | floor …`.
fn figure(line: &str) -> Option<(String, Figure)> {
    let row = line.split("  | ").next()?;
    let (name, value) = row.trim_start().split_once("  ")?;
    let mut words = value.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let unit = words.next().unwrap_or_default().to_owned();
    Some((name.to_owned(), Figure { number, unit }))
}

fn print(section: &str, rows: &Rows) {
    println!("\n{section:<44} {:>16} {:>16} {:>8}", "before", "after", "");
    for ((name, _), [before, after]) in &rows.0 {
        let (Some(old), Some(new)) = (median(before), median(after)) else { continue };
        let times = new.number / old.number;
        // More tasks per second are better, of all else less is.
        let worse = if new.unit.ends_with("/s") { times.recip() } else { times };
        let verdict = if worse > TOLERATED { "worse by more than 10 %" } else { "" };
        println!("{name:<44} {:>16} {:>16} {times:>7.2}x {verdict}", old.text(), new.text());
    }
}

impl Figure {
    fn text(&self) -> String {
        format!("{} {}", self.number, self.unit)
    }
}

fn median(figures: &[Figure]) -> Option<Figure> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(|a, b| a.number.total_cmp(&b.number));
    sorted.get(sorted.len() / 2).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_numbers_are_read_from_a_report() {
        let report = "everloop: /x/everloop\n\
            machine: 2 cores, load 0.10\n\n\
            turn: from one agent's exit to the next one's start, 200 turns\n\
            bash loop                                             2.30 ms p90 2.60 ms\n\
            everloop, git repository                              9.01 ms p90 11.20 ms  | floor 2.30 ms (bash) | 3.92x\n\
            \x20 synced commits per turn                                         3.00  | goal <= 3 | met yes\n\
            \x20 0.90x of the bash loop with 2 syncs (4.00 ms)\n\
            writes to the ledger                                             none  | goal none | met yes\n\
            batches of 10                                             1200 tasks/s  | floor 1300 tasks/s (plain) | 0.92x\n";
        let found: Vec<_> =
            figures(report).into_iter().map(|(name, figure)| (name, figure.number, figure.unit)).collect();
        let row = |name: &str, number: f64, unit: &str| (name.to_owned(), number, unit.to_owned());
        let wanted = [
            row("bash loop", 2.3, "ms"),
            row("everloop, git repository", 9.01, "ms"),
            row("synced commits per turn", 3.0, ""),
            row("batches of 10", 1200.0, "tasks/s"),
        ];
        assert_eq!(found, wanted);
    }
}
