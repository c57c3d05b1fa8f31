//! The script of a model server: the response to each main request. Owns the language and the
//! position in the script; knows nothing of HTTP.
//!
//! Steps are separated by commas, each `NAME[:key=value]…[*N]`; the last one repeats. A comma ends
//! a step only where the name of a step follows, and a colon ends a value only where a known key
//! and `=` follow, so most commands and texts can be written as they are; a backslash escapes `,`,
//! `:`, `*` and `\`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The response of one step.
#[derive(Debug, Clone, PartialEq)]
pub enum ScriptedReply {
    /// A finished answer of the model.
    Text,
    /// A call of the shell tool, or of the tool `name` with the arguments `json`.
    Tool,
    /// A call of the tool that writes a file.
    Edit,
    /// An HTTP error with this status.
    Status(u16),
    /// The context window is exceeded.
    TooLong,
    /// A subscription's window is exhausted until a time that is fixed at the first such response.
    ClaudeLimit,
    /// An answer that warns of the window.
    ClaudeWarn,
    /// The same as [`ScriptedReply::ClaudeLimit`] in the format of codex's backend.
    CodexLimit,
    /// An answer with codex's window in its headers.
    CodexWarn,
    /// The credit is exhausted, as an API account of codex sees it.
    CodexQuota,
    /// The quota of a day is exhausted.
    GeminiDay,
    /// The quota of a minute is exhausted.
    GeminiMinute,
    /// Accepts the request and never responds.
    Hang,
    /// Half of the answer, then silence.
    Stall,
    /// Half of the answer, then the connection is cut.
    Drop,
    /// The connection is reset before the response begins.
    Reset,
    /// A slow answer that never stops moving.
    Trickle,
    /// An error inside of a stream that began well.
    SseError,
    /// A stream that ends with the error code `code`.
    Failed,
    /// The model stops at its output limit.
    MaxTokens,
    /// A finished answer without content.
    Empty,
}

/// Names of the steps. A status is its own name.
const NAMES: &[(&str, ScriptedReply)] = &[
    ("text", ScriptedReply::Text),
    ("tool", ScriptedReply::Tool),
    ("edit", ScriptedReply::Edit),
    ("429", ScriptedReply::Status(429)),
    ("529", ScriptedReply::Status(529)),
    ("500", ScriptedReply::Status(500)),
    ("503", ScriptedReply::Status(503)),
    ("401", ScriptedReply::Status(401)),
    ("402", ScriptedReply::Status(402)),
    ("403", ScriptedReply::Status(403)),
    ("400", ScriptedReply::Status(400)),
    ("404", ScriptedReply::Status(404)),
    ("too-long", ScriptedReply::TooLong),
    ("claude-limit", ScriptedReply::ClaudeLimit),
    ("claude-warn", ScriptedReply::ClaudeWarn),
    ("codex-limit", ScriptedReply::CodexLimit),
    ("codex-warn", ScriptedReply::CodexWarn),
    ("codex-quota", ScriptedReply::CodexQuota),
    ("gemini-day", ScriptedReply::GeminiDay),
    ("gemini-min", ScriptedReply::GeminiMinute),
    ("hang", ScriptedReply::Hang),
    ("stall", ScriptedReply::Stall),
    ("drop", ScriptedReply::Drop),
    ("reset", ScriptedReply::Reset),
    ("trickle", ScriptedReply::Trickle),
    ("sse-error", ScriptedReply::SseError),
    ("failed", ScriptedReply::Failed),
    ("maxtok", ScriptedReply::MaxTokens),
    ("empty", ScriptedReply::Empty),
];

/// Keys that a step may carry:
///
/// `say` text of the answer; `in`, `out`, `cached` tokens that it reports (for limits `in` is the
/// seconds until the reset); `cmd` the command of a tool call; `name`, `json` another tool and its
/// arguments; `path`, `text` of an edit; `ra` seconds of `retry-after`; `claim` the window; `u` how
/// much of it is used; `ms` between two pieces of a trickle; `code` of a failed stream;
/// `retry=true` leaves the retry to the client; `wait` milliseconds before the answer begins.
const KEYS: &[&str] = &[
    "say", "in", "out", "cached", "cmd", "name", "json", "path", "text", "ra", "claim", "u", "ms", "code", "retry",
    "wait",
];

/// One step of a script.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptStep {
    pub answer: ScriptedReply,
    /// As it was written, for the log.
    pub source: String,
    values: Vec<(String, String)>,
    times: u32,
}

impl ScriptStep {
    /// The value of `key`.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.values.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// The value of `key` as a whole number.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.value(key).and_then(|v| v.parse().ok())
    }

    fn parse(source: &str) -> Result<Self, ScriptError> {
        let wrong = |why: &str| ScriptError { step: source.to_owned(), why: why.to_owned() };
        let (body, times) = split_count(source).ok_or_else(|| wrong("it has to be played at least once"))?;
        let mut parts = split_values(body).into_iter();
        let name = unescape(parts.next().unwrap_or_default().trim());
        let known = NAMES.iter().find(|(known, _)| *known == name);
        let answer = known.map(|(_, answer)| answer.clone()).ok_or_else(|| wrong("there is no such step"))?;
        let pair = |part: &str| part.split_once('=').map(|(k, v)| (k.to_owned(), unescape(v)));
        let values: Vec<(String, String)> = parts.filter_map(pair).collect();
        let step = Self { answer, source: source.to_owned(), values, times };
        for key in ["in", "out", "cached", "ra", "ms", "wait"] {
            if step.value(key).is_some() && step.number(key).is_none() {
                return Err(wrong("a value has to be a whole number"));
            }
        }
        if step.value("json").is_some_and(|json| serde_json::from_str::<serde_json::Value>(json).is_err()) {
            return Err(wrong("its `json` cannot be parsed"));
        }
        let needs = match step.answer {
            ScriptedReply::Edit => Some("path"),
            ScriptedReply::ClaudeLimit | ScriptedReply::CodexLimit => Some("in"),
            _ => None,
        };
        match needs.filter(|key| step.value(key).is_none()) {
            Some(key) => Err(wrong(&format!("it needs `{key}=…`"))),
            None => Ok(step),
        }
    }
}

/// Why a script cannot be played.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptError {
    step: String,
    why: String,
}

impl std::fmt::Display for ScriptError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot play the step `{}`: {}", self.step, self.why)
    }
}

impl std::error::Error for ScriptError {}

/// `tool:cmd=ls*3` is `tool:cmd=ls` three times; `None` for zero times.
fn split_count(source: &str) -> Option<(&str, u32)> {
    let Some((body, count)) = source.rsplit_once('*') else { return Some((source, 1)) };
    match count.trim().parse() {
        Ok(0) => None,
        Ok(times) if !body.ends_with('\\') => Some((body, times)),
        _ => Some((source, 1)),
    }
}

/// Whether the character at `at` is a separator, not escaped by a backslash.
fn is_bare(text: &str, at: usize) -> bool {
    text[..at].bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 0
}

fn split_where(text: &str, separator: char, follows: impl Fn(&str) -> bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, _) in text.match_indices(separator) {
        if is_bare(text, at) && follows(&text[at + 1..]) {
            parts.push(&text[start..at]);
            start = at + 1;
        }
    }
    parts.push(&text[start..]);
    parts
}

fn split_steps(text: &str) -> Vec<&str> {
    split_where(text, ',', |rest| {
        let name = rest.trim_start().split([',', ':', '*', ' ', '\n']).next().unwrap_or_default();
        NAMES.iter().any(|(known, _)| *known == name)
    })
}

fn split_values(text: &str) -> Vec<&str> {
    split_where(text, ':', |rest| rest.split_once('=').is_some_and(|(key, _)| KEYS.contains(&key)))
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some(next @ (',' | ':' | '*' | '\\'))) => {
                out.push(*next);
                chars.next();
            }
            _ => out.push(c),
        }
    }
    out
}

/// A script and the position in it.
#[derive(Debug, Clone)]
pub struct Script {
    steps: Vec<ScriptStep>,
    at: usize,
    played: u32,
    /// When the current limit ends; `None` before its first response.
    limited_until: Option<SystemTime>,
}

/// A step for one request.
#[derive(Debug, Clone)]
pub struct Play {
    pub step: ScriptStep,
    /// Its position in the script.
    pub index: usize,
    /// For a limit: when it ends, in seconds since 1970. Fixed at its first response.
    pub resets_at: u64,
}

impl Script {
    /// Parses a script from one line.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        Self::of(split_steps(text.trim()))
    }

    /// Parses a script from a file: one step per line, where commas have no meaning; empty lines
    /// and comments (`#`) are skipped.
    pub fn parse_lines(text: &str) -> Result<Self, ScriptError> {
        Self::of(text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')))
    }

    fn of<'a>(steps: impl IntoIterator<Item = &'a str>) -> Result<Self, ScriptError> {
        let steps = steps.into_iter().map(|s| ScriptStep::parse(s.trim())).collect::<Result<Vec<_>, _>>()?;
        if steps.is_empty() {
            return Err(ScriptError { step: String::new(), why: "a script has at least one step".to_owned() });
        }
        Ok(Self { steps, at: 0, played: 0, limited_until: None })
    }

    /// The step for the main request that arrives at `now`.
    pub fn next(&mut self, now: SystemTime) -> Play {
        // A limit that has ended counts as played once, however many requests it answered.
        if self.limited_until.is_some_and(|until| until <= now) {
            self.limited_until = None;
            self.advance();
        }
        let step = self.steps[self.at].clone();
        let index = self.at;
        if matches!(step.answer, ScriptedReply::ClaudeLimit | ScriptedReply::CodexLimit) {
            let lasts = Duration::from_secs(step.number("in").unwrap_or_default());
            // Whole seconds, rounded up, because the response has no finer unit.
            let end = (now + lasts).duration_since(UNIX_EPOCH).unwrap_or_default() + Duration::from_millis(999);
            let until = *self.limited_until.get_or_insert(UNIX_EPOCH + Duration::from_secs(end.as_secs()));
            let resets_at = until.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            return Play { step, index, resets_at };
        }
        self.advance();
        Play { step, index, resets_at: 0 }
    }

    fn advance(&mut self) {
        self.played += 1;
        if self.played >= self.steps[self.at].times && self.at + 1 < self.steps.len() {
            self.at += 1;
            self.played = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(script: &str, requests: usize) -> Vec<String> {
        let mut script = Script::parse(script).expect("the script can be read");
        (0..requests).map(|_| script.next(UNIX_EPOCH).step.source).collect()
    }

    #[test]
    fn steps_are_played_in_order_and_the_last_one_repeats() {
        assert_eq!(play("500*2,text", 4), ["500*2", "500*2", "text", "text"]);
        assert_eq!(play("401", 2), ["401", "401"]);
    }

    #[test]
    fn values_may_contain_what_separates_steps() {
        let script = Script::parse(r#"tool:cmd=echo a:b, c > x:wait=5,tool:json={"a":1,"b":[2,3]},text:say=one\,text"#)
            .expect("the script can be read");
        assert_eq!(script.steps.len(), 3);
        assert_eq!(script.steps[0].value("cmd"), Some("echo a:b, c > x"));
        assert_eq!(script.steps[0].number("wait"), Some(5));
        assert_eq!(script.steps[1].value("json"), Some(r#"{"a":1,"b":[2,3]}"#));
        assert_eq!(script.steps[2].value("say"), Some("one,text"));
        let lines = Script::parse_lines("# a comment\ntool:cmd=echo text,text*2\n\ntext\n").expect("it can be read");
        assert_eq!(lines.steps[0].value("cmd"), Some("echo text,text"));
        assert_eq!(lines.steps[0].times, 2);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "txt", "text,bogus", "text*0", "edit:text=x", "claude-limit", "429:ra=soon", "tool:json={"] {
            assert!(Script::parse(text).is_err(), "`{text}` was taken");
        }
    }

    #[test]
    fn a_limit_keeps_the_reset_of_its_first_answer_and_ends_then() {
        let mut script = Script::parse("claude-limit:in=60,text").expect("the script can be read");
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(script.next(at(100)).resets_at, 160);
        assert_eq!(script.next(at(159)).resets_at, 160);
        assert_eq!(script.next(at(160)).step.answer, ScriptedReply::Text);
        let mut again = Script::parse("codex-limit:in=60").expect("the script can be read");
        assert_eq!(again.next(at(100)).resets_at, 160);
        assert_eq!(again.next(at(200)).resets_at, 260);
    }
}
