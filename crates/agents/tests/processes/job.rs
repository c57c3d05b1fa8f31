//! Jobs with real processes.

mod ends;
mod leftovers;
mod output;
pub mod recovery;
mod room;
mod stopping;

use libtest_mimic::Trial;

/// All tests of this folder.
pub fn all() -> Vec<Trial> {
    [ends::all(), leftovers::all(), output::all(), recovery::all(), stopping::all()].into_iter().flatten().collect()
}
