//! A turn's process: prepare the workspace, write the job, start it, wait for it.

use std::path::{Path, PathBuf};

use everloop_agents::environment::Environment;
use everloop_agents::job::{self, Ended, Running, Spec};
use everloop_agents::workspace::{Dropped, Effort, Side};
use everloop_core::action::Input;
use everloop_core::event::{Exit, Outcome};
use everloop_core::ids::{Fence, TaskId, TurnId};

use super::errand::{Errand, full_text};
use crate::error::Failure;

/// Folders of earlier turns that are kept on disk, with their output.
const TURNS_KEPT: usize = 50;

impl Errand {
    /// Starts the agent and waits for its end.
    pub(super) async fn spawn(&mut self, turn: &TurnId, task: &TaskId, prompt: Result<String, Failure>) -> Input {
        let started = match prompt.map_err(|f| f.message) {
            Ok(prompt) => self.start(turn, task, prompt).await,
            Err(e) => Err(e),
        };
        match started {
            Ok(running) => wait(turn, running).await,
            Err(why) => {
                let exit = Exit { spawn_error: Some(why), started_at: self.now, ended_at: self.now, ..Exit::default() };
                Input::Exited { turn: turn.clone(), exit }
            }
        }
    }

    /// Waits for a turn that outlived its supervisor.
    pub(super) async fn adopt(&mut self, turn: &TurnId) -> Input {
        match job::adopt(&self.home.turn(turn)).await {
            Ok(running) => wait(turn, running).await,
            Err(e) => {
                tracing::warn!(%turn, error = %e, "the turn could not be adopted");
                Input::Vanished { turn: turn.clone() }
            }
        }
    }

    async fn start(&mut self, turn: &TurnId, task: &TaskId, mut prompt: String) -> Result<Running, String> {
        let dir = self.home.turn(turn);
        self.home.make(&dir).map_err(|f| f.message)?;
        self.rescue().await;
        let work = self.state.work.clone();
        let workspace = self.workspace().await?;
        if let Some(work) = &work {
            workspace.set_work(work).await.map_err(|e| full_text(&e))?;
        }
        let base = workspace.prepare_turn(turn, work.as_deref()).await.map_err(|e| full_text(&e))?;
        if let Some(dropped) = &base.dropped {
            prompt.push_str(&set_aside(dropped));
        }
        let cwd = self.workspace().await?.turn_dir();
        self.set_up(Side::Turn, cwd).await?;
        let prompt_file = dir.join("prompt.md");
        write_private(&prompt_file, &prompt).map_err(|e| format!("cannot write the prompt: {e}"))?;
        let spec = self.job_spec(&prompt, &prompt_file).await?;
        job::prepare(&dir, &spec).map_err(|e| full_text(&e))?;
        let agent = &self.state.spec.agent;
        let env = Environment::from_ours(&agent.pass_env)
            .with("EVERLOOP_LOOP", self.state.id.as_str())
            .with("EVERLOOP_TASK", task.as_str())
            .with("EVERLOOP_TURN", turn.as_str())
            .with("EVERLOOP_PROMPT_FILE", &prompt_file)
            .into_vars();
        self.prune();
        job::start(&self.shim, &dir, env).map_err(|e| full_text(&e))
    }

    async fn job_spec(&mut self, prompt: &str, prompt_file: &Path) -> Result<Spec, String> {
        let agent = self.state.spec.agent.clone();
        let cwd = self.workspace().await?.turn_dir();
        let file = prompt_file.display().to_string();
        let by_argument = agent.argv.iter().any(|a| a.contains("{prompt}") || a.contains("{prompt_file}"));
        let argv = agent.argv.iter().map(|a| a.replace("{prompt_file}", &file).replace("{prompt}", prompt)).collect();
        let mut spec = Spec::new(argv, cwd);
        spec.stdin = (!by_argument).then(|| prompt_file.to_owned());
        spec.wall = self.state.spec.guard.turn_wall;
        spec.secrets = agent.pass_env;
        Ok(spec)
    }

    /// Runs the operator's setup command in a worktree that has not seen it yet.
    pub(super) async fn set_up(&mut self, side: Side, cwd: PathBuf) -> Result<(), String> {
        let Some(command) = self.state.spec.workspace.setup.clone() else { return Ok(()) };
        if !self.workspace().await?.needs_setup(side, &command) {
            return Ok(());
        }
        let dir = self.home.setup(&self.state.id);
        let argv = ["sh", "-c", &command].map(str::to_owned).to_vec();
        let mut spec = Spec::new(argv, cwd);
        spec.wall = self.state.spec.guard.turn_wall;
        spec.secrets.clone_from(&self.state.spec.agent.pass_env);
        let env = Environment::from_ours(&self.state.spec.agent.pass_env).into_vars();
        let exit = run_once(&self.shim, &dir, &spec, env).await?;
        if !exit.ok() {
            return Err(format!("setup `{command}` failed ({}): {}", exit.describe(), exit.tail.trim()));
        }
        self.workspace().await?.set_up(side, &command).map_err(|e| full_text(&e))
    }

    /// A turn that was interrupted or lost was never judged; what it left in the worktree is pinned before it is cleared.
    async fn rescue(&mut self) {
        let Some(last) = self.state.tries.last() else { return };
        if !matches!(last.outcome, Outcome::Interrupted | Outcome::Lost) {
            return;
        }
        let Some((task, fence)) = split_turn(&last.turn) else { return };
        let subject = format!("everloop: unfinished work of turn {}", last.number);
        if let Ok(workspace) = self.workspace().await {
            let effort = Effort { task: &task, fence, subject: &subject };
            match workspace.collect(&effort).await {
                Ok(found) if found.changed => {
                    tracing::info!(turn = %effort.turn(), pin = ?found.pin, "kept unfinished work");
                }
                Ok(_) => {}
                Err(e) => tracing::debug!(turn = %effort.turn(), error = %e, "nothing to keep of an unfinished turn"),
            }
        }
    }

    /// Old turn folders go; what they did is in the journal and under refs.
    fn prune(&self) {
        let Some(turns) = self.home.turn(&TurnId::new("x")).parent().map(Path::to_owned) else { return };
        let prefix = format!("{}-", self.state.id);
        let Ok(entries) = std::fs::read_dir(turns) else { return };
        let mut own: Vec<_> = entries
            .flatten()
            .filter(|e| e.file_name().to_string_lossy().starts_with(&prefix))
            .filter_map(|e| Some((e.metadata().and_then(|m| m.modified()).ok()?, e.path())))
            .collect();
        own.sort();
        let extra = own.len().saturating_sub(TURNS_KEPT);
        for (_, path) in own.into_iter().take(extra) {
            if let Err(e) = std::fs::remove_dir_all(&path) {
                tracing::debug!(path = %path.display(), error = %e, "an old turn folder stays");
            }
        }
    }
}

fn set_aside(dropped: &Dropped) -> String {
    format!(
        "\nThe operator's branch moved. Earlier work ({}) conflicts with it in {} and was set aside; this turn starts from the branch.\n",
        dropped.commit,
        dropped.paths.join(", ")
    )
}

async fn wait(turn: &TurnId, mut running: Running) -> Input {
    match running.wait().await {
        Ok(Ended::Exited(exit)) => Input::Exited { turn: turn.clone(), exit },
        Ok(Ended::Gone) => Input::Vanished { turn: turn.clone() },
        Err(e) => {
            tracing::warn!(%turn, error = %e, "lost sight of the turn");
            Input::Vanished { turn: turn.clone() }
        }
    }
}

/// Runs a job to its end in a folder that is used again and again.
pub(super) async fn run_once(
    shim: &job::Shim,
    dir: &Path,
    spec: &Spec,
    env: Vec<(std::ffi::OsString, std::ffi::OsString)>,
) -> Result<Exit, String> {
    if dir.exists() {
        job::kill(dir).map_err(|e| full_text(&e))?;
        std::fs::remove_dir_all(dir).map_err(|e| format!("cannot clear `{}`: {e}", dir.display()))?;
    }
    job::prepare(dir, spec).map_err(|e| full_text(&e))?;
    let mut running = job::start(shim, dir, env).map_err(|e| full_text(&e))?;
    match running.wait().await.map_err(|e| full_text(&e))? {
        Ended::Exited(exit) => Ok(exit),
        Ended::Gone => Err("it vanished".to_owned()),
    }
}

/// A turn's task and fence, from its id.
pub(super) fn split_turn(turn: &TurnId) -> Option<(TaskId, Fence)> {
    let (task, fence) = turn.as_str().rsplit_once('.')?;
    Some((TaskId::new(task), Fence(fence.parse().ok()?)))
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
