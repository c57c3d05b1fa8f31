//! Failures with panes. A failing program in a pane is not an error here.

use std::io;
use std::path::{Path, PathBuf};

use super::State;

/// A pane could not be handled.
#[derive(Debug, thiserror::Error)]
pub enum PaneError {
    /// tmux is not installed.
    #[error("`tmux` is not installed, or not in PATH")]
    NoTmux,
    /// The operating system refused.
    #[error("could not {what} `{}`", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    /// tmux returned an error.
    #[error("tmux could not {what}: {said}")]
    Refused { what: &'static str, said: String },
    /// tmux did not respond in time.
    #[error("tmux did not {what} within {seconds} s")]
    Silent {
        what: &'static str,
        /// The deadline that passed.
        seconds: u64,
    },
    /// A record of everloop cannot be parsed.
    #[error("`{}` is damaged or of another version", path.display())]
    Damaged { path: PathBuf, source: serde_json::Error },
    /// A socket's path has a hard limit in every Unix.
    #[error("the path of the socket `{}` is too long: {} bytes, at most {most} are possible", path.display(), path.as_os_str().len())]
    LongPath { path: PathBuf, most: usize },
    /// Not a valid name for a pane.
    #[error("`{name}` cannot be the name of a pane: use up to 32 of a-z, 0-9, `-` and `_`")]
    BadName { name: String },
    /// No pane with this name is recorded.
    #[error("there is no pane `{name}`")]
    NoPane {
        name: String,
        /// The names of existing panes.
        others: Vec<String>,
    },
    /// The name is taken.
    #[error("there is already a pane `{name}`")]
    Taken { name: String },
    /// The program cannot be started as given.
    #[error("cannot start `{program}`: {why}")]
    BadProgram { program: String, why: &'static str },
    /// A server started inside a job would be killed with the job.
    #[error("a tmux server started inside a turn would end with the turn")]
    InsideJob,
    /// The pane changed since it was recorded, so nothing is typed into it.
    #[error("the pane `{name}` is left alone: {why}")]
    NotOurs {
        name: String,
        /// What is different.
        why: &'static str,
    },
    /// The program does not wait for a prompt, so the text would answer something else.
    #[error("`{name}` is {}; nothing was sent to it", state.describe())]
    NotIdle { name: String, state: State },
    /// Another screen came up between the text and its Enter.
    #[error("`{name}` is now {}; the text stands in its input line and was not sent", state.describe())]
    Unsent { name: String, state: State },
    /// The word names no key that may be pressed.
    #[error("`{key}` is not a key that everloop presses")]
    BadKey { key: String },
    /// The program in the pane has ended.
    #[error("the program in `{name}` has ended")]
    Dead { name: String },
    /// Only a pane that everloop started can be started again.
    #[error("`{name}` was adopted: everloop did not start it and cannot start it again")]
    Adopted { name: String },
    /// A person's pane cannot be moved.
    #[error("`{name}` was adopted and works in `{}`, the turn in `{}`", cwd.display(), wanted.display())]
    Elsewhere {
        name: String,
        /// The folder of its program.
        cwd: PathBuf,
        /// The folder of the turn.
        wanted: PathBuf,
    },
    /// A pane with a busy program is not moved.
    #[error("`{name}` is {doing} in `{}` and cannot be moved to `{}` now", cwd.display(), wanted.display())]
    Occupied {
        name: String,
        /// What its program is doing.
        doing: &'static str,
        cwd: PathBuf,
        /// The folder of the turn.
        wanted: PathBuf,
    },
    /// Restarts were exhausted.
    #[error("`{name}` was started again {times} times within an hour, and now {why}")]
    TooOften {
        name: String,
        times: usize,
        /// Why another start would be needed.
        why: String,
    },
    /// A target that matches no pane of the person's server, or several.
    #[error("`{target}` matches {found} panes of the server at `{}`", socket.display())]
    BadTarget {
        target: String,
        /// How many panes match.
        found: usize,
        /// The socket of the searched server.
        socket: PathBuf,
        /// The panes of that server.
        others: Vec<String>,
    },
    /// Another process is using the pane.
    #[error("another everloop is {what} `{name}`")]
    Busy {
        /// What that process does.
        what: &'static str,
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
