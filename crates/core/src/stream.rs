//! One model for the records of every agent CLI. The parsers in `agents` produce it, a
//! [`TurnReport`] sums it up.
//!
//! A CLI's own records and the agent's text stay separate: [`AgentEvent::Limit`] is made from
//! records that the vendor's CLI wrote, never from [`AgentEvent::Text`], so an agent that writes
//! about limits cannot cause one.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::phase::Gaps;
use crate::prices::Rates;
use crate::time::Time;

/// Length of the agent's text that is kept in a report.
const TEXT_KEPT: usize = 2_000;
/// Length of a CLI's sentence about its failure.
const ERROR_KEPT: usize = 400;
/// Rule of a limit that a CLI announced as a retry.
const ANNOUNCED: &str = "any.announced";
/// Two resets that lie closer together are the same one, reported less precisely.
pub(crate) const SAME_RESET: Duration = Duration::from_secs(60);

/// One record of a CLI.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "said", rename_all = "snake_case")]
pub enum AgentEvent {
    /// The session's id, and the model in use.
    Session {
        /// The id that resumes it.
        id: String,
        /// For example `claude-opus-5-5`.
        model: Option<String>,
    },
    /// The session that was to be resumed does not exist (any more).
    SessionLost,
    /// Text of the agent; data.
    Text {
        /// Capped by the parser.
        text: String,
    },
    /// A tool call began.
    ToolStarted {
        id: String,
        name: String,
        /// Hash of name and arguments: equal for equal calls.
        fingerprint: u64,
        /// The call's own limit, where it names one, in milliseconds.
        timeout_ms: Option<u64>,
        /// The call runs a subagent.
        subagent: bool,
        /// Its arguments in short, safe to show; data.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        input: String,
    },
    /// A tool call ended.
    ToolEnded {
        id: String,
        /// Fingerprint of the error, if it failed.
        error: Option<u64>,
        /// Its result in short, safe to show; data.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        output: String,
    },
    /// The CLI was refused a tool because no person was there to allow it.
    Denied { tool: String },
    /// The CLI waits for a person.
    Asking { what: String },
    /// The CLI itself retries a request.
    Retrying {
        /// Counts from 1.
        attempt: u32,
        /// Announced delay in milliseconds.
        delay_ms: Option<u64>,
        /// Announced cause of the retry.
        class: Option<LimitClass>,
        /// Announced time of the retry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Time>,
        /// The CLI's words about it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
    },
    /// The vendor does not serve this account now.
    Limit(VendorLimit),
    /// Used share of an allowance; no refusal.
    Quota(Quota),
    /// Usage since the last such record.
    Used(Usage),
    /// Usage of the whole session so far, earlier turns included.
    UsedInAll(Usage),
    /// Fullness of the session's context.
    Context {
        /// Tokens in it.
        used: u64,
        /// Tokens that fit.
        window: u64,
    },
    /// The CLI reports the end of the turn; a later one replaces it.
    Result {
        /// The CLI counts it as a success.
        ok: bool,
        /// The final text, or the error.
        text: String,
    },
    /// Tasks that the agent left running in the background; the CLI ends after them.
    Background { running: u32 },
    /// The CLI's own sentence about a failure, besides the final record.
    Failed {
        text: String,
        /// The vendor's id of the failed request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<String>,
    },
    /// A line that is no record, or a record of an unknown kind.
    Unknown,
}

/// Class of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitClass {
    /// The plan's window of some hours.
    Window,
    /// The plan's week (or month).
    Weekly,
    /// The allowance of a day.
    Daily,
    /// One model's own allowance.
    Model,
    /// Too many requests.
    Rate,
    /// The vendor is overloaded, or has an error of its own.
    Overload,
    /// The connection failed.
    Network,
    /// A configured cap on spending.
    Spend,
    /// Nothing left to spend.
    Credit,
    /// Not logged in, or not allowed.
    Auth,
    /// The session is too long for the context.
    Context,
    /// The request itself is refused: an unknown model, a bad parameter. The same request is
    /// refused again.
    Request,
}

impl LimitClass {
    /// Every class, for readers of names.
    pub const ALL: [LimitClass; 10] = [
        LimitClass::Window,
        LimitClass::Weekly,
        LimitClass::Model,
        LimitClass::Rate,
        LimitClass::Overload,
        LimitClass::Network,
        LimitClass::Spend,
        LimitClass::Credit,
        LimitClass::Auth,
        LimitClass::Context,
    ];

    /// Waiting does not help: only a person can lift it.
    pub fn needs_person(self) -> bool {
        matches!(self, LimitClass::Spend | LimitClass::Credit | LimitClass::Auth)
    }

    /// Whether it holds the account. The others concern one session or one request.
    pub fn holds_account(self) -> bool {
        !matches!(self, LimitClass::Context | LimitClass::Request)
    }

    /// The cause as a clause for messages.
    pub fn describe(self) -> &'static str {
        match self {
            LimitClass::Window => "the plan's window is used up",
            LimitClass::Weekly => "the plan's week is used up",
            LimitClass::Daily => "the allowance of the day is used up",
            LimitClass::Model => "the model's allowance is used up",
            LimitClass::Rate => "too many requests",
            LimitClass::Overload => "the vendor is overloaded",
            LimitClass::Network => "the vendor cannot be reached",
            LimitClass::Spend => "the spending cap is reached",
            LimitClass::Credit => "the credit is used up",
            LimitClass::Auth => "the account is not let in",
            LimitClass::Context => "the session is too long",
            LimitClass::Request => "the vendor refuses the request itself",
        }
    }
}

impl fmt::Display for LimitClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LimitClass::Window => "window",
            LimitClass::Weekly => "weekly",
            LimitClass::Daily => "daily",
            LimitClass::Model => "model",
            LimitClass::Rate => "rate",
            LimitClass::Overload => "overload",
            LimitClass::Network => "network",
            LimitClass::Spend => "spend",
            LimitClass::Credit => "credit",
            LimitClass::Auth => "auth",
            LimitClass::Context => "context",
            LimitClass::Request => "request",
        })
    }
}

/// The vendor does not serve this account now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VendorLimit {
    /// The rule of the catalogue that recognised it.
    pub rule: String,
    pub class: LimitClass,
    /// When it ends, if the vendor reported that.
    pub reset_at: Option<Time>,
    /// The CLI's message, shortened; safe to show.
    pub text: String,
}

/// Used share of an allowance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// The vendor's own name for it: `five_hour`, `seven_day`, `primary`.
    pub window: String,
    /// Thousandths of the allowance.
    pub used_permille: u32,
    /// Time of the next reset.
    pub reset_at: Option<Time>,
    /// Length of the window in milliseconds, where it is known.
    pub length_ms: Option<u64>,
}

/// Usage in tokens and money.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read, without those from a cache.
    pub input: u64,
    /// Tokens written, thinking included.
    pub output: u64,
    /// Tokens read from a cache.
    pub cache_read: u64,
    /// Tokens put into a cache.
    pub cache_write: u64,
    /// Millionths of a dollar, where the CLI reports them.
    pub microusd: Option<u64>,
}

impl Usage {
    /// The sum of all tokens.
    pub fn tokens(&self) -> u64 {
        self.input.saturating_add(self.output).saturating_add(self.cache_read).saturating_add(self.cache_write)
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Usage) -> Usage {
        let money = match (self.microusd, other.microusd) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        Usage {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            microusd: money,
        }
    }

    /// The difference to `earlier`, when both count from the same beginning.
    #[must_use]
    pub fn since(self, earlier: Usage) -> Usage {
        Usage {
            input: self.input.saturating_sub(earlier.input),
            output: self.output.saturating_sub(earlier.output),
            cache_read: self.cache_read.saturating_sub(earlier.cache_read),
            cache_write: self.cache_write.saturating_sub(earlier.cache_write),
            microusd: self.microusd.map(|m| m.saturating_sub(earlier.microusd.unwrap_or(0))),
        }
    }
}

/// Summary of a CLI's records in one turn; kept in the turn's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnReport {
    /// Id for resuming the session.
    pub session: Option<String>,
    /// The session to be resumed does not exist any more.
    #[serde(default)]
    pub session_lost: bool,
    pub model: Option<String>,
    /// Usage of this turn, as far as the CLI counts by turn.
    pub used: Usage,
    /// Usage of the whole session, for CLIs that only report this.
    #[serde(default)]
    pub in_all: Option<Usage>,
    /// Usage of this turn by the CLI's telemetry, where it sent any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Usage>,
    /// The prices for its tokens; `None` where the model is unknown, or has no known price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates: Option<Rates>,
    /// The limit that ended the turn; one that the CLI overcame is not one.
    pub limit: Option<VendorLimit>,
    /// The retry that the CLI announced last, as a limit; only a turn that was stopped for it has
    /// met it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announced: Option<VendorLimit>,
    /// The CLI's own sentence about its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The vendor's id of the request that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The latest report about each allowance.
    #[serde(default)]
    pub quotas: Vec<Quota>,
    /// Fullness of the context, in percent.
    #[serde(default)]
    pub context_percent: Option<u32>,
    /// Success as reported by the final record; `None` without one.
    pub ok: Option<bool>,
    #[serde(default)]
    pub tools: u32,
    /// Retries inside the CLI.
    #[serde(default)]
    pub retries: u32,
    #[serde(default)]
    pub denied: u32,
    /// Lines that were not recognised.
    #[serde(default)]
    pub unknown: u64,
    /// The last words.
    #[serde(default)]
    pub last_text: String,
    /// Lengths of the silences, by phase.
    #[serde(default)]
    pub gaps: Gaps,
}

impl TurnReport {
    /// Processes one record.
    pub fn take(&mut self, said: &AgentEvent) {
        match said {
            AgentEvent::Session { id, model } => {
                self.session = Some(id.clone());
                if model.is_some() {
                    self.model.clone_from(model);
                }
            }
            AgentEvent::SessionLost => self.session_lost = true,
            AgentEvent::Text { text } => {
                self.overcome();
                self.keep(text);
            }
            AgentEvent::ToolStarted { .. } => {
                self.overcome();
                self.tools += 1;
            }
            AgentEvent::Denied { .. } => self.denied += 1,
            AgentEvent::Retrying { class, until, text, .. } => {
                self.retries += 1;
                self.announced = class.filter(|c| c.holds_account()).map(|class| VendorLimit {
                    rule: ANNOUNCED.to_owned(),
                    class,
                    reset_at: *until,
                    text: one_line(text),
                });
            }
            AgentEvent::Limit(limit) => self.take_limit(limit),
            AgentEvent::Quota(quota) => {
                self.quotas.retain(|q| q.window != quota.window);
                self.quotas.push(quota.clone());
            }
            AgentEvent::Used(usage) => self.used = self.used.plus(*usage),
            AgentEvent::UsedInAll(usage) => self.in_all = Some(*usage),
            AgentEvent::Context { used, window } => {
                let percent = used.saturating_mul(100).checked_div(*window);
                self.context_percent = percent.map(|p| u32::try_from(p).unwrap_or(u32::MAX));
            }
            AgentEvent::Result { ok, text } => {
                if *ok {
                    self.overcome();
                } else if !text.is_empty() {
                    self.error = Some(one_line(text));
                }
                self.ok = Some(*ok);
                if !text.is_empty() {
                    self.keep(text);
                }
            }
            AgentEvent::Failed { text, request_id } => {
                if !text.is_empty() && self.error.is_none() {
                    self.error = Some(one_line(text));
                }
                if request_id.is_some() {
                    self.request_id.clone_from(request_id);
                }
            }
            AgentEvent::Unknown => self.unknown += 1,
            AgentEvent::ToolEnded { .. } | AgentEvent::Asking { .. } | AgentEvent::Background { .. } => {}
        }
    }

    /// New text or a new call proves that the vendor serves again.
    fn overcome(&mut self) {
        self.limit = None;
        self.announced = None;
        self.error = None;
        self.request_id = None;
    }

    /// Keeps the latest text. A stream may contain a hundred thousand of them, so the buffer is
    /// reused.
    fn keep(&mut self, text: &str) {
        // Few bytes cannot hold more characters.
        let end = (text.len() > TEXT_KEPT).then(|| text.char_indices().nth(TEXT_KEPT)).flatten();
        self.last_text.clear();
        self.last_text.push_str(end.map_or(text, |(end, _)| &text[..end]));
    }

    /// Of several records about one refusal the first is the most precise, unless a later one has
    /// the time. A later reset belongs to another refusal: the CLI waited by itself and was limited
    /// again.
    fn take_limit(&mut self, limit: &VendorLimit) {
        let better = match (self.limit.as_ref().map(|known| known.reset_at), limit.reset_at) {
            (None, _) | (Some(None), Some(_)) => true,
            (Some(Some(known)), Some(new)) => new.since(known) > SAME_RESET,
            (Some(_), None) => false,
        };
        if better {
            self.limit = Some(limit.clone());
        }
    }
}

/// The beginning of a text, with every run of spaces and line ends as one space.
fn one_line(text: &str) -> String {
    let words = text.split_whitespace().flat_map(|word| [" ", word]).skip(1);
    words.flat_map(str::chars).take(ERROR_KEPT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(rule: &str, reset_at: Option<Time>) -> AgentEvent {
        AgentEvent::Limit(VendorLimit {
            rule: rule.to_owned(),
            class: LimitClass::Window,
            reset_at,
            text: String::new(),
        })
    }

    fn report(said: &[AgentEvent]) -> TurnReport {
        let mut report = TurnReport::default();
        for one in said {
            report.take(one);
        }
        report
    }

    #[test]
    fn the_record_that_knows_the_time_wins() {
        let both = report(&[limit("prose", None), limit("event", Some(Time(9))), limit("later", Some(Time(10)))]);
        assert_eq!(both.limit.unwrap().rule, "event");
    }

    #[test]
    fn who_waits_by_himself_and_is_limited_again_waits_for_the_later_reset() {
        let (first, second) = (Time(0), Time(0) + Duration::from_secs(5 * 3600));
        let again = report(&[limit("first", Some(first)), limit("second", Some(second)), limit("prose", None)]);
        assert_eq!(again.limit.unwrap().reset_at, Some(second));
        let behind = report(&[limit("second", Some(second)), limit("first", Some(first))]);
        assert_eq!(behind.limit.unwrap().reset_at, Some(second), "an earlier one adds nothing");
    }

    #[test]
    fn a_limit_that_was_overcome_is_none() {
        let text = AgentEvent::Text { text: "going on".to_owned() };
        assert_eq!(report(&[limit("event", None), text]).limit, None);
        let words = AgentEvent::Text { text: "You've hit your 5-hour limit".to_owned() };
        assert_eq!(report(&[words]).limit, None);
    }

    #[test]
    fn the_last_words_are_kept_up_to_a_cap() {
        let words = |text: &str| AgentEvent::Text { text: text.to_owned() };
        assert_eq!(report(&[words(&"a".repeat(TEXT_KEPT + 1)), words("last")]).last_text, "last");
        assert_eq!(report(&[words(&"é".repeat(TEXT_KEPT))]).last_text, "é".repeat(TEXT_KEPT));
        assert_eq!(report(&[words(&"é".repeat(TEXT_KEPT + 1))]).last_text, "é".repeat(TEXT_KEPT));
    }

    #[test]
    fn usage_counts_from_where_it_left_off() {
        let first = Usage { input: 10, output: 5, microusd: Some(7), ..Usage::default() };
        let both = first.plus(Usage { input: 1, ..Usage::default() });
        assert_eq!(both.since(first), Usage { input: 1, microusd: Some(0), ..Usage::default() });
        assert_eq!(both.tokens(), 16);
    }
}
