//! A turn's process: prepares the workspace, writes the job, starts it, waits for it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_agents::agent::{self, Invocation, Order, TELEMETRY_SECRET};
use everloop_agents::clock::machine_period;
use everloop_agents::environment::Environment;
use everloop_agents::job::{self, JobEnd, Running, Spec};
use everloop_agents::workspace::{CommitMeta, Dropped, Side, Started};
use everloop_core::action::Input;
use everloop_core::event::{Exit, Outcome, StopCause};
use everloop_core::ids::{TaskId, TurnId};
use everloop_core::isolation::CommandKind;
use everloop_core::spec::{AgentSpec, WorkspaceMode};
use everloop_core::state::Phase;
use tokio::time::sleep;

use super::action_run::{ActionRun, full_text};
use super::diff::Diff;
use super::places;
use super::stream::{Cap, Counting, Follow, PROMPT_FILE, agent_of};
use crate::account;
use crate::error::Failure;
use crate::gate;
use crate::isolation::CommandPlace;
use crate::telemetry::TelemetryLine;

/// Folders of earlier turns that are kept on disk, with their output.
const TURNS_KEPT: usize = 50;
/// The folder of a reflection or a dream, in the folder of its turn.
const EMPTY: &str = "empty";
/// An agent's stream is read this often.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The same of a turn with a cap on what it uses: less than a request takes, so that at most one
/// request is made after the one that reached the cap.
const CAPPED_INTERVAL: Duration = Duration::from_millis(250);

impl ActionRun {
    /// Starts the agent and waits for its end.
    pub(super) async fn spawn(&mut self, turn: &TurnId, task: &TaskId, prompt: Result<String, Failure>) -> Input {
        let started = match prompt.map_err(|f| f.message) {
            Ok(prompt) => self.start(turn, task, prompt).await,
            Err(e) => Err(e),
        };
        match started {
            Ok((running, follow)) => self.wait(turn, running, follow).await,
            Err(why) => {
                let exit = Exit { spawn_error: Some(why), started_at: self.now, ended_at: self.now, ..Exit::default() };
                Input::Exited { turn: turn.clone(), exit }
            }
        }
    }

    /// Waits for a turn that outlived its supervisor.
    pub(super) async fn adopt(&mut self, turn: &TurnId) -> Input {
        match job::adopt(&self.home.turn(turn)).await {
            Ok(running) => {
                let follow = self.follow_again();
                self.wait(turn, running, follow).await
            }
            Err(e) => {
                tracing::warn!(%turn, error = %e, "cannot adopt the turn");
                Input::Vanished { turn: turn.clone() }
            }
        }
    }

    /// Waits for a turn's end and reads its stream at intervals.
    async fn wait(&mut self, turn: &TurnId, mut running: Running, mut follow: Option<Follow>) -> Input {
        let mut diff = self.diff().await;
        let mut cap = Cap::of(&self.state);
        let ended = loop {
            let period = if cap.is_some() { CAPPED_INTERVAL } else { POLL_INTERVAL };
            tokio::select! {
                ended = running.wait() => break ended,
                () = sleep(machine_period(period)) => {}
            }
            if let Some(stream) = follow.take() {
                follow = stream.catch_up(if cap.is_some() { Counting::Now } else { Counting::AtTheEnd }).await;
            }
            // Like the time limit of a turn, its cap was decided when it started.
            if cap.is_some_and(|cap| follow.as_ref().is_some_and(|stream| stream.is_over(&cap))) {
                cap = None;
                if let Err(e) = job::stop(running.dir(), StopCause::Budget) {
                    tracing::warn!(%turn, error = %e, "cannot stop a turn at its budget");
                }
            }
            let mut sighting = follow.as_ref().and_then(Follow::sighting);
            if let (Some((phase_liveness, _)), Some(diff)) = (&mut sighting, &mut diff) {
                phase_liveness.barren = diff.barren(phase_liveness.said).await;
            }
            // The receiver of liveness is gone only when the supervisor is.
            self.phase_liveness.send_replace(sighting);
        };
        let foreign = job::foreign_lines(running.dir());
        if foreign > 0 {
            tracing::warn!(%turn, foreign, "the log of the turn's job holds what everloop did not write; it is ignored");
        }
        match ended {
            Ok(JobEnd::Exited(exit)) => {
                let mut exit = with_report(exit, follow).await;
                exit.base = self.base.take();
                if let (Some(line), Some(report)) = (self.line.take(), exit.report.as_mut()) {
                    report.telemetry = line.close().await;
                }
                Input::Exited { turn: turn.clone(), exit }
            }
            Ok(JobEnd::Gone) => Input::Vanished { turn: turn.clone() },
            Ok(JobEnd::Overdue) => {
                tracing::warn!(%turn, "the shim of the turn did not end it in time and was killed");
                Input::Vanished { turn: turn.clone() }
            }
            Err(e) => {
                tracing::warn!(%turn, error = %e, "cannot watch the turn any more");
                Input::Vanished { turn: turn.clone() }
            }
        }
    }

    /// Detects changes in the turn's workspace, where a limit needs it.
    async fn diff(&mut self) -> Option<Diff> {
        let most = self.state.spec.guard.phases.no_diff.filter(|_| self.state.inward().is_none())?;
        let dir = self.workspace().await.ok()?.turn_dir();
        // The whole clone, also where the loop works in a folder of it.
        let whole = dir.ancestors().find(|d| d.join(".git").exists()).filter(|_| self.is_isolated());
        Some(Diff::new(whole.map_or_else(|| dir.clone(), Path::to_owned), most))
    }

    fn is_isolated(&self) -> bool {
        self.state.spec.workspace.mode != WorkspaceMode::InPlace
    }

    /// The stream of a turn that another supervisor started.
    fn follow_again(&self) -> Option<Follow> {
        let Phase::Turn(turn) = &self.state.phase else { return None };
        let agent = agent_of(&self.state, turn);
        let env = account::environment(agent, &self.outside).map(Environment::into_vars).unwrap_or_default();
        Some(Follow::new(self.home.turn(&turn.id), agent, turn, texts(&env)))
    }

    /// Puts the guard in front of CLIs that a plain command starts.
    fn gated(&self, agent: &AgentSpec, env: Environment) -> Environment {
        if !gate::is_for(agent) {
            return env;
        }
        match gate::make(self.home.root(), &self.shim.exe, env.get("PATH")) {
            Ok(path) => env.with("PATH", path),
            Err(e) => {
                tracing::warn!(error = %e, "CLIs that the turn starts are not counted");
                env
            }
        }
    }

    async fn start(
        &mut self,
        id: &TurnId,
        task: &TaskId,
        mut prompt: String,
    ) -> Result<(Running, Option<Follow>), String> {
        let Phase::Turn(turn) = self.state.phase.clone() else { return Err("the turn is over".to_owned()) };
        let agent = agent_of(&self.state, &turn).clone();
        let account = account::environment(&agent, &self.outside)?;
        let dir = self.home.turn(id);
        self.home.make(&dir).map_err(|f| f.message)?;
        let is_inward = self.state.inward().is_some();
        let cwd = if is_inward { self.empty_folder(&dir)? } else { self.working_folder(id, &mut prompt).await? };
        let prompt_file = dir.join(PROMPT_FILE);
        write_private(&prompt_file, &prompt).map_err(|e| format!("cannot write the prompt: {e}"))?;
        let outside = texts(&account.clone().into_vars());
        let cap = Cap::of(&self.state);
        let order = Order {
            agent: &agent,
            prompt: &prompt,
            prompt_file: &prompt_file,
            resume: turn.resume.as_deref(),
            left_microusd: cap.and_then(|cap| cap.microusd),
            left_tokens: cap.and_then(|cap| cap.tokens),
            ours: &self.shim.exe,
            state_dir: self.home.root(),
            telemetry: self.line.as_ref().map(TelemetryLine::receiver),
            env: &outside,
            answer_within: self.state.spec.guard.phases.answer,
        };
        let mut invocation = agent::invocation(&order);
        self.ready_pane(&agent, &mut invocation, &cwd).await?;
        let mut spec = self.job_spec(&agent, &invocation, cwd);
        let mut own_files = written(&invocation)?;
        own_files.push(prompt_file.clone());
        let (isolation, moved) = self.command_at(&spec.cwd).turn(&agent, own_files)?;
        spec.isolation = isolation;
        job::prepare(&dir, &spec).map_err(|e| full_text(&e))?;
        let mut env = account;
        for (name, value) in invocation.env {
            env = env.with(name, value);
        }
        for home in moved {
            env = env.with(home.variable, home.folder);
        }
        let env = self
            .gated(&agent, env)
            .with("EVERLOOP_LOOP", self.state.id.as_str())
            .with("EVERLOOP_TASK", task.as_str())
            .with("EVERLOOP_TURN", id.as_str())
            .with("EVERLOOP_PROMPT_FILE", &prompt_file)
            // Commands typed by the agent, and the hooks of its CLI, reach the everloop that
            // started it.
            .with("EVERLOOP_STATE_DIR", self.home.root())
            .into_vars();
        let follow = Follow::new(dir.clone(), &agent, &turn, texts(&env));
        let running = job::start(&self.shim, &dir, env).map_err(|e| full_text(&e))?;
        // While the agent is at work already, so that it delays nothing. The work is pinned anyway.
        self.prune();
        if let Some(work) = self.state.next_base().cloned().filter(|_| !is_inward)
            && let Ok(workspace) = self.workspace().await
            && let Err(e) = workspace.set_work(&work).await
        {
            tracing::warn!(error = %full_text(&e), "cannot move the ref of the loop's work");
        }
        Ok((running, Some(follow)))
    }

    /// The folder of a reflection or a dream, which works on no files.
    fn empty_folder(&self, turn: &Path) -> Result<PathBuf, String> {
        let folder = turn.join(EMPTY);
        self.home.make(&folder).map_err(|f| f.message)?;
        Ok(folder)
    }

    /// The folder of any other turn, as the turn begins; tells the prompt what was set aside.
    async fn working_folder(&mut self, id: &TurnId, prompt: &mut String) -> Result<PathBuf, String> {
        let place = places::place().await;
        self.rescue().await;
        let work = self.state.next_base().cloned();
        let workspace = self.workspace().await?;
        let base = workspace.prepare_turn(id, work.as_deref()).await.map_err(|e| full_text(&e))?;
        drop(place);
        self.base.clone_from(&base.commit);
        if let Some(dropped) = &base.dropped {
            prompt.push_str(&set_aside(dropped));
        }
        let cwd = self.workspace().await?.turn_dir();
        self.set_up(Side::Turn, cwd.clone()).await?;
        Ok(cwd)
    }

    /// A command of this loop in a folder, to be isolated.
    pub(super) fn command_at<'a>(&'a self, folder: &'a Path) -> CommandPlace<'a> {
        CommandPlace { spec: &self.state.spec, home: &self.home, folder }
    }

    fn job_spec(&self, agent: &AgentSpec, invocation: &Invocation, cwd: PathBuf) -> Spec {
        let mut spec = Spec::new(invocation.argv.clone(), cwd);
        spec.stdin.clone_from(&invocation.stdin);
        spec.wall = self.state.spec.guard.turn_timeout;
        spec.secrets = account::secrets(agent);
        spec.secrets.extend(self.line.as_ref().map(|_| TELEMETRY_SECRET.to_owned()));
        spec
    }

    /// Runs the setup command in a checkout that has not seen it yet.
    pub(super) async fn set_up(&mut self, side: Side, cwd: PathBuf) -> Result<(), String> {
        let Some(command) = self.state.spec.workspace.setup.clone() else { return Ok(()) };
        if !self.workspace().await?.needs_setup(side, &command) {
            return Ok(());
        }
        let dir = self.home.setup(&self.state.id);
        let argv = ["sh", "-c", &command].map(str::to_owned).to_vec();
        let mut spec = Spec::new(argv, cwd);
        spec.wall = self.state.spec.guard.turn_timeout;
        spec.secrets.clone_from(&self.state.spec.agent.pass_env);
        spec.isolation = Some(self.command_at(&spec.cwd).other(&CommandKind::Setup));
        let env = Environment::from(&self.outside, &spec.secrets)
            .hiding(&account::hidden(self.state.spec.agents(), &self.outside))
            .into_vars();
        let exit = run_once(&self.shim, &dir, &spec, env).await?;
        if !exit.ok() {
            return Err(format!("setup `{command}` failed ({}): {}", exit.describe(), exit.tail.trim()));
        }
        self.workspace().await?.set_up(side, &command).map_err(|e| full_text(&e))
    }

    /// A turn that was interrupted or lost was never judged; what it left in its clone is pinned
    /// before it is cleared.
    async fn rescue(&mut self) {
        let Some(last) = self.state.progress.tries.last() else { return };
        if !matches!(last.outcome, Outcome::Interrupted | Outcome::Lost) {
            return;
        }
        let (turn, work) = (last.turn.clone(), self.state.next_base().cloned());
        let subject = format!("everloop: unfinished work of turn {}", last.number);
        if let Ok(workspace) = self.workspace().await {
            let commit_meta = CommitMeta::new(turn.task(), turn.fence(), &subject);
            match workspace.collect(&commit_meta, &Started { work: work.as_deref(), ..Started::default() }).await {
                Ok(found) if found.changed => {
                    tracing::info!(turn = %commit_meta.turn(), pin = ?found.pin, "kept unfinished work");
                }
                Ok(_) => {}
                Err(e) => tracing::debug!(turn = %commit_meta.turn(), error = %e, "nothing kept of an unfinished turn"),
            }
        }
    }

    /// Removes old turn folders; the journal and refs keep what they did.
    fn prune(&self) {
        let prefix = format!("{}-", self.state.id);
        let Ok(entries) = std::fs::read_dir(self.home.turns()) else { return };
        let mut own: Vec<_> = entries
            .flatten()
            .filter(|e| e.file_name().to_string_lossy().starts_with(&prefix))
            .filter_map(|e| Some((e.metadata().and_then(|m| m.modified()).ok()?, e.path())))
            .collect();
        own.sort();
        let extra = own.len().saturating_sub(TURNS_KEPT);
        for (_, path) in own.into_iter().take(extra) {
            if let Err(e) = std::fs::remove_dir_all(&path) {
                tracing::debug!(path = %path.display(), error = %e, "cannot remove an old turn folder");
            }
        }
    }
}

fn set_aside(dropped: &Dropped) -> String {
    format!(
        "\nThe target branch moved. Earlier work ({}) conflicts with it in {} and was set aside; this turn starts from the branch.\n",
        dropped.commit,
        dropped.paths.join(", ")
    )
}

/// The record of a turn completed from its stream.
pub(super) async fn with_report(exit: Exit, follow: Option<Follow>) -> Exit {
    let Some(follow) = follow else { return exit };
    let mut full = exit.clone();
    let read = move || {
        follow.finish(&mut full);
        full
    };
    tokio::task::spawn_blocking(read).await.unwrap_or(exit)
}

/// The variables that are plain text; others do not name folders of a CLI.
fn texts(env: &[(OsString, OsString)]) -> Vec<(String, String)> {
    let text = |(name, value): &(OsString, OsString)| Some((name.to_str()?.to_owned(), value.to_str()?.to_owned()));
    env.iter().filter_map(text).collect()
}

/// Runs a job to its end in a folder that is used again and again.
pub(super) async fn run_once(
    shim: &job::ShimProgram,
    dir: &Path,
    spec: &Spec,
    env: Vec<(std::ffi::OsString, std::ffi::OsString)>,
) -> Result<Exit, String> {
    if dir.exists() {
        job::clear(dir).map_err(|e| full_text(&e))?;
    }
    job::prepare(dir, spec).map_err(|e| full_text(&e))?;
    let mut running = job::start(shim, dir, env).map_err(|e| full_text(&e))?;
    match running.wait().await.map_err(|e| full_text(&e))? {
        JobEnd::Exited(exit) => Ok(exit),
        JobEnd::Gone => Err("it vanished".to_owned()),
        JobEnd::Overdue => Err("its shim did not respond and was killed".to_owned()),
    }
}

/// Writes the files that the CLI reads; returns where they are.
fn written(invocation: &Invocation) -> Result<Vec<PathBuf>, String> {
    let write = |(file, text): &(PathBuf, &str)| match write_private(file, text) {
        Ok(()) => Ok(file.clone()),
        Err(e) => Err(format!("cannot write `{}`: {e}", file.display())),
    };
    invocation.files.iter().map(write).collect()
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    job::create_private(path)?.write_all(text.as_bytes())
}
