//! Jobs with real processes.

mod ends;
mod forking;
mod leftovers;
mod output;
pub mod recovery;
mod room;
mod stopping;
pub mod verdict;

use libtest_mimic::Trial;

/// All tests of this folder.
pub fn all() -> Vec<Trial> {
    let all = [ends::all(), forking::all(), leftovers::all(), output::all(), recovery::all(), stopping::all()];
    all.into_iter().flatten().chain(verdict::all()).collect()
}
