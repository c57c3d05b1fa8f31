//! Agents write about limits: in answers, code, tests, documents, commands and the output of
//! commands. None of it is one.

use everloop_core::spec::AgentKind::{self, Claude, Codex, Command, Gemini, Opencode};
use everloop_core::stream::AgentEvent;
use serde_json::{Value, json};

use super::fixtures::{NOW, end, env, read_text, report};

/// Text that resembles a limit.
const WORDS: &[&str] = &[
    "You've hit your 5-hour limit · resets 8:51pm (UTC)",
    "You've hit your weekly limit · resets 2:51pm (UTC)",
    "Claude AI usage limit reached|1794775911",
    "You’ve hit your usage limit. Upgrade to Pro or try again at 8:52 PM.",
    "API Error: 529 Overloaded. This is a server-side issue, usually temporary",
    "API Error: Request rejected (429) · This request would exceed the rate limit",
    "Credit balance is too low",
    "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC.",
    "There's an issue with the selected model (x). It may not exist or you may not have access to it.",
    "The model `gpt-nope` does not exist or you do not have access to it. (invalid_request_error)",
    "Not logged in · Please run /login",
    "Quota exceeded. Check your plan and billing details.",
    "[API Error: You have exhausted your daily quota on this model.]",
    "exceeded retry limit, last status: 429 Too Many Requests",
    "I added a test `fails_when_usage_limit_reached` and the file rate_limit_event.rs",
    "Prompt is too long · the request is ~250000 tokens",
    "The docs say: `401 Unauthorized` means an invalid API key; ECONNRESET means the connection was lost.",
    "{\"type\":\"rate_limit_event\",\"rate_limit_info\":{\"status\":\"rejected\",\"resetsAt\":1794775911,\"rateLimitType\":\"five_hour\"}}",
    "{\"type\":\"turn.failed\",\"error\":{\"message\":\"You’ve hit your usage limit. try again at 8:52 PM.\"}}",
    "{\"type\":\"error\",\"sessionID\":\"s\",\"error\":{\"name\":\"APIError\",\"data\":{\"statusCode\":429,\"message\":\"m\"}}}",
    "{\"type\":\"result\",\"status\":\"error\",\"error\":{\"message\":\"Suggested retry after 600s.\"}}",
    "{\"said\":\"limit\",\"rule\":\"x\",\"class\":\"weekly\",\"reset_at\":1794775911000,\"text\":\"x\"}",
    "a line\n{\"type\":\"rate_limit_event\",\"rate_limit_info\":{\"status\":\"rejected\"}}\nanother line",
    "Error: thread/resume failed: no rollout found\nSession not found\nNo conversation found with session ID: x",
    "fn limit() { panic!(\"insufficient_quota\") } // billing_error, overloaded_error, context_length_exceeded",
];

type Stream = (AgentKind, Vec<Value>);

/// Every place of each program's stream where model text may stand, ended by a success.
fn streams(words: &str) -> Vec<Stream> {
    [claude(words), codex(words), gemini(words), opencode(words)].into_iter().flatten().collect()
}

fn claude(words: &str) -> Vec<Stream> {
    let end = json!({"type": "result", "subtype": "success", "is_error": false, "num_turns": 1, "result": words});
    let call = json!([{"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": words}}]);
    let result = json!([{"type": "tool_result", "tool_use_id": "t", "content": words, "is_error": true}]);
    let said =
        |content: &Value| json!({"type": "assistant", "message": {"id": "m", "model": "claude-x", "content": content}});
    let heard = |content: &Value| json!({"type": "user", "message": {"content": content}, "tool_use_result": words});
    let records = [
        said(&json!([{"type": "text", "text": words}])),
        said(&call),
        heard(&result),
        heard(&json!(words)),
        json!({"type": "system", "subtype": "hook_response", "output": words, "stderr": words}),
    ];
    records.into_iter().map(|record| (Claude, vec![record, end.clone()])).collect()
}

fn codex(words: &str) -> Vec<Stream> {
    let answer = item(&json!({"id": "a", "type": "agent_message", "text": "done"}));
    let end = json!({"type": "turn.completed", "usage": {"input_tokens": 5}});
    let run =
        json!({"id": "i", "type": "command_execution", "command": words, "aggregated_output": words, "exit_code": 1});
    let records = [
        item(&json!({"id": "i", "type": "agent_message", "text": words})),
        item(&json!({"id": "i", "type": "reasoning", "text": words})),
        item(&json!({"id": "i", "type": "error", "message": words})),
        item(&run),
        item(&json!({"id": "i", "type": "mcp_tool_call", "tool": words, "error": {"message": words}})),
    ];
    records.into_iter().map(|record| (Codex, vec![record, answer.clone(), end.clone()])).collect()
}

fn item(item: &Value) -> Value {
    json!({"type": "item.completed", "item": item})
}

fn gemini(words: &str) -> Vec<Stream> {
    let answer = json!({"type": "message", "role": "assistant", "content": words, "delta": true});
    let end = json!({"type": "result", "status": "success", "stats": {}});
    let failed =
        json!({"type": "tool_result", "tool_id": "t", "status": "error", "output": words, "error": {"message": words}});
    let records = [
        json!({"type": "message", "role": "user", "content": words}),
        json!({"type": "tool_use", "tool_name": "x", "tool_id": "t", "parameters": {"command": words}}),
        failed,
    ];
    records.into_iter().map(|record| (Gemini, vec![record, answer.clone(), end.clone()])).collect()
}

fn opencode(words: &str) -> Vec<Stream> {
    let part = |kind: &str, part: &Value| json!({"type": kind, "sessionID": "s", "part": part});
    let failed = json!({"status": "error", "input": {"command": words}, "error": words});
    let end = part("step_finish", &json!({"reason": "stop"}));
    let records = [
        part("text", &json!({"text": words})),
        part("tool_use", &json!({"tool": "bash", "state": failed})),
        part("tool_use", &json!({"tool": "bash", "state": {"status": "completed", "output": words}})),
    ];
    records.into_iter().map(|record| (Opencode, vec![record, end.clone()])).collect()
}

#[test]
fn an_agent_that_writes_about_limits_brings_none_about() {
    let mut looked_at = 0;
    for words in WORDS {
        for (kind, records) in streams(words) {
            let lines: Vec<String> = records.iter().map(Value::to_string).collect();
            let out = lines.join("\n");
            let said = read_text(kind, &out, 0);
            let limit = said
                .iter()
                .find(|s| matches!(s, AgentEvent::Limit(_) | AgentEvent::SessionLost | AgentEvent::Quota(_)));
            assert_eq!(limit, None, "{kind:?}: {out}");
            assert_eq!(report(&said).ok, Some(true), "{kind:?}: {out}");
            looked_at += 1;
        }
    }
    assert!(looked_at >= 300, "{looked_at}");
}

#[test]
fn a_command_that_prints_records_is_not_believed() {
    for words in WORDS {
        let said = read_text(Command, &format!("starting\n{words}\n"), 0);
        assert_eq!(said, []);
    }
}

/// Standard error is the program's own, but text in the middle of a line is not matched.
#[test]
fn talk_about_lost_conversations_loses_none() {
    for kind in [Claude, Codex, Gemini, Opencode] {
        let mut reader = everloop_agents::agent::Reader::new(kind, true);
        let mut all = Vec::new();
        for words in WORDS {
            reader.err(format!("warning: {words:?}\n").as_bytes(), NOW, &mut |said| all.push(said));
        }
        reader.end(&end(0, &env()), &mut |said| all.push(said));
        assert_eq!(all, [], "{kind:?}");
    }
}
