//! What changes after many experiments in a row without a keep. Nothing stops because of it: keeps
//! come after long gaps, too.

use serde::{Deserialize, Serialize};

use crate::planted::{self, Bug};

/// A rung of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// Read everything again and refine.
    Refine,
    /// Go on with the next strategy of the plan.
    NextPlan,
    /// Begin from an older keep.
    Branch,
    /// Two opposite changes are described first, and the less likely one is made.
    DualForcing,
}

/// Experiments in a row without a keep at which a rung begins.
const REFINE: u32 = 5;
const NEXT_PLAN: u32 = 10;
const BRANCH: u32 = 15;
/// The same, for the last rung.
pub const DUAL: u32 = 25;
/// From the last rung on, it and the one before alternate.
const ALTERNATE: u32 = 10;

impl Rung {
    /// The rung after so many experiments without a keep.
    pub fn of(since_keep: u32) -> Option<Rung> {
        match since_keep {
            0..REFINE => None,
            _ if planted::is(Bug::RungNeverChanges) => Some(Rung::Refine),
            REFINE..NEXT_PLAN => Some(Rung::Refine),
            NEXT_PLAN..BRANCH => Some(Rung::NextPlan),
            BRANCH..DUAL => Some(Rung::Branch),
            n if ((n - DUAL) / ALTERNATE).is_multiple_of(2) => Some(Rung::DualForcing),
            _ => Some(Rung::Branch),
        }
    }

    /// Whether the rung begins with exactly this experiment.
    pub fn begins(since_keep: u32) -> Option<Rung> {
        let rung = Rung::of(since_keep)?;
        (Rung::of(since_keep - 1) != Some(rung)).then_some(rung)
    }

    /// Experiments without a keep after which the rung of `since_keep` began.
    pub fn began(since_keep: u32) -> u32 {
        let rung = Rung::of(since_keep);
        (0..=since_keep).rev().take_while(|n| Rung::of(*n) == rung).last().unwrap_or(since_keep)
    }

    /// Whether the next experiment begins from an older keep where the rung is for it: every other
    /// one, the first included.
    pub fn is_on_line(since_keep: u32) -> bool {
        Rung::of(since_keep) == Some(Rung::Branch) && (since_keep - Rung::began(since_keep)).is_multiple_of(2)
    }

    /// Its name in explanations.
    pub fn label(self) -> &'static str {
        match self {
            Rung::Refine => "refine",
            Rung::NextPlan => "next-plan",
            Rung::Branch => "branch",
            Rung::DualForcing => "dual-forcing",
        }
    }

    /// The rung as a clause for messages.
    pub fn describe(self) -> &'static str {
        match self {
            Rung::Refine => "the code and all results are read again before the next change",
            Rung::NextPlan => "the next strategy of the plan is due",
            Rung::Branch => "every other experiment begins from an older keep",
            Rung::DualForcing => "two opposite changes are described, and the less likely one is tried",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_begin_at_their_numbers_and_go_on_for_ever() {
        let begins: Vec<(u32, Rung)> = (1..60).filter_map(|n| Some((n, Rung::begins(n)?))).collect();
        assert_eq!(
            begins,
            [
                (5, Rung::Refine),
                (10, Rung::NextPlan),
                (15, Rung::Branch),
                (25, Rung::DualForcing),
                (35, Rung::Branch),
                (45, Rung::DualForcing),
                (55, Rung::Branch),
            ]
        );
        assert_eq!(Rung::of(4), None);
        let on_line: Vec<u32> = (1..40).filter(|n| Rung::is_on_line(*n)).collect();
        assert_eq!(on_line, [15, 17, 19, 21, 23, 35, 37, 39]);
        assert_eq!([5, 9, 14, 24, 34, 36, 50].map(Rung::began), [5, 5, 10, 15, 25, 35, 45]);
    }
}
