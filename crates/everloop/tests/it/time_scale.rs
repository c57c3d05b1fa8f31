//! Scaled time (`EVERLOOP_TIME_SCALE`): announced, never by accident, and the same for every
//! process of a state folder.

use std::time::{Duration, Instant};

use crate::env::Env;

const LOOP: [&str; 6] =
    ["run", "x", "--check", "test -f done", "--agent-cmd", "test -f once && touch done; touch once"];

#[test]
fn ten_minutes_between_two_starts_pass_in_seconds_and_the_supervisor_warns() {
    let env = Env::new().fast(100);
    let begun = Instant::now();
    let out = env.run(&[&LOOP[..], &["--min-gap", "10m"]].concat()).ok();
    assert!(out.stderr.contains("all waits pass 100 times faster; this is for tests only"), "{}", out.stderr);
    let state = env.the_loop();
    assert_eq!(state["started"], 2, "{state}");
    let passed = env.now().0 - state["created_at"].as_i64().expect("a loop has a beginning");
    assert!(passed >= 600_000, "the gap was kept: {passed} ms");
    assert!(begun.elapsed() < Duration::from_secs(60));
    env.run(&["replay"]).ok();
}

#[test]
fn a_turn_and_its_agent_count_in_the_same_time() {
    let exe = env!("CARGO_BIN_EXE_everloop");
    let agent = format!("{exe} message send @reviewer 'from within' && touch done");
    let env = Env::new().fast(50);
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", &agent, "--min-gap", "0"]).ok();
    let sent = env.run(&["message", "inbox", "@reviewer", "--json"]).ok().json()["messages"][0]["at"].as_i64();
    let begun = env.the_loop()["created_at"].as_i64();
    assert!(sent >= begun && sent <= Some(env.now().0), "{begun:?} {sent:?} {}", env.now().0);
}

#[test]
fn a_value_that_makes_no_sense_is_refused_by_every_verb_and_disturbs_no_session() {
    for value in ["0", "fast", "101"] {
        let env = Env::new().var("EVERLOOP_TIME_SCALE", value);
        let refused = env.run(&["status"]).exits(2);
        assert!(
            refused.stderr.contains("EVERLOOP_TIME_SCALE") && refused.stderr.contains("hint:"),
            "{}",
            refused.stderr
        );
        env.run(&["hook", "Stop"]).ok();
    }
    let plain = Env::new().run(&[&LOOP[..], &["--min-gap", "0"]].concat()).ok();
    assert!(!plain.stderr.contains("EVERLOOP_TIME_SCALE"), "{}", plain.stderr);
}
