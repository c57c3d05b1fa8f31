//! A loop that does not get on: one ticket per cause, closed when it is gone.

use everloop_core::action::Command;
use everloop_core::decide::Decision;
use everloop_core::event::Event;

use crate::rig::{Rig, secs};

/// Keys of tickets that a decision opens and closes.
fn tickets(decision: &Decision) -> (Vec<&str>, Vec<&str>) {
    let opened = decision.events.iter().filter_map(|e| match e {
        Event::TicketOpened { key, .. } => Some(key.as_str()),
        _ => None,
    });
    let closed = decision.events.iter().filter_map(|e| match e {
        Event::TicketClosed { key } => Some(key.as_str()),
        _ => None,
    });
    (opened.collect(), closed.collect())
}

#[test]
fn work_that_nobody_takes_for_half_an_hour_is_told_once_and_closed_when_it_moves() {
    let mut rig = Rig::with(|spec| spec.agent.tasks.kinds = vec!["docs".to_owned()]);
    let begun = rig.baseline(0);
    assert_eq!(rig.waits_for(), "agent.none");
    assert_eq!(begun.wake_at, Some(rig.now + secs(1800)), "it looks again by itself");
    assert_eq!(tickets(&rig.tick(1799)).0, Vec::<&str>::new());
    let late = rig.tick(1);
    assert_eq!(tickets(&late).0, ["stalled:k"]);
    assert_eq!(late.wake_at, None, "once is enough");
    assert_eq!(tickets(&rig.tick(3600)), (Vec::new(), Vec::new()));
    let mut spec = rig.state.spec.clone();
    spec.agent.tasks.kinds.clear();
    let moved = rig.ask(Command::Reconfigure { spec: Box::new(spec) });
    assert_eq!(tickets(&moved).1, ["stalled:k"]);
    assert_eq!(rig.phase(), "running");
}

#[test]
fn a_loop_that_waits_for_a_reason_of_its_own_is_not_stalled() {
    let mut rig = Rig::running();
    rig.ask(Command::Pause { reason: "lunch".to_owned(), until: None });
    rig.no_op();
    assert_eq!(rig.waits_for(), "paused");
    assert_eq!(tickets(&rig.tick(86_400)).0, Vec::<&str>::new());
}

#[test]
fn time_and_money_without_progress_are_a_ticket_each() {
    let mut rig = Rig::with(|spec| {
        spec.guard.stagnation_time = Some(secs(100));
        spec.guard.stagnation_microusd = Some(500_000);
        spec.agent.turn_microusd = 200_000;
    });
    rig.baseline(0);
    let mut opened: Vec<(u32, String)> = Vec::new();
    for turn in 1..=5 {
        let ended = rig.no_op();
        opened.extend(tickets(&ended).0.iter().map(|key| (turn, (*key).to_owned())));
        if rig.phase() == "waiting" {
            rig.wait_out();
        }
    }
    let wanted = [(3, "stagnation.spend:k"), (4, "stagnation.time:k")].map(|(n, key)| (n, key.to_owned()));
    assert_eq!(opened, wanted, "30 s and $0.20 a turn");
    rig.exit(30, 0);
    rig.judged(1);
    let closed = rig.landed();
    assert_eq!(tickets(&closed).1, ["stagnation.time:k", "stagnation.spend:k"]);
    assert_eq!(tickets(&rig.no_op()).0, Vec::<&str>::new(), "it counts from the progress on");
}
