//! Mood: one word for a persona, derived from its energy (metabolism) and its ease (good turns,
//! cooldowns). It is shown, never stored, and decides nothing.

use super::metabolism::TurnOutcomes;

/// A word for a persona.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mood {
    /// Much arrives, and it goes well.
    Brisk,
    /// Something arrives, and it goes well.
    Calm,
    /// Little arrives, and nothing is wrong.
    Chill,
    /// Much arrives, and some of it fails.
    Restless,
    /// Little arrives, and some of it fails.
    Dull,
    /// Something arrives, and most of it fails.
    Strained,
    /// Held by the guard, or little arrives and most of it fails.
    Frosty,
}

impl Mood {
    /// The word that is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Mood::Brisk => "brisk",
            Mood::Calm => "calm",
            Mood::Chill => "chill",
            Mood::Restless => "restless",
            Mood::Dull => "dull",
            Mood::Strained => "strained",
            Mood::Frosty => "frosty",
        }
    }
}

/// Whether the guard holds a persona back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    Free,
    Held,
}

/// The ease of a persona: its share of good turns, halved while the guard holds it.
pub fn ease(outcomes: &TurnOutcomes, holding: Holding) -> f64 {
    let good = 1.0 - outcomes.failure_ratio();
    match holding {
        Holding::Free => good,
        Holding::Held => good / 2.0,
    }
}

/// The word for an energy and an ease, both from 0 to 1.
pub fn mood(energy: f64, ease: f64) -> Mood {
    let level = |value: f64, low: f64, high: f64| {
        if value >= high { 2 } else { i32::from(value >= low) }
    };
    match (level(energy, 0.2, 0.55), level(ease, 0.4, 0.75)) {
        (2, 2) => Mood::Brisk,
        (1, 2) => Mood::Calm,
        (0, 2) => Mood::Chill,
        (2, 1) => Mood::Restless,
        (0 | 1, 1) => Mood::Dull,
        (1 | 2, 0) => Mood::Strained,
        (_, _) => Mood::Frosty,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rhythm::metabolism::TurnOutcome;

    #[test]
    fn every_pair_has_a_word() {
        for (energy, ease, word) in [
            (0.9, 1.0, "brisk"),
            (0.3, 0.8, "calm"),
            (0.0, 1.0, "chill"),
            (0.9, 0.5, "restless"),
            (0.3, 0.5, "dull"),
            (0.0, 0.5, "dull"),
            (0.9, 0.1, "strained"),
            (0.3, 0.1, "strained"),
            (0.0, 0.1, "frosty"),
            (f64::NAN, f64::NAN, "frosty"),
            (2.0, 2.0, "brisk"),
        ] {
            assert_eq!(mood(energy, ease).as_str(), word, "{energy} × {ease}");
        }
    }

    #[test]
    fn holds_and_failures_take_the_ease_away() {
        let mut outcomes = TurnOutcomes::default();
        assert!((ease(&outcomes, Holding::Free) - 1.0).abs() < f64::EPSILON);
        outcomes.add(TurnOutcome::Good);
        outcomes.add(TurnOutcome::Failed);
        assert_eq!((ease(&outcomes, Holding::Free), ease(&outcomes, Holding::Held)), (0.5, 0.25));
        assert_eq!(mood(0.0, ease(&outcomes, Holding::Held)), Mood::Frosty);
    }
}
