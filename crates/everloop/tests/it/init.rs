//! `everloop init`, `check`, `completions` and `man`.

use nix::sys::signal::Signal;

use crate::env::{Env, processes_of};

#[test]
fn a_project_gets_its_checks_and_the_file_is_sound() {
    let env = Env::new();
    env.write("Makefile", "test:\n\ttrue\n");
    let said = env.run(&["init", "--agent-cmd", "my-agent {prompt}", "--goal", "be good"]).ok().stdout;
    assert!(said.contains("found make test") && said.contains("next: everloop run"), "{said}");
    let text = env.read("everloop.toml");
    assert!(text.contains("goal = \"be good\"") && text.contains("run = \"make test\""), "{text}");
    env.run(&["config", "check"]).ok();
    let again = env.run(&["init"]).exits(1);
    assert!(again.stderr.contains("exists already") && again.stderr.contains("--force"), "{}", again.stderr);
    assert_eq!(env.read("everloop.toml"), text);
    env.run(&["init", "--force"]).ok();
    assert_ne!(env.read("everloop.toml"), text);
}

#[test]
fn printing_writes_nothing() {
    let env = Env::new();
    let text = env.run(&["init", "--print"]).ok().stdout;
    assert!(text.contains("[loop.main]"), "{text}");
    assert!(!env.project().join("everloop.toml").exists());
}

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
    assert!(unknown.stderr.contains("there is no loop `other`"), "{}", unknown.stderr);
}
