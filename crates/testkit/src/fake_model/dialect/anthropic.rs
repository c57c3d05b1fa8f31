//! Anthropic's Messages API.

use serde_json::{Value, json};

use super::named;
use crate::fake_model::message::{ModelMessage, ModelStop};
use crate::fake_model::request::Ask;

fn usage(message: &ModelMessage, output: u64) -> Value {
    json!({
        "input_tokens": message.usage.input,
        "cache_creation_input_tokens": message.usage.written,
        "cache_read_input_tokens": message.usage.cached,
        "output_tokens": output,
        "service_tier": "standard",
    })
}

fn stop(message: &ModelMessage) -> &'static str {
    match message.stop {
        ModelStop::End => "end_turn",
        ModelStop::Tool => "tool_use",
        ModelStop::MaxTokens => "max_tokens",
    }
}

fn envelope(message: &ModelMessage, ask: &Ask) -> Value {
    json!({
        "id": message.id("msg"), "type": "message", "role": "assistant", "model": ask.model, "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage(message, 1),
    })
}

fn block(index: usize, start: &Value, deltas: &[Value]) -> Vec<String> {
    let mut frames = vec![named(
        "content_block_start",
        &json!({ "type": "content_block_start", "index": index, "content_block": start }),
    )];
    frames.extend(deltas.iter().map(|delta| {
        named("content_block_delta", &json!({ "type": "content_block_delta", "index": index, "delta": delta }))
    }));
    frames.push(named("content_block_stop", &json!({ "type": "content_block_stop", "index": index })));
    frames
}

/// As a stream of events.
pub fn stream(message: &ModelMessage, ask: &Ask) -> Vec<String> {
    let mut frames =
        vec![named("message_start", &json!({ "type": "message_start", "message": envelope(message, ask) }))];
    frames.push(named("ping", &json!({ "type": "ping" })));
    let mut index = 0;
    if !message.pieces.is_empty() {
        let deltas: Vec<Value> =
            message.pieces.iter().map(|piece| json!({ "type": "text_delta", "text": piece })).collect();
        frames.extend(block(index, &json!({ "type": "text", "text": "" }), &deltas));
        index += 1;
    }
    if let Some(call) = &message.call {
        let start = json!({ "type": "tool_use", "id": message.id("toolu"), "name": call.name, "input": {} });
        let delta = json!({ "type": "input_json_delta", "partial_json": call.arguments.to_string() });
        frames.extend(block(index, &start, &[delta]));
    }
    let end = json!({
        "type": "message_delta",
        "delta": { "stop_reason": stop(message), "stop_sequence": null },
        "usage": usage(message, message.usage.output),
    });
    frames.push(named("message_delta", &end));
    frames.push(named("message_stop", &json!({ "type": "message_stop" })));
    frames
}

/// As one document.
pub fn whole(message: &ModelMessage, ask: &Ask) -> Value {
    let mut content = Vec::new();
    if !message.pieces.is_empty() {
        content.push(json!({ "type": "text", "text": message.text() }));
    }
    if let Some(call) = &message.call {
        content
            .push(json!({ "type": "tool_use", "id": message.id("toolu"), "name": call.name, "input": call.arguments }));
    }
    let mut body = envelope(message, ask);
    body["content"] = content.into();
    body["stop_reason"] = stop(message).into();
    body["usage"] = usage(message, message.usage.output);
    body
}

/// The body of an HTTP error.
pub fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_fake" })
}

/// An error inside of a stream.
pub fn error_frame() -> String {
    named("error", &error(529, "Overloaded"))
}
