//! Old journals stay readable: `fixtures/journal-v<n>.jsonl` holds every event as version n wrote
//! it, byte for byte.
//!
//! A line of a released version is never edited. A new kind of event gets a new line; a new field
//! of an old kind must be optional, so that the old line still means what it meant.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use everloop_core::event::{Event, Exit, Integrated, Judgement, LoopEnd, Outcome, Pattern, Settled, StopCause};
use everloop_core::guard::{Bucket, Freeze, Permit, Scope, Spend};
use everloop_core::hook::{SessionAct, Why};
use everloop_core::ids::{Fence, LoopId, NodeId, TaskId, TurnId};
use everloop_core::immune::{
    Class, Dimension, ImmuneRule, ImmuneStep as Step, ObservedOutcome, RuleEffect, Subject, Threshold,
};
use everloop_core::isolation::{CommandAccess, IsolationSpec};
use everloop_core::op::Trust;
use everloop_core::phase::Phases;
use everloop_core::prices::{Prices, Rates};
use everloop_core::reason::{Reason, RuleId};
use everloop_core::research::judge::Inspection;
use everloop_core::research::row::{Row, Status};
use everloop_core::research::sample::{Contender, CrashKind, Measured, Sample};
use everloop_core::research::state::{ExperimentStep, ResearchState};
use everloop_core::scoreboard::{CheckResult, Scoreboard, Verdict};
use everloop_core::spec::{
    AgentKind, AgentSpec, Bounds, BucketSpec, Budget, CheckSpec, GuardSpec, Integrate, LoopSpec, Permission, Tasks,
    Variable, VariableSource, WorkspaceMode, WorkspaceSpec,
};
use everloop_core::stream::{AgentEvent, LimitClass, Quota, TurnReport, Usage, VendorLimit};
use everloop_core::time::Time;
use everloop_core::watch::{MonitorSpec, Target, WatchSpec};

const VERSION_1: &str = include_str!("fixtures/journal-v1.jsonl");
const VERSION_2: &str = include_str!("fixtures/journal-v2.jsonl");
const VERSION_3: &str = include_str!("fixtures/journal-v3.jsonl");
const VERSION_4: &str = include_str!("fixtures/journal-v4.jsonl");
const VERSION_5: &str = include_str!("fixtures/journal-v5.jsonl");
const VERSION_6: &str = include_str!("fixtures/journal-v6.jsonl");
const VERSION_7: &str = include_str!("fixtures/journal-v7.jsonl");
const VERSION_8: &str = include_str!("fixtures/journal-v8.jsonl");
const VERSION_9: &str = include_str!("fixtures/journal-v9.jsonl");
const VERSION_10: &str = include_str!("fixtures/journal-v10.jsonl");
const AT: Time = Time(1_767_225_600_000);

fn text(s: &str) -> String {
    s.to_owned()
}

fn turn() -> TurnId {
    "k3f9-2.3".parse().expect("the id of a turn")
}

fn spec() -> Box<LoopSpec> {
    let bucket = Some(BucketSpec { burst: 2, every: Duration::from_secs(60) });
    Box::new(LoopSpec {
        goal: text("make it pass"),
        checks: vec![CheckSpec {
            name: text("unit"),
            run: text("cargo test"),
            timeout: Duration::from_secs(600),
            weight: 2,
            pin: text("abc"),
            proof: everloop_core::test_evidence::Proof::default(),
            parallel: false,
        }],
        agent: AgentSpec {
            name: text("command"),
            argv: vec![text("agent"), text("{prompt}")],
            pass_env: vec![text("LANG")],
            account: text("default"),
            turn_microusd: 5,
            turn_tokens: 7,
            ..AgentSpec::default()
        },
        others: Vec::new(),
        workspace: WorkspaceSpec {
            dir: text("/repo"),
            mode: WorkspaceMode::Git { target: text("refs/heads/main") },
            integrate: Integrate::Progress,
            setup: Some(text("npm ci")),
            include_dirty: false,
            protect: vec![text("tests/**")],
            judge: everloop_core::judge_files::JudgeFiles::default(),
            cache: Vec::new(),
            author: everloop_core::spec::CommitAuthor::Everloop,
            origin: None,
        },
        bounds: bounds(),
        guard: GuardSpec { bucket, ..GuardSpec::default() },
        watch: WatchSpec::default(),
        isolation: IsolationSpec::default(),
        research: None,
        persona: None,
        routes: Vec::new(),
    })
}

fn bounds() -> Bounds {
    Bounds { max_turns: Some(9), max_time: Some(Duration::from_secs(3600)), deadline: Some(AT) }
}

fn board() -> Scoreboard {
    let row = |name: &str, verdict| CheckResult {
        name: text(name),
        verdict,
        weight: 1,
        millis: 12,
        output: text("1 failed"),
        fingerprint: 77,
        reference: None,
    };
    Scoreboard(vec![
        row("a", Verdict::Pass),
        row("b", Verdict::Fail),
        row("c", Verdict::Flaky { passes: 2, runs: 3 }),
        row("d", Verdict::Broken { why: text("gone") }),
    ])
}

fn scope() -> Scope {
    Scope::Loop(LoopId::new("k3f9"))
}

fn started() -> Event {
    let reserve = Spend { calls: 1, tokens: 7, microusd: 5 };
    let scopes = vec![Scope::All, Scope::Node(NodeId::new("here")), Scope::Account(text("default")), scope()];
    let bucket = Some(Bucket { millistarts: 1500, at: AT });
    let permit = Permit { scopes, reserve, canary: Some(scope()), bucket };
    let (turn, task, fence, number) = (turn(), TaskId::new("k3f9-2"), Fence(3), 4);
    Event::TurnStarted {
        turn,
        task,
        fence,
        number,
        permit,
        agent: text(""),
        account: text(""),
        resume: None,
        chosen: None,
    }
}

fn exited(stopped: Option<StopCause>) -> Event {
    let exit = Exit {
        code: Some(1),
        signal: Some(15),
        spawn_error: Some(text("no such file")),
        started_at: AT,
        ended_at: AT + Duration::from_secs(5),
        out_bytes: 12,
        tail: text("done"),
        backoff_ms: Some(60_000),
        stopped,
        leftovers: 1,
        report: None,
        base: None,
        wish: None,
    };
    Event::TurnExited { turn: turn(), exit }
}

fn judged() -> Event {
    let judgement = Judgement {
        changed: true,
        commit: Some(text("c0ffee")),
        pin: Some(text("refs/everloop/k3f9-2/3")),
        target: None,
        diffstat: text("1 file changed"),
        violations: vec![text("tests/a.rs")],
        board: board(),
        experiment: None,
        error: Some(text("conflict")),
    };
    Event::TurnJudged { turn: turn(), judgement }
}

fn ended(outcome: Outcome, integrated: Option<Integrated>) -> Event {
    let spend = Spend { calls: 1, tokens: 7, microusd: 5 };
    let settled = Settled { spend, estimated: true, progress: true, ..Settled::default() };
    Event::TurnEnded { turn: turn(), outcome, settled, work: Some(text("c0ffee")), integrated }
}

fn turns() -> Vec<Event> {
    let (commit, why) = (text("c0ffee"), text("dirty"));
    let aside = Integrated::Aside { commit: commit.clone(), why: why.clone(), command: text("git merge c0ffee") };
    vec![
        started(),
        exited(None),
        exited(Some(StopCause::Wall)),
        exited(Some(StopCause::Stuck)),
        exited(Some(StopCause::Person)),
        exited(Some(StopCause::Shutdown)),
        judged(),
        Event::TurnReturned { turn: turn(), why: why.clone() },
        ended(Outcome::Reached, Some(Integrated::Landed { commit })),
        ended(Outcome::Progress, Some(aside)),
        ended(Outcome::NotYet, Some(Integrated::InPlace)),
        ended(Outcome::NoOp, None),
        ended(Outcome::Refused { paths: vec![text("tests/a.rs")] }, None),
        ended(Outcome::Regressed { lost: vec![text("unit")] }, None),
        ended(Outcome::AgentFailed { why: why.clone(), kept: true }, None),
        ended(Outcome::TaskFailed { why }, None),
        ended(Outcome::Interrupted, None),
        ended(Outcome::Lost, None),
        Event::Stopping { turn: turn(), cause: StopCause::Stuck },
    ]
}

fn others() -> Vec<Event> {
    let by = || text("ann");
    let freeze = Freeze {
        cause: text("cooldowns"),
        audit: vec![text("9 starts died young")],
        since: AT,
        until: Some(AT + Duration::from_secs(3600)),
        canary_at: Some(AT + Duration::from_secs(900)),
        canary_every_ms: 900_000,
        by: Some(by()),
    };
    let noticed = |pattern| Event::Noticed { pattern, turns: 3 };
    vec![
        Event::LoopCreated { name: text("fix"), spec: spec() },
        Event::SpecChanged { spec: spec() },
        Event::Baselined { board: board(), work: Some(text("c0ffee")) },
        Event::Waiting { reason: Reason::new(RuleId::GuardGap).with("gap", "15s").until(AT) },
        Event::Woken { by: by() },
        Event::Paused { by: by(), reason: text("lunch"), until: None },
        Event::Resumed { by: by(), bounds: Some(bounds()), budget: None, keeps_clock: false },
        Event::StopAsked { by: by(), now: true },
        Event::Steered { by: by(), message: text("mind the tests"), trust: Trust::Operator },
        Event::Cooldown { scope: scope(), until: AT, level: 2 },
        Event::Backoff {
            scope: Scope::Account(text("default")),
            until: AT,
            why: text("failure: exit 1"),
            requested: false,
        },
        Event::Frozen { scope: Scope::All, freeze },
        Event::Released { scope: Scope::Node(NodeId::new("here")), by: by(), reason: text("looked at") },
        noticed(Pattern::NoOps),
        noticed(Pattern::SameError),
        noticed(Pattern::PingPong),
        noticed(Pattern::Stagnation),
        Event::TicketOpened { key: text("stagnation:k3f9"), text: text("no progress") },
        Event::TicketClosed { key: text("stagnation:k3f9") },
        Event::Ended { ending: LoopEnd::Reached },
        Event::Ended { ending: LoopEnd::Exhausted { bound: text("turns") } },
        Event::Ended { ending: LoopEnd::Stopped { by: by() } },
        Event::Ended { ending: LoopEnd::Failed { why: text("no such folder") } },
        Event::Recovered { found: text("k3f9-2.3 alive, running") },
        Event::Note { text: text("hello") },
    ]
}

/// Events and fields that version 2 added.
fn added() -> Vec<Event> {
    let mut started = started();
    if let Event::TurnStarted { agent, account, resume, .. } = &mut started {
        (*agent, *account, *resume) = (text("claude"), text("work"), Some(text("27832923")));
    }
    let limit = VendorLimit {
        rule: text("claude.window"),
        class: LimitClass::Window,
        reset_at: Some(AT),
        text: text("You've hit your 5-hour limit"),
    };
    let used = Usage { input: 11, output: 7, cache_read: 1000, cache_write: 100, microusd: Some(884) };
    let quota = Quota { window: text("five_hour"), used_permille: 910, reset_at: Some(AT), length_ms: None };
    let mut phases = Phases::new(AT);
    phases.take(&AgentEvent::Unknown, AT + Duration::from_secs(2));
    let report = TurnReport {
        session: Some(text("27832923")),
        session_lost: true,
        model: Some(text("claude-opus-5-5")),
        used,
        in_all: Some(used),
        telemetry: None,
        rates: None,
        limit: Some(limit.clone()),
        announced: None,
        error: None,
        request_id: None,
        quotas: vec![quota],
        context_percent: Some(12),
        ok: Some(false),
        tools: 1,
        retries: 2,
        denied: 3,
        unknown: 4,
        last_text: text("done"),
        gaps: phases.gaps().clone(),
    };
    let mut exit = exited(None);
    if let Event::TurnExited { exit, .. } = &mut exit {
        exit.report = Some(Box::new(report));
    }
    let mut spec = spec();
    spec.others = vec![AgentSpec {
        kind: AgentKind::Codex,
        model: Some(text("gpt-5.5")),
        permission: Permission::Full,
        allow: vec![text("cargo test")],
        env: vec![Variable { name: text("OPENAI_API_KEY"), source: VariableSource::File(text("/keys/own")) }],
        api_base: Some(text("http://127.0.0.1:1")),
        session_turns: 3,
        ..spec.agent.clone()
    }];
    vec![
        Event::SpecChanged { spec },
        started,
        exit,
        exited(Some(StopCause::Spinning)),
        exited(Some(StopCause::Lingers)),
        ended(Outcome::Limited { class: LimitClass::Weekly, kept: true }, None),
        Event::Limited { scope: Scope::Account(text("work")), limit, until: AT, strikes: 1 },
        Event::AgentSwitched {
            from: text("claude@work"),
            to: text("codex@own"),
            reason: Reason::new(RuleId::GuardLimit),
        },
    ]
}

/// Additions of version 3: pacing, agents for certain tasks, tokens without a change.
fn added_later() -> Vec<Event> {
    let mut started = started();
    if let Event::TurnStarted { chosen, .. } = &mut started {
        *chosen = Some(Reason::new(RuleId::AgentFits).with("kind", "docs").with("priority", 0));
    }
    let mut spec = spec();
    spec.guard.pace = true;
    spec.guard.phases.no_diff = None;
    spec.agent.tasks = Tasks { kinds: vec![text("docs")], min_priority: Some(-1), max_priority: Some(3) };
    let cause = StopCause::NoDiff;
    vec![Event::SpecChanged { spec }, started, exited(Some(cause)), Event::Stopping { turn: turn(), cause }]
}

/// Additions of version 4: sessions that everloop did not start.
fn in_sessions() -> Vec<Event> {
    let let_go = |why| SessionAct::LetGo { why };
    [
        SessionAct::Began { agent: text("claude"), source: text("startup"), dir: text("/repo") },
        SessionAct::Prompted { text: text("go on") },
        SessionAct::Held { holds: 2, failing: vec![text("unit")] },
        let_go(Why::Passes),
        let_go(Why::Pending { what: vec![text("build")] }),
        let_go(Why::Guard { what: text("paused") }),
        let_go(Why::Parked { until: AT }),
        let_go(Why::Unjudged { why: text("too slow") }),
        let_go(Why::Cap { holds: 8 }),
        SessionAct::Refused { tool: text("Write"), path: text("tests/a.rs"), why: text("protected") },
        SessionAct::Restored { path: text("MEMORY.md"), left_bytes: Some(3) },
        SessionAct::Parked { text: text("limit"), until: Some(AT) },
        SessionAct::HandedOff { at: text("compaction") },
        SessionAct::Ended { reason: text("other") },
    ]
    .map(|did| Event::InSession { session: text("27832923"), name: text("main"), did })
    .into()
}

/// Additions of version 5: steps of the immune system.
fn immune_steps() -> Vec<Event> {
    let subject = Subject::new(Dimension::Account, "default");
    let what = RuleEffect::Avoid { subject: subject.clone() };
    let bound = RuleEffect::Only { kind: text("docs"), subject: subject.clone() };
    let reason = || Reason::new(RuleId::ImmuneCharge).with("subject", "account:default").until(AT);
    let seen = ObservedOutcome { subjects: vec![subject.clone()], class: Class::Unserved, reset_at: Some(AT) };
    let rule = |what| ImmuneRule { id: 3, what, by: text("ann"), why: text("renewed"), since: AT, until: AT };
    let (threshold, permille) = (Threshold::Margin, 1500);
    [
        Step::Seen { turn: turn(), seen },
        Step::Charged { subject: subject.clone(), reason: reason() },
        Step::Soft { subject: subject.clone(), until: AT, reason: reason() },
        Step::Out { subject: subject.clone(), until: AT, level: 2, reason: reason() },
        Step::Trial { subject: subject.clone(), turn: turn() },
        Step::Untried { subject: subject.clone() },
        Step::Eased { subject, reason: reason() },
        Step::Suspected { reason: reason() },
        Step::Trusted,
        Step::Moved { threshold, permille, reason: reason() },
        Step::Settled { threshold: Threshold::Out, permille, reason: reason() },
        Step::Corrected { what: what.clone() },
        Step::Ruled { rule: rule(what.clone()) },
        Step::Ruled { rule: rule(bound) },
        Step::Lifted { what, by: text("ann"), why: text("repaired") },
    ]
    .map(|step| Event::Immune { step: Box::new(step) })
    .into()
}

/// Additions of version 5: monitors and the keepalive.
fn watching() -> Vec<Event> {
    let monitor = |name: &str, target| MonitorSpec {
        name: text(name),
        target,
        every: Duration::from_secs(60),
        timeout: Duration::from_secs(20),
        title: text("look"),
        prompt: text("mend it"),
        access: CommandAccess::default(),
    };
    let mut spec = spec();
    spec.watch = WatchSpec {
        monitors: vec![
            monitor("files", Target::File(text("in/*.txt"))),
            monitor("command", Target::Command(text("git ls-remote"))),
            monitor("stream", Target::Stream(text("app.log"))),
            monitor("box", Target::Mailbox(text("@me"))),
            monitor("page", Target::Http(text("https://example.org/"))),
        ],
        park_after: 3,
    };
    let signalled = |task, what| Event::Signalled { monitor: text("stream"), cursor: text("12"), task, what };
    vec![
        Event::SpecChanged { spec },
        signalled(None, String::new()),
        signalled(Some(TaskId::new("k3f9-signal-1")), text("3 new lines")),
        Event::Keepalive { number: 2, after: text("signal of stream") },
    ]
}

/// Additions of version 6: a change of strategy before a ticket is opened.
fn strategy() -> Vec<Event> {
    let mut spec = spec();
    spec.guard.stagnation_change = false;
    let reason = Reason::new(RuleId::StagnationTurns).with("turns", 10);
    vec![Event::SpecChanged { spec }, Event::StrategyChanged { reason, agent: text("claude") }]
}

/// Additions of version 7: which everloop.toml is in force.
fn configuration() -> Vec<Event> {
    let (dir, by) = (text("/repo"), text("ann"));
    let accepted = Event::ConfigAccepted { dir: dir.clone(), hash: "ab".repeat(32), by: by.clone(), via: text("run") };
    vec![accepted, Event::ConfigRevoked { dir, by }]
}

/// Additions of version 8: a requested delay can be ended, and a budget raised.
fn lifted() -> Vec<Event> {
    let scope = || Scope::Loop(LoopId::new("k3f9"));
    let budget = Some(Budget { calls: Some(9), tokens: None, microusd: Some(7_000_000) });
    vec![
        Event::Backoff { scope: scope(), until: AT, why: text("the agent requested a delay of 10m"), requested: true },
        Event::DelayLifted { scope: scope(), by: text("ann") },
        Event::Resumed { by: text("ann"), bounds: None, budget, keeps_clock: true },
    ]
}

/// All kinds, so that a new one does not compile before it has a name here and a line in a fixture.
fn kind(event: &Event) -> &'static str {
    match event {
        Event::LoopCreated { .. } => "loop_created",
        Event::SpecChanged { .. } => "spec_changed",
        Event::Baselined { .. } => "baselined",
        Event::Waiting { .. } => "waiting",
        Event::TurnStarted { .. } => "turn_started",
        Event::TurnExited { .. } => "turn_exited",
        Event::TurnJudged { .. } => "turn_judged",
        Event::TurnReturned { .. } => "turn_returned",
        Event::TurnEnded { .. } => "turn_ended",
        Event::Attached { .. } => "attached",
        Event::Detached { .. } => "detached",
        Event::Woken { .. } => "woken",
        Event::Paused { .. } => "paused",
        Event::Resumed { .. } => "resumed",
        Event::StopAsked { .. } => "stop_asked",
        Event::Steered { .. } => "steered",
        Event::WorkTaken { .. } => "work_taken",
        Event::Stopping { .. } => "stopping",
        Event::AgentSwitched { .. } => "agent_switched",
        Event::AgentRefused { .. } => "agent_refused",
        Event::PriceUnknown { .. } => "price_unknown",
        Event::Limited { .. } => "limited",
        Event::Cooldown { .. } => "cooldown",
        Event::Backoff { .. } => "backoff",
        Event::DelayLifted { .. } => "delay_lifted",
        Event::CliStarted { .. } => "cli_started",
        Event::Frozen { .. } => "frozen",
        Event::Released { .. } => "released",
        Event::Noticed { .. } => "noticed",
        Event::StrategyChanged { .. } => "strategy_changed",
        Event::TicketOpened { .. } => "ticket_opened",
        Event::TicketClosed { .. } => "ticket_closed",
        Event::Forgotten => "forgotten",
        Event::Ended { .. } => "ended",
        Event::Recovered { .. } => "recovered",
        Event::InSession { .. } => "in_session",
        Event::Immune { .. } => "immune",
        Event::Signalled { .. } => "signalled",
        Event::Keepalive { .. } => "keepalive",
        Event::ConfigAccepted { .. } => "config_accepted",
        Event::ConfigRevoked { .. } => "config_revoked",
        Event::Note { .. } => "note",
        Event::Experiment { .. } => "experiment",
        Event::Rhythm { .. } => "rhythm",
    }
}

const KINDS: usize = 42;

fn first() -> Vec<Event> {
    turns().into_iter().chain(others()).collect()
}

#[test]
fn every_event_of_version_1_is_read_as_it_was_meant() {
    let (events, lines) = (first(), VERSION_1.lines().collect::<Vec<_>>());
    assert_eq!(lines.len(), events.len());
    for (line, event) in lines.iter().zip(&events) {
        let read: Event = serde_json::from_str(line).expect("an old line stays readable");
        assert_eq!(read, *event);
    }
}

fn second() -> Vec<Event> {
    first().into_iter().chain(added()).collect()
}

#[test]
fn every_event_of_version_2_is_read_as_it_was_meant() {
    let (events, lines) = (second(), VERSION_2.lines().collect::<Vec<_>>());
    assert_eq!(lines.len(), events.len());
    for (line, event) in lines.iter().zip(&events) {
        let read: Event = serde_json::from_str(line).expect("an old line stays readable");
        assert_eq!(read, *event);
    }
}

#[test]
fn every_event_of_version_3_is_read_as_it_was_meant() {
    let (events, lines) = (third(), VERSION_3.lines().collect::<Vec<_>>());
    assert_eq!(lines.len(), events.len());
    for (line, event) in lines.iter().zip(&events) {
        let read: Event = serde_json::from_str(line).expect("an old line stays readable");
        assert_eq!(read, *event);
    }
}

fn third() -> Vec<Event> {
    second().into_iter().chain(added_later()).collect()
}

fn fourth() -> Vec<Event> {
    third().into_iter().chain(in_sessions()).collect()
}

#[test]
fn every_event_of_version_4_is_read_as_it_was_meant() {
    let (events, lines) = (fourth(), VERSION_4.lines().collect::<Vec<_>>());
    assert_eq!(lines.len(), events.len());
    for (line, event) in lines.iter().zip(&events) {
        let read: Event = serde_json::from_str(line).expect("an old line stays readable");
        assert_eq!(read, *event);
    }
}

fn fifth() -> Vec<Event> {
    fourth().into_iter().chain(immune_steps()).chain(watching()).collect()
}

#[test]
fn every_event_of_version_5_is_read_as_it_was_meant() {
    let (events, lines) = (fifth(), VERSION_5.lines().collect::<Vec<_>>());
    assert_eq!(lines.len(), events.len());
    for (line, event) in lines.iter().zip(&events) {
        let read: Event = serde_json::from_str(line).expect("an old line stays readable");
        assert_eq!(read, *event);
    }
}

fn sixth() -> Vec<Event> {
    fifth().into_iter().chain(strategy()).collect()
}

#[test]
fn every_event_of_version_6_is_read_as_it_was_meant() {
    let (events, lines) = (sixth(), VERSION_6.lines().collect::<Vec<_>>());
    assert_eq!(lines.len(), events.len());
    for (line, event) in lines.iter().zip(&events) {
        let read: Event = serde_json::from_str(line).expect("an old line stays readable");
        assert_eq!(read, *event);
    }
}

fn seventh() -> Vec<Event> {
    sixth().into_iter().chain(configuration()).collect()
}

#[test]
fn every_event_of_version_7_is_read_as_it_was_meant() {
    let (events, lines) = (seventh(), VERSION_7.lines().collect::<Vec<_>>());
    assert_eq!(lines.len(), events.len());
    for (line, event) in lines.iter().zip(&events) {
        let read: Event = serde_json::from_str(line).expect("an old line stays readable");
        assert_eq!(read, *event);
    }
}

fn eighth() -> Vec<Event> {
    seventh().into_iter().chain(lifted()).collect()
}

#[test]
fn every_event_of_version_8_is_read_as_it_was_meant() {
    let (events, lines) = (eighth(), VERSION_8.lines().collect::<Vec<_>>());
    assert_eq!(lines.len(), events.len());
    for (line, event) in lines.iter().zip(&events) {
        let read: Event = serde_json::from_str(line).expect("an old line stays readable");
        assert_eq!(read, *event);
    }
}

/// What version 9 added.
fn ninth_added() -> Vec<Event> {
    let limit =
        |class, reset_at| VendorLimit { rule: text("any.request"), class, reset_at, text: text("no such model") };
    let mut exit = exited(Some(StopCause::Announced));
    if let Event::TurnExited { exit, .. } = &mut exit {
        exit.report = Some(Box::new(TurnReport {
            announced: Some(limit(LimitClass::Rate, Some(AT))),
            error: Some(text("no such model")),
            request_id: Some(text("req_1")),
            rates: Some(Rates {
                prices: Prices { input: 5_000_000, output: 30_000_000, cache_read: 500_000, cache_write: 5_000_000 },
                as_of: Some(text("2026-11")),
            }),
            ..TurnReport::default()
        }));
    }
    let spend = Spend { calls: 1, tokens: 1500, microusd: 7500 };
    let settled = Settled { spend, estimated: true, tokens_exact: true, ..Settled::default() };
    let priced = Event::TurnEnded { turn: turn(), outcome: Outcome::NotYet, settled, work: None, integrated: None };
    vec![
        Event::WorkTaken { by: text("ann"), commit: text("c0ffee") },
        Event::CliStarted {
            scopes: vec![Scope::All, Scope::Loop(LoopId::new("k3f9"))],
            agent: text("claude"),
            by: text("turn k3f9-1.1"),
        },
        Event::InSession {
            session: text("27832923"),
            name: text("main"),
            did: SessionAct::NotHeld { failing: vec![text("unit")] },
        },
        Event::AgentRefused {
            agent: text("claude"),
            account: text("default/claude"),
            limit: limit(LimitClass::Request, None),
        },
        exit,
        Event::Attached { by: text("run") },
        Event::Detached { by: text("ann") },
        Event::Forgotten,
        Event::PriceUnknown { agent: text("codex"), model: text("gpt-99") },
        priced,
    ]
}

#[test]
fn every_event_of_version_9_is_read_as_it_was_meant_and_written_as_it_was_written() {
    let events: Vec<Event> = eighth().into_iter().chain(ninth_added()).collect();
    let lines: Vec<&str> = VERSION_9.lines().collect();
    assert_eq!(lines.len(), events.len());
    for (line, event) in lines.iter().zip(&events) {
        let read: Event = serde_json::from_str(line).expect("an old line stays readable");
        assert_eq!(read, *event);
        assert_eq!(serde_json::to_string(event).expect("events have a JSON form"), *line);
        assert!(line.starts_with(&format!("{{\"event\":\"{}\"", kind(event))), "{line}");
    }
    let kinds: BTreeSet<&str> = events.iter().map(kind).collect();
    assert_eq!(kinds.len(), KINDS, "every kind has a line");
}

/// Additions of version 10: experiments of a research run.
fn tenth_added() -> Vec<Event> {
    let sample = |value| Sample { result: Measured::Value { value, others: BTreeMap::new() }, millis: 120 };
    let row = |number, status, value: Option<f64>| Row {
        commit: Some(text("c0ffee")),
        base: Some(text("badcafe")),
        value,
        delta: value.map(|_| -0.5),
        samples: value.into_iter().collect(),
        guard: Some(true),
        description: text("unroll the loop"),
        why: text("better than the champion"),
        millis: 1500,
        agent: text("claude"),
        microusd: 20_000,
        others: BTreeMap::from([(text("size"), 10.0)]),
        fixes: 1,
        plan: Some(2),
        hash: Some(77),
        luck: 0.25,
        ..Row::new(number, status, TaskId::new("k3f9-2"), AT)
    };
    let experiment = |step| Event::Experiment { step: Box::new(step) };
    let seed = || Box::new(ResearchState { number: 4, ends_after: Some(5), ..ResearchState::default() });
    let judged = Judgement {
        changed: true,
        experiment: Some(Box::new(Inspection {
            description: text("unroll the loop"),
            hash: Some(77),
            added: 3,
            removed: 1,
            scope: 40,
            sample: Some(sample(9.5)),
        })),
        ..Judgement::default()
    };
    vec![
        experiment(ExperimentStep::Baseline {
            samples: vec![sample(10.0)],
            row: Box::new(row(0, Status::Baseline, Some(10.0))),
        }),
        Event::TurnJudged { turn: turn(), judgement: judged },
        experiment(ExperimentStep::Measured { subject: Contender::Champion, sample: sample(10.5) }),
        experiment(ExperimentStep::Measured {
            subject: Contender::Candidate,
            sample: Sample { result: Measured::Timeout { limit_ms: 11_000 }, millis: 11_000 },
        }),
        experiment(ExperimentStep::Crashed {
            commit: text("c0ffee"),
            kind: CrashKind::Runtime,
            text: text("IndexError"),
            plan: Some(2),
            millis: 900,
            microusd: 10_000,
        }),
        experiment(ExperimentStep::Decided { row: Box::new(row(1, Status::Keep, Some(9.5))) }),
        experiment(ExperimentStep::Decided { row: Box::new(row(2, Status::Crash, None)) }),
        experiment(ExperimentStep::Branched { from: 1 }),
        experiment(ExperimentStep::Seeded { research: seed() }),
        experiment(ExperimentStep::Calibrated { samples: vec![sample(10.0)] }),
        experiment(ExperimentStep::Replayed { onto: text("badcafe"), judgement: Box::new(Judgement::default()) }),
        Event::TurnEnded {
            turn: turn(),
            outcome: Outcome::Discarded { why: text("not better than the champion") },
            settled: Settled::default(),
            work: None,
            integrated: None,
        },
    ]
}

#[test]
fn every_event_that_version_10_added_is_read_as_it_was_meant_and_written_as_it_was_written() {
    let written: Vec<String> =
        tenth_added().iter().map(|event| serde_json::to_string(event).expect("events have a JSON form")).collect();
    assert_eq!(VERSION_10.lines().collect::<Vec<_>>(), written);
    for (line, event) in VERSION_10.lines().zip(tenth_added()) {
        assert_eq!(serde_json::from_str::<Event>(line).expect("an old line stays readable"), event);
        assert!(line.starts_with(&format!("{{\"event\":\"{}\"", kind(&event))), "{line}");
    }
    let young = r#"{"event":"experiment","step":{"is":"crashed","commit":"c0ffee","kind":"runtime","text":"x"}}"#;
    assert!(serde_json::from_str::<Event>(young).is_ok(), "without what its turn took");
}

/// Later fields are not written while they are empty, so a version 2 without them is the same
/// version.
#[test]
fn telemetry_is_written_only_where_there_is_any() {
    let used = Usage { input: 11, microusd: Some(884), ..Usage::default() };
    let heard = TurnReport { telemetry: Some(used), ..TurnReport::default() };
    let line = serde_json::to_string(&heard).expect("reports have a JSON form");
    let said = r#""telemetry":{"input":11,"output":0,"cache_read":0,"cache_write":0,"microusd":884}"#;
    assert!(line.contains(said), "{line}");
    assert_eq!(serde_json::from_str::<TurnReport>(&line).expect("it was just written"), heard);
    let settled = Settled { source: everloop_core::telemetry::UsageSource::Telemetry, ..Settled::default() };
    let line = serde_json::to_string(&settled).expect("it has a JSON form");
    assert!(line.contains(r#""source":"telemetry""#), "{line}");
    assert_eq!(serde_json::from_str::<Settled>(&line).expect("it was just written"), settled);
    let off = AgentSpec { telemetry: everloop_core::spec::Telemetry::Off, ..AgentSpec::default() };
    let line = serde_json::to_string(&off).expect("it has a JSON form");
    assert!(line.contains(r#""telemetry":"off""#), "{line}");
    assert_eq!(serde_json::from_str::<AgentSpec>(&line).expect("it was just written"), off);
}

#[test]
fn who_says_it_and_until_when_is_written_only_where_it_matters() {
    let mail = Event::Steered { by: text("agent x"), message: text("hello"), trust: Trust::Agent };
    let nap = Event::Paused { by: text("agent x"), reason: text("CI runs"), until: Some(AT) };
    for (event, said) in [(mail, r#""trust":"agent""#), (nap, r#""until":"#)] {
        let line = serde_json::to_string(&event).expect("events have a JSON form");
        assert!(line.contains(said), "{line}");
        assert_eq!(serde_json::from_str::<Event>(&line).expect("it was just written"), event);
    }
}

#[test]
fn a_sign_of_being_complete_is_read_as_it_was_written() {
    let did = SessionAct::LooksComplete { rule: text("plan"), text: text("no open box") };
    let event = Event::InSession { session: text("27832923"), name: text("main"), did };
    let line = r#"{"event":"in_session","session":"27832923","name":"main","did":{"did":"looks_complete","rule":"plan","text":"no open box"}}"#;
    assert_eq!(serde_json::to_string(&event).expect("events have a JSON form"), line);
    assert_eq!(serde_json::from_str::<Event>(line).expect("an old line stays readable"), event);
}
