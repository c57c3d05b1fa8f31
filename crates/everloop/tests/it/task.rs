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
