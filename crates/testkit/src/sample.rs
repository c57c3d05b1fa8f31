//! States to print in tests. One builder, so that a test is three lines.

use std::time::Duration;

use everloop_core::event::Outcome;
use everloop_core::guard::{Permit, Spend};
use everloop_core::ids::{Fence, LoopId, TaskId, TurnId};
use everloop_core::isolation::IsolationSpec;
use everloop_core::scoreboard::{CheckResult, Scoreboard, Verdict};
use everloop_core::spec::{AgentSpec, Bounds, GuardSpec, Integrate, LoopSpec, WorkspaceMode, WorkspaceSpec};
use everloop_core::state::{LoopState, Phase, Try, Turn, TurnStage};
use everloop_core::telemetry::UsageSource;
use everloop_core::time::Time;
use everloop_core::watch::WatchSpec;

/// A point in time for tests: 2026-11-15 21:00:00 UTC.
pub const START: Time = Time(1_794_776_400_000);

/// The result of a check that ran for so many milliseconds and printed nothing.
pub fn check_result(name: String, verdict: Verdict, millis: u64) -> CheckResult {
    CheckResult { name, verdict, weight: 1, millis, output: String::new(), fingerprint: 0, reference: None }
}

pub fn board(rows: &[(&str, Verdict)]) -> Scoreboard {
    let row = |(name, verdict): &(&str, Verdict)| check_result((*name).to_owned(), verdict.clone(), 1234);
    Scoreboard(rows.iter().map(row).collect())
}

/// A loop with two checks, one of which passes, after its baseline.
pub fn state() -> LoopState {
    let before = board(&[("build", Verdict::Pass), ("unit tests", Verdict::Fail)]);
    let mut state = LoopState::new(LoopId::new("k3f9"), "tests".to_owned(), spec(), START);
    state.phase = Phase::Ready;
    state.progress.baseline = Some(before.clone());
    state.progress.board = before.clone();
    state.progress.landed = before;
    state.progress.work = Some("0123456789abcdef".to_owned());
    state.spend.estimated = true;
    state
}

/// The settings of that loop.
pub fn spec() -> LoopSpec {
    LoopSpec {
        goal: "make the unit tests pass".to_owned(),
        checks: Vec::new(),
        agent: AgentSpec {
            name: "my-agent".to_owned(),
            argv: vec!["my-agent".to_owned()],
            pass_env: Vec::new(),
            account: "default".to_owned(),
            turn_microusd: 100_000,
            turn_tokens: 0,
            ..AgentSpec::default()
        },
        others: Vec::new(),
        workspace: WorkspaceSpec {
            dir: "/home/me/project".to_owned(),
            mode: WorkspaceMode::Git { target: "refs/heads/main".to_owned() },
            integrate: Integrate::Progress,
            setup: None,
            include_dirty: false,
            protect: Vec::new(),
            judge: everloop_core::judge_files::JudgeFiles::default(),
            cache: Vec::new(),
            author: everloop_core::spec::CommitAuthor::Everloop,
            origin: None,
        },
        bounds: Bounds { max_turns: Some(10), ..Bounds::default() },
        guard: GuardSpec::default(),
        watch: WatchSpec::default(),
        isolation: IsolationSpec::default(),
        research: None,
        persona: None,
        routes: Vec::new(),
    }
}

/// A turn that is running since `START`.
pub fn turn(number: u32) -> Turn {
    let task = TaskId::new(format!("k3f9-{number}"));
    Turn {
        id: TurnId::of(&task, Fence(1)),
        task,
        fence: Fence(1),
        number,
        started_at: START,
        permit: Permit { scopes: Vec::new(), reserve: Spend::default(), canary: None, bucket: None },
        stage: TurnStage::Running,
        stopping: None,
        exit: None,
        judgement: None,
        returned: 0,
        told: 0,
        agent: "my-agent".to_owned(),
        account: "default".to_owned(),
        resume: None,
        chosen: None,
        used: None,
        source: UsageSource::Stream,
        measured: Vec::new(),
    }
}

/// A turn that is over.
pub fn tried(number: u32, outcome: Outcome) -> Try {
    let pinned = matches!(outcome, Outcome::Refused { .. } | Outcome::Regressed { .. });
    Try {
        turn: TurnId::of(&TaskId::new(format!("k3f9-{number}")), Fence(1)),
        number,
        outcome,
        diffstat: "2 files, +14 -3".to_owned(),
        pin: pinned.then(|| format!("refs/everloop/k3f9/{number}.1")),
        passing: Vec::new(),
        fingerprint: 0,
        took: Duration::from_secs(65),
        exit: "exit 0".to_owned(),
        last_line: "all done".to_owned(),
        agent: "my-agent".to_owned(),
        chosen: None,
        doubts: Vec::new(),
    }
}
