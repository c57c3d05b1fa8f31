//! `everloop guard quarantine`: a failing subject gets no work, a person's rules hold, and the last
//! worker is never removed.

use crate::env::Env;

const FILE: &str = r#"
[agent.broken]
command = "bin/broken"
account = "broken"

[agent.second]
command = "bin/busy"
account = "second"

[agent.third]
command = "bin/busy"
account = "third"

[account.broken]
[account.second]
[account.third]

[loop.a]
goal = "g"
agents = ["broken", "second", "third"]
checks = ["test $(wc -l < took) -ge 14"]
workspace = "in-place"
max_turns = 80
[loop.a.guard]
min_gap = "0"
backoff_first = "1ms"
backoff_cap = "1ms"
cooldown_young = "1ms"
stagnation_change = false
"#;

/// An agent that always fails, and two that work.
fn world() -> Env {
    let env = Env::new();
    env.script("bin/broken", "exit 1");
    env.script("bin/busy", "echo x >> took");
    env.write("took", "");
    env.write("everloop.toml", FILE);
    env
}

#[test]
fn an_agent_that_always_fails_is_found_out_and_the_others_finish() {
    let env = world();
    // With half of its work, how soon it is out is chance: the others have enough to do until then.
    env.write("everloop.toml", &FILE.replace("-ge 14", "-ge 40"));
    env.run(&["run"]).ok();
    let listed = env.run(&["guard", "quarantine", "list", "--json"]).exits(5).json();
    let held = listed["quarantined"].as_array().unwrap();
    assert_eq!(held.len(), 1, "{listed}");
    assert_eq!(held[0]["subject"], "account:broken");
    assert_eq!(held[0]["tier"]["is"], "out", "{listed}");
    let text = env.run(&["guard", "quarantine", "list"]).exits(5).stdout;
    assert!(text.contains("account:broken fails in") && text.contains("others in"), "{text}");
    let status = env.run(&["status"]).ok().stdout;
    assert!(status.contains("quarantine: account:broken out until"), "{status}");
    let log = env.run(&["logs", "-n", "1000"]).ok().stdout;
    assert!(log.contains("account:broken fails in") && log.contains("quarantined"), "{log}");
    let starts = log.lines().filter(|l| l.contains("was `agent failed` with")).count();
    assert!(starts < 30, "it does not go on for ever: {starts}\n{log}");
    env.run(&["guard", "quarantine", "lift", "account:broken", "--why", "repaired"]).ok();
    let gone = env.run(&["guard", "quarantine", "lift", "account:broken", "--why", "again"]).exits(2);
    assert!(gone.stderr.contains("is not quarantined"), "{}", gone.stderr);
    env.run(&["guard", "quarantine", "list"]).ok();
    env.run(&["replay"]).ok();
}

#[test]
fn the_only_agent_goes_on_however_often_it_fails() {
    let env = world();
    let alone =
        FILE.replace("\"broken\", \"second\", \"third\"", "\"broken\"").replace("max_turns = 80", "max_turns = 12");
    env.write("everloop.toml", &alone);
    env.run(&["run"]).exits(3);
    env.run(&["guard", "quarantine", "list"]).ok();
    assert_eq!(env.the_loop()["turns"], 12);
    env.run(&["replay"]).ok();
}

#[test]
fn a_rule_of_a_person_holds_until_it_is_lifted() {
    let env = world();
    env.write("everloop.toml", &FILE.replace("\"broken\", \"second\", \"third\"", "\"second\""));
    let add = |args: &[&str]| env.run(&[&["guard", "quarantine", "add"], args].concat());
    add(&["account:second", "--why", " "]).exits(2);
    add(&["someone", "--why", "x"]).exits(2);
    let only = add(&["account:second", "--only", "agent:third", "--why", "x"]).exits(2);
    assert!(only.stderr.contains("binds a kind of task"), "{}", only.stderr);
    add(&["account:second", "--for", "3h", "--why", "its key is renewed"]).ok();
    let run = env.spawn(&["run"]);
    env.wait_for("the loop waits", || env.run(&["why"]).stdout.contains("immune.rule"));
    let why = env.run(&["why"]).ok().stdout;
    assert!(why.contains("a rule of `tester` holds: account:second (its key is renewed)"), "{why}");
    let data = env.run(&["status", "--json"]).ok().json();
    assert_eq!(data["quarantine"]["rules"][0]["by"], "tester");
    env.run(&["guard", "quarantine", "lift", "1", "--why", "it is there"]).ok();
    run.wait().ok();
    env.run(&["replay"]).ok();
}

#[test]
fn the_only_machine_cannot_be_quarantined_and_an_agent_changes_nothing() {
    let env = world();
    env.run(&["run"]).ok();
    let node = env.run(&["logs", "-v", "-n", "1000"]).ok().stdout;
    let node = node.split("node:").nth(1).and_then(|rest| rest.split([',', ' ']).next()).unwrap().to_owned();
    let refused = env.run(&["guard", "quarantine", "add", &format!("node:{node}"), "--why", "loud"]).exits(1);
    assert!(refused.stderr.contains("at most a third of the nodes"), "{}", refused.stderr);
    assert!(refused.stderr.contains("everloop guard hold"), "{}", refused.stderr);
    let env = env.var("EVERLOOP_TURN", "a-1.1");
    let agent = env.run(&["guard", "quarantine", "lift", "account:broken", "--why", "let me"]).exits(2);
    assert!(agent.stderr.contains("only a person"), "{}", agent.stderr);
}
