//! Personas: they sleep without a turn, wake by signals, and never pass over the guard.

use everloop_core::action::LoopCommand;
use everloop_core::decide::{Decision, Ready};
use everloop_core::event::{Event, Exit, Judgement, Outcome};
use everloop_core::guard::{Freeze, Scope};
use everloop_core::ids::{Fence, LoopId};
use everloop_core::op::Op;
use everloop_core::op::streams::StreamOp;
use everloop_core::rhythm::bucket::WakeAllowance;
use everloop_core::rhythm::inward::InwardSpec;
use everloop_core::rhythm::persona::PersonaSpec;
use everloop_core::rhythm::row::{WAITING, WaitingSignal, row_id, taken_by};
use everloop_core::rhythm::signal::{ReplyTo, Signal, SignalClass};
use everloop_core::rhythm::wish::{WakeWish, WishLine};
use everloop_core::state::LoopProgress;
use everloop_core::time::Time;

use crate::rig::{Rig, actions, outcome, secs};

/// A persona without checks that has looked once and sleeps.
fn asleep(change: impl FnOnce(&mut PersonaSpec)) -> Rig {
    let mut persona = PersonaSpec::default();
    change(&mut persona);
    let mut rig = Rig::with(|spec| {
        spec.checks.clear();
        spec.persona = Some(Box::new(persona));
    });
    rig.baseline(0);
    assert_eq!((rig.phase(), rig.waits_for()), ("asleep", "rhythm"));
    rig
}

fn signal(id: &str, class: SignalClass) -> Signal {
    let (to, tags) = ("echo".parse().expect("a name"), [].into());
    let (topic, body, from) = (String::new(), format!("body {id}"), String::new());
    Signal {
        id: id.to_owned(),
        to,
        class,
        tags,
        topic,
        body,
        from,
        at: Time(0),
        source: "cli".to_owned(),
        passed_by: None,
        reply_to: None,
    }
}

/// Sends a signal as the shell does: with what the ledger knows.
fn send(rig: &mut Rig, signal: &Signal) -> Decision {
    let id = row_id(&rig.state.id, signal);
    rig.known = rig.waiting.iter().any(|waiting| waiting.row.id == id);
    if !rig.known {
        let row = Ready { id, fence: Fence(0), kind: WAITING.to_owned(), priority: 0 };
        rig.waiting.push(WaitingSignal { row, signal: signal.clone() });
    }
    let decision = rig.ask(LoopCommand::Signal { signal: Box::new(signal.clone()) });
    rig.known = false;
    decision
}

/// The bodies in the task that a turn begins with; the rows are taken.
fn begun(rig: &mut Rig, decision: &Decision) -> Vec<String> {
    let task = decision.ops.iter().find_map(|op| match op {
        Op::Enqueue(task) if task.kind == "batch" => Some(task.clone()),
        _ => None,
    });
    rig.waiting.clear();
    taken_by(&task.expect("a task of its own")).into_iter().map(|signal| signal.body).collect()
}

#[test]
fn with_nothing_to_do_it_looks_more_and_more_rarely_and_takes_no_turn() {
    let mut rig = asleep(|_| {});
    let mut naps = Vec::new();
    for _ in 0..10 {
        let before = rig.now;
        let decision = rig.wait_out();
        naps.push(rig.now.since(before).as_secs() / 60);
        assert!(decision.actions.is_empty() && decision.events.len() == 2, "{:?}", decision.events);
        let again = rig.tick(1);
        assert!(again.events.is_empty(), "between looks nothing is written: {:?}", again.events);
        rig.now = rig.now - secs(1);
    }
    assert_eq!(naps, [20, 30, 45, 67, 101, 151, 227, 240, 240, 240]);
    assert_eq!(rig.state.task.started, 0);
}

#[test]
fn a_signal_wakes_through_the_checks_and_the_guard() {
    let mut rig = asleep(|_| {});
    assert_eq!(actions(&send(&mut rig, &signal("1", SignalClass::Medium))), ["baseline"]);
    assert!(send(&mut rig, &signal("1", SignalClass::Medium)).events.is_empty(), "the same one is taken once");
    send(&mut rig, &signal("2", SignalClass::Low));
    let started = rig.baseline(0);
    assert_eq!(actions(&started), ["spawn"]);
    assert_eq!(begun(&mut rig, &started), ["body 1", "body 2"]);
    let ended = started.ops.iter().filter(|op| matches!(op, Op::Finish { .. })).count();
    assert_eq!(ended, 2, "their rows end in the same transaction");
    rig.exit(30, 0);
    let done = rig.judged_as(Judgement::default());
    assert_eq!((outcome(&done), rig.phase()), (Outcome::NoOp, "asleep"));
    assert_eq!(rig.state.persona.as_ref().map(|persona| persona.waiting), Some(0));
}

#[test]
fn low_sleeps_on_and_the_second_one_wakes() {
    let mut rig = asleep(|_| {});
    assert!(actions(&send(&mut rig, &signal("1", SignalClass::Low))).is_empty());
    assert_eq!(rig.phase(), "asleep");
    rig.now = rig.now + secs(599);
    assert_eq!(actions(&send(&mut rig, &signal("2", SignalClass::Low))), ["baseline"]);
}

#[test]
fn one_faint_signal_is_work_for_the_next_look_and_an_ignored_one_is_not() {
    let mut rig = asleep(|spec| spec.reflex.ignore = vec![everloop_core::rhythm::reflex::SignalPattern::new("noise")]);
    send(&mut rig, &Signal { tags: ["noise".to_owned()].into(), ..signal("1", SignalClass::High) });
    assert!(actions(&rig.wait_out()).is_empty(), "an ignored one never wakes");
    send(&mut rig, &signal("2", SignalClass::Low));
    assert_eq!(actions(&rig.wait_out()), ["baseline"]);
    let started = rig.baseline(0);
    assert_eq!(begun(&mut rig, &started), ["body 1", "body 2"], "the next prompt has both");
}

#[test]
fn a_high_signal_is_passed_on_once() {
    let mut rig = asleep(|spec| spec.reflex.related = ["b", "c"].map(|n| n.parse().expect("a name")).to_vec());
    rig.related =
        vec![("b".parse().expect("a name"), LoopId::new("lb")), ("c".parse().expect("a name"), LoopId::new("lc"))];
    let passed = |decision: &Decision| {
        let to = |op: &Op| if let Op::Signal { to, .. } = op { Some(to.clone()) } else { None };
        decision.ops.iter().filter_map(to).collect::<Vec<_>>()
    };
    assert_eq!(passed(&send(&mut rig, &signal("1", SignalClass::High))), ["lb", "lc"]);
    let copy = Signal { passed_by: Some("b".parse().expect("a name")), ..signal("2", SignalClass::High) };
    assert!(passed(&send(&mut rig, &copy)).is_empty(), "a copy goes no further");
    assert!(passed(&send(&mut rig, &signal("3", SignalClass::Medium))).is_empty());
}

#[test]
fn a_signal_does_not_end_a_wait_of_the_guard() {
    let mut rig = asleep(|_| {});
    rig.state.spec.guard.min_gap = secs(600);
    send(&mut rig, &signal("1", SignalClass::Medium));
    rig.baseline(0);
    rig.waiting.clear();
    rig.exit(30, 0);
    rig.judged_as(Judgement::default());
    send(&mut rig, &signal("2", SignalClass::High));
    assert!(actions(&rig.baseline(0)).is_empty());
    assert_eq!(rig.waits_for(), "guard.gap");
    assert!(actions(&send(&mut rig, &signal("3", SignalClass::High))).is_empty());
    assert_eq!(rig.waits_for(), "guard.gap");
    assert_eq!(rig.state.persona_status().map(|status| status.as_str()), Some("cooling"));
    let started = rig.wait_out();
    assert_eq!(begun(&mut rig, &started), ["body 2", "body 3"]);
}

#[test]
fn a_turn_that_was_lost_has_the_same_signals_again() {
    let mut rig = asleep(|_| {});
    send(&mut rig, &signal("1", SignalClass::Medium));
    let started = rig.baseline(0);
    assert_eq!(begun(&mut rig, &started), ["body 1"]);
    let task = rig.state.task.id.clone();
    rig.give(&everloop_core::action::Input::Vanished { turn: rig.turn() });
    while rig.phase() != "running" {
        rig.wait_out();
    }
    assert_eq!(rig.state.task.id, task);
    rig.exit(30, 0);
    rig.judged_as(Judgement::default());
    assert_eq!(rig.phase(), "asleep");
    assert_eq!(rig.state.persona.as_ref().map(|persona| persona.yields.worked), Some(1));
}

#[test]
fn the_agents_wish_is_the_next_look_and_an_unreadable_one_is_noted() {
    let wished = |wish: WishLine| {
        let mut rig = asleep(|_| {});
        send(&mut rig, &signal("1", SignalClass::Medium));
        rig.baseline(0);
        rig.waiting.clear();
        rig.exit_as(30, Exit { code: Some(0), wish: Some(wish), ..Exit::default() });
        let done = rig.judged_as(Judgement::default());
        let noted = done.events.iter().any(|event| matches!(event, Event::Note { .. }));
        let before = rig.now;
        rig.wait_out();
        (rig.now.since(before).as_secs(), noted)
    };
    assert_eq!(wished(WishLine::Wish(WakeWish::In { wait: secs(900) })), (900, false));
    // One task, and the signal is more than its noise floor: the usual pace, shortened.
    let (usual, noted) = wished(WishLine::Unreadable("soon".to_owned()));
    assert!(noted && usual < 600, "{usual}");
}

#[test]
fn the_wish_of_a_turn_that_ends_during_a_pause_counts() {
    let mut rig = asleep(|_| {});
    send(&mut rig, &signal("1", SignalClass::Medium));
    rig.baseline(0);
    rig.waiting.clear();
    rig.ask(LoopCommand::Pause { reason: String::new(), until: None });
    let wish = WakeWish::In { wait: secs(900) };
    rig.exit_as(30, Exit { code: Some(0), wish: Some(WishLine::Wish(wish.clone())), ..Exit::default() });
    rig.judged_as(Judgement::default());
    assert_eq!(rig.waits_for(), "paused");
    assert_eq!(rig.state.persona.as_ref().and_then(|persona| persona.history.wish.clone()), Some(wish));
}

#[test]
fn a_persona_is_never_reached_and_its_good_work_lands() {
    let mut rig = Rig::with(|spec| spec.persona = Some(Box::default()));
    rig.baseline(3);
    assert_eq!(rig.phase(), "asleep", "all checks pass");
    send(&mut rig, &signal("1", SignalClass::Medium));
    rig.baseline(3);
    rig.waiting.clear();
    rig.exit(30, 0);
    assert_eq!(actions(&rig.judged(3)), ["integrate"]);
    let done = rig.landed();
    assert_eq!((outcome(&done), rig.phase()), (Outcome::Progress, "asleep"));
}

#[test]
fn messages_and_tasks_wake_and_a_person_may_look_at_any_time() {
    let mut rig = asleep(|_| {});
    let (message, trust) = ("look here".to_owned(), everloop_core::op::Trust::Operator);
    assert_eq!(actions(&rig.ask(LoopCommand::Steer { message, trust })), ["baseline"]);
    let mut rig = asleep(|_| {});
    rig.put("t1", "task", 0);
    assert_eq!(actions(&rig.tick(1)), ["baseline"]);
    let mut rig = asleep(|_| {});
    rig.ask(LoopCommand::Wake);
    assert!(actions(&rig.baseline(0)).is_empty(), "a look alone is no turn");
    assert_eq!(rig.phase(), "asleep");
}

// ------------------------------------------------------------------- reflections and dreams

/// A persona that dreams and reflects after each look, and has just worked on a signal.
fn thoughtful() -> (Rig, Decision) {
    let budget = || Some(WakeAllowance::parse("100/day").expect("a budget"));
    let mut rig = asleep(|spec| {
        spec.inward = InwardSpec { reflect: budget(), dream: budget(), dream_microusd: None };
        (spec.cadence.reflect_every, spec.cadence.dream_every) = (1, 1);
    });
    send(&mut rig, &signal("1", SignalClass::Medium));
    rig.baseline(0);
    rig.waiting.clear();
    rig.exit(30, 0);
    let done = rig.judged_as(Judgement::default());
    (rig, done)
}

fn status(rig: &Rig) -> Option<&'static str> {
    rig.state.persona_status().map(|status| status.as_str())
}

/// The agent of an inward turn ends with these words.
fn says(rig: &mut Rig, words: &str) -> Decision {
    rig.exit_as(30, Exit { code: Some(0), tail: words.to_owned(), ..Exit::default() })
}

#[test]
fn a_reflection_and_a_dream_follow_work_and_change_no_part_of_it() {
    let (mut rig, done) = thoughtful();
    assert_eq!((actions(&done), status(&rig), rig.state.label()), (vec!["spawn"], Some("reflecting"), "reflecting"));
    let before = (rig.state.progress.clone(), rig.state.task.session.clone(), rig.state.task.handoff.clone());
    let reflected = says(&mut rig, r#"{"notes": ["eu is slow"], "wake": "in 15m"}"#);
    assert_eq!((actions(&reflected), status(&rig)), (vec!["remember", "spawn"], Some("dreaming")));
    let dreamt = says(&mut rig, r#"{"memory": "- eu is slow", "plans": [{"when": "deploy", "text": "look"}]}"#);
    assert_eq!((actions(&dreamt), status(&rig)), (vec!["remember"], Some("asleep")));
    let saved = dreamt.ops.iter().any(|op| matches!(op, Op::SaveDoc { body, .. } if body.contains("eu is slow")));
    assert!(saved, "the memory is in the same transaction");
    let after = (rig.state.progress.clone(), rig.state.task.session.clone(), rig.state.task.handoff.clone());
    assert_eq!(LoopProgress { tally: before.0.tally.clone(), ..after.0 }, before.0);
    assert_eq!((after.1, after.2), (before.1, before.2));
    let persona = rig.state.persona.as_ref().expect("a persona");
    assert_eq!((persona.yields.reflections, persona.yields.dreams, persona.inward.plans.len()), (1, 1, 1));
    assert_eq!(persona.history.wish, Some(WakeWish::In { wait: secs(900) }));
}

#[test]
fn work_comes_before_a_dream_and_the_one_under_way_ends_first() {
    let (mut rig, _) = thoughtful();
    assert!(actions(&send(&mut rig, &signal("2", SignalClass::High))).is_empty(), "the reflection goes on");
    let ended = says(&mut rig, r#"{"notes": []}"#);
    assert_eq!(actions(&ended), ["remember", "baseline"], "no dream begins while a signal waits");
    let started = rig.baseline(0);
    assert_eq!((begun(&mut rig, &started), status(&rig)), (vec!["body 2".to_owned()], Some("working")));
}

#[test]
fn the_guard_holds_inward_turns_and_they_never_hold_the_persona() {
    let (mut rig, _) = thoughtful();
    let freeze = Freeze::by_person("ann".to_owned(), "a rest", rig.now, None);
    rig.guards.entry(Scope::All).or_default().state.freeze = Some(freeze);
    let ended = says(&mut rig, r#"{"notes": []}"#);
    assert_eq!((actions(&ended), rig.waits_for(), status(&rig)), (vec!["remember"], "rhythm", Some("asleep")));
    // A gap of the guard delays one and is no wait of the persona either.
    rig.guards.entry(Scope::All).or_default().state.freeze = None;
    rig.state.spec.guard.min_gap = secs(120);
    rig.tick(1);
    assert_eq!((rig.waits_for(), status(&rig)), ("rhythm", Some("asleep")));
    assert_eq!(actions(&rig.wait_out()), ["spawn"], "after the gap it dreams");
    assert_eq!(status(&rig), Some("dreaming"));
}

#[test]
fn an_inward_turn_that_is_lost_is_not_tried_again() {
    let (mut rig, _) = thoughtful();
    let lost = rig.give(&everloop_core::action::Input::Vanished { turn: rig.turn() });
    let ended = lost.ops.iter().any(|op| matches!(op, Op::Finish { .. }));
    assert!(ended && !rig.state.task.retry, "its task is over");
    assert_eq!(status(&rig), Some("asleep"), "the guard's gap comes first");
    assert_eq!((actions(&rig.wait_out()), status(&rig)), (vec!["spawn"], Some("dreaming")), "and then another one");
    let failed = rig.exit(30, 1);
    assert!(actions(&failed).is_empty() && !rig.state.task.retry);
    assert_eq!(rig.state.persona.as_ref().map(|persona| persona.inward.under_way), Some(None));
}

#[test]
fn a_wake_with_a_plan_is_a_hit_and_one_without_is_a_miss() {
    let (mut rig, _) = thoughtful();
    says(&mut rig, r#"{"notes": []}"#);
    says(&mut rig, r#"{"plans": [{"when": "topic:deploy.*", "text": "look at eu first"}]}"#);
    for (id, topic, expected) in [("2", "deploy.eu", (1, 0)), ("3", "mail", (1, 1))] {
        send(&mut rig, &Signal { topic: topic.to_owned(), ..signal(id, SignalClass::High) });
        while rig.phase() != "running" || rig.state.inward().is_some() {
            match (rig.phase(), rig.state.inward()) {
                ("running", Some(_)) => says(&mut rig, r#"{"notes": []}"#),
                ("baseline", _) => rig.baseline(0),
                _ => rig.wait_out(),
            };
        }
        rig.waiting.clear();
        let yields = rig.state.persona.as_ref().map(|persona| persona.yields).expect("a persona");
        assert_eq!((yields.plan_hits, yields.plan_misses), expected, "{topic}");
        rig.exit(30, 0);
        rig.judged_as(Judgement::default());
    }
}

/// The fields of the entries that a decision adds to streams, with their streams.
fn answers(decision: &Decision) -> Vec<(String, Vec<(String, String)>)> {
    let added = |op: &Op| match op {
        Op::Stream(StreamOp::Add(new)) => Some((new.stream.clone(), new.fields.clone())),
        _ => None,
    };
    decision.ops.iter().filter_map(added).collect()
}

#[test]
fn the_end_of_the_work_answers_each_signal_once() {
    let mut rig = asleep(|spec| spec.reflex.related = vec!["b".parse().expect("a name")]);
    rig.related = vec![("b".parse().expect("a name"), LoopId::new("lb"))];
    let asking = |id: &str, class| {
        let reply_to = Some(ReplyTo { stream: "redis:answers".to_owned(), correlation: format!("q{id}") });
        Signal { reply_to, ..signal(id, class) }
    };
    let passed = send(&mut rig, &asking("1", SignalClass::High));
    let copy = passed.ops.iter().find_map(|op| if let Op::Signal { body, .. } = op { Some(body) } else { None });
    assert!(copy.is_some_and(|body| !body.contains("reply_to")), "one of them answers: {copy:?}");
    send(&mut rig, &asking("2", SignalClass::Low));
    send(&mut rig, &signal("3", SignalClass::Low));
    let started = rig.baseline(0);
    assert_eq!(begun(&mut rig, &started).len(), 3);
    assert!(answers(&started).is_empty());
    // A turn that was lost begins again, and nothing is answered yet.
    assert!(answers(&rig.give(&everloop_core::action::Input::Vanished { turn: rig.turn() })).is_empty());
    while rig.phase() != "running" {
        assert!(answers(&rig.wait_out()).is_empty());
    }
    let tail = format!("{}the disk was full ", "x".repeat(3_000));
    rig.exit_as(30, Exit { code: Some(0), tail, ..Exit::default() });
    let done = answers(&rig.judged_as(Judgement::default()));
    assert_eq!(done.len(), 2, "{done:?}");
    for ((stream, fields), correlation) in done.iter().zip(["q1", "q2"]) {
        let of = |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        assert_eq!(
            (stream.as_str(), of("correlation"), of("outcome")),
            ("redis:answers", Some(correlation), Some("no-op"))
        );
        assert_eq!((of("from"), of("commit")), (Some(rig.state.name.as_str()), None));
        assert_eq!(of("words").map(|words| words.chars().count()), Some(2_000), "they are capped");
    }
    send(&mut rig, &signal("4", SignalClass::Medium));
    rig.baseline(0);
    rig.waiting.clear();
    rig.exit(30, 0);
    assert!(answers(&rig.judged_as(Judgement::default())).is_empty(), "they were answered before");
}

#[test]
fn an_answer_names_the_commit_that_landed() {
    let mut rig = Rig::with(|spec| spec.persona = Some(Box::default()));
    rig.baseline(3);
    let reply_to = Some(ReplyTo { stream: "done".to_owned(), correlation: "q".to_owned() });
    send(&mut rig, &Signal { reply_to, ..signal("1", SignalClass::Medium) });
    rig.baseline(3);
    rig.waiting.clear();
    rig.exit(30, 0);
    rig.judged(3);
    let done = answers(&rig.landed());
    let named = |name: &str| done[0].1.iter().any(|(known, value)| known == name && !value.is_empty());
    assert!(done.len() == 1 && named("commit") && named("outcome"), "{done:?}");
}
