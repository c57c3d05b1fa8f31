//! The immune system and a loop: which agents come first, which are passed over, and that the last
//! one is never removed.

use std::time::Duration;

use everloop_core::event::{Event, Exit, Judgement};
use everloop_core::ids::{Fence, NodeId, TaskId, TurnId};
use everloop_core::immune::rules::{RuleRequest, add, lift};
use everloop_core::immune::{
    Class, Dimension, Immune, ImmuneStep, ObservedOutcome, RuleEffect, Subject, Tier, observe, subjects,
};
use everloop_core::reason::{Reason, RuleId};
use everloop_core::spec::AgentSpec;
use everloop_core::state::Phase;
use everloop_core::time::Time;
use everloop_core::why::why;

use super::rig::{Rig, board, secs};

fn account(name: &str) -> Subject {
    Subject::new(Dimension::Account, name)
}

/// A loop with three agents, an account each.
fn rig() -> Rig {
    Rig::with(|s| {
        for name in ["second", "third"] {
            let other = AgentSpec { name: name.to_owned(), account: name.to_owned(), ..s.agent.clone() };
            s.others.push(other);
        }
        s.guard = s.guard.clone().free();
        // Only the immune system orders the agents here.
        s.guard.stagnation_change = false;
    })
}

fn put_out(rig: &mut Rig, name: &str, until: Time) {
    let reason = Reason::new(RuleId::ImmuneOut).with("subject", account(name)).until(until);
    let did = ImmuneStep::Out { subject: account(name), until, level: 0, reason };
    rig.immune.apply(&did, rig.now);
}

fn agent(rig: &Rig) -> (&str, Option<Reason>) {
    match &rig.state.phase {
        Phase::Turn(turn) => (turn.agent.as_str(), turn.chosen.clone()),
        other => panic!("no turn is under way: {other:?}"),
    }
}

/// Ends the turn: by the agent's own fault, or with work that brings nothing.
fn end(rig: &mut Rig, failed: bool) {
    rig.exit_as(60, Exit { code: Some(i32::from(failed)), ..Exit::default() });
    rig.judged_as(Judgement { changed: !failed, board: board(0, 3), ..Judgement::default() });
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
}

#[test]
fn whoever_is_out_is_passed_over_and_why_says_so() {
    let mut rig = rig();
    let until = rig.now + secs(1200);
    put_out(&mut rig, "default/command", until);
    rig.baseline(0);
    let (who, chosen) = agent(&rig);
    assert_eq!((who, chosen.map(|r| r.rule)), ("second", Some(RuleId::ImmuneOut)));
    let said = why(&rig.state, rig.now, &|_| String::new());
    assert!(said.contains("another one would have been first, but account:default/command fails in"), "{said}");
}

#[test]
fn a_loop_that_has_nobody_else_goes_on_with_whoever_is_out() {
    let mut rig = Rig::new();
    let until = rig.now + secs(1200);
    put_out(&mut rig, "default/command", until);
    rig.baseline(0);
    assert_eq!(agent(&rig).0, "agent");
}

#[test]
fn when_the_time_is_over_the_next_turn_is_a_trial_and_its_end_decides() {
    for (failed, level) in [(false, None), (true, Some(1))] {
        let mut rig = rig();
        let until = rig.now;
        put_out(&mut rig, "default/command", until);
        let decision = rig.baseline(0);
        assert_eq!(agent(&rig).0, "agent");
        let tried = |e: &Event| matches!(e, Event::Immune { step } if matches!(**step, ImmuneStep::Trial { .. }));
        assert!(decision.events.iter().any(tried), "{:?}", decision.events);
        let saves = decision.batch(1).iter().filter(|op| matches!(op, everloop_core::op::Op::SaveDoc { .. })).count();
        assert_eq!(saves, 1, "what was decided is written in the same transaction");
        end(&mut rig, failed);
        let standing = &rig.immune.standings[&account("default/command")];
        match level {
            None => assert!(matches!(standing.tier, Tier::Soft { .. }), "{standing:?}"),
            Some(level) => {
                assert_eq!(standing.level, level);
                let Tier::Out { until, trial: None } = standing.tier else { panic!("{standing:?}") };
                assert!(until >= rig.now + Duration::from_secs(39 * 60) - secs(3600), "twice as long: {standing:?}");
            }
        }
    }
}

#[test]
fn an_interrupted_trial_may_be_made_again() {
    let mut rig = rig();
    let until = rig.now;
    put_out(&mut rig, "default/command", until);
    rig.baseline(0);
    rig.give(&everloop_core::action::Input::Vanished { turn: rig.turn() });
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    let second = rig.turn();
    let Tier::Out { trial, .. } = &rig.immune.standings[&account("default/command")].tier else { panic!("it is out") };
    assert_eq!(trial.as_ref(), Some(&second), "the next turn is the trial");
}

#[test]
fn an_agent_that_always_fails_is_found_out_by_comparison_and_taken_out() {
    let mut rig = rig();
    rig.baseline(0);
    for _ in 0..40 {
        let failed = agent(&rig).0 == "agent";
        end(&mut rig, failed);
    }
    let standing = &rig.immune.standings[&account("default/command")];
    assert!(matches!(standing.tier, Tier::Out { .. }), "{standing:?}");
    assert_eq!(rig.immune.standings.len(), 1, "and no other subject: {:?}", rig.immune.standings.keys());
}

#[test]
fn a_single_agent_is_never_charged_however_it_fails() {
    let mut rig = Rig::with(|s| s.guard = s.guard.clone().free());
    rig.baseline(0);
    for _ in 0..40 {
        end(&mut rig, true);
    }
    assert!(rig.immune.standings.is_empty(), "{:?}", rig.immune.standings);
}

#[test]
fn a_rule_of_a_person_holds_strictly_and_ends_by_itself() {
    let mut rig = Rig::new();
    let wish = RuleRequest {
        what: RuleEffect::Avoid { subject: account("default") },
        by: "ann",
        why: "renewed",
        time: secs(600),
    };
    for did in add(&rig.immune, &wish, rig.now).expect("the record is empty") {
        rig.immune.apply(&did, rig.now);
    }
    rig.baseline(0);
    assert_eq!(rig.waits_for(), "immune.rule");
    let said = why(&rig.state, rig.now, &|_| "soon".to_owned());
    assert!(said.contains("a rule of `ann` holds: account:default (renewed)") && said.contains("in 10m"), "{said}");
    rig.wait_out();
    assert_eq!(rig.phase(), "running");
}

#[test]
fn a_kind_that_is_bound_goes_to_its_agent_alone() {
    let mut rig = rig();
    let third = Subject::new(Dimension::Agent, "third");
    let what = RuleEffect::Only { kind: "batch".to_owned(), subject: third };
    let wish = RuleRequest { what: what.clone(), by: "ann", why: "cheap", time: secs(600) };
    for did in add(&rig.immune, &wish, rig.now).expect("no cap is about this") {
        rig.immune.apply(&did, rig.now);
    }
    rig.baseline(0);
    assert_eq!(agent(&rig).0, "third");
    let lifted = lift(&rig.immune, &what, "ann", "enough").expect("it is there");
    rig.immune.apply(&lifted, rig.now);
    end(&mut rig, false);
    assert_eq!(agent(&rig).0, "agent");
    assert_eq!(lift(&rig.immune, &what, "ann", "again"), None);
}

#[test]
fn the_same_correction_three_times_becomes_a_rule_for_a_day() {
    let (mut immune, mut now) = (Immune::default(), Time(1_000_000));
    let what = RuleEffect::Avoid { subject: Subject::new(Dimension::Pane, "left") };
    for n in 1..=3 {
        let wish = RuleRequest { what: what.clone(), by: "ann", why: "hangs", time: secs(600) };
        for did in add(&immune, &wish, now).expect("the record is empty") {
            immune.apply(&did, now);
        }
        let [rule] = immune.rules.as_slice() else { panic!("one rule: {:?}", immune.rules) };
        let learned = rule.by == "experience" && rule.until == now + secs(24 * 3600);
        assert_eq!(learned, n == 3, "{rule:?}");
        now = now + secs(3600);
    }
}

/// Outcomes of `n` turns under an account.
fn feed(immune: &mut Immune, name: &str, class: Class, (n, now): (u64, Time)) {
    let agent = AgentSpec { name: name.to_owned(), account: name.to_owned(), ..AgentSpec::default() };
    for k in 0..n {
        let subjects = subjects(&NodeId::new("here"), &agent, Some("batch"));
        let seen =
            ObservedOutcome { subjects, class, reset_at: (class == Class::Unserved).then_some(now + secs(5 * 3600)) };
        for did in observe(immune, &TurnId::of(&TaskId::new(format!("{name}{k}")), Fence(1)), &seen, &[], now) {
            immune.apply(&did, now);
        }
    }
}

#[test]
fn an_account_is_out_until_the_vendor_serves_it_again() {
    let (mut immune, now) = (Immune::default(), Time(1_000_000));
    for name in ["second", "third"] {
        feed(&mut immune, name, Class::Good, (8, now));
    }
    feed(&mut immune, "first", Class::Unserved, (12, now));
    let standing = &immune.standings[&account("first")];
    assert_eq!(standing.tier.until(), Some(now + secs(5 * 3600)), "{standing:?}");
    assert!(!immune.standings.contains_key(&Subject::new(Dimension::Agent, "first")), "the vendor named the account");
}

#[test]
fn many_at_once_move_one_threshold_and_it_goes_back_when_that_does_not_help() {
    let (mut immune, mut now) = (Immune::default(), Time(1_000_000));
    for name in ["a", "b", "c"] {
        let reason = Reason::new(RuleId::ImmuneOut);
        let did = ImmuneStep::Out { subject: account(name), until: now + secs(9000), level: 0, reason };
        immune.apply(&did, now);
    }
    feed(&mut immune, "good", Class::Good, (1, now));
    assert_eq!(immune.thresholds.margin_permille, 1500);
    now = now + secs(50 * 60);
    feed(&mut immune, "good", Class::Good, (1, now));
    assert_eq!((immune.thresholds.margin_permille, immune.moved.is_none()), (1000, true), "it did not help");
    // Moved again at once, never beyond double.
    for _ in 0..20 {
        feed(&mut immune, "good", Class::Good, (1, now));
        now = now + secs(50 * 60);
        assert!(immune.thresholds.margin_permille <= 2000 && immune.thresholds.out_permille == 1000);
    }
}

#[test]
fn not_yet_is_nobodys_failure_and_an_agents_failure_is_never_the_tasks() {
    for dimension in Dimension::ALL {
        assert_eq!(Class::NotYet.failed_for(dimension), Some(false));
        assert_ne!(Class::AgentFailed.failed_for(dimension), Some(dimension == Dimension::Kind), "{dimension:?}");
    }
    assert_eq!(Class::TaskFailed.failed_for(Dimension::Kind), Some(true));
    assert_eq!(Class::TaskFailed.failed_for(Dimension::Account), Some(false));
}
