//! What the commands of a loop may reach on this machine: the loop's rules, with the places filled
//! in.

use std::path::{Path, PathBuf};

use everloop_agents::channel::Receiver;
use everloop_agents::isolation::{MovedHome, concrete, furnish};
use everloop_core::isolation::{
    CommandKind, Isolation, IsolationMode, IsolationSpec, Places, at_home, clis_of, places,
};
use everloop_core::spec::{AgentKind, AgentSpec, LoopSpec, VariableSource};
use everloop_core::watch::MonitorSpec;

use crate::gate;
use crate::state_folder::StateFolder;

/// One command of a loop.
pub(super) struct CommandPlace<'a> {
    pub(super) spec: &'a LoopSpec,
    pub(super) home: &'a StateFolder,
    /// The folder that it works in.
    pub(super) folder: &'a Path,
}

impl CommandPlace<'_> {
    /// A turn of this agent, which reads `own_files`, and the variables that move the folders of
    /// its CLIs. No isolation: it is everloop's own program that types into a pane, and the agent
    /// there runs as its pane was started.
    pub(super) fn turn(
        &self,
        agent: &AgentSpec,
        own_files: Vec<PathBuf>,
    ) -> Result<(Option<Isolation>, Vec<MovedHome>), String> {
        if agent.kind == AgentKind::Pane {
            return Ok((None, Vec::new()));
        }
        let (home, env) = (user_home(), |name: &str| variable(agent, name));
        let mut at = self.places(&home, &env);
        let clis = clis_of(agent.kind, &agent.argv);
        let moved = self.furnish(&clis, &agent.account, &at)?;
        at.own = own_files;
        at.own_writable = moved.iter().map(|home| home.writable.clone()).collect();
        at.own.extend(moved.iter().map(|home| home.folder.clone()));
        if gate::is_for(agent) {
            at.own.push(gate::folder(self.home.root()));
        }
        if agent.kind == AgentKind::Api {
            let sessions = self.home.root().join("sessions");
            std::fs::create_dir_all(&sessions).map_err(|e| format!("cannot make `{}`: {e}", sessions.display()))?;
            at.own_writable.push(sessions);
        }
        at.secret_files = secret_files(self.spec.agents().filter(|other| other.account != agent.account));
        let kind = CommandKind::Turn { agent: agent.kind, clis };
        Ok((Some(self.make(&kind, &at)), moved))
    }

    /// Makes the folders of the agent's CLIs ready; returns those that are not the person's.
    fn furnish(&self, clis: &[AgentKind], account: &str, at: &Places<'_>) -> Result<Vec<MovedHome>, String> {
        if self.spec.isolation.mode == IsolationMode::None {
            return Ok(Vec::new());
        }
        let mut moved = Vec::new();
        for cli in places::CLIS.iter().filter(|cli| clis.contains(&cli.kind)) {
            let folder = self.home.root().join("cli").join(account).join(cli.kind.label());
            let home = furnish(cli, at, &folder);
            moved.extend(home.map_err(|e| format!("cannot make the folder of {}: {e}", cli.kind.label()))?);
        }
        Ok(moved)
    }

    /// A check, or another command that runs what an agent wrote.
    pub(super) fn other(&self, kind: &CommandKind) -> Isolation {
        let home = user_home();
        let mut at = self.places(&home, &inherited);
        at.secret_files = secret_files(self.spec.agents());
        self.make(kind, &at)
    }

    fn make(&self, kind: &CommandKind, at: &Places<'_>) -> Isolation {
        let mut isolation = make(kind, &self.spec.isolation, at);
        if self.spec.isolation.caches {
            let runners = self.spec.workspace.judge.runners.iter();
            let programs: Vec<&str> = runners.map(|runner| runner.program.as_str()).collect();
            isolation.made.extend(places::needed_caches(&programs, at));
        }
        isolation
    }

    fn places<'a>(&'a self, home: &'a Path, env: &'a dyn Fn(&str) -> Option<PathBuf>) -> Places<'a> {
        places_at(home, env, (self.home.root(), self.tree()))
    }

    /// The whole worktree, also where the loop works in a folder of it. Never above the worktrees
    /// of loops, whatever a turn removed.
    fn tree(&self) -> &Path {
        let worktrees = self.home.root().join("work");
        let mut above = self.folder.ancestors().take_while(|dir| dir.starts_with(&worktrees));
        above.find(|dir| dir.join(".git").exists()).unwrap_or(self.folder)
    }
}

/// The isolation of a check that runs in a person's folder.
pub fn of_check(spec: &IsolationSpec, state: &Path, folder: &Path) -> Isolation {
    let home = user_home();
    make(&CommandKind::Check, spec, &places_at(&home, &inherited, (state, folder)))
}

/// The isolation of a monitor's command, which runs in the folder of its loop.
pub(super) fn of_monitor(spec: &LoopSpec, monitor: &MonitorSpec, state: &Path) -> Isolation {
    let home = user_home();
    let mut at = places_at(&home, &inherited, (state, Path::new(&spec.workspace.dir)));
    at.secret_files = secret_files(spec.agents());
    make(&CommandKind::Probe, &monitor.access.spec(&spec.isolation), &at)
}

/// The isolation of the command of a notifier, a mailbox or a tracker.
pub fn of_receiver(receiver: &Receiver, state: &Path) -> Isolation {
    let (home, folder) = (user_home(), receiver.folder());
    let mut at = places_at(&home, &inherited, (state, &folder));
    // A note on the screen goes through the bus of the session, which a mount namespace hides.
    at.own = inherited("XDG_RUNTIME_DIR").map(|dir| dir.join("bus")).into_iter().collect();
    make(&CommandKind::Delivery, &receiver.access.own.spec(&receiver.access.around), &at)
}

fn places_at<'a>(
    home: &'a Path,
    env: &'a dyn Fn(&str) -> Option<PathBuf>,
    (state, folder): (&'a Path, &'a Path),
) -> Places<'a> {
    Places { home, state, folder, env, secret_files: Vec::new(), own: Vec::new(), own_writable: Vec::new() }
}

/// A folder that a variable of the supervisor names.
fn inherited(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

/// A folder that a variable of the agent's account names, or else one of the supervisor.
fn variable(agent: &AgentSpec, name: &str) -> Option<PathBuf> {
    let own = agent.env.iter().find(|variable| variable.name == name);
    match own.map(|variable| &variable.source) {
        Some(VariableSource::Plain(path)) => Some(at_home(path, &user_home())),
        Some(VariableSource::Env(outer)) => inherited(outer),
        Some(VariableSource::File(_)) | None => inherited(name),
    }
}

fn make(kind: &CommandKind, spec: &IsolationSpec, places: &Places<'_>) -> Isolation {
    let mut isolation = Isolation::of(kind, spec, places);
    isolation.mode = concrete(isolation.mode);
    isolation
}

fn user_home() -> PathBuf {
    std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

/// The files with secrets of these agents' accounts.
fn secret_files<'a>(agents: impl Iterator<Item = &'a AgentSpec>) -> Vec<PathBuf> {
    let home = user_home();
    let files = agents.flat_map(|agent| &agent.env).filter_map(|variable| match &variable.source {
        VariableSource::File(path) => Some(at_home(path, &home)),
        VariableSource::Env(_) | VariableSource::Plain(_) => None,
    });
    files.collect()
}
