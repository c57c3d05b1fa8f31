//! The pane of a turn: before the turn begins, its program is started in the turn's folder if
//! needed. Done here and not in the turn's job, because whatever a job starts ends with it.

use std::path::Path;

use everloop_agents::agent::{Invocation, pane_of};
use everloop_agents::tmux::{PaneError, PaneTarget, TmuxServer};
use everloop_core::spec::{AgentSpec, WorkspaceMode};

use super::action_run::{ActionRun, full_text};

impl ActionRun {
    /// Makes the pane of such an agent ready, and notes it in the turn's output if anything had to
    /// be done. It is part of the start that the guard permitted: a program that does not stay
    /// makes starts fail, and then the guard waits.
    pub(super) async fn ready_pane(&self, agent: &AgentSpec, call: &mut Invocation, cwd: &Path) -> Result<(), String> {
        let Some(name) = pane_of(agent).map(str::to_owned) else { return Ok(()) };
        let (root, cwd) = (self.home.root().to_owned(), cwd.to_owned());
        let in_place = self.state.spec.workspace.mode == WorkspaceMode::InPlace;
        let ready = move || {
            let place = if in_place { PaneTarget::Folder(&cwd) } else { PaneTarget::Worktree(&cwd) };
            TmuxServer::open(&root)?.ready(&name, place)
        };
        let done = tokio::task::spawn_blocking(ready).await.map_err(|e| full_text(&e))?;
        if let Some(note) = done.map_err(|e| with_hint(&e))? {
            tracing::warn!(agent = agent.name, "{note}");
            call.argv.push(format!("--note={note}"));
        }
        Ok(())
    }
}

fn with_hint(error: &PaneError) -> String {
    let said = full_text(error);
    match error.hint() {
        Some(hint) => format!("{said}; hint: {hint}"),
        None => said,
    }
}
