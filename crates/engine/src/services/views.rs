//! What a dashboard shows, in a browser or in a terminal: typed models, read from the ledger.
//!
//! - here: the letters of the views, and what is read before each of them
//! - `now`: the line above every view, and all loops in four groups; `loops`: one loop
//! - `turn`: one turn; `board`: tasks; `inbox`: tickets; `log`: the journal; `timeline`: bars
//! - `guard`: every scope; `burn`: tokens and money; `mesh`: nodes and quarantines
//! - `rhythm`: personas
//!
//! Every read is bounded and goes by an index, however long the journal is. Texts in the models are
//! safe to print: agents wrote some of them.

use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_store::{Ledger, LoopRow, Sqlite};
use serde::Serialize;

use super::ServiceContext;
use crate::error::Failure;
use crate::record::read_state;
use crate::text::clean;

pub mod board;
pub mod burn;
pub mod guard;
pub mod inbox;
pub mod log;
pub mod loops;
pub mod mesh;
pub mod now;
pub mod rhythm;
pub mod timeline;
pub mod turn;

/// Loops that are over and still shown, the latest first.
const OVER_SHOWN: usize = 20;
/// A goal or an answer in a list is one line.
const LINE_CHARS: usize = 240;

/// A view: the same name and letter in the browser and in the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    Now,
    Inbox,
    Board,
    Guard,
    Rhythm,
    Timeline,
    Burn,
    Research,
    Mesh,
    Log,
    Settings,
}

impl View {
    /// All of them, in the order in which they are offered.
    pub const ALL: [View; 11] = [
        View::Now,
        View::Inbox,
        View::Board,
        View::Guard,
        View::Rhythm,
        View::Timeline,
        View::Burn,
        View::Research,
        View::Mesh,
        View::Log,
        View::Settings,
    ];

    /// Its name, as in an address.
    pub fn label(self) -> &'static str {
        match self {
            View::Now => "now",
            View::Inbox => "inbox",
            View::Board => "board",
            View::Guard => "guard",
            View::Rhythm => "rhythm",
            View::Timeline => "timeline",
            View::Burn => "burn",
            View::Research => "research",
            View::Mesh => "mesh",
            View::Log => "log",
            View::Settings => "settings",
        }
    }

    /// The key that opens it.
    pub fn key(self) -> char {
        match self {
            View::Now => 'n',
            View::Inbox => 'i',
            View::Board => 'b',
            View::Guard => 'g',
            View::Rhythm => 'r',
            View::Timeline => 't',
            View::Burn => 'u',
            View::Research => 'e',
            View::Mesh => 'm',
            View::Log => 'l',
            View::Settings => 's',
        }
    }
}

/// The ledger for a view, opened once; `None` when nothing was ever written.
fn ledger(context: &ServiceContext) -> Result<Option<Sqlite>, Failure> {
    context.reader(&context.home()?)
}

/// Loops that are not over, and the latest that are. States of others are not even parsed.
fn states(ledger: &Sqlite) -> Result<(Vec<LoopState>, usize), Failure> {
    let (mut over, open): (Vec<LoopRow>, Vec<LoopRow>) = ledger.loops()?.into_iter().partition(LoopRow::is_over);
    over.sort_by_key(|row| std::cmp::Reverse(row.updated_at));
    let hidden = over.len().saturating_sub(OVER_SHOWN);
    over.truncate(OVER_SHOWN);
    let read: Vec<LoopState> = open.iter().chain(&over).map(read_state).collect::<Result<_, _>>()?;
    Ok((read.into_iter().filter(|state| !state.is_helper()).collect(), hidden))
}

/// One safe line, cut where a list has no more room.
fn line(text: &str) -> String {
    let line = clean(text);
    match line.char_indices().nth(LINE_CHARS) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line,
    }
}

/// Safe lines of a longer text, the last ones of more than `max`.
fn lines(text: &str, max: usize) -> Vec<String> {
    let all: Vec<&str> = text.lines().collect();
    let left_out = all.len().saturating_sub(max);
    let more = (left_out > 0).then(|| format!("… {left_out} lines before"));
    more.into_iter().chain(all[left_out..].iter().map(|line| clean(line).trim_end().to_owned())).collect()
}

/// A moment in the zone of this machine, as it stands in sentences.
fn clock(at: Time) -> String {
    crate::quantities::here(at)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_view_has_a_name_and_a_key_of_its_own() {
        let keys: BTreeSet<char> = View::ALL.iter().map(|view| view.key()).collect();
        let names: BTreeSet<&str> = View::ALL.iter().map(|view| view.label()).collect();
        assert_eq!((keys.len(), names.len()), (View::ALL.len(), View::ALL.len()));
    }

    #[test]
    fn long_texts_are_cut_and_safe() {
        assert_eq!(line("a\u{1b}[31m\nb"), "a b");
        assert_eq!(line(&"x".repeat(1000)).chars().count(), LINE_CHARS + 1);
        assert_eq!(lines("1\n2\n\u{1b}[2J3", 2), ["… 1 lines before", "2", "3"]);
    }
}
