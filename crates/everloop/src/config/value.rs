//! The kinds of values in everloop.toml: what each accepts, and its message for a value that does
//! not fit.
//!
//! The message has the form `what is wrong; what to write instead`: the reader makes a hint of the
//! second part.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use everloop_agents::agent::limits::TEXT_DIALECTS;
use everloop_core::isolation::{IsolationMode, NetworkAccess};
use everloop_core::outbound::tickets::{QuietHours, Severity};
use everloop_core::prices::Prices;
use everloop_core::research::{Direction, KeepRule};
use everloop_core::spec::{self, AgentKind, TextLimit};
use everloop_core::stream::LimitClass;
use everloop_core::time::{Time, human, parse_duration};
pub use everloop_engine::text::nearest;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use toml::Value;

use super::shell;

/// A text with something in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonEmptyText(pub String);

/// A list of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List(pub Vec<String>);

/// `true` or `false`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag(pub bool);

/// A number from 1 up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u32);

/// A number from 0 up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount(pub u64);

/// A number, also below 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority(pub i32);

/// A number from 1 up, or `"none"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountLimit(pub Option<u64>);

/// Dollars, kept in millionths; 0 is a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price(pub u64);

/// Dollars for a million tokens: `[input, output]`, or these with those read from a cache and put
/// into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriceList(pub Prices);

/// Dollars, kept in millionths, or `"none"`; 0 is no budget at all and refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dollars(pub Option<u64>);

/// A duration above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

/// A duration; zero is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap(pub Duration);

/// A duration above zero, or `"none"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimit(pub Option<Duration>);

/// A point in time as it was written, or `"none"`. The moment depends on the zone:
/// [`Deadline::time`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadline(pub Option<String>);

/// An argument vector, written as a list or as one text that is split into words like a shell does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine(pub Vec<String>);

/// How an agent is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentKindName(pub AgentKind);

/// What a command writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialectName {
    /// The stream of a known CLI.
    Stream(AgentKind),
    /// Text of a program whose sentences about limits are known.
    Text(&'static str),
}

/// Sentences of a command that are limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRules(pub Vec<TextLimit>);

/// A shorter one would be found in too many texts.
const SHORTEST_SENTENCE: usize = 8;

/// What an agent may do without approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermissionKey(pub spec::Permission);

/// By which means commands are isolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsolationModeKey(pub IsolationMode);

/// Any finite number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number(pub f64);

/// Which values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectionKey(pub Direction);

/// When a change is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepRuleKey(pub KeepRule);

/// What a command may connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkKey(pub NetworkAccess);

/// The API format that everloop's own agent uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiFormat {
    /// Anthropic's Messages API.
    Messages,
    /// OpenAI's Responses API.
    Responses,
}

/// Where a supervisor answers HTTP: an address of loopback, or nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress(pub Option<SocketAddr>);

/// How tickets are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifyKind {
    Telegram,
    Slack,
    Ntfy,
    Sms,
    Mail,
    Webhook,
    Desktop,
    Command,
}

/// How much a ticket matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight(pub Severity);

/// Several of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights(pub Vec<Severity>);

/// Hours of a day in which only critical tickets are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours(pub QuietHours);

/// The name of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableName(pub String);

/// Variables, each with the name of another variable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedVariables(pub BTreeMap<String, String>);

/// Variables, each with a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileVariables(pub BTreeMap<String, String>);

/// Variables, each with a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlainVariables(pub BTreeMap<String, String>);

impl NotifyKind {
    const ALL: [NotifyKind; 8] =
        [Self::Telegram, Self::Slack, Self::Ntfy, Self::Sms, Self::Mail, Self::Webhook, Self::Desktop, Self::Command];

    /// As it stands in the file.
    pub fn label(self) -> &'static str {
        match self {
            Self::Telegram => "telegram",
            Self::Slack => "slack",
            Self::Ntfy => "ntfy",
            Self::Sms => "sms",
            Self::Mail => "mail",
            Self::Webhook => "webhook",
            Self::Desktop => "desktop",
            Self::Command => "command",
        }
    }
}

impl Deadline {
    /// The point in time; a time without zone is taken in `zone`.
    pub fn time(&self, zone: &TimeZone) -> Result<Option<Time>, String> {
        let Some(text) = &self.0 else { return Ok(None) };
        if let Ok(instant) = text.parse::<jiff::Timestamp>() {
            return Ok(Some(Time(instant.as_millisecond())));
        }
        let civil: DateTime = text.parse().map_err(|_| bad_deadline(text))?;
        let zoned = zone.to_zoned(civil).map_err(|_| bad_deadline(text))?;
        Ok(Some(Time(zoned.timestamp().as_millisecond())))
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    /// `127.0.0.1:9300`, `[::1]:9300`, `localhost:9300`, `9300` or `off`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        let here = Ipv4Addr::LOCALHOST;
        let port = text.strip_prefix("localhost:").unwrap_or(text).parse().ok();
        let address = text.parse().ok().or(port.map(|port| SocketAddr::from((here, port))));
        match address {
            None => Err(format!("`{text}` is no address and port; write it like `127.0.0.1:9300`, or `off`")),
            Some(address) if !address.ip().is_loopback() => {
                let how = "use 127.0.0.1, and a tunnel (`ssh -L`) to reach it from elsewhere";
                Err(format!("other machines could reach `{text}`; {how}"))
            }
            some => Ok(Self(some)),
        }
    }
}

fn bad_deadline(text: &str) -> String {
    format!("`{text}` is not a date and time; write it like `2026-11-16T07:00` or `2026-11-16T07:00:00Z`")
}

impl CommandLine {
    /// Splits a command line; one with shell syntax is run by `sh`.
    pub fn split(line: &str) -> Result<Self, String> {
        let words = shlex::split(line).ok_or_else(|| format!("`{line}` has an open quote; close it"))?;
        if shell::is_needed(line) && !words.is_empty() {
            return Self::of(shell::wrap(line));
        }
        Self::of(words)
    }

    /// Takes an argument vector as it is.
    pub fn of(words: Vec<String>) -> Result<Self, String> {
        if words.first().is_none_or(|program| program.trim().is_empty()) {
            return Err("the command is empty; name a program, for example `my-agent {prompt}`".to_owned());
        }
        if shell::has_prompt_in_code(&words) {
            let how = "hand it over: `sh -c 'my-agent \"$1\"' sh {prompt}`";
            return Err(format!("a prompt inside shell code would be executed; {how}"));
        }
        if words.iter().any(|w| w.contains('\0')) {
            return Err("the command holds a NUL character; remove it".to_owned());
        }
        let prompts: usize =
            words.iter().map(|w| w.matches("{prompt}").count() + w.matches("{prompt_file}").count()).sum();
        if prompts > 1 {
            let why = "the prompt stands in the command more than once";
            return Err(format!("{why}; keep one of `{{prompt}}` and `{{prompt_file}}`, or none to get it on stdin"));
        }
        Ok(Self(words))
    }
}

fn dollars(value: &Value) -> Option<u64> {
    let dollars = match value {
        Value::Float(f) => *f,
        Value::Integer(n) => *n as f64,
        _ => return None,
    };
    // Above this, millionths of a dollar would not fit; no real budget is this large.
    let sane = (0.0..1e9).contains(&dollars);
    sane.then(|| (dollars * 1e6).round() as u64)
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
        _ => None,
    }
}

fn is_none(value: &Value) -> bool {
    value.as_str() == Some("none")
}

fn duration(value: &Value) -> Result<Duration, String> {
    match value {
        Value::String(text) => parse_duration(text),
        Value::Integer(n) => Err(format!("`{n}` has no unit; write it like `\"{n}s\"` or `\"{n}m\"`")),
        other => Err(unfit("a duration like `\"90s\"` or `\"2h\"`", other)),
    }
}

fn positive(value: &Value) -> Result<Duration, String> {
    match duration(value)? {
        Duration::ZERO => Err(format!("{} is too short; give it a length above zero", found(value))),
        long => Ok(long),
    }
}

fn unfit(wanted: &str, value: &Value) -> String {
    format!("expected {wanted}, found {}", found(value))
}

fn found(value: &Value) -> String {
    match value {
        Value::String(text) if text.trim().is_empty() => "an empty text".to_owned(),
        Value::String(_) | Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {
            format!("`{value}`")
        }
        Value::Array(_) => "a list".to_owned(),
        Value::Table(_) => "a table".to_owned(),
    }
}

/// How a kind of value is read and how the JSON Schema describes it.
macro_rules! kind {
    ($name:ident, $schema:tt, $read:expr) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = Value::deserialize(deserializer)?;
                let read: fn(&Value) -> Result<Self, String> = $read;
                read(&value).map_err(D::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

kind!(NonEmptyText, { "type": "string", "minLength": 1 }, |value| {
    text_of(value).map(NonEmptyText).ok_or_else(|| unfit("a text in quotes", value))
});

kind!(List, { "type": "array", "items": { "type": "string", "minLength": 1 } }, |value| {
    let items = value.as_array().ok_or_else(|| {
        let hint = text_of(value).map_or(String::new(), |_| format!("; put brackets around it: `[{value}]`"));
        format!("{}{hint}", unfit("a list of texts", value))
    })?;
    let text = |item| text_of(item).ok_or_else(|| unfit("a list of texts", item));
    items.iter().map(text).collect::<Result<_, _>>().map(List)
});

kind!(Flag, { "type": "boolean" }, |value| {
    value.as_bool().map(Flag).ok_or_else(|| unfit("`true` or `false`", value))
});

kind!(Count, { "type": "integer", "minimum": 1, "maximum": 4_294_967_295_u32 }, |value| {
    let number = value.as_integer().and_then(|n| u32::try_from(n).ok()).filter(|n| *n >= 1);
    number.map(Count).ok_or_else(|| unfit("a whole number from 1 up", value))
});

kind!(Amount, { "type": "integer", "minimum": 0 }, |value| {
    let number = value.as_integer().and_then(|n| u64::try_from(n).ok());
    number.map(Amount).ok_or_else(|| unfit("a whole number from 0 up", value))
});

kind!(Priority, { "type": "integer", "minimum": -2_147_483_648_i32, "maximum": 2_147_483_647_i32 }, |value| {
    let number = value.as_integer().and_then(|n| i32::try_from(n).ok());
    number.map(Priority).ok_or_else(|| unfit("a whole number", value))
});

kind!(CountLimit, { "anyOf": [{ "type": "integer", "minimum": 1 }, { "const": "none" }] }, |value| {
    let number = value.as_integer().and_then(|n| u64::try_from(n).ok()).filter(|n| *n >= 1);
    match number {
        None if is_none(value) => Ok(CountLimit(None)),
        None => Err(unfit("a whole number from 1 up, or `\"none\"`", value)),
        some => Ok(CountLimit(some)),
    }
});

kind!(Price, { "type": "number", "minimum": 0 }, |value| {
    dollars(value).map(Price).ok_or_else(|| unfit("dollars like `0.10`", value))
});

kind!(PriceList, { "type": "array", "items": { "type": "number", "minimum": 0 }, "minItems": 2, "maxItems": 4 }, |value| {
    let wrong = || unfit("two to four prices like `[1.25, 10.0]`", value);
    let items = value.as_array().filter(|items| (2..=4).contains(&items.len())).ok_or_else(wrong)?;
    let all = items.iter().map(dollars).collect::<Option<Vec<u64>>>().ok_or_else(wrong)?;
    let (input, output) = (all[0], all[1]);
    // The highest that vendors charge, so that a budget is never overdrawn.
    let cache_read = all.get(2).copied().unwrap_or(input / 2);
    let cache_write = all.get(3).copied().unwrap_or(input / 4 * 5);
    Ok(PriceList(Prices { input, output, cache_read, cache_write }))
});

kind!(Dollars, { "anyOf": [{ "type": "number", "exclusiveMinimum": 0 }, { "const": "none" }] }, |value| {
    match dollars(value).filter(|d| *d > 0) {
        None if is_none(value) => Ok(Dollars(None)),
        None => Err(unfit("dollars like `5.00`, or `\"none\"`", value)),
        some => Ok(Dollars(some)),
    }
});

kind!(Span, { "type": "string", "examples": ["90s", "15m", "2h", "1h 30m"] }, |value| positive(value).map(Span));

kind!(Gap, { "type": "string", "examples": ["15s", "0"] }, |value| duration(value).map(Gap));

kind!(TimeLimit, { "type": "string", "examples": ["8h", "none"] }, |value| {
    if is_none(value) { Ok(TimeLimit(None)) } else { positive(value).map(|d| TimeLimit(Some(d))) }
});

kind!(Deadline, { "type": "string", "examples": ["2026-11-16T07:00", "2026-11-16T07:00:00Z", "none"] }, |value| {
    if is_none(value) {
        return Ok(Deadline(None));
    }
    let text = match value {
        Value::Datetime(at) => at.to_string(),
        other => text_of(other).ok_or_else(|| unfit("a date and time like `\"2026-11-16T07:00\"`", other))?,
    };
    let deadline = Deadline(Some(text));
    deadline.time(&TimeZone::UTC).map(|_| deadline)
});

kind!(CommandLine, { "anyOf": [
    { "type": "string", "minLength": 1 },
    { "type": "array", "items": { "type": "string" }, "minItems": 1 }
] }, |value| {
    match value {
        Value::String(line) => CommandLine::split(line),
        Value::Array(items) => {
            let word = |item: &Value| item.as_str().map(str::to_owned).ok_or_else(|| unfit("a list of texts", item));
            CommandLine::of(items.iter().map(word).collect::<Result<_, _>>()?)
        }
        other => Err(unfit("a command like `\"my-agent {prompt}\"`, or a list of its words", other)),
    }
});

kind!(AgentKindName, { "anyOf": [
    { "const": "command" }, { "const": "claude" }, { "const": "codex" }, { "const": "gemini" }, { "const": "opencode" },
    { "const": "copilot" }, { "const": "acp" }, { "const": "api" }, { "const": "pane" }
] }, |value| pick(value, &AgentKind::ALL.map(|kind| (kind.label(), AgentKindName(kind)))));

kind!(DialectName, { "enum": ["claude", "codex", "gemini", "opencode", "copilot", "aider", "goose"] }, |value| {
    let streams = [AgentKind::Claude, AgentKind::Codex, AgentKind::Gemini, AgentKind::Opencode, AgentKind::Copilot];
    let streams = streams.map(|kind| (kind.label(), DialectName::Stream(kind)));
    let texts = TEXT_DIALECTS.iter().map(|(name, _)| (*name, DialectName::Text(name)));
    pick(value, &streams.into_iter().chain(texts).collect::<Vec<_>>())
});

kind!(LimitRules, { "type": "array", "items": { "type": "string", "pattern": "^[a-z]+: .+" } }, |value| {
    let items = value.as_array().ok_or_else(|| unfit("a list like `[\"rate: too many requests\"]`", value))?;
    let rule = |item: &Value| {
        let wrong = || unfit("a rule like `\"rate: too many requests\"`", item);
        let (class, says) = item.as_str().and_then(|text| text.split_once(": ")).ok_or_else(wrong)?;
        let class = LimitClass::ALL.into_iter().find(|known| known.to_string() == class).ok_or_else(wrong)?;
        let says = Some(says.trim()).filter(|says| says.len() >= SHORTEST_SENTENCE).ok_or_else(|| {
            format!("`{says}` is too short to be sure; write at least {SHORTEST_SENTENCE} characters of the sentence")
        })?;
        Ok(TextLimit { says: says.to_owned(), class })
    };
    items.iter().map(rule).collect::<Result<_, String>>().map(LimitRules)
});

kind!(PermissionKey, { "anyOf": [{ "const": "edits" }, { "const": "full" }] }, |value| {
    pick(value, &[("edits", PermissionKey(spec::Permission::Edits)), ("full", PermissionKey(spec::Permission::Full))])
});

kind!(IsolationModeKey, { "enum": ["auto", "landlock", "bubblewrap", "container", "none"] }, |value| {
    pick(value, &IsolationMode::ALL.map(|mode| (mode.label(), IsolationModeKey(mode))))
});

kind!(Number, { "type": "number" }, |value| {
    let number = value.as_float().or_else(|| value.as_integer().map(|n| n as f64)).filter(|n| n.is_finite());
    number.map(Number).ok_or_else(|| unfit("a number", value))
});

kind!(DirectionKey, { "anyOf": [{ "const": "lower" }, { "const": "higher" }] }, |value| {
    pick(value, &[Direction::Lower, Direction::Higher].map(|way| (way.label(), DirectionKey(way))))
});

kind!(KeepRuleKey, { "enum": ["race", "single", "sigma2", "exact"] }, |value| {
    pick(value, &KeepRule::ALL.map(|rule| (rule.label(), KeepRuleKey(rule))))
});

kind!(NetworkKey, { "enum": ["open", "loopback", "none"] }, |value| {
    pick(value, &NetworkAccess::ALL.map(|access| (access.label(), NetworkKey(access))))
});

kind!(ApiFormat, { "anyOf": [{ "const": "messages" }, { "const": "responses" }] }, |value| {
    pick(value, &[("messages", ApiFormat::Messages), ("responses", ApiFormat::Responses)])
});

kind!(ListenAddress, { "type": "string", "examples": ["127.0.0.1:9300", "off"] }, |value| {
    text_of(value).ok_or_else(|| unfit("an address like `\"127.0.0.1:9300\"`, or `\"off\"`", value))?.parse()
});

kind!(NotifyKind, { "anyOf": [
    { "const": "telegram" }, { "const": "slack" }, { "const": "ntfy" }, { "const": "sms" }, { "const": "mail" },
    { "const": "webhook" }, { "const": "desktop" }, { "const": "command" }
] }, |value| pick(value, &NotifyKind::ALL.map(|kind| (kind.label(), kind))));

kind!(Weight, { "anyOf": [{ "const": "info" }, { "const": "warning" }, { "const": "critical" }] }, |value| {
    pick(value, &Severity::ALL.map(|weight| (weight.label(), Weight(weight))))
});

kind!(Weights, { "type": "array", "items": { "enum": ["info", "warning", "critical"] } }, |value| {
    let items = value.as_array().ok_or_else(|| unfit("a list like `[\"critical\"]`", value))?;
    let weights = Severity::ALL.map(|weight| (weight.label(), weight));
    items.iter().map(|item| pick(item, &weights)).collect::<Result<_, _>>().map(Weights)
});

kind!(Hours, { "type": "string", "examples": ["22:00-07:00", "22:00-07:00+02:00"] }, |value| {
    let text = text_of(value).ok_or_else(|| unfit("hours like `\"22:00-07:00\"`", value))?;
    QuietHours::parse(&text).map(Hours)
});

kind!(VariableName, { "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" }, |value| {
    let name = value.as_str().filter(|name| is_variable(name));
    let how = "write the name of the variable that holds the key, never the key itself";
    name.map(|name| VariableName(name.to_owned())).ok_or_else(|| format!("this is no name of a variable; {how}"))
});

kind!(NamedVariables, { "type": "object", "additionalProperties": { "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" } }, |value| {
    variables(value, |name, text| {
        let how = "write the name of the variable of your environment that holds it, never the secret itself";
        is_variable(text).then_some(()).ok_or_else(|| format!("what `{name}` is set to is no name of a variable; {how}"))
    })
    .map(NamedVariables)
});

kind!(FileVariables, { "type": "object", "additionalProperties": { "type": "string", "pattern": "^(/|~/)" } }, |value| {
    variables(value, |name, text| {
        let whole = text.starts_with('/') || text.starts_with("~/");
        let how = "let it begin with `/` or `~/`";
        whole.then_some(()).ok_or_else(|| format!("what `{name}` is read from is no whole path; {how}"))
    })
    .map(FileVariables)
});

kind!(PlainVariables, { "type": "object", "additionalProperties": { "type": "string" } }, |value| {
    variables(value, |_, _| Ok(())).map(PlainVariables)
});

/// Variables by name, each with a text that passes `check`. A text may be a secret by mistake, so
/// no message shows one.
fn variables(
    value: &Value,
    check: impl Fn(&str, &str) -> Result<(), String>,
) -> Result<BTreeMap<String, String>, String> {
    let Value::Table(table) = value else {
        return Err("expected variables; write them like `{ NAME = \"…\" }`".to_owned());
    };
    let mut found = BTreeMap::new();
    for (name, value) in table {
        if !is_variable(name) || name.starts_with("EVERLOOP_") {
            let why = if is_variable(name) { "belongs to everloop" } else { "is no name of a variable" };
            return Err(format!("`{name}` {why}; use letters, digits and `_`, not beginning with `EVERLOOP_`"));
        }
        let Value::String(text) = value else { return Err(format!("`{name}` is no text; put quotes around it")) };
        check(name, text)?;
        found.insert(name.clone(), text.clone());
    }
    Ok(found)
}

/// Whether an environment could have a variable of this name.
pub fn is_variable(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(plain) && name.starts_with(|c: char| !c.is_ascii_digit())
}

/// Reads one of a few words.
pub fn choose<'de, T: Copy, D: Deserializer<'de>>(deserializer: D, options: &[(&str, T)]) -> Result<T, D::Error> {
    pick(&Value::deserialize(deserializer)?, options).map_err(D::Error::custom)
}

fn pick<T: Copy>(value: &Value, options: &[(&str, T)]) -> Result<T, String> {
    let chosen = options.iter().find(|(word, _)| value.as_str() == Some(word));
    chosen.map(|(_, choice)| *choice).ok_or_else(|| {
        let words: Vec<String> = options.iter().map(|(word, _)| format!("`\"{word}\"`")).collect();
        let near = nearest(value.as_str().unwrap_or(""), options.iter().map(|(word, _)| *word));
        let hint = near.map_or(String::new(), |word| format!("; did you mean `\"{word}\"`?"));
        format!("{}{hint}", unfit(&format!("one of {}", words.join(", ")), value))
    })
}

/// A duration as the file has it: readable, and read back as the same.
pub fn write_duration(duration: Duration) -> String {
    let readable = human(duration);
    if duration.is_zero() {
        "0".to_owned()
    } else if parse_duration(&readable) == Ok(duration) {
        readable
    } else {
        format!("{}ms", duration.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: for<'de> Deserialize<'de>>(toml: &str) -> Result<T, String> {
        let table: toml::Table = format!("x = {toml}").parse().expect("the test writes good TOML");
        T::deserialize(table["x"].clone()).map_err(|e| e.to_string().trim().to_owned())
    }

    #[test]
    fn each_kind_takes_what_it_should() {
        assert_eq!(read("3"), Ok(Count(3)));
        assert_eq!(read("-3"), Ok(Priority(-3)));
        assert_eq!(read("\"none\""), Ok(CountLimit(None)));
        assert_eq!(read("0.10"), Ok(Price(100_000)));
        assert_eq!(read("5"), Ok(Dollars(Some(5_000_000))));
        assert_eq!(read("\"0\""), Ok(Gap(Duration::ZERO)));
        assert_eq!(read("\"1h 30m\""), Ok(Span(Duration::from_secs(5400))));
        assert_eq!(
            read("'my-agent -p \"{prompt}\"'"),
            Ok(CommandLine(vec!["my-agent".into(), "-p".into(), "{prompt}".into()]))
        );
    }

    #[test]
    fn each_kind_says_what_it_wants() {
        assert_eq!(read::<Count>("0").unwrap_err(), "expected a whole number from 1 up, found `0`");
        assert_eq!(read::<Count>("-1").unwrap_err(), "expected a whole number from 1 up, found `-1`");
        assert_eq!(read::<Flag>("\"yes\"").unwrap_err(), "expected `true` or `false`, found `\"yes\"`");
        assert_eq!(read::<Span>("15").unwrap_err(), "`15` has no unit; write it like `\"15s\"` or `\"15m\"`");
        assert_eq!(read::<Span>("\"0s\"").unwrap_err(), "`\"0s\"` is too short; give it a length above zero");
        assert_eq!(read::<List>("[\"a\", 3]").unwrap_err(), "expected a list of texts, found `3`");
        assert_eq!(read::<NonEmptyText>("\" \"").unwrap_err(), "expected a text in quotes, found an empty text");
        assert!(
            read::<Dollars>("-1.0").is_err() && read::<Dollars>("nan").is_err() && read::<Dollars>("1e300").is_err()
        );
    }

    #[test]
    fn only_this_machine_is_listened_to() {
        assert_eq!(read("\"off\""), Ok(ListenAddress(None)));
        for good in ["127.0.0.1:9300", "localhost:9300", "9300"] {
            assert_eq!(good.parse(), Ok(ListenAddress(Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9300))))), "{good}");
        }
        assert!("[::1]:0".parse::<ListenAddress>().is_ok());
        for open in ["0.0.0.0:9300", "[::]:9300", "192.168.1.7:80", "[::ffff:8.8.8.8]:80"] {
            assert!(open.parse::<ListenAddress>().unwrap_err().contains("other machines could reach"), "{open}");
        }
        assert!(read::<ListenAddress>("\"example.com:80\"").unwrap_err().contains("is no address"));
        assert!(read::<ListenAddress>("9300").is_err());
    }

    #[test]
    fn commands_that_cannot_work_are_refused() {
        for (line, why) in [
            ("", "the command is empty"),
            ("'a b' \"c", "has an open quote"),
            ("x {prompt} {prompt_file}", "more than once"),
            ("sh -c 'x \"{prompt}\"'", "would be executed"),
        ] {
            let error = CommandLine::split(line).expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
        }
        assert!(CommandLine::split("sh -c 'x && y'").is_ok());
        assert!(CommandLine::of(vec!["x".into(), "|".into()]).is_ok(), "a list is taken as it is");
    }

    #[test]
    fn deadlines_with_and_without_zone() {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        let time = |text: &str| Deadline(Some(text.to_owned())).time(&zone);
        assert_eq!(time("1970-01-01T01:00"), Ok(Some(Time(0))));
        assert_eq!(time("1970-01-01T00:00:00Z"), Ok(Some(Time(0))));
        assert!(time("tomorrow").is_err());
        assert_eq!(read("1970-01-01T00:00:00"), Ok(Deadline(Some("1970-01-01T00:00:00".to_owned()))));
    }

    #[test]
    fn durations_are_written_as_they_are_read() {
        for ms in [0, 500, 1500, 61_500, 15_000, 3_661_000, 90_061_000, 86_400_000] {
            let duration = Duration::from_millis(ms);
            assert_eq!(parse_duration(&write_duration(duration)), Ok(duration), "{ms}");
        }
    }
}
