//! Google's `generateContent` and `streamGenerateContent`.

use serde_json::{Value, json};

use crate::fake_model::message::{ModelMessage, ModelStop};
use crate::fake_model::request::Ask;

fn chunk(parts: &[Value], last: Option<&ModelMessage>, ask: &Ask) -> Value {
    let mut candidate = json!({ "content": { "role": "model", "parts": parts }, "index": 0 });
    let mut body = json!({ "modelVersion": ask.model, "responseId": "fake" });
    if let Some(message) = last {
        candidate["finishReason"] = if message.stop == ModelStop::MaxTokens { "MAX_TOKENS" } else { "STOP" }.into();
        let usage = message.usage;
        body["usageMetadata"] = json!({
            "promptTokenCount": usage.all_input(),
            "cachedContentTokenCount": usage.cached,
            "candidatesTokenCount": usage.output,
            "totalTokenCount": usage.all_input() + usage.output,
        });
    }
    body["candidates"] = json!([candidate]);
    body
}

fn parts(message: &ModelMessage) -> Vec<Value> {
    let text = message.pieces.iter().map(|piece| json!({ "text": piece }));
    let call = message.call.as_ref();
    text.chain(call.map(|call| json!({ "functionCall": { "name": call.name, "args": call.arguments } }))).collect()
}

/// As a stream of events.
pub fn stream(message: &ModelMessage, ask: &Ask) -> Vec<String> {
    let parts = parts(message);
    let (last, first) =
        parts.split_last().map_or((&[][..], &[][..]), |(last, first)| (std::slice::from_ref(last), first));
    let mut frames: Vec<String> =
        first.iter().map(|part| format!("data: {}\n\n", chunk(std::slice::from_ref(part), None, ask))).collect();
    frames.push(format!("data: {}\n\n", chunk(last, Some(message), ask)));
    frames
}

/// As one document.
pub fn whole(message: &ModelMessage, ask: &Ask) -> Value {
    chunk(&parts(message), Some(message), ask)
}

/// The body of an HTTP error.
pub fn error(status: u16, message: &str) -> Value {
    let word = match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        402 | 403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        _ => "INTERNAL",
    };
    json!({ "error": { "code": status, "message": message, "status": word } })
}

/// The client reads the delay from the details, not from a header.
pub fn retry_info(seconds: u64) -> Value {
    json!({ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": format!("{seconds}s") })
}

/// An exhausted quota; the client distinguishes a day from a minute by the id.
pub fn quota_failure(id: &str) -> Value {
    json!({
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{ "quotaMetric": "generate_content_requests", "quotaId": id, "quotaValue": "10" }],
    })
}
