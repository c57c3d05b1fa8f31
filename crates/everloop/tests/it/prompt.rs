//! `everloop prompt`: prompts of agents can be listed and found again.

use std::io::Write;
use std::process::Stdio;

use crate::env::Env;

#[test]
fn prompts_of_people_and_of_turns_are_found_by_their_words() {
    let env = Env::new();
    assert_eq!(env.run(&["prompt", "search", "x"]).ok().stdout, "");
    env.run(&["run", "fix the Parser", "--check", "false", "--agent-cmd", "true", "--min-gap", "0", "-n", "1"])
        .exits(3);
    env.write("sub/everloop.toml", "[loop.mine]\ngoal = \"x\"\nagent_cmd = \"true\"\nchecks = [\"true\"]\n");
    env.run(&["trust", "sub"]).ok();
    let up = env.spawn(&["-C", "../home", "up"]);
    env.wait_for("the supervisor", || env.run(&["status", "--json"]).json()["supervisor"]["role"] == "up");
    let payload =
        serde_json::json!({ "session_id": "s1", "cwd": env.project().join("sub"), "prompt": "mend the parser\nnow" });
    let mut child = env.command(&["hook", "UserPromptSubmit"]).stdin(Stdio::piped()).spawn().expect("it was built");
    child.stdin.take().expect("it is piped").write_all(payload.to_string().as_bytes()).expect("it reads");
    assert!(child.wait().expect("our child").success());
    drop(up);
    let found = env.run(&["prompt", "search", "PARSER"]).ok().stdout;
    assert!(found.contains("fix the Parser") && found.contains("s1 (mine) mend the parser"), "{found}");
    let only = env.run(&["prompt", "search", "parser", "--loop", "mine", "--json"]).ok().json();
    assert_eq!(only["prompts"][0]["text"], "mend the parser\nnow");
    assert_eq!(only["prompts"].as_array().map(Vec::len), Some(1));
    assert!(env.run(&["prompt", "search", "parser", "nowhere"]).ok().stdout.is_empty());
    let listed = env.run(&["prompt", "list", "-n", "1"]).ok().stdout;
    assert_eq!(listed.lines().count(), 1, "{listed}");
    let status = env.run(&["status"]).ok().stdout;
    assert!(status.contains("session s1 of claude (mine)"), "{status}");
}

#[test]
fn the_next_prompt_has_the_goal_the_failing_check_and_what_it_printed() {
    let env = Env::new();
    let check = "echo the moon is missing; test -f done";
    env.run(&["run", "reach the moon", "--check", check, "--agent-cmd", "true", "-n", "1", "--min-gap", "0"]).exits(3);
    let text = env.run(&["prompt"]).ok().stdout;
    assert!(text.contains("reach the moon") && text.contains("the moon is missing"), "{text}");
    for part in ["# Checks: 0 of 1 pass", "# What was tried (newest first)\n\n- ", "# Rules\n"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let data = env.run(&["prompt", "--json"]).ok().json();
    assert_eq!(data["prompt"].as_str().map(str::trim_end), Some(text.trim_end()), "text and JSON agree");
    assert_eq!(data["loop"], env.the_loop()["id"]);
    assert_eq!(env.the_loop()["started"], 1, "looking starts nothing");
}

#[test]
fn while_a_turn_runs_it_is_the_prompt_of_that_turn() {
    let env = Env::new();
    let agent = "cat > got; touch begun; sleep 50";
    let _run = env.spawn(&["run", "x", "--check", "test -f done", "--agent-cmd", agent, "--min-gap", "0"]);
    env.wait_for("the agent has its prompt", || env.project().join("begun").exists());
    assert_eq!(env.run(&["prompt"]).ok().stdout.trim_end(), env.read("got").trim_end());
}

#[test]
fn without_a_loop_there_is_no_prompt() {
    assert!(Env::new().run(&["prompt"]).exits(2).stderr.contains("there is no loop yet"));
}
