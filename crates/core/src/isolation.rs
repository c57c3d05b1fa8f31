//! What a command may reach: which paths it reads and writes, which network, how many processes.
//!
//! Pure: an [`Isolation`] is made from the loop's [`IsolationSpec`] and from the places of this
//! machine. `agents::isolation` enforces it where commands are started. [`places`] is the data:
//! where secrets, caches and the folders of the CLIs are.
//!
//! Reading is "everything except", writing is "nothing except". A path that a person names
//! beats the built-in lists.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::planted::{self, Bug};
use crate::spec::AgentKind;

pub mod advice;
pub mod places;

/// By which means commands are isolated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IsolationMode {
    /// Landlock where the kernel has it, else bubblewrap where it works.
    #[default]
    Auto,
    Landlock,
    /// Namespaces for mounts and processes.
    Bubblewrap,
    /// The person's own command line around each command.
    Container,
    /// By the person's word.
    None,
}

impl IsolationMode {
    /// All modes, in the order of the reference.
    pub const ALL: [IsolationMode; 5] = [
        IsolationMode::Auto,
        IsolationMode::Landlock,
        IsolationMode::Bubblewrap,
        IsolationMode::Container,
        IsolationMode::None,
    ];

    /// Name in flags and files.
    pub fn label(self) -> &'static str {
        match self {
            IsolationMode::Auto => "auto",
            IsolationMode::Landlock => "landlock",
            IsolationMode::Bubblewrap => "bubblewrap",
            IsolationMode::Container => "container",
            IsolationMode::None => "none",
        }
    }
}

/// What a command may connect to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkAccess {
    #[default]
    Open,
    /// A loopback of its own: servers that the command itself starts.
    Loopback,
    None,
}

impl NetworkAccess {
    /// All of them, in the order of the reference.
    pub const ALL: [NetworkAccess; 3] = [NetworkAccess::Open, NetworkAccess::Loopback, NetworkAccess::None];

    /// Name in flags and files.
    pub fn label(self) -> &'static str {
        match self {
            NetworkAccess::Open => "open",
            NetworkAccess::Loopback => "loopback",
            NetworkAccess::None => "none",
        }
    }
}

/// What a person configures about the isolation of a loop's commands. `~/x` is in the home folder
/// of the node that runs the command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IsolationSpec {
    pub mode: IsolationMode,
    /// Paths that the built-in list hides and that commands may read nevertheless.
    pub readable: Vec<String>,
    /// More paths that no command may read.
    pub unreadable: Vec<String>,
    /// Paths that commands may write, besides their folder.
    pub writable: Vec<String>,
    /// Whether the caches of build tools are writable.
    pub caches: bool,
    pub check_network: NetworkAccess,
    /// Of agents that are plain commands; a CLI needs its vendor.
    pub agent_network: NetworkAccess,
    /// The command line of [`IsolationMode::Container`]; `{dir}`, `{tmp}` and `{command}` are
    /// replaced.
    pub container: Vec<String>,
    /// Processes and threads of one command at a time, where a control group can count them.
    pub max_processes: Option<u64>,
    /// Memory of one command, where a control group can count it.
    pub max_memory_mb: Option<u64>,
}

/// Processes of one command by default: far above a parallel build, far below a fork bomb.
pub const MAX_PROCESSES: u64 = 4096;

impl Default for IsolationSpec {
    fn default() -> Self {
        Self {
            mode: IsolationMode::Auto,
            readable: Vec::new(),
            unreadable: Vec::new(),
            writable: Vec::new(),
            caches: true,
            check_network: NetworkAccess::Open,
            agent_network: NetworkAccess::Open,
            container: Vec::new(),
            max_processes: Some(MAX_PROCESSES),
            max_memory_mb: None,
        }
    }
}

impl IsolationSpec {
    /// Whether nothing was configured.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What a command is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandKind {
    /// An agent's turn, with the CLIs that its command line starts.
    Turn {
        agent: AgentKind,
        clis: Vec<AgentKind>,
    },
    Check,
    Setup,
    /// The command of a monitor: it looks and changes nothing.
    Probe,
    /// The command of a notifier, a mailbox or a tracker.
    Delivery,
}

impl CommandKind {
    /// Whether it works in its folder, or only runs there.
    fn writes_its_folder(&self) -> bool {
        match self {
            CommandKind::Turn { .. } | CommandKind::Check | CommandKind::Setup => true,
            CommandKind::Probe | CommandKind::Delivery => false,
        }
    }
}

/// What a person opens for one command of a monitor, a notifier, a mailbox or a tracker, in the
/// section that names it. Paths are written as in [`IsolationSpec`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandAccess {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub readable: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writable: Vec<String>,
    /// Without it, the mode of `[isolation]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<IsolationMode>,
}

impl CommandAccess {
    /// Whether nothing was configured.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The rules for this command, in place of those of a loop. Its paths are its own: what is
    /// opened for turns and checks is not opened for it, and the reverse.
    pub fn spec(&self, around: &IsolationSpec) -> IsolationSpec {
        IsolationSpec {
            mode: self.mode.unwrap_or(around.mode),
            readable: self.readable.clone(),
            unreadable: around.unreadable.clone(),
            writable: self.writable.clone(),
            caches: false,
            container: around.container.clone(),
            ..IsolationSpec::default()
        }
    }
}

/// The places of this machine that concern one command.
#[derive(Clone)]
pub struct Places<'a> {
    pub home: &'a Path,
    pub state: &'a Path,
    /// The folder that the command works in and may write.
    pub folder: &'a Path,
    /// Variables of the command that move caches and folders of CLIs.
    pub env: &'a dyn Fn(&str) -> Option<PathBuf>,
    /// Files of accounts that hold secrets.
    pub secret_files: Vec<PathBuf>,
    /// Paths of this command alone that it may read although they are in a hidden folder.
    pub own: Vec<PathBuf>,
    /// Paths of this command alone that it may write.
    pub own_writable: Vec<PathBuf>,
}

/// What one command may reach. All paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    pub mode: IsolationMode,
    /// Neither these nor anything below them is readable…
    pub unreadable: Vec<PathBuf>,
    /// …except these, which may be inside of them.
    pub readable: Vec<PathBuf>,
    /// Nothing but these and what is below them is writable.
    pub writable: Vec<PathBuf>,
    /// Folders that are made when they are missing, and then are writable.
    pub made: Vec<PathBuf>,
    pub network: NetworkAccess,
    #[serde(default)]
    pub container: Vec<String>,
    pub max_processes: Option<u64>,
    pub max_memory_mb: Option<u64>,
}

impl Isolation {
    /// What a command of this kind may reach.
    pub fn of(kind: &CommandKind, spec: &IsolationSpec, at: &Places<'_>) -> Self {
        let expand = |paths: &[String]| paths.iter().map(|p| at_home(p, at.home)).collect::<Vec<_>>();
        let wanted = expand(&spec.readable);
        let clis = match kind {
            CommandKind::Turn { clis, .. } => clis.as_slice(),
            CommandKind::Check | CommandKind::Setup | CommandKind::Probe | CommandKind::Delivery => &[],
        };
        let mut hidden = vec![at.state.to_owned()];
        hidden.extend(places::SECRETS.iter().map(|path| at_home(path, at.home)));
        let foreign = places::CLIS.iter().filter(|cli| !clis.contains(&cli.kind));
        hidden.extend(foreign.flat_map(|cli| cli.logins.iter().map(|login| cli.path(login, at))));
        hidden.extend(places::OTHER_LOGINS.iter().map(|path| at_home(path, at.home)));
        hidden.extend(at.secret_files.iter().cloned());
        // What a person names as readable is not hidden, whatever list it is on.
        hidden.retain(|path| !wanted.iter().any(|wanted| path.starts_with(wanted)));
        hidden.extend(expand(&spec.unreadable));
        if planted::is(Bug::StateReadable) {
            hidden.retain(|path| path != at.state);
        }
        if planted::is(Bug::OwnCommandsOpen) && !kind.writes_its_folder() {
            hidden.clear();
        }
        if planted::is(Bug::SecretsReadable) {
            hidden.retain(|path| path == at.state);
        }
        // A rule holds for a whole tree: with a hidden file in it, the folder of the command itself
        // could take no new file.
        let mut writable = at.own_writable.clone();
        if kind.writes_its_folder() {
            hidden.retain(|path| path == at.state || !path.starts_with(at.folder));
            writable.push(at.folder.to_owned());
        }
        writable.extend(expand(&spec.writable));
        if spec.caches {
            writable.extend(places::CACHES.iter().map(|cache| cache.path(at)));
        }
        if planted::is(Bug::WritableEverywhere) {
            writable.push(PathBuf::from("/"));
        }
        let mut made = Vec::new();
        for cli in places::CLIS.iter().filter(|cli| clis.contains(&cli.kind)) {
            writable.extend(cli.files.iter().map(|file| cli.path(file, at)));
            made.extend(cli.folders.iter().map(|folder| cli.path(folder, at)));
        }
        let mut readable = at.own.clone();
        readable.extend(wanted);
        Self {
            mode: spec.mode,
            unreadable: tidy(hidden),
            readable: tidy(readable),
            writable: tidy(writable),
            made: tidy(made),
            network: network(kind, spec),
            container: spec.container.clone(),
            max_processes: spec.max_processes,
            max_memory_mb: spec.max_memory_mb,
        }
    }

    /// Whether a person switched it off.
    pub fn is_off(&self) -> bool {
        self.mode == IsolationMode::None
    }
}

fn network(kind: &CommandKind, spec: &IsolationSpec) -> NetworkAccess {
    match kind {
        _ if planted::is(Bug::NetworkOpen) => NetworkAccess::Open,
        CommandKind::Turn { agent: AgentKind::Command, clis } if clis.is_empty() => spec.agent_network,
        CommandKind::Check => spec.check_network,
        CommandKind::Turn { .. } | CommandKind::Setup | CommandKind::Probe | CommandKind::Delivery => {
            NetworkAccess::Open
        }
    }
}

/// The CLIs that a command line names: an agent that is a plain command may start one, and then
/// needs its login.
pub fn clis_of(agent: AgentKind, argv: &[String]) -> Vec<AgentKind> {
    if agent != AgentKind::Command {
        return vec![agent];
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let words: Vec<&str> = argv.iter().flat_map(|arg| arg.split(|c: char| !is_part(c))).collect();
    places::CLIS.iter().map(|cli| cli.kind).filter(|kind| words.contains(&kind.label())).collect()
}

/// `~/x` in a home folder.
pub fn at_home(path: &str, home: &Path) -> PathBuf {
    match path.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None if path == "~" => home.to_owned(),
        None => PathBuf::from(path),
    }
}

/// Sorted, without doubles and without paths that are not absolute.
fn tidy(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.retain(|path| path.is_absolute());
    paths.sort();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests;
