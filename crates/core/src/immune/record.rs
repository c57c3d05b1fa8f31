//! The latest outcomes, in constant space: names stand in a table once, rows are small numbers.
//!
//! A half-life of twenty outcomes makes everything beyond a few dozen of a subject worthless, so
//! the ring grows with the number of subjects and no further.

use serde::{Deserialize, Serialize};

use super::{Class, Dimension, ObservedOutcome, Subject};

/// Rows kept for each subject of the largest dimension: three half-lives.
const ROWS_EACH: usize = 60;
/// Minimum number of rows kept.
const ROWS_LEAST: usize = 120;
/// Maximum number of rows kept: the document is written with every outcome.
const ROWS_MOST: usize = 1200;

/// The latest outcomes, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeRecord {
    names: Vec<Subject>,
    rows: Vec<Row>,
}

/// One stored outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    /// For each dimension the index into the table of names, from 1 on; 0 for none.
    of: [u16; Dimension::ALL.len()],
    is: Class,
}

/// Recent outcomes of a subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lately {
    /// Outcomes that put it to the test.
    pub outcomes: usize,
    /// Failures among them.
    pub failed: usize,
}

/// View of one outcome.
#[derive(Clone, Copy, Debug)]
pub struct OutcomeView<'a> {
    record: &'a OutcomeRecord,
    row: &'a Row,
}

impl<'a> OutcomeView<'a> {
    /// Class of the outcome.
    pub fn class(self) -> Class {
        self.row.is
    }

    /// The subjects that took part.
    pub fn subjects(self) -> impl Iterator<Item = &'a Subject> {
        self.row.of.iter().filter_map(move |place| self.record.name(*place))
    }

    /// Whether this subject took part.
    pub fn has(self, subject: &Subject) -> bool {
        self.of(subject.dimension) == Some(subject)
    }

    /// The subject of this dimension, if one took part.
    pub fn of(self, dimension: Dimension) -> Option<&'a Subject> {
        self.record.name(self.row.of[dimension as usize])
    }
}

impl OutcomeRecord {
    /// All outcomes, newest first.
    pub fn newest(&self) -> impl Iterator<Item = OutcomeView<'_>> {
        self.rows.iter().rev().map(move |row| OutcomeView { record: self, row })
    }

    /// All recently seen subjects of a dimension.
    pub fn live(&self, dimension: Dimension) -> impl Iterator<Item = &Subject> {
        self.names.iter().filter(move |s| s.dimension == dimension)
    }

    /// The last `n` outcomes of every subject.
    pub fn lately(&self, n: usize) -> impl Iterator<Item = (&Subject, Lately)> {
        let mut all = vec![Lately::default(); self.names.len()];
        for row in self.rows.iter().rev() {
            for (dimension, place) in Dimension::ALL.into_iter().zip(row.of) {
                let Some(failed) = row.is.failed_for(dimension).filter(|_| place > 0) else { continue };
                let lately = &mut all[usize::from(place) - 1];
                if lately.outcomes < n {
                    lately.outcomes += 1;
                    lately.failed += usize::from(failed);
                }
            }
        }
        self.names.iter().zip(all)
    }

    pub(super) fn push(&mut self, seen: &ObservedOutcome) {
        let mut of = [0; Dimension::ALL.len()];
        for subject in &seen.subjects {
            of[subject.dimension as usize] = self.place(subject);
        }
        self.rows.push(Row { of, is: seen.class });
        let largest = Dimension::ALL.map(|d| self.live(d).count()).into_iter().max().unwrap_or(1);
        let most = (ROWS_EACH * largest).clamp(ROWS_LEAST, ROWS_MOST);
        let extra = self.rows.len().saturating_sub(most);
        if extra > 0 {
            self.rows.drain(..extra);
            self.forget();
        }
    }

    fn name(&self, place: u16) -> Option<&Subject> {
        self.names.get(usize::from(place).checked_sub(1)?)
    }

    fn place(&mut self, subject: &Subject) -> u16 {
        let known = self.names.iter().position(|s| s == subject);
        let place = known.unwrap_or_else(|| {
            self.names.push(subject.clone());
            self.names.len() - 1
        });
        u16::try_from(place + 1).expect("rows are capped, and each has at most five names")
    }

    /// Drops names that no row refers to any more.
    fn forget(&mut self) {
        let mut used = vec![false; self.names.len() + 1];
        self.rows.iter().flat_map(|r| r.of).for_each(|place| used[usize::from(place)] = true);
        if used[1..].iter().all(|u| *u) {
            return;
        }
        let mut moved = vec![0; used.len()];
        let mut next = 0;
        for place in 1..used.len() {
            next += u16::from(used[place]);
            moved[place] = next;
        }
        let mut place = 0;
        self.names.retain(|_| {
            place += 1;
            used[place]
        });
        self.rows.iter_mut().flat_map(|r| &mut r.of).for_each(|place| *place = moved[usize::from(*place)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(names: &[(Dimension, &str)]) -> ObservedOutcome {
        let subjects = names.iter().map(|(d, name)| Subject::new(*d, name)).collect();
        ObservedOutcome { subjects, class: Class::Good, reset_at: None }
    }

    #[test]
    fn old_rows_go_and_take_their_names_along() {
        let mut record = OutcomeRecord::default();
        record.push(&seen(&[(Dimension::Node, "old"), (Dimension::Account, "a")]));
        for _ in 0..ROWS_LEAST {
            record.push(&seen(&[(Dimension::Node, "new"), (Dimension::Account, "a")]));
        }
        assert_eq!(record.rows.len(), ROWS_LEAST);
        let names: Vec<String> = record.names.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["account:a", "node:new"]);
        assert!(record.newest().all(|row| row.has(&Subject::new(Dimension::Node, "new"))));
    }

    #[test]
    fn names_without_end_do_not_make_it_grow() {
        let mut record = OutcomeRecord::default();
        for n in 0..5_000 {
            record.push(&seen(&[(Dimension::Kind, &format!("kind {n} {}", "x".repeat(500)))]));
        }
        assert!(record.rows.len() <= ROWS_MOST && record.names.len() <= ROWS_MOST);
        assert!(record.names.iter().all(|s| s.name.chars().count() <= 64));
    }
}
