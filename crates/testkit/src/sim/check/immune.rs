//! I8: quarantine caps hold, every entry has an end, and no quarantined subject works while others
//! could. Derived from the steps in the journal.

use std::time::Duration;

use everloop_core::event::Event;
use everloop_core::ids::{LoopId, NodeId};
use everloop_core::immune::{BEAT, Dimension, ImmuneStep, Subject, Tier, subjects};
use everloop_core::state::LoopState;
use everloop_core::time::Time;

use super::{Watch, broken};
use crate::sim::world::{Violation, World, here};

/// The longest quarantine by the tiers, unless a vendor's limit sets its end.
pub const OUT_MOST: Duration = BEAT.saturating_mul(160);

impl Watch {
    pub(super) fn is_suspicious(&self) -> bool {
        self.immune.suspicion.is_some()
    }
}

impl World {
    /// A step, as it is journaled.
    pub(super) fn observe_step(&mut self, event: &Event, at: Time) -> Result<(), Violation> {
        let Event::Immune { step } = event else { return Ok(()) };
        self.watch.immune.apply(step, at);
        match &**step {
            ImmuneStep::Out { subject, until, .. } => {
                if subject.dimension == Dimension::Node {
                    return broken("I8", format!("{subject}, the only machine, is quarantined"));
                }
                if *until > at + OUT_MOST && subject.dimension != Dimension::Account {
                    return broken("I8", format!("{subject} is quarantined for longer than {OUT_MOST:?}"));
                }
                self.check_ways()
            }
            ImmuneStep::Ruled { rule } if rule.until <= at => {
                broken("I8", format!("rule {} has no end ahead", rule.id))
            }
            _ => Ok(()),
        }
    }

    /// At least one account and one agent must not be quarantined.
    fn check_ways(&self) -> Result<(), Violation> {
        let out = |s: &Subject| matches!(self.watch.immune.standings.get(s).map(|s| &s.tier), Some(Tier::Out { .. }));
        for dimension in [Dimension::Account, Dimension::Agent] {
            let node = here();
            let mut all = self.watch.loops.values().flat_map(|w| candidates(&w.fold, &node)).flatten();
            let all_out = |s: Subject| s.dimension != dimension || out(&s);
            if all.all(all_out) {
                return broken("I8", format!("every {} is quarantined", dimension.label()));
            }
        }
        Ok(())
    }

    /// A turn starts with a quarantined agent or account only as a trial that is due, or because
    /// the loop has no other.
    pub(super) fn check_quarantine(&self, id: &LoopId, event: &Event, at: Time) -> Result<(), Violation> {
        let Event::TurnStarted { turn, agent, account, .. } = event else { return Ok(()) };
        let out = |s: &Subject| match self.watch.immune.standings.get(s).map(|s| &s.tier) {
            Some(Tier::Out { until, trial }) => trial.as_ref() != Some(turn) || *until > at,
            _ => false,
        };
        let invariants = &self.watch.loops[id];
        // By the names under which the product counts them, not by those of the event.
        let mut agents = invariants.fold.spec.agents();
        let Some(taken) = agents.find(|a| a.name == *agent && a.account == *account) else { return Ok(()) };
        let mut chosen = subjects(&here(), taken, None);
        chosen.retain(|s| matches!(s.dimension, Dimension::Agent | Dimension::Account));
        let Some(bad) = chosen.iter().find(|s| out(s)) else { return Ok(()) };
        if candidates(&invariants.fold, &here()).any(|who| !who.iter().any(out)) {
            return broken("I8", format!("turn {turn} was given to {bad}, who is quarantined, and others are there"));
        }
        Ok(())
    }

    /// The stored document is the fold of the journal.
    pub(super) fn check_immune(&self) -> Result<(), Violation> {
        let (_, stored) = self.ledger.immune();
        if stored != self.watch.immune {
            return broken("replay", format!("quarantine: stored {stored:?}, replayed {:?}", self.watch.immune));
        }
        Ok(())
    }
}

/// The agents that can take a loop's turns, each as its subjects.
fn candidates<'a>(state: &'a LoopState, node: &'a NodeId) -> impl Iterator<Item = Vec<Subject>> + 'a {
    state.spec.agents().map(move |agent| subjects(node, agent, None))
}
