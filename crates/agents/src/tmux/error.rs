//! What can go wrong with panes. The program in a pane that fails is no error here.

use std::io;
use std::path::{Path, PathBuf};

/// A pane could not be handled.
#[derive(Debug, thiserror::Error)]
pub enum PaneError {
    /// There is no tmux.
    #[error("`tmux` is not installed, or not in PATH")]
    NoTmux,
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
    /// tmux said no.
    #[error("tmux could not {what}: {said}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// Its words.
        said: String,
    },
    /// tmux did not answer in time.
    #[error("tmux did not {what} within {seconds} s")]
    Silent {
        /// What was tried.
        what: &'static str,
        /// How long it was waited for.
        seconds: u64,
    },
    /// A file of ours cannot be understood.
    #[error("`{}` is damaged or of another version", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A socket's path has a hard limit in every Unix.
    #[error("the path of the socket `{}` is too long: {} bytes, at most {most} are possible", path.display(), path.as_os_str().len())]
    LongPath {
        /// The socket.
        path: PathBuf,
        /// The limit.
        most: usize,
    },
    /// Not a name for a pane.
    #[error("`{name}` cannot be the name of a pane: use up to 32 of a-z, 0-9, `-` and `_`")]
    BadName {
        /// What was given.
        name: String,
    },
    /// Nothing is known under this name.
    #[error("there is no pane `{name}`")]
    NoPane {
        /// The name.
        name: String,
        /// Those that there are.
        others: Vec<String>,
    },
    /// The name is taken.
    #[error("there is already a pane `{name}`")]
    Taken {
        /// The name.
        name: String,
    },
    /// What was to be started makes no sense.
    #[error("cannot start `{program}`: {why}")]
    BadProgram {
        /// The first word.
        program: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A server started inside a job would be killed with the job.
    #[error("a tmux server started inside a turn would end with the turn")]
    InsideJob,
    /// The pane is not what it was: it is somebody else's now, and nothing is typed into it.
    #[error("the pane `{name}` is left alone: {why}")]
    NotOurs {
        /// The pane.
        name: String,
        /// What is different.
        why: &'static str,
    },
    /// The program in the pane has ended.
    #[error("the program in `{name}` has ended")]
    Dead {
        /// The pane.
        name: String,
    },
    /// Only a pane that we started can be started again.
    #[error("`{name}` was adopted: everloop did not start it and cannot start it again")]
    Adopted {
        /// The pane.
        name: String,
    },
    /// A person's pane cannot be moved.
    #[error("`{name}` was adopted and works in `{}`, the turn in `{}`", cwd.display(), wanted.display())]
    Elsewhere {
        /// The pane.
        name: String,
        /// Where its program is.
        cwd: PathBuf,
        /// Where the turn is.
        wanted: PathBuf,
    },
    /// A pane whose program is at something is not taken away from it.
    #[error("`{name}` is {doing} in `{}` and cannot be moved to `{}` now", cwd.display(), wanted.display())]
    Occupied {
        /// The pane.
        name: String,
        /// What its program is doing.
        doing: &'static str,
        /// Where.
        cwd: PathBuf,
        /// Where the turn is.
        wanted: PathBuf,
    },
    /// Starting it again does not help.
    #[error("`{name}` was started again {times} times within an hour, and now {why}")]
    TooOften {
        /// The pane.
        name: String,
        /// How often.
        times: usize,
        /// Why it would have to be started once more.
        why: String,
    },
    /// A word that names no pane of the person's server, or several.
    #[error("`{target}` is {found} panes of the server at `{}`", socket.display())]
    BadTarget {
        /// The word.
        target: String,
        /// How many it fits.
        found: usize,
        /// Where it was looked for.
        socket: PathBuf,
        /// Those that there are.
        others: Vec<String>,
    },
    /// Somebody else is using the pane.
    #[error("another everloop is {what} `{name}`")]
    Busy {
        /// What it does.
        what: &'static str,
        /// The pane.
        name: String,
    },
}

impl PaneError {
    /// For `map_err`: what was tried on which path.
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| PaneError::Io { what, path, source }
    }
}
