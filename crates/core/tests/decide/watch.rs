//! A loop with monitors: it watches instead of ending, works on what they see, parks, and always
//! has one keepalive.

use everloop_core::action::{Action, Input, LoopCommand, TurnTrace as Turns};
use everloop_core::decide::Decision;
use everloop_core::event::{Event, Exit, Judgement, Outcome};
use everloop_core::ids::TaskId;
use everloop_core::isolation::CommandAccess;
use everloop_core::op::{NewTask, Op, TaskEnd, Trust};
use everloop_core::spec::{LoopSpec, WorkspaceMode};
use everloop_core::time::Time;
use everloop_core::watch::{self, Blind, MonitorSpec, Target, WatchReading, WatchSpec, WatchedContent};
use everloop_core::why::why;
use std::collections::BTreeMap;

use crate::rig::{Rig, actions, board, outcome, secs};

fn monitor(name: &str) -> MonitorSpec {
    MonitorSpec {
        name: name.to_owned(),
        target: Target::Stream(format!("{name}.log")),
        every: secs(60),
        timeout: secs(20),
        title: String::new(),
        prompt: "mend it".to_owned(),
        access: CommandAccess::default(),
    }
}

fn watchful(spec: &mut LoopSpec) {
    spec.watch = WatchSpec { monitors: vec![monitor("app"), monitor("ci")], park_after: 3 };
}

/// A loop with all checks passing from the beginning.
fn content() -> Rig {
    let mut rig = Rig::with(watchful);
    rig.state.watch.keepalive = 1;
    rig.baseline(3);
    rig
}

fn look(name: &str, from: Option<&str>, cursor: &str) -> WatchReading {
    let found = WatchedContent { cursor: cursor.to_owned(), summary: "1 new line".to_owned(), text: "boom".to_owned() };
    WatchReading { monitor: name.to_owned(), from: from.map(str::to_owned), found: Ok(found) }
}

fn beat(rig: &mut Rig, looks: &[WatchReading], empty: u32) -> Decision {
    rig.give(&Input::Beat { looks: looks.to_vec(), empty })
}

/// One that has probed its monitors once.
fn watching() -> Rig {
    let mut rig = content();
    beat(&mut rig, &[look("app", None, "0"), look("ci", None, "a")], 0);
    rig
}

/// One with a turn under way on what its monitor saw.
fn signalled() -> Rig {
    let mut rig = watching();
    beat(&mut rig, &[look("app", Some("0"), "12")], 0);
    rig.put("k-signal-1", "signal", 0);
    rig.baseline(3);
    rig
}

fn enqueued<'a>(decision: &'a Decision, kind: &str) -> Vec<&'a NewTask> {
    let task = |op: &'a Op| match op {
        Op::Enqueue(task) => Some(task),
        _ => None,
    };
    decision.ops.iter().filter_map(task).filter(|t| t.kind == kind).collect()
}

fn finished(decision: &Decision) -> Vec<&str> {
    let end = |op: &Op| matches!(op, Op::Finish { state: TaskEnd::Done, .. });
    let ends = decision.ops.iter().filter(|op| end(op));
    ends.map(|op| if let Op::Finish { task, .. } = op { task.as_str() } else { "" }).collect()
}

#[test]
fn a_loop_whose_checks_pass_watches_and_without_monitors_it_ends() {
    let rig = content();
    assert_eq!((rig.phase(), rig.waits_for(), rig.state.task.started), ("watching", "watch", 0));
    let mut other = Rig::new();
    other.baseline(3);
    assert_eq!(other.phase(), "reached");
    let said = why(&rig.state, rig.now, &|_: Time| String::new());
    assert!(
        said.contains("watches (app, ci) without using any tokens") && said.contains("3 of 3 checks pass"),
        "{said}"
    );
}

#[test]
fn the_first_look_is_where_it_begins_and_the_second_one_tells() {
    let mut rig = content();
    let first = beat(&mut rig, &[look("app", None, "0")], 0);
    assert!(enqueued(&first, "signal").is_empty() && rig.phase() == "watching");
    let nothing = beat(&mut rig, &[look("app", Some("0"), "0")], 1);
    assert!(nothing.events.is_empty() && nothing.batch(1).is_empty(), "a beat without news writes nothing");
    let news = beat(&mut rig, &[look("app", Some("0"), "12")], 0);
    let [signal] = enqueued(&news, "signal")[..] else { panic!("one task") };
    assert_eq!((signal.id.as_str(), signal.prompt.as_str(), signal.trust), ("k-signal-1", "boom", Trust::Agent));
    assert_eq!(signal.author, "monitor app");
    assert_eq!((rig.state.watch.seen["app"].cursor.as_str(), actions(&news)), ("12", vec!["baseline"]));
    rig.put("k-signal-1", "signal", 0);
    let start = rig.baseline(3);
    assert!(matches!(&start.actions[..], [Action::Spawn { task, .. }] if task.as_str() == "k-signal-1"));
}

#[test]
fn the_end_of_a_keepalive_and_the_next_one_are_one_batch() {
    let mut rig = watching();
    let news = beat(&mut rig, &[look("app", Some("0"), "12")], 0);
    assert_eq!(finished(&news), ["k-keepalive-1"]);
    let [next] = enqueued(&news, "keepalive")[..] else { panic!("one keepalive") };
    assert_eq!((next.id.as_str(), rig.state.watch.keepalive), ("k-keepalive-2", 2));
    assert!(news.batch(1).iter().any(|op| matches!(op, Op::SaveLoop { .. })), "with the state that knows of it");
}

#[test]
fn the_same_look_twice_is_one_signal() {
    let mut rig = watching();
    let looks = [look("app", Some("0"), "12")];
    assert_eq!(enqueued(&beat(&mut rig, &looks, 0), "signal").len(), 1);
    let again = beat(&mut rig, &looks, 0);
    assert!(again.events.is_empty(), "{:?}", again.events);
    let unknown = beat(&mut rig, &[look("gone", None, "1")], 0);
    assert!(unknown.events.is_empty(), "a monitor that does not exist any more has no effect");
}

#[test]
fn a_change_during_a_turn_waits_for_its_end() {
    let mut rig = Rig::with(watchful);
    rig.baseline(1);
    assert_eq!(rig.phase(), "running");
    beat(&mut rig, &[look("app", None, "0")], 0);
    let news = beat(&mut rig, &[look("app", Some("0"), "5")], 0);
    assert_eq!((enqueued(&news, "signal").len(), actions(&news).len(), rig.phase()), (1, 0, "running"));
}

#[test]
fn beats_in_vain_park_it_and_a_wake_a_message_a_task_or_a_change_bring_it_back() {
    let parked = || {
        let mut rig = watching();
        beat(&mut rig, &[], 2);
        assert_eq!(rig.phase(), "watching");
        let park = beat(&mut rig, &[], 3);
        assert_eq!(
            (rig.phase(), finished(&park), enqueued(&park, "keepalive").len()),
            ("parked", vec!["k-keepalive-1"], 1)
        );
        assert!(beat(&mut rig, &[], 4).events.is_empty() && rig.tick(60).events.is_empty(), "it is parked once");
        rig
    };
    let mut woken = parked();
    assert_eq!(actions(&woken.ask(LoopCommand::Wake)), ["baseline", "look"]);
    woken.baseline(3);
    assert_eq!((woken.phase(), woken.state.watch.keepalive), ("watching", 3));
    let mut told = parked();
    told.ask(LoopCommand::Steer { message: "look at the docs".to_owned(), trust: Trust::Operator });
    assert_eq!(told.phase(), "running");
    let mut asked = parked();
    asked.put("x7k2m", "docs", 0);
    asked.tick(1);
    assert_eq!((asked.phase(), asked.state.task.id), ("running", Some(TaskId::new("x7k2m"))));
    let mut changed = parked();
    beat(&mut changed, &[look("ci", Some("a"), "b")], 0);
    changed.put("k-signal-1", "signal", 0);
    changed.baseline(3);
    assert_eq!(changed.phase(), "running");
    let said = why(&parked().state, Time(0), &|_: Time| String::new());
    assert!(said.contains("is parked") && said.contains("nothing new in 3 beats"), "{said}");
}

#[test]
fn a_change_makes_it_doubt_its_checks_and_its_time_goes_on() {
    let mut rig = watching();
    let (from, begun) = (rig.state.spend.clock_from, rig.state.progress.work.clone());
    rig.now = rig.now + secs(500);
    beat(&mut rig, &[look("app", Some("0"), "12")], 0);
    assert_eq!(
        (rig.phase(), &rig.state.progress.work),
        ("baseline", &None),
        "the checks run where the branch stands now"
    );
    let said = why(&rig.state, rig.now, &|_: Time| String::new());
    assert!(said.contains("runs its checks again"), "{said}");
    rig.baseline(2);
    assert_eq!((rig.phase(), rig.state.progress.board.passing().len()), ("running", 2), "there is something to do");
    assert_eq!((rig.state.spend.clock_from, rig.state.progress.work), (from, begun));
    let mut crashed = watching();
    beat(&mut crashed, &[look("app", Some("0"), "12")], 0);
    assert_eq!(actions(&crashed.give(&Input::Recovered { found: Turns::Idle })), ["baseline"]);
}

#[test]
fn a_loop_with_work_to_do_is_not_parked() {
    let mut rig = Rig::with(watchful);
    rig.baseline(1);
    rig.exit(1, 0);
    rig.judged(1);
    assert_eq!(rig.waits_for(), "guard.gap");
    beat(&mut rig, &[], 99);
    assert_eq!(rig.waits_for(), "guard.gap");
}

#[test]
fn a_keepalive_that_somebody_took_away_is_made_again_and_an_ended_loop_has_none() {
    let mut rig = watching();
    rig.keepalive_gone = true;
    let again = rig.give(&Input::Tick);
    assert!(finished(&again).is_empty() && enqueued(&again, "keepalive").len() == 1);
    rig.keepalive_gone = false;
    assert!(rig.give(&Input::Tick).events.is_empty());
    assert!(rig.give(&Input::Recovered { found: Turns::Idle }).events.is_empty(), "a restart makes no second one");
    let end = rig.ask(LoopCommand::Stop { now: false });
    assert_eq!((rig.phase(), finished(&end)), ("stopped", vec!["k-keepalive-2"]));
    assert!(enqueued(&end, "keepalive").is_empty());
    rig.keepalive_gone = true;
    let resumed = rig.ask(LoopCommand::Resume { bounds: None, budget: None });
    assert_eq!((rig.phase(), enqueued(&resumed, "keepalive").len()), ("watching", 1));
}

#[test]
fn monitors_that_come_and_go_take_the_keepalive_with_them() {
    let mut rig = Rig::new();
    rig.baseline(1);
    let mut spec = rig.state.spec.clone();
    watchful(&mut spec);
    let with = rig.ask(LoopCommand::Reconfigure { spec: Box::new(spec.clone()) });
    assert_eq!(enqueued(&with, "keepalive").len(), 1);
    beat(&mut rig, &[look("app", None, "0")], 0);
    spec.watch = WatchSpec::default();
    let without = rig.ask(LoopCommand::Reconfigure { spec: Box::new(spec) });
    assert_eq!((finished(&without), enqueued(&without, "keepalive").len()), (vec!["k-keepalive-1"], 0));
    assert!(rig.state.watch.seen.is_empty(), "what was seen of them is forgotten");
}

#[test]
fn time_that_is_over_ends_a_watch_as_reached() {
    let mut rig = Rig::with(|spec| {
        watchful(spec);
        spec.bounds.max_time = Some(secs(600));
    });
    rig.baseline(3);
    let waits = rig.give(&Input::Tick);
    assert_eq!(waits.wake_at, Some(rig.now + secs(600)));
    rig.tick(601);
    assert_eq!(rig.phase(), "reached");
}

#[test]
fn every_bound_ends_a_watch_as_reached() {
    let mut timed = Rig::with(watchful);
    timed.state.spec.bounds.deadline = Some(timed.now + secs(600));
    timed.baseline(3);
    timed.tick(601);
    assert_eq!(timed.phase(), "reached");
    let mut counted = signalled();
    counted.state.spec.bounds.max_turns = Some(1);
    counted.board_task = None;
    counted.exit(40, 0);
    counted.judged(3);
    counted.landed();
    assert_eq!(counted.phase(), "reached");
}

#[test]
fn a_long_change_is_cut() {
    let mut rig = watching();
    let mut long = look("app", Some("0"), "12");
    long.found.as_mut().expect("it is found").text = "x".repeat(20_000);
    let news = beat(&mut rig, &[long], 0);
    assert_eq!(enqueued(&news, "signal")[0].prompt.chars().count(), watch::CHANGE_MAX_CHARS);
}

#[test]
fn a_turn_on_a_signal_that_failed_is_tried_again_and_one_that_did_nothing_is_not() {
    let mut rig = signalled();
    rig.exit_as(40, Exit { code: Some(1), ..Exit::default() });
    let failed = rig.judged_as(Judgement { board: board(3, 3), ..Default::default() });
    assert!(matches!(outcome(&failed), Outcome::AgentFailed { kept: false, .. }), "{:?}", outcome(&failed));
    assert!(failed.ops.iter().any(|op| matches!(op, Op::Release { .. })) && rig.phase() == "waiting");
    rig.wait_out();
    let idle = rig.no_op();
    assert_eq!((outcome(&idle), rig.state.people.tickets.len()), (Outcome::NoOp, 0));
    let mut worked = signalled();
    worked.board_task = None;
    worked.exit(40, 0);
    worked.judged(3);
    assert_eq!((outcome(&worked.landed()), worked.phase()), (Outcome::Reached, "watching"));
}

#[test]
fn work_in_the_folder_that_is_not_believed_ends_contentment() {
    let mut rig = signalled();
    rig.state.spec.workspace.mode = WorkspaceMode::InPlace;
    rig.state.spec.bounds.max_time = Some(secs(600));
    rig.exit(40, 0);
    let tampered =
        Judgement { violations: vec!["tests/a".to_owned()], changed: true, board: board(3, 3), ..Judgement::default() };
    assert!(matches!(outcome(&rig.judged_as(tampered)), Outcome::Refused { .. }));
    assert_eq!(rig.state.progress.board.passing().len(), 0);
    rig.tick(601);
    assert_eq!(rig.phase(), "running", "the turn that mends it goes on");
    rig.exit(1, 1);
    rig.judged_as(Judgement { error: Some("gone".to_owned()), ..Judgement::default() });
    assert_eq!(rig.phase(), "exhausted");
}

#[test]
fn a_monitor_that_sees_nothing_is_told_of_once_and_until_it_sees_again() {
    let mut rig = watching();
    let blind = |times| WatchReading {
        found: Err(Blind { why: "no such host".to_owned(), times }),
        ..look("ci", Some("a"), "")
    };
    assert!(beat(&mut rig, &[blind(2)], 1).events.is_empty(), "once or twice is nothing");
    let told = beat(&mut rig, &[blind(3)], 2);
    assert!(matches!(&told.events[..], [Event::TicketOpened { text, .. }] if text.contains("no such host")));
    beat(&mut rig, &[blind(4)], 2);
    beat(&mut rig, &[look("ci", Some("a"), "a")], 2);
    assert!(rig.state.people.tickets.is_empty());
}

#[test]
fn monitors_are_due_each_at_its_time_and_a_parked_loop_looks_more_rarely() {
    let mut rig = watching();
    let now = rig.now;
    let looked = BTreeMap::from([("app".to_owned(), now), ("ci".to_owned(), now + secs(30))]);
    let names =
        |rig: &Rig, at| -> Vec<String> { watch::due(&rig.state, &looked, at).iter().map(|m| m.name.clone()).collect() };
    assert_eq!(watch::next(&rig.state, &looked, now), Some(now + secs(60)));
    assert!(names(&rig, now + secs(59)).is_empty());
    assert_eq!(names(&rig, now + secs(60)), ["app"]);
    assert_eq!(watch::due(&rig.state, &BTreeMap::new(), now).len(), 2, "never looked at is due");
    beat(&mut rig, &[], 3);
    assert_eq!(watch::next(&rig.state, &looked, now), Some(now + secs(600)));
    beat(&mut rig, &[look("app", Some("0"), "1")], 0);
    let task = watch::latest_task(&rig.state, &rig.state.spec.watch.monitors[0]);
    assert_eq!(task, Some(&TaskId::new("k-signal-1")));
    rig.ask(LoopCommand::Pause { reason: String::new(), until: None });
    assert_eq!(watch::next(&rig.state, &looked, now), None, "a paused loop does not look");
}
