//! The project that a session works in, and the loop that holds its sessions: one in the ledger, or
//! one that is only in everloop.toml.

use std::path::{Path, PathBuf};

use everloop_agents::environment::{Hidden, Outside};
use everloop_agents::protect::{self, Globs};
use everloop_core::event::LoopEnd;
use everloop_core::guard::Scope;
use everloop_core::ids::LoopId;
use everloop_core::isolation::IsolationSpec;
use everloop_core::planted::{self, Bug};
use everloop_core::spec::{AgentSpec, CheckSpec};
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::Time;
use everloop_store::{Ledger, Sqlite};

use crate::account;
use crate::error::Failure;
use crate::projects::{HookSpec, ProjectFile, Projects};
use crate::record::read_state;
use crate::state_folder::StateFolder;
use crate::trust::{TrustStore, canonical, on_disk};

/// The configuration that is in force for a session in `cwd`: only what a person accepted. A turn's
/// own worktree has that of its loop's project.
pub fn in_force(
    projects: &dyn Projects,
    home: &StateFolder,
    ledger: &Sqlite,
    cwd: &Path,
) -> Result<Option<ProjectFile>, Failure> {
    if planted::is(Bug::HooksWithoutTrust) {
        return Ok(on_disk(projects, cwd));
    }
    let store = TrustStore::read(ledger)?;
    let found = store.in_force(projects, cwd);
    if found.is_some() {
        return Ok(found);
    }
    let (work, cwd) = (canonical(home.root()).join("work"), canonical(cwd));
    let id = cwd.strip_prefix(&work).ok().and_then(|below| below.components().next());
    let id = id.map(|id| LoopId::new(id.as_os_str().to_string_lossy()));
    let Some(row) = id.map(|id| ledger.get_loop(&id)).transpose()?.flatten() else { return Ok(None) };
    let project = PathBuf::from(read_state(&row)?.spec.workspace.dir);
    let root = projects.file(&cwd).and_then(|file| file.parent().map(Path::to_owned));
    let accepted = store.in_force(projects, &project);
    Ok(root.filter(|root| root.starts_with(&work)).zip(accepted).map(|(root, file)| ProjectFile { root, ..file }))
}

/// The place of a session.
pub struct SessionFolder {
    /// The folder in which the checks run.
    pub dir: PathBuf,
    pub name: String,
    pub goal: String,
    pub checks: Vec<CheckSpec>,
    /// What the checks may reach.
    pub isolation: IsolationSpec,
    /// The loop, where the ledger knows it.
    pub state: Option<LoopState>,
    /// The project's settings for sessions.
    pub hook: HookSpec,
    /// Its folder of configuration, from which globs of guarded files count.
    pub root: PathBuf,
    protect: Vec<String>,
    agents: Vec<AgentSpec>,
}

impl SessionFolder {
    /// The place of a session under the configuration that is in force; `None` when that contains
    /// several loops and names none of them.
    pub fn find(
        projects: &dyn Projects,
        file: &ProjectFile,
        ledger: &Sqlite,
        now: Time,
    ) -> Result<Option<Self>, Failure> {
        let Some(spec) = projects.session(file, now)? else { return Ok(None) };
        let mut place = Self {
            dir: spec.dir,
            name: spec.name,
            goal: spec.goal,
            checks: spec.checks,
            isolation: spec.isolation,
            state: None,
            hook: spec.hook,
            root: spec.root,
            protect: spec.protect,
            agents: spec.agents,
        };
        place.meet(ledger)?;
        Ok(Some(place))
    }

    /// Adds what the ledger knows about the loop: its pinned checks, the files that these run, its
    /// state.
    fn meet(&mut self, ledger: &Sqlite) -> Result<(), Failure> {
        let mut known = Vec::new();
        for row in ledger.loops()? {
            // Most rows are other loops': the name is searched in the text before it is parsed.
            if row.state.contains(&self.name) {
                let state = read_state(&row)?;
                if state.name == self.name && Path::new(&state.spec.workspace.dir) == self.dir {
                    known.push(state);
                }
            }
        }
        let newest = known.into_iter().max_by_key(|s| (!s.is_over(), s.created_at));
        if let Some(state) = newest {
            self.checks.clone_from(&state.spec.checks);
            self.isolation.clone_from(&state.spec.isolation);
            self.protect.clone_from(&state.spec.workspace.protect);
            self.state = Some(state);
        } else {
            let runs = self.checks.iter().map(|c| c.run.as_str());
            let named = protect::files_of_checks(runs, &self.dir, Path::new(""));
            self.protect.splice(0..0, named);
        }
        Ok(())
    }

    /// The loop's id, where the ledger knows it.
    pub fn id(&self) -> Option<&LoopId> {
        self.state.as_ref().map(|state| &state.id)
    }

    /// Secrets to redact from everything that is kept or shown.
    pub fn hidden(&self) -> Vec<Hidden> {
        account::hidden(self.agents.iter(), &Outside::ours())
    }

    /// The account that sessions of this agent most likely use.
    pub fn account(&self, agent: &str) -> Option<&str> {
        let own = self.agents.iter().find(|known| known.kind.label() == agent);
        own.or(self.agents.first()).map(|known| known.account.as_str())
    }

    /// Variables passed to the checks.
    pub fn pass_env(&self) -> Vec<String> {
        self.agents.first().map_or_else(Vec::new, |agent| agent.pass_env.clone())
    }

    /// Whether a session may not change this existing file: it judges the work.
    pub fn protects(&self, path: &Path) -> bool {
        let Ok(inside) = path.strip_prefix(&self.dir) else { return false };
        // An invalid glob was refused when the loop was created.
        path.exists() && Globs::new(&self.protect).is_ok_and(|globs| globs.protects(inside))
    }

    /// What holds the loop, so that no session should be driven on.
    pub fn held(&self, ledger: &Sqlite, now: Time) -> Result<Option<String>, Failure> {
        if let Some(state) = &self.state {
            if let Some(pause) = &state.people.paused {
                return Ok(Some(format!("the loop was paused by {}", pause.by)));
            }
            if let Phase::Ended { ending: LoopEnd::Stopped { by }, .. } = &state.phase {
                return Ok(Some(format!("the loop was stopped by {by}")));
            }
            if let Phase::Ended { ending: LoopEnd::Exhausted { bound }, .. } = &state.phase {
                return Ok(Some(format!("the loop's {}", crate::quantities::used_up(bound))));
            }
        }
        let own = self.id().map(|id| Scope::Loop(id.clone()));
        for scope in [Some(Scope::All), own].into_iter().flatten() {
            let guard = ledger.guard(&scope)?.state;
            if let Some(freeze) = guard.freeze.filter(|f| f.until.is_none_or(|until| until > now)) {
                return Ok(Some(format!("the guard holds {scope} ({})", freeze.cause)));
            }
        }
        Ok(None)
    }
}
