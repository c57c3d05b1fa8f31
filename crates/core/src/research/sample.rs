//! One measurement of a metric, and the kinds of its crashes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One run of the metric's command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub result: Measured,
    /// How long it ran.
    pub millis: u64,
}

impl Sample {
    /// The value, if there is one.
    pub fn value(&self) -> Option<f64> {
        match &self.result {
            Measured::Value { value, .. } => Some(*value),
            Measured::Crash { .. } | Measured::Timeout { .. } | Measured::Unreadable { .. } => None,
        }
    }
}

/// The result of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Measured {
    Value {
        value: f64,
        /// Further values, which never decide.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        others: BTreeMap<String, f64>,
    },
    /// Its exit code was not 0.
    Crash {
        kind: CrashKind,
        /// End of its output; data.
        text: String,
    },
    /// It was killed at its limit.
    Timeout { limit_ms: u64 },
    /// It ended well and printed no usable value.
    Unreadable { why: String },
}

/// The commit that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contender {
    Champion,
    Candidate,
}

/// Why a measurement crashed, as far as its output shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CrashKind {
    Syntax,
    Runtime,
    OutOfMemory,
    /// Something is not installed, which no edit mends.
    Dependency,
}

impl CrashKind {
    /// Name in rows and prompts.
    pub fn label(self) -> &'static str {
        match self {
            CrashKind::Syntax => "syntax",
            CrashKind::Runtime => "runtime",
            CrashKind::OutOfMemory => "out of memory",
            CrashKind::Dependency => "dependency",
        }
    }

    /// Turns that may mend it within the same experiment.
    pub fn fixes(self) -> u32 {
        match self {
            CrashKind::Syntax => 1,
            CrashKind::Runtime => 3,
            CrashKind::OutOfMemory | CrashKind::Dependency => 0,
        }
    }
}

/// Signal and exit code of a process that the kernel killed.
const SIGKILL: i32 = 9;
const KILLED: i32 = 128 + SIGKILL;
/// Exit code of a shell that did not find the program.
const NOT_FOUND: i32 = 127;

const MEMORY: &[&str] =
    &["out of memory", "memoryerror", "cannot allocate memory", "bad_alloc", "memory allocation of"];
const DEPENDENCY: &[&str] = &[
    "modulenotfounderror",
    "no module named",
    "cannot find module",
    "command not found",
    "cannot find package",
    "no required module",
    "error while loading shared libraries",
];
const SYNTAX: &[&str] = &[
    "syntaxerror",
    "syntax error",
    "indentationerror",
    "parse error",
    "unexpected token",
    "error[e0",
    "error: expected",
    "could not compile",
    "undeclared",
];

/// The kind of a crash.
pub fn crash_kind(code: Option<i32>, signal: Option<i32>, output: &str) -> CrashKind {
    let output = output.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| output.contains(word));
    if signal == Some(SIGKILL) || code == Some(KILLED) || says(MEMORY) {
        CrashKind::OutOfMemory
    } else if code == Some(NOT_FOUND) || says(DEPENDENCY) {
        CrashKind::Dependency
    } else if says(SYNTAX) {
        CrashKind::Syntax
    } else {
        CrashKind::Runtime
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_by_kind() {
        for (code, signal, output, kind) in [
            (Some(1), None, "  File \"a.py\", line 3\nSyntaxError: invalid syntax", CrashKind::Syntax),
            (Some(101), None, "error[E0425]: cannot find value `x`", CrashKind::Syntax),
            (Some(1), None, "IndexError: list index out of range", CrashKind::Runtime),
            (None, Some(11), "", CrashKind::Runtime),
            (None, Some(9), "", CrashKind::OutOfMemory),
            (Some(137), None, "", CrashKind::OutOfMemory),
            (Some(1), None, "MemoryError", CrashKind::OutOfMemory),
            (Some(1), None, "ModuleNotFoundError: No module named 'numpy'", CrashKind::Dependency),
            (Some(127), None, "sh: 1: hyperfine: not found", CrashKind::Dependency),
        ] {
            assert_eq!(crash_kind(code, signal, output), kind, "{output}");
        }
    }
}
