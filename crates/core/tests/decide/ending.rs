//! When and how a loop ends.

use everloop_core::spec::Bounds;

use super::rig::{Rig, actions, secs};

#[test]
fn a_goal_that_already_holds_needs_no_turn() {
    let mut rig = Rig::new();
    assert_eq!(actions(&rig.baseline(3)), ["cleanup"]);
    assert_eq!((rig.phase(), rig.state.started), ("reached", 0));
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
    assert_eq!((rig.phase(), rig.state.tally.no_op), ("exhausted", 3));
}

#[test]
fn time_ends_it_also_while_it_waits() {
    let mut rig = Rig::with(|s| s.bounds = Bounds { max_time: Some(secs(40)), ..Bounds::default() });
    rig.baseline(0);
    let begin = rig.now;
    rig.exit(1, 1);
    let decision = rig.judged(0);
    assert!(decision.wake_at.is_some_and(|at| at <= begin + secs(40)));
    rig.tick(60);
    assert_eq!(rig.phase(), "exhausted");
}

#[test]
fn a_draining_supervisor_starts_nothing() {
    let mut rig = Rig::new();
    rig.draining = true;
    assert!(rig.baseline(0).actions.is_empty());
    assert_eq!(rig.phase(), "ready");
}
