//! The default account is another one for every kind of agent; state of older versions, which had
//! one for all of them, is read as it was meant.

use everloop_core::event::{Exit, Judgement};
use everloop_core::guard::{Freeze, GuardState, Scope, Versioned};
use everloop_core::spec::{AgentKind, AgentSpec};
use everloop_core::stream::{LimitClass, TurnReport, VendorLimit};

use super::rig::{Rig, board, secs};

fn agent(kind: AgentKind) -> AgentSpec {
    AgentSpec { name: kind.label().to_owned(), kind, account: "default".to_owned(), ..AgentSpec::default() }
}

/// A loop with two agents, whose logins are the ones of the node.
fn rig() -> Rig {
    Rig::with(|spec| {
        spec.agent = agent(AgentKind::Claude);
        spec.others = vec![agent(AgentKind::Codex)];
    })
}

fn meets(rig: &mut Rig, class: LimitClass, after: u64) {
    let reset_at = (class == LimitClass::Window).then_some(rig.now + secs(after));
    let limit = Some(VendorLimit { rule: "claude.test".to_owned(), class, reset_at, text: "no".to_owned() });
    let report = TurnReport { ok: Some(false), limit, ..TurnReport::default() };
    rig.exit_as(2, Exit { code: Some(1), report: Some(Box::new(report)), ..Exit::default() });
    rig.judged_as(Judgement { board: board(0, 3), ..Judgement::default() });
}

/// Waits for the next turn, at most this long, and names its agent.
fn next(rig: &mut Rig, most: u64) -> String {
    let end = rig.now + secs(most);
    while rig.phase() == "waiting" && rig.now < end {
        rig.wait_out();
    }
    rig.state.task.worker.split('@').next().unwrap_or_default().to_owned()
}

#[test]
fn another_vendor_takes_over_from_one_that_is_limited_or_not_let_in() {
    for class in [LimitClass::Window, LimitClass::Auth] {
        let mut rig = rig();
        rig.baseline(0);
        assert_eq!(rig.state.task.worker, "claude@default");
        meets(&mut rig, class, 7200);
        assert_eq!(next(&mut rig, 60), "codex", "{class}");
        let held = |name: &str| {
            let guard = rig.guards.get(&Scope::Account(name.to_owned()));
            guard.is_some_and(|g| g.state.held.is_some() || g.state.freeze.is_some())
        };
        assert!(held("default/claude") && !held("default/codex") && !held("default"));
    }
}

/// As version 0.1.0 stored the guard of `account:default` during a limit.
const OLD: &str = r#"{"freeze":null,"cooling":null,"backing":null,"last_start":null,
    "starts":{"recent":[],"minutes":[],"hours":[]},"reserved":{},"spent":{"calls":1,"tokens":0,"microusd":0},
    "deaths":[],"failures":0,"level":0,"cooldowns":[],"freezes":[],"probation":false,"bucket":null,
    "held":{"limit":{"rule":"RULE","class":"window","reset_at":null,"text":"no"},"until":UNTIL,"strikes":1}}"#;

fn with_old(rig: &mut Rig, rule: &str) {
    let until = (rig.now + secs(7200)).0.to_string();
    let state: GuardState =
        serde_json::from_str(&OLD.replace("RULE", rule).replace("UNTIL", &until)).expect("it was stored like this");
    rig.guards.insert(Scope::Account("default".to_owned()), Versioned { version: 1, state });
}

#[test]
fn an_old_limit_of_the_default_account_holds_the_vendor_that_it_was_about() {
    for (rule, worker) in [("claude.five-hour", "codex"), ("codex.usage-limit", "claude")] {
        let mut rig = rig();
        with_old(&mut rig, rule);
        rig.baseline(0);
        assert_eq!(next(&mut rig, 60), worker, "{rule}");
    }
    let mut rig = rig();
    with_old(&mut rig, "any.rate");
    rig.baseline(0);
    assert_eq!((rig.phase(), rig.waits_for()), ("waiting", "guard.limit"), "either may be meant");
}

#[test]
fn a_hold_on_the_default_account_holds_it_for_every_kind() {
    let mut rig = rig();
    let freeze = Some(Freeze::by_person("ann".to_owned(), "no", rig.now, None));
    let state = GuardState { freeze, ..GuardState::default() };
    rig.guards.insert(Scope::Account("default".to_owned()), Versioned { version: 1, state });
    rig.baseline(0);
    assert_eq!((rig.phase(), rig.waits_for()), ("waiting", "guard.freeze"));
}
