//! Identity of a pane: its id at its server, and the processes behind both. Its record on disk.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::PaneError;
use super::limit::PaneLimit;
use crate::process::{Identity, boot_id};

/// Version of the record on disk.
const VERSION: u32 = 1;

/// Long enough to be descriptive, short enough for a table and a file name.
const LONGEST_NAME: usize = 32;

/// The name of a pane.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PaneName(String);

impl PaneName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PaneName {
    type Err = PaneError;

    /// tmux changes `.` and `:` in names and interprets `=`, `@`, `$` and `-` at their beginning;
    /// files must not be hidden.
    fn from_str(text: &str) -> Result<Self, PaneError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        let begins = text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        if begins && text.len() <= LONGEST_NAME && text.chars().all(plain) {
            return Ok(Self(text.to_owned()));
        }
        Err(PaneError::BadName { name: text.to_owned() })
    }
}

impl TryFrom<String> for PaneName {
    type Error = PaneError;

    fn try_from(text: String) -> Result<Self, PaneError> {
        text.parse()
    }
}

impl From<PaneName> for String {
    fn from(name: PaneName) -> Self {
        name.0
    }
}

impl fmt::Display for PaneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id that tmux gave a pane: `%3`. A new server counts from zero again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct PaneId(String);

impl PaneId {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for PaneId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let number = text.strip_prefix('%').filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        if number.is_some() { Ok(Self(text)) } else { Err("not the id of a pane") }
    }
}

impl From<PaneId> for String {
    fn from(id: PaneId) -> Self {
        id.0
    }
}

/// The program in a pane: the meaning of its screen depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PaneProgram {
    Claude,
    Codex,
    Plain,
}

impl PaneProgram {
    /// Derives it from the name of a program.
    pub fn of(program: &str) -> Self {
        match Path::new(program).file_name().and_then(|n| n.to_str()) {
            Some("claude") => PaneProgram::Claude,
            Some("codex") => PaneProgram::Codex,
            _ => PaneProgram::Plain,
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            PaneProgram::Claude => "claude",
            PaneProgram::Codex => "codex",
            PaneProgram::Plain => "plain",
        }
    }
}

/// A variable for the program in a pane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "from")]
pub enum PaneVariable {
    /// Taken from the environment of the process that starts or respawns the pane; the value is
    /// never written to disk.
    Outside { name: String },
    /// With this value, which is recorded: not for secrets.
    Fixed { name: String, value: String },
}

/// What runs in a pane of everloop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The program and its arguments; they do not pass through a shell.
    pub argv: Vec<String>,
    /// Its working folder.
    pub cwd: PathBuf,
    /// Variables besides the allow list.
    pub env: Vec<PaneVariable>,
}

/// The origin of a pane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "origin")]
pub enum PaneOrigin {
    /// Started by everloop, on its private server.
    Started(Program),
    /// A person's pane, lent to everloop.
    Adopted {
        /// The socket of the person's server.
        socket: PathBuf,
        /// The program that had the terminal at that moment. When it ends, the shell behind it must
        /// not get any text.
        foreground: Identity,
    },
}

/// A pane that may be typed into, as long as it is still the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pane {
    version: Version,
    pub name: PaneName,
    pub kind: PaneProgram,
    pub(super) id: PaneId,
    pub(super) server: Identity,
    /// The process that tmux started in it.
    pub process: Identity,
    #[serde(flatten)]
    pub origin: PaneOrigin,
    /// When turns restarted it, in milliseconds since 1970. A restart by a person clears the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) revived_ms: Vec<u64>,
    /// The limit that its program reported last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<PaneLimit>,
}

impl Pane {
    pub(super) fn new(name: PaneName, kind: PaneProgram, found: ListedPane, origin: PaneOrigin) -> Self {
        let ListedPane { id, server, process } = found;
        Self { version: Version, name, kind, id, server, process, origin, revived_ms: Vec::new(), limit: None }
    }

    /// The same pane with these restarts recorded.
    pub(super) fn revived(mut self, times_ms: &[u64]) -> Self {
        self.revived_ms = times_ms.to_vec();
        self
    }

    /// The id at its server.
    pub fn id(&self) -> &str {
        self.id.as_str()
    }
}

/// A pane as a server lists it.
#[derive(Clone, Debug)]
pub(super) struct ListedPane {
    pub(super) id: PaneId,
    pub(super) server: Identity,
    pub(super) process: Identity,
}

impl ListedPane {
    /// Parses `%3 PID-OF-PANE PID-OF-SERVER`; `None` when the server is already gone. A program
    /// that ended before it could be inspected gets a start time that no process has: it is known,
    /// and never counts as alive.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let id = PaneId::try_from(words.next()?.to_owned()).ok()?;
        let pid = words.next()?.parse().ok()?;
        let ended = || Identity { pid, start_ticks: 0, boot: boot_id().to_owned() };
        let process = Identity::of(pid).unwrap_or_else(ended);
        let server = Identity::of(words.next()?.parse().ok()?)?;
        Some(Self { id, server, process })
    }
}

/// Accepts the known version only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
struct Version;

impl TryFrom<u32> for Version {
    type Error = String;

    fn try_from(number: u32) -> Result<Self, String> {
        if number == VERSION { Ok(Self) } else { Err(format!("version {number}; this everloop reads {VERSION}")) }
    }
}

impl From<Version> for u32 {
    fn from(_: Version) -> Self {
        VERSION
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for good in ["a", "claude-1", "0_x", &"x".repeat(32)] {
            assert_eq!(good.parse::<PaneName>().unwrap().as_str(), good);
        }
        for bad in ["", "-a", "_a", "A", "a.b", "a:b", "=a", "#(touch x)", "a/b", "a b", "é", &"x".repeat(33)] {
            assert!(bad.parse::<PaneName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_program_that_ended_at_once_is_known_and_dead() {
        let us = std::process::id();
        let found = ListedPane::parse(&format!("%0 {} {us}\n", i32::MAX)).unwrap();
        assert_eq!(found.process.pid, i32::MAX);
        assert!(!found.process.is_alive() && found.server.is_alive());
        assert!(ListedPane::parse(&format!("%0 {us} {}\n", i32::MAX)).is_none(), "a server that is gone has no panes");
    }

    /// Records of the first version must stay readable.
    #[test]
    fn records_of_the_first_version_are_read() {
        let started = r#"{"version":1,"name":"a","kind":"claude","id":"%3",
            "server":{"pid":2,"start_ticks":3,"boot":"b"},"process":{"pid":4,"start_ticks":5,"boot":"b"},
            "origin":"started","argv":["claude"],"cwd":"/tmp",
            "env":[{"from":"outside","name":"KEY"},{"from":"fixed","name":"A","value":"b"}]}"#;
        let pane: Pane = serde_json::from_str(started).unwrap();
        assert_eq!((pane.id(), pane.kind, pane.process.pid), ("%3", PaneProgram::Claude, 4));
        let again: Pane = serde_json::from_str(&serde_json::to_string(&pane).unwrap()).unwrap();
        assert_eq!(again, pane);
        let adopted = r#"{"version":1,"name":"b","kind":"plain","id":"%0",
            "server":{"pid":2,"start_ticks":3,"boot":"b"},"process":{"pid":4,"start_ticks":5,"boot":"b"},
            "origin":"adopted","socket":"/tmp/s","foreground":{"pid":9,"start_ticks":5,"boot":"b"}}"#;
        assert!(matches!(serde_json::from_str::<Pane>(adopted).unwrap().origin, PaneOrigin::Adopted { .. }));
        for broken in [started.replace("\"version\":1", "\"version\":2"), started.replace("%3", "%3;kill-server")] {
            assert!(serde_json::from_str::<Pane>(&broken).is_err(), "{broken}");
        }
    }
}
