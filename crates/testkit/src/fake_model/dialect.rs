//! The dialects: a message or an error in the format of each API. One file each; this one only
//! dispatches.

pub mod anthropic;
pub mod chat;
pub mod gemini;
pub mod responses;

use serde_json::Value;

use super::message::ModelMessage;
use super::request::{Ask, Dialect};

/// The frames of an event stream with `message`.
pub fn stream(message: &ModelMessage, ask: &Ask) -> Vec<String> {
    match ask.dialect {
        Dialect::Anthropic => anthropic::stream(message, ask),
        Dialect::Responses => responses::stream(message, ask),
        Dialect::Chat => chat::stream(message, ask),
        Dialect::Gemini => gemini::stream(message, ask),
    }
}

/// The `message` as one document.
pub fn whole(message: &ModelMessage, ask: &Ask) -> Value {
    match ask.dialect {
        Dialect::Anthropic => anthropic::whole(message, ask),
        Dialect::Responses => responses::whole(message, ask),
        Dialect::Chat => chat::whole(message, ask),
        Dialect::Gemini => gemini::whole(message, ask),
    }
}

/// The body of an HTTP error.
pub fn error(dialect: Dialect, status: u16, message: &str) -> Value {
    match dialect {
        Dialect::Anthropic => anthropic::error(status, message),
        Dialect::Responses | Dialect::Chat => chat::error(status, message),
        Dialect::Gemini => gemini::error(status, message),
    }
}

/// The frame of an error inside of a stream; `code` is one of the vendor's own.
pub fn error_frame(dialect: Dialect, code: Option<&str>, message: &ModelMessage) -> String {
    match dialect {
        Dialect::Anthropic => anthropic::error_frame(),
        Dialect::Responses => responses::failed(code.unwrap_or("server_error"), message),
        Dialect::Chat => format!("data: {}\n\n", chat::error(500, "fake error in the stream")),
        Dialect::Gemini => format!("data: {}\n\n", gemini::error(500, "fake error in the stream")),
    }
}

/// The error for an exceeded context window: a status and a body.
pub fn too_long(dialect: Dialect) -> (u16, Value) {
    let words = match dialect {
        Dialect::Anthropic => "prompt is too long: 210000 tokens > 200000 maximum",
        Dialect::Responses => {
            "Your input exceeds the context window of this model. Please adjust your input and try again."
        }
        Dialect::Chat => {
            "This model's maximum context length is 100000 tokens. However, your messages resulted in 110000 tokens."
        }
        Dialect::Gemini => "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    };
    let mut body = error(dialect, 400, words);
    if matches!(dialect, Dialect::Responses | Dialect::Chat) {
        body["error"]["code"] = "context_length_exceeded".into();
    }
    (400, body)
}

/// A frame of a stream with named events.
fn named(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}
