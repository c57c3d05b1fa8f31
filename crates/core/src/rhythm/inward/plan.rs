//! Plans that a dream prepares: if a signal of this kind comes, begin so. The prompt of a wake has
//! the first one that is for its signals.

use serde::{Deserialize, Serialize};

use crate::planted::{self, Bug};
use crate::rhythm::reflex::SignalPattern;
use crate::rhythm::signal::{Signal, SignalClass};

/// Most plans of a persona: each is compared with every signal of a wake, and more are no plans.
pub const PLANS_MAX: usize = 3;
/// Most characters of a plan's text, which is a part of a prompt.
pub const PLAN_MAX_CHARS: usize = 600;

/// What to begin with if a signal of this kind comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IfWoken {
    /// Tag or topic; without it any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<SignalPattern>,
    /// Without it any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<SignalClass>,
    /// Written by an agent; data.
    pub text: String,
}

impl IfWoken {
    /// Whether the plan is for this signal.
    pub fn matches(&self, signal: &Signal) -> bool {
        let class = self.class.is_none_or(|class| class == signal.class);
        let when = self.when.as_ref().is_none_or(|pattern| pattern.matches(signal));
        if planted::is(Bug::RhythmPlanMatchesAny) { class || when } else { class && when }
    }

    /// The signals that it is for, in words.
    pub fn describe(&self) -> String {
        let when = self.when.as_ref().map(|pattern| pattern.as_str().to_owned());
        let class = self.class.map(|class| format!("class {}", class.as_str()));
        when.into_iter().chain(class).collect::<Vec<_>>().join(", ")
    }
}

/// Whether a wake had a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum PlanUse {
    /// The number of the plan, from 0.
    Hit { plan: usize },
    /// There were plans, for other signals.
    Miss,
}

/// The first plan for one of these signals.
pub fn first<'a>(plans: &'a [IfWoken], signals: &[Signal]) -> Option<(usize, &'a IfWoken)> {
    plans.iter().enumerate().find(|(_, plan)| signals.iter().any(|signal| plan.matches(signal)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rhythm::tests_support::signal;

    fn plan(when: Option<&str>, class: Option<SignalClass>) -> IfWoken {
        IfWoken { when: when.map(SignalPattern::new), class, text: "begin".to_owned() }
    }

    #[test]
    fn a_plan_is_for_a_topic_a_tag_and_a_class() {
        let arrived = Signal {
            topic: "deploy.eu".to_owned(),
            tags: ["infra".to_owned()].into(),
            ..signal("1", SignalClass::High)
        };
        for (when, class, expected) in [
            (Some("topic:deploy.*"), None, true),
            (Some("tag:infra"), Some(SignalClass::High), true),
            (Some("infra"), Some(SignalClass::Low), false),
            (Some("topic:billing"), Some(SignalClass::High), false),
            (None, Some(SignalClass::High), true),
        ] {
            assert_eq!(plan(when, class).matches(&arrived), expected, "{when:?} {class:?}");
        }
    }

    #[test]
    fn the_first_one_that_matches_counts() {
        let arrived = [signal("1", SignalClass::Low), signal("2", SignalClass::High)];
        let plans = [plan(None, Some(SignalClass::Medium)), plan(None, Some(SignalClass::High))];
        assert_eq!(first(&plans, &arrived).map(|(n, _)| n), Some(1));
        assert_eq!(first(&plans, &arrived[..1]), None);
        assert_eq!(plan(Some("infra"), Some(SignalClass::Low)).describe(), "infra, class low");
    }
}
