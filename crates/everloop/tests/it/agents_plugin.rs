//! `everloop agents plugin`: its files and output. A test with the real Claude Code installs it.

use crate::env::Env;

#[test]
fn the_plugin_is_written_where_it_is_asked_for_and_printed_whole() {
    let env = Env::new();
    env.run(&["agents", "plugin", "install", "out"]).ok();
    for file in [".claude-plugin/plugin.json", "hooks/hooks.json", ".mcp.json", "skills/handoff/SKILL.md"] {
        assert!(!env.read(&format!("out/{file}")).is_empty());
    }
    let printed = env.run(&["agents", "plugin", "print"]).ok().stdout;
    assert!(printed.contains("--- hooks/hooks.json") && printed.contains("everloop hook Stop"), "{printed}");
    let data = env.run(&["agents", "plugin", "print", "--json"]).ok().json();
    assert_eq!(data["files"].as_object().map(serde_json::Map::len), Some(9));
}
