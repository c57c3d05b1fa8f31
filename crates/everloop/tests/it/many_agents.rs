//! Eight agents and two people on one board at the same time: by command line, by MCP and by files
//! in the inbox folder, with two git branches merged at the end. No task is lost, none is doubled,
//! none is done twice.
//!
//! `EVERLOOP_CROWD_OPS=10000` sets the full number of operations; by default there are fewer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::thread;

use serde_json::{Value, json};

use crate::env::{Env, Output};
use crate::mcp::Client;
use crate::watch::seen;

/// By default; one cycle of an agent is three operations.
const OPS: usize = 360;

/// A loop that watches the board as a file.
const WATCHES: &str = "[loop.main]\ngoal = \"keep the board\"\nchecks = [\"true\"]\nworkspace = \"in-place\"\nagent_cmd = \"true\"\n\
    guard = { min_gap = \"0\" }\n[[loop.main.monitor]]\nname = \"board\"\nfile = \"tasks/board.json\"\nevery = \"1s\"\n";

/// What all of them know to have done.
#[derive(Default)]
struct Book {
    /// Titles of tasks that were added.
    added: Mutex<Vec<String>>,
    /// Ids of tasks with an accepted end.
    ended: Mutex<Vec<String>>,
    ops: Mutex<usize>,
}

impl Book {
    fn add(&self, title: String) {
        self.added.lock().expect("no holder panics").push(title);
        self.count();
    }

    /// An agent with enough tasks on the board is refused.
    fn added_or_full(&self, title: String, full: bool, said: &str) {
        if full {
            assert!(said.contains("are open already"), "{said}");
            self.count();
        } else {
            self.add(title);
        }
    }

    fn end(&self, id: &Value) {
        self.ended.lock().expect("no holder panics").push(id.as_str().expect("an id is a text").to_owned());
        self.count();
    }

    fn count(&self) {
        *self.ops.lock().expect("no holder panics") += 1;
    }
}

/// Everloop as the agent of a turn; as a person without one.
fn typed(env: &Env, turn: Option<&str>, args: &[&str]) -> Output {
    let mut command = env.command(args);
    command.envs(turn.map(|turn| ("EVERLOOP_TURN", turn)));
    let done = command.output().expect("the binary was built");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Output { code: done.status.code().unwrap_or(-1), stdout: text(&done.stdout), stderr: text(&done.stderr) }
}

fn by_command_line(env: &Env, book: &Book, me: usize, cycles: usize) {
    let turn = format!("many-{me}.1");
    for n in 0..cycles {
        let title = format!("typed {me} {n}");
        let added = typed(env, Some(&turn), &["task", "add", &title]);
        book.added_or_full(title, added.code != 0, &added.stderr);
        let taken = typed(env, Some(&turn), &["task", "next", "--lease", "10m", "--json"]);
        book.count();
        // Another agent may have taken the last one.
        if taken.code == 3 {
            continue;
        }
        let task = taken.ok().json()["task"].clone();
        let (id, fence) = (task["id"].as_str().expect("an id"), task["fence"].to_string());
        typed(env, Some(&turn), &["task", "done", id, "--fence", &fence]).ok();
        book.end(&task["id"]);
    }
}

fn by_mcp(env: &Env, book: &Book, me: usize, cycles: usize) {
    let mut client = Client::new(env, &[]);
    for n in 0..cycles {
        let title = format!("called {me} {n}");
        let (full, text) = client.call("add_task", &json!({ "title": title }));
        book.added_or_full(title, full, &text);
        let task = client.ok("next_task", &json!({ "lease": "10m" }))["task"].clone();
        book.count();
        if !task.is_null() {
            client.ok("complete_task", &json!({ "task": task["id"], "fence": task["fence"] }));
            book.end(&task["id"]);
        }
    }
    client.end();
}

/// Two of these read the same folder at the same time, so each file is seen by both now and then.
fn by_files(env: &Env, book: &Book, me: usize, cycles: usize) {
    for n in 0..cycles {
        let title = format!("filed {me} {n}");
        let by = format!("{me}-{}", n / 10);
        env.write(
            &format!("tasks/inbox/{me}-{n}.json"),
            &json!({ "intent": "add", "title": title, "by": by }).to_string(),
        );
        book.add(title);
        typed(env, None, &["task", "board", "write"]).ok();
        book.count();
    }
}

fn by_a_person(env: &Env, book: &Book, me: usize, cycles: usize) {
    for n in 0..cycles {
        let title = format!("wanted {me} {n}");
        let added = typed(env, None, &["task", "add", &title, "--priority", "1", "--json"]).ok().json();
        book.add(title);
        let id = added["task"].as_str().expect("an id").to_owned();
        // An agent may have it already; a comment is welcome at any time.
        if typed(env, None, &["task", "block", &id]).code == 0 {
            typed(env, None, &["task", "retry", &id]).ok();
        }
        typed(env, None, &["message", "comment", &id, "please"]).ok();
        (0..3).for_each(|_| book.count());
    }
}

fn board(text: &str) -> Vec<Value> {
    let board: Value = serde_json::from_str(text).expect("a board is JSON");
    board["tasks"].as_array().expect("it has tasks").clone()
}

#[test]
fn eight_agents_and_two_people_lose_and_double_nothing() {
    let wanted = std::env::var("EVERLOOP_CROWD_OPS").ok().and_then(|n| n.parse().ok()).unwrap_or(OPS);
    let (env, book) = (Env::new().git(), Book::default());
    env.write("everloop.toml", WATCHES);
    env.run(&["trust"]).ok();
    let up = env.spawn(&["up"]);
    env.wait_for("it watches", || seen(&env)["board"].is_object());
    let cycles = wanted.div_ceil(30);
    thread::scope(|scope| {
        let (env, book) = (&env, &book);
        for me in 0..3 {
            scope.spawn(move || by_command_line(env, book, me, cycles));
            scope.spawn(move || by_mcp(env, book, me, cycles));
        }
        for me in 0..2 {
            scope.spawn(move || by_files(env, book, me, cycles));
            scope.spawn(move || by_a_person(env, book, me, cycles));
        }
    });
    env.wait_for("it saw the board change", || seen(&env)["board"]["task"].is_string());
    env.run(&["down"]).ok();
    up.wait();
    one_keepalive(&env);
    env.run(&["task", "board", "write"]).ok();
    let tasks = board(&env.read("tasks/board.json"));
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    for task in &tasks {
        *times.entry(task["title"].as_str().expect("a title").to_owned()).or_default() += 1;
    }
    let doubled: Vec<_> = times.iter().filter(|(_, n)| **n > 1).collect();
    assert!(doubled.is_empty(), "doubled: {doubled:?}");
    let (found, added): (BTreeSet<String>, BTreeSet<String>) =
        (times.into_keys().collect(), book.added.into_inner().expect("all are done").into_iter().collect());
    let lost: Vec<&String> = added.difference(&found).collect();
    assert!(lost.is_empty() && found.len() == added.len(), "lost: {lost:?}");
    let ended = book.ended.into_inner().expect("all are done");
    let once: BTreeSet<&String> = ended.iter().collect();
    assert_eq!(once.len(), ended.len(), "a task was ended twice");
    assert_eq!(tasks.iter().filter(|t| t["status"] == "done").count(), ended.len());
    let rejected = env.project().join("tasks/inbox/rejected");
    assert!(!rejected.exists(), "an intent was rejected");
    assert!(*book.ops.lock().expect("all are done") * 10 >= wanted * 9, "too little happened");
    env.run(&["replay"]).ok();
    two_branches_become_one(&env, tasks.len());
}

/// The loop saw the board change all the time and worked on it; of its keepalives one is open.
fn one_keepalive(env: &Env) {
    let all = env.run(&["task", "list", "--all", "--json", "-n", "100000"]).ok().json();
    let kept: Vec<&Value> =
        all["tasks"].as_array().expect("a list").iter().filter(|t| t["kind"] == "keepalive").collect();
    let open: Vec<&&Value> = kept.iter().filter(|t| t["state"]["is"] != "done").collect();
    assert_eq!(open.len(), 1, "{open:?}");
    assert!(kept.len() > 1, "nothing was seen");
}

/// Each branch goes on with half of the board and adds tasks of its own.
fn two_branches_become_one(env: &Env, before: usize) {
    let exe = env!("CARGO_BIN_EXE_everloop");
    env.git_run(&["config", "merge.everloop.driver", &format!("'{exe}' task board merge %O %A %B")]);
    env.write(".gitattributes", "tasks/board.json merge=everloop\n");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "board"]);
    for branch in ["left", "right"] {
        env.git_run(&["checkout", "-q", "-b", branch, "main"]);
        let state = env.project().join("..").join(branch).display().to_string();
        let on = |args: &[&str]| env.run(&[&["--state-dir", state.as_str()], args].concat()).ok();
        on(&["task", "board", "import", "tasks/board.json"]);
        (0..5).for_each(|n| drop(on(&["task", "add", &format!("{branch} {n}")])));
        on(&["task", "next"]);
        on(&["task", "board", "write"]);
        env.git_run(&["commit", "-q", "-am", branch]);
    }
    env.git_run(&["merge", "-q", "--no-edit", "left"]);
    let text = env.read("tasks/board.json");
    assert!(!text.contains("<<<<<<<"), "conflict markers");
    assert_eq!(board(&text).len(), before + 10);
}
