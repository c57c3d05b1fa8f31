//! `everloop status`, `why` and `prompt`.

use crate::env::Env;

#[test]
fn without_loops_there_is_a_friendly_line() {
    let env = Env::new();
    let said = env.run(&["status"]).ok().stdout;
    assert!(said.contains("no loops yet") && said.contains("everloop run"), "{said}");
    let data = env.run(&["status", "--json"]).ok().json();
    assert_eq!(data["loops"].as_array().map(Vec::len), Some(0));
    assert_eq!(data["supervisor"], serde_json::Value::Null);
    let failed = env.run(&["status", "k3f9"]).exits(2);
    assert!(failed.stderr.contains("hint:"), "{}", failed.stderr);
}

#[test]
fn the_exit_code_tells_how_a_loop_ended() {
    let env = Env::new();
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"]).exits(3);
    env.run(&["status", "--exit-code"]).exits(3);
    let data = env.run(&["status", "--json"]).ok().json();
    assert_eq!(data["loops"][0]["phase"], "exhausted");
    assert_eq!(data["loops"][0]["checks"]["total"], 1);
    env.run(&["run", "y", "--check", "test -f done", "--agent-cmd", "touch done", "--min-gap", "0"]).ok();
    env.run(&["status", "--exit-code"]).exits(0);
}

#[test]
fn a_loop_without_supervisor_says_so_first() {
    let env = Env::new();
    let up = env.spawn(&["run", "x", "--check", "test -f done", "--agent-cmd", "sleep 50", "--min-gap", "0"]);
    env.wait_for_agent();
    env.run(&["status", "--exit-code"]).exits(0);
    let data = env.run(&["status", "--json"]).ok().json();
    assert_eq!(data["supervisor"]["role"], "run");
    drop(up);
    env.wait_for("its lock is gone", || env.run(&["status", "--exit-code"]).code == 6);
    let said = env.run(&["status"]).ok().stdout;
    assert!(said.contains("no supervisor is running") && said.contains("hint: everloop up"), "{said}");
    let why = env.run(&["why"]).ok().stdout;
    assert!(why.starts_with("No supervisor is running") && why.contains("agent at work on turn 1"), "{why}");
    let prompt = env.run(&["prompt"]).ok().stdout;
    assert!(prompt.contains("test -f done"), "{prompt}");
}

#[test]
fn loops_of_this_folder_come_first_and_ended_ones_of_others_on_request() {
    let env = Env::new();
    let other = env.project().join("../other").display().to_string();
    std::fs::create_dir(&other).expect("a folder");
    let words = ["run", "x", "--check", "true", "--agent-cmd", "true", "--in-place"];
    env.run(&[&words[..], &["-C", &other]].concat()).ok();
    let alone = env.run(&["status", "-C", &other]).ok().stdout;
    assert!(!alone.contains("FOLDER"), "one folder needs no column: {alone}");
    env.run(&words).ok();
    let here = env.run(&["status"]).ok().stdout;
    assert!(here.contains("… and 1 ended loop in other folders: everloop status --all"), "{here}");
    let all = env.run(&["status", "--all"]).ok().stdout;
    let lines: Vec<&str> = all.lines().collect();
    assert!(lines[0].contains("FOLDER") && lines[1].contains("/project") && lines[2].contains("/other"), "{all}");
    let log = env.run(&["logs"]).ok().stdout;
    let both = env.run(&["logs", "--all"]).ok().stdout;
    assert!(both.matches("created loop").count() == 2 && log.matches("created loop").count() == 1, "{log}\n{both}");
}
