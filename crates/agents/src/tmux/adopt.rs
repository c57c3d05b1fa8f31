//! Panes that a person lends to everloop: registered by hand, recorded with their identity at that
//! moment.

use std::path::{Path, PathBuf};

use super::call::TmuxCall;
use super::pane::{ListedPane, Pane, PaneName, PaneOrigin, PaneProgram};
use super::snapshot::foreground_process;
use super::{PaneError, TmuxServer, group};

/// How a person may name a pane, and its identity.
const LIST: &str = "#{pane_id} #{pane_pid} #{pid} #{session_name}:#{window_index}.#{pane_index}";

/// The pane that is meant.
#[derive(Clone, Debug)]
pub struct PaneSelector {
    /// The socket of the person's tmux server.
    pub socket: PathBuf,
    /// `%3`, or `session:window.pane` as tmux shows it.
    pub target: String,
}

impl TmuxServer {
    /// Records a person's pane as one that everloop may type into. Refused inside a turn: an agent
    /// must not lend panes. Without a kind the name of the program in it decides.
    pub fn adopt(&self, name: PaneName, kind: Option<PaneProgram>, wanted: &PaneSelector) -> Result<Pane, PaneError> {
        if group::inside_job() {
            return Err(PaneError::InsideJob);
        }
        let _lock = self.files.lock(&name)?;
        if self.files.read(&name)?.is_some() {
            return Err(PaneError::Taken { name: name.to_string() });
        }
        // The path is recorded, so it must mean the same from every folder.
        let socket = std::path::absolute(&wanted.socket).map_err(PaneError::io("resolve", &wanted.socket))?;
        let wanted = &PaneSelector { socket, target: wanted.target.clone() };
        let found = find(wanted)?;
        let gone = || PaneError::NotOurs { name: name.to_string(), why: "no program has its terminal" };
        let foreground = foreground_process(found.process.pid).ok_or_else(gone)?;
        let kind = kind.unwrap_or_else(|| kind_of(foreground.pid));
        let origin = PaneOrigin::Adopted { socket: wanted.socket.clone(), foreground };
        let pane = Pane::new(name, kind, found, origin);
        self.files.write(&pane)?;
        Ok(pane)
    }
}

/// A CLI that runs in an interpreter has its own name in the first argument.
fn kind_of(pid: i32) -> PaneProgram {
    let line = std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
    let words = line.split(|b| *b == 0).take(2).map(|word| String::from_utf8_lossy(word).into_owned());
    let kinds = words.map(|word| PaneProgram::of(word.trim_end_matches(".js")));
    kinds.into_iter().find(|kind| *kind != PaneProgram::Plain).unwrap_or(PaneProgram::Plain)
}

/// Names are compared, never passed to tmux: its targets are patterns with a syntax of their own.
fn find(wanted: &PaneSelector) -> Result<ListedPane, PaneError> {
    let lines = list(&wanted.socket)?;
    let place = |line: &str| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned();
    let is_it = |line: &&String| line.split(' ').next() == Some(wanted.target.as_str()) || place(line) == wanted.target;
    let fitting: Vec<&String> = lines.iter().filter(is_it).collect();
    let bad = |found| {
        let others = lines.iter().map(|l| place(l)).collect();
        PaneError::BadTarget { target: wanted.target.clone(), found, socket: wanted.socket.clone(), others }
    };
    match fitting.as_slice() {
        [one] => ListedPane::parse(one).ok_or_else(|| bad(0)),
        many => Err(bad(many.len())),
    }
}

fn list(socket: &Path) -> Result<Vec<String>, PaneError> {
    let args = ["list-panes", "-a", "-F", LIST];
    let said = TmuxCall { socket, what: "list the panes of that server", args: &args, stdin: &[] }.run()?;
    Ok(said.lines().map(str::to_owned).collect())
}
