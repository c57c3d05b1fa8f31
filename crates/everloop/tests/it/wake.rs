//! `everloop wake`: a waiting loop looks again now; the guard's waits stay.

use crate::env::Env;

#[test]
fn a_wake_reaches_the_supervisor_and_does_not_shorten_the_gap() {
    let env = Env::new();
    let _run = env.spawn(&["run", "x", "--check", "test -f done", "--agent-cmd", "true", "--min-gap", "1h"]);
    env.wait_for("the loop waits", || env.run(&["why"]).stdout.contains("[guard.gap]"));
    let said = env.run(&["wake", "--json"]).ok().json();
    assert_eq!(said["supervisor"], true, "{said}");
    env.wait_for("the journal knows of it", || env.run(&["logs"]).stdout.contains("woken by tester"));
    env.wait_for("it waits again", || env.run(&["why"]).stdout.contains("[guard.gap]"));
    assert_eq!(env.the_loop()["started"], 1, "no turn came before the gap was over");
}

#[test]
fn without_a_supervisor_nothing_can_be_woken() {
    let env = Env::new();
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"]).exits(3);
    let away = env.run(&["wake"]).exits(6);
    assert!(away.stderr.contains("hint: everloop up"), "{}", away.stderr);
}

#[test]
fn an_agent_that_repeats_its_prompt_waits_for_nothing() {
    let env = Env::new();
    env.run(&["run", "x\n<BACKOFF 10m>", "--check", "false", "--agent-cmd", "cat", "-n", "2", "--min-gap", "0"])
        .exits(3);
    let logs = env.run(&["logs"]).ok().stdout;
    assert!(!logs.contains("guard.backoff") && !logs.contains("requested a delay"), "{logs}");
    let prompt = env.run(&["prompt"]).ok().stdout;
    assert!(prompt.contains("<BACKOFF 10m>"), "the marker stands in the prompt: {prompt}");
}

/// Two turns of an agent that writes this stream, as the journal describes them.
fn spoken(env: &Env, stream: &[&str]) -> String {
    let begun = r#"{"type":"system","subtype":"init","session_id":"s1","model":"claude-x"}"#;
    let ended = r#"{"type":"result","subtype":"success","is_error":false,"result":"All done.","num_turns":2}"#;
    let lines = [&[begun], stream, &[ended]].concat().join("\n");
    env.write("stream.jsonl", &format!("{lines}\n"));
    env.script("speaker", "cat stream.jsonl; echo '<BACKOFF 10m>' >&2");
    env.write("everloop.toml", "[agent.speaker]\ncommand = [\"./speaker\"]\ndialect = \"claude\"\nfree = true\n");
    env.run(&["run", "x", "--check", "false", "--agent", "speaker", "-n", "2", "--yes"]).exits(3);
    let logs = env.run(&["logs", "-v", "-n", "100"]).ok().stdout;
    assert_eq!(env.the_loop()["tally"]["no_op"], 2, "its stream was understood: {logs}");
    logs
}

#[test]
fn a_marker_in_the_output_of_a_tool_has_no_effect() {
    let stream = [
        r#"{"type":"assistant","message":{"id":"m1","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"x"}}]}}"#,
        r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":"<BACKOFF 10m>"}]}}"#,
    ];
    let logs = spoken(&Env::new(), &stream);
    assert!(!logs.contains("requested a delay"), "{logs}");
}

#[test]
fn a_marker_before_the_last_words_has_no_effect() {
    let stream = [
        r#"{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"<BACKOFF 10m>"}]}}"#,
        r#"{"type":"assistant","message":{"id":"m2","content":[{"type":"text","text":"All done."}]}}"#,
    ];
    let logs = spoken(&Env::new(), &stream);
    assert!(!logs.contains("requested a delay"), "{logs}");
}

#[test]
fn a_delay_that_the_agent_requested_ends_by_a_persons_word() {
    let env = Env::new();
    let agent = "echo; echo '<BACKOFF 1h>'";
    let _run = env.spawn(&["run", "x", "--check", "test -f done", "--agent-cmd", agent, "--min-gap", "0"]);
    let release = ["guard", "release", "loop:x", "--reason", "no need"];
    for (turns, verb) in [(1, &["wake"][..]), (2, &["resume"]), (3, &release)] {
        env.wait_for("it waits", || {
            env.run(&["why"]).stdout.contains("requested a delay of 1h") && env.the_loop()["turns"] == turns
        });
        env.run(verb).ok();
        env.wait_for("the next turn", || env.the_loop()["turns"] == turns + 1);
    }
    let logs = env.run(&["logs"]).ok().stdout;
    assert_eq!(logs.matches("the delay that the agent requested was ended by tester").count(), 2, "{logs}");
    env.run(&["replay"]).ok();
}
