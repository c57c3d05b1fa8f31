//! Values with the place they come from, and how layers of them are laid over each other.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use everloop_core::spec::GuardSpec;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::value::write_duration;
use everloop_engine::diagnostic::{Diagnostic, SourceText};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// Compiled in.
    BuiltIn,
    /// Follows from another value: the agent is free, or the gap is zero.
    Free,
    /// A file.
    File {
        /// Which.
        source: Arc<SourceText>,
        /// Where in it.
        span: Range<usize>,
    },
    /// An environment variable.
    Env(&'static str),
    /// The command line.
    Flag(&'static str),
}

impl Origin {
    /// A mistake at this place.
    pub fn blame(&self, message: impl fmt::Display) -> Diagnostic {
        match self {
            Origin::File { source, span } => Diagnostic::new(message.to_string()).at(source, span),
            Origin::Env(name) | Origin::Flag(name) => Diagnostic::new(format!("`{name}`: {message}")),
            Origin::BuiltIn | Origin::Free => Diagnostic::new(message.to_string()),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::BuiltIn => f.write_str("built-in"),
            Origin::Free => f.write_str("built-in for free turns"),
            Origin::File { source, span } => write!(f, "{}:{}", source.name, source.place(span).line),
            Origin::Env(name) | Origin::Flag(name) => f.write_str(name),
        }
    }
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Sourced {
    /// As it would stand in the file.
    pub value: Value,
    /// Where it comes from.
    pub origin: Origin,
}

/// Values by key; a key of the guard is `guard.min_gap`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer(pub BTreeMap<String, Sourced>);

/// Keys that say the same thing in two ways: setting one forgets the others of lower layers.
const ALTERNATIVES: [&[&str]; 2] = [&AGENT_KEYS, &["checks", "check"]];

/// The ways to say who works on a loop.
pub const AGENT_KEYS: [&str; 3] = ["agent", "agents", "agent_cmd"];

impl Layer {
    /// Sets a value.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Value>, origin: Origin) {
        self.0.insert(key.into(), Sourced { value: value.into(), origin });
    }

    /// Where a key's value comes from.
    pub fn origin(&self, key: &str) -> &Origin {
        self.0.get(key).map_or(&Origin::BuiltIn, |s| &s.origin)
    }

    /// Whether somebody (not everloop itself) set this key.
    pub fn is_explicit(&self, key: &str) -> bool {
        !matches!(self.origin(key), Origin::BuiltIn | Origin::Free)
    }

    /// Lays `upper` over this.
    pub fn lay(&mut self, upper: &Layer) {
        for group in ALTERNATIVES {
            if group.iter().any(|key| upper.0.contains_key(*key)) {
                self.0.retain(|key, _| !group.contains(&key.as_str()));
            }
        }
        self.0.extend(upper.0.iter().map(|(k, v)| (k.clone(), v.clone())));
    }

    /// The values as a section of the file, typed. Each was read before, so a mistake here is everloop's own.
    pub fn typed<T: DeserializeOwned>(&self) -> Result<T, Diagnostic> {
        let mut table = Table::new();
        for (key, sourced) in &self.0 {
            match key.split_once('.') {
                None => drop(table.insert(key.clone(), sourced.value.clone())),
                Some((section, inner)) => {
                    let section = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
                    if let Value::Table(section) = section {
                        section.insert(inner.to_owned(), sourced.value.clone());
                    }
                }
            }
        }
        T::deserialize(Value::Table(table)).map_err(|e| Diagnostic::new(e.message().to_owned()))
    }
}

/// The guard's numbers as a layer. The core is the one source of their defaults.
pub fn guard_layer(guard: &GuardSpec, origin: &Origin) -> Layer {
    let mut layer = Layer::default();
    let mut set = |key: &str, value: Value| layer.set(format!("guard.{key}"), value, origin.clone());
    let limit = |cap: Option<u32>| cap.map_or(Value::from("none"), |n| Value::from(i64::from(n)));
    for (key, cap) in
        [("per_minute", guard.caps.per_minute), ("per_hour", guard.caps.per_hour), ("per_day", guard.caps.per_day)]
    {
        set(key, limit(cap));
    }
    for (key, count) in [
        ("max_parallel_turns", guard.max_parallel_turns),
        ("stagnation_turns", guard.stagnation_turns),
        ("cooldown_deaths", guard.cooldown.deaths),
        ("freeze_cooldowns", guard.freeze.cooldowns),
    ] {
        set(key, Value::from(i64::from(count)));
    }
    set("pace", Value::from(guard.pace));
    set("stagnation_time", guard.stagnation_time.map_or(Value::from("none"), |time| Value::from(write_duration(time))));
    let dollars = |microusd: u64| Value::from(microusd as f64 / 1e6);
    set("stagnation_usd", guard.stagnation_microusd.map_or(Value::from("none"), dollars));
    set("stagnation_change", Value::from(guard.stagnation_change));
    set("no_diff", guard.phases.no_diff.map_or(Value::from("none"), |limit| Value::from(write_duration(limit))));
    for (key, duration) in [
        ("min_gap", guard.min_gap),
        ("turn_timeout", guard.turn_timeout),
        ("turn_idle_timeout", guard.turn_idle_timeout),
        ("starting_hard", guard.phases.starting.hard),
        ("model_soft", guard.phases.model.soft),
        ("model_hard", guard.phases.model.hard),
        ("tool_soft", guard.phases.tool.soft),
        ("tool_hard", guard.phases.tool.hard),
        ("backoff_first", guard.backoff_first),
        ("backoff_cap", guard.backoff_cap),
        ("cooldown_window", guard.cooldown.window),
        ("cooldown_first", guard.cooldown.first),
        ("cooldown_cap", guard.cooldown.cap),
        ("cooldown_young", guard.cooldown.young),
        ("freeze_window", guard.freeze.window),
        ("freeze_time", guard.freeze.time),
        ("freeze_canary", guard.freeze.canary),
        ("freeze_relapse", guard.freeze.relapse),
        ("freeze_relapse_canary", guard.freeze.relapse_canary),
    ] {
        set(key, Value::from(write_duration(duration)));
    }
    layer
}

/// What a loop has when nobody says anything.
pub fn built_in() -> Layer {
    let mut layer = guard_layer(&GuardSpec::default(), &Origin::BuiltIn);
    for (key, value) in [("workspace", "auto"), ("integrate", "progress"), ("dir", ".")] {
        layer.set(key, value, Origin::BuiltIn);
    }
    layer.set("include_dirty", false, Origin::BuiltIn);
    layer.set("park_after", i64::from(everloop_core::watch::PARK_AFTER), Origin::BuiltIn);
    layer
}

/// What an agent has when nobody says anything.
pub fn built_in_agent() -> Layer {
    let mut layer = Layer::default();
    layer.set("permission", "edits", Origin::BuiltIn);
    layer.set("allow", Vec::<Value>::new(), Origin::BuiltIn);
    layer.set("account", "default", Origin::BuiltIn);
    layer.set("usd_per_turn", 0.0, Origin::BuiltIn);
    layer.set("tokens_per_turn", 0, Origin::BuiltIn);
    layer.set("free", false, Origin::BuiltIn);
    layer.set("telemetry", true, Origin::BuiltIn);
    layer.set("pass_env", Vec::<Value>::new(), Origin::BuiltIn);
    layer
}
