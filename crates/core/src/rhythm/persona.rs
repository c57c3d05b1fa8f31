//! What makes a loop a persona, and the parts of a loop's state that are about it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cadence::Cadence;
use super::factor::Hold;
use super::filter::RouteFilter;
use super::inward::{Inward, InwardSpec};
use super::reflex::ReflexSpec;
use super::signal::SignalClass;
use super::state::PersonaStatus;
use crate::reason::{Reason, RuleId};
use crate::state::{LoopState, Phase};

/// The persona part of a loop's specification. Its charter is the loop's goal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PersonaSpec {
    pub cadence: Cadence,
    pub reflex: ReflexSpec,
    #[serde(skip_serializing_if = "InwardSpec::is_off")]
    pub inward: InwardSpec,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteSpec>,
}

/// Entries of a stream that become signals of a persona, or tasks of a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteSpec {
    /// The name of the stream.
    pub stream: String,
    /// Without one, all entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<RouteFilter>,
    #[serde(default)]
    pub class: SignalClass,
    /// Of the task on a loop's board; higher is sooner.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// The stream of the answers to entries that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(priority: &i32) -> bool {
    *priority == 0
}

impl RouteSpec {
    /// Whether the route takes an entry of this stream with these fields.
    pub fn takes(&self, stream: &str, fields: &BTreeMap<String, String>) -> bool {
        self.stream == stream && self.filter.as_ref().is_none_or(|filter| filter.passes(fields))
    }
}

impl LoopState {
    /// Whether the loop is a persona.
    pub fn is_persona(&self) -> bool {
        self.spec.persona.is_some()
    }

    /// The reflection or dream under way.
    pub fn inward(&self) -> Option<Inward> {
        self.persona.as_deref().filter(|_| self.is_persona())?.inward.under_way
    }

    /// What the dream under way may cost, in millionths of a dollar; `None` without a limit.
    pub fn dream_left(&self) -> Option<u64> {
        let (spec, persona) = (self.spec.persona.as_deref()?, self.persona.as_deref()?);
        let Phase::Turn(turn) = &self.phase else { return None };
        persona.inward.dream_left(&spec.inward, turn.started_at)
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
            Phase::Turn(_) => Some(match persona.inward.under_way {
                None => PersonaStatus::Working,
                Some(Inward::Reflection { .. }) => PersonaStatus::Reflecting,
                Some(Inward::Dream) => PersonaStatus::Dreaming,
            }),
            Phase::New | Phase::Ready => Some(PersonaStatus::Looking),
            Phase::Waiting { .. } => Some(persona.status(&spec.cadence, self.hold().as_ref())),
        }
    }
}

/// The hold that a reason to wait stands for; `None` if the guard has no part in it.
pub(super) fn hold(reason: &Reason) -> Option<Hold> {
    match (&reason.rule, reason.until) {
        (RuleId::GuardFreeze, until) => Some(Hold::Frozen { until }),
        (RuleId::GuardLimit, Some(until)) => Some(Hold::Limited { until }),
        (rule, Some(until)) if rule.as_str().starts_with("guard.") => Some(Hold::Cooling { until }),
        (_, _) => None,
    }
}
