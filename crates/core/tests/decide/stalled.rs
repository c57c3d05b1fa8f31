//! A loop without progress: another strategy first, then one ticket per cause, closed when it is
//! gone.

use everloop_core::action::LoopCommand;
use everloop_core::decide::Decision;
use everloop_core::event::{Event, Exit, Judgement, Pattern};
use everloop_core::guard::{Scope, Spend};
use everloop_core::ids::NodeId;
use everloop_core::prompt::prompt;
use everloop_core::spec::{AgentSpec, LoopSpec};
use everloop_core::state::Phase;
use everloop_core::stream::TurnReport;
use everloop_core::why::why;

use crate::rig::{Rig, board, secs, work};

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
    let moved = rig.ask(LoopCommand::Reconfigure { spec: Box::new(spec) });
    assert_eq!(tickets(&moved).1, ["stalled:k"]);
    assert_eq!(rig.phase(), "running");
}

#[test]
fn a_loop_without_a_free_turn_for_half_an_hour_is_told_too() {
    let mut rig = Rig::with(|spec| spec.guard.max_parallel_turns = 1);
    let other = "other.1".parse().expect("the id of a turn");
    let node = rig.guards.entry(Scope::Node(NodeId::new("here"))).or_default();
    node.state.reserved.insert(other, Spend::default());
    rig.baseline(0);
    assert_eq!(rig.waits_for(), "guard.slots");
    assert_eq!(tickets(&rig.tick(1799)).0, Vec::<&str>::new());
    assert_eq!(tickets(&rig.tick(1)).0, ["stalled:k"]);
}

#[test]
fn a_loop_that_waits_for_a_reason_of_its_own_is_not_stalled() {
    let mut rig = Rig::running();
    rig.ask(LoopCommand::Pause { reason: "lunch".to_owned(), until: None });
    rig.no_op();
    assert_eq!(rig.waits_for(), "paused");
    assert_eq!(tickets(&rig.tick(86_400)).0, Vec::<&str>::new());
}

#[test]
fn time_and_money_without_progress_are_a_ticket_each() {
    let mut rig = Rig::with(|spec| {
        spec.guard.stagnation_time = Some(secs(100));
        spec.guard.stagnation_microusd = Some(500_000);
        spec.guard.stagnation_change = false;
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

#[test]
fn a_ticket_about_stagnation_that_was_answered_opens_again_only_when_it_doubled() {
    let mut rig = Rig::with(|spec| {
        spec.guard.stagnation_time = Some(secs(100));
        spec.guard.stagnation_microusd = Some(500_000);
        spec.guard.stagnation_change = false;
        spec.agent.turn_microusd = 200_000;
    });
    rig.baseline(0);
    let mut opened: Vec<(u32, String)> = Vec::new();
    for turn in 1..=14 {
        let ended = rig.no_op();
        opened.extend(tickets(&ended).0.iter().map(|key| (turn, (*key).to_owned())));
        // A person answers at once.
        for key in rig.state.people.tickets.clone() {
            rig.state.apply(&Event::TicketClosed { key }, rig.now);
        }
        if rig.phase() == "waiting" {
            rig.wait_out();
        }
    }
    let of = |kind: &str| opened.iter().filter(|(_, key)| key == kind).map(|(turn, _)| *turn).collect::<Vec<_>>();
    assert_eq!(of("stagnation.time:k"), [4, 7, 14], "100, 200 and 400 s of work, 30 s a turn");
    assert_eq!(of("stagnation.spend:k"), [3, 5, 10], "$0.50, $1 and $2, $0.20 a turn");
}

/// A loop that may take this many turns without progress, with its first one under way.
fn stagnating(turns: u32, change: impl FnOnce(&mut LoopSpec)) -> Rig {
    let mut rig = Rig::with(|spec| {
        spec.guard = spec.guard.clone().free();
        spec.guard.stagnation_turns = turns;
        change(spec);
    });
    rig.baseline(0);
    rig
}

/// The loop's agents besides its first one, `agent`.
fn others(spec: &mut LoopSpec, others: &[(&str, &str)]) {
    let of = |(name, account): &(&str, &str)| AgentSpec {
        name: (*name).to_owned(),
        account: (*account).to_owned(),
        ..spec.agent.clone()
    };
    spec.others = others.iter().map(of).collect();
}

/// A turn without any work, and the next one begun.
fn idle(rig: &mut Rig) -> Decision {
    let ended = rig.no_op();
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    ended
}

/// The exceeded threshold, when a decision changes the strategy.
fn changed(decision: &Decision) -> Option<&str> {
    decision.events.iter().find_map(|e| match e {
        Event::StrategyChanged { reason, .. } => Some(reason.rule.as_str()),
        _ => None,
    })
}

fn said(rig: &Rig) -> String {
    why(&rig.state, rig.now, &|_| String::new())
}

#[test]
fn another_way_is_tried_once_before_a_person_is_told() {
    let mut rig = stagnating(2, |_| {});
    let happened: Vec<_> = (1..=6)
        .map(|_| {
            let ended = idle(&mut rig);
            (changed(&ended).is_some(), tickets(&ended).0.join(" "))
        })
        .collect();
    let quiet = || (false, String::new());
    let told = (false, "stagnation:k".to_owned());
    assert_eq!(happened, [quiet(), (true, String::new()), quiet(), told, quiet(), quiet()]);
    assert!(said(&rig).contains("that did not help either, and a ticket was opened"), "{}", said(&rig));
}

#[test]
fn progress_after_the_change_needs_nobody_and_everything_counts_anew() {
    let mut rig = stagnating(2, |spec| others(spec, &[("second", "own")]));
    idle(&mut rig);
    assert_eq!(changed(&idle(&mut rig)), Some("stagnation.turns"));
    assert_eq!(rig.state.task.worker, "second@own");
    rig.exit(30, 0);
    rig.judged(1);
    let landed = rig.landed();
    assert_eq!(tickets(&landed), (Vec::new(), Vec::new()));
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    assert_eq!(rig.state.progress.strategy, None);
    assert_eq!(rig.state.task.worker, "agent@default", "the configured order holds again");
    assert_eq!(changed(&idle(&mut rig)), None);
    let again = idle(&mut rig);
    assert_eq!((changed(&again), tickets(&again).0), (Some("stagnation.turns"), Vec::new()), "it is another streak");
}

#[test]
fn the_prompt_asks_for_another_approach_and_why_tells_of_it() {
    let mut rig = stagnating(2, |spec| others(spec, &[("second", "own")]));
    assert_eq!(prompt(&rig.state, None, rig.now).rethink, None);
    idle(&mut rig);
    idle(&mut rig);
    let asked = prompt(&rig.state, None, rig.now).rethink.expect("another way is tried");
    assert_eq!((asked.turns, asked.ended), (2, vec!["no-op", "no-op"]));
    assert_eq!(asked.failing, ["c0", "c1", "c2"]);
    let said = said(&rig);
    assert!(said.contains("It tries another way since turn 3, because there was no progress for 2 turns"), "{said}");
    assert!(said.contains("The agent `second` has it: another way is tried"), "{said}");
    assert!(said.contains("nothing got better while `agent` was at work"), "{said}");
}

#[test]
fn another_way_is_a_fresh_conversation_with_what_was_said_last() {
    let mut rig = stagnating(2, |_| {});
    let mut resumed = Vec::new();
    for _ in 0..4 {
        let Phase::Turn(turn) = &rig.state.phase else { panic!("a turn is under way") };
        resumed.push(turn.resume.clone());
        let session = format!("session {}", resumed.iter().filter(|r| r.is_none()).count());
        let last_text = "I am at my wits' end".to_owned();
        let report = TurnReport { session: Some(session), ok: Some(true), last_text, ..TurnReport::default() };
        rig.exit_as(30, Exit { code: Some(0), report: Some(Box::new(report)), ..Exit::default() });
        rig.judged_as(Judgement { board: board(0, 3), ..Judgement::default() });
        while rig.phase() == "waiting" {
            rig.wait_out();
        }
        if resumed.len() == 2 {
            assert_eq!(prompt(&rig.state, None, rig.now).handoff, "I am at my wits' end");
        }
    }
    let goes_on = |n: u32| Some(format!("session {n}"));
    assert_eq!(resumed, [None, goes_on(1), None, goes_on(2)]);
}

#[test]
fn the_next_agent_of_the_list_takes_over_and_another_account_of_the_same_is_none() {
    let mut rig = stagnating(1, |spec| others(spec, &[("agent", "own"), ("second", "s"), ("third", "t")]));
    idle(&mut rig);
    assert_eq!(rig.state.task.worker, "second@s");
    let candidates = |rig: &Rig| rig.state.candidates("batch", 0).iter().map(|a| a.account.clone()).collect::<Vec<_>>();
    assert_eq!(candidates(&rig), ["s", "t", "default", "own"]);
    let mut rig = stagnating(1, |spec| others(spec, &[("second", "s"), ("agent", "own")]));
    idle(&mut rig);
    assert_eq!(candidates(&rig), ["s", "default", "own"], "also when it stands behind the next one");
    let mut rig = stagnating(1, |spec| others(spec, &[("agent", "own")]));
    idle(&mut rig);
    assert_eq!((rig.state.task.worker.as_str(), rig.state.progress.strategy.is_some()), ("agent@default", true));
    let mut rig = stagnating(1, |spec| {
        others(spec, &[("second", "s")]);
        spec.others[0].tasks.kinds = vec!["docs".to_owned()];
    });
    idle(&mut rig);
    assert_eq!(rig.state.task.worker, "agent@default", "the other one is not for such tasks");
}

#[test]
fn time_and_money_change_the_strategy_and_count_from_there() {
    let mut rig = stagnating(10, |spec| {
        spec.guard.stagnation_time = Some(secs(100));
        spec.guard.stagnation_microusd = Some(500_000);
        spec.agent.turn_microusd = 200_000;
    });
    let mut happened = Vec::new();
    for turn in 1..=7 {
        let ended = idle(&mut rig);
        happened.extend(changed(&ended).map(|rule| (turn, rule.to_owned())));
        happened.extend(tickets(&ended).0.iter().map(|key| (turn, (*key).to_owned())));
    }
    let wanted = [(3, "stagnation.spend"), (6, "stagnation.spend:k"), (7, "stagnation.time:k")];
    assert_eq!(happened, wanted.map(|(n, what)| (n, what.to_owned())), "30 s and $0.20 a turn");
}

#[test]
fn who_does_not_want_it_is_told_at_once() {
    let mut rig = stagnating(2, |spec| spec.guard.stagnation_change = false);
    idle(&mut rig);
    let told = idle(&mut rig);
    assert_eq!((changed(&told), tickets(&told).0), (None, vec!["stagnation:k"]));
    let mut rig = stagnating(2, |_| {});
    idle(&mut rig);
    idle(&mut rig);
    let mut spec = rig.state.spec.clone();
    spec.guard.stagnation_change = false;
    rig.ask(LoopCommand::Reconfigure { spec: Box::new(spec) });
    assert_eq!(rig.state.progress.strategy, None, "from then on");
}

/// A turn after which the one check fails with this error.
fn failing_with(rig: &mut Rig, fingerprint: u64) -> Decision {
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    rig.exit(30, 0);
    let mut board = board(0, 1);
    board.0[0].fingerprint = fingerprint;
    let turn = rig.turn();
    rig.judged_as(work(&turn, board))
}

#[test]
fn two_errors_of_one_check_that_alternate_are_noticed_and_said_to_the_agent() {
    let mut rig = Rig::with(|spec| spec.checks.truncate(1));
    rig.baseline(0);
    let noticed = |decision: &Decision| {
        let turns = |e: &Event| match e {
            Event::Noticed { pattern: Pattern::PingPong, turns } => Some(*turns),
            _ => None,
        };
        decision.events.iter().find_map(turns)
    };
    let found: Vec<Option<u32>> =
        [7, 8, 7, 8, 7, 8, 7, 8, 8].map(|error| noticed(&failing_with(&mut rig, error))).to_vec();
    assert_eq!(found, [None, None, None, Some(4), None, None, None, Some(8), None]);
    assert!(!prompt(&rig.state, None, rig.now).alternates, "the same error twice is no alternation");
    failing_with(&mut rig, 7);
    failing_with(&mut rig, 8);
    failing_with(&mut rig, 7);
    assert!(prompt(&rig.state, None, rig.now).alternates);
}

#[test]
fn a_plain_commands_last_line_is_in_the_next_prompt() {
    let mut rig = Rig::running();
    rig.exit_as(30, Exit { code: Some(0), tail: "working\nthe parser is broken\n".to_owned(), ..Exit::default() });
    let turn = rig.turn();
    rig.judged_as(work(&turn, board(0, 3)));
    assert_eq!(prompt(&rig.state, None, rig.now).handoff, "the parser is broken");
}
