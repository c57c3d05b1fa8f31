//! The result of a request, in either API format: an answer, or the reason why there is none.

use everloop_core::stream::{LimitClass, Usage, VendorLimit};
use serde_json::Value;

/// A finished answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ModelReply {
    /// In the format in which the next request sends it back.
    pub(super) items: Vec<Value>,
    pub(super) text: String,
    /// The tool calls that the model requests.
    pub(super) calls: Vec<ToolCall>,
    pub(super) stop: StopReason,
    /// Usage, as far as the vendor reported it.
    pub(super) used: Usage,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ToolCall {
    pub(super) id: String,
    pub(super) name: String,
    /// The arguments; `None` when they are not a JSON object, for example because the answer was
    /// cut at its limit.
    pub(super) input: Option<Value>,
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToolOutcome {
    pub(super) text: String,
    pub(super) ok: bool,
}

/// Why an answer ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum StopReason {
    /// The answer is complete.
    #[default]
    Done,
    /// The answer reached its maximum length.
    Length,
    /// The model or the vendor refused to answer.
    Declined(String),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiRefusal {
    /// The limit that caused it, if any.
    pub(super) limit: Option<VendorLimit>,
    pub(super) text: String,
}

impl ApiRefusal {
    /// A failure that is not a limit: waiting would not help.
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self { limit: None, text: text.into() }
    }

    /// A limit that this side detected.
    pub(super) fn seen(rule: &str, class: LimitClass, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { limit: Some(VendorLimit { rule: rule.to_owned(), class, reset_at: None, text: text.clone() }), text }
    }
}

/// Reads events into a reply; one implementation per API format.
pub(super) trait Reading {
    /// Takes an event; text goes to `words` as it arrives.
    fn take(&mut self, event: &Value, words: &mut dyn FnMut(&str)) -> Result<ReplyStep, ApiRefusal>;
    /// Usage so far, also when the rest never arrives.
    fn used(&self) -> Usage;
    fn finish(self) -> ModelReply;
}

/// The state of the answer after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyStep {
    /// More events follow.
    More,
    /// The event is of an unknown type.
    Unknown,
    /// The answer is complete.
    Over,
}

/// A number in a usage record.
pub(super) fn count(record: &Value, path: &str) -> u64 {
    record.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}
