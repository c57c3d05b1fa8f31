//! What a job is to do, and the folder it is written into. Nothing is started here.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_core::time::millis;
use serde::{Deserialize, Serialize};

use super::error::JobError;
use super::job_log;

/// A command with its limits. Its environment is not here: secrets never touch the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Where it runs.
    pub cwd: PathBuf,
    /// The file it reads; `None` is an empty input.
    pub stdin: Option<PathBuf>,
    /// When it takes longer it is stopped, with or without a supervisor.
    #[serde(rename = "wall_ms", with = "millis")]
    pub wall: Duration,
    /// How long it may take to end after SIGTERM.
    #[serde(rename = "grace_ms", with = "millis")]
    pub grace: Duration,
    /// How much of its output is kept.
    pub caps: OutputCaps,
    /// Names of variables whose values are taken out of its output.
    pub secrets: Vec<String>,
    /// The word with which it can ask for a pause: `BACKOFF` finds `<BACKOFF 90s>`. `None`: not looked for.
    pub backoff_word: Option<String>,
    /// How its processes are held together.
    pub confine: Confine,
    /// Where its errors go.
    #[serde(default)]
    pub errors: Errors,
}

/// Where a command's errors go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Errors {
    /// Into a stream of their own.
    #[default]
    Apart,
    /// Among the output, in the order in which both were written.
    WithOutput,
}

/// How much output is kept; everything beyond is counted only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputCaps {
    /// From the beginning, both streams together.
    pub head_bytes: u64,
    /// From the end, each stream; at least half of it once more was written.
    pub tail_bytes: u64,
}

/// How the processes of a job are held together.
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
    /// A check: only its beginning and its end are ever looked at.
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
            // Enough for a CLI to write its session, short enough that a stop is felt.
            grace: Duration::from_secs(10),
            caps: OutputCaps::TURN,
            secrets: Vec::new(),
            backoff_word: Some("BACKOFF".to_owned()),
            confine: Confine::Cgroup,
            errors: Errors::Apart,
        }
    }
}

/// Writes a job into its folder, which is made. May be repeated until the job is started.
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
