//! Inward turns: when a reflection or a dream begins, and what becomes of its answer. They have the
//! lowest priority: one begins only if nothing waits and the guard permits it at once, and none
//! holds up a loop, ends it, or is tried again.

use super::Step;
use super::advance::{Next, refused};
use crate::action::Action;
use crate::event::{Event, Exit, Outcome};
use crate::guard::{Permit, PermitDecision, Spend};
use crate::judge::failed;
use crate::op::Op;
use crate::planted::{self, Bug};
use crate::reason::{Reason, RuleId};
use crate::rhythm::inward::form::{DreamAnswer, Reflection, dream, reflection};
use crate::rhythm::inward::memory::MemoryChange;
use crate::rhythm::inward::plan::PlanUse;
use crate::rhythm::inward::{Inward, InwardCost, alike, plan};
use crate::rhythm::signal::Signal;
use crate::rhythm::state::RhythmStep;
use crate::state::Turn;

/// Prefix of the tickets that propose a rule.
const CORRECTION: &str = "persona.correction:";
/// Characters of a correction that are a part of its ticket's key.
const KEY_CHARS: usize = 60;

impl Step<'_> {
    /// The inward turn that may begin now, if the persona has nothing else to do.
    pub(super) fn inward_due(&self) -> Option<Inward> {
        let state = self.state();
        let (spec, persona) = (state.spec.persona.as_deref()?, state.persona.as_deref()?);
        let waits = self.has_signals() || self.own_work().is_some() || persona.history.pending.is_some();
        if spec.inward.is_off() || waits && !planted::is(Bug::RhythmDreamBeforeWork) {
            return None;
        }
        persona.inward.due(&spec.inward, &spec.cadence, self.ctx.now)
    }

    /// Begins an inward turn if the guard permits one now; else the persona sleeps on. A hold of
    /// the guard is no wait of the loop, because nothing is to be done.
    pub(super) fn turn_inward(&mut self, inward: Inward, resting: Reason) {
        let (state, next) = (self.state().clone(), Next::Inward(inward));
        let candidates = self.candidates(&state, next.kind(), next.priority());
        let mut again = resting.until;
        for agent in &candidates.asked {
            if refused(&state, agent).is_some() {
                continue;
            }
            let why = next.named(RuleId::AgentPreferred);
            match self.ask(&state, agent, next.priority()) {
                // It is no trial of a frozen account either.
                PermitDecision::Go(permit) if permit.canary.is_none() => {
                    return self.start(agent, permit, (next, why));
                }
                PermitDecision::Wait(_) if planted::is(Bug::RhythmReflectsWhileFrozen) => {
                    let permit = Permit { scopes: Vec::new(), reserve: Spend::default(), canary: None, bucket: None };
                    return self.start(agent, permit, (next, why));
                }
                PermitDecision::Wait(reason) => again = [again, reason.until].into_iter().flatten().min(),
                PermitDecision::Go(_) | PermitDecision::Spent(_) => {}
            }
        }
        self.wait(match again {
            Some(at) => resting.until(at),
            None => resting,
        });
    }

    /// The end of an inward turn: nothing of it is judged, because it works in a folder of its own.
    pub(super) fn end_inward(&mut self, turn: &Turn, exit: &Exit) {
        let outcome = match exit.limit().filter(|limit| limit.class.holds_account()) {
            Some(limit) if exit.stopped.is_none() => Outcome::Limited { class: limit.class, kept: false },
            _ if exit.ok() => Outcome::NoOp,
            _ => failed(exit, false, false).outcome,
        };
        self.end_turn(turn, exit, (outcome, None, None));
    }

    /// What is remembered of an inward turn that has just ended.
    pub(super) fn take_answer(&mut self, inward: Inward, exit: &Exit, (outcome, spend): (&Outcome, Spend)) {
        let (at, used) = (self.ctx.now, InwardCost { tokens: spend.tokens, microusd: spend.microusd });
        let unanswered = |why: String| RhythmStep::Unanswered { at, inward, why, used };
        let ended_well = *outcome == Outcome::NoOp;
        match inward {
            _ if !ended_well => self.rhythm(unanswered(format!("{}: {}", outcome.label(), exit.describe()))),
            Inward::Reflection { on } => match reflection(exit.last_words(), on, at) {
                Ok(found) => self.reflected(found, used),
                Err(why) => self.rhythm(unanswered(why)),
            },
            Inward::Dream => match dream(exit.last_words()) {
                Ok(found) => self.dreamed(found, used),
                Err(why) => self.rhythm(unanswered(why)),
            },
        }
        // As before the inward turn: a look that follows runs the checks on the present branch.
        let resting = super::rhythm::resting(&self.next_look());
        self.wait(resting);
    }

    fn reflected(&mut self, reflection: Reflection, used: InwardCost) {
        let mut stored = self.ctx.persona.memory.clone();
        stored.memory.reflect(reflection.clone());
        self.remember(stored.save(&self.state().id));
        let corrections = reflection.corrections.clone();
        self.rhythm(RhythmStep::Reflected { at: self.ctx.now, reflection: Box::new(reflection), used });
        let proposed: Vec<String> = match self.persona() {
            Some(persona) => persona.inward.proposed(&corrections).into_iter().cloned().collect(),
            None => Vec::new(),
        };
        for text in proposed {
            let (name, key) = (self.state().name.clone(), self.correction_key(&text));
            let text = format!(
                "persona {name} has made the same correction three times: `{text}`; to make it a rule of every turn: \
                 everloop persona remember {name} TEXT"
            );
            self.ticket(key, text);
        }
    }

    fn dreamed(&mut self, answer: DreamAnswer, used: InwardCost) {
        let mut stored = self.ctx.persona.memory.clone();
        let change = stored.memory.dream(answer.memory.as_deref(), self.ctx.now);
        // The plans of a dream that lost something are not used either.
        let plans = answer.plans.filter(|_| !matches!(change, MemoryChange::Refused { .. }));
        if let Some(plans) = &plans {
            stored.memory.plans.clone_from(plans);
        }
        if matches!(change, MemoryChange::Compacted { .. }) || plans.is_some() {
            self.remember(stored.save(&self.state().id));
        }
        let (at, memory, dropped) = (self.ctx.now, change, answer.dropped);
        self.rhythm(RhythmStep::Dreamed { at, memory, plans, dropped, used });
    }

    fn remember(&mut self, save: Op) {
        self.out.ops.push(save);
        self.act(Action::Remember);
    }

    /// A person adds a line to a persona's memory, which no dream may drop.
    pub(super) fn keep_line(&mut self, by: &str, line: &str) {
        if !self.state().is_persona() {
            return;
        }
        let mut stored = self.ctx.persona.memory.clone();
        let key = self.correction_key(line);
        self.close_ticket(&key, "it is remembered");
        if stored.memory.keep(line, by, self.ctx.now).is_some() {
            self.remember(stored.save(&self.state().id));
            self.rhythm(RhythmStep::Remembered { at: self.ctx.now, by: by.to_owned(), line: line.to_owned() });
        } else {
            let text = format!("the memory has this line already, or no room for it: {line}");
            self.emit(Event::Note { text });
        }
    }

    fn correction_key(&self, text: &str) -> String {
        let start: String = alike(text).chars().take(KEY_CHARS).collect();
        format!("{CORRECTION}{}:{start}", self.state().id)
    }

    /// Whether a wake with these signals has a plan.
    pub(super) fn plan_use(&self, signals: &[Signal]) -> Option<PlanUse> {
        let plans = &self.persona()?.inward.plans;
        if plans.is_empty() || signals.is_empty() {
            return None;
        }
        Some(plan::first(plans, signals).map_or(PlanUse::Miss, |(plan, _)| PlanUse::Hit { plan }))
    }
}
