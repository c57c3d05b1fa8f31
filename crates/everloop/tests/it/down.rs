//! `everloop down`: the supervisor stops, its loops stay resumable.

use crate::env::{Env, processes_of};

#[test]
fn the_supervisor_ends_and_the_interrupted_turn_is_tried_again() {
    let env = Env::new();
    let agent = "if test -f begun; then touch done; else touch begun; sleep 50; fi";
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", agent, "--min-gap", "0", "--detach"]).ok();
    env.wait_for("the agent works", || env.project().join("begun").exists());
    let stopped = env.run(&["down", "--json"]).ok().json();
    assert!(stopped["stopped"].as_u64().is_some_and(|pid| pid > 1), "{stopped}");
    assert_eq!(processes_of(&env.state()), Vec::<i32>::new(), "neither the supervisor nor the agent is left");
    assert_ne!(env.the_loop()["phase"]["is"], "ended", "the loop is not over");
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for("the next supervisor reaches the goal", || env.the_loop()["phase"]["ending"]["is"] == "reached");
    env.run(&["down"]).ok();
    up.wait().exits(143);
}

#[test]
fn without_a_supervisor_there_is_nothing_to_stop() {
    let env = Env::new();
    let away = env.run(&["down"]).exits(6);
    assert!(away.stderr.contains("no supervisor is running") && away.stderr.contains("hint:"), "{}", away.stderr);
}

#[test]
fn an_agent_may_not_stop_the_supervisor_that_it_works_for() {
    let env = Env::new().var("EVERLOOP_TURN", "k3f9-1.1");
    let refused = env.run(&["down"]).exits(2);
    assert!(refused.stderr.contains("only a person may"), "{}", refused.stderr);
}
