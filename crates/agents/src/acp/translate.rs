//! Updates of a session as records. Pure: messages go in, [`AgentEvent`]s come out.

use std::collections::BTreeSet;

use everloop_core::stream::{AgentEvent, Usage};
use serde_json::Value;

use crate::agent::record::{self, Fields};

/// Bytes of an answer that are gathered before it is reported.
const WORDS_CAP: usize = 8 << 10;
/// Calls that are remembered; further ones are reported without their beginning.
const CALLS_KEPT: usize = 10_000;

/// Follows the updates of one turn.
#[derive(Debug, Default)]
pub(super) struct Translator {
    /// Before the prompt the history of a loaded session is repeated.
    began: bool,
    pieces: String,
    last_text: String,
    started: BTreeSet<String>,
    ended: BTreeSet<String>,
}

impl Translator {
    /// The prompt is sent: from here on updates are this turn's.
    pub(super) fn begin(&mut self) {
        self.began = true;
    }

    /// The last words of the agent.
    pub(super) fn last_text(&self) -> String {
        self.last_text.clone()
    }

    pub(super) fn update(&mut self, update: &Value) -> Vec<AgentEvent> {
        if !self.began {
            return Vec::new();
        }
        let kind = update.text("sessionUpdate").unwrap_or_default();
        let mut said = Vec::new();
        if kind != "agent_message_chunk" {
            said.extend(self.flush());
        }
        match kind {
            "agent_message_chunk" => {
                self.pieces.push_str(update.at("content").text("text").unwrap_or_default());
                if self.pieces.len() > WORDS_CAP {
                    said.extend(self.flush());
                }
            }
            // Announced before its arguments are known; a later update has them.
            "tool_call" if update.text("status") == Some("pending") => {}
            "tool_call" | "tool_call_update" => {
                // Some CLIs leave the beginning out where they asked for permission.
                said.extend(self.asked_about(update));
                said.extend(self.ended(update));
            }
            "usage_update" => {
                if let (Some(used), Some(window)) = (update.number("used"), update.number("size").filter(|w| *w > 0)) {
                    said.push(AgentEvent::Context { used, window });
                }
            }
            "agent_thought_chunk"
            | "user_message_chunk"
            | "plan"
            | "available_commands_update"
            | "current_mode_update"
            | "config_option_update"
            | "session_info_update" => {}
            _ => said.push(AgentEvent::Unknown),
        }
        said.extend(usage(update).map(AgentEvent::Used));
        said
    }

    /// Words that are still gathered.
    pub(super) fn flush(&mut self) -> Option<AgentEvent> {
        let text = record::words(&std::mem::take(&mut self.pieces));
        if text.is_empty() {
            return None;
        }
        self.last_text.clone_from(&text);
        Some(AgentEvent::Text { text })
    }

    /// The beginning of a call, once.
    pub(super) fn asked_about(&mut self, call: &Value) -> Option<AgentEvent> {
        let id = record::name(call.text("toolCallId").unwrap_or_default());
        if self.started.len() >= CALLS_KEPT || !self.started.insert(id.clone()) {
            return None;
        }
        let name = tool_name(call);
        let input = call.at("rawInput");
        Some(AgentEvent::ToolStarted {
            id,
            fingerprint: record::fingerprint(&name, if input.is_null() { call.at("title") } else { input }),
            timeout_ms: None,
            subagent: call.text("kind") == Some("agent"),
            input: record::brief(if input.is_null() { call.at("title") } else { input }),
            name,
        })
    }

    fn ended(&mut self, call: &Value) -> Option<AgentEvent> {
        let failed = match call.text("status") {
            Some("completed") => false,
            Some("failed") => true,
            _ => return None,
        };
        let id = record::name(call.text("toolCallId").unwrap_or_default());
        if self.ended.len() >= CALLS_KEPT || !self.ended.insert(id.clone()) {
            return None;
        }
        let parts = call.list("content").iter().map(|part| record::flat(part.at("content").at("text")));
        let mut text = parts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n");
        if text.is_empty() {
            text = record::flat(call.at("rawOutput"));
        }
        let error = failed.then(|| record::error_fingerprint(&text));
        Some(AgentEvent::ToolEnded { id, error, output: record::excerpt(&text) })
    }
}

/// The name of the tool where the CLI gives it, else the kind of the call.
pub(super) fn tool_name(call: &Value) -> String {
    let named = call.at("_meta").text("toolName").or(call.text("kind"));
    record::name(named.filter(|name| !name.is_empty()).unwrap_or("tool"))
}

/// Usage in the `usage` of a response or in the metadata of an update.
pub(super) fn usage(holder: &Value) -> Option<Usage> {
    let meta = holder.at("_meta");
    let places = [holder.at("usage"), meta.at("usage"), meta.at("quota").at("token_count")];
    let found = places.into_iter().find(|place| place.is_object())?;
    let count = |names: [&str; 2]| names.iter().find_map(|name| found.number(name)).unwrap_or(0);
    let cache_read = count(["cachedReadTokens", "cached_read_tokens"]);
    let cache_write = count(["cachedWriteTokens", "cached_write_tokens"]);
    let usage = Usage {
        input: count(["inputTokens", "input_tokens"]).saturating_sub(cache_read).saturating_sub(cache_write),
        output: count(["outputTokens", "output_tokens"]),
        cache_read,
        cache_write,
        microusd: None,
    };
    (!record::is_nothing(&usage)).then_some(usage)
}

/// The message of an error with its details, which hold the vendor's own sentence.
pub(super) fn error_text(error: &Value) -> String {
    let message = error.text("message").unwrap_or_default();
    let data = error.at("data");
    let details = data.text("details").or(data.text("message")).or(data.as_str()).unwrap_or_default();
    match (message, details) {
        ("", details) => details.to_owned(),
        (message, "") => message.to_owned(),
        (message, details) if message.contains(details) => message.to_owned(),
        (message, details) => format!("{message}: {details}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everloop_core::transcript::{Step, ToolState, Transcript};

    /// Every message of qwen 0.15.10 and opencode 1.18.33 in one turn.
    fn recorded(name: &str) -> Vec<AgentEvent> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/streams/fixtures/acp").join(name);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut words = Translator::default();
        words.begin();
        let mut said = Vec::new();
        for line in text.lines() {
            let message: Value = serde_json::from_str(line).unwrap();
            match message.text("method") {
                Some("session/update") => said.extend(words.update(message.at("params").at("update"))),
                Some("session/request_permission") => {
                    said.extend(words.asked_about(message.at("params").at("toolCall")));
                }
                _ => {}
            }
        }
        said.extend(words.flush());
        said
    }

    #[test]
    fn recorded_turns_are_understood() {
        for name in ["qwen-tool.jsonl", "opencode-tool.jsonl"] {
            let said = recorded(name);
            let mut all = Transcript::default();
            for one in &said {
                all.take(one);
            }
            let tool = all.steps.iter().find_map(|step| match step {
                Step::Tool { input, state, .. } => Some((input.clone(), *state)),
                _ => None,
            });
            assert_eq!(tool, Some(("echo hello > made.txt".to_owned(), ToolState::Done)), "{name}: {said:?}");
            assert!(
                matches!(all.steps.back(), Some(Step::Text { text }) if text == "FAKE-OK done"),
                "{name}: {said:?}"
            );
            assert_eq!(all.unknown, 0, "{name}: {said:?}");
        }
        let used = recorded("qwen-tool.jsonl").iter().filter(|s| matches!(s, AgentEvent::Used(_))).count();
        assert_eq!(used, 2, "one per request");
    }

    #[test]
    fn the_history_of_a_loaded_session_is_not_this_turns() {
        let mut words = Translator::default();
        let update =
            serde_json::json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "old"}});
        assert_eq!(words.update(&update), []);
        assert_eq!(words.flush(), None);
        words.begin();
        words.update(&update);
        assert_eq!(words.flush(), Some(AgentEvent::Text { text: "old".to_owned() }));
    }
}
