//! When a turn may start: every refusal names its rule and its end, and is recorded once.

use std::time::Duration;

use everloop_core::event::{Event, Exit};
use everloop_core::guard::Scope;
use everloop_core::ids::TurnId;
use everloop_core::spec::{BucketSpec, Budget, StartCaps};
use everloop_core::state::Phase;
use everloop_core::time::Time;

use super::rig::{Rig, secs};

#[test]
fn the_gap_is_kept_and_its_end_is_named() {
    let mut rig = Rig::running();
    let start = rig.now;
    rig.exit(2, 0);
    let decision = rig.judged(0);
    assert_eq!(rig.waits_for(), "guard.gap");
    assert_eq!(decision.wake_at, Some(start + secs(15)));
    assert_eq!(rig.tick(12).events.len(), 0, "nothing new is nothing to write");
    rig.tick(1);
    assert_eq!(rig.phase(), "running");
}

#[test]
fn turns_that_change_nothing_stretch_the_gap_up_to_its_limit() {
    let after_four = |most| {
        let mut rig = Rig::with(|s| s.guard.max_noop_gap = most);
        rig.baseline(0);
        for _ in 0..3 {
            rig.no_op();
        }
        let start = rig.now;
        (rig.no_op().wake_at.filter(|_| rig.phase() == "waiting"), start)
    };
    let (wake, start) = after_four(secs(40));
    assert_eq!(wake, Some(start + secs(40)), "15 s doubled twice would be 60 s");
    assert_eq!(after_four(secs(1)).0, None, "turns of 30 s are longer than the plain gap");
}

#[test]
fn caps_hold_in_their_window() {
    let caps = StartCaps { per_minute: Some(2), ..StartCaps::NONE };
    let mut rig = Rig::with(|s| (s.guard.min_gap, s.guard.caps) = (secs(0), caps));
    rig.baseline(0);
    for _ in 0..2 {
        rig.exit(5, 0);
        rig.judged(0);
    }
    assert_eq!(rig.waits_for(), "guard.cap");
    rig.wait_out();
    assert_eq!(rig.phase(), "running");
}

#[test]
fn a_budget_that_is_used_up_ends_the_loop() {
    for code in [0, 1] {
        let mut rig = Rig::with(|s| s.guard.budget = Budget { calls: Some(1), ..Budget::default() });
        rig.baseline(0);
        rig.exit(30, code);
        rig.judged(0);
        while rig.phase() == "waiting" {
            rig.wait_out();
        }
        assert_eq!((rig.phase(), rig.state.task.started), ("exhausted", 1), "also after a failed start: {code}");
    }
}

#[test]
fn tokens_are_reserved_before_they_are_spent() {
    let mut rig = Rig::with(|s| s.guard.budget = Budget { tokens: Some(150), ..Budget::default() });
    rig.baseline(0);
    rig.exit(30, 0);
    rig.judged(0);
    assert_eq!(rig.phase(), "exhausted", "a second turn of 100 would not fit");
}

#[test]
fn a_bucket_refills_at_its_rate() {
    let bucket = BucketSpec { burst: 1, every: secs(100) };
    let mut rig = Rig::with(|s| {
        s.guard = s.guard.clone().free();
        s.guard.bucket = Some(bucket);
    });
    let start = rig.now;
    rig.baseline(0);
    rig.exit(5, 0);
    let decision = rig.judged(0);
    assert_eq!(rig.waits_for(), "guard.bucket");
    assert_eq!(decision.wake_at, Some(start + secs(100)));
}

#[test]
fn a_full_machine_is_looked_at_again_without_writing_every_time() {
    let mut rig = Rig::with(|s| s.guard.max_parallel_turns = 1);
    let node = Scope::Node(everloop_core::ids::NodeId::new("here"));
    let busy = rig.guards.entry(node.clone()).or_default();
    busy.state
        .reserved
        .insert("other.1".parse::<TurnId>().expect("the id of a turn"), everloop_core::guard::Spend::default());
    rig.baseline(0);
    assert_eq!(rig.waits_for(), "guard.slots");
    for _ in 0..5 {
        let decision = rig.tick(30);
        assert!(decision.events.is_empty());
        assert_eq!(decision.wake_at, Some(rig.now + secs(30)), "but it has a timer");
    }
    rig.guards.entry(node).or_default().state.reserved.clear();
    rig.tick(30);
    assert_eq!(rig.phase(), "running");
}

#[test]
fn a_marker_never_shortens_the_guards_own_wait() {
    let mut rig = Rig::with(|s| {
        s.guard = s.guard.clone().free();
        // So long that the draw cannot be shorter than the requested delay.
        (s.guard.backoff_first, s.guard.backoff_cap) = (secs(100_000), secs(100_000));
    });
    rig.baseline(0);
    rig.exit_as(60, Exit { code: Some(1), backoff_ms: Some(1), ..Exit::default() });
    let decision = rig.judged(0);
    let own = decision.events.iter().find_map(|e| match e {
        Event::Backoff { until, why, .. } if why.starts_with("failure") => Some(*until),
        _ => None,
    });
    assert_eq!(rig.waits_for(), "guard.backoff");
    assert_eq!(decision.wake_at, own, "the longer of the two counts");
}

#[test]
fn a_marker_of_a_healthy_agent_is_obeyed_up_to_six_hours() {
    for (asked_ms, granted) in [(60_000, secs(60)), (u64::MAX, secs(6 * 3600))] {
        let mut rig = Rig::with(|s| s.guard = s.guard.clone().free());
        rig.baseline(0);
        rig.exit_as(30, Exit { code: Some(0), backoff_ms: Some(asked_ms), ..Exit::default() });
        let decision = rig.judged(0);
        assert_eq!(decision.wake_at, Some(rig.now + granted));
    }
}

#[test]
fn deaths_cool_down_cooldowns_freeze_and_a_trial_that_ends_well_releases() {
    let mut rig = Rig::running();
    let mut rules = std::collections::BTreeSet::new();
    while rig.state.people.tickets.is_empty() {
        rig.exit(1, 1);
        rig.judged(0);
        while rig.phase() == "waiting" && rig.state.people.tickets.is_empty() {
            rules.insert(rig.waits_for().to_owned());
            rig.wait_out();
        }
    }
    assert!(rules.contains("guard.cooldown"));
    assert_eq!(rig.state.task.started, 9, "three times three deaths");
    assert_eq!(
        (rig.waits_for(), rig.state.people.tickets.as_slice()),
        ("guard.freeze", &["guard.freeze:loop:k".to_owned()][..])
    );
    rig.wait_out();
    let Phase::Turn(turn) = &rig.state.phase else { panic!("a trial start is due") };
    assert_eq!(turn.permit.canary, Some(Scope::Loop(rig.state.id.clone())));
    rig.exit(30, 0);
    rig.judged(1);
    rig.landed();
    assert!(rig.state.people.tickets.is_empty(), "released, and the ticket is closed");
    assert!(rig.guards[&Scope::Loop(rig.state.id.clone())].state.freeze.is_none());
}

/// The lengths of cooldowns, and of freezes with the time to their first trial start, that the deaths
/// of a loop bring about.
#[derive(Default)]
struct Reflexes {
    cooldowns: Vec<Duration>,
    freezes: Vec<(Option<Duration>, Option<Duration>)>,
}

impl Reflexes {
    /// The agent dies young; a wait is waited out first.
    fn die(&mut self, rig: &mut Rig) {
        while rig.phase() == "waiting" {
            rig.wait_out();
        }
        rig.exit(1, 1);
        let own = Scope::Loop(rig.state.id.clone());
        for event in rig.judged(0).events {
            match event {
                Event::Cooldown { scope, until, .. } if scope == own => self.cooldowns.push(until.since(rig.now)),
                Event::Frozen { scope, freeze } if scope == own => {
                    let after = |at: Time| at.since(rig.now);
                    self.freezes.push((freeze.until.map(after), freeze.canary_at.map(after)));
                }
                _ => {}
            }
        }
    }
}

#[test]
fn cooldowns_grow_a_freeze_has_trials_and_a_relapse_waits_for_a_person() {
    let (mut rig, mut seen) = (Rig::running(), Reflexes::default());
    while seen.freezes.is_empty() {
        seen.die(&mut rig);
    }
    let [first, second, third] = seen.cooldowns[..] else { panic!("three: {:?}", seen.cooldowns) };
    assert_eq!(first, secs(60));
    assert!(
        (secs(60)..=secs(120)).contains(&second) && (secs(60)..=secs(240)).contains(&third),
        "{second:?} {third:?}"
    );
    assert_eq!(seen.freezes, [(Some(secs(3600)), Some(secs(900)))]);
    while seen.freezes.len() < 2 {
        seen.die(&mut rig);
    }
    assert_eq!(rig.state.task.started, 9 + 3 + 1, "three trials in an hour, and one start after it");
    assert_eq!(seen.freezes[1], (None, Some(secs(3600))));
}

#[test]
fn progress_resets_the_cooldowns() {
    let (mut rig, mut seen) = (Rig::running(), Reflexes::default());
    for _ in 0..3 {
        seen.die(&mut rig);
    }
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    rig.exit(30, 0);
    rig.judged(1);
    rig.landed();
    for _ in 0..2 {
        seen.die(&mut rig);
    }
    assert_eq!(seen.cooldowns, [secs(60)], "the count begins anew");
    seen.die(&mut rig);
    assert_eq!(seen.cooldowns, [secs(60), secs(60)], "and so does the length");
}

#[test]
fn nothing_stays_reserved_when_nothing_runs() {
    let mut rig = Rig::running();
    assert!(rig.guards.values().all(|g| g.state.reserved.len() == 1));
    rig.exit(2, 0);
    rig.judged(0);
    assert!(rig.guards.values().all(|g| g.state.reserved.is_empty()));
}
