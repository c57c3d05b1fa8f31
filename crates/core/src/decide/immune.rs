//! The immune system in a loop's decisions: which agent takes the next turn, and what the end of a
//! turn is charged to.

use super::Step;
use crate::event::{Event, Exit, Outcome};
use crate::immune::choice::Admission;
use crate::immune::tier::untried;
use crate::immune::{self, Class, ImmuneStep, ObservedOutcome, Subject, Threshold, observe, subjects};
use crate::jitter::mix;
use crate::op::Op;
use crate::planted::{self, Bug};
use crate::reason::{Reason, RuleId};
use crate::spec::AgentSpec;
use crate::state::{LoopState, Turn};

/// Ticket keys of the fleet; the loop that noticed the cause keeps the ticket.
const OBSERVER: &str = "immune.observer";
const THRESHOLD: &str = "immune.threshold";
/// Answers that close these tickets.
const TRUSTED: &str = "failures are no longer correlated";
const SETTLED: &str = "the threshold was reviewed";

/// The loop's agents for a task.
pub(super) struct Candidates<'s> {
    /// Agents that may take the turn, in order of preference.
    pub(super) asked: Vec<&'s AgentSpec>,
    /// Agents left out or put last, with the reason.
    skipped: Vec<(&'s AgentSpec, Admission)>,
    /// All agents in the configured order.
    order: Vec<&'s AgentSpec>,
}

impl Candidates<'_> {
    /// The reason why an agent before this one in the order does not come first.
    pub(super) fn passed_over(&self, agent: &AgentSpec) -> Option<Reason> {
        let mut before = self.order.iter().take_while(|a| **a != agent);
        let found = before.find_map(|a| self.skipped.iter().find(|(s, _)| s == a));
        found.and_then(|(_, how)| how.reason().cloned())
    }

    /// The reasons that keep agents out entirely.
    pub(super) fn held(&self) -> impl Iterator<Item = Reason> {
        let away = self.skipped.iter().filter(|(a, _)| !self.asked.contains(a));
        away.filter_map(|(_, how)| how.reason().cloned())
    }
}

impl Step<'_> {
    /// Orders the loop's agents, without quarantined ones unless no other agent is left.
    pub(super) fn candidates<'s>(&self, state: &'s LoopState, kind: &str, priority: i32) -> Candidates<'s> {
        let order = state.candidates(kind, priority);
        let (mut asked, mut skipped) = (Vec::new(), Vec::new());
        for (n, agent) in order.iter().enumerate() {
            let how = self.out.immune.may(&subjects(self.ctx.node, agent, Some(kind)), self.ctx.now);
            // A reduced share is every other turn.
            let turn_comes = mix(self.ctx.seed, 1000 + n as u64).is_multiple_of(2);
            match how {
                Admission::Free | Admission::Trial(_) => asked.push(*agent),
                Admission::Less(_) if turn_comes => asked.push(*agent),
                Admission::Out(_) if planted::is(Bug::QuarantineIgnored) => asked.push(*agent),
                Admission::Less(_) | Admission::Out(_) | Admission::Barred(_) => skipped.push((*agent, how)),
            }
        }
        asked.extend(skipped.iter().filter(|(_, how)| matches!(how, Admission::Less(_))).map(|(a, _)| *a));
        // A quarantine never removes the last agent: it means that others do better, not that no
        // work is done.
        if asked.is_empty() {
            asked.extend(skipped.iter().filter(|(_, how)| matches!(how, Admission::Out(_))).map(|(a, _)| *a));
        }
        Candidates { asked, skipped, order }
    }

    /// A start may be the trial of a quarantined subject.
    pub(super) fn try_out(&mut self, agent: &AgentSpec, kind: &str, turn: &crate::ids::TurnId) {
        for step in self.out.immune.trials(&subjects(self.ctx.node, agent, Some(kind)), turn, self.ctx.now) {
            self.emit(Event::Immune { step: Box::new(step) });
        }
    }

    /// Counts the end of a turn for every subject that took part in it.
    pub(super) fn blame(&mut self, turn: &Turn, exit: &Exit, outcome: &Outcome) {
        self.close_alerts();
        let state = self.state();
        let agent = state.spec.agents().find(|a| a.name == turn.agent && a.account == turn.account).cloned();
        // The agent may have been removed from the configuration meanwhile; its trial ends all the
        // same.
        let steps = match (Class::of(outcome), agent) {
            (Some(class), Some(agent)) => {
                let task = self.ctx.current_task.as_ref().filter(|t| t.id == turn.task);
                let subjects = subjects(self.ctx.node, &agent, task.map(|t| t.kind.as_str()));
                let seen = ObservedOutcome { subjects, class, reset_at: exit.limit().and_then(|l| l.reset_at) };
                let kind = task.map_or("", |t| t.kind.as_str());
                let fit = state.spec.agents().filter(|a| a.tasks.include(kind, task.map_or(0, |t| t.priority)));
                let candidates: Vec<Vec<Subject>> =
                    fit.map(|a| immune::subjects(self.ctx.node, a, Some(kind))).collect();
                observe(&self.out.immune, &turn.id, &seen, &candidates, self.ctx.now)
            }
            _ => untried(&self.out.immune, &turn.id),
        };
        for step in steps {
            let (alert, over) = (alert(&step, "this node"), all_clear(&step));
            self.emit(Event::Immune { step: Box::new(step) });
            if let Some((key, text)) = alert {
                self.ticket(key.to_owned(), text);
            }
            // The loop that opened the ticket may have ended meanwhile.
            if let Some((key, answer)) = over.filter(|(key, _)| !self.state().people.tickets.iter().any(|k| k == key)) {
                self.out.ops.push(Op::CloseTicket { key: key.to_owned(), answer: answer.to_owned() });
            }
        }
        self.close_alerts();
    }

    /// Closes the fleet tickets of this loop once their cause is gone, whichever loop noticed that.
    pub(super) fn close_alerts(&mut self) {
        if self.out.immune.suspicion.is_none() {
            self.close_ticket(OBSERVER, TRUSTED);
        }
        if self.out.immune.moved.is_none() {
            self.close_ticket(THRESHOLD, SETTLED);
        }
    }
}

/// The ticket that a step answers.
pub(crate) fn all_clear(step: &ImmuneStep) -> Option<(&'static str, &'static str)> {
    match step {
        ImmuneStep::Trusted => Some((OBSERVER, TRUSTED)),
        ImmuneStep::Settled { .. } => Some((THRESHOLD, SETTLED)),
        _ => None,
    }
}

/// Text of a ticket that a step opens. `here` names the place that may be the real cause.
pub(crate) fn alert(step: &ImmuneStep, here: &str) -> Option<(&'static str, String)> {
    match step {
        ImmuneStep::Suspected { reason } => {
            let seen: Vec<String> = reason.inputs.iter().map(|(what, n)| format!("{what}: {n}")).collect();
            let text = format!(
                "everything fails at once ({}); nothing is quarantined, because the cause is rather {here}, its network or \
                 everloop itself",
                seen.join(", ")
            );
            Some((OBSERVER, text))
        }
        ImmuneStep::Moved { threshold, permille, reason } => {
            let what = match threshold {
                Threshold::Margin => "the margin over others above which a failure is charged",
                Threshold::Out => "the length of a quarantine",
            };
            let why = match &reason.rule {
                RuleId::ImmuneMany => format!("{} are quarantined at once", reason.input("out")),
                _ => format!("{} had to be quarantined again", reason.input("relapses")),
            };
            let text = format!(
                "{why}; {what} is {}.{:03} times the built-in value now, and is reviewed in 50 minutes",
                permille / 1000,
                permille % 1000
            );
            Some((THRESHOLD, text))
        }
        _ => None,
    }
}
