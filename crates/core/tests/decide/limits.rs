//! Limits of a vendor, sessions, accounts: what a stream's report means for the next turn.

use everloop_core::action::{Action, Input, LoopCommand};
use everloop_core::event::{Event, Exit, Judgement, Outcome, StopCause};
use everloop_core::evidence::Sample;
use everloop_core::guard::Scope;
use everloop_core::phase::{Doing, PhaseLiveness};
use everloop_core::reason::RuleId;
use everloop_core::spec::{AgentKind, AgentSpec, Budget};
use everloop_core::state::Phase;
use everloop_core::stream::{LimitClass, TurnReport, Usage, VendorLimit};
use everloop_core::time::Time;

use super::rig::{Rig, actions, board, outcome, secs};

fn claude(rig: &mut Rig) {
    rig.state.spec.agent.kind = AgentKind::Claude;
    rig.baseline(0);
}

fn rig() -> Rig {
    let mut rig = Rig::new();
    claude(&mut rig);
    rig
}

fn report(ok: bool) -> TurnReport {
    TurnReport { session: Some("s1".to_owned()), ok: Some(ok), ..TurnReport::default() }
}

fn limit(class: LimitClass, reset_at: Option<Time>) -> VendorLimit {
    VendorLimit { rule: "test".to_owned(), class, reset_at, text: "no".to_owned() }
}

/// Ends a turn after some seconds with this report and without a change.
fn end(rig: &mut Rig, after: u64, report: TurnReport) -> everloop_core::decide::Decision {
    let code = Some(i32::from(report.ok != Some(true)));
    rig.exit_as(after, Exit { code, report: Some(Box::new(report)), ..Exit::default() });
    rig.judged_as(Judgement { board: board(0, 3), ..Judgement::default() })
}

fn resumed(rig: &Rig) -> Option<&str> {
    match &rig.state.phase {
        Phase::Turn(turn) => turn.resume.as_deref(),
        other => panic!("no turn is under way: {other:?}"),
    }
}

#[test]
fn a_limit_with_a_reset_is_slept_out_exactly_and_the_same_conversation_goes_on() {
    let mut rig = rig();
    let reset = rig.now + secs(7200);
    let first = rig.turn();
    let limited = TurnReport { limit: Some(limit(LimitClass::Window, Some(reset))), ..report(false) };
    let decision = end(&mut rig, 2, limited);
    assert_eq!(outcome(&decision), Outcome::Limited { class: LimitClass::Window, kept: false });
    assert_eq!((rig.waits_for(), decision.wake_at), ("guard.limit", Some(reset)));
    assert_eq!(
        (rig.state.task.turns, rig.state.progress.tally.agent_failed),
        (0, 0),
        "nothing failed and nothing is counted"
    );
    assert!(rig.guards.values().all(|g| g.state.failures == 0 && g.state.deaths.is_empty()));
    assert!(rig.tick(7197).actions.is_empty(), "not a second early");
    rig.wait_out();
    assert_eq!(rig.now, reset);
    assert_eq!(resumed(&rig), Some("s1"));
    assert_eq!(rig.turn().as_str().split('.').next(), first.as_str().split('.').next(), "the same task");
}

#[test]
fn those_who_waited_for_an_account_start_one_after_the_other() {
    let mut one = rig();
    let reset = one.now + secs(100);
    end(&mut one, 2, TurnReport { limit: Some(limit(LimitClass::Weekly, Some(reset))), ..report(false) });
    one.wait_out();
    let mut two = Rig::new();
    two.state.id = everloop_core::ids::LoopId::new("other");
    two.state.spec.agent.kind = AgentKind::Claude;
    two.guards = one.guards.clone();
    two.now = reset;
    two.baseline(0);
    assert_eq!(two.waits_for(), "guard.spread");
    two.wait_out();
    assert_eq!((two.phase(), two.now), ("running", reset + secs(5)));
}

/// All of them wake at the reset, and again whenever one of them has started.
#[test]
fn many_loops_that_waited_for_an_account_do_not_start_at_once() {
    let mut one = rig();
    let reset = one.now + secs(100);
    end(&mut one, 2, TurnReport { limit: Some(limit(LimitClass::Weekly, Some(reset))), ..report(false) });
    let mut guards = one.guards.clone();
    let mut waiting: Vec<Rig> = (0..30)
        .map(|n| {
            let mut rig = Rig::new();
            rig.state.id = everloop_core::ids::LoopId::new(format!("other{n}"));
            rig.state.spec.agent.kind = AgentKind::Claude;
            rig.state.spec.guard.max_parallel_turns = 100;
            rig.guards = guards.clone();
            rig.now = one.now;
            rig.baseline(0);
            rig
        })
        .collect();
    let mut starts = Vec::new();
    while !waiting.is_empty() {
        let wake = |rig: &Rig| match &rig.state.phase {
            Phase::Waiting { reason, .. } => reason.until.expect("it ends by itself"),
            other => panic!("it waits: {other:?}"),
        };
        waiting.sort_by_key(wake);
        waiting[0].guards = guards;
        waiting[0].wait_out();
        guards = waiting[0].guards.clone();
        if waiting[0].phase() == "running" {
            starts.push(waiting.remove(0).now);
        }
    }
    assert_eq!((starts.len(), starts[0]), (30, reset));
    for pair in starts.windows(2) {
        assert!(pair[1].since(pair[0]) >= secs(5), "{} ms apart", pair[1].since(pair[0]).as_millis());
    }
}

#[test]
fn variables_that_are_lost_are_waited_for() {
    let mut rig = Rig::new();
    rig.missing = vec!["API_KEY".to_owned(), "PATH".to_owned()];
    assert!(matches!(rig.baseline(0).actions.as_slice(), [Action::Tell { .. }]), "no turn starts");
    assert_eq!(rig.waits_for(), "variables");
    let why = everloop_core::why::why(&rig.state, rig.now, &|_| String::new());
    assert!(
        why.contains("it needs API_KEY, PATH") && why.contains("run the same `everloop run` command again"),
        "{why}"
    );
    assert_eq!(rig.state.people.tickets, ["variables:k"]);
    rig.missing = Vec::new();
    rig.give(&Input::Tick);
    assert_eq!((rig.phase(), rig.state.people.tickets.len()), ("running", 0));
}

#[test]
fn an_hour_of_overload_is_waited_out_on_the_ladder_without_a_freeze() {
    let mut rig = rig();
    let (begin, mut starts) = (rig.now, 0);
    let mut rules = std::collections::BTreeSet::new();
    while rig.now.since(begin) < secs(3600) {
        let before = rig.now;
        starts += 1;
        end(&mut rig, 1, TurnReport { limit: Some(limit(LimitClass::Overload, None)), ..report(false) });
        while rig.phase() == "waiting" {
            rules.insert(rig.waits_for().to_owned());
            rig.wait_out();
        }
        let waited = rig.now.since(before);
        assert!(waited >= secs(15) && waited <= secs(660), "{waited:?}");
    }
    assert!(starts <= 30, "{starts} starts in an hour");
    assert!(rules.contains("guard.limit") && !rules.contains("guard.freeze"), "{rules:?}");
    assert_eq!(rig.state.task.turns, 0, "an outage of a vendor does not end a loop");
    assert!(rig.state.people.tickets.is_empty(), "{:?}", rig.state.people.tickets);
    assert!(rig.guards.values().all(|g| g.state.deaths.is_empty() && g.state.cooldowns.is_empty()));
}

/// Freezes the loop by deaths and waits for its trial start.
fn frozen_at_its_trial() -> Rig {
    let mut rig = rig();
    while rig.phase() != "waiting" || rig.waits_for() != "guard.freeze" {
        if rig.phase() == "waiting" {
            rig.wait_out();
        } else {
            end(&mut rig, 1, report(false));
        }
    }
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    rig
}

#[test]
fn a_trial_that_met_an_overload_proves_nothing() {
    let mut rig = frozen_at_its_trial();
    let scope = Scope::Loop(rig.state.id.clone());
    let overload = TurnReport { limit: Some(limit(LimitClass::Overload, None)), ..report(false) };
    let decision = end(&mut rig, 1, overload);
    assert!(matches!(outcome(&decision), Outcome::Limited { .. }));
    let guard = &rig.guards[&scope].state;
    assert!(guard.freeze.is_some(), "it did not end well");
    assert_eq!(guard.freezes.len(), 1, "and it is no relapse");
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    end(&mut rig, 60, report(true));
    assert!(rig.guards[&scope].state.freeze.is_none(), "the next trial ended well");
}

fn refused() -> TurnReport {
    let said = VendorLimit { text: "the model `x` does not exist".to_owned(), ..limit(LimitClass::Request, None) };
    TurnReport { limit: Some(said), error: Some("the model `x` does not exist".to_owned()), ..report(false) }
}

#[test]
fn a_request_that_is_refused_is_one_start_and_a_ticket() {
    let mut rig = rig();
    let decision = end(&mut rig, 1, refused());
    let why = "exit 1: the model `x` does not exist".to_owned();
    assert_eq!(outcome(&decision), Outcome::AgentFailed { why, kept: false });
    assert_eq!((rig.waits_for(), decision.wake_at), ("agent.refused", None));
    let key = format!("agent.refused:{}:{}", rig.state.id, rig.state.task.worker);
    assert_eq!(rig.state.people.tickets, [key]);
    rig.tick(1_000_000);
    assert_eq!((rig.phase(), rig.state.task.started), ("waiting", 1));
    assert!(rig.guards.values().all(|g| g.state.deaths.is_empty() && g.state.backing.is_none()));
    rig.ask(LoopCommand::Wake);
    assert_eq!((rig.phase(), rig.state.task.started), ("running", 2), "a person has it tried again");
    assert!(rig.state.people.tickets.is_empty());
}

#[test]
fn an_agent_that_was_refused_starts_again_when_it_is_configured_anew() {
    let mut rig = rig();
    end(&mut rig, 1, refused());
    let mut spec = rig.state.spec.clone();
    rig.ask(LoopCommand::Reconfigure { spec: Box::new(spec.clone()) });
    assert_eq!(rig.waits_for(), "agent.refused", "nothing was changed");
    spec.agent.model = Some("another".to_owned());
    rig.ask(LoopCommand::Reconfigure { spec: Box::new(spec) });
    while rig.phase() == "waiting" {
        assert_ne!(rig.waits_for(), "agent.refused");
        rig.wait_out();
    }
    assert_eq!((rig.phase(), rig.state.people.tickets.len()), ("running", 0));
}

#[test]
fn a_spending_cap_with_a_date_ends_by_itself() {
    let mut rig = rig();
    let reset = rig.now + secs(86_400);
    let decision = end(&mut rig, 1, TurnReport { limit: Some(limit(LimitClass::Spend, Some(reset))), ..report(false) });
    assert_eq!((decision.wake_at, rig.state.people.tickets.len()), (Some(reset), 1));
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    assert!(rig.now >= reset && rig.state.people.tickets.is_empty(), "{:?}", rig.state.people.tickets);
}

#[test]
fn another_agent_takes_over_from_one_that_is_refused() {
    let mut rig = Rig::new();
    rig.state.spec.others =
        vec![AgentSpec { name: "codex".to_owned(), account: "own".to_owned(), ..rig.state.spec.agent.clone() }];
    claude(&mut rig);
    end(&mut rig, 1, refused());
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    assert_eq!(rig.state.task.worker, "codex@own");
}

#[test]
fn a_refusal_in_a_session_that_went_on_begins_a_fresh_one() {
    let mut rig = rig();
    end(&mut rig, 60, report(true));
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    assert_eq!(resumed(&rig), Some("s1"));
    end(&mut rig, 1, refused());
    while rig.phase() == "waiting" {
        assert_ne!(rig.waits_for(), "agent.refused");
        rig.wait_out();
    }
    assert_eq!(resumed(&rig), None);
}

#[test]
fn walls_wait_for_a_person_after_one_start() {
    for class in [LimitClass::Auth, LimitClass::Credit, LimitClass::Spend] {
        let mut rig = rig();
        let decision = end(&mut rig, 1, TurnReport { limit: Some(limit(class, None)), ..report(false) });
        assert_eq!((rig.waits_for(), decision.wake_at), ("guard.freeze", None));
        assert_eq!(rig.state.people.tickets, ["guard.freeze:account:default/claude"]);
        rig.tick(1_000_000);
        assert_eq!((rig.phase(), rig.state.task.started), ("waiting", 1), "no trial start either");
    }
}

#[test]
fn a_conversation_is_left_when_it_is_long_full_or_lost() {
    let next = |change: fn(&mut Rig), said: TurnReport| {
        let mut rig = rig();
        change(&mut rig);
        end(&mut rig, 60, said);
        while rig.phase() == "waiting" {
            rig.wait_out();
        }
        resumed(&rig).map(str::to_owned)
    };
    let same = |_: &mut Rig| {};
    assert_eq!(next(same, report(true)).as_deref(), Some("s1"), "the next turn goes on with it");
    assert_eq!(next(|rig| rig.state.spec.agent.session_turns = 1, report(true)), None);
    assert_eq!(next(same, TurnReport { context_percent: Some(85), ..report(true) }), None);
    assert_eq!(next(same, TurnReport { limit: Some(limit(LimitClass::Context, None)), ..report(false) }), None);
    assert_eq!(next(same, TurnReport { session: None, session_lost: true, ..report(false) }), None);
}

#[test]
fn a_fresh_conversation_after_eight_turns() {
    let mut rig = rig();
    let mut kept = 0;
    for _ in 0..9 {
        end(&mut rig, 60, report(true));
        while rig.phase() == "waiting" {
            rig.wait_out();
        }
        kept += u32::from(resumed(&rig).is_some());
    }
    assert_eq!(kept, 8, "seven go on, the ninth begins anew, the tenth goes on with that");
}

#[test]
fn what_a_turn_says_it_used_is_what_it_is_charged() {
    let mut rig = rig();
    let used = Usage { input: 10, output: 5, microusd: Some(900), ..Usage::default() };
    end(&mut rig, 60, TurnReport { used, ..report(true) });
    assert_eq!(
        (rig.state.spend.spent.tokens, rig.state.spend.spent.microusd, rig.state.spend.estimated),
        (15, 900, false)
    );
    // A CLI that counts over the whole session is charged the difference.
    let mut codex = self::rig();
    for total in [100, 250] {
        let in_all = Some(Usage { input: total, ..Usage::default() });
        end(&mut codex, 60, TurnReport { in_all, ..report(true) });
        while codex.phase() == "waiting" {
            codex.wait_out();
        }
    }
    assert_eq!(codex.state.spend.spent.tokens, 250);
}

#[test]
fn a_model_without_a_known_price_is_reported_once_and_costs_no_dollars() {
    let mut rig = Rig::with(|s| s.guard.budget = Budget { microusd: Some(1), ..Budget::default() });
    claude(&mut rig);
    let mut reported = Vec::new();
    for _ in 0..3 {
        let used = Usage { input: 1000, ..Usage::default() };
        let decision = end(&mut rig, 60, TurnReport { model: Some("gpt-99".to_owned()), used, ..report(true) });
        reported.push(decision.events.iter().any(|e| matches!(e, Event::PriceUnknown { .. })));
        while rig.phase() == "waiting" {
            rig.wait_out();
        }
    }
    assert_eq!((reported, rig.state.spend.spent.microusd), (vec![true, false, false], 0));
    assert_eq!(rig.phase(), "running", "no budget of dollars ends it");
}

#[test]
fn a_turn_that_was_cut_off_is_charged_at_least_what_it_had_set_aside() {
    let mut rig = rig();
    end(&mut rig, 60, TurnReport { ok: None, used: Usage { input: 7, ..Usage::default() }, ..report(false) });
    assert_eq!((rig.state.spend.spent.tokens, rig.state.spend.estimated), (100, true));
}

#[test]
fn a_turn_that_was_cut_off_is_charged_what_its_telemetry_said() {
    let mut rig = rig();
    let used = Usage { input: 7, ..Usage::default() };
    let telemetry = Some(Usage { input: 150, microusd: Some(900), ..Usage::default() });
    end(&mut rig, 60, TurnReport { ok: None, used, telemetry, ..report(false) });
    assert_eq!(
        (rig.state.spend.spent.tokens, rig.state.spend.spent.microusd, rig.state.spend.estimated),
        (150, 900, false)
    );
    // Less than the reservation: the last request, which was not counted, may be the rest.
    let mut rig = self::rig();
    let telemetry = Some(Usage { input: 20, microusd: Some(900), ..Usage::default() });
    end(&mut rig, 60, TurnReport { ok: None, used, telemetry, ..report(false) });
    assert_eq!(
        (rig.state.spend.spent.tokens, rig.state.spend.spent.microusd, rig.state.spend.estimated),
        (100, 900, true)
    );
}

#[test]
fn of_two_sources_the_greater_is_charged_also_where_one_counts_the_whole_conversation() {
    let mut rig = rig();
    let of = |input, microusd| Usage { input, microusd: Some(microusd), ..Usage::default() };
    end(&mut rig, 60, TurnReport { in_all: Some(of(100, 1000)), telemetry: Some(of(100, 1000)), ..report(true) });
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    // 150 of the whole are this turn's; telemetry reports 200 of this turn alone.
    end(&mut rig, 60, TurnReport { in_all: Some(of(250, 2500)), telemetry: Some(of(200, 1500)), ..report(true) });
    assert_eq!((rig.state.spend.spent.tokens, rig.state.spend.spent.microusd), (300, 2500));
}

#[test]
fn the_dearest_turn_is_set_aside_when_nobody_says_what_one_costs() {
    let mut rig = Rig::with(|s| {
        s.agent.turn_tokens = 0;
        s.guard.budget = Budget { microusd: Some(500_000), ..Budget::default() };
    });
    claude(&mut rig);
    let used = Usage { microusd: Some(200_000), input: 1, ..Usage::default() };
    for _ in 0..2 {
        assert_eq!(rig.phase(), "running");
        end(&mut rig, 60, TurnReport { used, ..report(true) });
        while rig.phase() == "waiting" {
            rig.wait_out();
        }
    }
    assert_eq!((rig.phase(), rig.state.spend.spent.microusd), ("exhausted", 400_000), "a third one would not fit");
}

fn with_two(rig: &mut Rig) {
    let second = AgentSpec { name: "codex".to_owned(), account: "own".to_owned(), ..rig.state.spec.agent.clone() };
    rig.state.spec.others = vec![second];
}

#[test]
fn the_next_of_the_operators_agents_takes_over_and_gives_back() {
    let mut rig = Rig::new();
    with_two(&mut rig);
    claude(&mut rig);
    let reset = rig.now + secs(600);
    let decision =
        end(&mut rig, 20, TurnReport { limit: Some(limit(LimitClass::Window, Some(reset))), ..report(false) });
    assert_eq!((rig.phase(), actions(&decision).contains(&"spawn")), ("running", true), "no waiting");
    assert_eq!(
        (rig.state.task.worker.as_str(), resumed(&rig)),
        ("codex@own", None),
        "another agent's session is not resumed"
    );
    let switched = |e: &Event| matches!(e, Event::AgentSwitched { to, reason, .. } if to == "codex@own" && reason.rule == RuleId::GuardLimit);
    assert!(decision.events.iter().any(switched));
    rig.now = reset;
    end(&mut rig, 20, report(true));
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    assert_eq!(rig.state.task.worker, "agent@default", "the preferred one is free again");
}

#[test]
fn the_loops_own_gap_holds_all_agents() {
    let mut rig = Rig::new();
    with_two(&mut rig);
    claude(&mut rig);
    end(&mut rig, 2, report(true));
    assert_eq!(rig.waits_for(), "guard.gap");
}

#[test]
fn when_all_accounts_are_held_the_first_to_come_free_is_waited_for() {
    let mut rig = Rig::new();
    with_two(&mut rig);
    claude(&mut rig);
    let (late, soon) = (rig.now + secs(9000), rig.now + secs(3000));
    end(&mut rig, 20, TurnReport { limit: Some(limit(LimitClass::Window, Some(late))), ..report(false) });
    let decision =
        end(&mut rig, 20, TurnReport { limit: Some(limit(LimitClass::Window, Some(soon))), ..report(false) });
    assert_eq!((rig.waits_for(), decision.wake_at), ("guard.limit", Some(soon)));
    rig.wait_out();
    assert_eq!(rig.state.task.worker, "codex@own");
}

#[test]
fn a_stuck_model_is_stopped_and_the_conversation_goes_on() {
    let mut rig = rig();
    let phase_liveness = PhaseLiveness { doing: Doing::Model, quiet: secs(1000), ..PhaseLiveness::default() };
    let sample =
        Sample { running: secs(1000), silent: secs(2), phase_liveness: Some(phase_liveness), ..Sample::default() };
    let decision = rig.give(&Input::Evidence { turn: rig.turn(), sample });
    assert_eq!(actions(&decision), ["stop"]);
    let killed = Exit {
        signal: Some(9),
        stopped: Some(StopCause::Stuck),
        report: Some(Box::new(TurnReport { ok: None, ..report(false) })),
        ..Exit::default()
    };
    rig.exit_as(1000, killed);
    let decision = rig.judged_as(Judgement { board: board(0, 3), ..Judgement::default() });
    assert!(matches!(outcome(&decision), Outcome::AgentFailed { .. }));
    while rig.phase() == "waiting" {
        rig.wait_out();
    }
    assert_eq!(resumed(&rig), Some("s1"));
}

#[test]
fn an_agent_that_repeats_itself_or_changes_nothing_begins_a_fresh_conversation() {
    for cause in [StopCause::Spinning, StopCause::NoDiff] {
        let mut rig = rig();
        end(&mut rig, 60, report(true));
        while rig.phase() == "waiting" {
            rig.wait_out();
        }
        assert_eq!(resumed(&rig), Some("s1"));
        let spinning = cause == StopCause::Spinning;
        let barren = if spinning { secs(0) } else { secs(1801) };
        let phase_liveness = PhaseLiveness { doing: Doing::Model, spinning, barren, ..PhaseLiveness::default() };
        let sample = Sample { phase_liveness: Some(phase_liveness), ..Sample::default() };
        let decision = rig.give(&Input::Evidence { turn: rig.turn(), sample });
        assert!(decision.events.contains(&Event::Stopping { turn: rig.turn(), cause }), "{:?}", decision.events);
        let report = TurnReport { ok: None, ..report(false) };
        let exit = Exit { signal: Some(15), stopped: Some(cause), report: Some(Box::new(report)), ..Exit::default() };
        rig.exit_as(60, exit);
        rig.judged_as(Judgement { board: board(0, 3), ..Judgement::default() });
        while rig.phase() == "waiting" {
            rig.wait_out();
        }
        assert_eq!(resumed(&rig), None, "{cause:?}");
    }
}

#[test]
fn a_cli_that_does_not_end_after_its_result_has_done_its_turn() {
    let mut rig = rig();
    let lingered = Exit {
        signal: Some(9),
        stopped: Some(StopCause::Lingers),
        report: Some(Box::new(report(true))),
        ..Exit::default()
    };
    assert!(lingered.ok());
    rig.exit_as(60, lingered);
    let decision = rig.judged(1);
    assert_eq!(actions(&decision), ["integrate"]);
}

#[test]
fn gaps_of_healthy_turns_are_learned_by_the_account() {
    let mut rig = rig();
    let mut phases = everloop_core::phase::Phases::new(rig.now);
    for n in 0..100 {
        phases.take(&everloop_core::stream::AgentEvent::Unknown, rig.now + secs(n));
    }
    end(&mut rig, 60, TurnReport { gaps: phases.gaps().clone(), ..report(true) });
    assert!(!rig.guards[&Scope::Account("default/claude".to_owned())].state.gaps.is_empty());
    assert!(rig.guards[&Scope::All].state.gaps.is_empty());
}
