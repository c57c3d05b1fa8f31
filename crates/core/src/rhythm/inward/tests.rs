//! When inward turns are due, and that none exceeds its budget.

use super::*;
use crate::rhythm::metabolism::TurnOutcome;
use crate::rhythm::state::PersonaState;
use crate::rhythm::tests_support::minutes;

const NOW: Time = Time(1_700_000_000_000);

fn spec(reflect: &str, dream: &str) -> InwardSpec {
    let allowance = |text: &str| (!text.is_empty()).then(|| WakeAllowance::parse(text).expect("a budget"));
    InwardSpec { reflect: allowance(reflect), dream: allowance(dream), dream_microusd: None }
}

/// A persona that goes through its looks; every inward turn that is due takes place.
struct Days {
    state: PersonaState,
    spec: InwardSpec,
    cadence: Cadence,
    now: Time,
    taken: Vec<(Time, Inward)>,
    /// What each dream costs, in millionths of a dollar.
    cost: u64,
}

impl Days {
    fn new(spec: InwardSpec, cadence: Cadence) -> Self {
        Self { state: PersonaState::default(), spec, cadence, now: NOW, taken: Vec::new(), cost: 0 }
    }

    fn apply(&mut self, step: &RhythmStep) {
        self.state.apply(step, &self.cadence, &self.spec);
    }

    /// Twenty minutes later a look, with work or without.
    fn look(&mut self, works: bool) {
        self.now = self.now + minutes(20);
        if works {
            let replies = Vec::new();
            self.apply(&RhythmStep::Began { at: self.now, cause: None, taken: 0, ignored: 0, plan: None, replies });
            self.apply(&RhythmStep::Rested { at: self.now, outcome: TurnOutcome::Good, wish: None });
        } else {
            self.apply(&RhythmStep::Looked { at: self.now });
        }
        while let Some(inward) = self.state.inward.due(&self.spec, &self.cadence, self.now) {
            let at = self.now;
            self.apply(&RhythmStep::TurnedInward { at, inward });
            assert_eq!(self.state.inward.due(&self.spec, &self.cadence, at), None, "one at a time");
            self.taken.push((at, inward));
            let used = InwardCost { tokens: 10, microusd: self.cost };
            self.apply(&match inward {
                Inward::Dream => RhythmStep::Unanswered { at, inward, why: String::new(), used },
                Inward::Reflection { on } => {
                    let reflection =
                        Reflection { on, corrections: vec!["Read the log.".to_owned()], ..Reflection::default() };
                    RhythmStep::Reflected { at, reflection: Box::new(reflection), used }
                }
            });
        }
    }

    fn kinds(&self) -> String {
        let letter = |inward: &Inward| match inward {
            Inward::Reflection { on: ReflectOn::OnCycle } => 'r',
            Inward::Reflection { on: ReflectOn::OnSelf } => 'S',
            Inward::Dream => 'd',
        };
        self.taken.iter().map(|(_, inward)| letter(inward)).collect()
    }
}

fn interlaced() -> Cadence {
    crate::rhythm::cadence::Profile::Interlaced.cadence()
}

#[test]
fn without_a_budget_there_are_none() {
    let mut days = Days::new(InwardSpec::default(), interlaced());
    (0..500).for_each(|n| days.look(n % 2 == 0));
    assert_eq!(days.kinds(), "");
}

#[test]
fn with_nothing_to_do_there_are_none() {
    let mut days = Days::new(spec("12/day", "4/day"), interlaced());
    (0..2_000).for_each(|_| days.look(false));
    assert_eq!(days.kinds(), "", "there is nothing to reflect on or to dream of");
}

#[test]
fn interlaced_reflects_after_every_sixth_look_and_dreams_after_every_fourth() {
    let mut days = Days::new(spec("1000/day", "1000/day"), interlaced());
    let mut looks = Vec::new();
    for look in 1..=60 {
        let before = days.taken.len();
        days.look(true);
        looks.extend(days.taken[before..].iter().map(|(_, inward)| (look, inward.as_str())));
    }
    let of = |kind: &str| looks.iter().filter(|(_, k)| *k == kind).map(|(look, _)| *look).collect::<Vec<_>>();
    assert_eq!(of("reflection"), [6, 12, 18, 24, 30, 36, 42, 48, 54, 60]);
    assert_eq!(of("dream"), (1..=15).map(|n| n * 4).collect::<Vec<_>>());
}

#[test]
fn a_quiet_wake_after_work_is_reflected_on_once() {
    let mut days = Days::new(spec("12/day", ""), interlaced());
    for works in [true, true, false, false, false, true, false] {
        days.look(works);
    }
    assert_eq!(days.taken.iter().map(|(at, _)| at.since(NOW).as_secs() / 1200).collect::<Vec<_>>(), [3, 7]);
}

#[test]
fn every_fifth_reflection_is_about_those_before_it() {
    let mut days = Days::new(spec("1000/day", ""), interlaced());
    (0..90).for_each(|_| days.look(true));
    assert_eq!(days.kinds(), "rrrrSrrrrSrrrrS");
}

#[test]
fn a_budget_is_never_exceeded_and_survives_being_stored() {
    let mut days = Days::new(spec("3/day", "2/day"), Cadence { reflect_every: 1, dream_every: 1, ..interlaced() });
    for _ in 0..30 * 72 {
        days.look(true);
        let stored = serde_json::to_string(&days.state).expect("plain data");
        days.state = serde_json::from_str(&stored).expect("the same");
    }
    let (reflections, dreams) =
        (days.kinds().chars().filter(|c| *c != 'd').count(), days.kinds().chars().filter(|c| *c == 'd').count());
    assert!((3 * 30..=3 * 31).contains(&reflections), "{reflections}");
    assert!((2 * 30..=2 * 31).contains(&dreams), "{dreams}");
}

#[test]
fn dreams_cost_no_more_than_their_dollars() {
    let paid = InwardSpec { dream_microusd: Some(500_000), ..spec("", "100/day") };
    let mut days = Days::new(paid, Cadence { dream_every: 1, ..interlaced() });
    days.cost = 200_000;
    (0..10 * 72).for_each(|_| days.look(true));
    let spent = days.taken.len() as u64 * days.cost;
    assert!(
        (4_500_000..=5_500_000).contains(&spent),
        "$0.50 a day for ten days, and a full budget to begin with: {spent}"
    );
    // One that costs more than a day allows is made up for.
    days.cost = 5_000_000;
    let before = days.taken.len();
    (0..10 * 72).for_each(|_| days.look(true));
    assert_eq!(days.taken.len() - before, 1);
}

#[test]
fn three_corrections_alike_are_proposed() {
    let mut days = Days::new(spec("1000/day", ""), Cadence { reflect_every: 1, ..interlaced() });
    let made = ["  read THE log".to_owned()];
    for expected in [0, 0, 1, 1] {
        days.look(true);
        assert_eq!(days.state.inward.proposed(&made).len(), expected);
    }
    assert_eq!(days.state.yields.inward.tokens, 40);
}
