//! What is wrong before the first turn of a loop: an agent that cannot start, and what of the
//! folder its turns and checks will not see. Starts nothing; a loop that cannot start is held.

use std::path::{Path, PathBuf};

use everloop_agents::agent::probe::{Installed, LoginState};
use everloop_agents::workspace::{self, ProjectFolder, Survey, WorkspaceError};
use everloop_core::event::Event;
use everloop_core::mesh::work::mesh_loop_of;
use everloop_core::spec::{AgentKind, AgentSpec};
use everloop_core::state::{LoopState, PREFLIGHT};
use everloop_store::Sqlite;

use super::{ServiceContext, agents, loops};
use crate::error::Failure;

/// Paths that a sentence names; the rest is counted.
const NAMED: usize = 4;

/// The folder of a loop that is about to start in clones of it.
#[derive(Clone, Copy, Debug)]
pub struct FolderRequest<'a> {
    pub dir: &'a Path,
    pub include_dirty: bool,
    pub has_setup: bool,
}

/// Why a loop should not start.
#[derive(Clone, Debug, PartialEq)]
pub enum Obstacle {
    /// It cannot work.
    Fatal(Failure),
    /// A person may know better.
    Doubtful(Failure),
}

/// Whether a login that is not found holds a loop that has not worked yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logins {
    Needed,
    /// A person has confirmed the loops.
    Assumed,
}

/// Holds the loops of which no agent can start, before their supervisor begins, and lets those go
/// on that were held for it and can start now. A sentence for each one that is held, and for each
/// agent that is missing beside others.
pub fn hold_unready(
    context: &ServiceContext,
    ledger: &mut Sqlite,
    loops: &[LoopState],
    logins: Logins,
) -> Result<Vec<String>, Failure> {
    let mut said = Vec::new();
    // Tasks of the mesh have agents that their node offered.
    for state in loops.iter().filter(|state| mesh_loop_of(&state.id).is_none()) {
        let specs: Vec<AgentSpec> = state.spec.agents().cloned().collect();
        let (obstacle, warnings) = agents_ready(&specs, Path::new(&state.spec.workspace.dir));
        said.extend(warnings.into_iter().map(|line| format!("loop {} ({}): {line}", state.id, state.name)));
        let reason = obstacle.filter(|obstacle| holds(obstacle, state, logins)).map(Obstacle::words);
        let held = state.people.paused.as_ref().map(|pause| pause.by.as_str());
        let event = match (&reason, held) {
            (Some(reason), None) => Event::Paused { by: PREFLIGHT.to_owned(), reason: reason.clone(), until: None },
            (None, Some(PREFLIGHT)) => {
                Event::Resumed { by: PREFLIGHT.to_owned(), bounds: None, budget: None, keeps_clock: true }
            }
            _ => continue,
        };
        loops::record(context, ledger, &state.id, event)?;
        said.extend(reason.map(|why| {
            format!("loop {} ({}) waits: {why}; then `everloop resume {}`", state.id, state.name, state.id)
        }));
    }
    Ok(said)
}

/// A login of another place may be one that everloop does not see: a loop that has worked has it.
fn holds(obstacle: &Obstacle, state: &LoopState, logins: Logins) -> bool {
    match obstacle {
        Obstacle::Fatal(_) => true,
        Obstacle::Doubtful(_) => logins == Logins::Needed && state.task.started == 0,
    }
}

/// Whether the agents can start: a failure if none can, sentences about those that cannot.
pub fn agents_ready(specs: &[AgentSpec], dir: &Path) -> (Option<Obstacle>, Vec<String>) {
    let faults: Vec<(&AgentSpec, Option<Obstacle>)> = specs.iter().map(|agent| (agent, fault(agent, dir))).collect();
    if faults.iter().all(|(_, fault)| fault.is_some()) {
        return (faults.into_iter().find_map(|(_, fault)| fault), Vec::new());
    }
    (None, faults.into_iter().filter_map(|(_, fault)| fault.map(Obstacle::words)).collect())
}

impl Obstacle {
    /// The failure and its hint in one sentence.
    fn words(self) -> String {
        let (Obstacle::Fatal(failure) | Obstacle::Doubtful(failure)) = self;
        match failure.hint {
            Some(hint) => format!("{} ({hint})", failure.message),
            None => failure.message,
        }
    }
}

fn fault(agent: &AgentSpec, dir: &Path) -> Option<Obstacle> {
    let found = agents::find(agent);
    let program = agents::program(agent);
    let there = agent.kind == AgentKind::Api || found.path.is_some() || agents::is_file_of(agent, dir);
    if !there {
        let install = match found.hint {
            Some(command) => format!("install it: {command}; `everloop agents` lists what is here"),
            None if program.contains('/') => "give a path from the project's folder, or an absolute one".to_owned(),
            None => "install it, or name another command: --agent-cmd 'my-agent {prompt}'".to_owned(),
        };
        let what = match agent.kind {
            AgentKind::Command | AgentKind::Pane => {
                format!("there is no program `{program}` for agent `{}`", agent.name)
            }
            _ => format!("agent `{}` is not installed", agent.name),
        };
        return Some(Obstacle::Fatal(Failure::usage(what).hint(install)));
    }
    needs_login(agent, &found).then(|| {
        let hint = format!("{}; if it has a login that everloop does not see: --yes", found.hint.unwrap_or("log in"));
        Obstacle::Doubtful(Failure::usage(format!("agent `{}` is not logged in", agent.name)).hint(hint))
    })
}

/// A program of another name or another server has a login of its own.
fn needs_login(agent: &AgentSpec, found: &Installed) -> bool {
    let usual = agent.kind == AgentKind::Api || agents::program(agent) == agent.kind.label();
    found.login == LoginState::NotLoggedIn && usual && agent.api_base.is_none()
}

/// Sentences about what turns and checks will not see of the folder.
pub async fn unseen(request: &FolderRequest<'_>) -> Result<Vec<String>, WorkspaceError> {
    let ProjectFolder::Git(place) = workspace::discover(request.dir).await? else { return Ok(Vec::new()) };
    Ok(sentences(&workspace::survey(&place).await?, request))
}

fn sentences(found: &Survey, request: &FolderRequest<'_>) -> Vec<String> {
    let mut said = Vec::new();
    if !request.include_dirty {
        if !found.changed.is_empty() {
            let what = named(&found.changed);
            said.push(format!(
                "uncommitted changes in {what}: the agent does not see them, and work that touches these files waits \
                 until you commit or stash them (--include-dirty starts from them)"
            ));
        }
        let untracked: Vec<PathBuf> = found.untracked.iter().filter(|path| !is_ours(path)).cloned().collect();
        if !untracked.is_empty() {
            let what = named(&untracked);
            said.push(format!("not in git: {what}: the agent does not see it; add and commit what the work needs"));
        }
    }
    if !found.submodules.is_empty() && !request.has_setup {
        said.push(format!(
            "submodules ({}) are empty in the agent's clone: --setup 'git submodule update --init' fills them",
            named(&found.submodules)
        ));
    }
    said
}

/// Files of everloop in a project: no work needs them.
fn is_ours(path: &Path) -> bool {
    [".everloop/", "everloop.toml", ".mcp.json", ".claude/", ".codex/", ".gemini/"]
        .iter()
        .any(|ours| Path::new(ours) == path)
}

/// Some paths by name, the others as a number.
fn named(paths: &[PathBuf]) -> String {
    let shown: Vec<String> = paths.iter().take(NAMED).map(|path| path.display().to_string()).collect();
    match paths.len().saturating_sub(NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> FolderRequest<'static> {
        FolderRequest { dir: Path::new("/"), include_dirty: false, has_setup: false }
    }

    fn paths(names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn what_the_agent_does_not_see_is_named_and_the_rest_counted() {
        let found = Survey {
            changed: paths(&["a", "b", "c", "d", "e", "f"]),
            untracked: paths(&["everloop.toml", "notes/"]),
            submodules: paths(&["vendor/x"]),
            ..Survey::default()
        };
        let said = sentences(&found, &request());
        assert!(
            said[0].starts_with("uncommitted changes in a, b, c, d and 2 more: the agent does not see"),
            "{said:?}"
        );
        assert!(said[1].starts_with("not in git: notes/:"), "{said:?}");
        assert!(said[2].contains("vendor/x") && said[2].contains("--setup"), "{said:?}");
        let dirty = FolderRequest { include_dirty: true, has_setup: true, ..request() };
        assert_eq!(sentences(&found, &dirty), Vec::<String>::new());
    }

    #[test]
    fn a_loop_without_one_working_agent_does_not_start() {
        let missing =
            |name: &str| AgentSpec { name: name.to_owned(), argv: vec![name.to_owned()], ..AgentSpec::default() };
        let (obstacle, said) = agents_ready(&[missing("no-such-agent-1"), missing("no-such-agent-2")], Path::new("/"));
        let Some(Obstacle::Fatal(failure)) = obstacle else { panic!("{obstacle:?}") };
        assert!(failure.message.contains("no-such-agent-1") && failure.hint.is_some(), "{failure:?}");
        assert_eq!(said, Vec::<String>::new());
        let (obstacle, said) = agents_ready(&[missing("no-such-agent-1"), missing("sh")], Path::new("/"));
        assert_eq!(obstacle, None);
        assert!(said[0].contains("no-such-agent-1"), "{said:?}");
    }
}
