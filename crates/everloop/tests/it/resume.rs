//! `everloop resume`: a paused, stopped or exhausted loop goes on where it was.

use crate::env::Env;

#[test]
fn an_exhausted_loop_needs_more_turns_and_then_goes_on() {
    let env = Env::new();
    let agent = "if test -f one; then touch done; else touch one; fi";
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", agent, "-n", "1", "--min-gap", "0"]).exits(3);
    let refused = env.run(&["resume"]).exits(2);
    assert!(refused.stderr.contains("its limit on turns is used up"), "{}", refused.stderr);
    assert!(refused.stderr.contains("-n 10"), "the hint is the next command: {}", refused.stderr);
    let said = env.run(&["resume", "-n", "3", "--json"]).ok().json();
    assert_eq!((&said["done"], &said["supervisor"]), (&"goes on".into(), &false.into()), "{said}");
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for("the goal is reached", || env.the_loop()["phase"]["ending"]["is"] == "reached");
    assert_eq!(env.the_loop()["turns"], 2, "it went on and did not begin again");
    env.run(&["down"]).ok();
    up.wait().exits(143);
    env.run(&["replay"]).ok();
}

#[test]
fn a_reached_loop_is_not_resumed_and_an_agent_may_resume_none() {
    let env = Env::new();
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "touch done", "--min-gap", "0"]).ok();
    let refused = env.run(&["resume"]).exits(2);
    assert!(refused.stderr.contains("has reached its goal"), "{}", refused.stderr);
    let agent = env.var("EVERLOOP_TURN", "k3f9-1.1");
    assert!(agent.run(&["resume"]).exits(2).stderr.contains("only a person may"));
}
