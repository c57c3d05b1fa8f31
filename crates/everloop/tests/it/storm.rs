//! Agents that die at once: few starts, one ticket, and a way back.

use std::time::Duration;

use crate::env::Env;

/// Of everloop's time.
const STORM: Duration = Duration::from_secs(60);

#[test]
fn a_minute_of_instant_deaths_brings_few_starts_and_one_ticket() {
    storm(&Env::new().git().fast(10));
}

#[test]
fn soak_a_real_minute_of_instant_deaths_brings_few_starts_and_one_ticket() {
    storm(&Env::new().git());
}

fn storm(env: &Env) {
    // Freezes after one cooldown instead of three, so that one minute shows the whole sequence.
    env.write("everloop.toml", TOML);
    let run = env.spawn(&["run", "--min-gap", "0"]);
    env.wait_for("the loop is frozen", || env.run(&["why"]).stdout.contains("[guard.freeze]"));
    env.let_pass(STORM);
    let state = env.the_loop();
    let starts = state["started"].as_u64().expect("a number of starts");
    assert!((3..=6).contains(&starts), "{starts} starts in {STORM:?}");
    let tickets = env.run(&["status", "--json"]).json()["tickets"].as_array().expect("a list of tickets").clone();
    let freezes = tickets
        .iter()
        .filter(|t| t["key"].as_str().expect("a ticket has a key").starts_with("guard.freeze:loop"))
        .count();
    assert_eq!(freezes, 1, "{tickets:?}");
    env.run(&["guard", "status"]).exits(5);

    env.write("healed", "");
    env.run(&["guard", "release", "--reason", "the agent is mended"]).ok();
    run.wait().ok();
    assert!(
        env.run(&["status", "--json"]).json()["tickets"].as_array().expect("a list of tickets").is_empty(),
        "the ticket is closed"
    );
    env.run(&["guard", "status"]).exits(0);
    env.run(&["replay"]).ok();
}

const TOML: &str = r#"
[loop.storm]
goal = "x"
checks = ["test -f done"]
workspace = "in-place"
agent_cmd = ["sh", "-c", "test -f healed && touch done"]
[loop.storm.guard]
freeze_cooldowns = 1
"#;

#[test]
fn a_held_guard_lets_nothing_start_until_it_is_released() {
    let env = Env::new();
    env.run(&["guard", "hold", "--reason", "maintenance"]).ok();
    let args = ["run", "x", "--check", "test -f done", "--agent-cmd", "touch done", "--min-gap", "0"];
    let out = env.run(&[&args[..], &["--no-wait"]].concat()).exits(5);
    assert!(out.stderr.contains("maintenance"), "{}", out.stderr);
    assert!(!env.project().join("done").exists());
    let run = env.spawn(&args);
    env.wait_for("it waits", || env.run(&["why"]).stdout.contains("[guard.freeze]"));
    env.run(&["guard", "release", "--reason", "done with it"]).ok();
    run.wait().ok();
}

#[test]
fn an_agent_can_ask_for_a_delay_but_not_for_less() {
    let env = Env::new();
    let agent = "sh -c 'if test -f asked; then touch done; else touch asked; echo \"<BACKOFF 2s>\"; fi'";
    let out = env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", agent, "--min-gap", "0"]).ok();
    assert!(out.stderr.contains("the agent requested a delay of 2s"), "{}", out.stderr);
    let state = env.the_loop();
    assert!(state["asleep"].as_u64().unwrap() >= 1_900, "{}", state["asleep"]);
}

#[test]
fn an_agent_that_cannot_start_is_not_tried_again_at_once() {
    let env = Env::new();
    // It is there, and its interpreter is not.
    let agent = env.script("no-such-agent", "");
    std::fs::write(&agent, "#!/nonexistent/interpreter\n").expect("the folder is the test's");
    let run = env.spawn(&["run", "x", "--check", "test -f done", "--agent-cmd", &agent, "--min-gap", "0"]);
    env.wait_for("it backs off", || env.run(&["logs", "-v"]).stdout.contains("backs off"));
    assert!(env.run(&["logs"]).stdout.contains("no-such-agent"), "the reason names the program");
    drop(run);
}
