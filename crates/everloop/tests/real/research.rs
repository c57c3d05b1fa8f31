//! Experiments of a research run by the real programs.

use everloop_testkit::clis::CliProgram;
use everloop_testkit::offline::offline;

use super::world::World;

/// Each experiment makes one more file, which the metric counts.
fn takes_three_experiments(cli: CliProgram, more: &[&str]) {
    let step = |n: u32| format!("edit:path=made-{n}:text=x,text:say=EXPERIMENT: file {n}");
    let script: Vec<String> = (1..=3).map(step).collect();
    let world = World::new(cli, &script.join(","));
    let words = ["research", "more files", "--metric", "ls | grep -c made- || true", "--direction", "higher"];
    let out = world.env.run(&[&words[..], &["--agent", cli.name(), "-n", "3"], more].concat()).exits(3);
    assert!(out.stdout.contains("Baseline: 0 -> Final: 3"), "{}{}", out.stderr, out.stdout);
    let rows = world.env.run(&["research", "show", "--json"]).ok().json()["rows"].clone();
    for n in 1..=3_usize {
        assert_eq!((&rows[n]["status"], &rows[n]["value"]), (&"keep".into(), &serde_json::json!(n as f64)), "{rows:#}");
        assert_eq!(rows[n]["description"], format!("file {n}"), "{rows:#}");
    }
    assert_eq!(world.calls().len(), 6, "a tool call and a last word each");
}

#[test]
fn claude_takes_three_experiments() {
    offline(|| takes_three_experiments(CliProgram::Claude, &[]));
}

#[test]
fn codex_takes_three_experiments() {
    offline(|| takes_three_experiments(CliProgram::Codex, &["--permission", "full"]));
}
