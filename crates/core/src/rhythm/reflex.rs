//! What a signal does to a sleeping persona: wake it, wait for the next look, or be kept without
//! waking. Pure and without a model.
//!
//! A reflex ends a nap only. Cooldowns, freezes and limits are holds, which
//! [`next`](super::next) applies after every wake.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::glob;
use super::signal::{PersonaName, Signal, SignalClass};
use crate::planted::{self, Bug};
use crate::time::{Time, millis};

/// Two signals of class low within this time wake.
pub const LOW_WINDOW: Duration = Duration::from_secs(600);
/// Most patterns in each list: every signal is compared with all of them.
pub const PATTERNS_MAX: usize = 100;
/// Most personas that a high signal is passed on to: each copy is a row and may be a wake.
pub const RELATED_MAX: usize = 20;

/// A tag or a glob of topics: `tag:infra`, `topic:deploy.*`, or `infra*` for both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SignalPattern(String);

impl SignalPattern {
    /// A pattern as it is configured.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The pattern as it is configured.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a tag or the topic of the signal matches.
    pub fn matches(&self, signal: &Signal) -> bool {
        let tag = |pattern: &str| signal.tags.iter().any(|tag| glob::matches(pattern, tag));
        let topic = |pattern: &str| !signal.topic.is_empty() && glob::matches(pattern, &signal.topic);
        match (self.0.strip_prefix("tag:"), self.0.strip_prefix("topic:")) {
            (Some(pattern), _) => tag(pattern),
            (None, Some(pattern)) => topic(pattern),
            (None, None) => tag(&self.0) || topic(&self.0),
        }
    }
}

/// Which signals wake a persona.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReflexSpec {
    #[serde(with = "millis")]
    pub low_window: Duration,
    /// If there are any, only signals that match one of them wake.
    pub wake_on: Vec<SignalPattern>,
    /// Signals that never wake; stronger than `wake_on`.
    pub ignore: Vec<SignalPattern>,
    /// Personas that a high signal is passed on to.
    pub related: Vec<PersonaName>,
}

impl Default for ReflexSpec {
    fn default() -> Self {
        Self { low_window: LOW_WINDOW, wake_on: Vec::new(), ignore: Vec::new(), related: Vec::new() }
    }
}

impl ReflexSpec {
    /// Whether the lists are within their limits.
    pub fn validate(&self) -> Result<(), String> {
        for (key, len, most) in [
            ("wake_on", self.wake_on.len(), PATTERNS_MAX),
            ("ignore", self.ignore.len(), PATTERNS_MAX),
            ("related", self.related.len(), RELATED_MAX),
        ] {
            if len > most {
                return Err(format!("`{key}` has {len} entries; hint: at most {most}"));
            }
        }
        Ok(())
    }
}

/// What a signal does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Reflex {
    /// It is counted and waits for the next wake, whatever follows.
    Ignored {
        /// The pattern of `ignore`; `None` if it matches none of `wake_on`.
        by: Option<String>,
    },
    /// It waits; a second one until this time wakes.
    Faint { until: Time },
    /// It wakes, and these copies are passed on.
    Wakes {
        class: SignalClass,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pass_on: Vec<Signal>,
    },
}

/// What a signal does to a persona. `last_low` is the latest signal of class low since the last
/// wake; times are those of arrival, because a sender's clock may be wrong.
pub fn reflex(spec: &ReflexSpec, last_low: Option<Time>, signal: &Signal, now: Time) -> Reflex {
    let ignored = spec.ignore.iter().find(|pattern| pattern.matches(signal));
    if let Some(pattern) = ignored.filter(|_| !planted::is(Bug::RhythmIgnoredWakes)) {
        return Reflex::Ignored { by: Some(pattern.as_str().to_owned()) };
    }
    if !spec.wake_on.is_empty() && !spec.wake_on.iter().any(|pattern| pattern.matches(signal)) {
        return Reflex::Ignored { by: None };
    }
    match signal.class {
        SignalClass::Low => {
            let expires = !planted::is(Bug::RhythmLowNeverExpires);
            let second = last_low.is_some_and(|last| now.since(last) <= spec.low_window || !expires);
            if second || planted::is(Bug::RhythmLowWakesAtOnce) {
                Reflex::Wakes { class: SignalClass::Low, pass_on: Vec::new() }
            } else {
                Reflex::Faint { until: now + spec.low_window }
            }
        }
        SignalClass::Medium => Reflex::Wakes { class: SignalClass::Medium, pass_on: Vec::new() },
        SignalClass::High => Reflex::Wakes { class: SignalClass::High, pass_on: pass_on(spec, signal) },
    }
}

/// The copies of a high signal for related personas. A copy goes no further, so personas that are
/// related to each other in any way get it at most once from each that it was sent to; its key
/// stays the same, so each of them takes it once. The answer is the first one's.
fn pass_on(spec: &ReflexSpec, signal: &Signal) -> Vec<Signal> {
    if signal.passed_by.is_some() && !planted::is(Bug::RhythmPassesInCircles) {
        return Vec::new();
    }
    let mut to: Vec<&PersonaName> = spec.related.iter().filter(|name| **name != signal.to).collect();
    to.sort();
    to.dedup();
    to.truncate(RELATED_MAX);
    let copy = |name: &PersonaName| Signal {
        to: name.clone(),
        passed_by: Some(signal.to.clone()),
        reply_to: None,
        ..signal.clone()
    };
    to.into_iter().map(copy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rhythm::tests_support::{minutes, signal};

    const NOW: Time = Time(1_000_000_000);

    fn wakes(class: SignalClass) -> Reflex {
        Reflex::Wakes { class, pass_on: Vec::new() }
    }

    #[test]
    fn classes_wake_at_the_second_and_at_the_first() {
        let spec = ReflexSpec::default();
        let low = signal("1", SignalClass::Low);
        let faint = Reflex::Faint { until: NOW + LOW_WINDOW };
        for (last, expected) in [
            (None, faint.clone()),
            (Some(NOW - minutes(3)), wakes(SignalClass::Low)),
            (Some(NOW - minutes(10)), wakes(SignalClass::Low)),
            (Some(NOW - minutes(10) - Duration::from_millis(1)), faint),
            // The clock went back: rather one wake too many.
            (Some(NOW + minutes(5)), wakes(SignalClass::Low)),
        ] {
            assert_eq!(reflex(&spec, last, &low, NOW), expected, "{last:?}");
        }
        assert_eq!(reflex(&spec, None, &signal("2", SignalClass::Medium), NOW), wakes(SignalClass::Medium));
        assert_eq!(reflex(&spec, None, &signal("3", SignalClass::High), NOW), wakes(SignalClass::High));
    }

    #[test]
    fn patterns_are_tags_and_globs_of_topics() {
        let patterns = |list: &[&str]| list.iter().map(|text| SignalPattern::new(*text)).collect::<Vec<_>>();
        let mut about = signal("1", SignalClass::High);
        about.topic = "deploy.eu".to_owned();
        about.tags = ["infra".to_owned()].into();
        for (wake_on, ignore, woken) in [
            (&[][..], &[][..], true),
            (&["infra"], &[], true),
            (&["deploy.*"], &[], true),
            (&["tag:deploy.*"], &[], false),
            (&["topic:infra"], &[], false),
            (&["billing", "tag:inf*"], &[], true),
            (&["billing"], &[], false),
            (&["infra"], &["deploy.eu"], false),
            (&[], &["infra"], false),
            (&[], &["inf"], true),
        ] {
            let spec = ReflexSpec { wake_on: patterns(wake_on), ignore: patterns(ignore), ..ReflexSpec::default() };
            let is = matches!(reflex(&spec, None, &about, NOW), Reflex::Wakes { .. });
            assert_eq!(is, woken, "wake_on {wake_on:?}, ignore {ignore:?}");
        }
        let spec = ReflexSpec { wake_on: patterns(&["*"]), ..ReflexSpec::default() };
        let bare = signal("2", SignalClass::High);
        assert_eq!(reflex(&spec, None, &bare, NOW), Reflex::Ignored { by: None }, "it has neither tag nor topic");
    }

    #[test]
    fn a_high_signal_reaches_three_related_personas_once_each() {
        let names = ["a", "b", "c"];
        let spec = ReflexSpec {
            related: names.iter().map(|name| name.parse().expect("a name")).collect(),
            ..ReflexSpec::default()
        };
        let first = Signal { to: "a".parse().expect("a name"), ..signal("1", SignalClass::High) };
        let mut open = vec![first];
        let mut reached: Vec<(String, String)> = Vec::new();
        while let Some(next) = open.pop() {
            reached.push((next.to.to_string(), next.key()));
            assert!(reached.len() < 10, "it goes in a circle: {reached:?}");
            if let Reflex::Wakes { pass_on, .. } = reflex(&spec, None, &next, NOW) {
                open.extend(pass_on);
            }
        }
        reached.sort();
        let key = "test/1".to_owned();
        assert_eq!(reached, names.map(|name| (name.to_owned(), key.clone())));
    }

    #[test]
    fn ignored_signals_are_not_passed_on() {
        let spec = ReflexSpec {
            ignore: vec![SignalPattern::new("noise")],
            related: vec!["b".parse().expect("a name")],
            ..ReflexSpec::default()
        };
        let mut noise = signal("1", SignalClass::High);
        noise.tags = ["noise".to_owned()].into();
        assert_eq!(reflex(&spec, None, &noise, NOW), Reflex::Ignored { by: Some("noise".to_owned()) });
    }

    #[test]
    fn lists_have_limits() {
        assert_eq!(ReflexSpec::default().validate(), Ok(()));
        let many = ReflexSpec { ignore: vec![SignalPattern::new("x"); 101], ..ReflexSpec::default() };
        assert!(many.validate().expect_err("too many").contains("101"));
    }
}
