//! Each planted mistake breaks a promise: of a short case, or of a simulated year. In a plain build
//! nothing is planted, and nothing may be broken.

use everloop_core::planted::RHYTHM;

#[test]
fn there_are_at_least_twelve_planted_mistakes() {
    assert!(RHYTHM.len() >= 12);
    assert!(RHYTHM.iter().all(|bug| format!("{bug:?}").starts_with("Rhythm")));
}

#[cfg(feature = "planted")]
#[test]
fn planted_mistakes_are_found() {
    use everloop_core::planted::plant;

    use crate::{cases, world};

    /// Seeds within which a mistake has to show.
    const SEEDS: u64 = 6;
    assert_eq!(cases::broken().next(), None, "without a mistake");
    let mut missed = Vec::new();
    for bug in RHYTHM {
        plant(Some(*bug));
        let by_case = cases::broken().next().map(str::to_owned);
        let found = by_case.or_else(|| (0..SEEDS).find_map(|seed| world::year(seed).err()));
        plant(None);
        if found.is_none() {
            missed.push(bug);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
