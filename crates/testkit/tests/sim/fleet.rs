//! Fleets with one bad subject, with none, with all at once: which is blamed, and what the caps
//! allow.

use std::sync::Mutex;
use std::time::Duration;

use everloop_core::immune::choice::Admission;
use everloop_core::immune::rules::{RuleRequest, add};
use everloop_core::immune::{Dimension, Immune, RuleEffect, Subject};
use everloop_core::planted::{Bug, IMMUNE};
use everloop_core::time::Time;
use everloop_testkit::budget::Budget;
use everloop_testkit::fleet::{Bad, Fleet, Size, Story, subject};
use everloop_testkit::planted::Plant;
use everloop_testkit::random::Random;

use super::in_parallel;

/// Fleets that are simulated however long it takes.
const LEAST: u64 = 200;
/// Outcomes of a story: a working day of a small fleet.
const OUTCOMES: u64 = 600;

const SIZES: [Size; 5] = [
    Size { nodes: 3, panes: 2, accounts: 2, agents: 2, kinds: 3 },
    Size { nodes: 4, panes: 0, accounts: 3, agents: 2, kinds: 4 },
    Size { nodes: 6, panes: 3, accounts: 3, agents: 3, kinds: 3 },
    Size { nodes: 10, panes: 2, accounts: 4, agents: 3, kinds: 5 },
    Size { nodes: 20, panes: 0, accounts: 5, agents: 3, kinds: 6 },
];

fn fleet(size: Size, bad: Bad, base: u64, failing: u64) -> Fleet {
    Fleet { size, bad, base, failing, outcomes: OUTCOMES, ill: 0..OUTCOMES }
}

/// One bad subject, of every dimension in turn.
fn culprit(size: Size, n: u64) -> Bad {
    let dimension = match Dimension::ALL[(n % 5) as usize] {
        Dimension::Pane if size.panes == 0 => Dimension::Node,
        other => other,
    };
    Bad::These(vec![subject(dimension, n / 5 % 2)])
}

/// Runs them all; no run may violate an invariant.
fn stories(fleets: &[(Fleet, u64)]) -> Vec<(Fleet, Story)> {
    let told = Mutex::new(Vec::new());
    in_parallel(fleets, |(fleet, seed)| {
        let story = fleet.run(*seed);
        assert_eq!(story.broken, None, "{fleet:?}, seed {seed}");
        told.lock().expect("no thread panics while it holds this").push((fleet.clone(), story));
    });
    told.into_inner().expect("no thread panics while it holds this")
}

/// The number of fleets in which the core acted, and of those in which it acted on the right
/// subject first.
fn blamed(told: &[(Fleet, Story)]) -> (usize, usize) {
    let acted = told.iter().filter(|(_, s)| s.first.is_some()).count();
    let right = told.iter().filter(|(f, s)| s.first.as_ref().is_some_and(|first| f.is_bad(first))).count();
    (acted, right)
}

fn one_bad(base: u64, failing: u64, fleets: u64) -> Vec<(Fleet, Story)> {
    let draw = |n: u64| {
        let size = SIZES[(n / 10 % 5) as usize];
        (fleet(size, culprit(size, n), base, failing), n)
    };
    stories(&(0..fleets).map(draw).collect::<Vec<_>>())
}

#[test]
#[expect(clippy::print_stderr, reason = "the figures are worth more than the verdict")]
fn long_the_one_who_is_bad_is_blamed_and_no_cap_is_broken() {
    const EACH: usize = 40;
    let (mut acted, mut right, mut found, mut clear) = (0, 0, 0, 0);
    for failing in [300, 500, 700, 1000] {
        for base in [0, 50, 100] {
            let told = one_bad(base, failing, EACH as u64);
            let (held, rightly) = blamed(&told);
            let out = told.iter().filter(|(f, s)| s.out.keys().any(|s| f.is_bad(s))).count();
            let wrong = told.iter().filter(|(f, s)| s.out.keys().any(|s| !f.is_bad(s))).count();
            eprintln!(
                "fails {failing} ‰, others {base} ‰: of {EACH} fleets {held} hold a subject, the right one first in \
                 {rightly}; the right one out in {out}, another one in {wrong}"
            );
            (acted, right) = (acted + held, right + rightly);
            if failing >= 500 {
                (found, clear) = (found + rightly, clear + EACH);
            }
        }
    }
    eprintln!("the right one first: {right} of {acted}; found from 500 ‰ on: {found} of {clear}");
    assert!(right * 100 >= acted * 95, "{right} of {acted}");
    assert!(found * 100 >= clear * 95, "{found} of {clear}");
}

#[test]
#[expect(clippy::print_stderr, reason = "as above")]
fn long_healthy_fleets_are_left_alone() {
    let draw = |n: u64| (fleet(SIZES[(n % 5) as usize], Bad::Nobody, 50 + n % 51, 0), n);
    let told = Mutex::new(Vec::new());
    let seeds = Budget::new(LEAST).seeds(|n| {
        let (fleet, seed) = draw(n);
        let story = fleet.run(seed);
        assert_eq!(story.broken, None, "{fleet:?}, seed {seed}");
        told.lock().expect("no thread panics while it holds this").push((fleet, story));
    });
    let told = told.into_inner().expect("no thread panics while it holds this");
    let charges: u32 = told.iter().flat_map(|(_, s)| s.charged.values()).sum();
    let (held, _) = blamed(&told);
    eprintln!(
        "healthy fleets of the seeds {seeds:?}, {OUTCOMES} outcomes each: {charges} charges, somebody held in {held}"
    );
    assert_eq!(held, 0);
    assert!(told.iter().all(|(_, s)| !s.suspected && s.moved == 0));
}

#[test]
fn when_everybody_fails_at_once_the_observer_is_suspected_and_nobody_is_taken_out() {
    for n in 0..50 {
        let ill = 100..OUTCOMES;
        let fleet = Fleet { ill, ..fleet(SIZES[(n % 5) as usize], Bad::All, 50, 900 + 2 * n) };
        let story = fleet.run(n);
        assert_eq!((&story.broken, story.suspected), (&None, true), "seed {n}");
        assert!(story.out.is_empty(), "seed {n}: {:?}", story.out);
    }
}

/// A node that fails from the beginning on and is repaired.
fn repaired() -> Fleet {
    let bad = Bad::These(vec![subject(Dimension::Node, 1)]);
    Fleet { ill: 0..300, outcomes: 1000, ..fleet(SIZES[3], bad, 20, 1000) }
}

#[test]
fn whoever_is_well_again_comes_back_through_a_trial() {
    for seed in 0..20 {
        let story = repaired().run(seed);
        assert!(story.out.contains_key(&subject(Dimension::Node, 1)), "seed {seed}");
        assert_eq!((story.broken, story.still_out.len()), (None, 0), "seed {seed}");
    }
}

/// A node that was good for long and goes bad.
fn turns_bad() -> Fleet {
    let size = Size { nodes: 3, panes: 0, accounts: 2, agents: 2, kinds: 8 };
    let bad = Bad::These(vec![subject(Dimension::Node, 1)]);
    Fleet { ill: 600..690, outcomes: 690, ..fleet(size, bad, 0, 1000) }
}

#[test]
fn what_was_long_ago_does_not_excuse_what_is_now() {
    let found = (0..20).filter(|seed| turns_bad().run(*seed).out.contains_key(&subject(Dimension::Node, 1))).count();
    assert!(found >= 19, "{found} of 20 within thirty turns of its own");
}

/// Two nodes of five are bad; only one of them may be out at a time.
fn two_of_five() -> Fleet {
    let size = Size { nodes: 5, panes: 0, accounts: 3, agents: 2, kinds: 3 };
    let bad = Bad::These(vec![subject(Dimension::Node, 0), subject(Dimension::Node, 1)]);
    fleet(size, bad, 0, 1000)
}

/// Two accounts and nothing else to choose from; one of them is bad.
fn two_accounts() -> Fleet {
    let size = Size { nodes: 1, panes: 0, accounts: 2, agents: 1, kinds: 1 };
    fleet(size, Bad::These(vec![subject(Dimension::Account, 0)]), 0, 1000)
}

#[test]
fn the_caps_hold_whoever_is_bad() {
    for fleet in [two_of_five(), two_accounts()] {
        let story = fleet.run(1);
        assert_eq!(story.broken, None, "{fleet:?}");
        assert!(story.first.is_some(), "{fleet:?}: something is done about it");
    }
    for seed in 0..300 {
        let mut random = Random::new(seed ^ 0xf1ee7);
        let mut up_to = |most| 1 + random.below(most);
        let size = Size { nodes: up_to(9), panes: up_to(3) - 1, accounts: up_to(4), agents: up_to(3), kinds: up_to(4) };
        let all = Dimension::ALL.into_iter().filter(|d| *d != Dimension::Pane || size.panes > 0);
        let bad: Vec<Subject> =
            all.flat_map(|d| (0..2).map(move |n| subject(d, n))).filter(|_| random.one_in(3)).collect();
        let (base, failing) = (random.below(150), 300 + random.below(701));
        let fleet = Fleet { outcomes: 250, ..fleet(size, Bad::These(bad), base, failing) };
        assert_eq!(fleet.run(seed).broken, None, "seed {seed}: {fleet:?}");
    }
}

#[test]
fn the_same_seed_tells_the_same_story() {
    let fleet = fleet(SIZES[2], culprit(SIZES[2], 2), 50, 700);
    assert_eq!(fleet.run(7), fleet.run(7));
    assert_ne!(fleet.run(7).trace, fleet.run(8).trace);
}

/// A person quarantines a pane for ten minutes; an hour later it is used again.
fn rule_ends() -> bool {
    let (pane, now) = (subject(Dimension::Pane, 1), Time(1_000_000));
    let mut immune = Immune::default();
    let wish = RuleRequest {
        what: RuleEffect::Avoid { subject: pane.clone() },
        by: "ann",
        why: "moved",
        time: Duration::from_secs(600),
    };
    for did in add(&immune, &wish, now).expect("no cap forbids it") {
        immune.apply(&did, now);
    }
    let barred = matches!(immune.may(std::slice::from_ref(&pane), now), Admission::Barred(_));
    barred && immune.may(&[pane], now + Duration::from_secs(3600)) == Admission::Free
}

/// Bug, invariant, and description of the bug.
type Row = (Bug, fn() -> bool, &'static str);

const TABLE: &[Row] = &[
    (Bug::CapOffByOne, || two_of_five().run(1).broken.is_none(), "one node too many may be quarantined"),
    (Bug::CapsLeaveNobody, || two_accounts().run(1).broken.is_none(), "the last worker is quarantined as well"),
    (
        Bug::ChargesWithoutComparison,
        || {
            let (acted, right) = blamed(&one_bad_account());
            right * 100 >= acted * 95
        },
        "every subject of a failure is charged, without a comparison",
    ),
    (Bug::TrialNeverComesBack, || repaired().run(1).still_out.is_empty(), "no subject is ever tried again"),
    (
        Bug::HalfLifeIgnored,
        || (1..9).any(|seed| turns_bad().run(seed).out.contains_key(&subject(Dimension::Node, 1))),
        "a good past excuses everything",
    ),
    (Bug::RuleNeverExpires, rule_ends, "a rule holds for ever"),
];

fn one_bad_account() -> Vec<(Fleet, Story)> {
    let bad = || Bad::These(vec![subject(Dimension::Account, 0)]);
    (0..20).map(|seed| (fleet(SIZES[3], bad(), 50, 1000), seed)).map(|(f, seed)| (f.clone(), f.run(seed))).collect()
}

#[test]
fn every_planted_mistake_of_the_immune_system_is_found() {
    assert!(IMMUNE.iter().all(|bug| TABLE.iter().any(|row| row.0 == *bug)), "each has a row");
    for (bug, holds, mistake) in TABLE {
        assert!(holds(), "{bug:?}: without it all is well");
        let _plant = Plant::new(*bug);
        assert!(!holds(), "{bug:?} ({mistake}) was not found");
    }
}
