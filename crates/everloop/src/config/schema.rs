//! The JSON Schema of everloop.toml. The tests make `docs/config.md` from it, so that the two
//! cannot drift apart.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::keys::ConfigFile;

/// The JSON Schema; editors complete and check the file with it.
pub fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<ConfigFile>().to_value();
    // A run takes the keys of a loop, too.
    let mut run = schema["$defs"]["ResearchKeys"].clone();
    let of_loops = schema["$defs"]["LoopKeys"]["properties"].clone();
    if let (Some(own), Value::Object(more)) = (run["properties"].as_object_mut(), of_loops) {
        own.extend(more);
    }
    schema["$defs"]["ResearchRun"] = run;
    schema["properties"]["research"]["additionalProperties"] = serde_json::json!({ "$ref": "#/$defs/ResearchRun" });
    // So does a persona, which has a charter in place of a goal.
    let mut persona = schema["$defs"]["PersonaKeys"].clone();
    let of_loops = schema["$defs"]["LoopKeys"]["properties"].clone();
    if let (Some(own), Value::Object(more)) = (persona["properties"].as_object_mut(), of_loops) {
        own.extend(more.into_iter().filter(|(key, _)| key != "goal"));
    }
    schema["$defs"]["Persona"] = persona;
    schema["properties"]["persona"]["additionalProperties"] = serde_json::json!({ "$ref": "#/$defs/Persona" });
    schema
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::super::guard::GuardKeys;
    use super::super::keys::IsolationKeys;
    use super::super::keys::{
        AccountKeys, AgentKeys, BoardKeys, CheckKeys, CompletionKeys, GatewayKeys, GuardianKeys, HookKeys, HubKeys,
        LoopKeys, MailboxKeys, MonitorKeys, NodeKeys, OtelKeys, TrackerKeys,
    };
    use super::super::notify::NotifyKeys;
    use super::super::overrides::variables;
    use super::super::persona::PersonaKeys;
    use super::super::research::ResearchKeys;
    use super::super::resolve::PROTECTED;
    use super::super::route::RouteKeys;
    use super::super::settings::{Section, names};
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

    fn section<T: Section>(schema: &Value, title: &str) -> String {
        let mut text = format!("\n## `{title}`\n\n| key | value | default | meaning |\n|---|---|---|---|\n");
        for setting in T::settings() {
            let property = &schema["$defs"][T::schema_name().as_ref()]["properties"][setting.key];
            let default = setting.default.map_or(String::new(), |value| format!("`{value}`"));
            writeln!(text, "| `{}` | {} | {default} | {} |", setting.key, kind(property), setting.meaning)
                .expect("strings take everything");
        }
        text
    }

    fn reference() -> String {
        let schema = &schema();
        let mut text = INTRO.to_owned();
        text += &section::<LoopKeys>(schema, "[loop.NAME]` and `[defaults]");
        text += &section::<CheckKeys>(schema, "[[loop.NAME.check]]");
        text += &section::<MonitorKeys>(schema, "[[loop.NAME.monitor]]");
        text += &section::<ResearchKeys>(schema, "[research.NAME]");
        text += "\nAll keys of `[loop.NAME]` can stand beside them; `checks` are the guards and may be missing. ";
        text += "`everloop research --loop NAME` runs it, and `everloop up` like any loop.\n";
        text += &section::<PersonaKeys>(schema, "[persona.NAME]");
        text += "\nAll keys of `[loop.NAME]` except `goal` can stand beside them; `checks` may be missing. ";
        text += "`everloop persona start NAME` runs it, and `everloop up` like any loop.\n";
        text += &section::<RouteKeys>(schema, "[[route]]");
        text += &section::<AgentKeys>(schema, "[agent.NAME]");
        text += &section::<AccountKeys>(schema, "[account.NAME]");
        text +=
            "\nThe account `default` is there without a section: the login of this machine. An agent under another ";
        text += "account sees that account's variables and none of the default login.\n";
        text += &section::<HubKeys>(schema, "[hub]");
        text += "\n`EVERLOOP_HUB_URL` and `everloop mesh hub … --url` go before both.\n";
        text += &section::<GuardKeys>(schema, "[loop.NAME.guard]");
        text += &section::<IsolationKeys>(schema, "[isolation]");
        text += &section::<NodeKeys>(schema, "[node]");
        text += &section::<GatewayKeys>(schema, "[gateway]");
        text += &section::<OtelKeys>(schema, "[otel]");
        text += &section::<BoardKeys>(schema, "[board]");
        text += &section::<MailboxKeys>(schema, "[mailbox]");
        text += &section::<TrackerKeys>(schema, "[tracker]");
        text += &section::<NotifyKeys>(schema, "[[notify]]");
        text += "\nNotifiers of the user's file get all tickets, those of a project the tickets of its loops and of what belongs to no loop.\n";
        text += &section::<HookKeys>(schema, "[hook]");
        text += &section::<GuardianKeys>(schema, "[guardian]");
        text += &section::<CompletionKeys>(schema, "[completion.NAME]");
        text += "\n## Environment\n\nEach stands for a key of every loop; lists have commas between their items.\n\n| variable | key |\n|---|---|\n";
        for (variable, key) in variables() {
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
            ("ResearchKeys", names::<ResearchKeys>()),
            ("PersonaKeys", names::<PersonaKeys>()),
            ("RouteKeys", names::<RouteKeys>()),
            ("AgentKeys", names::<AgentKeys>()),
            ("AccountKeys", names::<AccountKeys>()),
            ("GuardKeys", names::<GuardKeys>()),
            ("HubKeys", names::<HubKeys>()),
            ("NodeKeys", names::<NodeKeys>()),
            ("GatewayKeys", names::<GatewayKeys>()),
            ("OtelKeys", names::<OtelKeys>()),
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
        let run = &schema["$defs"]["ResearchRun"]["properties"];
        assert!(run["metric"].is_object() && run["goal"].is_object(), "a run takes the keys of a loop, too");
    }

    #[test]
    fn the_reference_in_docs_is_the_current_one() {
        everloop_testkit::docs::assert_current("config.md", &reference(), "reference");
    }
}
