//! Files of every released format are read back exactly.
//!
//! `tests/fixtures/ledger-N.sql` is a dump of what the everloop with format N stored for
//! [`batches`]; a shipped one is never edited. For a new format run the last test below and
//! `sqlite3 FILE .dump`, and add `PRAGMA user_version = N;`.

use std::path::Path;
use std::time::Duration;

use everloop_core::event::{Event, LoopEnd};
use everloop_core::guard::{Backing, Bucket, Cooling, GuardState, Scope, Spend};
use everloop_core::ids::{Fence, LoopId, NodeId, TaskId, TurnId};
use everloop_core::isolation::IsolationSpec;
use everloop_core::op::{Amendment, NewTask, Op, TaskEnd, Trust};
use everloop_core::spec::{
    AgentSpec, Bounds, Budget, CheckSpec, GuardSpec, Integrate, LoopSpec, StartCaps, WorkspaceMode, WorkspaceSpec,
};
use everloop_core::time::Time;
use everloop_core::watch::WatchSpec;
use everloop_store::{Ledger, Model, OpenMode, Sqlite};

use crate::postgres::hub;
use crate::story::compare;

fn spec() -> LoopSpec {
    LoopSpec {
        goal: "all tests pass".into(),
        checks: vec![CheckSpec {
            name: "tests".into(),
            run: "cargo test".into(),
            timeout: Duration::from_secs(600),
            weight: 2,
            pin: "abc".into(),
            proof: everloop_core::test_evidence::Proof::default(),
            parallel: false,
        }],
        agent: AgentSpec {
            name: "claude".into(),
            argv: vec!["claude".into(), "-p".into(), "{prompt}".into()],
            pass_env: vec!["HOME".into()],
            account: "main".into(),
            turn_microusd: 250_000,
            turn_tokens: 100_000,
            ..AgentSpec::default()
        },
        others: Vec::new(),
        workspace: WorkspaceSpec {
            dir: "/home/me/it's".into(),
            mode: WorkspaceMode::Git { target: "refs/heads/main".into() },
            integrate: Integrate::Progress,
            setup: Some("npm ci".into()),
            include_dirty: false,
            protect: vec!["tests/**".into()],
            judge: everloop_core::judge_files::JudgeFiles::default(),
            cache: Vec::new(),
            author: everloop_core::spec::CommitAuthor::Everloop,
            origin: None,
        },
        bounds: Bounds { max_turns: Some(9), max_time: Some(Duration::from_secs(3600)), deadline: Some(Time(99)) },
        guard: GuardSpec {
            // The defaults at the time; a later change of them must not change the meaning of the
            // file.
            caps: StartCaps { per_minute: Some(4), per_hour: Some(100), per_day: Some(1000) },
            budget: Budget { calls: Some(5), tokens: None, microusd: None },
            ..GuardSpec::default()
        },
        watch: WatchSpec::default(),
        isolation: IsolationSpec::default(),
        research: None,
        persona: None,
        routes: Vec::new(),
    }
}

fn task(id: &str, owner: Option<&str>, deps: &[&str]) -> Op {
    Op::Enqueue(NewTask {
        id: TaskId::new(id),
        owner: owner.map(LoopId::new),
        kind: "batch".into(),
        title: "fix the \"thing\"".into(),
        prompt: "do\nit, für uns".into(),
        priority: -1,
        deps: deps.iter().map(|id| TaskId::new(*id)).collect(),
        author: "me".into(),
        trust: if owner.is_some() { Trust::Operator } else { Trust::Agent },
        ready_at: Time(5),
    })
}

fn guard() -> GuardState {
    let mut state = GuardState {
        cooling: Some(Cooling { until: Time(70), level: 2 }),
        backing: Some(Backing { until: Time(60), why: "failure".into(), requested: false }),
        last_start: Some(Time(10)),
        spent: Spend { calls: 1, tokens: 2, microusd: 3 },
        deaths: vec![Time(8), Time(9)],
        bucket: Some(Bucket { millistarts: 1500, at: Time(10) }),
        ..GuardState::default()
    };
    state.starts.add(Time(10));
    state.reserved.insert(TurnId::of(&TaskId::new("k3f9-1"), Fence(1)), Spend { calls: 1, tokens: 100, microusd: 7 });
    state
}

/// A row of everything that is stored in format 1.
fn batches() -> Vec<(Time, Vec<Op>)> {
    let (owner, node, lease) = (LoopId::new("k3f9"), NodeId::new("box"), Duration::from_secs(90));
    let id = |text: &str| TaskId::new(text);
    let take = |text, fence| Op::Take { task: id(text), fence: Fence(fence), node: node.clone(), lease };
    let finish = |text, fence, state| Op::Finish { task: id(text), fence: Fence(fence), state, result: "é".into() };
    let save = |version| Op::SaveLoop { id: owner.clone(), version, phase: "ready".into(), state: "{\"a\":1}".into() };
    let created = Event::LoopCreated { name: "tests".into(), spec: Box::new(spec()) };
    let ended = Event::Ended { ending: LoopEnd::Reached };
    let signal = |to: &str| Op::Signal { to: to.into(), by: "me".into(), body: "{}".into() };
    let ticket = |key: &str| Op::OpenTicket { key: key.into(), owner: Some(owner.clone()), text: "look".into() };
    vec![
        (Time(1), vec![task("k3f9-1", Some("k3f9"), &[]), task("t1", None, &[]), task("t2", None, &["t1", "k3f9-1"])]),
        (Time(2), vec![task("t3", None, &[]), task("t4", None, &[]), take("k3f9-1", 1), take("t1", 1), take("t3", 1)]),
        (Time(3), vec![finish("k3f9-1", 1, TaskEnd::Done), finish("t3", 1, TaskEnd::Dead)]),
        (Time(4), vec![Op::Release { task: id("t1"), fence: Fence(1), ready_at: Time(80), failed: true }]),
        (Time(5), vec![take("t1", 2), Op::Amend { task: id("t4"), change: Amendment::Block }]),
        (Time(6), vec![Op::Shelve { task: id("t1"), fence: Fence(1), result: "late".into() }]),
        (Time(7), vec![Op::Heartbeat { node: node.clone(), info: "1.0".into() }, Op::Elect { node, lease }]),
        (Time(8), vec![Op::SaveGuard { scope: Scope::Account("main".into()), version: 0, state: Box::new(guard()) }]),
        (Time(9), vec![save(0), save(1), signal("*"), signal("k3f9"), Op::Consume { ids: vec![1] }]),
        (Time(10), vec![ticket("a"), ticket("b"), Op::CloseTicket { key: "a".into(), answer: "ok".into() }]),
        (Time(11), vec![Op::Append { owner: Some(owner), events: vec![created] }]),
        (Time(12), vec![Op::Append { owner: None, events: vec![Event::Note { text: "n".into() }, ended] }]),
    ]
}

/// Additions of format 2.
fn documents() -> Vec<(Time, Vec<Op>)> {
    let save = |key: &str, version| Op::SaveDoc {
        kind: "session".into(),
        key: key.into(),
        version,
        body: "{\"für\":1}".into(),
    };
    vec![(Time(13), vec![save("a", 0), save("b", 0)]), (Time(14), vec![save("a", 1)])]
}

fn tell(ledger: &mut dyn Ledger, batches: Vec<(Time, Vec<Op>)>) {
    for (now, ops) in batches {
        ledger.transact(now, &ops).unwrap();
    }
}

#[test]
fn format_1_is_read_back_exactly() {
    reads_back(include_str!("../fixtures/ledger-1.sql"), batches());
}

#[test]
fn format_2_is_read_back_exactly() {
    reads_back(include_str!("../fixtures/ledger-2.sql"), all());
}

fn all() -> Vec<(Time, Vec<Op>)> {
    batches().into_iter().chain(documents()).collect()
}

fn reads_back(dump: &str, told: Vec<(Time, Vec<Op>)>) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ledger.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch(dump).unwrap();
    let mut expected = Model::default();
    tell(&mut expected, told);
    for mode in [OpenMode::ReadWrite, OpenMode::ReadOnly] {
        let ledgers: [Box<dyn Ledger>; 2] = [Box::new(expected.clone()), Box::new(Sqlite::open(&path, mode).unwrap())];
        compare(&ledgers, 100);
    }
}

/// Also leaves the file from which the fixture of a new format is dumped.
#[test]
fn what_is_written_now_is_read_back_exactly() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ledger.db");
    for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm"] {
        std::fs::remove_file(path.with_file_name(name)).ok();
    }
    let mut written = Sqlite::open(&path, OpenMode::ReadWrite).unwrap();
    tell(&mut written, all());
    let mut told = hub();
    tell(&mut told, all());
    let mut expected = Model::default();
    tell(&mut expected, all());
    let ledgers: [Box<dyn Ledger>; 3] = [Box::new(expected), Box::new(written), Box::new(told)];
    compare(&ledgers, 100);
}
