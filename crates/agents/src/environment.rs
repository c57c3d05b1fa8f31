//! The environment of an agent or a check: built from an allow list, never inherited.
//!
//! Hub addresses, dashboard tokens and other accounts' keys stay outside because no list names
//! them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::sync::Arc;

use crate::clock;
use crate::job::HIDE_PREFIX;

/// Variables that every command may see: paths, user and language.
const ALLOWED: &[&str] = &[
    "PATH",
    "HOME",
    "LANG",
    "TERM",
    "TZ",
    "USER",
    "LOGNAME",
    "SHELL",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NO_COLOR",
];

/// Prefixes of names that are allowed as well.
const ALLOWED_PREFIXES: &[&str] = &["LC_", "XDG_"];

/// everloop's own prefix: an outer everloop's settings and marks must not reach an inner command.
const OWN_PREFIX: &str = "EVERLOOP_";

/// A value that a command must not see and its output must not contain.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden {
    /// The label that replaces the value.
    pub name: String,
    pub value: OsString,
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hidden({})", self.name)
    }
}

/// The environment that commands are given parts of: this process's own, or one that was brought.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Outside(Arc<BTreeMap<OsString, OsString>>);

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outside({} variables)", self.0.len())
    }
}

impl Outside {
    /// The environment of this process.
    pub fn ours() -> Self {
        std::env::vars_os().collect()
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&OsString> {
        self.0.get(OsStr::new(name))
    }

    /// All variables, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.0.iter()
    }
}

impl FromIterator<(OsString, OsString)> for Outside {
    fn from_iter<I: IntoIterator<Item = (OsString, OsString)>>(variables: I) -> Self {
        Self(Arc::new(variables.into_iter().collect()))
    }
}

/// The variables of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    vars: BTreeMap<OsString, OsString>,
}

impl Environment {
    /// Takes from `outside` what the allow list or `extra` names; nothing that begins with
    /// `EVERLOOP_`.
    pub fn allowed(outside: impl IntoIterator<Item = (OsString, OsString)>, extra: &[String]) -> Self {
        let vars = outside.into_iter().filter(|(name, _)| is_allowed(name, extra)).collect();
        Self { vars }
    }

    /// The same, from an environment that is at hand.
    pub fn from(outside: &Outside, extra: &[String]) -> Self {
        Self::allowed(outside.iter().map(|(name, value)| (name.clone(), value.clone())), extra)
    }

    /// The same, from the environment of this process.
    pub fn from_ours(extra: &[String]) -> Self {
        Self::allowed(std::env::vars_os(), extra)
    }

    /// Sets one variable; this is how `EVERLOOP_TURN` is passed.
    #[must_use]
    pub fn with(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.vars.insert(name.into(), value.into());
        self
    }

    /// One variable, if it is there.
    pub fn get(&self, name: &str) -> Option<&OsString> {
        self.vars.get(OsStr::new(name))
    }

    /// Adds values to redact from the command's output, which the command itself does not see.
    #[must_use]
    pub fn hiding(mut self, secrets: &[Hidden]) -> Self {
        for Hidden { name, value } in secrets {
            self.vars.insert(format!("{HIDE_PREFIX}{name}").into(), value.clone());
        }
        self
    }

    /// The variables, sorted by name.
    pub fn into_vars(self) -> Vec<(OsString, OsString)> {
        self.vars.into_iter().collect()
    }
}

fn is_allowed(name: &OsStr, extra: &[String]) -> bool {
    let Some(name) = name.to_str() else { return false };
    // A shim and an everloop within a turn must count in the same time as the supervisor.
    if name == clock::TIME_SCALE {
        return true;
    }
    if name.starts_with(OWN_PREFIX) {
        return false;
    }
    ALLOWED.contains(&name)
        || ALLOWED_PREFIXES.iter().any(|p| name.starts_with(p))
        || extra.iter().any(|wanted| wanted == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_gets_through() {
        let outside = ["PATH", "LC_ALL", "XDG_RUNTIME_DIR", "AWS_SECRET", "MY_KEY", "EVERLOOP_HUB", "EVERLOOP_TURN"]
            .map(|n| (OsString::from(n), OsString::from("x")));
        let extra = ["MY_KEY".to_owned(), "EVERLOOP_HUB".to_owned(), "NOT_SET".to_owned()];
        let vars = Environment::allowed(outside, &extra).with("EVERLOOP_TURN", "t.1").into_vars();
        let names: Vec<_> = vars.iter().map(|(n, _)| n.to_str().unwrap()).collect();
        assert_eq!(names, ["EVERLOOP_TURN", "LC_ALL", "MY_KEY", "PATH", "XDG_RUNTIME_DIR"]);
        assert_eq!(vars[0].1, "t.1");
    }

    #[test]
    fn the_time_of_tests_reaches_inner_commands() {
        let outside = [(OsString::from(clock::TIME_SCALE), OsString::from("20"))];
        assert_eq!(Environment::allowed(outside, &[]).into_vars().len(), 1);
    }
}
