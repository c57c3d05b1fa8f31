//! Stagnation: another approach is tried before a person is notified, once, when it is due and in a
//! fresh conversation. Derived from outcomes only; simulated loops have no limits on time and money
//! without progress.

use everloop_core::event::{Event, Outcome};

use super::{Invariants, broken};
use crate::sim::world::Violation;

/// Turns without progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Streak {
    /// So many, since the last progress or since another way is tried.
    turns: u32,
    /// Another way is tried.
    changed: bool,
    /// The next turn is the first that does.
    fresh: bool,
}

impl Invariants {
    /// What an event means for the streak, after it was applied.
    pub(super) fn follow_streak(&mut self, event: &Event) -> Result<(), Violation> {
        let (id, most) = (&self.fold.id, self.fold.spec.guard.stagnation_turns);
        if !self.fold.spec.guard.stagnation_change {
            return Ok(());
        }
        let told = format!("stagnation:{id}");
        let Streak { turns, changed, fresh } = &mut self.streak;
        match event {
            Event::TurnEnded { outcome: Outcome::Progress | Outcome::Reached, .. } => self.streak = Streak::default(),
            Event::TurnEnded { outcome, .. } => *turns += u32::from(outcome.counts()),
            Event::StrategyChanged { .. } if *changed => {
                return broken("strategy", format!("loop {id} changes its ways twice without progress"));
            }
            Event::StrategyChanged { .. } if *turns < most => {
                return broken("strategy", format!("loop {id} changes its ways after {turns} turns of {most}"));
            }
            Event::StrategyChanged { .. } => self.streak = Streak { turns: 0, changed: true, fresh: true },
            Event::TicketOpened { key, .. } if *key == told && (!*changed || *turns < most) => {
                return broken("strategy", format!("loop {id} calls a person before another way was tried for long"));
            }
            // While the loop watches with all checks passing nothing is missing, and turns count
            // all the same.
            Event::TurnStarted { resume, .. } => {
                let due = *turns == most && self.fold.spec.watch.is_empty();
                if due && !*changed {
                    return broken("strategy", format!("loop {id} goes on in the same way after {turns} turns"));
                }
                if due && !self.fold.people.tickets.contains(&told) {
                    return broken("strategy", format!("loop {id} tried another way for long, and nobody is told"));
                }
                if std::mem::take(fresh) && resume.is_some() {
                    return broken("strategy", format!("loop {id} tries another way in the old conversation"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
