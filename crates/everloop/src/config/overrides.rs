//! What the environment and the command line say: the two uppermost layers.

use std::collections::BTreeMap;

use toml::Value;

use super::keys::LoopKeys;
use super::layer::{AGENT_KEYS, Layer, Origin};
use super::read::fits;
use everloop_engine::diagnostic::Diagnostic;

/// The environment variables that are read, and the keys they stand for.
pub const ENVIRONMENT: [(&str, &str); 15] = [
    ("EVERLOOP_AGENT", "agent"),
    ("EVERLOOP_AGENTS", "agents"),
    ("EVERLOOP_AGENT_CMD", "agent_cmd"),
    ("EVERLOOP_MODEL", "model"),
    ("EVERLOOP_PERMISSION", "permission"),
    ("EVERLOOP_ALLOW", "allow"),
    ("EVERLOOP_WORKSPACE", "workspace"),
    ("EVERLOOP_INTEGRATE", "integrate"),
    ("EVERLOOP_MAX_TURNS", "max_turns"),
    ("EVERLOOP_MAX_TIME", "max_time"),
    ("EVERLOOP_DEADLINE", "deadline"),
    ("EVERLOOP_MAX_USD", "max_usd"),
    ("EVERLOOP_MAX_TOKENS", "max_tokens"),
    ("EVERLOOP_MAX_CALLS", "max_calls"),
    ("EVERLOOP_MIN_GAP", "guard.min_gap"),
];

/// What lies above the files.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The environment; names that are not in [`ENVIRONMENT`] are left alone.
    pub env: BTreeMap<String, String>,
    /// The command line.
    pub flags: Flags,
}

/// Flags that change a loop, as they were typed; empty ones say nothing.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--agent`, repeated.
    pub agents: Vec<String>,
    /// `--agent-cmd`.
    pub agent_cmd: Option<String>,
    /// `--model`.
    pub model: Option<String>,
    /// `--permission`.
    pub permission: Option<String>,
    /// `--allow`, repeated.
    pub allow: Vec<String>,
    /// `--check`, repeated.
    pub checks: Vec<String>,
    /// `--protect`, repeated.
    pub protect: Vec<String>,
    /// `--unprotect`, repeated.
    pub unprotect: Vec<String>,
    /// `--in-place`.
    pub in_place: bool,
    /// `--integrate`.
    pub integrate: Option<String>,
    /// `--setup`.
    pub setup: Option<String>,
    /// `--include-dirty`.
    pub include_dirty: bool,
    /// `--max-turns`.
    pub max_turns: Option<u32>,
    /// `--max-time`.
    pub max_time: Option<String>,
    /// `--deadline`.
    pub deadline: Option<String>,
    /// `--max-usd`.
    pub max_usd: Option<f64>,
    /// `--max-tokens`.
    pub max_tokens: Option<u64>,
    /// `--max-calls`.
    pub max_calls: Option<u64>,
    /// `--min-gap`.
    pub min_gap: Option<String>,
    /// `--pace`.
    pub pace: bool,
    /// `--turn-timeout`.
    pub turn_timeout: Option<String>,
    /// `--turn-idle-timeout`.
    pub turn_idle_timeout: Option<String>,
}

impl Overrides {
    /// The process's own environment and these flags.
    pub fn new(flags: Flags) -> Self {
        let wanted = |name: &&str| std::env::var(name).ok().map(|value| ((*name).to_owned(), value));
        Self { env: ENVIRONMENT.iter().map(|(name, _)| name).filter_map(wanted).collect(), flags }
    }

    /// Both as layers, environment first.
    pub(super) fn layers(&self) -> (Layer, Layer, Vec<Diagnostic>) {
        let mut diagnostics = Vec::new();
        let mut env = Layer::default();
        for (name, key) in ENVIRONMENT {
            if let Some(text) = self.env.get(name).filter(|text| !text.is_empty()) {
                put(&mut env, key, typed(key, text), Origin::Env(name)).unwrap_or_else(|d| diagnostics.push(d));
            }
        }
        let mut flags = Layer::default();
        for (flag, key, value) in self.flags.values() {
            put(&mut flags, key, value, Origin::Flag(flag)).unwrap_or_else(|d| diagnostics.push(d));
        }
        for layer in [&env, &flags] {
            let ways: Vec<&Origin> = AGENT_KEYS.iter().filter_map(|key| layer.0.get(*key)).map(|s| &s.origin).collect();
            if let [one, other, ..] = ways.as_slice() {
                diagnostics
                    .push(Diagnostic::new(format!("`{one}` and `{other}` are both set")).hint("keep one of them"));
            }
        }
        (env, flags, diagnostics)
    }
}

impl Flags {
    fn values(&self) -> Vec<(&'static str, &'static str, Value)> {
        let text = |value: &Option<String>| value.clone().map(Value::from);
        let number = |value: Option<u64>| value.map(|n| Value::from(i64::try_from(n).unwrap_or(i64::MAX)));
        let list = |values: &[String]| (!values.is_empty()).then(|| Value::from(values.to_vec()));
        let (one, several) = match self.agents.as_slice() {
            [only] => (Some(Value::from(only.as_str())), None),
            several => (None, list(several)),
        };
        let all = [
            ("--agent", "agent", one),
            ("--agent", "agents", several),
            ("--agent-cmd", "agent_cmd", text(&self.agent_cmd)),
            ("--model", "model", text(&self.model)),
            ("--permission", "permission", text(&self.permission)),
            ("--allow", "allow", list(&self.allow)),
            ("--check", "checks", list(&self.checks)),
            ("--protect", "protect", list(&self.protect)),
            ("--unprotect", "unprotect", list(&self.unprotect)),
            ("--in-place", "workspace", self.in_place.then(|| Value::from("in-place"))),
            ("--integrate", "integrate", text(&self.integrate)),
            ("--setup", "setup", text(&self.setup)),
            ("--include-dirty", "include_dirty", self.include_dirty.then(|| Value::from(true))),
            ("--max-turns", "max_turns", number(self.max_turns.map(u64::from))),
            ("--max-time", "max_time", text(&self.max_time)),
            ("--deadline", "deadline", text(&self.deadline)),
            ("--max-usd", "max_usd", self.max_usd.map(Value::from)),
            ("--max-tokens", "max_tokens", number(self.max_tokens)),
            ("--max-calls", "max_calls", number(self.max_calls)),
            ("--min-gap", "guard.min_gap", text(&self.min_gap)),
            ("--pace", "guard.pace", self.pace.then(|| Value::from(true))),
            ("--turn-timeout", "guard.turn_timeout", text(&self.turn_timeout)),
            ("--turn-idle-timeout", "guard.turn_idle_timeout", text(&self.turn_idle_timeout)),
        ];
        all.into_iter().filter_map(|(flag, key, value)| Some((flag, key, value?))).collect()
    }
}

/// A number in the environment is a number, unless a text is wanted; a list has commas between its items.
fn typed(key: &str, text: &str) -> Value {
    match key {
        "agent" | "agent_cmd" | "model" => return Value::from(text),
        "agents" | "allow" => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            return Value::from(items.map(Value::from).collect::<Vec<_>>());
        }
        _ => {}
    }
    let whole = text.parse::<i64>().map(Value::from);
    let number = whole.or_else(|_| text.parse::<f64>().map(Value::from));
    // `0` is how people write "no gap".
    if text == "0" { Value::from("0") } else { number.unwrap_or_else(|_| Value::from(text)) }
}

fn put(layer: &mut Layer, key: &str, value: Value, origin: Origin) -> Result<(), Diagnostic> {
    let checked = match key.split_once('.') {
        None => fits::<LoopKeys>(key, &value),
        Some((section, inner)) => {
            let table = toml::Table::from_iter([(inner.to_owned(), value.clone())]);
            fits::<LoopKeys>(section, &Value::Table(table))
        }
    };
    match checked {
        Ok(()) => {
            layer.set(key, value, origin);
            Ok(())
        }
        Err((what, hint)) => {
            let mut diagnostic = origin.blame(what);
            // On the command line there are no quotes to write.
            diagnostic.hint = hint.map(|h| h.replace("`\"", "`").replace("\"`", "`"));
            Err(diagnostic)
        }
    }
}
