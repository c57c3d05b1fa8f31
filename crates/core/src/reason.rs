//! Reasons of decisions: the rule that decided and its inputs.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// The reason of a decision: which rule, on which inputs, until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Rule id, for example `guard.gap`. `why` has a sentence for each.
    pub rule: String,
    /// Values that the rule evaluated.
    pub inputs: BTreeMap<String, String>,
    /// When it is evaluated again by itself; `None` means only a signal or a person changes it.
    pub until: Option<Time>,
}

impl Reason {
    /// A reason without inputs.
    pub fn new(rule: &str) -> Self {
        Self { rule: rule.to_owned(), inputs: BTreeMap::new(), until: None }
    }

    /// Adds an input value.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.inputs.insert(name.to_owned(), format!("{value}"));
        self
    }

    /// Sets the time at which it changes by itself.
    #[must_use]
    pub fn until(mut self, at: Time) -> Self {
        self.until = Some(at);
        self
    }

    /// An input, or an empty text.
    pub fn input(&self, name: &str) -> &str {
        self.inputs.get(name).map_or("", String::as_str)
    }
}
