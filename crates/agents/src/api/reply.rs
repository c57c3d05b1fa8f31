//! What an answer of a model amounts to, whichever wire it came over, and why there is none.

use everloop_core::stream::{LimitClass, Usage, VendorLimit};
use serde_json::Value;

/// A finished answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ModelReply {
    /// As the wire wants to have it back in the next request.
    pub(super) items: Vec<Value>,
    /// Its words.
    pub(super) text: String,
    /// What the model wants done.
    pub(super) calls: Vec<ToolCall>,
    /// Why it ended.
    pub(super) stop: StopReason,
    /// What it used, as far as the vendor said so.
    pub(super) used: Usage,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ToolCall {
    pub(super) id: String,
    pub(super) name: String,
    /// The arguments; `None` when they are no JSON object, for example because the answer was cut at its limit.
    pub(super) input: Option<Value>,
}

/// What came of a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToolOutcome {
    pub(super) text: String,
    pub(super) ok: bool,
}

/// Why an answer ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum StopReason {
    /// The model said all that it wanted.
    #[default]
    Done,
    /// It reached the longest answer allowed.
    Length,
    /// It will not.
    Declined(String),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiRefusal {
    /// The limit behind it, if it is one.
    pub(super) limit: Option<VendorLimit>,
    /// In words.
    pub(super) text: String,
}

impl ApiRefusal {
    /// One that is no limit: waiting would not help.
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self { limit: None, text: text.into() }
    }

    /// One that this side noticed.
    pub(super) fn seen(rule: &str, class: LimitClass, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { limit: Some(VendorLimit { rule: rule.to_owned(), class, reset_at: None, text: text.clone() }), text }
    }
}

/// Reads one event after the other into a reply; one implementation for each wire.
pub(super) trait Reading {
    /// Takes an event; words go to `words` as they come.
    fn take(&mut self, event: &Value, words: &mut dyn FnMut(&str)) -> Result<ReplyStep, ApiRefusal>;
    /// What was used so far, also when the rest never comes.
    fn used(&self) -> Usage;
    /// The whole answer.
    fn finish(self) -> ModelReply;
}

/// Where in the answer an event left us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyStep {
    /// More is to come.
    More,
    /// Nobody here knows this event.
    Unknown,
    /// That was all.
    Over,
}

/// A number of a usage record.
pub(super) fn count(record: &Value, path: &str) -> u64 {
    record.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}
