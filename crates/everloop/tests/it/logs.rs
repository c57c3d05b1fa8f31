//! `everloop logs`: lines, JSON, following, a turn's output.

use crate::env::Env;

#[test]
fn lines_are_limited_and_json_is_one_object_per_line() {
    let env = Env::new();
    let none = env.run(&["logs"]).exits(2);
    assert!(none.stderr.contains("there is no loop yet"), "{}", none.stderr);
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "touch done", "--min-gap", "0"]).ok();
    let all = env.run(&["logs"]).ok().stdout;
    assert!(all.contains("created loop") && all.contains("ended: "), "{all}");
    assert_eq!(env.run(&["logs", "-n", "2"]).ok().stdout.lines().count(), 2);
    let every = env.run(&["logs", "-v"]).ok().stdout;
    for words in ["the agent ended after", "quarantine record"] {
        assert_eq!(every.lines().filter(|line| line.contains(words)).count(), 1, "{every}");
    }
    let turn: Vec<&str> = all.lines().filter(|line| line.contains("-1.1")).collect();
    let [started, ended] = turn.as_slice() else { panic!("a turn begins and ends:\n{all}") };
    assert!(started.contains("turn 1 started") && ended.contains("1 of 1 check passes"), "{all}");
    assert!(!all.contains("quarantine record"), "{all}");
    assert_eq!(env.run(&["logs", "--since", "1h"]).ok().stdout, all);
    let future = env.run(&["logs", "--since", "2100-01-01"]).ok().stdout;
    assert_eq!(future, "");
    env.run(&["logs", "--since", "soon"]).exits(2);
    for line in env.run(&["logs", "--json"]).ok().stdout.lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(record["schema_version"], 1);
        assert!(record["event"]["event"].is_string(), "{record}");
    }
}

#[test]
fn following_ends_with_the_loop() {
    let env = Env::new();
    let agent = env.script("agent", "while ! test -f go; do sleep 0.05; done; echo working; touch done");
    let run =
        env.spawn(&["run", "x", "--check", "test -f done", "--agent-cmd", &agent, "--min-gap", "0", "--in-place"]);
    env.wait_for_agent();
    let id = env.the_loop()["id"].as_str().unwrap().to_owned();
    let turn = env.the_loop()["phase"]["id"].as_str().unwrap().to_owned();
    let follower = env.spawn(&["logs", "-f", &id]);
    let output = env.spawn(&["logs", "-f", "--turn", &turn]);
    env.write("go", "");
    run.wait().ok();
    let followed = follower.wait().ok().stdout;
    assert!(
        followed.contains("turn 1 started") && followed.trim_end().ends_with("reached, all checks pass"),
        "{followed}"
    );
    assert_eq!(output.wait().ok().stdout, "working\n");
    assert_eq!(env.run(&["logs", "--turn", "1"]).ok().stdout, "working\n");
    env.run(&["logs", "--turn", "9"]).exits(2);
    env.run(&["logs", "--turn", "../../etc"]).exits(2);
}

#[test]
fn the_last_words_of_an_agent_that_failed_are_shown() {
    let env = Env::new();
    let agent = "echo one >&2; echo 'no model of that name' >&2; exit 3";
    let run = env.run(&["run", "x", "--check", "false", "--agent-cmd", agent, "-n", "1", "--min-gap", "0"]).exits(3);
    let logs = env.run(&["logs"]).ok().stdout;
    for printed in [&run.stderr, &logs] {
        assert!(printed.contains("\n    | no model of that name\n"), "{printed}");
    }
}

/// A turn's stream is JSON; what is printed is what was said and done, without escapes.
#[test]
fn a_turn_is_shown_as_what_was_said_and_done() {
    let env = Env::new();
    let stream = [
        r#"{"type":"system","subtype":"init","session_id":"s1","model":"claude-x"}"#,
        r#"{"type":"assistant","message":{"id":"m1","model":"claude-x","content":[{"type":"text","text":"I look \\u001b[31mfirst."},{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls -a"}}]}}"#,
        r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":"no such \\u001b]0;x\\u0007folder","is_error":true}]}}"#,
        r#"{"type":"result","subtype":"success","is_error":false,"result":"All done.","num_turns":2}"#,
    ];
    env.write("stream.jsonl", &format!("{}\n", stream.join("\n").replace("\\\\", "\\")));
    let agent = env.script("agent", "cat stream.jsonl; touch done");
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", &agent, "--min-gap", "0", "--in-place"]).ok();
    let turn = format!("{}-1.1", env.the_loop()["id"].as_str().unwrap());
    let shown = env.run(&["logs", "--turn", &turn]).ok().stdout;
    assert_eq!(
        shown,
        "session s1, claude-x\n\nI look first.\n\n● Bash  ls -a\n  ✗ no such folder\n\n= done: All done.\n"
    );
    assert_eq!(env.run(&["logs", "-f", "--turn", &turn]).ok().stdout, shown);
    let full = env.run(&["show", &turn]).ok().stdout;
    assert!(full.contains("● Bash  ls -a") && !full.contains("tool_use"), "{full}");
    for raw in [env.run(&["logs", "--turn", &turn, "--raw"]).ok(), env.run(&["show", &turn, "--raw"]).ok()] {
        assert!(raw.stdout.contains(r#""name":"Bash""#), "{}", raw.stdout);
    }
    let data = env.run(&["logs", "--turn", &turn, "--json"]).ok().json();
    assert_eq!(data["steps"][2]["step"], "tool", "{data}");
    assert_eq!(data["steps"][2]["state"], "failed", "{data}");
    env.run(&["logs", "--raw"]).exits(2);
}

/// The agent goes on only after its line was seen, so a line that is shown at the end of the turn
/// comes too late.
#[test]
fn the_last_line_of_the_agent_is_in_the_live_view_while_its_turn_runs() {
    let env = Env::new();
    let screen = env.project().with_file_name("screen");
    let agent = "echo looking around; echo reading the plan; until test -f go; do sleep 0.05; done; touch done";
    let run = ["run", "x", "--check", "test -f done", "--agent-cmd", agent, "--min-gap", "0"];
    let on_terminal = env.spawn_on_terminal(&run, &screen);
    let shown = || String::from_utf8_lossy(&std::fs::read(&screen).unwrap_or_default()).into_owned();
    env.wait_for("its last line is shown", || shown().contains("says: reading the plan"));
    env.write("go", "");
    on_terminal.wait().ok();
}
