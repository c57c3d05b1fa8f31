//! Lives of a persona in a few steps.

use super::*;
use crate::rhythm::bucket::WakeAllowance;
use crate::rhythm::reflex::SignalPattern;
use crate::rhythm::row::TAKEN_AT_ONCE;
use crate::rhythm::tests_support::{at, minutes, signal};

struct Life {
    state: PersonaState,
    cadence: Cadence,
    reflexes: ReflexSpec,
    now: Time,
}

impl Life {
    fn new() -> Self {
        let now = at(6, 1, 10, 0);
        Self { state: PersonaState::default(), cadence: Cadence::default(), reflexes: ReflexSpec::default(), now }
    }

    fn step(&mut self, step: &RhythmStep) {
        self.state.apply(step, &self.cadence, &InwardSpec::default());
        let stored = serde_json::to_string(&self.state).expect("text");
        assert_eq!(serde_json::from_str::<PersonaState>(&stored).expect("the same"), self.state);
    }

    fn send(&mut self, signal: &Signal) {
        let (effect, _) = self.state.receive(&self.reflexes, signal, self.now);
        self.step(&RhythmStep::Received { at: self.now, key: signal.key(), effect });
    }

    /// A turn with all that waits, up to what one takes; ignored ones last.
    fn work(&mut self) -> u64 {
        let taken = self.state.waiting.min(TAKEN_AT_ONCE as u64);
        let ignored = taken.saturating_sub(self.state.waiting - self.state.waiting_ignored);
        self.step(&RhythmStep::Began {
            at: self.now,
            cause: self.state.history.pending.clone(),
            taken,
            ignored,
            plan: None,
            replies: Vec::new(),
        });
        self.rest(None);
        taken
    }

    fn rest(&mut self, wish: Option<WakeWish>) {
        self.step(&RhythmStep::Rested { at: self.now, outcome: TurnOutcome::Good, wish });
    }

    fn status(&self) -> PersonaStatus {
        self.state.status(&self.cadence, None)
    }
}

#[test]
fn two_low_signals_wake_and_both_are_taken() {
    let mut life = Life::new();
    life.send(&signal("1", SignalClass::Low));
    assert_eq!((life.state.history.pending.clone(), life.state.waiting), (None, 1));
    assert!(life.state.has_signals(), "the next look has a reason for a turn");
    life.now = life.now + minutes(9);
    life.send(&signal("2", SignalClass::Low));
    assert_eq!(life.state.history.pending, Some(WakeCause::Signal { class: SignalClass::Low }));
    assert_eq!((life.work(), life.state.waiting), (2, 0));
    life.send(&signal("3", SignalClass::Low));
    assert_eq!(life.state.history.pending, None, "after a look it begins anew");
}

#[test]
fn ignored_signals_are_kept_and_are_no_reason_for_a_turn() {
    let mut life = Life::new();
    life.reflexes.ignore = vec![SignalPattern::new("noise")];
    for id in ["1", "2", "3"] {
        life.send(&Signal { tags: ["noise".to_owned()].into(), ..signal(id, SignalClass::High) });
    }
    assert_eq!((life.state.history.pending.clone(), life.state.yields.ignored, life.state.waiting), (None, 3, 3));
    assert!(!life.state.has_signals());
    life.step(&RhythmStep::Summoned { at: life.now });
    assert!(life.state.has_signals(), "a person wants to know");
    assert_eq!(life.work(), 3);
    assert_eq!((life.state.waiting, life.state.waiting_ignored), (0, 0));
}

#[test]
fn a_storm_is_taken_in_parts_and_nothing_is_lost() {
    let mut life = Life::new();
    for n in 0..250 {
        life.send(&signal(&n.to_string(), SignalClass::Medium));
    }
    let mut taken = Vec::new();
    while life.state.history.pending.is_some() {
        taken.push(life.work());
    }
    assert_eq!(taken, [100, 100, 50]);
    assert_eq!((life.state.waiting, life.state.yields.taken), (0, 250));
    assert!(serde_json::to_string(&life.state).expect("text").len() < 2_000);
}

#[test]
fn a_storm_of_ignored_signals_hides_no_other_one() {
    let mut life = Life::new();
    life.reflexes.ignore = vec![SignalPattern::new("noise")];
    for n in 0..150 {
        life.send(&Signal { tags: ["noise".to_owned()].into(), ..signal(&n.to_string(), SignalClass::Medium) });
    }
    for n in 150..270 {
        life.send(&signal(&n.to_string(), SignalClass::Medium));
    }
    assert_eq!((life.work(), life.state.waiting, life.state.waiting_ignored), (100, 170, 150));
    assert!(life.state.has_signals() && life.state.history.pending.is_some(), "twenty are a reason for another turn");
    assert_eq!((life.work(), life.state.waiting, life.state.waiting_ignored), (100, 70, 70));
    assert!(!life.state.has_signals() && life.state.history.pending.is_none());
}

#[test]
fn empty_looks_are_counted_until_something_real() {
    let mut life = Life::new();
    for n in 1..=30 {
        life.step(&RhythmStep::Looked { at: life.now });
        assert_eq!(life.state.history.empty, n);
    }
    assert_eq!(life.status(), PersonaStatus::Parked);
    life.work();
    assert_eq!((life.state.history.empty, life.status()), (0, PersonaStatus::Asleep));
    assert_eq!((life.state.yields.looks, life.state.yields.worked), (31, 1));
}

#[test]
fn flags_and_topics_end_a_sleep() {
    let mut life = Life::new();
    let low = |id: &str, topic: &str| Signal { topic: topic.to_owned(), ..signal(id, SignalClass::Low) };
    life.rest(Some(WakeWish::When { flag: "ci".to_owned() }));
    assert_eq!(life.status(), PersonaStatus::Blocked { flag: "ci".to_owned() });
    life.send(&low("1", "other"));
    assert_eq!(life.state.history.pending, None);
    life.now = life.now + minutes(20);
    life.send(&low("2", "ci"));
    assert!(life.state.history.pending.is_some());
    life.work();
    life.rest(Some(WakeWish::On { topic: "deploy.*".to_owned(), or_in: None }));
    life.send(&low("3", "billing"));
    assert_eq!(life.state.history.pending, None);
    life.now = life.now + minutes(20);
    life.send(&low("4", "deploy.eu"));
    assert!(life.state.history.pending.is_some(), "one of class low is enough for what it waits for");
}

#[test]
fn looks_are_charged_except_those_of_people() {
    let mut life = Life::new();
    let allowance = WakeAllowance { wakes: 4, per: minutes(60) };
    life.cadence.wakes = Some(allowance);
    life.step(&RhythmStep::Looked { at: life.now });
    assert_eq!(life.state.history.bucket.balance_milli(allowance, life.now), 3_000);
    life.step(&RhythmStep::Summoned { at: Time(0) });
    life.step(&RhythmStep::Looked { at: life.now });
    assert_eq!(life.state.history.bucket.balance_milli(allowance, life.now), 3_000);
}

#[test]
fn the_status_is_the_guards_first() {
    let life = Life::new();
    let until = Time(9);
    for (hold, expected) in [
        (Hold::Cooling { until }, "cooling"),
        (Hold::Limited { until }, "cooling"),
        (Hold::Frozen { until: None }, "frozen"),
    ] {
        assert_eq!(life.state.status(&life.cadence, Some(&hold)).as_str(), expected);
    }
    assert_eq!(life.status().as_str(), "asleep");
    assert_eq!(life.state.mood(None, life.now), mood::Mood::Chill);
    let old: PersonaState = serde_json::from_str("{}").expect("every field has a default");
    assert_eq!(old, PersonaState::default());
}
