//! Values with the place they come from, and how layers of them are laid over each other.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use everloop_core::spec::GuardSpec;
use everloop_engine::diagnostic::{Diagnostic, SourceText};
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::guard::guard_layer;
use super::keys::{IsolationKeys, LoopKeys};
use super::settings;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// Compiled into everloop.
    BuiltIn,
    /// Follows from another value: the agent is free, or the gap is zero.
    Free,
    /// Set in a file.
    File {
        /// Text of the file.
        source: Arc<SourceText>,
        /// Where in it.
        span: Range<usize>,
    },
    /// An environment variable.
    Env(&'static str),
    /// The command line.
    Flag(String),
}

impl Origin {
    /// A mistake at this place.
    pub fn blame(&self, message: impl fmt::Display) -> Diagnostic {
        match self {
            Origin::File { source, span } => Diagnostic::new(message.to_string()).at(source, span),
            Origin::Env(_) | Origin::Flag(_) => Diagnostic::new(format!("`{self}`: {message}")),
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
            Origin::Env(name) => f.write_str(name),
            Origin::Flag(name) => f.write_str(name),
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

/// Keys that set the same thing in different ways: setting one removes the others of lower layers.
const ALTERNATIVES: [&[&str]; 2] = [&AGENT_KEYS, &["checks", "check"]];

/// The keys that select the agents of a loop.
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

    /// Whether this key was set explicitly, not by everloop itself.
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

    /// The values as a section of the file, typed. Each was read before, so a failure here is a bug
    /// of everloop.
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

/// What a loop has when no layer sets anything.
pub fn built_in() -> Layer {
    let mut layer = settings::built_in::<LoopKeys>();
    layer.lay(&guard_layer(&GuardSpec::default(), &Origin::BuiltIn));
    for (key, sourced) in settings::built_in::<IsolationKeys>().0 {
        layer.0.insert(format!("isolation.{key}"), sourced);
    }
    layer
}
