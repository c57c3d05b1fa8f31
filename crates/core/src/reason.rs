//! Why something is as it is: the rule that decided and what it looked at.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// A decision's reason: which rule, on which inputs, until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Rule id, for example `guard.gap`. `why` knows a sentence for each.
    pub rule: String,
    /// What the rule looked at.
    pub inputs: BTreeMap<String, String>,
    /// When it will be looked at again by itself; `None` means only a signal or a person changes it.
    pub until: Option<Time>,
}

impl Reason {
    /// A reason without inputs.
    pub fn new(rule: &str) -> Self {
        Self { rule: rule.to_owned(), inputs: BTreeMap::new(), until: None }
    }

    /// Adds an input.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.inputs.insert(name.to_owned(), format!("{value}"));
        self
    }

    /// Says when it changes by itself.
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
