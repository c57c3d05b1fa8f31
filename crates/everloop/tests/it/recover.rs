//! Databases are destroyed; what they held comes back from the mirror, and work goes on.

use std::path::Path;

use everloop_testkit::postgres::server;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::env::Env;

fn destroy_ledger(env: &Env) {
    for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm"] {
        std::fs::remove_file(env.state().join(name)).ok();
    }
}

/// A loop with an agent that waits for a file before it adds its task's id to `ids`, and is done
/// after two turns.
fn waiting_loop(env: &Env) -> Vec<String> {
    env.write("ids", "");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "ids"]);
    let flag = env.project().join("../flag");
    let agent = format!(
        "test $(wc -l < ids) -eq 0 || until [ -e {} ]; do sleep 0.05; done; echo $EVERLOOP_TASK >> ids",
        flag.display()
    );
    ["run", "count", "--min-gap=0", "--check", "test $(wc -l < ids) -ge 2", "--agent-cmd", &agent]
        .map(str::to_owned)
        .to_vec()
}

fn tasks(env: &Env) -> Value {
    env.run(&["task", "list", "--all", "--json"]).ok().json()["tasks"].clone()
}

#[test]
fn a_lost_ledger_comes_back_with_its_turn_and_the_loop_goes_on() {
    let env = Env::new().git();
    let args = waiting_loop(&env);
    let run = env.spawn(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let claimed = env.state().join("mirror/queue/claimed");
    let second =
        || std::fs::read_dir(&claimed).is_ok_and(|mut all| all.any(|e| e.is_ok_and(|e| name(&e).ends_with("-2.json"))));
    env.wait_for("the second turn is in the mirror", second);
    env.wait_for_agent();
    let owned = env.run(&["recover"]).exits(1);
    assert!(owned.stderr.contains("already supervises"), "{}", owned.stderr);
    // The supervisor is killed; its turn lives on.
    drop(run);
    let there = env.run(&["recover"]).exits(1);
    assert!(there.stderr.contains("there is a ledger that can be read"), "{}", there.stderr);
    let (before, show) = (tasks(&env), env.the_loop());
    destroy_ledger(&env);
    let dry = env.run(&["recover", "--dry-run", "--json"]).ok().json();
    assert!(!env.state().join("ledger.db").exists());
    let told = env.run(&["recover", "--from", "mirror", "--json"]).ok().json();
    assert_eq!((&dry["ledger"], &told["dry_run"]), (&told["ledger"], &false.into()));
    assert_eq!(told["ledger"]["lost"], serde_json::json!([]), "{told:#}");
    assert_eq!(told["ledger"]["turns_under_way"].as_array().map(Vec::len), Some(1), "{told:#}");
    assert_eq!(tasks(&env), before);
    assert_eq!(env.the_loop(), show);
    assert_eq!(env.run(&["replay", "--json"]).ok().json()["equal"], true);
    std::fs::write(env.project().join("../flag"), "").expect("the folder is the test's");
    let _up = env.spawn(&["up", "--listen", "off"]);
    // git replaces a file that it lands: for a moment there is none.
    let ids = || std::fs::read_to_string(env.project().join("ids")).unwrap_or_default();
    env.wait_for("the loop is over", || ids().lines().count() == 2);
    let ids: Vec<String> = ids().lines().map(str::to_owned).collect();
    assert_ne!(ids[0], ids[1], "each task counts once");
}

fn name(entry: &std::fs::DirEntry) -> String {
    entry.file_name().to_string_lossy().into_owned()
}

#[test]
fn damaged_files_are_named_and_a_loop_without_its_file_is_the_sum_of_its_journal() {
    let env = Env::new().git();
    env.run(&["run", "write", "--min-gap=0", "--check", "test -f done", "--agent-cmd", "touch done"]).ok();
    env.run(&["task", "add", "one more"]).ok();
    env.run(&["task", "add", "and another"]).ok();
    // The next supervisor brings the files to where the ledger is.
    let up = env.spawn(&["up", "--listen", "off"]);
    let pending = env.state().join("mirror/queue/pending");
    env.wait_for("both are in the mirror", || std::fs::read_dir(&pending).is_ok_and(|all| all.count() == 2));
    up.signal(Signal::SIGTERM);
    up.wait();
    let beat = std::fs::read_to_string(env.state().join("mirror/supervisor.heartbeat")).expect("there is a heartbeat");
    assert!(beat.contains("\"stopped\""), "{beat}");
    let board: Value = read_json(&env.state().join("mirror/scoreboard.json"));
    assert_eq!(board["row"]["loops"][0]["passing"], 1, "{board:#}");
    let show = env.the_loop();
    destroy_ledger(&env);
    for folder in ["loops", "queue/pending"] {
        let mut all: Vec<_> =
            std::fs::read_dir(env.state().join("mirror").join(folder)).unwrap().map(|e| e.unwrap().path()).collect();
        all.sort();
        let text = std::fs::read_to_string(&all[0]).unwrap();
        std::fs::write(&all[0], &text[..text.len() / 2]).unwrap();
    }
    let told = env.run(&["recover", "--json"]).ok().json();
    let lost = told["ledger"]["lost"].as_array().expect("a list");
    let named = |what: &str| lost.iter().any(|l| l["what"].as_str().is_some_and(|w| w.starts_with(what)));
    assert!(named("loops/") && named("queue/pending/") && named("the file of loop"), "{told:#}");
    assert_eq!(env.the_loop(), show);
    assert_eq!(env.run(&["replay", "--json"]).ok().json()["equal"], true);
    assert_eq!(told["ledger"]["tasks_open"], 1);
    // An unreadable ledger is moved away, not overwritten.
    std::fs::write(env.state().join("ledger.db"), "this is no database, and it is longer than its header").unwrap();
    env.run(&["recover"]).ok();
    assert!(env.state().join("ledger.db.broken-1").exists());
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("it is there")).expect("it is JSON")
}

/// The "Done when" of the mesh: SQLite and PostgreSQL are both gone.
#[test]
fn long_both_databases_are_destroyed_and_tasks_scoreboard_and_shelf_come_back() {
    let url = server().database();
    let database = url.rsplit('/').next().expect("an address ends with its database").to_owned();
    let operator = Env::new().git().var("EVERLOOP_HUB_URL", &url);
    operator.run(&["mesh", "hub", "init"]).ok();
    operator.git_run(&["clone", "-q", "--bare", ".", "../shared.git"]);
    operator.git_run(&["remote", "add", "origin", "../shared.git"]);
    operator.run(&["mesh", "join", "--name", "desk"]).ok();
    let node = Env::new().var("EVERLOOP_HUB_URL", &url).fast(5);
    node.run(&["mesh", "join", "--name", "n1", "--trust", "desk"]).ok();
    node.run(&["task", "add", "of this machine alone"]).ok();
    let flag = operator.project().join("../flag");
    let script =
        operator.script("../agent.sh", &format!("until [ -e {} ]; do sleep 0.1; done\ntouch done", flag.display()));
    let command = format!("sh {script}");
    let run = [
        "run",
        "goal",
        "--mesh",
        "--detach",
        "--json",
        "--min-gap=0",
        "--check",
        "test -f done",
        "--agent-cmd",
        &command,
    ];
    let id = operator.run(&run).ok().json()["loop"].as_str().expect("a loop has an id").to_owned();
    let up = node.spawn(&["up", "--listen", "off"]);
    node.wait_for_agent();
    let task = format!("{id}-1");
    let late = format!("insert into everloop.shelf (task, fence, at, result) values ('{task}', 1, 5, 'late')");
    server().psql(&database, &late);
    up.signal(Signal::SIGTERM);
    up.wait();
    let show = |env: &Env| env.run(&["mesh", "show", &id, "--json"]).ok().json();
    let before = show(&operator);
    server().psql("postgres", &format!("drop database {database} with (force)"));
    server().psql("postgres", &format!("create database {database} owner {database}"));
    destroy_ledger(&node);

    operator.run(&["mesh", "hub", "init"]).ok();
    operator.run(&["mesh", "show", &id]).exits(4);
    let told = node.run(&["recover", "--hub", "--json"]).ok().json();
    assert_eq!((&told["hub"]["tasks"], &told["hub"]["shelf"]), (&1.into(), &1.into()), "{told:#}");
    assert_eq!(told["hub"]["lost"], serde_json::json!([]), "{told:#}");
    assert_eq!(
        node.run(&["recover", "--hub"]).exits(1).stderr.lines().next().map(|l| l.contains("not empty")),
        Some(true)
    );
    let after = show(&operator);
    assert_eq!(after["loop"], before["loop"], "the scoreboard of the loop");
    let fence = |shown: &Value| shown["tasks"][0]["fence"].as_u64().expect("a task has a fence");
    assert!(fence(&after) > fence(&before) + 999, "{after:#}");
    let late_results = operator.run(&["task", "show", &task, "--json"]).ok().json()["shelf"].clone();
    assert_eq!(late_results[0]["result"], "late", "{late_results:#}");
    assert!(tasks(&node).to_string().contains("of this machine alone"), "{:#}", tasks(&node));
    std::fs::write(&flag, "").expect("the folder is the test's");
    let _up = node.spawn(&["up", "--listen", "off"]);
    operator.wait_for("the goal is reached", || show(&operator)["loop"]["ended"]["is"] == "reached");
}

#[test]
fn every_command_names_recover_when_the_ledger_is_gone_or_broken() {
    let env = Env::new();
    let run = ["run", "x", "--check", "false", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"];
    env.run(&run).exits(3);
    let commands: [&[&str]; 7] =
        [&["status"], &["why"], &["logs"], &["resume", "-n", "1"], &["task", "list"], &["up", "--listen", "off"], &run];
    destroy_ledger(&env);
    for args in commands {
        let said = env.run(args).exits(1).stderr;
        assert!(
            said.contains("is gone, but its mirror is there") && said.contains("everloop recover"),
            "{args:?}: {said}"
        );
    }
    assert!(!env.state().join("ledger.db").exists(), "none of them began a new one");
    std::fs::write(env.state().join("ledger.db"), "this is no database at all".repeat(400))
        .expect("the folder is the test's");
    for args in commands {
        let said = env.run(args).exits(1).stderr;
        assert!(said.contains("everloop recover"), "{args:?}: {said}");
    }
    env.run(&["recover"]).ok();
    env.run(&["status"]).ok();
}
