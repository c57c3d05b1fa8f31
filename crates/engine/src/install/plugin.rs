//! The plugin for Claude Code: hooks, MCP server and skills in the folder layout that it reads. The
//! folder is a marketplace of one plugin, too, since that is how Claude Code installs.

use serde_json::{Value, json};

use super::plan::{CLAUDE, plugin_hook};

/// The name of the plugin and of its marketplace.
pub const NAME: &str = "everloop";

const SKILLS: [(&str, &str); 5] = [
    ("loop", include_str!("skills/loop.md")),
    ("criteria", include_str!("skills/criteria.md")),
    ("experiment", include_str!("skills/experiment.md")),
    ("handoff", include_str!("skills/handoff.md")),
    ("inbox", include_str!("skills/inbox.md")),
];

/// Every file of it, by its path in the folder.
pub fn files() -> Vec<(String, String)> {
    let about = "Keeps coding agents working on a goal until commands prove that it is reached";
    let version = env!("CARGO_PKG_VERSION");
    let plugin = json!({ "name": NAME, "version": version, "description": about, "author": { "name": NAME } });
    let marketplace = json!({
        "name": NAME,
        "owner": { "name": NAME },
        "metadata": { "description": about, "version": version },
        "plugins": [{ "name": NAME, "source": "./", "description": about }],
    });
    let servers = json!({ "mcpServers": { NAME: { "command": "everloop", "args": ["mcp"] } } });
    let mut files = vec![
        (".claude-plugin/plugin.json".to_owned(), text(&plugin)),
        (".claude-plugin/marketplace.json".to_owned(), text(&marketplace)),
        ("hooks/hooks.json".to_owned(), text(&hooks())),
        (".mcp.json".to_owned(), text(&servers)),
    ];
    files.extend(SKILLS.map(|(name, body)| (format!("skills/{name}/SKILL.md"), body.to_owned())));
    files
}

/// All hooks, in the format of Claude Code.
fn hooks() -> Value {
    let all: serde_json::Map<String, Value> =
        CLAUDE.iter().map(|moment| ((*moment).to_owned(), json!([plugin_hook(moment)]))).collect();
    json!({ "hooks": all })
}

fn text(value: &Value) -> String {
    let text = serde_json::to_string_pretty(value).expect("a value always has a JSON form");
    format!("{text}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_skill_says_what_it_is_for() {
        for (path, text) in files().iter().filter(|(path, _)| path.starts_with("skills/")) {
            let name = path.split('/').nth(1).unwrap();
            assert!(text.starts_with(&format!("---\nname: {name}\ndescription: ")), "{path}");
        }
        assert_eq!(files().len(), 9);
    }
}
