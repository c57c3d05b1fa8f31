//! What a job is to run, and how it is written to its folder. Nothing is started here.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_core::isolation::Isolation;
use everloop_core::marker::BACKOFF;
use everloop_core::time::millis;
use serde::{Deserialize, Serialize};

use super::error::JobError;
use super::job_log;

/// A command with its limits. Its environment is not here: secrets never touch the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Its working folder.
    pub cwd: PathBuf,
    /// The file on its standard input; `None` is an empty input.
    pub stdin: Option<PathBuf>,
    /// Time after which it is stopped, with or without a supervisor.
    #[serde(rename = "wall_ms", with = "millis")]
    pub wall: Duration,
    /// How long it may take to end after SIGTERM.
    #[serde(rename = "grace_ms", with = "millis")]
    pub grace: Duration,
    /// How much of its output is kept.
    pub caps: OutputCaps,
    /// Names of variables; their values are redacted from its output.
    pub secrets: Vec<String>,
    /// The word by which it can request a pause: `BACKOFF` matches a line that is nothing but
    /// `<BACKOFF 90s>`. `None` disables it.
    pub backoff_word: Option<String>,
    /// How its processes are contained.
    pub confine: Confine,
    #[serde(default)]
    pub errors: Errors,
    /// What it may reach; `None` is everything, for everloop's own programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
}

/// Where a command's standard error goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Errors {
    /// Into a stream of its own.
    #[default]
    Apart,
    /// Into the output, in the order in which both were written.
    WithOutput,
}

/// How much output is kept; everything beyond is only counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputCaps {
    /// From the beginning, both streams together.
    pub head_bytes: u64,
    /// From the end, each stream; at least half of it once more was written.
    pub tail_bytes: u64,
}

/// How the processes of a job are contained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confine {
    /// In a control group where that is permitted, and by walking the tree.
    Cgroup,
    /// By walking the tree only.
    Tree,
}

impl OutputCaps {
    /// An agent's turn: 32 MB head and 2 × 16 MB tail are the 64 MB that a turn may keep.
    pub const TURN: OutputCaps = OutputCaps { head_bytes: 32 << 20, tail_bytes: 16 << 20 };
    /// A check: only its beginning and its end are ever read.
    pub const CHECK: OutputCaps = OutputCaps { head_bytes: 1 << 20, tail_bytes: 1 << 20 };
}

impl Spec {
    /// A command with the limits of an agent's turn.
    pub fn new(argv: Vec<String>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            argv,
            cwd: cwd.into(),
            stdin: None,
            // The default of a turn; the supervisor sets the loop's own.
            wall: Duration::from_secs(2 * 3600),
            // Enough for a CLI to write its session, short enough that a stop takes effect soon.
            grace: Duration::from_secs(10),
            caps: OutputCaps::TURN,
            secrets: Vec::new(),
            backoff_word: Some(BACKOFF.to_owned()),
            confine: Confine::Cgroup,
            errors: Errors::Apart,
            isolation: None,
        }
    }
}

/// Writes a job into its folder, which is created. May be repeated until the job is started.
pub fn prepare(dir: &Path, spec: &Spec) -> Result<(), JobError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(JobError::io("create", dir))?;
    if job_log::begin(dir, spec)? { Ok(()) } else { Err(JobError::Used { dir: dir.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_used_once() {
        let dir = tempfile::tempdir().unwrap();
        let spec = Spec::new(vec!["true".to_owned()], "/");
        prepare(dir.path(), &spec).unwrap();
        prepare(dir.path(), &spec).unwrap();
        job_log::add(dir.path(), &job_log::JobLogEntry::Cancelled(job_log::Cancelled {})).unwrap();
        assert!(matches!(prepare(dir.path(), &spec), Err(JobError::Used { .. })));
    }
}
