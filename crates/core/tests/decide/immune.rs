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
use everloop_core::spec::{AgentKind, AgentSpec};
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

/// The latest outcome of the account `first`, and its tier after it with the seconds until it ends.
fn next(immune: &mut Immune, class: Class, now: Time) -> (&'static str, Option<u64>) {
    feed(immune, "first", class, (1, now));
    let Some(standing) = immune.standings.get(&account("first")) else { return ("none", None) };
    let label = match standing.tier {
        Tier::Watched => "watched",
        Tier::Soft { .. } => "soft",
        Tier::Out { .. } => "out",
    };
    (label, standing.tier.until().map(|until| until.since(now).as_secs()))
}

/// Two other accounts that work, and failures of `first` up to its first charge.
fn charged_once(now: Time) -> Immune {
    let mut immune = Immune::default();
    for name in ["second", "third"] {
        feed(&mut immune, name, Class::Good, (12, now));
    }
    let outcomes = (1..20).find(|_| next(&mut immune, Class::AgentFailed, now).0 == "watched");
    assert_eq!(outcomes, Some(5), "fewer outcomes prove nothing");
    immune
}

#[test]
fn charges_halve_the_work_and_then_take_it_and_ten_clean_outcomes_are_a_step_back() {
    let now = Time(1_000_000);
    let mut in_a_row = charged_once(now);
    assert_eq!(next(&mut in_a_row, Class::AgentFailed, now), ("soft", Some(5 * 60)));
    assert_eq!(next(&mut in_a_row, Class::AgentFailed, now), ("out", Some(20 * 60)), "three in a row");
    let mut again = charged_once(now);
    assert_eq!(next(&mut again, Class::AgentFailed, now).0, "soft");
    assert_eq!(next(&mut again, Class::Good, now).0, "soft");
    assert_eq!(next(&mut again, Class::AgentFailed, now).0, "soft");
    assert_eq!(next(&mut again, Class::AgentFailed, now), ("out", Some(20 * 60)), "again, and not in a row");
    let mut clean = charged_once(now);
    assert_eq!(next(&mut clean, Class::AgentFailed, now).0, "soft");
    let tiers: Vec<&str> = (0..10).map(|_| next(&mut clean, Class::Good, now).0).collect();
    assert_eq!((tiers[8], tiers[9]), ("soft", "watched"));
}

#[test]
fn a_trial_that_fails_doubles_the_wait_up_to_160_minutes_and_one_that_passes_ends_it() {
    let now = Time(1_000_000);
    let mut immune = charged_once(now);
    for _ in 0..2 {
        next(&mut immune, Class::AgentFailed, now);
    }
    // As `feed` calls the turn.
    let turn = TurnId::of(&TaskId::new("first0"), Fence(1));
    let mut trial = |class| {
        immune.apply(&ImmuneStep::Trial { subject: account("first"), turn: turn.clone() }, now);
        next(&mut immune, class, now)
    };
    for minutes in [40, 80, 160, 160] {
        assert_eq!(trial(Class::AgentFailed), ("out", Some(minutes * 60)));
    }
    assert_eq!(trial(Class::Good), ("soft", Some(5 * 60)), "with half of its work first");
}

#[test]
fn an_agent_without_comparison_is_compared_and_failures_of_all_are_a_ticket() {
    let mut rig = rig();
    rig.baseline(0);
    let mut took = Vec::new();
    for _ in 0..40 {
        took.push(agent(&rig).0.to_owned());
        end(&mut rig, true);
    }
    assert_eq!(took[..3], ["agent"; 3]);
    let of = |name: &str| took[3..].iter().filter(|agent| *agent == name).count();
    assert!((8..30).contains(&of("agent")) && of("second") > 3, "about every other turn: {took:?}");
    assert!(rig.state.people.tickets.contains(&"immune.observer".to_owned()), "{:?}", rig.state.people.tickets);
    let out = rig.immune.standings.values().filter(|standing| matches!(standing.tier, Tier::Out { .. })).count();
    assert_eq!(out, 0, "{:?}", rig.immune.standings);
}

#[test]
fn a_threshold_that_moves_is_a_ticket_until_it_is_reviewed() {
    let mut rig = rig();
    for name in ["a", "b", "c"] {
        let until = rig.now + secs(90_000);
        put_out(&mut rig, name, until);
    }
    rig.baseline(0);
    end(&mut rig, false);
    let ticket = "immune.threshold".to_owned();
    assert_eq!((rig.immune.thresholds.margin_permille, rig.state.people.tickets.contains(&ticket)), (1500, true));
    rig.now = rig.now + secs(50 * 60);
    end(&mut rig, false);
    assert_eq!((rig.immune.thresholds.margin_permille, rig.state.people.tickets.contains(&ticket)), (1000, false));
}

#[test]
fn a_turn_is_counted_for_node_pane_account_agent_and_kind() {
    let argv = vec!["pane".to_owned(), "left".to_owned()];
    let (name, account) = ("tui".to_owned(), "default".to_owned());
    let agent = AgentSpec { name, account, kind: AgentKind::Pane, argv, ..AgentSpec::default() };
    let named: Vec<String> =
        subjects(&NodeId::new("here"), &agent, Some("docs")).iter().map(Subject::to_string).collect();
    assert_eq!(named, ["node:here", "account:default/pane", "agent:tui", "pane:left", "kind:docs"]);
}
