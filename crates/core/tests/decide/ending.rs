//! When and how a loop ends.

use everloop_core::action::{Action, Input, LoopCommand, TurnTrace};
use everloop_core::event::{Event, StopCause};
use everloop_core::guard::Spend;
use everloop_core::raise::{Raise, RunLimits};
use everloop_core::scoreboard::Verdict;
use everloop_core::spec::{Bounds, Budget};
use everloop_core::state::Phase;

use super::rig::{Rig, actions, board, secs};

/// The rule that a loop waits by.
fn rule(rig: &Rig) -> &str {
    match &rig.state.phase {
        Phase::Waiting { reason, .. } => reason.rule.as_str(),
        other => other.label(),
    }
}

#[test]
fn a_goal_that_already_holds_needs_no_turn() {
    let mut rig = Rig::new();
    assert_eq!(actions(&rig.baseline(3)), ["cleanup"]);
    assert_eq!((rig.phase(), rig.state.task.started), ("reached", 0));
}

#[test]
fn all_checks_on_the_target_end_it() {
    let mut rig = Rig::running();
    rig.exit(30, 0);
    rig.judged(3);
    assert_eq!(actions(&rig.landed()), ["cleanup"]);
    assert_eq!(rig.phase(), "reached");
}

#[test]
fn turns_end_it() {
    let mut rig = Rig::with(|s| s.bounds.max_turns = Some(3));
    rig.baseline(0);
    for _ in 0..3 {
        assert_eq!(rig.phase(), "running");
        rig.no_op();
    }
    assert_eq!((rig.phase(), rig.state.progress.tally.no_op), ("exhausted", 3));
}

#[test]
fn time_ends_it_also_while_it_waits() {
    let deadline = Some(Rig::new().now + secs(40));
    for bounds in [Bounds { max_time: Some(secs(40)), ..Bounds::default() }, Bounds { deadline, ..Bounds::default() }] {
        let mut rig = Rig::with(|s| s.bounds = bounds);
        rig.baseline(0);
        let begin = rig.now;
        rig.exit(1, 1);
        let decision = rig.judged(0);
        assert!(decision.wake_at.is_some_and(|at| at <= begin + secs(40)));
        rig.tick(60);
        assert_eq!(rig.phase(), "exhausted");
    }
}

#[test]
fn time_between_the_end_of_a_loop_and_its_resumption_does_not_count() {
    let mut rig = Rig::with(|s| s.bounds = Bounds { max_time: Some(secs(100)), ..Bounds::default() });
    rig.baseline(0);
    rig.ask(LoopCommand::Stop { now: true });
    rig.stopped(60, StopCause::Person);
    assert_eq!(rig.phase(), "stopped");
    rig.now = rig.now + secs(86_400);
    rig.ask(LoopCommand::Resume { bounds: None, budget: None });
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    assert_eq!(rig.phase(), "running");
    rig.exit(30, 0);
    rig.judged(0);
    assert_ne!(rig.phase(), "exhausted", "90 of 100 seconds");
    rig.tick(11);
    rig.exit(0, 0);
    rig.judged(0);
    assert_eq!(rig.phase(), "exhausted");
}

#[test]
fn a_draining_supervisor_starts_nothing() {
    let mut rig = Rig::new();
    rig.draining = true;
    assert!(rig.baseline(0).actions.is_empty());
    assert_eq!(rig.phase(), "ready");
}

#[test]
fn a_loop_of_a_terminal_that_is_gone_starts_nothing_until_a_person_wants_it() {
    let mut rig = Rig::new();
    rig.state = rig.state.attached();
    rig.attended = false;
    let found = TurnTrace::Idle;
    assert!(rig.give(&Input::Recovered { found: found.clone() }).actions.is_empty(), "not even its checks run");
    rig.attended = true;
    assert_eq!(rig.give(&Input::Recovered { found: found.clone() }).actions, [Action::Baseline]);
    rig.attended = false;
    assert!(rig.baseline(0).actions.is_empty());
    assert_eq!(rule(&rig), "unattended");
    rig.give(&Input::Command { by: "ann".to_owned(), command: LoopCommand::Wake });
    assert_eq!(rule(&rig), "unattended", "a signal is no wish to go on");
    let resume = LoopCommand::Resume { bounds: None, budget: None };
    rig.give(&Input::Command { by: "ann".to_owned(), command: resume });
    assert_eq!((rig.phase(), rig.state.people.attached), ("running", false));
}

#[test]
fn the_run_that_goes_on_with_its_own_loop_keeps_it() {
    let mut rig = Rig::new();
    rig.state = rig.state.attached();
    rig.baseline(0);
    let resume = LoopCommand::Resume { bounds: None, budget: None };
    rig.give(&Input::Command { by: "ann".to_owned(), command: resume });
    assert!(rig.state.people.attached);
    rig.give(&Input::Command { by: "ann".to_owned(), command: LoopCommand::Detach });
    assert!(!rig.state.people.attached);
}

#[test]
fn no_turn_starts_while_every_check_that_fails_is_broken() {
    let missing = |rig: &mut Rig, failing: usize| {
        let mut board = board(1, 3);
        for row in &mut board.0[1 + failing..] {
            row.verdict = Verdict::Broken { why: "cannot start: sh: pytset: not found".to_owned() };
        }
        rig.give(&Input::Baselined {
            result: Ok((board, None)),
            notes: vec!["mind the gap".to_owned()],
            samples: Vec::new(),
        })
    };
    let mut rig = Rig::new();
    let decision = missing(&mut rig, 0);
    assert!(decision.events.contains(&Event::Note { text: "mind the gap".to_owned() }));
    assert_eq!((rule(&rig), rig.state.task.started), ("checks.broken", 0));
    assert_eq!(rig.state.people.tickets, ["checks.broken:k"]);
    // A person looks again once it is mended.
    let again = rig.give(&Input::Command { by: "ann".to_owned(), command: LoopCommand::Wake });
    assert_eq!(again.actions, [Action::Baseline]);
    rig.baseline(1);
    assert_eq!((rig.phase(), rig.state.people.tickets.len()), ("running", 0));
    let mut rig = Rig::new();
    missing(&mut rig, 0);
    rig.give(&Input::Command { by: "ann".to_owned(), command: LoopCommand::Stop { now: false } });
    assert_eq!((rig.phase(), rig.state.people.tickets.len()), ("stopped", 0), "no cause is left");
    let mut rig = Rig::new();
    missing(&mut rig, 1);
    assert_eq!(rig.phase(), "running", "one of them can be made to pass");
    let mut rig = Rig::with(|spec| spec.guard.start_broken = true);
    missing(&mut rig, 0);
    assert_eq!(rig.phase(), "running", "a person wants the turn to mend it");
}

#[test]
fn every_limit_is_raised_beyond_what_was_used() {
    let mut rig = Rig::running();
    rig.state.task.turns = 4;
    rig.state.spend.spent = Spend { calls: 5, tokens: 600, microusd: 7_000 };
    let now = rig.state.spend.clock_from + secs(90);
    let all = Raise {
        turns: Some(1),
        time: Some(secs(10)),
        deadline: Some(now + secs(50)),
        calls: Some(2),
        tokens: Some(30),
        microusd: Some(400),
    };
    let bounds = Bounds { max_turns: Some(5), max_time: Some(secs(100)), deadline: Some(now + secs(50)) };
    let budget = Budget { calls: Some(7), tokens: Some(630), microusd: Some(7_400) };
    assert_eq!(all.limits(&rig.state, now), RunLimits { bounds, budget });
    let untouched = RunLimits::of(&rig.state);
    assert_eq!(Raise::default().limits(&rig.state, now), untouched, "nothing else moves");
}
