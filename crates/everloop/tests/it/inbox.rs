//! What others are told: `[mailbox]` and `[tracker]`.

use serde_json::{Value, json};

use crate::env::Env;

const PROJECT: &str = r#"
[mailbox]
every = 2
command = ["sh", "-c", "cat >> ../heard.jsonl"]

[tracker]
command = ["sh", "-c", "echo \"$1 $2\" >> ../tracked; cat > /dev/null", "tracker"]

[loop.x]
goal = "x"
checks = ["test -f done"]
agent_cmd = "if test -f go; then touch done; fi"
[loop.x.guard]
gap = "100ms"
per_hour = "none"
"#;

fn lines(env: &Env, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(env.project().join("..").join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn others_are_told_of_turns_and_tasks_in_their_order() {
    let env = Env::new();
    env.write("everloop.toml", PROJECT);
    let run = env.spawn(&["run"]);
    env.wait_for("two turns were told of", || !lines(&env, "heard.jsonl").is_empty());
    let first: Value = serde_json::from_str(&lines(&env, "heard.jsonl")[0]).expect("a status is JSON");
    assert_eq!((&first["kind"], &first["turns"], &first["name"]), (&json!("status"), &json!(2), &json!("x")));
    let task = env.run(&["task", "add", "port it", "--json"]).ok().json()["task"].clone();
    let id = task.as_str().expect("`add` prints the id");
    env.wait_for("the task was told of", || lines(&env, "tracked").contains(&format!("create {id}")));
    env.run(&["task", "claim", id]).ok();
    env.run(&["wake"]).ok();
    env.wait_for("so was who has it", || lines(&env, "tracked").contains(&format!("claim {id}")));
    env.run(&["task", "done", id, "--fence", "1"]).ok();
    env.wait_for("and its end", || lines(&env, "tracked").contains(&format!("complete {id}")));
    env.write("go", "");
    run.wait().ok();
}

#[test]
fn an_outside_that_is_away_or_hangs_disturbs_nothing() {
    let env = Env::new();
    let away = PROJECT
        .replace("cat >> ../heard.jsonl", "sleep 600")
        .replace(r#"command = ["sh", "-c", "echo"#, r#"command = ["no-such-program", "-c", "echo"#)
        .replace("every = 2", "every = 1");
    env.write("everloop.toml", &away);
    env.write("go", "");
    env.run(&["task", "add", "port it"]).ok();
    env.run(&["run"]).ok();
    env.run(&["replay"]).ok();
}
