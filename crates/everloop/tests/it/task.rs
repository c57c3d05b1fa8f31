//! `everloop task`: the board.

use serde_json::Value;

use crate::env::Env;

fn add(env: &Env, args: &[&str]) -> String {
    let args = [&["task", "add", "--json"], args].concat();
    env.run(&args).ok().json()["task"].as_str().expect("`add` prints the id").to_owned()
}

fn state(env: &Env, task: &str) -> Value {
    env.run(&["task", "show", task, "--json"]).ok().json()["task"].clone()
}

#[test]
fn a_task_is_claimed_once_and_done_under_its_fence() {
    let env = Env::new();
    let low = add(&env, &["low"]);
    let high = add(&env, &["high", "--priority", "5", "--prompt", "be quick"]);
    let taken = env.run(&["task", "next", "--json", "--lease", "10m"]).ok().json();
    assert_eq!(taken["task"]["id"], high.as_str());
    assert_eq!(taken["task"]["fence"], 1);
    env.run(&["task", "claim", &high]).exits(1);
    env.run(&["task", "done", &high, "--fence", "1", "--result", "all good"]).ok();
    assert_eq!(state(&env, &high)["state"]["is"], "done");
    assert_eq!(state(&env, &high)["result"], "all good");
    assert_eq!(env.run(&["task", "next", "--json"]).ok().json()["task"]["id"], low.as_str());
    env.run(&["task", "next"]).exits(3);
    let log = env.run(&["logs"]).ok().stdout;
    assert!(log.contains(&format!("task {high} was done by tester: all good")), "{log}");
    env.run(&["replay"]).ok();
}

#[test]
fn a_stale_fence_is_told_and_its_result_is_shelved() {
    let env = Env::new();
    let task = add(&env, &["x"]);
    env.run(&["task", "claim", &task]).ok();
    env.run(&["task", "retry", &task]).ok();
    let late = env.run(&["task", "done", &task, "--fence", "1", "--result", "precious"]).exits(1);
    assert!(late.stderr.contains("not held under fence 1 any more"), "{}", late.stderr);
    let shown = env.run(&["task", "show", &task, "--json"]).ok().json();
    assert_eq!(shown["shelf"][0]["result"], "precious");
    assert_eq!(shown["task"]["state"]["is"], "queued");
}

#[test]
fn the_third_failure_sets_a_task_aside_with_a_ticket() {
    let env = Env::new();
    let task = add(&env, &["x"]);
    for (attempt, after) in [(1, "queued"), (2, "queued"), (3, "dead")] {
        env.run(&["task", "claim", &task]).ok();
        let fence = attempt.to_string();
        let said = env.run(&["task", "fail", &task, "--fence", &fence, "--reason", "no network", "--json"]).ok().json();
        assert_eq!(said["state"], after);
    }
    let tickets = env.run(&["status", "--json"]).ok().json()["tickets"].clone();
    assert_eq!(tickets[0]["key"], format!("task.dead:{task}"));
    let other = add(&env, &["other"]);
    let dead = env.run(&["task", "list", "--dead"]).ok().stdout;
    assert!(dead.contains(&task) && !dead.contains(&other), "{dead}");
    assert!(env.run(&["task", "inspect", &task]).ok().stdout.contains("no network"));
    env.run(&["task", "retry", &task]).ok();
    assert_eq!(state(&env, &task)["failures"], 0);
    let tickets = env.run(&["status", "--json"]).ok().json()["tickets"].clone();
    assert_eq!(tickets.as_array().map(Vec::len), Some(0));
    env.run(&["replay"]).ok();
}

#[test]
fn people_block_retry_and_cancel() {
    let env = Env::new();
    let task = add(&env, &["x"]);
    env.run(&["task", "block", &task, "--reason", "needs a decision"]).ok();
    env.run(&["task", "next"]).exits(3);
    let twice = env.run(&["task", "block", &task]).exits(1);
    assert!(twice.stderr.contains("is blocked, so it cannot be blocked"), "{}", twice.stderr);
    env.run(&["task", "retry", &task]).ok();
    env.run(&["task", "cancel", &task]).ok();
    assert_eq!(state(&env, &task)["state"]["is"], "dead");
    let unknown = env.run(&["task", "cancel", "zzzzz"]).exits(2);
    assert!(unknown.stderr.contains("there is no task `zzzzz`"), "{}", unknown.stderr);
}

#[test]
fn dependencies_hold_a_task_back_and_unknown_ones_are_refused() {
    let env = Env::new();
    let first = add(&env, &["first"]);
    let second = add(&env, &["second", "--priority", "9", "--after", &first]);
    assert_eq!(env.run(&["task", "next", "--json"]).ok().json()["task"]["id"], first.as_str());
    env.run(&["task", "claim", &second]).exits(1);
    env.run(&["task", "done", &first, "--fence", "1"]).ok();
    env.run(&["task", "claim", &second]).ok();
    let refused = env.run(&["task", "add", "third", "--after", "nobody"]).exits(2);
    assert!(refused.stderr.contains("`nobody`, which is not there"), "{}", refused.stderr);
    let listed = env.run(&["task", "list"]).ok().stdout;
    assert!(listed.contains("second") && !listed.contains("first"), "{listed}");
    let later = add(&env, &["later", "--in", "2h"]);
    env.run(&["task", "next"]).exits(3);
    env.run(&["task", "claim", &later]).ok();
}

#[test]
fn a_task_that_came_to_nothing_unlocks_no_other() {
    let env = Env::new();
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"]).exits(3);
    let id = env.the_loop()["id"].as_str().unwrap().to_owned();
    let first = add(&env, &["first", "--loop", &id]);
    let second = add(&env, &["second", "--loop", &id, "--after", &first]);
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "true", "-n", "3", "--min-gap", "0"]).exits(3);
    let status = |task: &str| env.run(&["task", "show", task, "--json"]).ok().json()["task"]["status"].clone();
    assert_eq!((status(&first), status(&second)), ("no-op".into(), "queued".into()));
    let listed = env.run(&["task", "list", "--loop", &id]).ok().stdout;
    assert!(listed.contains(&format!("queued, waits for {first} (no-op)")), "{listed}");
    env.run(&["task", "retry", &first]).ok();
    let listed = env.run(&["task", "list", "--loop", &id]).ok().stdout;
    assert!(listed.contains(&format!("waits for {first} (queued)")), "it can be tried again: {listed}");
    env.run(&["replay"]).ok();
}

#[test]
fn a_task_for_a_loop_reaches_its_agent_and_keeps_replay_equal() {
    let env = Env::new();
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"]).exits(3);
    let id = env.the_loop()["id"].as_str().unwrap().to_owned();
    let task = add(&env, &["write the file", "--prompt", "its name is `done`", "--loop", &id]);
    let prompt = env.run(&["prompt"]).ok().stdout;
    assert!(prompt.contains("write the file") && prompt.contains("its name is `done`"), "{prompt}");
    let log = env.run(&["logs", &id]).ok().stdout;
    assert!(log.contains(&format!("task {task} was added by tester")), "{log}");
    env.run(&["replay"]).ok();
}

#[test]
fn what_an_agent_adds_is_not_the_operators_word() {
    let env = Env::new().var("EVERLOOP_TURN", "k3f9-1.1");
    let task = add(&env, &["x"]);
    assert_eq!(state(&env, &task)["trust"], "agent");
    assert_eq!(state(&env, &task)["author"], "turn k3f9-1.1");
}

#[test]
fn a_person_who_takes_a_loops_task_does_not_stop_the_loop() {
    let env = Env::new();
    env.write("everloop.toml", FAILING);
    let run = env.spawn(&["run"]);
    env.wait_for("it runs", || env.run(&["logs"]).stdout.contains("no-op"));
    let added = env.run(&["task", "add", "mine", "--loop", "x", "--json"]).ok().json();
    let task = added["task"].as_str().unwrap().to_owned();
    env.wait_for("a turn on it failed", || env.run(&["logs"]).stdout.contains(&format!("{task}.1 ended")));
    // Refused while a turn has it; between two turns it can be taken.
    env.wait_for("it is taken", || env.run(&["task", "claim", &task, "--lease", "10m"]).code == 0);
    env.write("healed", "");
    run.wait().ok();
    let row = env.run(&["task", "show", &task, "--json"]).ok().json();
    assert_eq!(row["task"]["state"]["is"], "leased", "it is still the person's: {row}");
}

/// Turns on tasks of the board fail, those on the loop's own (`LOOP-NUMBER`) change nothing: a loop
/// goes on with a task of its own that failed, and would not come to the other one.
const FAILING: &str = r#"
[loop.x]
goal = "x"
checks = ["test -f done"]
agent_cmd = "if test -f healed; then touch done; else case $EVERLOOP_TURN in *-*) true;; *) false;; esac; fi"
[loop.x.guard]
min_gap = "200ms"
per_hour = "none"
backoff_first = "300ms"
backoff_cap = "300ms"
cooldown_deaths = 100
"#;

/// A world with a loop that ended and a task for it; the ids of both.
fn with_task() -> (Env, String, String) {
    let env = Env::new();
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"]).exits(3);
    let id = env.the_loop()["id"].as_str().expect("an id").to_owned();
    let task = add(&env, &["port it", "--prompt", "all", "--loop", &id]);
    (env, id, task)
}

#[test]
fn an_edited_task_is_shown_and_prompted_with_its_new_text() {
    let (env, id, task) = with_task();
    assert!(env.run(&["prompt", &id]).ok().stdout.contains("port it"));
    let said = env.run(&["task", "edit", &task, "--title", "port the lexer", "--prompt", "only that"]).ok().stdout;
    assert!(said.contains("changed title, prompt"), "{said}");
    let shown = env.run(&["task", "show", &task]).ok().stdout;
    assert!(shown.contains("port the lexer") && shown.contains("only that") && !shown.contains("port it"), "{shown}");
    let prompt = env.run(&["prompt", &id]).ok().stdout;
    assert!(
        prompt.contains("port the lexer") && prompt.contains("only that") && !prompt.contains("port it"),
        "{prompt}"
    );
    env.write("notes.md", "from a file\n");
    env.run(&["task", "edit", &task, "--file", "notes.md", "--priority", "7"]).ok();
    let data = env.run(&["task", "show", &task, "--json"]).ok().json();
    assert_eq!((&data["task"]["prompt"], &data["task"]["priority"]), (&"from a file\n".into(), &7.into()), "{data}");
    assert!(env.run(&["task", "edit", &task, "--priority", "7"]).ok().stdout.contains("like that already"));
    let log = env.run(&["logs", "-v"]).ok().stdout;
    assert!(log.contains(&format!("task {task} was edited by tester: title, prompt")), "{log}");
    env.run(&["replay"]).ok();
    assert!(env.run(&["task", "edit", "nosuch", "--priority", "1"]).exits(2).stderr.contains("there is no task"));
    assert!(env.run(&["task", "edit", &task]).exits(2).stderr.contains("--title"), "without a terminal");
    env.run(&["task", "edit", &task, "--title", " "]).exits(2);
}

#[test]
fn a_held_task_takes_a_priority_only_and_circles_are_refused() {
    let env = Env::new();
    let first = add(&env, &["first"]);
    let second = add(&env, &["second", "--after", &first]);
    let third = add(&env, &["third", "--after", &second]);
    for after in [&third, &first] {
        let refused = env.run(&["task", "edit", &first, "--after", after]).exits(2).stderr;
        assert!(refused.contains("it would wait for itself"), "{refused}");
    }
    assert!(env.run(&["task", "edit", &first, "--after", "zzzzz"]).exits(2).stderr.contains("there is no task"));
    env.run(&["task", "edit", &second, "--no-after"]).ok();
    env.run(&["task", "edit", &first, "--after", &third]).ok();
    env.run(&["task", "claim", &second]).ok();
    let refused = env.run(&["task", "edit", &second, "--title", "else"]).exits(1).stderr;
    assert!(refused.contains("is held") && refused.contains(&format!("everloop task retry {second}")), "{refused}");
    env.run(&["task", "edit", &second, "--priority", "-3"]).ok();
    env.run(&["task", "done", &second, "--fence", "1"]).ok();
    assert!(env.run(&["task", "edit", &second, "--priority", "1"]).exits(1).stderr.contains("is done"));
    let person = add(&env, &["as the person wants it", "--author", "turn k3f9-1.1"]);
    let agent = env.var("EVERLOOP_TURN", "k3f9-1.1");
    agent.run(&["task", "edit", &person, "--title", "mine"]).exits(2);
    let own = add(&agent, &["its own"]);
    agent.run(&["task", "edit", &own, "--title", "better"]).ok();
    assert!(agent.run(&["task", "edit", &third, "--title", "mine"]).exits(2).stderr.contains("only a person may"));
}

#[test]
fn an_editor_gets_title_and_prompt_and_its_text_counts() {
    let (env, _, task) = with_task();
    let editor = env.script("../editor", "cp \"$1\" \"$1.seen\"; printf 'new title\\n\\nline 1\\nline 2\\n' > \"$1\"");
    let env = env.var("EDITOR", &editor);
    let said = env.on_terminal(&["task", "edit", &task], "").ok().stdout;
    assert!(said.contains("changed title, prompt"), "{said}");
    let left = std::fs::read_dir(env.state()).expect("it is there").flatten().map(|entry| entry.path());
    let left: Vec<_> = left.filter(|path| path.display().to_string().contains("/edit-")).collect();
    assert_eq!(left.len(), 1, "only the editor's copy: {left:?}");
    assert_eq!(std::fs::read_to_string(&left[0]).expect("a copy"), "port it\n\nall\n");
    let data = env.run(&["task", "show", &task, "--json"]).ok().json();
    assert_eq!((&data["task"]["title"], &data["task"]["prompt"]), (&"new title".into(), &"line 1\nline 2".into()));
    let env = env.var("EDITOR", "false");
    env.on_terminal(&["task", "edit", &task], "").exits(1);
    let wrong = env.script("../wrong", "printf '\\n\\na long text\\n' > \"$1\"");
    let env = env.var("EDITOR", &wrong);
    let said = env.on_terminal(&["task", "edit", &task], "").exits(2).stdout;
    let place = said.split_once("your text is in `").and_then(|(_, rest)| rest.split_once('`')).expect(&said).0;
    assert_eq!(std::fs::read_to_string(place).expect("it is kept"), "\n\na long text\n");
    let env = env.var("EDITOR", "true");
    assert!(env.on_terminal(&["task", "edit", &task], "").ok().stdout.contains("nothing was changed"));
}
