//! OpenAI's chat completions, as opencode and others use them.

use serde_json::{Value, json};

use crate::fake_model::message::{ModelMessage, ModelStop};
use crate::fake_model::request::Ask;

fn reason(message: &ModelMessage) -> &'static str {
    match message.stop {
        ModelStop::End => "stop",
        ModelStop::Tool => "tool_calls",
        ModelStop::MaxTokens => "length",
    }
}

fn usage(message: &ModelMessage) -> Value {
    let usage = message.usage;
    json!({
        "prompt_tokens": usage.all_input(),
        "completion_tokens": usage.output,
        "total_tokens": usage.all_input() + usage.output,
        "prompt_tokens_details": { "cached_tokens": usage.cached },
    })
}

fn calls(message: &ModelMessage) -> Option<Value> {
    let call = message.call.as_ref()?;
    Some(json!([{
        "index": 0, "id": message.id("call"), "type": "function",
        "function": { "name": call.name, "arguments": call.arguments.to_string() },
    }]))
}

/// As a stream of events.
pub fn stream(message: &ModelMessage, ask: &Ask) -> Vec<String> {
    let frame = |delta: Value, reason: Option<&str>, usage: Value| {
        let choices = json!([{ "index": 0, "delta": delta, "finish_reason": reason }]);
        let data = json!({
            "id": message.id("chatcmpl"), "object": "chat.completion.chunk", "created": 0, "model": ask.model,
            "choices": choices, "usage": usage,
        });
        format!("data: {data}\n\n")
    };
    let mut frames = vec![frame(json!({ "role": "assistant", "content": "" }), None, Value::Null)];
    frames.extend(message.pieces.iter().map(|piece| frame(json!({ "content": piece }), None, Value::Null)));
    frames.extend(calls(message).map(|calls| frame(json!({ "tool_calls": calls }), None, Value::Null)));
    frames.push(frame(json!({}), Some(reason(message)), usage(message)));
    frames.push("data: [DONE]\n\n".to_owned());
    frames
}

/// As one document.
pub fn whole(message: &ModelMessage, ask: &Ask) -> Value {
    let mut said = json!({ "role": "assistant", "content": message.text() });
    if let Some(calls) = calls(message) {
        said["tool_calls"] = calls;
    }
    json!({
        "id": message.id("chatcmpl"), "object": "chat.completion", "created": 0, "model": ask.model,
        "choices": [{ "index": 0, "message": said, "finish_reason": reason(message) }],
        "usage": usage(message),
    })
}

/// The body of an HTTP error, for the Responses API too.
pub fn error(status: u16, message: &str) -> Value {
    let (kind, code) = match status {
        400 => ("invalid_request_error", None),
        401 => ("invalid_request_error", Some("invalid_api_key")),
        402 => ("insufficient_quota", Some("insufficient_quota")),
        403 => ("permission_error", None),
        429 => ("rate_limit_error", Some("rate_limit_exceeded")),
        _ => ("server_error", None),
    };
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}
