//! Intents of outside agents: good ones once, bad ones never, and nothing else is touched.

use everloop_core::entry::OPEN_MOST;
use everloop_store::{Model, Recipients, TaskFilter, TaskOwner};
use tempfile::TempDir;

use super::*;

const NOW: Time = Time(1_000);

struct World {
    folder: TempDir,
    ledger: Model,
}

impl World {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), ledger: Model::default() }
    }

    fn leave(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).expect("the folder is ours");
    }

    fn take(&mut self) -> Round {
        take(&mut self.ledger, self.folder.path(), NOW).expect("the folder can be read")
    }

    fn rows(&self) -> Vec<TaskRow> {
        let all = TaskFilter { owner: TaskOwner::Any, states: vec![], limit: 10_000 };
        let mut rows = self.ledger.tasks(&all).expect("the model can be read");
        rows.retain(|row| row.task.kind != KIND);
        rows
    }

    fn reason(&self, name: &str) -> String {
        let path = self.folder.path().join("rejected").join(format!("{name}.reason.txt"));
        fs::read_to_string(path).unwrap_or_else(|e| panic!("{name}: {e}"))
    }
}

#[test]
fn a_task_goes_through_its_life_by_files_alone() {
    let mut world = World::new();
    world.leave("a.json", r#"{"intent":"add","title":"port  the\nparser","prompt":"mind x","priority":3,"by":"ann"}"#);
    assert_eq!(world.take(), Round { applied: 1, ..Round::default() });
    let row = world.rows().remove(0);
    assert_eq!((row.task.title.as_str(), row.task.priority, row.task.trust), ("port the parser", 3, Trust::Agent));
    let id = row.task.id;
    world.leave("b.json", &format!(r#"{{"intent":"start","task":"{id}","by":"ann"}}"#));
    world.leave("c.json", &format!(r#"{{"intent":"comment","task":"{id}","text":"half done","by":"bob"}}"#));
    world.leave("d.json", &format!(r#"{{"intent":"done","task":"{id}","fence":1,"result":"ported","by":"ann"}}"#));
    assert_eq!(world.take(), Round { applied: 3, ..Round::default() });
    let row = world.rows().remove(0);
    assert_eq!((row.state, row.result.as_deref()), (TaskState::Done, Some("ported")));
    assert_eq!(fs::read_dir(world.folder.path()).expect("a folder").count(), 0, "what took effect is gone");
}

#[test]
fn a_crash_between_effect_and_removal_does_nothing_twice() {
    let mut world = World::new();
    let wish = r#"{"intent":"add","title":"x"}"#;
    world.leave("a.json", wish);
    world.take();
    let id = world.rows()[0].task.id.clone();
    let comment = format!(r#"{{"intent":"comment","task":"{id}","text":"hello"}}"#);
    world.leave("c.json", &comment);
    world.take();
    // As after a crash: the files are still there.
    world.leave("a.json", wish);
    world.leave("c.json", &comment);
    assert_eq!(world.take(), Round { known: 2, ..Round::default() });
    assert_eq!(world.rows().len(), 1);
    let comments = world.ledger.messages(Recipients::All, 100).expect("the model can be read");
    assert_eq!(comments.len(), 1);
    // Another file with the same words is another intent.
    world.leave("b.json", wish);
    assert_eq!(world.take(), Round { applied: 1, ..Round::default() });
    assert_eq!(world.rows().len(), 2);
}

/// Two processes that look at the same file: the second one's batch is refused as a whole.
#[test]
fn the_ledger_itself_refuses_the_second_batch() {
    let mut ledger = Model::default();
    let batch = |title: &str| {
        let mut ops = remember("00ff", "a.json", NOW);
        ops.push(Op::Enqueue(new_task(TaskId::new(title), "task", title.to_owned(), NOW)));
        ops
    };
    ledger.transact(NOW, &batch("first")).expect("the mark is free");
    let refused = ledger.transact(NOW, &batch("second")).expect_err("the mark is taken");
    assert!(matches!(refused, Error::Refused(Refusal::WrongState { .. })), "{refused}");
    assert!(ledger.task(&TaskId::new("second")).expect("the model can be read").is_none());
}

#[test]
fn bad_wishes_are_rejected_with_a_reason_and_nothing_else_is_touched() {
    let mut world = World::new();
    world.leave("a.json", r#"{"intent":"add","title":"mine"}"#);
    world.take();
    let before = world.rows();
    let id = before[0].task.id.clone();
    let long = format!(r#"{{"intent":"add","title":"x","prompt":"{}"}}"#, "x".repeat(70_000));
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    let foreign = format!(r#"{{"intent":"done","task":"{id}","fence":0}}"#);
    let cases = [
        ("long.json", long.as_str(), "longer than 65536 bytes"),
        ("deep.json", deep.as_str(), "not an intent"),
        ("checks.json", r#"{"intent":"add","title":"x","checks":["true"]}"#, "unknown field `checks`"),
        ("trust.json", r#"{"intent":"add","title":"x","trust":"operator"}"#, "unknown field `trust`"),
        ("kind.json", r#"{"intent":"add","title":"x","kind":"batch"}"#, "cannot be a task's kind"),
        ("other.json", r#"{"intent":"rm","task":"x"}"#, "not an intent"),
        ("self.json", r#"{"intent":"add","title":"x","after":["nobody"]}"#, "`nobody`, which is not there"),
        ("gone.json", r#"{"intent":"start","task":"nobody"}"#, "there is no task `nobody`"),
        ("foreign.json", foreign.as_str(), "was not started by"),
        ("empty.json", r#"{"intent":"add","title":"  "}"#, "the title is empty"),
    ];
    for (name, text, _) in &cases {
        world.leave(name, text);
    }
    world.leave("notes.txt", "not for everloop");
    assert_eq!(world.take(), Round { rejected: 10, ..Round::default() });
    for (name, _, said) in &cases {
        assert!(world.reason(name).contains(said), "{name}: {}", world.reason(name));
        assert!(world.folder.path().join("rejected").join(name).exists());
    }
    assert_eq!(world.rows(), before);
    assert!(world.folder.path().join("notes.txt").exists());
}

#[test]
fn links_and_pipes_are_not_read() {
    let mut world = World::new();
    let secret = world.folder.path().join("secret");
    fs::write(&secret, r#"{"intent":"add","title":"x"}"#).expect("the folder is ours");
    std::os::unix::fs::symlink(&secret, world.folder.path().join("link.json")).expect("a link");
    nix::unistd::mkfifo(&world.folder.path().join("pipe.json"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    assert_eq!(world.take(), Round { rejected: 2, ..Round::default() });
    assert_eq!((world.rows().len(), secret.exists()), (0, true));
}

#[test]
fn tasks_of_tasks_and_floods_have_an_end() {
    let mut world = World::new();
    for n in 0..OPEN_MOST + 5 {
        world.leave(&format!("{n:03}.json"), r#"{"intent":"add","title":"flood"}"#);
    }
    let round = world.take();
    assert_eq!((round.applied as usize, round.rejected), (OPEN_MOST, 5));
    let mut parent = world.rows()[0].task.id.to_string();
    for level in 1..=3 {
        world.leave(
            "p.json",
            &format!(r#"{{"intent":"add","title":"level {level}","parent":"{parent}","by":"x{level}"}}"#),
        );
        let round = world.take();
        if level == 3 {
            assert_eq!(round.rejected, 1);
            assert!(world.reason("p.json").contains("3 deep"), "{}", world.reason("p.json"));
        } else {
            assert_eq!(round.applied, 1);
            let found = world.rows().into_iter().find(|row| row.task.title == format!("level {level}"));
            parent = found.expect("it was just added").task.id.to_string();
        }
    }
}

#[test]
fn half_a_file_is_waited_for() {
    let mut world = World::new();
    world.leave("a.json", r#"{"intent":"add","ti"#);
    assert_eq!(world.take(), Round::default());
    world.leave("a.json", r#"{"intent":"add","title":"whole"}"#);
    assert_eq!(world.take(), Round { applied: 1, ..Round::default() });
}

#[test]
fn what_somebody_else_holds_is_not_a_strangers_to_end() {
    let mut world = World::new();
    world.leave("a.json", r#"{"intent":"add","title":"x"}"#);
    world.take();
    let id = world.rows()[0].task.id.clone();
    world.leave("b.json", &format!(r#"{{"intent":"start","task":"{id}","by":"ann"}}"#));
    world.take();
    let held = world.rows();
    world.leave("done.json", &format!(r#"{{"intent":"done","task":"{id}","fence":1,"by":"bob"}}"#));
    world.leave("late.json", &format!(r#"{{"intent":"block","task":"{id}","fence":0,"by":"ann"}}"#));
    assert_eq!(world.take(), Round { rejected: 2, ..Round::default() });
    assert!(world.reason("done.json").contains("was not started by `inbox:bob`"), "{}", world.reason("done.json"));
    assert_eq!(world.rows(), held);
}
