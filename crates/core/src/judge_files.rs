//! The files that decide a check: its script, the configuration of its runner, and what would take
//! the place of either. Derived from the command and from the person's version of the files; the
//! same rules serve to refuse a turn and to lay the person's version over the work before a check.
//!
//! - `shell`: the simple commands of a script; `paths`: patterns
//! - `kinds`: runners as data; `makefile`, `part`: which part of a file decides
//!
//! Deliberately absent: what product code does while it is under test. That is for evidence.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

mod derive;
mod kinds;
mod makefile;
mod part;
mod paths;
mod shell;

use serde::{Deserialize, Serialize};

use crate::planted::{self, Bug};

pub use derive::{Files, judge_files};
pub use part::{Part, TomlReader};
pub use shell::{is_prefix, simple_commands};

/// Everything that decides the checks of a loop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgeFiles {
    /// Runners, whose files are data of this version.
    pub runners: Vec<Runner>,
    /// Files that the commands themselves name.
    pub files: Vec<JudgeFile>,
}

/// A runner and the folder in which it works.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Runner {
    pub program: String,
    /// Relative to the root of the repository; empty for the root.
    pub folder: String,
}

/// A file, or several by a pattern, with the part that decides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JudgeFile {
    /// A pattern from the root of the repository.
    pub path: String,
    pub when: When,
    #[serde(default)]
    pub part: Part,
}

/// Which changes of a file count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Of a file that the person had.
    Existing,
    /// Of a file that the person had not.
    Added,
    Any,
}

/// A file before and after a change; `None` where it is not there.
#[derive(Clone, Copy, Debug)]
pub struct Versions<'a> {
    /// Whether the person had it when the loop began.
    pub existed: bool,
    pub before: Option<&'a str>,
    pub after: Option<&'a str>,
}

impl JudgeFile {
    fn new(path: &str, when: When) -> Self {
        Self { path: paths::literal(path), when, part: Part::Whole }
    }

    fn counts(&self, existed: bool) -> bool {
        match self.when {
            When::Existing => existed,
            When::Added => !existed && !planted::is(Bug::AdditionsNotCounted),
            When::Any => existed || !planted::is(Bug::AdditionsNotCounted),
        }
    }
}

impl JudgeFiles {
    /// Whether there is no check.
    pub fn is_empty(&self) -> bool {
        self.runners.is_empty() && self.files.is_empty()
    }

    /// Whether `go test` is run. It names its tests only with `-v`.
    pub fn tests_go(&self) -> bool {
        self.runners.iter().any(|runner| runner.program == derive::GO_TEST)
    }

    /// Adds what decides another check.
    pub fn extend(&mut self, other: Self) {
        self.runners.extend(other.runners);
        self.files.extend(other.files);
        self.runners.sort();
        self.runners.dedup();
        self.files.sort();
        self.files.dedup();
    }

    /// The rules for files, those of the runners among them.
    pub fn rules(&self) -> Vec<JudgeFile> {
        if self.is_empty() {
            return Vec::new();
        }
        let of_runners = self.runners.iter().flat_map(|runner| kinds::of(&runner.program, &runner.folder));
        let mut rules: Vec<JudgeFile> = kinds::rows(kinds::ALWAYS, "").into_iter().chain(of_runners).collect();
        rules.extend(self.files.iter().cloned());
        rules.sort();
        rules.dedup();
        rules
    }
}

/// What a path is to the rules, before its content is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// It decides nothing.
    Free,
    /// A part of it may decide: its two versions tell.
    InPart,
    /// It decides as a whole.
    Whole,
}

/// What a path that `existed` in the person's version is to the rules.
pub fn concern(rules: &[JudgeFile], path: &str, existed: bool) -> Concern {
    let mut concern = Concern::Free;
    for rule in rules.iter().filter(|rule| rule.counts(existed) && paths::matches(&rule.path, path)) {
        if rule.part == Part::Whole {
            return Concern::Whole;
        }
        concern = Concern::InPart;
    }
    concern
}

/// Whether an existing file at `path` is configuration of a check, and not a source of which some
/// lines could decide.
pub fn is_configuration(rules: &[JudgeFile], path: &str) -> bool {
    let is_source = |rule: &JudgeFile| matches!(rule.part, Part::Lines { .. });
    rules.iter().any(|rule| !is_source(rule) && rule.counts(true) && paths::matches(&rule.path, path))
}

/// Whether two versions of a file differ in a part that decides.
pub fn decides(rules: &[JudgeFile], path: &str, versions: Versions<'_>, toml: TomlReader) -> bool {
    let Versions { existed, before, after } = versions;
    let concerned = |rule: &&JudgeFile| rule.counts(existed) && paths::matches(&rule.path, path);
    rules.iter().filter(concerned).any(|rule| rule.part.differs(before, after, toml))
}

#[cfg(test)]
mod tests;
