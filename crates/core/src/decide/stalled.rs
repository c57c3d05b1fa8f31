//! A loop that does not get on: turns, time or money without progress, and work that could be done while nothing moves. Each cause
//! is one ticket, closed when it is gone. The loop goes on all the same.

use std::time::Duration;

use super::Step;
use crate::event::{Event, Pattern};
use crate::guard::permit::SLOTS;
use crate::judge::patterns;
use crate::state::Phase;
use crate::time::{Time, human};

/// Work is runnable and nothing moves for this long: a person should know.
pub const STALLED_AFTER: Duration = Duration::from_secs(30 * 60);

impl Step<'_> {
    /// What the turn that just ended completes: patterns in the journal, and tickets when there is no progress for too long.
    pub(super) fn say_patterns(&mut self, progress: bool) {
        let id = self.state().id.clone();
        let keys = ["stagnation", "stagnation.time", "stagnation.spend"].map(|kind| format!("{kind}:{id}"));
        if progress {
            for key in &keys {
                self.close_ticket(key, "there was progress");
            }
        }
        for (pattern, turns) in patterns(self.state()) {
            self.emit(Event::Noticed { pattern, turns });
            if pattern == Pattern::Stagnation {
                let text = format!("no progress for {turns} turns; the loop goes on, but a look may save money");
                self.ticket(keys[0].clone(), text);
            }
        }
        // Nothing is missing that there could be progress towards: it watches.
        if self.state().board.all_pass() && self.state().landed.all_pass() {
            return;
        }
        let guard = &self.state().spec.guard;
        let (time, money) = (guard.stagnation_time, guard.stagnation_microusd);
        let (worked, spent) = self.state().since_then();
        if time.is_some_and(|most| worked >= most) {
            let text =
                format!("no progress for {} of work; the loop goes on, but a look may save money", human(worked));
            self.ticket(keys[1].clone(), text);
        }
        if money.is_some_and(|most| spent.microusd >= most) {
            let cents = spent.microusd / 10_000;
            let text = format!(
                "${}.{:02} without progress; the loop goes on, but a look may save money",
                cents / 100,
                cents % 100
            );
            self.ticket(keys[2].clone(), text);
        }
    }

    /// Since when the loop waits although there is work that could be done: for a slot, or for somebody who takes it.
    fn stalled_since(&self) -> Option<Time> {
        match &self.state().phase {
            Phase::Waiting { reason, since } if matches!(reason.rule.as_str(), SLOTS | "agent.none") => Some(*since),
            _ => None,
        }
    }

    fn stalled_key(&self) -> String {
        format!("stalled:{}", self.state().id)
    }

    /// When the loop has to be looked at because nothing moves.
    pub(super) fn stalls_at(&self) -> Option<Time> {
        let told = self.state().tickets.contains(&self.stalled_key());
        self.stalled_since().map(|since| since + STALLED_AFTER).filter(|_| !told)
    }

    /// It still waits for the same.
    pub(super) fn say_stalled(&mut self) {
        if self.stalls_at().is_some_and(|at| at <= self.ctx.now) {
            let text = format!(
                "nothing moved for {} although there is work: `everloop why {}` says what it waits for",
                human(STALLED_AFTER),
                self.state().id
            );
            self.ticket(self.stalled_key(), text);
        }
    }

    /// Something moved.
    pub(super) fn moved(&mut self) {
        self.close_ticket(&self.stalled_key(), "it goes on");
    }
}
