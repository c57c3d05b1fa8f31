//! OpenAI's Responses API: builds a request from the session, and a reply from its events.
//!
//! Nothing is stored at the vendor: the whole session goes with every request, as in the other
//! format.

use everloop_core::stream::Usage;
use serde_json::{Value, json};

use super::limit;
use super::options::ApiTurnOptions;
use super::reply::{ApiRefusal, ModelReply, Reading, ReplyStep, StopReason, ToolCall, ToolOutcome, count};
use super::tools;
use crate::clock;

/// Bound of the items in one answer.
const MOST_ITEMS: usize = 1_000;

pub(super) fn request(options: &ApiTurnOptions, items: &[Value]) -> Value {
    let tools: Vec<Value> = tools::described()
        .into_iter()
        .map(|t| json!({"type": "function", "name": t.name, "description": t.about, "parameters": t.schema, "strict": false}))
        .collect();
    let mut request = json!({
        "model": options.model,
        "max_output_tokens": options.max_output_tokens,
        "stream": true,
        "store": false,
        "instructions": tools::SYSTEM,
        "tools": tools,
        "input": items,
    });
    if reasons(&options.model) {
        // The model's reasoning is returned encrypted, so that it can continue after a tool call.
        request["include"] = json!(["reasoning.encrypted_content"]);
    }
    request
}

/// Whether the vendor has encrypted reasoning for this model; for others it refuses the option.
fn reasons(model: &str) -> bool {
    let number = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u32>().ok();
    let series_o = model.strip_prefix('o').and_then(number).is_some();
    series_o || model.contains("codex") || model.strip_prefix("gpt-").and_then(number).is_some_and(|n| n >= 5)
}

/// A message of the user.
pub(super) fn prompt(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

/// The results of all calls of one reply.
pub(super) fn outcomes(done: &[(ToolCall, ToolOutcome)]) -> Vec<Value> {
    // This format has no field for a failure: the text contains it.
    let item = |(call, outcome): &(ToolCall, ToolOutcome)| json!({"type": "function_call_output", "call_id": call.id, "output": outcome.text});
    done.iter().map(item).collect()
}

/// Calls without a result.
pub(super) fn open_calls(items: &[Value]) -> Vec<ToolCall> {
    let answered = |id: &str| items.iter().any(|i| i["type"] == "function_call_output" && i["call_id"] == id);
    items.iter().filter(|i| i["type"] == "function_call").map(call).filter(|c| !answered(&c.id)).collect()
}

fn call(item: &Value) -> ToolCall {
    let field = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let input = match field("arguments").as_str() {
        "" => Some(json!({})),
        text => serde_json::from_str::<Value>(text).ok().filter(Value::is_object),
    };
    ToolCall { id: field("call_id"), name: field("name"), input }
}

/// An answer that is being read.
#[derive(Debug, Default)]
pub(super) struct ResponsesReply {
    items: Vec<Value>,
    /// Whether text arrived in fragments; a server that sends none has it only in the finished
    /// item.
    spoke: bool,
    stop: StopReason,
    used: Usage,
}

impl Reading for ResponsesReply {
    fn take(&mut self, event: &Value, words: &mut dyn FnMut(&str)) -> Result<ReplyStep, ApiRefusal> {
        let name = event["type"].as_str().unwrap_or_default();
        match name {
            "response.output_text.delta" | "response.refusal.delta" => {
                self.spoke = true;
                words(event["delta"].as_str().unwrap_or_default());
            }
            "response.output_item.done" => {
                if self.items.len() >= MOST_ITEMS {
                    return Ok(ReplyStep::Unknown);
                }
                self.items.push(event["item"].clone());
                if !std::mem::take(&mut self.spoke) {
                    words(&said(&event["item"]));
                }
            }
            "response.completed" | "response.incomplete" | "response.done" => return Ok(self.end(event, words)),
            "response.failed" => {
                self.count(&event["response"]["usage"]);
                return Err(limit::in_stream(&event["response"]["error"], clock::now()));
            }
            "error" => {
                let error = event.get("error").filter(|e| e.is_object()).unwrap_or(event);
                return Err(limit::in_stream(error, clock::now()));
            }
            _ if name.starts_with("response.") || name == "keepalive" => {}
            _ => return Ok(ReplyStep::Unknown),
        }
        Ok(ReplyStep::More)
    }

    fn used(&self) -> Usage {
        self.used
    }

    fn finish(self) -> ModelReply {
        let mut reply = ModelReply { stop: self.stop, used: self.used, ..ModelReply::default() };
        for item in self.items {
            match item["type"].as_str().unwrap_or_default() {
                "message" => {
                    let text = said(&item);
                    if text.trim().is_empty() {
                        continue;
                    }
                    let content = json!([{"type": "output_text", "text": text}]);
                    reply.items.push(json!({"type": "message", "role": "assistant", "content": content}));
                    reply.text.push_str(&text);
                }
                "function_call" => {
                    let call = call(&item);
                    let arguments = if call.input.is_some() { item["arguments"].as_str() } else { None };
                    reply.items.push(json!({
                        "type": "function_call",
                        "call_id": call.id,
                        "name": call.name,
                        "arguments": arguments.filter(|a| !a.is_empty()).unwrap_or("{}"),
                    }));
                    reply.calls.push(call);
                }
                // Unencrypted, it is only an id of something that the vendor did not store.
                "reasoning" if item["encrypted_content"].is_string() => {
                    let sealed = &item["encrypted_content"];
                    reply.items.push(json!({"type": "reasoning", "summary": [], "encrypted_content": sealed}));
                }
                _ => {}
            }
        }
        // Reasoning must be followed by the item that it led to.
        while reply.items.last().is_some_and(|i| i["type"] == "reasoning") {
            reply.items.pop();
        }
        reply
    }
}

impl ResponsesReply {
    fn count(&mut self, usage: &Value) {
        let cached = count(usage, "/input_tokens_details/cached_tokens");
        self.used = Usage {
            // In this format the input count includes what came from the cache.
            input: count(usage, "/input_tokens").saturating_sub(cached),
            output: count(usage, "/output_tokens"),
            cache_read: cached,
            cache_write: 0,
            microusd: None,
        };
    }

    fn end(&mut self, event: &Value, words: &mut dyn FnMut(&str)) -> ReplyStep {
        let response = &event["response"];
        self.count(&response["usage"]);
        // Some servers send no separate items.
        if self.items.is_empty()
            && let Some(output) = response["output"].as_array()
        {
            self.items = output.iter().take(MOST_ITEMS).cloned().collect();
            if !self.spoke {
                self.items.iter().for_each(|item| words(&said(item)));
            }
        }
        self.stop = match response["incomplete_details"]["reason"].as_str() {
            Some("content_filter") => StopReason::Declined("the vendor's filter ended the answer".to_owned()),
            Some(_) => StopReason::Length,
            None => StopReason::Done,
        };
        ReplyStep::Over
    }
}

/// The text of a message.
fn said(item: &Value) -> String {
    let parts = item["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |part: &Value| part["text"].as_str().or_else(|| part["refusal"].as_str()).map(str::to_owned);
    parts.iter().filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_models_that_reason_are_asked_for_it() {
        for (model, does) in
            [("gpt-5.2", true), ("o3-mini", true), ("gpt-4.1", false), ("qwen3-coder", false), ("o", false)]
        {
            assert_eq!(reasons(model), does, "{model}");
        }
        assert!(reasons("gpt-12") && reasons("codex-mini"));
    }
}
