//! OpenAI's Responses API, as codex uses it.

use serde_json::{Value, json};

use super::named;
use crate::fake_model::message::{ModelMessage, ModelStop, ModelToolCall};
use crate::fake_model::request::Ask;

fn envelope(message: &ModelMessage, ask: &Ask, status: &str) -> Value {
    json!({
        "id": message.id("resp"), "object": "response", "status": status, "model": ask.model, "output": [],
        "usage": null, "error": null,
    })
}

fn usage(message: &ModelMessage) -> Value {
    let usage = message.usage;
    json!({
        "input_tokens": usage.all_input(),
        "input_tokens_details": { "cached_tokens": usage.cached },
        "output_tokens": usage.output,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": usage.all_input() + usage.output,
    })
}

fn said(message: &ModelMessage) -> Value {
    json!({
        "type": "message", "id": message.id("msg"), "role": "assistant", "status": "completed",
        "content": [{ "type": "output_text", "text": message.text(), "annotations": [] }],
    })
}

fn called(call: &ModelToolCall, message: &ModelMessage) -> Value {
    let (id, call_id) = (message.id("fc"), message.id("call"));
    if call.custom {
        let input = call.arguments.as_str().unwrap_or_default();
        return json!({
            "type": "custom_tool_call", "id": id, "call_id": call_id, "name": call.name, "input": input,
            "status": "completed",
        });
    }
    let arguments = call.arguments.to_string();
    let mut item = json!({
        "type": "function_call", "id": id, "call_id": call_id, "name": call.name, "arguments": arguments,
        "status": "completed",
    });
    if let Some((namespace, name)) = call.name.split_once('/') {
        item["namespace"] = namespace.into();
        item["name"] = name.into();
    }
    item
}

fn items(message: &ModelMessage) -> Vec<Value> {
    let text = (!message.pieces.is_empty()).then(|| said(message));
    text.into_iter().chain(message.call.as_ref().map(|call| called(call, message))).collect()
}

fn finished(message: &ModelMessage, ask: &Ask) -> Value {
    let mut response = envelope(message, ask, "completed");
    response["output"] = items(message).into();
    response["usage"] = usage(message);
    if message.stop == ModelStop::MaxTokens {
        response["status"] = "incomplete".into();
        response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
    }
    response
}

/// As a stream of events.
pub fn stream(message: &ModelMessage, ask: &Ask) -> Vec<String> {
    let event = |kind: &str, mut data: Value| {
        data["type"] = kind.into();
        named(kind, &data)
    };
    let mut frames = vec![event("response.created", json!({ "response": envelope(message, ask, "in_progress") }))];
    for (index, item) in items(message).into_iter().enumerate() {
        let mut begun = item.clone();
        begun["status"] = "in_progress".into();
        if item["type"] == "message" {
            begun["content"] = json!([]);
        }
        frames.push(event("response.output_item.added", json!({ "output_index": index, "item": begun })));
        if item["type"] == "message" {
            frames.extend(message.pieces.iter().map(|piece| {
                let at = json!({ "item_id": item["id"], "output_index": index, "content_index": 0, "delta": piece });
                event("response.output_text.delta", at)
            }));
        }
        frames.push(event("response.output_item.done", json!({ "output_index": index, "item": item })));
    }
    let last = if message.stop == ModelStop::MaxTokens { "response.incomplete" } else { "response.completed" };
    frames.push(event(last, json!({ "response": finished(message, ask) })));
    frames
}

/// As one document.
pub fn whole(message: &ModelMessage, ask: &Ask) -> Value {
    finished(message, ask)
}

/// The end of a stream that failed.
pub fn failed(code: &str, message: &ModelMessage) -> String {
    let words = match code {
        "rate_limit_exceeded" => "Rate limit reached for fake-model on tokens per min (TPM). Please try again in 1.5s.",
        "context_length_exceeded" => {
            "Your input exceeds the context window of this model. Please adjust your input and try again."
        }
        _ => "fake error in the stream",
    };
    let response = json!({
        "id": message.id("resp"), "object": "response", "status": "failed", "output": [],
        "error": { "code": code, "message": words },
    });
    named("response.failed", &json!({ "type": "response.failed", "response": response }))
}
