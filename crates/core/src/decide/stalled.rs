//! A loop without progress: turns, time or money without a gain, and runnable work that does not
//! move. Another strategy is tried first, once. Each cause is one ticket, closed when the cause is
//! gone. The loop goes on all the same.

use std::time::Duration;

use super::Step;
use crate::event::Event;
use crate::guard::Spend;
use crate::judge::{self, doubles, patterns};
use crate::planted::{self, Bug};
use crate::reason::{Reason, RuleId};
use crate::state::Phase;
use crate::time::{Time, human};
use crate::why::stagnation;

/// Ticket kinds of turns, time and money without progress.
const STAGNATION: [&str; 3] = ["stagnation", "stagnation.time", "stagnation.spend"];

/// Runnable work that does not move for this long opens a ticket.
pub const STALLED_AFTER: Duration = Duration::from_secs(30 * 60);

/// Suspicious passes in a row that a person learns about: one may be a mistake of the agent.
const DOUBTS_TOLD: usize = 2;

/// Turns, time in them and money without progress.
pub(super) type Streak = (u32, Duration, Spend);

/// How often an amount reached a threshold and then doubled: 0 below it.
fn doublings(amount: u128, most: u128) -> u32 {
    (amount / most.max(1)).checked_ilog2().map_or(0, |times| times + 1)
}

impl Step<'_> {
    /// Records what the turn that just ended completes: patterns in the journal, a change of
    /// strategy after too long without progress, and tickets when that did not help either.
    /// `before`: what had been used without progress when the turn began.
    pub(super) fn say_patterns(&mut self, progress: bool, before: &Streak) {
        if progress {
            for kind in STAGNATION {
                self.close_ticket(&format!("{kind}:{}", self.state().id), "there was progress");
            }
        }
        // A research run has its own ladder, and a persona has nothing to make progress towards.
        if self.state().spec.research.is_some() || self.state().is_persona() {
            return;
        }
        for (pattern, turns) in patterns(self.state()) {
            self.emit(Event::Noticed { pattern, turns });
        }
        self.say_doubts();
        let passed = self.passed();
        let tried = self.state().progress.strategy.is_some();
        let may = self.state().spec.guard.stagnation_change && !planted::is(Bug::TicketBeforeChange);
        match passed.first() {
            Some((_, reason)) if may && (!tried || planted::is(Bug::ChangesForEver)) => {
                let agent = self.state().progress.tries.last().map_or_else(String::new, |t| t.agent.clone());
                self.emit(Event::StrategyChanged { reason: reason.clone(), agent });
            }
            _ => {
                let since = if tried { " since another way was tried" } else { "" };
                let news = passed.into_iter().filter(|(kind, _)| self.is_news(kind, before)).collect::<Vec<_>>();
                for (kind, reason) in news {
                    let what = stagnation(&reason);
                    let text = format!("{what}{since}; the loop goes on, but a look may save money");
                    self.ticket(format!("{kind}:{}", self.state().id), text);
                }
            }
        }
    }

    /// Whether a threshold was passed, or an amount doubled since, in this turn. An
    /// answered ticket does not open again before that.
    fn is_news(&self, kind: &str, before: &Streak) -> bool {
        let (guard, (_, worked, spent)) = (&self.state().spec.guard, self.state().since_then());
        let grew = |before: u128, now: u128, most: u128| doublings(now, most) > doublings(before, most);
        match (guard.stagnation_time, guard.stagnation_microusd) {
            (Some(most), _) if kind == STAGNATION[1] => {
                grew(before.1.as_millis(), worked.as_millis(), most.as_millis())
            }
            (_, Some(most)) if kind == STAGNATION[2] => {
                grew(before.2.microusd.into(), spent.microusd.into(), most.into())
            }
            // Turns are counted one by one, and the rule for them is true once for each doubling.
            _ => true,
        }
    }

    /// Opens a ticket when turns in a row have a suspicious pass, and closes it after one without.
    fn say_doubts(&mut self) {
        let key = format!("suspicious:{}", self.state().id);
        let doubts = judge::doubts(self.state());
        match doubts.first() {
            Some(latest) if doubts.len() >= DOUBTS_TOLD => {
                let text = format!(
                    "{} turns in a row passed a check without evidence that it tested anything ({}); a look at \
                     the work is due: `everloop diff {}`",
                    doubts.len(),
                    latest.join(", "),
                    self.state().id
                );
                self.ticket(key, text);
            }
            Some(_) => {}
            None => self.close_ticket(&key, "a turn had no suspicious pass"),
        }
    }

    /// Thresholds that the loop exceeds without progress, each with the kind of its ticket.
    fn passed(&self) -> Vec<(&'static str, Reason)> {
        let state = self.state();
        // A loop that only watches has nothing to make progress towards.
        if state.progress.board.all_pass() && state.progress.landed.all_pass() {
            return Vec::new();
        }
        let guard = &state.spec.guard;
        let (turns, worked, spent) = state.since_then();
        let mut passed = Vec::new();
        if doubles(turns, guard.stagnation_turns.max(1)) {
            passed.push((STAGNATION[0], Reason::new(RuleId::StagnationTurns).with("turns", turns)));
        }
        if guard.stagnation_time.is_some_and(|most| worked >= most) {
            passed.push((STAGNATION[1], Reason::new(RuleId::StagnationTime).with("worked", human(worked))));
        }
        if guard.stagnation_microusd.is_some_and(|most| spent.microusd >= most) {
            let cents = spent.microusd / 10_000;
            let spent = format!("${}.{:02}", cents / 100, cents % 100);
            passed.push((STAGNATION[2], Reason::new(RuleId::StagnationSpend).with("spent", spent)));
        }
        passed
    }

    /// Since when the loop waits although work is runnable: for a free turn, or for an agent that
    /// takes it.
    fn stalled_since(&self) -> Option<Time> {
        match &self.state().phase {
            Phase::Waiting { reason, since } if matches!(reason.rule, RuleId::GuardSlots | RuleId::AgentNone) => {
                Some(*since)
            }
            _ => None,
        }
    }

    fn stalled_key(&self) -> String {
        format!("stalled:{}", self.state().id)
    }

    /// When the ticket about a lasting wait is due.
    pub(super) fn stalls_at(&self) -> Option<Time> {
        let told = self.state().people.tickets.contains(&self.stalled_key());
        self.stalled_since().map(|since| since + STALLED_AFTER).filter(|_| !told)
    }

    /// Opens the ticket of a wait that lasts too long.
    pub(super) fn say_stalled(&mut self) {
        if self.stalls_at().is_some_and(|at| at <= self.ctx.now) {
            let text = format!(
                "nothing moved for {} although there is work: `everloop why {}` shows what it waits for",
                human(STALLED_AFTER),
                self.state().id
            );
            self.ticket(self.stalled_key(), text);
        }
    }

    /// Closes the ticket of a wait once something moves.
    pub(super) fn moved(&mut self) {
        self.close_ticket(&self.stalled_key(), "it goes on");
    }
}
