//! Anthropic's Messages API: builds a request from the session, and a reply from its events.

use everloop_core::stream::Usage;
use serde_json::{Map, Value, json};

use super::limit;
use super::options::ApiTurnOptions;
use super::reply::{ApiRefusal, ModelReply, Reading, ReplyStep, StopReason, ToolCall, ToolOutcome, count};
use super::tools;
use crate::clock;

/// Bound of the blocks in one answer.
const MOST_BLOCKS: usize = 1_000;

pub(super) fn request(options: &ApiTurnOptions, items: &[Value]) -> Value {
    let mut messages = items.to_vec();
    // Everything up to here is sent again in the next request: the vendor then reads it from a
    // cache for a tenth of the price.
    let last = messages.last_mut().and_then(|m| m.pointer_mut("/content")?.as_array_mut()?.last_mut());
    if let Some(Value::Object(block)) = last {
        block.insert("cache_control".to_owned(), json!({"type": "ephemeral"}));
    }
    let system = json!([{"type": "text", "text": tools::SYSTEM, "cache_control": {"type": "ephemeral"}}]);
    let tools: Vec<Value> = tools::described()
        .into_iter()
        .map(|t| json!({"name": t.name, "description": t.about, "input_schema": t.schema}))
        .collect();
    json!({
        "model": options.model,
        "max_tokens": options.max_output_tokens,
        "stream": true,
        "system": system,
        "tools": tools,
        "messages": messages,
    })
}

/// A message of the user.
pub(super) fn prompt(text: &str) -> Value {
    json!({"role": "user", "content": [{"type": "text", "text": text}]})
}

/// The results of all calls of one reply: they belong into one message.
pub(super) fn outcomes(done: &[(ToolCall, ToolOutcome)]) -> Vec<Value> {
    let block = |(call, outcome): &(ToolCall, ToolOutcome)| json!({"type": "tool_result", "tool_use_id": call.id, "content": outcome.text, "is_error": !outcome.ok});
    vec![json!({"role": "user", "content": done.iter().map(block).collect::<Vec<_>>()})]
}

/// Calls in the last item without a result.
pub(super) fn open_calls(items: &[Value]) -> Vec<ToolCall> {
    let Some(last) = items.last().filter(|m| m["role"] == "assistant") else { return Vec::new() };
    let blocks = last["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    blocks.iter().filter(|b| b["type"] == "tool_use").map(call).collect()
}

fn call(block: &Value) -> ToolCall {
    let field = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
    ToolCall { id: field("id"), name: field("name"), input: Some(block["input"].clone()) }
}

/// An answer that is being read.
#[derive(Debug, Default)]
pub(super) struct MessagesReply {
    blocks: Vec<Block>,
    stop: StopReason,
    used: Usage,
}

#[derive(Debug)]
struct Block {
    index: u64,
    value: Map<String, Value>,
    /// The arguments of a call, which arrive as fragments of JSON.
    json: String,
}

impl Reading for MessagesReply {
    fn take(&mut self, event: &Value, words: &mut dyn FnMut(&str)) -> Result<ReplyStep, ApiRefusal> {
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => self.count(&event["message"]["usage"]),
            "content_block_start" => return Ok(self.start(event, words)),
            "content_block_delta" => return Ok(self.grow(event, words)),
            "message_delta" => {
                self.count(&event["usage"]);
                self.stop = match event["delta"]["stop_reason"].as_str() {
                    Some("max_tokens" | "model_context_window_exceeded") => StopReason::Length,
                    Some("refusal") => StopReason::Declined("the model declined to answer".to_owned()),
                    _ => StopReason::Done,
                };
            }
            "message_stop" => return Ok(ReplyStep::Over),
            "error" => return Err(limit::in_stream(&event["error"], clock::now())),
            "ping" | "content_block_stop" => {}
            _ => return Ok(ReplyStep::Unknown),
        }
        Ok(ReplyStep::More)
    }

    fn used(&self) -> Usage {
        self.used
    }

    fn finish(self) -> ModelReply {
        let mut reply = ModelReply { stop: self.stop, used: self.used, ..ModelReply::default() };
        let mut content = Vec::new();
        for block in self.blocks {
            let Some(value) = block.finish(&mut reply) else { continue };
            content.push(value);
        }
        if !content.is_empty() {
            reply.items.push(json!({"role": "assistant", "content": content}));
        }
        reply
    }
}

impl MessagesReply {
    /// Counts of a later record include the earlier ones.
    fn count(&mut self, usage: &Value) {
        let latest = |known: u64, name: &str| known.max(count(usage, name));
        self.used = Usage {
            input: latest(self.used.input, "/input_tokens"),
            output: latest(self.used.output, "/output_tokens"),
            cache_read: latest(self.used.cache_read, "/cache_read_input_tokens"),
            cache_write: latest(self.used.cache_write, "/cache_creation_input_tokens"),
            microusd: None,
        };
    }

    fn start(&mut self, event: &Value, words: &mut dyn FnMut(&str)) -> ReplyStep {
        let (Some(index), Some(value)) = (event["index"].as_u64(), event["content_block"].as_object()) else {
            return ReplyStep::Unknown;
        };
        if self.blocks.len() >= MOST_BLOCKS || self.blocks.iter().any(|b| b.index == index) {
            return ReplyStep::Unknown;
        }
        if let Some(text) = value.get("text").and_then(Value::as_str) {
            words(text);
        }
        self.blocks.push(Block { index, value: value.clone(), json: String::new() });
        ReplyStep::More
    }

    fn grow(&mut self, event: &Value, words: &mut dyn FnMut(&str)) -> ReplyStep {
        let index = event["index"].as_u64();
        let Some(block) = self.blocks.iter_mut().rev().find(|b| Some(b.index) == index) else {
            return ReplyStep::Unknown;
        };
        let delta = &event["delta"];
        let crumb = |name: &str| delta[name].as_str().unwrap_or_default();
        match delta["type"].as_str().unwrap_or_default() {
            "text_delta" => {
                words(crumb("text"));
                block.append("text", crumb("text"));
            }
            "input_json_delta" => block.json.push_str(crumb("partial_json")),
            "thinking_delta" => block.append("thinking", crumb("thinking")),
            "signature_delta" => block.append("signature", crumb("signature")),
            _ => return ReplyStep::Unknown,
        }
        ReplyStep::More
    }
}

impl Block {
    fn append(&mut self, name: &str, crumb: &str) {
        match self.value.get_mut(name) {
            Some(Value::String(text)) => text.push_str(crumb),
            _ => {
                self.value.insert(name.to_owned(), Value::String(crumb.to_owned()));
            }
        }
    }

    /// The block as it is sent back, with its text and its call added to the reply; `None` when the
    /// vendor would refuse it.
    fn finish(mut self, reply: &mut ModelReply) -> Option<Value> {
        match self.value.get("type").and_then(Value::as_str)? {
            "text" => {
                let text = self.value.get("text").and_then(Value::as_str).filter(|t| !t.trim().is_empty())?;
                reply.text.push_str(text);
                // No other field of the block may be sent back.
                Some(json!({"type": "text", "text": text}))
            }
            "tool_use" => {
                let given = self.value.get("input").filter(|v| v.as_object().is_some_and(|o| !o.is_empty())).cloned();
                let input = match self.json.as_str() {
                    "" => Some(given.unwrap_or_else(|| json!({}))),
                    text => serde_json::from_str::<Value>(text).ok().filter(Value::is_object),
                };
                self.value.insert("input".to_owned(), input.clone().unwrap_or_else(|| json!({})));
                let value = Value::Object(self.value);
                reply.calls.push(ToolCall { input, ..call(&value) });
                Some(value)
            }
            // Thinking is sent back unchanged, or the vendor refuses the call that followed from
            // it.
            "thinking" | "redacted_thinking" => Some(Value::Object(self.value)),
            _ => None,
        }
    }
}
