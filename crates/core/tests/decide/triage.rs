//! Triage: which of the loop's agents a task is for.

use everloop_core::decide::Decision;
use everloop_core::event::{Event, Exit, Judgement};
use everloop_core::guard::{Freeze, Scope};
use everloop_core::reason::{Reason, RuleId};
use everloop_core::spec::{AgentSpec, Tasks};
use everloop_core::state::Phase;
use everloop_core::why::why;

use super::rig::{Rig, board};

/// A loop with the agent `small` for documentation that is not urgent, and a second one for
/// everything.
fn rig() -> Rig {
    Rig::with(|s| {
        let tasks = Tasks { kinds: vec!["docs".to_owned()], max_priority: Some(0), ..Tasks::default() };
        let large = AgentSpec { name: "large".to_owned(), account: "own".to_owned(), ..s.agent.clone() };
        s.agent = AgentSpec { name: "small".to_owned(), tasks, ..s.agent.clone() };
        s.others = vec![large];
    })
}

fn end(rig: &mut Rig) -> Decision {
    rig.exit_as(60, Exit { code: Some(0), ..Exit::default() });
    rig.judged_as(Judgement { changed: true, board: board(0, 3), ..Judgement::default() })
}

fn chosen(rig: &Rig) -> (&str, Reason) {
    match &rig.state.phase {
        Phase::Turn(turn) => (turn.agent.as_str(), turn.chosen.clone().expect("there are several")),
        other => panic!("no turn is under way: {other:?}"),
    }
}

#[test]
fn the_first_agent_that_a_task_is_for_takes_it() {
    let mut rig = rig();
    rig.put("manual", "docs", 0);
    rig.baseline(0);
    let (agent, reason) = chosen(&rig);
    assert_eq!((agent, reason.rule.as_str(), reason.input("kind")), ("small", "agent.fits", "docs"));
    let said = why(&rig.state, rig.now, &|_| String::new());
    assert!(said.contains("The agent `small` has it") && said.contains("kind `docs` with priority 0"), "{said}");
}

#[test]
fn an_agent_is_never_given_a_task_that_it_is_not_for() {
    let mut rig = rig();
    rig.baseline(0);
    assert_eq!(chosen(&rig).0, "large", "the loop's own task");
    rig.put("manual", "docs", 0);
    let decision = end(&mut rig);
    assert_eq!(chosen(&rig).0, "small");
    let switched = |e: &Event| matches!(e, Event::AgentSwitched { from, to, reason } if from == "large@own" && to == "small@default" && reason.rule == RuleId::AgentFits);
    assert!(decision.events.iter().any(switched), "{:?}", decision.events);
    rig.put("fire", "docs", 1);
    end(&mut rig);
    assert_eq!(chosen(&rig).0, "large", "urgent");
    rig.board_task = None;
    end(&mut rig);
    assert_eq!(chosen(&rig).0, "large");
}

#[test]
fn a_held_agent_gives_way_to_the_next_one_that_fits() {
    let mut rig = rig();
    let freeze = Freeze {
        cause: "person".to_owned(),
        audit: Vec::new(),
        since: rig.now,
        until: None,
        canary_at: None,
        canary_every_ms: 0,
        by: None,
    };
    let held = rig.guards.entry(Scope::Account("default".to_owned())).or_default();
    held.state.freeze = Some(freeze);
    rig.put("manual", "docs", 0);
    rig.baseline(0);
    let (agent, reason) = chosen(&rig);
    assert_eq!((agent, reason.rule.as_str()), ("large", "guard.freeze"));
    let said = why(&rig.state, rig.now, &|_| String::new());
    assert!(said.contains("would have been first, but account:default is frozen"), "{said}");
}

#[test]
fn a_task_that_nobody_takes_waits_and_says_why() {
    let mut rig = rig();
    rig.state.spec.others.clear();
    rig.baseline(0);
    assert_eq!(rig.waits_for(), "agent.none");
    let said = why(&rig.state, rig.now, &|_| String::new());
    assert!(said.contains("none of the loop's agents takes tasks of kind `batch`"), "{said}");
    rig.put("manual", "docs", 0);
    rig.tick(1);
    assert_eq!(rig.phase(), "running", "another one is not held up by it");
}

#[test]
fn a_loop_with_one_agent_explains_nothing() {
    let rig = Rig::running();
    let Phase::Turn(turn) = &rig.state.phase else { panic!("a turn is under way") };
    assert_eq!(turn.chosen, None);
}

#[test]
fn what_was_begun_goes_on_before_the_board_and_the_board_before_a_new_task() {
    let mut rig = Rig::running();
    rig.put("fire", "work", 9);
    rig.give(&everloop_core::action::Input::Vanished { turn: rig.turn() });
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    assert_eq!(rig.turn().as_str(), "k-1.2", "it was given back and goes on");
    end(&mut rig);
    assert_eq!(rig.turn().as_str(), "fire.5");
    rig.board_task = None;
    end(&mut rig);
    assert_eq!(rig.turn().as_str(), "k-2.1");
}
