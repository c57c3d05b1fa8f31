//! `[completion.NAME]`: completion signs are signals, and never more than that.

use serde_json::{Value, json};

use crate::env::Env;

const PROJECT: &str = r#"
[completion.plan]
plan = "PLAN.md"

[completion.said]
marker = "ALL DONE"

[loop.x]
goal = "x"
checks = ["test -f done"]
agent_cmd = "printf -- '- [x] a\\n' > PLAN.md; echo ALL DONE"
workspace = "in-place"
max_turns = 2
[loop.x.guard]
min_gap = "0"
"#;

fn woken(env: &Env) -> Vec<String> {
    let lines = env.run(&["logs", "--json", "-n", "1000"]).ok().stdout;
    let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is a record"));
    let by = all.map(|record| record["event"].clone()).filter(|event| event["event"] == "woken");
    by.map(|event| event["by"].as_str().expect("a wake names its cause").to_owned()).collect()
}

#[test]
fn an_agent_that_says_it_is_complete_is_heard_and_the_checks_decide() {
    let env = Env::new();
    env.write("everloop.toml", PROJECT);
    env.run(&["config", "check"]).ok();
    env.run(&["run"]).exits(3);
    let mut woken = woken(&env);
    woken.sort();
    let said = "completion `said`: the agent printed `ALL DONE`";
    // The plan is finished once; each turn has words of its own.
    assert_eq!(woken, ["completion `plan`: `PLAN.md` has no open box (1 done)", said, said]);
    let why = env.run(&["why"]).ok().stdout;
    assert!(why.contains("Sign: `plan` looked complete to turn") && why.contains("The checks decide."), "{why}");
    let shown = env.run(&["show", "--json"]).ok().json();
    assert_eq!(shown["loop"]["phase"]["ending"]["is"], "exhausted", "{}", shown["loop"]["phase"]);
    assert_eq!(shown["signs"].as_array().map(Vec::len), Some(2), "{}", shown["signs"]);
    env.run(&["replay"]).ok();
}

#[test]
fn words_without_a_rule_are_only_words() {
    let env = Env::new();
    env.write(
        "everloop.toml",
        &PROJECT.replace("marker = \"ALL DONE\"", "marker = \"SOMETHING ELSE\"").replace("PLAN.md\"\n", "OTHER.md\"\n"),
    );
    env.run(&["run"]).exits(3);
    assert_eq!(woken(&env), [""; 0]);
    assert_eq!(env.run(&["why", "--json"]).ok().json()["signs"], json!([]));
}
