//! What makes a loop a persona, and the parts of a loop's state that are about it.

use serde::{Deserialize, Serialize};

use super::cadence::Cadence;
use super::factor::Hold;
use super::reflex::ReflexSpec;
use super::state::PersonaStatus;
use crate::reason::{Reason, RuleId};
use crate::state::{LoopState, Phase};

/// The persona part of a loop's specification. Its charter is the loop's goal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PersonaSpec {
    pub cadence: Cadence,
    pub reflex: ReflexSpec,
}

impl LoopState {
    /// Whether the loop is a persona.
    pub fn is_persona(&self) -> bool {
        self.spec.persona.is_some()
    }

    /// What the guard holds the loop with.
    pub fn hold(&self) -> Option<Hold> {
        let Phase::Waiting { reason, .. } = &self.phase else { return None };
        hold(reason)
    }

    /// What a persona is doing, in the states of personas; `None` for any other loop and for one
    /// that is over.
    pub fn persona_status(&self) -> Option<PersonaStatus> {
        let (spec, persona) = (self.spec.persona.as_deref()?, self.persona.as_deref()?);
        match &self.phase {
            Phase::Ended { .. } => None,
            Phase::Turn(_) => Some(PersonaStatus::Working),
            Phase::New | Phase::Ready => Some(PersonaStatus::Looking),
            Phase::Waiting { .. } => Some(persona.status(&spec.cadence, self.hold().as_ref())),
        }
    }
}

/// The hold that a reason to wait stands for; `None` if the guard has no part in it.
fn hold(reason: &Reason) -> Option<Hold> {
    match (&reason.rule, reason.until) {
        (RuleId::GuardFreeze, until) => Some(Hold::Frozen { until }),
        (RuleId::GuardLimit, Some(until)) => Some(Hold::Limited { until }),
        (rule, Some(until)) if rule.as_str().starts_with("guard.") => Some(Hold::Cooling { until }),
        (_, _) => None,
    }
}
