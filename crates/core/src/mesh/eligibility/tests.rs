//! The rules of eligibility, one by one; their effect on a mesh is simulated elsewhere.

use super::super::work::Stage;
use super::*;
use crate::guard::{Cooling, Freeze, Versioned};
use crate::ids::LoopId;
use crate::op::NewTask;
use crate::reason::RuleId;
use crate::spec::{AgentSpec, BucketSpec};

const NOW: Time = Time(10_000_000);
const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

fn waits(rule: &str, since: Time, until: Option<Time>) -> Phase {
    Phase::Waiting { reason: Reason { until, ..Reason::new(RuleId::from(rule)) }, since }
}

fn is_stuck(phase: &Phase) -> bool {
    stuck(phase, NOW, |period| period).is_some()
}

#[test]
fn a_loop_is_stuck_when_its_machine_holds_it_for_long_and_not_when_it_holds_itself() {
    for rule in
        ["guard.freeze", "guard.limit", "guard.pace", "guard.cooldown", "guard.backoff", "asleep", "immune.rule"]
    {
        assert!(is_stuck(&waits(rule, NOW, Some(NOW + LONG))), "{rule}");
        assert!(!is_stuck(&waits(rule, NOW, Some(NOW + LONG - SECOND))), "{rule}: that is not worth it");
    }
    for rule in ["guard.gap", "guard.bucket", "guard.cap", "guard.slots", "agent.none", "watch"] {
        assert!(!is_stuck(&waits(rule, Time(0), Some(NOW + HOUR))), "{rule} holds on every machine");
    }
    assert!(!is_stuck(&waits("paused", NOW, None)), "a person may be about to end it");
    assert!(is_stuck(&waits("paused", Time(NOW.0 - 60_000), None)));
    assert!(!is_stuck(&Phase::Ready));
    let scaled = stuck(&waits("guard.limit", NOW, Some(NOW + LONG / 5)), NOW, |period| period / 5).is_some();
    assert!(scaled, "time that runs faster is no excuse");
}

fn spec(accounts: &[&str]) -> LoopSpec {
    let agent = |account: &&str| AgentSpec {
        name: format!("agent-{account}"),
        account: (*account).to_owned(),
        ..AgentSpec::default()
    };
    let mut spec = super::super::tests::state().spec.wanted;
    spec.agent = agent(&accounts[0]);
    spec.others = accounts[1..].iter().map(agent).collect();
    spec
}

fn frozen(until: Option<Time>, canary_at: Option<Time>) -> GuardState {
    let (cause, audit) = ("cooldowns".to_owned(), Vec::new());
    let freeze = Freeze { cause, audit, since: NOW, until, canary_at, canary_every_ms: 1, by: None };
    GuardState { freeze: Some(freeze), ..GuardState::default() }
}

fn guards(rows: &[(Scope, GuardState)]) -> Guards {
    rows.iter().map(|(scope, state)| (scope.clone(), Versioned { version: 1, state: state.clone() })).collect()
}

#[test]
fn a_machine_takes_nothing_that_would_have_to_wait_there() {
    let account = |name: &str| Scope::Account(name.to_owned());
    let cools = |time| GuardState { cooling: Some(Cooling { until: NOW + time, level: 1 }), ..GuardState::default() };
    let shut = |rows: &[(Scope, GuardState)], accounts: &[&str]| {
        is_held_for_long(&guards(rows), Some(&spec(accounts)), NOW, LONG)
    };
    assert!(!shut(&[], &["default"]));
    assert!(shut(&[(account("default/command"), cools(HOUR))], &["default"]));
    assert!(
        !shut(&[(account("default/command"), cools(LONG.saturating_sub(SECOND)))], &["default"]),
        "that is soon over"
    );
    assert!(!shut(&[(account("team"), cools(HOUR))], &["default"]), "another account");
    assert!(!shut(&[(account("team"), cools(HOUR))], &["team", "default"]), "the next one goes on");
    assert!(shut(
        &[(account("team"), cools(HOUR)), (account("default/command"), frozen(None, None))],
        &["team", "default"]
    ));
    assert!(shut(&[(Scope::All, frozen(None, None))], &["default"]));
    assert!(shut(&[(Scope::Node(NodeId::new("here")), frozen(Some(NOW + SECOND), None))], &["default"]));
    assert!(
        is_held_for_long(&guards(&[(Scope::All, frozen(None, None))]), None, NOW, LONG),
        "also for loops that are not known"
    );
    assert!(!shut(&[(Scope::All, frozen(Some(NOW), None))], &["default"]), "the booked time is over");
    assert!(!shut(&[(Scope::All, frozen(None, Some(NOW)))], &["default"]), "a trial start is due, and needs a task");
    let scopes = scopes(&NodeId::new("here"), [&spec(&["team", "default"])]);
    assert_eq!(scopes.len(), 4, "{scopes:?}");
}

#[test]
fn whoever_fails_lets_others_go_first_and_somebody_always_takes_it() {
    let reason = || Reason::new(RuleId::ImmuneOut);
    let rows = [
        (Admission::Free, Duration::ZERO, 5, true),
        (Admission::Less(reason()), OTHERS_FIRST.saturating_sub(SECOND), 0, false),
        (Admission::Less(reason()), OTHERS_FIRST, 3, true),
        (Admission::Trial(reason()), Duration::ZERO, 0, true),
        (Admission::Trial(reason()), HOUR, 1, false),
        (Admission::Out(reason()), NOBODY_ELSE.saturating_sub(SECOND), 0, false),
        (Admission::Out(reason()), NOBODY_ELSE, 0, true),
        (Admission::Out(reason()), HOUR, 1, false),
        (Admission::Barred(reason().with("by", "ann")), HOUR, 0, false),
        (Admission::Barred(reason().with("by", EXPERIENCE)), NOBODY_ELSE, 0, true),
        (Admission::Barred(reason().with("by", EXPERIENCE)), Duration::ZERO, 0, false),
    ];
    for (how, waited, holds, takes) in rows {
        assert_eq!(may_take(&how, waited, holds), takes, "{how:?} after {waited:?} with {holds}");
    }
}

#[test]
fn what_an_attempt_says_is_about_those_who_took_part() {
    let new = || LoopState::new(LoopId::new("m-k1-1"), "x".to_owned(), spec(&["team"]), NOW);
    let ended = |ending: LoopEnd, tally: TurnTally| {
        let phase = Phase::Ended { ending, at: NOW };
        let mut state = LoopState { phase, ..new() };
        state.progress.tally = tally;
        Tried::over(&state).map(|tried| tried.class)
    };
    let exhausted = |bound: &str| LoopEnd::Exhausted { bound: bound.to_owned() };
    let failed = TurnTally { agent_failed: 3, ..TurnTally::default() };
    assert_eq!(ended(LoopEnd::Reached, TurnTally::default()), Some(Class::Good));
    assert_eq!(ended(exhausted("turns"), TurnTally { not_yet: 1, ..failed.clone() }), Some(Class::NotYet));
    assert_eq!(ended(exhausted("turns"), failed), Some(Class::AgentFailed), "it never took a turn to its end");
    assert_eq!(ended(exhausted("dollars"), TurnTally::default()), None, "it was short of money: nobody's fault");
    assert_eq!(ended(LoopEnd::Stopped { by: "ann".to_owned() }, TurnTally::default()), None);
    assert_eq!(Tried::over(&new()), None, "it goes on");

    let stuck = |reason: &Reason| Tried::stuck(reason).map(|tried| (tried.class, tried.reset_at));
    let limit = Reason::new(RuleId::GuardLimit).until(NOW + HOUR);
    assert_eq!(stuck(&limit), Some((Class::Unserved, Some(NOW + HOUR))));
    assert_eq!(stuck(&Reason::new(RuleId::GuardFreeze)), Some((Class::AgentFailed, None)));
    assert_eq!(stuck(&Reason::new(RuleId::GuardFreeze).with("by", "ann")), None, "a person wants it");
    assert_eq!(stuck(&Reason::new(RuleId::Paused)), None);

    let names = |accounts: &[&str]| -> Vec<String> {
        let all = subjects(&NodeId::new("n1"), Some("batch"), Some(&spec(accounts)));
        all.iter().map(ToString::to_string).collect()
    };
    assert_eq!(names(&["team"]), ["node:n1", "agent:agent-team", "account:team", "kind:batch"]);
    assert_eq!(names(&["default"]), ["node:n1", "agent:agent-default", "kind:batch"], "each machine has another one");
    assert_eq!(names(&["team", "spare"]), ["node:n1", "kind:batch"], "which of them it will be is not known");
}

fn held(task: &str, fence: u64) -> Held {
    let (task, owner) = (TaskId::new(task), LoopId::new("k1"));
    Held { task, fence: Fence(fence), owner, stage: Stage::Working, alone: false }
}

/// A mesh in which `n1` always fails and the others never do, until it is out.
fn out() -> Immune {
    let members: Vec<NodeId> = (1..=6).map(|i| NodeId::new(format!("n{i}"))).collect();
    let (mut immune, spec) = (Immune::default(), spec(&["default"]));
    let node = Subject::new(Dimension::Node, "n1");
    for n in 0..200 {
        let (node, held) = (&members[n % 6], held(&format!("k1-{n}"), 1));
        let attempt = Attempt { held: &held, node, kind: Some("batch"), spec: Some(&spec), members: &members };
        let class = if n % 6 == 0 { Class::AgentFailed } else { Class::Good };
        for step in attempt.ended(&immune, &Tried { class, reset_at: None }, NOW) {
            immune.apply(&step, NOW);
        }
        if immune.standings.get(&self::node("n1")).is_some_and(|s| matches!(s.tier, Tier::Out { .. })) {
            return immune;
        }
    }
    panic!("{node} is never out: {:?}", immune.standings);
}

fn node(name: &str) -> Subject {
    Subject::new(Dimension::Node, name)
}

#[test]
fn a_machine_that_is_out_is_tried_and_a_trial_that_nobody_tells_of_comes_back() {
    let mut immune = out();
    let mine = [node("n1")];
    assert!(matches!(immune.may(&mine, NOW), Admission::Out(_)) && immune.may(&[node("n2")], NOW) == Admission::Free);
    let later = NOW + HOUR;
    assert!(matches!(immune.may(&mine, later), Admission::Trial(_)));
    let trial = held("k1-300", 7);
    let n1 = NodeId::new("n1");
    let attempt = Attempt { held: &trial, node: &n1, kind: None, spec: None, members: &[] };
    for step in attempt.began(&immune, later) {
        immune.apply(&step, later);
    }
    assert!(matches!(immune.may(&mine, later), Admission::Out(_)), "one at a time");
    let turns = on_trial(&immune, &mine);
    assert_eq!(turns.iter().map(attempt_of).collect::<Vec<_>>(), [Some((TaskId::new("k1-300"), Fence(7)))]);

    let leased = |fence: u64| {
        let state = TaskState::Leased { node: NodeId::new("n1"), until: later };
        TaskRow { fence: Fence(fence), ..super::super::tests::row(&new_task("k1-300"), state, None) }
    };
    assert!(given_up(&immune, &turns[0], Some(&leased(7))).is_empty(), "it is under way");
    for gone in [None, Some(leased(8))] {
        let steps = given_up(&immune, &turns[0], gone.as_ref());
        assert_eq!(steps, [ImmuneStep::Untried { subject: node("n1") }], "{gone:?}");
    }
    for step in attempt.ended(&immune, &Tried { class: Class::Good, reset_at: None }, later) {
        immune.apply(&step, later);
    }
    assert!(matches!(immune.may(&mine, later), Admission::Less(_)), "a trial that went well is a step back");
}

fn new_task(id: &str) -> NewTask {
    NewTask { id: TaskId::new(id), ..super::super::tests::perform_one() }
}

#[test]
fn a_rate_is_shared_among_all_machines() {
    let part = |burst: u32, nodes: usize| {
        let mut spec = spec(&["team"]);
        spec.guard.bucket = Some(BucketSpec { burst, every: SECOND });
        share(&mut spec, nodes);
        spec.guard.bucket.map(|bucket| (bucket.burst, bucket.every))
    };
    assert_eq!(part(6, 3), Some((2, SECOND * 3)));
    assert_eq!(part(2, 5), Some((1, SECOND * 5)), "everybody may begin once");
    assert_eq!(part(6, 0), Some((6, SECOND)), "a node that knows nobody is alone");
}

#[test]
fn what_is_stuck_is_given_back_unless_it_is_lost_anyway_or_the_hub_has_to_know_what_it_used() {
    use super::super::work::{ClaimState, Local, View, WorkStep, next};
    let node = NodeId::new("n1");
    let view = View { node: &node, failures: 0, elsewhere: false, again_at: NOW };
    let step = |alone: bool, untouched: bool, standing: ClaimState| {
        let reason = Reason::new(RuleId::GuardLimit);
        next(&Held { alone, ..held("k1-1", 3) }, standing, &Local::Stuck { reason, untouched }, &view)
    };
    let back = WorkStep::GiveBack(Reason::new(RuleId::GuardLimit));
    for standing in [ClaimState::Mine, ClaimState::Unknown] {
        assert_eq!(step(false, false, standing), back);
    }
    assert_eq!(step(false, true, ClaimState::Lost), WorkStep::Stop, "what was made becomes a late result");
    assert_eq!(step(true, true, ClaimState::Unknown), back);
    assert_eq!(step(true, false, ClaimState::Unknown), WorkStep::Wait, "what was used is for the hub to know");
    assert_eq!(step(true, false, ClaimState::Free(Fence(3))), back, "it is not asked for first");
    assert_eq!(step(true, false, ClaimState::Mine), WorkStep::Adopt, "then it is given back like any other");
}
