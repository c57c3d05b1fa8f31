//! What others are told: a status every few turns (`[mailbox]`), and what happens to tasks (`[tracker]`). Nobody waits for it: the
//! queue and the time are bounded, and a failure is a line in the log and nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_agents::tell::tell;
use everloop_core::event::Event;
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::op::{TaskRow, TaskState};
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_core::why::why;
use everloop_store::Ledger;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::board::file;
use crate::error::Failure;

/// What waits to be told; when others are slower than we are, the rest is not told.
const QUEUE: usize = 256;
/// A command that takes longer is ended.
const WITHIN: Duration = Duration::from_secs(20);

/// What a supervisor that goes still waits for.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Something to be told.
struct Call {
    argv: Vec<String>,
    dir: PathBuf,
    input: Value,
}

/// What was told so far.
#[derive(Default)]
pub(super) struct Outside {
    queue: Option<(mpsc::Sender<Call>, JoinHandle<()>)>,
    /// Tasks as they were at the last look; nothing is told about the first one.
    tasks: Option<BTreeMap<TaskId, TaskRow>>,
}

impl Outside {
    /// Tells how a loop is doing, if a turn has ended and it is time to.
    pub(super) fn status(&mut self, argv: &[String], every: u32, state: &LoopState, (events, now): (&[Event], Time)) {
        let ended = events.iter().any(|event| matches!(event, Event::TurnEnded { .. } | Event::Ended { .. }));
        if argv.is_empty() || !ended || !(state.is_over() || state.turns.is_multiple_of(every.max(1))) {
            return;
        }
        let input = json!({
            "schema_version": 1,
            "kind": "status",
            "loop": state.id,
            "name": state.name,
            "phase": state.phase.label(),
            "turns": state.turns,
            "checks": { "passing": state.board.passing().len(), "total": state.board.0.len() },
            "text": why(state, now, &|at| at.0.to_string()),
        });
        self.send(Call { argv: argv.to_vec(), dir: PathBuf::from(&state.spec.workspace.dir), input });
    }

    /// Looks at the tasks; what changed since the last look is handed to those who want to know.
    pub(super) fn tasks(
        &mut self,
        ledger: &impl Ledger,
        trackers: &[(PathBuf, Vec<String>)],
        dir_of: impl Fn(&LoopId) -> Option<PathBuf>,
    ) -> Result<(), Failure> {
        let now: BTreeMap<TaskId, TaskRow> =
            file::rows(ledger)?.into_iter().map(|row| (row.task.id.clone(), row)).collect();
        let Some(before) = self.tasks.replace(now.clone()) else { return Ok(()) };
        for (id, row) in &now {
            let Some(action) = change(before.get(id), row) else { continue };
            let home = row.task.owner.as_ref().and_then(&dir_of);
            for (dir, argv) in trackers.iter().filter(|(dir, _)| home.as_ref().is_none_or(|home| home == dir)) {
                self.track(argv, dir, action, row);
            }
        }
        Ok(())
    }

    fn track(&mut self, argv: &[String], dir: &Path, action: &str, row: &TaskRow) {
        let argv = [argv, &[action.to_owned(), row.task.id.to_string()]].concat();
        let input = json!({ "schema_version": 1, "kind": "task", "action": action, "task": file::as_json(row) });
        self.send(Call { argv, dir: dir.to_owned(), input });
    }

    /// The supervisor goes: what waits is told, if that is quick.
    pub(super) async fn finish(&mut self) {
        let Some((queue, telling)) = self.queue.take() else { return };
        drop(queue);
        if timeout(LAST_WORDS, telling).await.is_err() {
            tracing::debug!("the last words to the outside were not heard");
        }
    }

    fn send(&mut self, call: Call) {
        let (queue, _) = self.queue.get_or_insert_with(|| {
            let (queue, calls) = mpsc::channel(QUEUE);
            (queue, tokio::spawn(tell_all(calls)))
        });
        if queue.try_send(call).is_err() {
            tracing::warn!("the outside is slower than the loops; something was not told");
        }
    }
}

/// What happened to a task, in the words of a tracker.
fn change(before: Option<&TaskRow>, now: &TaskRow) -> Option<&'static str> {
    match (before.map(|row| (&row.state, row.fence)), &now.state) {
        (None, TaskState::Queued | TaskState::Leased { .. } | TaskState::Blocked) => Some("create"),
        (Some((TaskState::Done, _)), TaskState::Done) | (None, TaskState::Dead | TaskState::Done) => None,
        (Some(_), TaskState::Done) => Some("complete"),
        (Some((TaskState::Leased { .. }, fence)), TaskState::Leased { .. }) if fence == now.fence => None,
        (Some(_), TaskState::Leased { .. }) => Some("claim"),
        (Some((before, _)), after) if before.label() != after.label() => Some("comment"),
        (Some(_), _) => None,
    }
}

/// One after the other, so that a tracker sees things in their order.
async fn tell_all(mut calls: mpsc::Receiver<Call>) {
    while let Some(call) = calls.recv().await {
        if let Err(error) = tell(&call.argv, &call.dir, &format!("{}\n", call.input), WITHIN).await {
            tracing::warn!(error, "somebody outside could not be told; the loops go on");
        }
    }
}
