//! The private tmux server: its folder, its socket, its settings. It is started on demand and
//! outlives everloop.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::call::TmuxCall;
use super::files::PaneFiles;
use super::pane::{Pane, PaneName, PaneOrigin};
use super::{PaneError, group};
use crate::process::Identity;

/// `sun_path` has 108 bytes, one of them for the terminator; tmux appends `.lock` to the name of
/// the socket.
const LONGEST_SOCKET: usize = 107 - ".lock".len();

/// Options of the private server. The history limit is for plain programs, which may print a lot;
/// agents on the alternate screen have none.
const SETTINGS: &str = "set-option -s exit-empty off
set-option -s set-clipboard off
set-option -s escape-time 20
set-option -g remain-on-exit on
set-option -g remain-on-exit-format \"\"
set-option -g history-limit 10000
set-option -g update-environment \"\"
set-option -g destroy-unattached off
set-option -g detach-on-destroy on
set-option -g allow-rename off
set-option -g automatic-rename off
";

/// Panes of one state folder.
#[derive(Clone, Debug)]
pub struct TmuxServer {
    pub(super) files: PaneFiles,
    socket: PathBuf,
}

impl TmuxServer {
    /// Opens the folder `panes` of this state folder, private to the user; nothing is started.
    pub fn open(state: &Path) -> Result<Self, PaneError> {
        let files = PaneFiles::open(state.join("panes"))?;
        let socket = files.socket();
        if socket.as_os_str().len() > LONGEST_SOCKET {
            return Err(PaneError::LongPath { path: socket, most: LONGEST_SOCKET });
        }
        Ok(Self { files, socket })
    }

    /// The socket of the private tmux server.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The socket of this pane's server.
    pub(super) fn socket_of<'a>(&'a self, pane: &'a Pane) -> &'a Path {
        match &pane.origin {
            PaneOrigin::Started(_) => &self.socket,
            PaneOrigin::Adopted { socket, .. } => socket,
        }
    }

    /// All recorded panes, by name.
    pub fn panes(&self) -> Result<Vec<Pane>, PaneError> {
        self.files.all()
    }

    /// One pane by its name.
    pub fn pane(&self, name: &str) -> Result<Pane, PaneError> {
        // An invalid name has no pane.
        let found = name.parse::<PaneName>().ok().map(|name| self.files.read(&name)).transpose()?.flatten();
        if let Some(pane) = found {
            return Ok(pane);
        }
        let others = self.panes()?.into_iter().map(|p| p.name.to_string()).collect();
        Err(PaneError::NoPane { name: name.to_owned(), others })
    }

    /// Starts the tmux server if it does not run, also after it was killed.
    pub(super) fn ensure(&self) -> Result<(), PaneError> {
        if self.process()?.is_some() {
            return Ok(());
        }
        if group::inside_job() {
            return Err(PaneError::InsideJob);
        }
        let settings = format!("{SETTINGS}set-option -g default-terminal \"{}\"\n", terminal());
        let args = ["start-server", ";", "source-file", "-"];
        TmuxCall { socket: &self.socket, what: "start its server", args: &args, stdin: settings.as_bytes() }.run()?;
        if let Some(server) = self.process()? {
            group::leave(server.pid);
        }
        Ok(())
    }

    /// The process of the private tmux server; `None` when there is none.
    pub fn process(&self) -> Result<Option<Identity>, PaneError> {
        let args = ["display-message", "-p", "#{pid}"];
        match (TmuxCall { socket: &self.socket, what: "report its pid", args: &args, stdin: &[] }).run() {
            Ok(said) => Ok(said.trim().parse().ok().and_then(Identity::of)),
            Err(PaneError::Refused { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Becomes the tmux client that shows the pane, until the person detaches. Returns only if that
    /// is not possible.
    pub fn attach(&self, pane: &Pane) -> PaneError {
        match self.snapshot(pane) {
            Ok(Some(_)) => {}
            Ok(None) => return gone(pane),
            Err(e) => return e,
        }
        let mut client = Command::new("tmux");
        client.args(["-u", "-S"]).arg(self.socket_of(pane)).args(["attach-session", "-t", pane.id()]);
        // A tmux client inside of another tmux refuses to start while this variable is set.
        let failed = client.env_remove("TMUX").exec();
        if failed.kind() == std::io::ErrorKind::NotFound {
            PaneError::NoTmux
        } else {
            PaneError::io("run", Path::new("tmux"))(failed)
        }
    }
}

/// The error for a pane that is gone.
pub(super) fn gone(pane: &Pane) -> PaneError {
    PaneError::NotOurs { name: pane.name.to_string(), why: "its tmux server or the pane itself is gone" }
}

/// The best terminal type with an installed description; without one the program shows nothing
/// useful.
fn terminal() -> &'static str {
    const PLACES: [&str; 3] = ["/usr/share/terminfo", "/lib/terminfo", "/etc/terminfo"];
    let known = PLACES.iter().any(|p| Path::new(p).join("t/tmux-256color").exists());
    if known { "tmux-256color" } else { "screen" }
}
