//! A year of personas with storms, silent sources, clocks that jump, holds and small budgets: no
//! promise is broken.

use crate::{budget, world};

/// With six personas in each world, these are the years of two hundred.
const YEARS: u64 = 34;

#[test]
fn a_year_breaks_no_promise() {
    let mut sums = world::Sums::default();
    let years = budget::seeds(YEARS, |seed| match world::year(seed) {
        Ok(found) => sums.add(found),
        Err(broken) => panic!("seed {seed}: {broken}"),
    });
    // A world in which nothing happens would keep every promise.
    assert!(sums.is_lively(years), "{years} years: {sums:?}");
}

#[test]
fn the_same_seed_gives_the_same_year() {
    assert_eq!(world::year(7), world::year(7));
}
