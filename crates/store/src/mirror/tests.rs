//! A ledger is mirrored, lost, damaged and restored.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use everloop_core::event::Event;
use everloop_core::guard::{GuardState, Scope};
use everloop_core::ids::{Fence, LoopId, NodeId, TaskId};
use everloop_core::op::{NewTask, Op, TaskEnd, Trust};
use everloop_core::time::Time;
use serde_json::json;

use super::change::crash;
use super::follow::files_below;
use super::*;
use crate::{Ledger, Recipients, Sqlite, Tickets};

const SCORES: Scores = Scores { of_loop: |row| Some(json!({ "id": row.id, "phase": row.phase })), of_doc: |_, _| None };

/// A signed document: its exact text counts, and its names are in no order.
fn sealed() -> String {
    format!("{{\"z\":1,\"a\":2,\"seal\":{{\"key\":\"{}\",\"signature\":\"00\"}}}}", "ab".repeat(32))
}

fn task(id: &str) -> Op {
    Op::Enqueue(NewTask {
        id: TaskId::new(id),
        owner: Some(LoopId::new("k3f9")),
        kind: "batch".to_owned(),
        title: "größer\n".to_owned(),
        prompt: "\u{0}\u{1} as it is".to_owned(),
        priority: 1,
        deps: vec![],
        author: "me".to_owned(),
        trust: Trust::Operator,
        ready_at: Time(5),
    })
}

fn note(text: &str) -> Op {
    Op::Append { owner: Some(LoopId::new("k3f9")), events: vec![Event::Note { text: text.to_owned() }] }
}

fn take(id: &str) -> Op {
    let lease = Duration::from_secs(90);
    Op::Take { task: TaskId::new(id), fence: Fence(1), node: NodeId::new("n"), lease }
}

fn save(version: u64) -> Op {
    let state = format!("{{\"n\":{version}}}");
    Op::SaveLoop { id: LoopId::new("k3f9"), version, phase: "running".to_owned(), state }
}

/// A ledger with a row of every kind.
fn ledger() -> Sqlite {
    let mut ledger = Sqlite::in_memory().unwrap();
    let finish = |id: &str| Op::Finish {
        task: TaskId::new(id),
        fence: Fence(1),
        state: TaskEnd::Done,
        result: "done".to_owned(),
    };
    let batch = [
        task("k3f9-1"),
        task("k3f9-2"),
        task("../a b"),
        task("k3f9-3"),
        take("k3f9-1"),
        finish("k3f9-1"),
        take("k3f9-2"),
        Op::Shelve { task: TaskId::new("k3f9-1"), fence: Fence(1), result: "late".to_owned() },
        save(0),
        Op::SaveDoc { kind: "immune".to_owned(), key: "all".to_owned(), version: 0, body: "{\"a\":[1.5]}".to_owned() },
        Op::SaveDoc { kind: "plain".to_owned(), key: String::new(), version: 0, body: "no JSON".to_owned() },
        Op::SaveDoc { kind: "sealed".to_owned(), key: String::new(), version: 0, body: sealed() },
        Op::SaveGuard { scope: Scope::All, version: 0, state: Box::new(GuardState::default()) },
        Op::Signal { to: "*".to_owned(), by: "me".to_owned(), body: "{}".to_owned() },
        Op::OpenTicket { key: "k".to_owned(), owner: None, text: "what now?".to_owned() },
        note("one"),
    ];
    ledger.transact(Time(1_700_000_000_000), &batch).unwrap();
    ledger
}

/// Further changes of the ledger.
fn go_on(ledger: &mut Sqlite) {
    let batch = [
        take("k3f9-3"),
        Op::Release { task: TaskId::new("k3f9-2"), fence: Fence(1), ready_at: Time(9), failed: true },
        Op::Shelve { task: TaskId::new("k3f9-1"), fence: Fence(1), result: "later".to_owned() },
        Op::CloseTicket { key: "k".to_owned(), answer: "this".to_owned() },
        save(1),
        note("two"),
    ];
    // A day later: another log file.
    ledger.transact(Time(1_700_086_400_000), &batch).unwrap();
}

/// All rows of a ledger, in the order of a mirror.
fn rows(ledger: &Sqlite) -> Rows {
    let mut tasks: Vec<TaskRow> = Vec::new();
    for folder in ["claimed", "completed", "pending"] {
        let mut marks: Vec<TaskMark> = ledger.task_marks(10).unwrap();
        marks.retain(|task| task.folder == folder);
        marks.sort_by_key(|task| name_of(task.id.as_str()));
        tasks.extend(marks.iter().map(|task| ledger.task(&task.id).unwrap().unwrap()));
    }
    Rows {
        loops: ledger.loops().unwrap(),
        late_results: tasks.iter().flat_map(|task| ledger.late_results(&task.task.id).unwrap()).collect(),
        tasks,
        guards: ledger.guards().unwrap(),
        docs: ["immune", "plain", "sealed"]
            .iter()
            .flat_map(|kind| ledger.docs(kind).unwrap().into_iter().map(|doc| ((*kind).to_owned(), doc)))
            .collect(),
        messages: ledger.messages(Recipients::All, 10).unwrap(),
        tickets: ledger.tickets(Tickets::Newest(10)).unwrap(),
        journal: ledger.journal_raw(0, 100).unwrap(),
        leader: None,
    }
}

fn all_files(root: &Path) -> Vec<String> {
    files_below(root, ".")
}

fn copy(from: &Path, to: &Path) {
    for path in all_files(from) {
        let target = to.join(&path);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(from.join(&path), target).unwrap();
    }
}

#[test]
fn what_is_mirrored_comes_back_equal() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("mirror");
    let mut ledger = ledger();
    let mut mirror = Mirror::open(&root, None).unwrap();
    let first = mirror.pass(&ledger, SCORES).unwrap();
    assert!(first.changed > 10 && first.kept_aside.is_none(), "{first:?}");
    assert_eq!(mirror.pass(&ledger, SCORES).unwrap().changed, 0, "nothing changed, nothing is written");
    go_on(&mut ledger);
    assert!(mirror.pass(&ledger, SCORES).unwrap().changed > 0);
    let found = found(&root).unwrap();
    assert_eq!(found.lost, []);
    assert_eq!(found.rows, rows(&ledger));
    assert!(found.journal_is_whole);
    let mut new = Sqlite::in_memory().unwrap();
    assert!(new.restore(&found.rows).unwrap());
    assert_eq!(rows(&new), rows(&ledger));
    assert_eq!(crate::replay::replay(&new, |_| {}).unwrap(), 2);
    assert!(!new.restore(&found.rows).unwrap(), "a ledger that holds something is left alone");
    // A restarted writer finds everything up to date.
    assert_eq!(Mirror::open(&root, None).unwrap().pass(&ledger, SCORES).unwrap(), Passed::default());
    // So does a writer on the restored ledger.
    assert_eq!(Mirror::open(&root, None).unwrap().pass(&new, SCORES).unwrap(), Passed::default());
    let names = all_files(&root);
    for name in ["log/2023-11-14.jsonl", "log/2023-11-15.jsonl", "queue/pending/%2e.%2fa%20b.json", "scoreboard.json"] {
        assert!(names.contains(&format!("./{name}")), "{name} in {names:?}");
    }
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert!(names.iter().all(|path| mode(&root.join(path)) == 0o600));
    assert_eq!((mode(&root), mode(&root.join("queue/pending"))), (0o700, 0o700));
}

#[test]
fn a_crash_at_any_step_leaves_the_moment_before_or_the_moment_after() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = ledger();
    let start = dir.path().join("start");
    Mirror::open(&start, None).unwrap().pass(&ledger, SCORES).unwrap();
    let before = found(&start).unwrap();
    go_on(&mut ledger);
    let after = rows(&ledger);
    let (mut old, mut new) = (0, 0);
    for steps in 0.. {
        let root = dir.path().join(format!("at-{steps}"));
        copy(&start, &root);
        let mut mirror = Mirror::open(&root, None).unwrap();
        crash::after(Some(steps));
        let passed = mirror.pass(&ledger, SCORES);
        crash::after(None);
        let found_now = found(&root).unwrap();
        assert_eq!(found_now.lost, [], "after {steps} steps");
        if found_now.rows == before.rows {
            old += 1;
        } else {
            assert_eq!(found_now.rows, after, "after {steps} steps");
            new += 1;
        }
        Mirror::open(&root, None).unwrap().pass(&ledger, SCORES).unwrap();
        assert_eq!(found(&root).unwrap().rows, after, "the next one mends it");
        assert!(!all_files(&root).iter().any(|path| path.ends_with("pending.json")));
        if passed.is_ok() {
            break;
        }
    }
    assert!(old > 1 && new > 20, "{old} {new}");
}

#[test]
fn flipped_bits_and_cut_off_files_are_refused_by_name_and_no_wrong_row_is_believed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("mirror");
    let mut ledger = ledger();
    let mut mirror = Mirror::open(&root, None).unwrap();
    mirror.pass(&ledger, SCORES).unwrap();
    go_on(&mut ledger);
    mirror.pass(&ledger, SCORES).unwrap();
    let truth = rows(&ledger);
    let mut seed = 7_u64;
    let mut random = move |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    let mut refused = 0;
    for round in 0..1_200 {
        let names = all_files(&root);
        let path = root.join(&names[random(names.len())]);
        let whole = fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        match round % 3 {
            0 => bytes.truncate(random(bytes.len())),
            1 => bytes[random(whole.len())] ^= 1 << random(8),
            _ => (0..5).for_each(|_| bytes[random(whole.len())] = random(256) as u8),
        }
        fs::write(&path, &bytes).unwrap();
        let MirrorContents { rows, lost, .. } = found(&root).unwrap();
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        assert!(rows.loops.iter().all(|row| truth.loops.contains(row)), "{name}");
        assert!(rows.tasks.iter().all(|row| truth.tasks.contains(row)), "{name}");
        assert!(rows.late_results.iter().all(|row| truth.late_results.contains(row)), "{name}");
        assert!(rows.docs.iter().all(|row| truth.docs.contains(row)), "{name}");
        assert!(rows.tickets.iter().all(|row| truth.tickets.contains(row)), "{name}");
        assert!(rows.messages.iter().all(|row| truth.messages.contains(row)), "{name}");
        assert!(rows.journal.iter().all(|row| truth.journal.contains(row)), "{name}");
        let told = !lost.is_empty() || rows == truth;
        assert!(told, "round {round}: {name} is damaged, and no refusal names it");
        refused += usize::from(!lost.is_empty());
        fs::write(&path, &whole).unwrap();
    }
    assert!(refused > 1_000, "{refused}");
}

#[test]
fn files_of_another_ledger_are_kept_aside_and_never_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("mirror");
    let old = ledger();
    Mirror::open(&root, None).unwrap().pass(&old, SCORES).unwrap();
    let mut new = Sqlite::in_memory().unwrap();
    let kept = Mirror::open(&root, None).unwrap().pass(&new, SCORES).unwrap().kept_aside.expect("it is not its mirror");
    assert_eq!(kept, dir.path().join("mirror.kept-1"));
    assert_eq!(found(&kept).unwrap().rows, rows(&old));
    new.transact(Time(1), &[note("a new life")]).unwrap();
    Mirror::open(&root, None).unwrap().pass(&new, SCORES).unwrap();
    assert_eq!(found(&root).unwrap().rows, rows(&new));
    // Without the file that names their mirror the files cannot be attributed.
    fs::write(root.join("mirror.json"), "{}").unwrap();
    let kept = Mirror::open(&root, None).unwrap().pass(&new, SCORES).unwrap().kept_aside;
    assert_eq!(kept, Some(dir.path().join("mirror.kept-2")));
}

#[test]
fn a_file_under_another_name_or_of_another_mirror_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (root, other) = (dir.path().join("mirror"), dir.path().join("other"));
    Mirror::open(&root, None).unwrap().pass(&ledger(), SCORES).unwrap();
    Mirror::open(&other, None).unwrap().pass(&ledger(), SCORES).unwrap();
    fs::rename(root.join("loops/k3f9.json"), root.join("loops/zzzz.json")).unwrap();
    fs::copy(other.join("tickets.json"), root.join("tickets.json")).unwrap();
    fs::copy(root.join("queue/completed/k3f9-1.json"), root.join("queue/pending/k3f9-1.json")).unwrap();
    let found_now = found(&root).unwrap();
    let lost: Vec<&str> = found_now.lost.iter().map(|lost| lost.what.as_str()).collect();
    assert_eq!(
        lost,
        ["loops/zzzz.json", "queue/completed/k3f9-1.json", "queue/pending/k3f9-1.json", "tickets.json"],
        "{:?}",
        found_now.lost
    );
    assert_eq!(found_now.rows.tasks.len(), 3);
    fs::remove_file(root.join("mirror.json")).unwrap();
    assert!(matches!(found(&root), Err(MirrorError::Mixed { .. })), "it is unknown which of the two counts");
    assert!(matches!(found(dir.path()), Err(MirrorError::None { .. })));
}

#[test]
fn of_finished_tasks_the_newest_are_kept_and_all_of_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("mirror");
    let mut ledger = Sqlite::in_memory().unwrap();
    for number in 0..COMPLETED_MOST + 2 {
        let id = format!("t-{number}");
        let (state, result) = (TaskEnd::Done, String::new());
        let finish = Op::Finish { task: TaskId::new(&id), fence: Fence(1), state, result };
        let at = Time(i64::try_from(number).unwrap() + 10);
        ledger.transact(at, &[task(&id), take(&id), finish, note(&id)]).unwrap();
    }
    Mirror::open(&root, None).unwrap().pass(&ledger, SCORES).unwrap();
    assert_eq!(files_below(&root, "queue/completed").len(), COMPLETED_MOST);
    let is_there = |number: usize| root.join(format!("queue/completed/t-{number}.json")).exists();
    assert!(!is_there(0) && !is_there(1) && is_there(2) && is_there(COMPLETED_MOST + 1));
    assert_eq!(found(&root).unwrap().rows.journal.len(), COMPLETED_MOST + 2);
}

#[test]
fn a_journal_with_a_hole_is_numbered_anew_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("mirror");
    let mut ledger = ledger();
    go_on(&mut ledger);
    Mirror::open(&root, None).unwrap().pass(&ledger, SCORES).unwrap();
    fs::remove_file(root.join("log/2023-11-14.jsonl")).unwrap();
    let found_now = found(&root).unwrap();
    assert_eq!(found_now.lost[0].what, "journal records 1 to 1");
    let mut rows = found_now.rows.clone();
    rows.journal = found_now.mended_journal(Time(9));
    let mut new = Sqlite::in_memory().unwrap();
    new.restore(&rows).unwrap();
    let mut told = Vec::new();
    crate::replay::replay(&new, |record| told.push(record.event)).unwrap();
    let note = |text: &str| Event::Note { text: text.to_owned() };
    let lost = "1 records of the journal were lost here with the ledger";
    assert_eq!(told[..2], [note(lost), note("two")]);
}
