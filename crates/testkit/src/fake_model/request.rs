//! The meaning of a request: dialect, main or side, offered tools and the last text. Reads all
//! dialects with the same few lookups, because only that much of them matters here.

use serde_json::Value;

use super::http;
use super::log::RequestKind;

/// Characters kept of the last text.
const MAX_USER_CHARS: usize = 200;

/// The dialects, each by its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Anthropic,
    Responses,
    Chat,
    /// `…:generateContent` and `…:streamGenerateContent` paths.
    Gemini,
}

/// A request to a model.
#[derive(Debug)]
pub struct Ask {
    /// The format of the answer.
    pub dialect: Dialect,
    pub kind: RequestKind,
    pub model: String,
    /// Whether the answer is a stream of events.
    pub stream: bool,
    /// Names of the offered tools.
    pub tools: Vec<String>,
    /// The beginning of the last user text.
    pub last_user: String,
    /// Whether the last item is a tool result.
    pub has_tool_result: bool,
    /// The working folder that the program names.
    pub folder: Option<String>,
}

impl Ask {
    /// `None` when the request is not for a model.
    pub fn of(request: &http::HttpRequest) -> Option<Self> {
        let path = request.target.split('?').next().unwrap_or_default();
        let dialect = match path {
            _ if request.method != "POST" => return None,
            _ if path.ends_with("/messages") => Dialect::Anthropic,
            _ if path.ends_with("/responses") => Dialect::Responses,
            _ if path.ends_with("/chat/completions") => Dialect::Chat,
            _ if path.ends_with("enerateContent") => Dialect::Gemini,
            _ => return None,
        };
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let tools = tools(&body);
        let in_path = || path.rsplit('/').next()?.split(':').next().map(str::to_owned);
        let model = body["model"].as_str().map(str::to_owned).or_else(in_path).unwrap_or_default();
        let stream = match dialect {
            Dialect::Gemini => path.ends_with(":streamGenerateContent"),
            _ => body["stream"].as_bool().unwrap_or(false),
        };
        let turns = ["messages", "input", "contents"].iter().find_map(|key| body[*key].as_array());
        let turns = turns.map_or(&[][..], Vec::as_slice);
        Some(Self {
            dialect,
            kind: if tools.is_empty() { RequestKind::Side } else { RequestKind::Main },
            model,
            stream,
            tools,
            last_user: last_user(turns),
            has_tool_result: turns.last().is_some_and(|turn| is_tool_result(turn, 3)),
            folder: folder(&String::from_utf8_lossy(&request.body)),
        })
    }
}

/// Tools stand at the top, for gemini in groups, for codex's newest models in an item of the input,
/// and for its tools of servers in a namespace.
fn tools(body: &Value) -> Vec<String> {
    let mut names = Vec::new();
    let mut lists: Vec<&Value> = vec![&body["tools"]];
    let items = body["input"].as_array().into_iter().flatten();
    lists.extend(items.filter(|item| item["type"] == "additional_tools").map(|item| &item["tools"]));
    while let Some(list) = lists.pop() {
        for tool in list.as_array().into_iter().flatten() {
            lists.push(&tool["functionDeclarations"]);
            if tool["type"] == "namespace" {
                lists.push(&tool["tools"]);
            }
            let name = [&tool["name"], &tool["function"]["name"]].into_iter().find_map(Value::as_str);
            // Tools that the vendor itself runs have only a type.
            names.extend(name.or(tool["type"].as_str()).map(str::to_owned));
        }
    }
    names
}

fn is_tool_result(value: &Value, depth: usize) -> bool {
    let said = |key: &str, words: &[&str]| value[key].as_str().is_some_and(|v| words.contains(&v));
    said("role", &["tool"])
        || said("type", &["tool_result", "function_call_output", "custom_tool_call_output", "local_shell_call_output"])
        || value.get("functionResponse").is_some()
        || depth > 0
            && ["content", "parts"].iter().any(|key| {
                value[*key].as_array().is_some_and(|parts| parts.iter().any(|part| is_tool_result(part, depth - 1)))
            })
}

fn last_user(turns: &[Value]) -> String {
    let user = turns.iter().rev().filter(|turn| turn["role"] == "user").find_map(|turn| {
        let parts = ["content", "parts"].iter().find_map(|key| turn.get(*key))?;
        match parts {
            Value::String(text) => Some(text.clone()),
            Value::Array(parts) => parts.iter().rev().find_map(|p| p["text"].as_str()).map(str::to_owned),
            _ => None,
        }
    });
    user.unwrap_or_default().chars().take(MAX_USER_CHARS).collect()
}

/// All programs name the working folder in their prompt, each a little differently:
/// `Working directory: /x` or `<cwd>/x</cwd>`. The raw body is searched, so the path ends at any
/// character that cannot stand in a JSON string or in the line.
fn folder(body: &str) -> Option<String> {
    const SIGNS: &[&str] = &[
        "orking directory: ",
        "<cwd>",
        "**Workspace Directories:**\\n  - ",
        "irectories:\\n  - ",
        "in the directory: ",
    ];
    let rest = SIGNS.iter().find_map(|sign| body.find(sign).map(|at| &body[at + sign.len()..]))?;
    let path: String = rest.chars().take_while(|c| !matches!(c, '\\' | '"' | '<' | '\n')).collect();
    let path = path.trim_end();
    path.starts_with('/').then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(target: &str, body: &str) -> Ask {
        let request = http::HttpRequest {
            method: "POST".to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            body: body.as_bytes().to_vec(),
        };
        Ask::of(&request).expect("this is a request to a model")
    }

    #[test]
    fn each_dialect_is_known_by_its_path() {
        assert_eq!(ask("/v1/messages?beta=true", "{}").dialect, Dialect::Anthropic);
        assert_eq!(ask("/v1/responses", "{}").dialect, Dialect::Responses);
        assert_eq!(ask("/v1/chat/completions", "{}").dialect, Dialect::Chat);
        let gemini = ask("/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", "{}");
        assert_eq!((gemini.dialect, gemini.stream, gemini.model.as_str()), (Dialect::Gemini, true, "gemini-2.5-flash"));
    }

    #[test]
    fn only_a_request_with_tools_is_a_main_one() {
        assert_eq!(ask("/v1/messages", r#"{"tools":[]}"#).kind, RequestKind::Side);
        assert_eq!(ask("/v1/messages", r#"{"tools":[{"name":"Bash"}]}"#).tools, ["Bash"]);
        let chat = r#"{"tools":[{"type":"function","function":{"name":"bash"}}]}"#;
        assert_eq!(ask("/v1/chat/completions", chat).tools, ["bash"]);
        let gemini = r#"{"tools":[{"functionDeclarations":[{"name":"run_shell_command"}]}]}"#;
        assert_eq!(ask("/v1beta/models/m:generateContent", gemini).tools, ["run_shell_command"]);
        let codex = r#"{"input":[{"type":"additional_tools","tools":[{"type":"custom","name":"exec"}]}]}"#;
        assert_eq!(ask("/v1/responses", codex).kind, RequestKind::Main);
    }

    #[test]
    fn the_last_words_and_results_are_seen() {
        let said = ask("/v1/messages", r#"{"messages":[{"role":"user","content":[{"type":"text","text":"do it"}]}]}"#);
        assert_eq!((said.last_user.as_str(), said.has_tool_result), ("do it", false));
        let result = r#"{"messages":[{"role":"user","content":[{"type":"tool_result","content":"x"}]}]}"#;
        assert!(ask("/v1/messages", result).has_tool_result);
        assert!(ask("/v1/responses", r#"{"input":[{"type":"function_call_output","output":"x"}]}"#).has_tool_result);
        let folder = ask("/v1/messages", r#"{"system":"Primary working directory: /a b/c\nIs git: no"}"#).folder;
        assert_eq!(folder.as_deref(), Some("/a b/c"));
    }
}
