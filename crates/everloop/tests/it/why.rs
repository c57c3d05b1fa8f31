//! `everloop why`: the rule that decided, its numbers, and when it changes.

use crate::env::Env;

#[test]
fn a_waiting_loop_names_its_rule_and_the_end_of_the_wait() {
    let env = Env::new();
    let _run = env.spawn(&["run", "x", "--check", "test -f done", "--agent-cmd", "true", "--min-gap", "1h"]);
    env.wait_for("the loop waits", || env.run(&["why"]).stdout.contains("[guard.gap]"));
    let text = env.run(&["why"]).ok().stdout;
    assert!(text.contains("at least 1h lie between two starts") && !text.contains("No supervisor"), "{text}");
    let data = env.run(&["why", "--json"]).ok().json();
    assert_eq!(data["phase"]["reason"]["rule"], "guard.gap", "{data}");
    assert!(data["phase"]["reason"]["until"].as_i64().is_some(), "the end is known: {data}");
    // A second may pass between the two, so the time that is left may differ.
    let why = data["why"].as_str().and_then(|why| why.split_once("; it goes on in"));
    assert!(why.is_some_and(|(why, _)| text.contains(why)), "text and JSON agree: {data}");
}

#[test]
fn a_loop_that_is_over_says_how_it_ended() {
    let env = Env::new();
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"]).exits(3);
    let text = env.run(&["why"]).ok().stdout;
    assert!(text.contains("turns") && !text.contains("No supervisor"), "{text}");
    let unknown = env.run(&["why", "nothing"]).exits(2);
    assert!(unknown.stderr.contains("there is no loop `nothing`"), "{}", unknown.stderr);
}

#[test]
fn without_loops_the_hint_starts_one() {
    let none = Env::new().run(&["why"]).exits(2);
    assert!(none.stderr.contains("there is no loop yet") && none.stderr.contains("everloop run"), "{}", none.stderr);
}
