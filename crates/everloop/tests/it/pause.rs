//! `everloop pause`: no further turn starts until the loop is resumed or the time has come.

use crate::env::Env;

const LOOP: [&str; 7] =
    ["run", "x", "--check", "test -f done", "--agent-cmd", "test -f go && touch done", "--min-gap=0"];

#[test]
fn a_paused_loop_starts_nothing_until_it_is_resumed() {
    let env = Env::new();
    let run = env.spawn(&[&LOOP[..6], &["--min-gap", "200ms"]].concat());
    env.wait_for("a turn ended", || env.run(&["logs"]).stdout.contains("ended"));
    let said = env.run(&["pause", "--reason", "lunch"]).ok().stdout;
    assert!(said.contains("pauses after the running turn"), "{said}");
    env.wait_for("it is paused", || env.run(&["why"]).stdout.contains("lunch"));
    let before = env.the_loop()["started"].as_u64();
    env.write("go", "");
    env.run(&["wake"]).ok();
    assert_eq!(env.the_loop()["started"].as_u64(), before, "a wake does not end a pause");
    env.run(&["resume"]).ok();
    run.wait().ok();
    env.run(&["replay"]).ok();
}

#[test]
fn a_time_that_has_passed_is_refused_and_an_agent_needs_an_end() {
    let env = Env::new();
    env.run(&[&LOOP[..], &["-n", "1"]].concat()).exits(3);
    let past = env.run(&["pause", "--until", "2001-01-01T00:00"]).exits(2);
    assert!(past.stderr.contains("that time has passed"), "{}", past.stderr);
    env.run(&["pause", "--for", "1h", "--until", "2031-01-01T00:00"]).exits(2);
    let agent = env.var("EVERLOOP_TURN", "k3f9-1.1");
    let refused = agent.run(&["pause"]).exits(2);
    assert!(refused.stderr.contains("an agent's pause needs an end"), "{}", refused.stderr);
}
