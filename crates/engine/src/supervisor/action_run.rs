//! An action run: one action of one loop, run apart from the owner task. Everything it needs
//! travels with it.

use everloop_agents::environment::Outside;
use everloop_agents::job::ShimProgram;
use everloop_agents::workspace::{Workspace, WorkspaceOptions};
use everloop_core::action::{Action, Input};
use everloop_core::event::Integrated;
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use tokio::sync::watch;

use super::stream::Sighting;
use crate::error::Failure;
use crate::state_folder::StateFolder;
use crate::telemetry::TelemetryLine;

/// One action with its inputs.
pub(super) struct ActionRun {
    pub home: StateFolder,
    pub shim: ShimProgram,
    pub state: LoopState,
    /// The environment that its commands are given parts of.
    pub outside: Outside,
    pub workspace: Option<Workspace>,
    /// The task's title, for the commit.
    pub title: String,
    /// Where the liveness of a turn's stream is published.
    pub phase_liveness: watch::Sender<Sighting>,
    /// Where the turn's agent sends its telemetry.
    pub line: Option<TelemetryLine>,
    pub now: Time,
    /// The commit that the turn started from, while this run knows it at first hand.
    pub base: Option<String>,
}

impl ActionRun {
    /// Performs the action; the workspace comes back with the result.
    pub async fn run(mut self, action: Action, prompt: Result<String, Failure>) -> (Input, Option<Workspace>) {
        let input = match action {
            Action::Baseline => self.baseline().await,
            Action::Spawn { turn, task } => self.spawn(&turn, &task, prompt).await,
            Action::Adopt { turn } => self.adopt(&turn).await,
            Action::Judge { turn, .. } => self.judge(&turn).await,
            Action::Measure { turn, subject, commit } => self.measure(&turn, subject, commit).await,
            Action::Replay { turn, commit, onto, .. } => self.replay(&turn, &commit, onto).await,
            Action::Integrate { turn, task, commit } => self.integrate(&turn, &task, &commit).await,
            Action::Cleanup => self.clean_up().await,
            // Done by the owner itself.
            Action::Stop { .. } | Action::Tell { .. } | Action::Look | Action::Record | Action::Remember => Input::Tick,
        };
        (input, self.workspace)
    }

    /// The loop's workspace, opened when it is first needed.
    pub async fn workspace(&mut self) -> Result<&mut Workspace, String> {
        if self.workspace.is_none() {
            let options = WorkspaceOptions {
                owner: self.state.id.clone(),
                root: self.home.work(&self.state.id),
                spec: self.state.spec.workspace.clone(),
            };
            self.workspace = Some(Workspace::open(options).await.map_err(|e| full_text(&e))?);
        }
        let landed = landed(&self.state).map(str::to_owned);
        let workspace = self.workspace.as_mut().expect("it was just opened");
        if let Some(landed) = landed {
            workspace.expect_target(&landed);
        }
        Ok(workspace)
    }

    async fn clean_up(&mut self) -> Input {
        let champion = self.state.research.as_ref().and_then(|research| research.champion.commit.clone());
        let work = champion.or_else(|| self.state.progress.work.clone());
        let cleaned = match self.workspace().await {
            Ok(workspace) => {
                // The line of work stays under its ref, also what never reached the target.
                let kept = match &work {
                    Some(work) => workspace.set_work(work).await,
                    None => Ok(()),
                };
                kept.and(workspace.cleanup().await).map_err(|e| full_text(&e))
            }
            Err(e) => Err(e),
        };
        if let Err(error) = cleaned {
            tracing::warn!(owner = %self.state.id, error, "cannot remove the checkouts; `everloop doctor --fix` does");
        }
        self.workspace = None;
        Input::Tick
    }
}

/// Where the loop last moved its target, according to the ledger.
fn landed(state: &LoopState) -> Option<&str> {
    state.progress.kept.iter().rev().find_map(|kept| match &kept.integrated {
        Some(Integrated::Landed { commit }) => Some(commit.as_str()),
        _ => None,
    })
}

/// An error with its sources, on one line.
pub(super) fn full_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        text = format!("{text}: {e}");
        cause = e.source();
    }
    text
}
