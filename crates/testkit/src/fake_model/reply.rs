//! From a step to the response on the wire: status, headers, frames, and how it ends.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::dialect::{self, gemini};
use super::http::ResponseHead;
use super::message::ModelMessage;
use super::request::{Ask, Dialect};
use super::script::{Play, ScriptStep, ScriptedReply};

/// The default pause between two pieces of a trickle.
const TRICKLE_PACE: Duration = Duration::from_millis(500);
/// End of a window that only warns: too far away to be waited for.
const WARNED_WINDOW: Duration = Duration::from_secs(7200);
/// The longer of codex's two windows.
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// How a response ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyEnd {
    /// The response is complete.
    Whole,
    /// The connection stays open and nothing more is sent.
    Silence,
    /// The connection is closed in the middle.
    Cut,
}

/// The response to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum PlayedReply {
    /// A document in one piece.
    Document(ResponseHead, Value),
    /// Pieces, with `pace` between them.
    Pieces {
        /// Status and headers.
        head: ResponseHead,
        pieces: Vec<String>,
        pace: Duration,
        end: ReplyEnd,
    },
    /// No response; the connection stays open.
    Silence,
    /// The connection is reset.
    Reset,
}

impl PlayedReply {
    /// The HTTP status, when one is sent.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Document(head, _) | Self::Pieces { head, .. } => Some(head.status),
            Self::Silence | Self::Reset => None,
        }
    }

    /// A successful answer.
    pub fn said(message: &ModelMessage, ask: &Ask) -> Self {
        Self::Pieces { head: fine(ask), pieces: pieces(message, ask), pace: Duration::ZERO, end: ReplyEnd::Whole }
    }

    /// An HTTP error.
    pub fn refused(dialect: Dialect, status: u16, message: &str) -> Self {
        Self::Document(json_head(status), dialect::error(dialect, status, message))
    }

    /// The response of `play` to `ask`, which came at `now`.
    pub fn of(play: &Play, ask: &Ask, number: u64, now: SystemTime) -> Self {
        let step = &play.step;
        let message = match ModelMessage::of(step, ask, number) {
            Ok(message) => message,
            // The script does not fit the program under test; an explicit error is noticed at once.
            Err(why) => return Self::refused(ask.dialect, 400, &format!("the fake model cannot play this: {why}")),
        };
        let now_seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        match step.answer {
            ScriptedReply::Text
            | ScriptedReply::Tool
            | ScriptedReply::Edit
            | ScriptedReply::MaxTokens
            | ScriptedReply::Empty => Self::said(&message, ask),
            ScriptedReply::Status(status) => error(step, ask, status),
            ScriptedReply::TooLong if ask.dialect == Dialect::Responses => {
                failed(&message, ask, "context_length_exceeded")
            }
            ScriptedReply::TooLong => {
                let (status, body) = dialect::too_long(ask.dialect);
                Self::Document(json_head(status), body)
            }
            ScriptedReply::ClaudeLimit => claude_limit(play, now_seconds),
            ScriptedReply::ClaudeWarn => {
                let used = step.value("u").unwrap_or("0.9");
                let head =
                    claude_window(fine(ask), step, "allowed_warning", used, now_seconds + WARNED_WINDOW.as_secs());
                Self::said(&message, ask).under(head)
            }
            ScriptedReply::CodexLimit => codex_limit(play, now_seconds),
            ScriptedReply::CodexWarn => {
                let used = step.value("u").unwrap_or("90");
                let head = codex_windows(fine(ask), used, now_seconds + WARNED_WINDOW.as_secs());
                Self::said(&message, ask).under(head)
            }
            ScriptedReply::CodexQuota => codex_quota(),
            ScriptedReply::GeminiDay => gemini_quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier", step),
            ScriptedReply::GeminiMinute => gemini_quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", step),
            ScriptedReply::Hang => Self::Silence,
            ScriptedReply::Reset => Self::Reset,
            ScriptedReply::Stall => half(&message, ask, ReplyEnd::Silence),
            ScriptedReply::Drop => half(&message, ask, ReplyEnd::Cut),
            ScriptedReply::Trickle => {
                let pace = step.number("ms").map_or(TRICKLE_PACE, Duration::from_millis);
                Self::Pieces { head: fine(ask), pieces: pieces(&message, ask), pace, end: ReplyEnd::Whole }
            }
            ScriptedReply::SseError => failed(&message, ask, step.value("code").unwrap_or("server_error")),
            ScriptedReply::Failed => failed(&message, ask, step.value("code").unwrap_or("rate_limit_exceeded")),
        }
    }

    fn under(self, new: ResponseHead) -> Self {
        match self {
            Self::Pieces { pieces, pace, end, .. } => Self::Pieces { head: new, pieces, pace, end },
            other => other,
        }
    }
}

fn json_head(status: u16) -> ResponseHead {
    ResponseHead::new(status).with("content-type", "application/json")
}

fn fine(ask: &Ask) -> ResponseHead {
    let kind = if ask.stream { "text/event-stream" } else { "application/json" };
    ResponseHead::new(200).with("content-type", kind).with("cache-control", "no-cache").with("request-id", "req_fake")
}

/// The frames of a stream, or a document in two halves so that it can be cut as well.
fn pieces(message: &ModelMessage, ask: &Ask) -> Vec<String> {
    if ask.stream {
        return dialect::stream(message, ask);
    }
    let mut text = dialect::whole(message, ask).to_string();
    let middle = (text.len() / 2..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let rest = text.split_off(middle);
    vec![text, rest]
}

fn half(message: &ModelMessage, ask: &Ask, end: ReplyEnd) -> PlayedReply {
    let mut pieces = pieces(message, ask);
    pieces.truncate((pieces.len() / 2).max(1));
    PlayedReply::Pieces { head: fine(ask), pieces, pace: Duration::ZERO, end }
}

/// A stream that begins well and ends with an error. Without streaming, the error stands alone
/// under the status 200.
fn failed(message: &ModelMessage, ask: &Ask, code: &str) -> PlayedReply {
    if !ask.stream {
        return PlayedReply::Document(json_head(200), dialect::error(ask.dialect, 500, "fake error"));
    }
    let mut pieces = pieces(message, ask);
    pieces.truncate(1);
    pieces.push(dialect::error_frame(ask.dialect, Some(code), message));
    PlayedReply::Pieces { head: fine(ask), pieces, pace: Duration::ZERO, end: ReplyEnd::Whole }
}

fn error(step: &ScriptStep, ask: &Ask, status: u16) -> PlayedReply {
    let words = match (status, ask.dialect) {
        (402, Dialect::Anthropic) => "Your credit balance is too low to access the API.".to_owned(),
        (529, _) => "Overloaded".to_owned(),
        _ => format!("fake {status}"),
    };
    let mut body = dialect::error(ask.dialect, status, &words);
    let mut head = json_head(status);
    if let Some(seconds) = step.number("ra") {
        head = head.with("retry-after", seconds.to_string());
        if ask.dialect == Dialect::Gemini {
            body["error"]["details"] = json!([gemini::retry_info(seconds)]);
        }
    }
    PlayedReply::Document(head, body)
}

/// The headers in which Anthropic describes the window of a subscription.
fn claude_window(head: ResponseHead, step: &ScriptStep, status: &str, used: &str, resets_at: u64) -> ResponseHead {
    let claim = step.value("claim").unwrap_or("five_hour");
    let short = if claim == "seven_day" { "7d" } else { "5h" };
    let name = |rest: &str| format!("anthropic-ratelimit-unified-{rest}");
    head.with(&name("status"), status)
        .with(&name("reset"), resets_at.to_string())
        .with(&name("representative-claim"), claim)
        .with(&name(&format!("{short}-status")), status)
        .with(&name(&format!("{short}-reset")), resets_at.to_string())
        .with(&name(&format!("{short}-utilization")), used)
        .with(&name("overage-status"), "rejected")
        .with(&name("overage-disabled-reason"), "org_level_disabled")
}

fn claude_limit(play: &Play, now_seconds: u64) -> PlayedReply {
    let mut head = claude_window(json_head(429), &play.step, "rejected", "1.0", play.resets_at)
        .with("retry-after", play.resets_at.saturating_sub(now_seconds).to_string());
    if play.step.value("retry") != Some("true") {
        head = head.with("x-should-retry", "false");
    }
    let words = "This request would exceed your account's rate limit. Please try again later.";
    PlayedReply::Document(head, dialect::error(Dialect::Anthropic, 429, words))
}

fn codex_windows(head: ResponseHead, used: &str, resets_at: u64) -> ResponseHead {
    head.with("x-codex-primary-used-percent", used)
        .with("x-codex-primary-window-minutes", "300")
        .with("x-codex-primary-reset-at", resets_at.to_string())
        .with("x-codex-secondary-used-percent", "40")
        .with("x-codex-secondary-window-minutes", (WEEK.as_secs() / 60).to_string())
        .with("x-codex-secondary-reset-at", (resets_at + WEEK.as_secs()).to_string())
}

fn codex_limit(play: &Play, now_seconds: u64) -> PlayedReply {
    let body = json!({ "error": {
        "type": "usage_limit_reached",
        "message": "The usage limit has been reached",
        "plan_type": "plus",
        "resets_at": play.resets_at,
        "resets_in_seconds": play.resets_at.saturating_sub(now_seconds),
    } });
    PlayedReply::Document(codex_windows(json_head(429), "100", play.resets_at), body)
}

fn codex_quota() -> PlayedReply {
    let words = "You exceeded your current quota, please check your plan and billing details.";
    let error = json!({ "message": words, "type": "insufficient_quota", "param": null, "code": "insufficient_quota" });
    PlayedReply::Document(json_head(429), json!({ "error": error }))
}

fn gemini_quota(id: &str, step: &ScriptStep) -> PlayedReply {
    let words = "You exceeded your current quota, please check your plan and billing details.";
    let mut body = dialect::error(Dialect::Gemini, 429, words);
    let mut details = vec![gemini::quota_failure(id)];
    details.extend(step.number("ra").map(gemini::retry_info));
    body["error"]["details"] = details.into();
    PlayedReply::Document(json_head(429), body)
}
