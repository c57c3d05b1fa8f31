//! What a file would run, call or read as a secret, for a person that is asked to trust it. Works
//! on the raw text, so that a file with mistakes or keys of a later version shows them, too.

use toml::{Table, Value};

/// Keys with commands.
const RUNS: [&str; 6] = ["command", "run", "checks", "metric", "agent_cmd", "setup"];
/// Keys with addresses, names of secrets, and what widens an agent's reach.
const REACHES: [&str; 15] = [
    "url",
    "endpoint",
    "http",
    "api_base",
    "url_env",
    "url_file",
    "token_env",
    "token_file",
    "key_env",
    "ca_file",
    "pass_env",
    "env",
    "file",
    "permission",
    "allow",
];

/// `[mailbox] command: curl …`, one line per key, commands first.
pub fn commands(text: &str) -> Vec<String> {
    let Ok(table) = text.parse::<Table>() else { return Vec::new() };
    let mut found = Vec::new();
    walk("", &table, &mut found);
    found.sort_by_key(|(key, _)| !RUNS.contains(&key.as_str()));
    found.into_iter().map(|(_, line)| line).collect()
}

fn walk(place: &str, table: &Table, found: &mut Vec<(String, String)>) {
    for (key, value) in table {
        let listed = RUNS.contains(&key.as_str()) || REACHES.contains(&key.as_str());
        match value {
            _ if listed && !place.is_empty() => found.push((key.clone(), format!("[{place}] {key}: {}", shown(value)))),
            Value::Table(inner) => walk(&below(place, key), inner, found),
            Value::Array(items) => {
                items.iter().filter_map(Value::as_table).for_each(|inner| walk(&below(place, key), inner, found));
            }
            _ => {}
        }
    }
}

fn below(place: &str, key: &str) -> String {
    if place.is_empty() { key.to_owned() } else { format!("{place}.{key}") }
}

/// A list of words as a command line, anything else as it stands in the file.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(Value::is_str) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_first_and_secrets_are_named() {
        let text = r#"
[mailbox]
url = "https://example.org/x"
token_env = "KEY"
[[notify]]
kind = "command"
command = ["send", "it"]
[loop.main]
goal = "x"
checks = ["make test"]
[[loop.main.monitor]]
command = "look"
[research.fast]
metric = "./bench"
"#;
        let lines = commands(text);
        let expected = [
            "[loop.main] checks: make test",
            "[loop.main.monitor] command: look",
            "[notify] command: send it",
            "[research.fast] metric: ./bench",
            "[mailbox] token_env: KEY",
            "[mailbox] url: https://example.org/x",
        ];
        let mut sorted = lines.clone();
        sorted.sort();
        let mut all = expected.map(str::to_owned);
        all.sort();
        assert_eq!(sorted, all);
        assert!(
            lines[..4].iter().all(|line| ["command:", "checks:", "metric:"].iter().any(|key| line.contains(key))),
            "{lines:?}"
        );
        assert_eq!(commands("not toml ["), Vec::<String>::new());
    }
}
