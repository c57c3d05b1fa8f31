//! Actions: some are performed here at once, others go out as action runs and come back as inputs.

use everloop_agents::agent::has_telemetry;
use everloop_agents::job;
use everloop_core::action::{Action, TurnTrace};
use everloop_core::event::StopCause;
use everloop_core::ids::{LoopId, TurnId};
use everloop_core::state::{LoopState, Phase, TurnStage};
use everloop_store::{Ledger, shell};
use tokio::sync::watch;

use super::action_run::ActionRun;
use super::liveness::Liveness;
use super::prompt::WrittenForTurn;
use super::stream::{Follow, agent_of};
use super::{Answer, Supervisor, memory_files, prompt};
use crate::research;

impl Supervisor {
    pub(super) fn perform(&mut self, id: &LoopId, action: Action) {
        match action {
            Action::Stop { turn, cause } => self.stop_turn(&turn, cause),
            // The ticket is in the ledger; watchers get the event.
            Action::Tell { key, text } => tracing::info!(ticket = key, "{text}"),
            Action::Look => self.look_soon(id),
            Action::Record => self.record_results(id),
            Action::Remember => self.write_memory(id),
            Action::Spawn { .. }
            | Action::Adopt { .. }
            | Action::Baseline
            | Action::Judge { .. }
            | Action::Measure { .. }
            | Action::Replay { .. }
            | Action::Integrate { .. }
            | Action::Cleanup => self.start_run(id, action),
        }
    }

    /// Appends to the table of results what it lacks, apart from the owner.
    fn record_results(&self, id: &LoopId) {
        let Some(slot) = self.slots.get(id) else { return };
        let (home, state, now) = (self.home.clone(), slot.state.clone(), self.clock.now());
        tokio::task::spawn_blocking(move || {
            if let Err(failure) = research::record(&home, &state) {
                tracing::warn!(owner = %state.id, error = %failure.message, "cannot write the results");
            }
            if let Err(failure) = research::comment(&home, &state, now) {
                tracing::warn!(owner = %state.id, error = %failure.message, "cannot comment on the task");
            }
        });
    }

    /// Writes the memory of a persona as files, apart from the owner. The ledger has it, so a crash
    /// before this loses nothing; the next writing makes up for it.
    fn write_memory(&self, id: &LoopId) {
        let Some(slot) = self.slots.get(id) else { return };
        let stored = match shell::memory(&self.ledger, id) {
            Ok(stored) => stored,
            Err(e) => return tracing::warn!(owner = %id, error = %e, "cannot read the memory"),
        };
        let (home, name) = (self.home.clone(), slot.state.name.clone());
        tokio::task::spawn_blocking(move || {
            if let Err(e) = memory_files::write(&home.persona(&name), &stored.memory) {
                tracing::warn!(persona = name, error = %e, "cannot write the files of the memory");
            }
        });
    }

    fn stop_turn(&self, turn: &TurnId, cause: StopCause) {
        let dir = self.home.turn(turn);
        // The folder is created if the action run has not come that far: its shim will find the
        // request there.
        let told = self.home.make(&dir).map_err(|f| f.message).and_then(|()| {
            // The waiting action run sees the end of the job.
            job::stop(&dir, cause).map_err(|e| e.to_string())
        });
        if let Err(error) = told {
            tracing::warn!(%turn, error, "cannot stop the turn");
        }
    }

    /// Runs an action on its own; the result comes back through the channel.
    fn start_run(&mut self, id: &LoopId, action: Action) {
        let Some(slot) = self.slots.get_mut(id) else { return };
        let state = slot.state.clone();
        let workspace = slot.workspace.take();
        slot.action_runs += 1;
        let (phase_liveness, seen) = watch::channel(None);
        let mut line = None;
        if let (Action::Spawn { .. } | Action::Adopt { .. }, Phase::Turn(turn)) = (&action, &state.phase) {
            slot.liveness = Some(Liveness::new(turn.id.clone(), turn.started_at, self.clock.now()).seeing(seen));
            line = Some(&turn.id).filter(|_| has_telemetry(agent_of(&state, turn))).and_then(|t| self.port.line(t));
        }
        let task = state.task.id.as_ref().and_then(|t| self.ledger.task(t).ok().flatten());
        let prompt = match &action {
            Action::Spawn { task: id, .. } => {
                // What cannot be read is no reason not to work on a task.
                let written = WrittenForTurn::read(&self.ledger, &state.id, Some(id)).unwrap_or_default();
                prompt::render(&state, task.as_ref(), written, self.clock.now())
            }
            _ => Ok(String::new()),
        };
        let title = task.map_or_else(String::new, |t| t.task.title);
        let now = self.clock.now();
        let (home, shim) = (self.home.clone(), self.shim.clone());
        let outside = self.outside_of(id);
        let action_run =
            ActionRun { home, shim, state, outside, workspace, title, phase_liveness, line, now, base: None };
        let answers = self.answers.clone();
        let id = id.clone();
        tokio::spawn(async move {
            let (input, workspace) = Box::pin(action_run.run(action, prompt)).await;
            // The receiver is gone only when the supervisor is, and its successor recovers the
            // turn.
            let _gone = answers.send(Answer { id, input, workspace }).await;
        });
    }

    /// What became of the turn that is under way in a stored state.
    pub(super) fn find_turn(&self, state: &LoopState) -> TurnTrace {
        let Phase::Turn(turn) = &state.phase else { return TurnTrace::Idle };
        if turn.stage != TurnStage::Running {
            return TurnTrace::Idle;
        }
        match job::inspect(&self.home.turn(&turn.id)) {
            Ok(job::JobTrace::Alive { .. }) => TurnTrace::Alive,
            Ok(job::JobTrace::Exited(mut exit)) => {
                // The base of a turn is never taken from a file of its job.
                exit.base = None;
                let dir = self.home.turn(&turn.id);
                Follow::new(dir, agent_of(state, turn), turn, Vec::new()).finish(&mut exit);
                TurnTrace::Exited(exit)
            }
            Ok(job::JobTrace::Gone) => TurnTrace::Gone,
            Err(e) => {
                tracing::warn!(turn = %turn.id, error = %e, "cannot read the turn's folder; the turn counts as lost");
                TurnTrace::Gone
            }
        }
    }
}
