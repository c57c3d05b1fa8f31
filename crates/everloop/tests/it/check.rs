//! `everloop check`: checks now, in the folder as it is; no loop takes notice.

use nix::sys::signal::Signal;

use crate::env::{Env, processes_of};

#[test]
fn checks_run_without_any_loop_and_leave_nothing() {
    let env = Env::new();
    env.run(&["check", "--check", "true"]).ok();
    let bad = env.run(&["check", "--check", "true", "--check", "echo too bad; false"]).exits(3);
    assert!(bad.stdout.contains("1 of 2 checks pass") && bad.stdout.contains("too bad"), "{}", bad.stdout);
    let data = env.run(&["check", "--json", "--check", "exit 3"]).exits(3).json();
    assert_eq!(data["loops"][0]["checks"][0]["verdict"]["is"], "fail");
    env.run(&["check"]).exits(2);
    let jobs = env.state().join("checks");
    assert_eq!(std::fs::read_dir(jobs).map_or(0, Iterator::count), 0);
}

#[test]
fn an_interrupt_ends_the_checks_as_well() {
    let env = Env::new();
    let check = env.spawn(&["check", "--check", "touch begun; sleep 50"]);
    env.wait_for("the check runs", || env.project().join("begun").exists());
    check.signal(Signal::SIGINT);
    check.wait().exits(130);
    assert_eq!(processes_of(&env.state()), Vec::<i32>::new());
}

#[test]
fn the_checks_of_the_file_run_before_any_loop_is_made() {
    let env = Env::new();
    env.write("Makefile", "test:\n\ttest -f done\n");
    env.run(&["init", "--agent-cmd", "my-agent {prompt}"]).ok();
    env.run(&["check"]).exits(3);
    env.write("done", "");
    env.run(&["check", "main"]).ok();
    let unknown = env.run(&["check", "other"]).exits(2);
    assert!(unknown.stderr.contains("no loop `other`"), "{}", unknown.stderr);
}

#[test]
fn the_checks_of_a_loop_run_where_it_works_and_change_nothing_about_it() {
    let env = Env::new();
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"]).exits(3);
    let before = env.the_loop();
    assert!(env.run(&["check"]).exits(3).stdout.contains("0 of 1"));
    env.write("done", "");
    assert!(env.run(&["check"]).ok().stdout.contains("1 of 1"));
    assert_eq!(env.the_loop(), before, "the loop itself took no notice");
}

#[test]
fn checks_of_the_command_line_have_names_and_times_and_run_beside_each_other() {
    let env = Env::new();
    // Each waits for the other, so they pass only together.
    let (first, second) =
        ("touch a; until test -f b; do sleep 0.05; done", "touch b; until test -f a; do sleep 0.05; done");
    let (first, second) = (format!("left, 40s, parallel :: {first}"), format!("right, 40s, parallel :: {second}"));
    let words =
        ["run", "x", "--check", &first, "--check", &second, "--check", "last :: test -f a", "--agent-cmd", "true"];
    env.run(&words).ok();
    let text = env.run(&["show"]).ok().stdout;
    assert!(["left", "right", "last"].iter().all(|name| text.contains(name)) && !text.contains("touch a"), "{text}");
    let wrong = env.run(&["run", "y", "--check", "a, soon :: true", "--agent-cmd", "true"]).exits(2).stderr;
    assert!(wrong.contains("`soon` is neither a time nor `parallel`") && wrong.contains("hint: "), "{wrong}");
}
