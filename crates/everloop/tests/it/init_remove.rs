//! `everloop init --agent …` and `everloop init --remove`: files for agents' CLIs, and that nothing of
//! them is left.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::env::Env;

/// Every file below the project and its bytes.
fn picture(env: &Env) -> BTreeMap<String, Vec<u8>> {
    fn walk(folder: &Path, root: &Path, all: &mut BTreeMap<String, Vec<u8>>) {
        for entry in std::fs::read_dir(folder).expect("it is ours").flatten() {
            let name = entry.path().strip_prefix(root).expect("below").display().to_string();
            if entry.path().is_dir() {
                all.insert(format!("{name}/"), Vec::new());
                walk(&entry.path(), root, all);
            } else {
                all.insert(name, std::fs::read(entry.path()).expect("it is a file"));
            }
        }
    }
    let mut all = BTreeMap::new();
    walk(&env.project(), &env.project(), &mut all);
    all
}

const ALL: [&str; 10] =
    ["init", "--yes", "--agent", "claude", "--agent", "codex", "--agent", "gemini", "--agent", "opencode"];

/// A project with files of other tools, in their own formatting.
fn furnished() -> Env {
    let env = Env::new();
    env.write("AGENTS.md", "# Rules\r\n\r\nBe kind.\r\n");
    env.write("CLAUDE.md", "no line end at the end");
    env.write(
        ".claude/settings.json",
        "{\n\t\"permissions\": { \"allow\": [ \"Bash(ls)\" ] },\n\t\"hooks\": {\n\t\t\"Stop\": [\n\t\t\t{ \"hooks\": [ { \"type\": \"command\", \"command\": \"other stop\" } ] }\n\t\t],\n\t\t\"PreToolUse\": []\n\t}\n}",
    );
    env.write(".mcp.json", "{\"mcpServers\":{\"other\":{\"command\":\"x\",\"n\":1.50}}}\n");
    env.write(".gemini/settings.json", "{\n   \"mcpServers\": {}\n}\n");
    env.write(
        ".codex/config.toml",
        "# mine\nmodel = \"gpt-5.5\"\n\n[mcp_servers.other]\ncommand = \"x\" # no line end",
    );
    env.write(
        ".codex/hooks.json",
        "{\"hooks\":{\"Stop\":[{\"hooks\":[{\"type\":\"command\",\"command\":\"other\"}]}]}}",
    );
    env.write("opencode.json", "{\r\n    \"mcp\": { \"other\": { \"type\": \"local\" } }\r\n}\r\n");
    env.write(".git-hooks/pre-commit", "#!/bin/sh\nexit 0\n");
    env
}

#[test]
fn init_and_uninstall_leave_no_trace() {
    for env in [furnished(), Env::new(), Env::new().git()] {
        let before = picture(&env);
        let said = env.run(&ALL).ok().stdout;
        assert!(said.contains("+ ") && said.contains("opencode has no hooks"), "what changes is shown: {said}");
        assert_ne!(picture(&env), before);
        let once = picture(&env);
        env.run(&ALL).ok();
        assert_eq!(picture(&env), once, "twice is once");
        env.run(&["config", "check"]).ok();
        env.run(&["init", "--remove", "--yes"]).ok();
        assert_eq!(picture(&env), before);
        assert!(env.run(&["init", "--remove", "--yes"]).ok().stdout.contains("nothing of everloop was found here"));
    }
}

#[test]
fn others_keep_what_is_theirs() {
    let env = furnished();
    env.run(&ALL).ok();
    let settings: Value = serde_json::from_str(&env.read(".claude/settings.json")).expect("it is JSON");
    assert_eq!(settings["hooks"]["Stop"][0]["hooks"][0]["command"], "other stop");
    let ours = settings["hooks"]["Stop"][1]["hooks"][0]["command"].as_str().expect("ours comes behind");
    assert!(ours.ends_with("everloop hook Stop"), "{ours}");
    assert_eq!(settings["permissions"]["allow"][0], "Bash(ls)");
    let servers: Value = serde_json::from_str(&env.read(".mcp.json")).expect("it is JSON");
    assert_eq!(
        (&servers["mcpServers"]["everloop"]["args"][0], &servers["mcpServers"]["other"]["command"]),
        (&"mcp".into(), &"x".into())
    );
    assert!(env.read(".mcp.json").contains("1.50"), "not written anew");
    let codex: toml::Table = env.read(".codex/config.toml").parse().expect("it is TOML");
    let command = |name: &str| codex["mcp_servers"][name]["command"].as_str().map(str::to_owned);
    assert_eq!((command("everloop").as_deref(), command("other").as_deref()), (Some("everloop"), Some("x")));
    for (file, moment, who) in
        [(".codex/hooks.json", "Stop", "codex"), (".gemini/settings.json", "AfterAgent", "gemini")]
    {
        let hooks: Value = serde_json::from_str(&env.read(file)).expect("it is JSON");
        let last = hooks["hooks"][moment].as_array().and_then(|all| all.last()).expect("ours comes last").clone();
        let command = last["hooks"][0]["command"].as_str().expect("a command").to_owned();
        assert!(command.ends_with(&format!("everloop hook {moment} --for {who}")), "{command}");
    }
    assert!(
        env.read("AGENTS.md").starts_with("# Rules\r\n\r\nBe kind.\r\n")
            && env.read("AGENTS.md").contains("everloop check")
    );
}

#[test]
fn each_cli_gets_its_instructions_and_its_server() {
    let env = Env::new();
    env.run(&ALL).ok();
    for (file, words) in [
        ("CLAUDE.md", "everloop check"),
        ("AGENTS.md", "everloop check"),
        ("GEMINI.md", "everloop check"),
        (".mcp.json", "\"everloop\""),
        (".codex/config.toml", "[mcp_servers.everloop]"),
        (".gemini/settings.json", "\"mcpServers\""),
        ("opencode.json", "\"everloop\""),
    ] {
        assert!(env.read(file).contains(words), "{file}: {}", env.read(file));
    }
}

#[test]
fn what_others_changed_since_stays_and_only_ours_goes() {
    let env = furnished();
    env.run(&ALL).ok();
    env.write("everloop.toml", &format!("{}# mine\n", env.read("everloop.toml")));
    env.write("AGENTS.md", &format!("{}# Later\n", env.read("AGENTS.md")));
    let edited = env.read(".claude/settings.json").replace("other stop", "another stop");
    env.write(".claude/settings.json", &edited);
    env.write(".codex/config.toml", &format!("{}\n[later]\nx = 1\n", env.read(".codex/config.toml")));
    env.write(".codex/hooks.json", &env.read(".codex/hooks.json").replace("\"other\"", "\"another\""));
    let said = env.run(&["init", "--remove", "--yes"]).ok().stdout;
    assert!(said.contains("kept") && env.read("everloop.toml").ends_with("# mine\n"), "{said}");
    assert_eq!(env.read("AGENTS.md"), "# Rules\r\n\r\nBe kind.\r\n# Later\n");
    let codex = env.read(".codex/config.toml");
    assert!(
        codex.starts_with("# mine\n") && codex.ends_with("[later]\nx = 1\n") && !codex.contains("everloop"),
        "{codex}"
    );
    let hooks = env.read(".codex/hooks.json");
    assert_eq!(hooks, "{\"hooks\":{\"Stop\":[{\"hooks\":[{\"type\":\"command\",\"command\":\"another\"}]}]}}");
    let settings = env.read(".claude/settings.json");
    assert!(settings.contains("another stop") && !settings.contains("everloop"), "{settings}");
    assert!(settings.contains("\"PreToolUse\": []"), "an empty list of theirs stays: {settings}");
    assert!(!settings.contains("SessionEnd"), "what we made and is empty goes: {settings}");
}

#[test]
fn a_file_that_cannot_be_edited_safely_is_left_alone() {
    let env = Env::new();
    env.write(".claude/settings.json", "{ // mine\n}\n");
    env.write(".codex/config.toml", "mcp_servers = { other = { command = \"x\" } }\n");
    let before = picture(&env);
    for agent in ["claude", "codex"] {
        let out = env.run(&["init", "--yes", "--agent", agent]).exits(1);
        assert!(out.stderr.contains("edit it by hand"), "{}", out.stderr);
        assert_eq!(picture(&env), before, "and nothing else was written either");
    }
}
