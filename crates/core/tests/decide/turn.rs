//! Results of a finished turn, and their consequences.

use everloop_core::action::Input;
use everloop_core::event::{Event, Exit, Judgement, Outcome, Pattern, StopCause};
use everloop_core::op::{Op, TaskEnd};
use everloop_core::scoreboard::Verdict;
use everloop_core::spec::{Integrate, WorkspaceMode};
use everloop_core::why::why;

use super::rig::{Rig, actions, board, outcome, secs, work};

#[test]
fn the_first_turn_starts_right_after_the_baseline() {
    let mut rig = Rig::new();
    let decision = rig.baseline(1);
    assert_eq!(actions(&decision), ["spawn"]);
    assert_eq!(rig.turn().as_str(), "k-1.1");
    assert!(matches!(decision.ops[0], Op::Enqueue(_)) && matches!(decision.ops[1], Op::Take { .. }));
}

#[test]
fn only_the_checks_decide_and_an_agent_that_says_done_is_a_no_op() {
    let mut rig = Rig::running();
    assert_eq!(actions(&rig.exit(30, 0)), ["judge"]);
    let decision = rig.judged_as(Judgement { board: board(0, 3), ..Judgement::default() });
    assert_eq!(outcome(&decision), Outcome::NoOp);
    assert_eq!((rig.state.task.turns, rig.state.progress.noops), (1, 1));
}

#[test]
fn progress_is_integrated_and_then_counted() {
    let mut rig = Rig::running();
    rig.exit(30, 0);
    assert_eq!(actions(&rig.judged(1)), ["integrate"]);
    assert_eq!(outcome(&rig.landed()), Outcome::Progress);
    assert_eq!((rig.state.progress.board.passing().len(), rig.state.progress.landed.passing().len()), (1, 1));
}

#[test]
fn also_a_failed_agent_can_bring_progress() {
    let mut rig = Rig::running();
    rig.exit(30, 1);
    assert_eq!(actions(&rig.judged(2)), ["integrate"]);
}

#[test]
fn with_the_reached_policy_progress_stays_on_the_loops_own_line() {
    let mut rig = Rig::with(|s| s.workspace.integrate = Integrate::Reached);
    rig.baseline(0);
    rig.exit(30, 0);
    let decision = rig.judged(1);
    assert_eq!(outcome(&decision), Outcome::Progress);
    assert!(!actions(&decision).contains(&"integrate"));
    assert_eq!(rig.state.progress.work.as_deref(), Some("commit-k-1.1"));
    assert_eq!(rig.state.progress.landed.passing().len(), 0);
}

#[test]
fn work_that_touches_protected_files_is_refused_however_green() {
    let mut rig = Rig::running();
    rig.exit(30, 0);
    let found = Judgement { violations: vec!["checks/a".to_owned()], ..work(&rig.turn(), board(3, 3)) };
    let decision = rig.judged_as(found);
    assert_eq!(outcome(&decision), Outcome::Refused { paths: vec!["checks/a".to_owned()] });
    assert_eq!(rig.state.progress.work.as_deref(), Some("base"));
}

#[test]
fn a_suspicious_pass_is_none_and_two_in_a_row_are_a_ticket() {
    let mut rig = Rig::running();
    let mut doubted = board(3, 3);
    doubted.0[0].verdict = Verdict::Suspicious { why: "3 tests ran, and 10 before".to_owned() };
    let mut tickets = Vec::new();
    for board in [doubted.clone(), doubted.clone(), doubted, board(2, 3)] {
        rig.exit(30, 0);
        let decision = rig.judged_as(work(&rig.turn(), board));
        assert!(decision.events.iter().all(|e| !matches!(e, Event::TurnEnded { outcome: Outcome::Reached, .. })));
        if actions(&decision).contains(&"integrate") {
            rig.landed();
        }
        tickets.push(rig.state.people.tickets.iter().any(|key| key.starts_with("suspicious:")));
        let said = why(&rig.state, rig.now, &|_| String::new()).contains("suspicious pass");
        assert_eq!(said, tickets.len() < 4);
        if rig.phase() == "waiting" {
            rig.wait_out();
        }
    }
    assert_eq!(tickets, [false, true, true, false]);
}

#[test]
fn in_place_tampered_checks_are_not_believed_either() {
    let mut rig = Rig::with(|s| s.workspace.mode = WorkspaceMode::InPlace);
    rig.baseline(0);
    rig.exit(30, 0);
    let found = Judgement { violations: vec!["checks/a".to_owned()], board: board(3, 3), ..Judgement::default() };
    rig.judged_as(found);
    assert_eq!(rig.state.progress.board.passing().len(), 0);
    assert_ne!(rig.phase(), "reached");
}

#[test]
fn work_that_breaks_a_check_is_not_used() {
    let mut rig = Rig::new();
    rig.baseline(2);
    rig.exit(30, 0);
    let decision = rig.judged(1);
    assert_eq!(outcome(&decision), Outcome::Regressed { lost: vec!["c1".to_owned()] });
    assert_eq!(rig.state.progress.work.as_deref(), Some("base"));
    assert_eq!(rig.state.progress.board.passing().len(), 2);
}

#[test]
fn work_without_a_further_check_is_kept_for_the_next_turn() {
    let mut rig = Rig::running();
    rig.exit(30, 0);
    assert_eq!(outcome(&rig.judged(0)), Outcome::NotYet);
    assert_eq!(rig.state.progress.work.as_deref(), Some("commit-k-1.1"));
}

#[test]
fn a_target_that_keeps_moving_ends_the_turn_and_is_no_false_success() {
    let mut rig = Rig::running();
    rig.exit(30, 0);
    for _ in 0..3 {
        assert_eq!(actions(&rig.judged(3)), ["integrate"]);
        assert_eq!(actions(&rig.moved()), ["judge"]);
    }
    rig.judged(3);
    let decision = rig.moved();
    assert_eq!(outcome(&decision), Outcome::NotYet);
    assert_ne!(rig.phase(), "reached", "nothing has landed");
    if rig.phase() == "waiting" {
        rig.wait_out();
    }
    rig.exit(30, 0);
    let again = rig.judged_as(Judgement { board: board(3, 3), ..Judgement::default() });
    assert_eq!(actions(&again), ["integrate"], "the work of before is landed now");
    rig.landed();
    assert_eq!(rig.phase(), "reached");
}

#[test]
fn a_task_that_fails_three_times_is_set_aside_with_a_ticket() {
    let mut rig = Rig::with(|s| s.guard = s.guard.clone().free());
    rig.baseline(0);
    for attempt in 1..=3 {
        assert_eq!(rig.turn().as_str(), format!("k-1.{attempt}"));
        rig.stopped(8000, StopCause::Wall);
        let decision = rig.judged(0);
        assert!(matches!(outcome(&decision), Outcome::TaskFailed { .. }));
        let dead = |op: &Op| matches!(op, Op::Finish { state: TaskEnd::Dead, .. });
        assert_eq!(decision.ops.iter().any(dead), attempt == 3);
        assert_eq!(rig.state.people.tickets.contains(&"task.dead:k-1".to_owned()), attempt == 3);
        if rig.phase() == "waiting" {
            rig.wait_out();
        }
    }
    assert_eq!(rig.turn().as_str(), "k-2.1");
}

#[test]
fn an_agent_that_cannot_be_started_is_tried_again_without_being_judged() {
    let mut rig = Rig::running();
    let decision = rig.exit_as(0, Exit { spawn_error: Some("no such file".to_owned()), ..Exit::default() });
    assert!(matches!(outcome(&decision), Outcome::AgentFailed { kept: false, .. }));
    assert!(decision.ops.iter().any(|op| matches!(op, Op::Release { .. })));
    rig.wait_out();
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    assert_eq!(rig.turn().as_str(), "k-1.2", "the same task under the next fence");
}

#[test]
fn no_op_turns_are_said_aloud_and_stretch_the_gap() {
    let mut rig = Rig::running();
    for _ in 0..2 {
        rig.no_op();
    }
    let decision = rig.no_op();
    let said = |e: &Event| matches!(e, Event::Noticed { pattern: Pattern::NoOps, turns: 3 });
    assert!(decision.events.iter().any(said));
    // 15 s doubled once, 30 s of which the turn itself took; the next is doubled again.
    rig.exit(1, 0);
    rig.judged_as(Judgement { board: board(0, 3), ..Judgement::default() });
    assert_eq!(rig.waits_for(), "guard.gap");
}

#[test]
fn answers_about_other_turns_and_other_stages_change_nothing() {
    let mut rig = Rig::running();
    let stale: everloop_core::ids::TurnId = "k-0.9".parse().expect("the id of a turn");
    let before = rig.state.clone();
    for input in [
        Input::Vanished { turn: stale.clone() },
        Input::Exited { turn: stale.clone(), exit: Exit::default() },
        Input::Judged { turn: rig.turn(), judgement: Judgement::default() },
        Input::Baselined { result: Err("late".to_owned()), notes: Vec::new(), samples: Vec::new() },
    ] {
        assert!(rig.give(&input).events.is_empty());
    }
    rig.now = rig.now + secs(1);
    assert_eq!(rig.state, before);
}

#[test]
fn a_task_from_the_board_comes_before_a_new_one_of_the_loops_own() {
    let mut rig = Rig::new();
    rig.put("wish", "work", 0);
    let decision = rig.baseline(0);
    assert_eq!(rig.turn().as_str(), "wish.5");
    assert!(!decision.ops.iter().any(|op| matches!(op, Op::Enqueue(_))));
}

/// Each loss is a start; the second in a row is a failure, and so is each further one.
fn lose(rig: &mut Rig, times: usize) -> Vec<Outcome> {
    let lost = |rig: &mut Rig| {
        let ended = outcome(&rig.give(&Input::Vanished { turn: rig.turn() }));
        while rig.phase() == "waiting" {
            rig.wait_out();
        }
        ended
    };
    (0..times).map(|_| lost(rig)).collect()
}

#[test]
fn a_turn_that_is_lost_again_and_again_fails() {
    let mut rig = Rig::with(|s| s.bounds.max_turns = Some(9));
    rig.baseline(0);
    let failed = |outcome: &Outcome| matches!(outcome, Outcome::AgentFailed { kept: false, .. });
    let ends = lose(&mut rig, 4);
    assert_eq!(ends[0], Outcome::Lost, "one may be an accident");
    assert!(ends[1..].iter().all(failed), "{ends:?}");
    assert_eq!((rig.state.task.turns, rig.state.progress.tally.lost, rig.state.progress.tally.agent_failed), (3, 1, 3));
    rig.exit(30, 0);
    rig.judged_as(Judgement { board: board(0, 3), ..Judgement::default() });
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    assert_eq!(lose(&mut rig, 1), [Outcome::Lost], "a turn with an end is between them");
}

#[cfg(feature = "planted")]
#[test]
fn without_that_an_agent_that_kills_its_shim_has_turns_for_ever() {
    use everloop_core::planted::{Bug, plant};
    plant(Some(Bug::LossesNeverCount));
    let mut rig = Rig::running();
    let ends = lose(&mut rig, 3);
    plant(None);
    assert_eq!((ends, rig.state.task.turns), (vec![Outcome::Lost; 3], 0));
}

#[test]
fn a_stop_that_was_not_requested_is_a_loss() {
    let mut rig = Rig::running();
    assert_eq!(outcome(&rig.stopped(2, StopCause::Shutdown)), Outcome::Lost);
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    let again = outcome(&rig.stopped(2, StopCause::Shutdown));
    assert!(matches!(again, Outcome::AgentFailed { .. }), "{again:?}");
}
