//! Triage: tasks go to the first of a loop's agents that they are for, urgent ones first.

use crate::env::Env;

const FILE: &str = r#"
[agent.small]
command = "bin/small"
kinds = ["docs"]
max_priority = 0

[agent.large]
command = "bin/large"

[loop.a]
goal = "g"
agents = ["small", "large"]
checks = ["test $(wc -l < took) -ge 4"]
workspace = "in-place"
[loop.a.guard]
min_gap = "0"
"#;

/// Two agents that record their tasks.
fn world() -> Env {
    let env = Env::new();
    for name in ["small", "large"] {
        env.script(&format!("bin/{name}"), &format!("echo \"{name} $EVERLOOP_TASK\" >> took"));
    }
    env.write("took", "");
    env.write("everloop.toml", FILE);
    env
}

#[test]
fn cheap_tasks_go_to_the_cheap_agent_and_urgent_ones_first() {
    let env = world();
    // Created and paused before it can begin, so that the board is full when it does.
    env.run(&["guard", "hold", "--reason", "the board is filled"]).ok();
    env.run(&["run", "--no-wait"]).exits(5);
    let id = env.the_loop()["id"].as_str().unwrap().to_owned();
    let add = |title: &str, kind: &str, priority: &str| {
        let args = ["task", "add", title, "--loop", &id, "--kind", kind, "--priority", priority, "--json"];
        env.run(&args).ok().json()["task"].as_str().unwrap().to_owned()
    };
    let manual = add("the manual", "docs", "0");
    let fire = add("put it out", "docs", "9");
    let port = add("port it", "code", "3");
    env.run(&["guard", "release", "--reason", "filled"]).ok();
    env.run(&["run"]).ok();
    let expected =
        [format!("large {fire}"), format!("large {port}"), format!("small {manual}"), format!("large {id}-1")];
    assert_eq!(env.read("took").lines().collect::<Vec<_>>(), expected);
    let log = env.run(&["logs"]).ok().stdout;
    assert!(log.contains("goes from large@default to small@default, the first for tasks of kind `docs`"), "{log}");
    let said = env.run(&["show", &format!("{manual}.1")]).ok().stdout;
    assert!(said.contains("Agent     small: the first of the loop's agents for tasks of kind `docs`"), "{said}");
    let said = env.run(&["show"]).ok().stdout;
    assert!(said.contains("small: bin/small (only tasks of kind docs, up to priority 0)"), "{said}");
    env.run(&["replay"]).ok();
}

#[test]
fn a_loop_without_anybody_for_some_tasks_is_refused() {
    let env = world();
    env.write("everloop.toml", &FILE.replace("\"small\", \"large\"", "\"small\""));
    let said = env.run(&["config", "check"]).exits(7).stderr;
    assert!(said.contains("none of these agents takes a task of any kind with priority 0"), "{said}");
    assert!(said.contains("as the last of `agents`"), "{said}");
}
