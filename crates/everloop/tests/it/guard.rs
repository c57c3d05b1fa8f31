//! `everloop guard`: status, hold, release.

use crate::env::Env;

#[test]
fn a_hold_is_seen_and_released_with_a_reason() {
    let env = Env::new();
    env.run(&["guard", "status"]).ok();
    env.run(&["guard", "hold", "--reason", "the key leaks"]).ok();
    let held = env.run(&["guard", "status"]).exits(5).stdout;
    assert!(held.contains("frozen by tester") && held.contains("tester: the key leaks"), "{held}");
    let data = env.run(&["guard", "status", "--json"]).exits(5).json();
    assert_eq!(data["scopes"][0]["freeze"]["cause"], "person");
    assert_eq!(data["scopes"][0]["freeze"]["canary_at"], serde_json::Value::Null);
    env.run(&["guard", "release"]).exits(2);
    env.run(&["guard", "release", "--reason", " "]).exits(2);
    let other = env.run(&["guard", "release", "account:default", "--reason", "x"]).exits(2);
    assert!(other.stderr.contains("frozen are: all"), "{}", other.stderr);
    env.run(&["guard", "release", "--reason", "new key"]).ok();
    env.run(&["guard", "status"]).ok();
    let none = env.run(&["guard", "release", "--reason", "again"]).exits(2);
    assert!(none.stderr.contains("nothing is frozen"), "{}", none.stderr);
    let log = env.run(&["logs"]).ok().stdout;
    assert!(log.contains("all was released by tester: new key"), "{log}");
    env.run(&["replay"]).ok();
}

#[test]
fn scopes_that_nobody_has_are_refused() {
    let env = Env::new();
    let typo = env.run(&["guard", "hold", "everything", "--reason", "x"]).exits(2);
    assert!(typo.stderr.contains("write `all`, `loop:ID`"), "{}", typo.stderr);
    let nobody = env.run(&["guard", "hold", "account:nobody", "--reason", "x"]).exits(2);
    assert!(nobody.stderr.contains("`account:nobody` is not used by any loop"), "{}", nobody.stderr);
}

#[test]
fn a_held_loop_starts_nothing_and_goes_on_when_it_is_released() {
    let env = Env::new();
    env.run(&["guard", "hold", "--reason", "not yet"]).ok();
    let run = env.spawn(&["run", "x", "--check", "test -f done", "--agent-cmd", "touch done", "--min-gap", "0"]);
    env.wait_for("the loop waits", || env.run(&["why"]).stdout.contains("guard.freeze"));
    env.run(&["status", "--exit-code"]).exits(5);
    assert!(!env.project().join("done").exists());
    env.run(&["guard", "release", "--reason", "now"]).ok();
    run.wait().ok();
    assert!(env.project().join("done").exists());
    env.run(&["replay"]).ok();
}
