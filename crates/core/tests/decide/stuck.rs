//! Turns that look stuck alone, together, or go on without changing anything.

use everloop_core::action::{Input, LoopCommand};
use everloop_core::correlated_stalls::Company;
use everloop_core::decide::Decision;
use everloop_core::event::{Event, Judgement, Outcome, StopCause};
use everloop_core::evidence::Sample;
use everloop_core::op::Op;
use everloop_core::phase::{Doing, PhaseLiveness};
use everloop_core::spec::AgentKind;

use super::rig::{Rig, actions, board, outcome, secs};

fn rig() -> Rig {
    let mut rig = Rig::with(|s| s.agent.kind = AgentKind::Claude);
    rig.baseline(0);
    rig
}

fn look(rig: &mut Rig, phase_liveness: PhaseLiveness, company: Company) -> Decision {
    let sample = Sample {
        running: secs(1000),
        silent: secs(900),
        phase_liveness: Some(phase_liveness),
        company,
        ..Sample::default()
    };
    rig.give(&Input::Evidence { turn: rig.turn(), sample })
}

fn stuck() -> PhaseLiveness {
    PhaseLiveness { doing: Doing::Model, quiet: secs(1000), ..PhaseLiveness::default() }
}

#[test]
fn when_half_of_all_turns_look_stuck_none_is_stopped_and_a_person_is_told_once() {
    let mut rig = rig();
    let together = |tells| Company::Together { stuck: 2, running: 3, tells };
    let decision = look(&mut rig, stuck(), together(true));
    assert_eq!(actions(&decision), ["tell"]);
    assert!(
        matches!(&decision.events[..], [Event::TicketOpened { text, .. }] if text.starts_with("2 of 3 turns look stuck"))
    );
    assert!(look(&mut rig, stuck(), together(true)).events.is_empty(), "once");
    let decision = look(&mut rig, PhaseLiveness { doing: Doing::Model, ..PhaseLiveness::default() }, Company::Alone);
    assert!(matches!(&decision.events[..], [Event::TicketClosed { .. }]), "it lives");
    assert!(look(&mut rig, stuck(), together(false)).events.is_empty(), "another one opens the ticket");
    assert!(look(&mut rig, stuck(), Company::Unclear).events.is_empty());
    assert_eq!(actions(&look(&mut rig, stuck(), Company::Alone)), ["stop"]);
}

#[test]
fn an_agent_that_asked_and_goes_on_has_been_answered() {
    let asks = PhaseLiveness { doing: Doing::Asking, ..PhaseLiveness::default() };
    let works = PhaseLiveness { doing: Doing::Model, ..PhaseLiveness::default() };
    let mut rig = rig();
    assert_eq!(actions(&look(&mut rig, asks, Company::Alone)), ["tell"]);
    assert!(look(&mut rig, asks, Company::Alone).events.is_empty(), "once");
    let decision = look(&mut rig, works, Company::Alone);
    assert!(matches!(&decision.events[..], [Event::TicketClosed { key }] if key.starts_with("agent.asks:")));
    assert!(matches!(&decision.ops[..], [Op::CloseTicket { answer, .. }] if answer == "the agent goes on"));
    // A turn that was stopped with an open question may still wait; the work of the next turn
    // closes the question.
    look(&mut rig, asks, Company::Alone);
    rig.stopped(5, StopCause::Person);
    assert_eq!(rig.state.people.tickets.len(), 1, "it still waits");
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    look(&mut rig, asks, Company::Alone);
    assert_eq!(rig.state.people.tickets.len(), 2, "so does the next one");
    look(&mut rig, works, Company::Alone);
    assert!(rig.state.people.tickets.is_empty(), "{:?}", rig.state.people.tickets);
}

#[test]
fn a_question_does_not_outlive_its_loop() {
    let mut rig = rig();
    look(&mut rig, PhaseLiveness { doing: Doing::Asking, ..PhaseLiveness::default() }, Company::Alone);
    rig.ask(LoopCommand::Stop { now: true });
    rig.stopped(5, StopCause::Person);
    assert_eq!((rig.phase(), rig.state.people.tickets.len()), ("stopped", 0), "{:?}", rig.state.people.tickets);
}

#[test]
fn time_that_is_up_is_up_also_for_those_who_look_stuck_together() {
    let mut rig = rig();
    let company = Company::Together { stuck: 2, running: 2, tells: true };
    look(&mut rig, stuck(), company);
    let sample = Sample { running: secs(7201), phase_liveness: Some(stuck()), company, ..Sample::default() };
    let decision = rig.give(&Input::Evidence { turn: rig.turn(), sample });
    assert!(decision.events.contains(&Event::Stopping { turn: rig.turn(), cause: StopCause::Wall }));
    rig.stopped(5, StopCause::Wall);
    rig.judged_as(Judgement { board: board(0, 3), ..Judgement::default() });
    assert!(rig.state.people.tickets.is_empty(), "{:?}", rig.state.people.tickets);
}

#[test]
fn tokens_without_a_change_are_interrupted_and_the_task_is_given_back() {
    let mut rig = rig();
    let (first, task) = (rig.turn(), rig.state.task.id.clone());
    let talks = PhaseLiveness { doing: Doing::Model, barren: secs(1801), ..PhaseLiveness::default() };
    let decision = look(&mut rig, talks, Company::Alone);
    assert_eq!(actions(&decision), ["stop"]);
    assert!(decision.events.contains(&Event::Stopping { turn: first.clone(), cause: StopCause::NoDiff }));
    rig.stopped(1900, StopCause::NoDiff);
    let decision = rig.judged_as(Judgement { board: board(0, 3), ..Judgement::default() });
    assert!(matches!(outcome(&decision), Outcome::AgentFailed { why, .. } if why.contains("changed nothing")));
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    assert_eq!(rig.state.task.id, task, "the same task");
    assert_ne!(rig.turn(), first);
    assert_eq!(rig.state.task.session, None, "in a fresh session");
}
