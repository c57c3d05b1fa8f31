//! Pacing: the allowance of an account lasts until its reset, for loops that want that.

use everloop_core::decide::Decision;
use everloop_core::event::{Event, Exit, Judgement};
use everloop_core::guard::Scope;
use everloop_core::reason::RuleId;
use everloop_core::spec::{AgentKind, AgentSpec};
use everloop_core::state::Phase;
use everloop_core::stream::{Quota, TurnReport};
use everloop_core::time::Time;
use everloop_core::why::why;

use super::rig::{Rig, board, secs};

const HOUR: u64 = 3600;

/// A loop of an agent with a stream, with its first turn under way.
fn rig(pace: bool) -> Rig {
    let mut rig = Rig::with(|s| {
        s.agent.kind = AgentKind::Claude;
        s.guard.pace = pace;
        s.guard.caps.per_hour = None;
        s.guard.caps.per_day = None;
    });
    rig.baseline(0);
    rig
}

fn quota(used_permille: u32, reset_at: Time) -> Quota {
    Quota { window: "five_hour".to_owned(), used_permille, reset_at: Some(reset_at), length_ms: None }
}

/// Ends a turn after a minute with a report about its account's windows.
fn end(rig: &mut Rig, quotas: Vec<Quota>) -> Decision {
    let report = TurnReport { ok: Some(true), quotas, ..TurnReport::default() };
    rig.exit_as(60, Exit { code: Some(0), report: Some(Box::new(report)), ..Exit::default() });
    rig.judged_as(Judgement { changed: true, board: board(0, 3), ..Judgement::default() })
}

fn until(rig: &Rig) -> Time {
    match &rig.state.phase {
        Phase::Waiting { reason, .. } => reason.until.expect("it ends by itself"),
        other => panic!("it does not wait: {other:?}"),
    }
}

#[test]
fn who_is_ahead_of_the_line_waits_for_it_and_says_so() {
    let mut rig = rig(true);
    let reset = rig.now + secs(4 * HOUR);
    end(&mut rig, vec![quota(650, reset)]);
    assert_eq!(rig.waits_for(), "guard.pace");
    assert_eq!(until(&rig), reset - secs(2 * HOUR), "where 60 % of its time have gone");
    let said = why(&rig.state, rig.now, &|_| "then".to_owned());
    for word in ["65 %", "`five_hour`", "20 %", "`default/claude`", "guard.pace", "by its reset"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(rig.tick(600).events.is_empty(), "the same reason is noted once");
    rig.wait_out();
    assert_eq!(rig.phase(), "running");
}

#[test]
fn without_being_asked_nobody_is_slowed_down() {
    let mut rig = rig(false);
    let reset = rig.now + secs(4 * HOUR);
    end(&mut rig, vec![quota(990, reset)]);
    assert_eq!(rig.phase(), "running", "a minute after the start even the gap is over");
    assert_eq!(rig.guards[&Scope::Account("default/claude".to_owned())].state.windows.len(), 1, "but it is remembered");
    assert!(rig.guards[&Scope::All].state.windows.is_empty());
}

#[test]
fn an_account_without_windows_is_not_paced() {
    let mut rig = rig(true);
    end(&mut rig, Vec::new());
    assert_eq!(rig.phase(), "running");
    let endless = Quota { reset_at: None, ..quota(990, rig.now) };
    let unmeasured = Quota { window: "primary".to_owned(), ..quota(990, rig.now + secs(HOUR)) };
    end(&mut rig, vec![endless, unmeasured]);
    assert_eq!(rig.phase(), "running", "without an end or a length there is no line");
}

#[test]
fn of_several_windows_the_one_that_holds_longest_is_named() {
    let mut rig = rig(true);
    let (soon, late) = (rig.now + secs(4 * HOUR), rig.now + secs(6 * 24 * HOUR));
    let week = Quota { window: "seven_day".to_owned(), ..quota(300, late) };
    end(&mut rig, vec![quota(1000, soon), week]);
    assert_eq!(until(&rig), late - secs(7 * 24 * HOUR * 3 / 4));
    rig.wait_out();
    assert_eq!(rig.phase(), "running", "the shorter one began anew meanwhile");
}

#[test]
fn an_urgent_task_may_go_further_ahead() {
    let mut rig = rig(true);
    let reset = rig.now + secs(4 * HOUR);
    rig.put("fire", "work", 1);
    end(&mut rig, vec![quota(350, reset)]);
    assert_eq!((rig.phase(), rig.turn().as_str()), ("running", "fire.5"), "15 % ahead");
    end(&mut rig, vec![quota(450, reset)]);
    assert_eq!(rig.waits_for(), "guard.pace", "25 % ahead");
}

#[test]
fn another_account_of_the_list_goes_on_meanwhile() {
    let mut rig = rig(true);
    let other = AgentSpec { account: "own".to_owned(), ..rig.state.spec.agent.clone() };
    rig.state.spec.others = vec![other];
    let reset = rig.now + secs(4 * HOUR);
    let decision = end(&mut rig, vec![quota(900, reset)]);
    assert_eq!((rig.phase(), rig.state.task.worker.as_str()), ("running", "agent@own"));
    let switched = |e: &Event| matches!(e, Event::AgentSwitched { reason, .. } if reason.rule == RuleId::GuardPace);
    assert!(decision.events.iter().any(switched));
}

#[test]
fn a_busy_loop_is_near_empty_at_the_reset_and_goes_on_in_the_next_window() {
    let mut rig = rig(true);
    let begin = rig.now;
    let (mut window, mut used, mut best) = (0_u64, 0_u32, Vec::new());
    for _ in 0..300 {
        let passed = rig.now.since(begin).as_secs() / (5 * HOUR);
        if passed > window {
            best.push(used);
            (window, used) = (passed, 0);
        }
        assert!(used < 1000, "it started with nothing left");
        used += 20;
        let reset = begin + secs((window + 1) * 5 * HOUR);
        end(&mut rig, vec![quota(used, reset)]);
        while rig.phase() == "waiting" {
            assert!(until(&rig) <= reset + secs(60), "{:?}", rig.state.phase);
            rig.wait_out();
        }
    }
    assert!(best.len() >= 4 && best.iter().all(|used| (900..=1000).contains(used)), "{best:?}");
}
