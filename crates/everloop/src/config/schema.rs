//! The JSON Schema of everloop.toml. The tests make `docs/config.md` from it, so that the two cannot drift apart.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::keys::ConfigFile;

/// The JSON Schema; editors complete and check the file with it.
pub fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<ConfigFile>().to_value()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::super::hook;
    use super::super::keys::{
        AccountKeys, AgentKeys, BoardKeys, CheckKeys, CompletionKeys, GuardKeys, GuardianKeys, HookKeys, HubKeys,
        LoopKeys, MailboxKeys, MonitorKeys, NodeKeys, TrackerKeys, names,
    };
    use super::super::layer::{Layer, built_in, built_in_agent};
    use super::super::notify::NotifyKeys;
    use super::super::overrides::ENVIRONMENT;
    use super::super::resolve::PROTECTED;
    use super::*;

    const INTRO: &str = r#"<!-- Made from crates/everloop/src/config/keys.rs by its tests: `UPDATE_DOCS=1 cargo test -p everloop reference`. -->
# Configuration

everloop needs no file: `everloop run "GOAL" --check 'CMD' --agent claude` says it all. `everloop.toml` holds loops that you
want to keep; `everloop init` writes one for your project.

```toml
[account.work]
env = { ANTHROPIC_API_KEY = "MY_WORK_KEY" }

[agent.mine]
command = ["my-agent", "{prompt}"]

[loop.main]
goal = "make the tests pass"
agents = ["claude@work", "codex", "mine"]
allow = ["cargo test"]
checks = ["cargo test"]
max_turns = 30
```

A value is taken from the highest of these that has it: built-in, `[defaults]`, `[agent.NAME]` and `[account.NAME]` of the user's
`$XDG_CONFIG_HOME/everloop/config.toml`, `everloop.toml`, the environment, flags. `everloop config show --origin` prints
every value and where it comes from; `everloop config check` says what is wrong; `everloop config schema` prints the
JSON Schema for your editor.

Durations are written `"90s"`, `"15m"`, `"2h"` or `"1h 30m"`. Limits can be lifted with `"none"`.
"#;

    fn kind(property: &Value) -> String {
        if let Some(options) = property.get("anyOf").or_else(|| property.get("oneOf")).and_then(Value::as_array) {
            let words: Vec<String> = options.iter().map(kind).filter(|word| word != "null").collect();
            return words.join(" or ");
        }
        if let Some(word) = property.get("const") {
            return format!("`{word}`");
        }
        let name = match &property["type"] {
            Value::Array(names) => names[0].as_str(),
            other => other.as_str(),
        };
        match name {
            Some("string") if property.get("examples").is_some() => format!("like `{}`", property["examples"][0]),
            Some("string") => "text".to_owned(),
            Some("integer" | "number") => "number".to_owned(),
            Some("boolean") => "true or false".to_owned(),
            Some("array") => "list".to_owned(),
            Some("null") => "null".to_owned(),
            _ => "section".to_owned(),
        }
    }

    fn table(schema: &Value, section: &str, keys: &[&str], defaults: &dyn Fn(&str) -> Option<String>) -> String {
        let mut text = String::from("\n| key | value | default | meaning |\n|---|---|---|---|\n");
        for key in keys {
            let property = &schema["$defs"][section]["properties"][key];
            let meaning = property["description"].as_str().expect("every key has a comment").replace('\n', " ");
            let default = defaults(key).map_or(String::new(), |value| format!("`{value}`"));
            writeln!(text, "| `{key}` | {} | {default} | {meaning} |", kind(property))
                .expect("strings take everything");
        }
        text
    }

    fn reference() -> String {
        let schema = schema();
        let of = |layer: Layer, prefix: &'static str| {
            move |key: &str| layer.0.get(&format!("{prefix}{key}")).map(|sourced| sourced.value.to_string())
        };
        let check = |key: &str| match key {
            "timeout" => Some("\"10m\"".to_owned()),
            "weight" => Some("1".to_owned()),
            _ => None,
        };
        let monitor = |key: &str| match key {
            "every" => Some("\"1m\"".to_owned()),
            "timeout" => Some("\"20s\"".to_owned()),
            _ => None,
        };
        let mut text = INTRO.to_owned();
        text += "\n## `[loop.NAME]` and `[defaults]`\n";
        text += &table(&schema, "LoopKeys", names::<LoopKeys>(), &of(built_in(), ""));
        text += "\n## `[[loop.NAME.check]]`\n";
        text += &table(&schema, "CheckKeys", names::<CheckKeys>(), &check);
        text += "\n## `[[loop.NAME.monitor]]`\n";
        text += &table(&schema, "MonitorKeys", names::<MonitorKeys>(), &monitor);
        text += "\n## `[agent.NAME]`\n";
        text += &table(&schema, "AgentKeys", names::<AgentKeys>(), &of(built_in_agent(), ""));
        text += "\n## `[account.NAME]`\n";
        text += &table(&schema, "AccountKeys", names::<AccountKeys>(), &|_| None);
        text += "\nThe account `default` is there without a section: whoever is logged in on this machine. An agent under another ";
        text += "account sees that account's variables and none of the default login.\n";
        text += "\n## `[hub]`\n";
        text += &table(&schema, "HubKeys", names::<HubKeys>(), &|_| None);
        text += "\n`EVERLOOP_HUB_URL` and `everloop hub … --url` go before both.\n";
        text += "\n## `[loop.NAME.guard]`\n";
        text += &table(&schema, "GuardKeys", names::<GuardKeys>(), &of(built_in(), "guard."));
        text += "\n## `[node]`\n";
        text += &table(&schema, "NodeKeys", names::<NodeKeys>(), &|_| {
            Some(format!("\"{}\"", everloop_engine::port::DEFAULT))
        });
        text += "\n## `[board]`\n";
        text += &table(&schema, "BoardKeys", names::<BoardKeys>(), &|_| None);
        text += "\n## `[mailbox]`\n";
        let every = |key: &str| (key == "every").then(|| super::super::outbound::EVERY.to_string());
        text += &table(&schema, "MailboxKeys", names::<MailboxKeys>(), &every);
        text += "\n## `[tracker]`\n";
        text += &table(&schema, "TrackerKeys", names::<TrackerKeys>(), &|_| None);
        text += "\n## `[[notify]]`\n";
        let notify = |key: &str| match key {
            "repeats" => Some(everloop_core::notify::REPEATS.to_string()),
            "min_severity" => Some("\"info\"".to_owned()),
            "answers" => Some("true".to_owned()),
            _ => None,
        };
        text += &table(&schema, "NotifyKeys", names::<NotifyKeys>(), &notify);
        text += "\nNotifiers of the user's file hear of all tickets, those of a project of its loops and of what belongs to no loop.\n";
        text += "\n## `[hook]`\n";
        text += &table(&schema, "HookKeys", names::<HookKeys>(), &of(hook::built_in(), ""));
        text += "\n## `[guardian]`\n";
        text += &table(&schema, "GuardianKeys", names::<GuardianKeys>(), &of(hook::built_in_guardian(), ""));
        text += "\n## `[completion.NAME]`\n";
        text += &table(&schema, "CompletionKeys", names::<CompletionKeys>(), &|_| None);
        text += "\n## Environment\n\nEach stands for a key of every loop; lists have commas between their items.\n\n| variable | key |\n|---|---|\n";
        for (variable, key) in ENVIRONMENT {
            writeln!(text, "| `{variable}` | `{key}` |").expect("strings take everything");
        }
        text += "\n## Protected files\n\nExisting files that match these may not be changed by a turn that wants to count; ";
        text += "`unprotect` takes one back, `protect` adds more.\n\n```\n";
        text += &PROTECTED.join("\n");
        text += "\n```\n";
        text
    }

    #[test]
    fn the_schema_describes_every_key() {
        let schema = schema();
        for (section, keys) in [
            ("LoopKeys", names::<LoopKeys>()),
            ("CheckKeys", names::<CheckKeys>()),
            ("MonitorKeys", names::<MonitorKeys>()),
            ("AgentKeys", names::<AgentKeys>()),
            ("AccountKeys", names::<AccountKeys>()),
            ("GuardKeys", names::<GuardKeys>()),
            ("HubKeys", names::<HubKeys>()),
            ("NodeKeys", names::<NodeKeys>()),
            ("BoardKeys", names::<BoardKeys>()),
            ("MailboxKeys", names::<MailboxKeys>()),
            ("TrackerKeys", names::<TrackerKeys>()),
            ("NotifyKeys", names::<NotifyKeys>()),
            ("HookKeys", names::<HookKeys>()),
            ("GuardianKeys", names::<GuardianKeys>()),
            ("CompletionKeys", names::<CompletionKeys>()),
        ] {
            let section = &schema["$defs"][section];
            assert_eq!(section["additionalProperties"], false);
            let properties = section["properties"].as_object().expect("sections have keys");
            assert_eq!(properties.len(), keys.len());
            assert!(keys.iter().all(|key| properties[*key]["description"].is_string()));
        }
        assert_eq!(schema["$defs"]["CheckKeys"]["required"], serde_json::json!(["run"]));
        assert_eq!(schema["title"], "everloop.toml");
    }

    #[test]
    fn the_reference_in_docs_is_the_current_one() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, reference()).expect("the docs can be written");
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        let current = reference();
        let different = there.lines().zip(current.lines()).find(|(old, new)| old != new);
        assert!(
            there == current,
            "run `UPDATE_DOCS=1 cargo test -p everloop reference`; first difference: {different:#?}"
        );
    }
}
