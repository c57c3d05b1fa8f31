//! Decisions of a restarted supervisor; the same twice.

use everloop_core::action::{Input, TurnTrace};
use everloop_core::event::{Exit, Outcome, StopCause};

use super::rig::{Rig, actions, outcome};

fn recovered(rig: &mut Rig, found: TurnTrace) -> everloop_core::decide::Decision {
    rig.give(&Input::Recovered { found })
}

#[test]
fn a_turn_that_lives_is_adopted_however_often() {
    let mut rig = Rig::running();
    for _ in 0..3 {
        assert_eq!(actions(&recovered(&mut rig, TurnTrace::Alive)), ["adopt"]);
    }
    assert_eq!((rig.phase(), rig.state.task.started), ("running", 1));
}

#[test]
fn one_that_was_being_stopped_is_stopped_again() {
    let mut rig = Rig::running();
    rig.give(&Input::Shutdown);
    assert_eq!(actions(&recovered(&mut rig, TurnTrace::Alive)), ["adopt", "stop"]);
}

#[test]
fn one_that_ended_meanwhile_is_judged() {
    let mut rig = Rig::running();
    let exit = Exit { code: Some(0), ..Exit::default() };
    assert_eq!(actions(&recovered(&mut rig, TurnTrace::Exited(exit))), ["judge"]);
    assert_eq!(actions(&recovered(&mut rig, TurnTrace::Gone)), ["judge"], "and again after the next crash");
}

#[test]
fn one_that_is_gone_is_given_back_and_does_not_count() {
    let mut rig = Rig::running();
    let decision = recovered(&mut rig, TurnTrace::Gone);
    assert_eq!(outcome(&decision), Outcome::Lost);
    assert_eq!((rig.state.task.turns, rig.state.progress.tally.lost), (0, 1));
    rig.wait_out();
    assert_eq!(rig.turn().as_str(), "k-1.2");
}

#[test]
fn an_interrupted_integration_is_done_again_with_the_same_commit() {
    let mut rig = Rig::running();
    rig.exit(30, 0);
    let first = rig.judged(1).actions;
    assert_eq!(recovered(&mut rig, TurnTrace::Idle).actions, first);
}

#[test]
fn a_baseline_is_taken_again_and_an_ended_loop_is_left_alone() {
    let mut rig = Rig::new();
    assert_eq!(actions(&recovered(&mut rig, TurnTrace::Idle)), ["baseline"]);
    rig.baseline(3);
    let decision = recovered(&mut rig, TurnTrace::Idle);
    assert!(decision.events.is_empty() && decision.actions.is_empty());
}

#[test]
fn a_shutdown_interrupts_the_turn_and_nothing_is_counted() {
    let mut rig = Rig::running();
    rig.draining = true;
    assert_eq!(actions(&rig.give(&Input::Shutdown)), ["stop"]);
    let decision = rig.stopped(2, StopCause::Shutdown);
    assert_eq!(outcome(&decision), Outcome::Interrupted);
    assert_eq!((rig.phase(), rig.state.task.turns), ("ready", 0));
}
