//! Turns without progress: another way is tried first, and a ticket is opened only when that does
//! not help either.

use crate::env::Env;

const FILE: &str = r#"
[agent.first]
command = "bin/first"

[agent.second]
command = "bin/second"

[loop.a]
goal = "g"
agents = ["first", "second"]
workspace = "in-place"
max_turns = 5
[loop.a.guard]
min_gap = "0"
stagnation_turns = 2

[[loop.a.check]]
name = "is done"
run = "test -f done"
"#;

fn tickets(env: &Env) -> Vec<String> {
    let listed = env.run(&["status", "--json"]).ok().json()["tickets"].clone();
    let listed = listed.as_array().expect("a list of tickets");
    listed.iter().map(|t| t["key"].as_str().expect("a ticket has a key").to_owned()).collect()
}

#[test]
fn the_next_agent_tries_another_way_before_a_person_is_told() {
    let env = Env::new();
    env.script("bin/first", "echo first >> took");
    // Both change something that no check covers; the second one leaves the test time to look
    // around.
    env.script(
        "bin/second",
        "n=0; until test -f go || test $n -gt 600; do sleep 0.1; n=$((n+1)); done; echo second >> took",
    );
    env.write("everloop.toml", FILE);
    let run = env.spawn(&["run"]);
    env.wait_for("another way is tried", || env.run(&["why"]).stdout.contains("tries another way since turn 3"));
    let why = env.run(&["why"]).ok().stdout;
    assert!(why.contains("no progress for 2 turns [stagnation.turns]"), "{why}");
    assert!(why.contains("nothing got better while `first` was at work"), "{why}");
    let status = env.run(&["status"]).ok().stdout;
    assert!(status.contains("tries another way since turn 3"), "{status}");
    assert_eq!(tickets(&env), Vec::<String>::new(), "no ticket is open yet");
    env.write("go", "");
    run.wait().exits(3);
    assert_eq!(env.read("took").lines().collect::<Vec<_>>(), ["first", "first", "second", "second", "second"]);
    let id = env.the_loop()["id"].as_str().unwrap().to_owned();
    assert_eq!(tickets(&env), [format!("stagnation:{id}")]);
    let log = env.run(&["logs", "-n", "1000"]).ok().stdout;
    let place = |what: &str| log.find(what).unwrap_or_else(|| panic!("no line `{what}`:\n{log}"));
    assert!(place("tries another way, in a fresh session: no progress for 2 turns") < place("goes from first@"));
    assert!(place("goes from first@") < place("no progress for 2 turns since another way was tried"), "{log}");
    assert_eq!(log.matches("tries another way").count(), 1, "{log}");
    env.run(&["replay"]).ok();
}

#[test]
fn an_only_agent_is_asked_for_another_approach_and_progress_calls_nobody() {
    let env = Env::new();
    env.script(
        "bin/first",
        "cat > prompt\nif grep -q '^# Another approach' prompt; then touch done; else echo x >> took; fi",
    );
    env.write("everloop.toml", &FILE.replace("\"first\", \"second\"", "\"first\""));
    env.run(&["run"]).ok();
    assert_eq!(env.the_loop()["turns"], 3);
    let prompt = env.read("prompt");
    let asked =
        "Nothing got better for 2 turns (newest first: not yet, not yet); still failing: is done. More of the same";
    assert!(prompt.contains(asked), "{prompt}");
    let log = env.run(&["logs", "-n", "1000"]).ok().stdout;
    assert!(log.contains("tries another way") && !log.contains("ticket"), "{log}");
    assert_eq!(tickets(&env), Vec::<String>::new());
    env.run(&["replay"]).ok();
}

#[test]
fn whoever_does_not_want_another_way_is_told_at_once() {
    let env = Env::new();
    env.script("bin/first", "echo first >> took");
    env.script("bin/second", "echo second >> took");
    env.write(
        "everloop.toml",
        &FILE.replace("stagnation_turns = 2", "stagnation_turns = 2\nstagnation_change = false"),
    );
    env.run(&["run", "--max-turns", "3"]).exits(3);
    assert_eq!(env.read("took"), "first\nfirst\nfirst\n");
    let log = env.run(&["logs", "-n", "1000"]).ok().stdout;
    assert!(log.contains("no progress for 2 turns; the loop goes on") && !log.contains("another way"), "{log}");
}
