//! Correlated stalls: several turns that look stuck at the same time point to a shared cause on
//! this node (the supervisor's own timer, disk or network), not to the agents.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::TurnId;
use crate::time::Time;

/// Turns that begin to look stuck within this time of each other are correlated; a verdict waits
/// this long for further ones.
const TOGETHER: Duration = Duration::from_secs(60);

/// Whether other turns look stuck at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Company {
    /// Only this turn looks stuck.
    #[default]
    Alone,
    /// Too early to decide: others may follow.
    Unclear,
    /// At least half of all turns look stuck together: none of them is stopped.
    Together {
        stuck: u32,
        running: u32,
        /// Set for exactly one of the turns, which opens the ticket.
        tells: bool,
    },
}

/// Since when turns look stuck, over all loops of a supervisor.
#[derive(Clone, Debug, Default)]
pub struct CorrelatedStalls(BTreeMap<TurnId, Time>);

impl CorrelatedStalls {
    /// Records whether a turn looks stuck.
    pub fn see(&mut self, turn: &TurnId, stuck: bool, now: Time) {
        if stuck {
            self.0.entry(turn.clone()).or_insert(now);
        } else {
            self.0.remove(turn);
        }
    }

    /// Forgets turns that do not run any more.
    pub fn keep(&mut self, runs: impl Fn(&TurnId) -> bool) {
        self.0.retain(|turn, _| runs(turn));
    }

    /// Whether others look stuck like this turn; `running` counts all running turns, this one
    /// included.
    pub fn company(&self, turn: &TurnId, running: usize, now: Time) -> Company {
        let Some(since) = self.0.get(turn).filter(|_| running > 1) else { return Company::Alone };
        let near = |at: &Time| at.since(*since) <= TOGETHER && since.since(*at) <= TOGETHER;
        let mut others = self.0.iter().filter(|(_, at)| near(at)).map(|(turn, _)| turn).peekable();
        let tells = others.peek() == Some(&turn);
        let stuck = others.count();
        if stuck > 1 && stuck * 2 >= running {
            return Company::Together { stuck: small(stuck), running: small(running), tells };
        }
        if now.since(*since) < TOGETHER { Company::Unclear } else { Company::Alone }
    }
}

fn small(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(n: usize) -> TurnId {
        format!("loop{n}-1.1").parse().expect("the id of a turn")
    }

    fn at(secs: u64) -> Time {
        Time(0) + Duration::from_secs(secs)
    }

    /// Turns that look stuck since these seconds, in this order.
    fn stalls(since: &[u64]) -> CorrelatedStalls {
        let mut stalls = CorrelatedStalls::default();
        for (n, secs) in since.iter().enumerate() {
            stalls.see(&turn(n), true, at(*secs));
        }
        stalls
    }

    #[test]
    fn half_of_all_turns_within_a_minute_is_us() {
        let together = |stuck, running, tells| Company::Together { stuck, running, tells };
        let two = stalls(&[0, 60]);
        assert_eq!(two.company(&turn(0), 4, at(60)), together(2, 4, true));
        assert_eq!(two.company(&turn(1), 4, at(60)), together(2, 4, false), "one of them opens the ticket");
        assert_eq!(two.company(&turn(0), 4, at(9000)), together(2, 4, true), "for as long as it lasts");
        assert_eq!(two.company(&turn(0), 5, at(60)), Company::Alone, "two of five are not half");
        assert_eq!(stalls(&[0, 61]).company(&turn(0), 2, at(61)), Company::Alone, "not within a minute");
        assert_eq!(stalls(&[0, 0, 0]).company(&turn(2), 3, at(0)), together(3, 3, false));
    }

    #[test]
    fn one_of_several_is_given_a_minute_and_a_single_one_none() {
        let one = stalls(&[0]);
        assert_eq!(one.company(&turn(0), 1, at(0)), Company::Alone);
        assert_eq!(one.company(&turn(0), 2, at(59)), Company::Unclear);
        assert_eq!(one.company(&turn(0), 2, at(60)), Company::Alone);
        assert_eq!(one.company(&turn(7), 2, at(0)), Company::Alone, "it does not look stuck at all");
    }

    #[test]
    fn who_shows_life_again_or_ends_is_no_company() {
        let mut both = stalls(&[0, 1]);
        both.see(&turn(1), false, at(70));
        assert_eq!(both.company(&turn(0), 2, at(70)), Company::Alone);
        let mut both = stalls(&[0, 1]);
        both.keep(|t| *t == turn(0));
        assert_eq!(both.company(&turn(0), 2, at(30)), Company::Unclear);
        both.see(&turn(0), true, at(50));
        assert_eq!(both.company(&turn(0), 2, at(61)), Company::Alone, "the first time counts");
    }
}
