//! Failures around a job, as opposed to inside it: a failing command is not an error here.

use std::io;
use std::path::{Path, PathBuf};

/// A job could not be handled.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The operating system refused.
    #[error("could not {what} `{}`", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    /// A file of the job cannot be parsed.
    #[error("`{}` is damaged or of another version", path.display())]
    Damaged { path: PathBuf, source: serde_json::Error },
    /// The folder holds a job that was already started or cancelled; a folder is used once.
    #[error("the job in `{}` was already started or cancelled", dir.display())]
    Used { dir: PathBuf },
    /// A second shim for a running job gave way to the first.
    #[error("the job in `{}` is already run by another shim", dir.display())]
    Taken { dir: PathBuf },
    /// This process is about to end.
    #[error("the job in `{}` is not started, because the supervisor stops", dir.display())]
    Closed { dir: PathBuf },
    /// A shim holds the lock and does not report its identity.
    #[error("the shim of `{}` does not report", dir.display())]
    Silent { dir: PathBuf },
}

impl JobError {
    /// For `map_err`: what was tried on which path.
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| JobError::Io { what, path, source }
    }
}
