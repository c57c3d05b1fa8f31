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
