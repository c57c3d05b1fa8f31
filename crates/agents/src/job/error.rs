//! What can go wrong around a job, as opposed to inside it: a command that fails is no error here.

use std::io;
use std::path::{Path, PathBuf};

/// A job could not be handled.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The operating system refused.
    #[error("could not {what} `{}`", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file of the job cannot be understood.
    #[error("`{}` is damaged or of another version", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The folder holds a job that was already started or cancelled; a folder is used once.
    #[error("the job in `{}` was already started or cancelled", dir.display())]
    Used {
        /// The folder.
        dir: PathBuf,
    },
    /// A second shim for a job that is running gave way to the first.
    #[error("the job in `{}` is already run by another shim", dir.display())]
    Taken {
        /// The folder.
        dir: PathBuf,
    },
    /// A shim holds the lock and does not say who it is.
    #[error("the shim of `{}` does not report", dir.display())]
    Silent {
        /// The folder.
        dir: PathBuf,
    },
}

impl JobError {
    /// For `map_err`: what was tried on which path.
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| JobError::Io { what, path, source }
    }
}
