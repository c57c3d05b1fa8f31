//! One good turn with each program.

use everloop_testkit::clis::Cli;
use everloop_testkit::offline::offline;

use super::world::World;

/// The program edits a file by a tool call, the check passes, the work lands.
fn reaches_the_goal(cli: Cli, more: &[&str]) {
    let world = World::new(cli, "edit:path=made.txt:text=hello,text:say=done");
    let out = world.run(more).ok();
    assert!(world.env.read("made.txt").starts_with("hello"), "{}", out.stdout);
    assert_eq!(world.env.git_run(&["status", "--porcelain"]), "");
    assert_eq!(world.calls().len(), 2, "a tool call and a last word");
    let started = world.events("turn_started");
    assert_eq!(started.len(), 1);
    let usage = world.env.run(&["usage", "--json", "--by", "agent"]).ok().json();
    assert!(usage["total"]["tokens"].as_u64().is_some_and(|n| n > 0), "{usage}");
}

#[test]
fn claude_edits_a_file() {
    offline(|| reaches_the_goal(Cli::Claude, &[]));
}

#[test]
fn claude_may_do_everything() {
    offline(|| reaches_the_goal(Cli::Claude, &["--permission", "full"]));
}

#[test]
fn codex_edits_a_file() {
    offline(|| reaches_the_goal(Cli::Codex, &["--permission", "full"]));
}

#[test]
fn gemini_edits_a_file() {
    offline(|| reaches_the_goal(Cli::Gemini, &[]));
}

#[test]
fn opencode_edits_a_file() {
    offline(|| reaches_the_goal(Cli::Opencode, &[]));
}
