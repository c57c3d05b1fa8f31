//! One model for what every agent CLI says while it works. The parsers in `agents` make it, a [`TurnReport`] sums it up.
//!
//! A CLI's own records and the agent's words are kept apart here for good: [`AgentEvent::Limit`] is made from records that the
//! vendor's CLI wrote, never from [`AgentEvent::Text`], so an agent that writes about limits cannot bring one about.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::phase::Gaps;
use crate::time::Time;

/// Text of an agent that is kept in a report.
const TEXT_KEPT: usize = 2_000;
/// Two resets that lie closer together are the same one, told less precisely.
pub(crate) const SAME_RESET: Duration = Duration::from_secs(60);

/// One thing that a CLI said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "said", rename_all = "snake_case")]
pub enum AgentEvent {
    /// The conversation's id, and the model that answers.
    Session {
        /// With which it can be resumed.
        id: String,
        /// For example `claude-opus-5-5`.
        model: Option<String>,
    },
    /// The session that was to be resumed does not exist (any more).
    SessionLost,
    /// Words of the agent; data.
    Text {
        /// Capped by the parser.
        text: String,
    },
    /// A tool call began.
    ToolStarted {
        /// The call's id.
        id: String,
        /// The tool.
        name: String,
        /// Of name and arguments: the same call twice has the same one.
        fingerprint: u64,
        /// The call's own limit, where it names one, in milliseconds.
        timeout_ms: Option<u64>,
        /// The call is another agent at work.
        subagent: bool,
    },
    /// A tool call ended.
    ToolEnded {
        /// The call's id.
        id: String,
        /// Of the error, if it failed.
        error: Option<u64>,
    },
    /// The CLI was refused a tool because nobody was there to allow it.
    Denied {
        /// The tool.
        tool: String,
    },
    /// The CLI waits for a person.
    Asking {
        /// For what.
        what: String,
    },
    /// The CLI itself tries a request again.
    Retrying {
        /// Counts from 1.
        attempt: u32,
        /// When it will, in milliseconds, if it says so.
        delay_ms: Option<u64>,
        /// Why, if it says so.
        class: Option<LimitClass>,
    },
    /// The vendor will not serve this account now.
    Limit(VendorLimit),
    /// How much of an allowance is used; no refusal.
    Quota(Quota),
    /// What was used since the last such record.
    Used(Usage),
    /// What was used in the whole session so far, earlier turns included.
    UsedInAll(Usage),
    /// How full the conversation is.
    Context {
        /// Tokens in it.
        used: u64,
        /// Tokens that fit.
        window: u64,
    },
    /// The CLI says that it is done with the turn; a later one replaces it.
    Result {
        /// It counts as a success for the CLI.
        ok: bool,
        /// The last words, or the error.
        text: String,
    },
    /// A line that is no record, or a record that nobody here knows.
    Unknown,
}

/// Which kind of limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitClass {
    /// The plan's window of some hours.
    Window,
    /// The plan's week (or day, or month).
    Weekly,
    /// One model's own allowance.
    Model,
    /// Too many requests.
    Rate,
    /// The vendor has too much to do, or an error of its own.
    Overload,
    /// The connection failed.
    Network,
    /// A cap on spending that somebody set.
    Spend,
    /// Nothing left to spend.
    Credit,
    /// Not logged in, or not allowed.
    Auth,
    /// The conversation is too long.
    Context,
}

impl LimitClass {
    /// Waiting does not help: a person has to.
    pub fn needs_person(self) -> bool {
        matches!(self, LimitClass::Spend | LimitClass::Credit | LimitClass::Auth)
    }

    /// In words.
    pub fn describe(self) -> &'static str {
        match self {
            LimitClass::Window => "the plan's window is used up",
            LimitClass::Weekly => "the plan's week is used up",
            LimitClass::Model => "the model's allowance is used up",
            LimitClass::Rate => "too many requests",
            LimitClass::Overload => "the vendor is overloaded",
            LimitClass::Network => "the vendor cannot be reached",
            LimitClass::Spend => "the spending cap is reached",
            LimitClass::Credit => "the credit is used up",
            LimitClass::Auth => "the account is not let in",
            LimitClass::Context => "the conversation is too long",
        }
    }
}

impl fmt::Display for LimitClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LimitClass::Window => "window",
            LimitClass::Weekly => "weekly",
            LimitClass::Model => "model",
            LimitClass::Rate => "rate",
            LimitClass::Overload => "overload",
            LimitClass::Network => "network",
            LimitClass::Spend => "spend",
            LimitClass::Credit => "credit",
            LimitClass::Auth => "auth",
            LimitClass::Context => "context",
        })
    }
}

/// The vendor will not serve this account now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VendorLimit {
    /// The rule of the catalogue that recognised it.
    pub rule: String,
    /// Which kind.
    pub class: LimitClass,
    /// When it ends, if the vendor says so.
    pub reset_at: Option<Time>,
    /// What the CLI said, in short; safe to show.
    pub text: String,
}

/// How much of an allowance is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// `five_hour`, `seven_day`, `primary`: the vendor's own name for it.
    pub window: String,
    /// Thousandths.
    pub used_permille: u32,
    /// When it starts anew.
    pub reset_at: Option<Time>,
    /// How long the window is, in milliseconds, where it is known.
    pub length_ms: Option<u64>,
}

/// Tokens and money.
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
    /// Millionths of a dollar, where the CLI knows.
    pub microusd: Option<u64>,
}

impl Usage {
    /// All tokens.
    pub fn tokens(&self) -> u64 {
        self.input.saturating_add(self.output).saturating_add(self.cache_read).saturating_add(self.cache_write)
    }

    /// Both together.
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

    /// What came after `earlier`, when both count from the same beginning.
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

/// What a CLI said in one turn, summed up; kept in the turn's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnReport {
    /// The session, for resuming.
    pub session: Option<String>,
    /// The session that was to be resumed is gone.
    #[serde(default)]
    pub session_lost: bool,
    /// Which model answered.
    pub model: Option<String>,
    /// What this turn used, as far as the CLI counts by turn.
    pub used: Usage,
    /// What the whole session used, for CLIs that only count so.
    #[serde(default)]
    pub in_all: Option<Usage>,
    /// What this turn used by the CLI's telemetry, where it sent any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Usage>,
    /// The limit that ended it; one that the CLI overcame is not one.
    pub limit: Option<VendorLimit>,
    /// The latest word on each allowance.
    #[serde(default)]
    pub quotas: Vec<Quota>,
    /// How full the conversation is, in percent.
    #[serde(default)]
    pub context_percent: Option<u32>,
    /// What the CLI said in the end: `Some(true)` is success; `None` means that it said nothing.
    pub ok: Option<bool>,
    /// Tool calls.
    #[serde(default)]
    pub tools: u32,
    /// Retries inside the CLI.
    #[serde(default)]
    pub retries: u32,
    /// Refused tools.
    #[serde(default)]
    pub denied: u32,
    /// Lines that nobody knows.
    #[serde(default)]
    pub unknown: u64,
    /// The last words.
    #[serde(default)]
    pub last_text: String,
    /// How long it said nothing, by what it was busy with.
    #[serde(default)]
    pub gaps: Gaps,
}

impl TurnReport {
    /// Takes note of one thing that was said.
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
                // Whoever speaks again was let in again.
                self.limit = None;
                self.keep(text);
            }
            AgentEvent::ToolStarted { .. } => {
                self.limit = None;
                self.tools += 1;
            }
            AgentEvent::Denied { .. } => self.denied += 1,
            AgentEvent::Retrying { .. } => self.retries += 1,
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
                    self.limit = None;
                }
                self.ok = Some(*ok);
                if !text.is_empty() {
                    self.keep(text);
                }
            }
            AgentEvent::Unknown => self.unknown += 1,
            AgentEvent::ToolEnded { .. } | AgentEvent::Asking { .. } => {}
        }
    }

    /// Remembers the last words. A stream may hold a hundred thousand of them, so the room of those before is used again.
    fn keep(&mut self, text: &str) {
        // No more bytes, no more characters.
        let end = (text.len() > TEXT_KEPT).then(|| text.char_indices().nth(TEXT_KEPT)).flatten();
        self.last_text.clear();
        self.last_text.push_str(end.map_or(text, |(end, _)| &text[..end]));
    }

    /// Of several records about one refusal the first is the most precise, unless a later one knows the time. A reset that
    /// lies later is another refusal: the CLI waited by itself and was limited again.
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
