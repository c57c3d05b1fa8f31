//! Reports to other programs: a status every few turns (`[mailbox]`), and changes of tasks
//! (`[tracker]`). What is due is derived from the current state and from what was sent last, which
//! is in the ledger: so reports catch up after a crash, and after the receiver was away.

use std::path::Path;

use everloop_agents::channel::Receiver;
use everloop_core::ids::LoopId;
use everloop_core::isolation::Isolation;
use everloop_core::op::TaskRow;
use everloop_core::outbound::reports::{MAILBOX, Mailed, Reported, TrackerState, TrackerUpdate};
use everloop_core::outbound::tickets::Severity;
use everloop_core::outbound::{Delivery, Record, Report};
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_core::why::why;
use everloop_store::Ledger;
use serde_json::json;

use super::{Supervisor, Until};
use crate::board::file;
use crate::error::Failure;
use crate::isolation;
use crate::outboxes::RecordId;
use crate::record::read_state;

/// Changes sent in one go; the rest comes after it.
const BATCH: usize = 64;

impl Supervisor {
    /// Sends each tracker and mailbox what it does not have yet.
    pub(super) fn send_reports(&mut self, now: Time) -> Result<(), Failure> {
        if self.until == Until::Idle {
            return Ok(());
        }
        let wanted = self.wanted();
        for (dir, spec) in &wanted {
            if let Some(tracker) = &spec.tracker {
                self.report_tasks(dir, tracker, now)?;
            }
        }
        let known = self.outbound.lines.keys().filter_map(|id| match id {
            RecordId::Mailbox(id) => Some(id.clone()),
            RecordId::Notifier(_) | RecordId::Tracker(_) => None,
        });
        let mut ids: Vec<LoopId> = known.collect();
        if wanted.iter().any(|(_, spec)| spec.mailbox.is_some()) {
            ids.extend(self.look_back()?);
        }
        for id in ids {
            self.report_status(&id);
        }
        Ok(())
    }

    /// Ids of loops with an end that was never reported; returns them once.
    fn look_back(&mut self) -> Result<Vec<LoopId>, Failure> {
        if std::mem::replace(&mut self.outbound.looked_back, true) {
            return Ok(Vec::new());
        }
        let open = |body: &str| serde_json::from_str::<Mailed>(body).is_ok_and(|mailed| !mailed.over);
        let rows = self.ledger.docs(MAILBOX)?.into_iter().filter(|row| open(&row.body));
        Ok(rows.map(|row| LoopId::new(row.key)).collect())
    }

    /// Sends a project's tracker the changes of its tasks and of those without a loop.
    fn report_tasks(&mut self, dir: &Path, to: &Receiver, now: Time) -> Result<(), Failure> {
        let id = RecordId::Tracker(dir.display().to_string());
        if self.outbound.lines.get_mut(&id).is_some_and(|line| !line.is_free(now)) {
            return Ok(());
        }
        // A loop that is no longer supervised is reported to every project.
        let is_here = |id: &LoopId| self.folder_of(id).is_none_or(|home| home == dir);
        let mut rows: Vec<TaskRow> = file::rows(&self.ledger)?;
        rows.retain(|row| row.task.owner.as_ref().is_none_or(is_here));
        let (reports, to) = (self.outbound.sender.clone(), self.in_folder(to, dir));
        let first = || Record::Tasks(TrackerState::begin(&rows));
        let line = self.outbound.line(&id, first, (&mut self.ledger, now))?;
        let mut record = line.record.clone();
        let Record::Tasks(told) = &mut record else { return Ok(()) };
        let due: Vec<Delivery> = told.due(&rows, BATCH).iter().map(change).collect();
        let settled = due.is_empty() && told.settle(&rows);
        told.queue.fill(due, now);
        if settled {
            line.keep(&id, record, (&mut self.ledger, now))?;
        } else {
            line.record = record;
        }
        line.send(&id, to, (now, &reports));
        Ok(())
    }

    /// Sends the status of a loop, if that is due and its project wants it.
    pub(super) fn report_status(&mut self, id: &LoopId) {
        if let Err(failure) = self.try_status(id) {
            self.outbound.complain(&failure);
        }
    }

    fn try_status(&mut self, id: &LoopId) -> Result<(), Failure> {
        if self.until == Until::Idle {
            return Ok(());
        }
        let state = match self.slots.get(id) {
            Some(slot) => slot.state.clone(),
            None => match self.ledger.get_loop(id)? {
                Some(row) => read_state(&row)?,
                None => return Ok(()),
            },
        };
        let dir = Path::new(&state.spec.workspace.dir);
        let spec = self.outbound_of(dir);
        let Some(to) = &spec.mailbox else { return Ok(()) };
        let (now, id) = (self.clock.now(), RecordId::Mailbox(id.clone()));
        let (reports, to) = (self.outbound.sender.clone(), self.in_folder(to, dir));
        let first = || Record::Status(Mailed::default());
        let line = self.outbound.line(&id, first, (&mut self.ledger, now))?;
        if line.is_free(now)
            && let Record::Status(told) = &mut line.record
        {
            let due = told.is_due(&state, spec.every).then(|| status(&state, now));
            told.queue.fill(due.into_iter().collect(), now);
            line.send(&id, to, (now, &reports));
        }
        Ok(())
    }

    /// A command of a project runs in its folder.
    fn in_folder(&self, to: &Receiver, dir: &Path) -> (Receiver, Isolation) {
        let receiver = Receiver { dir: Some(dir.to_owned()), ..to.clone() };
        let isolation = isolation::of_receiver(&receiver, self.home.root());
        (receiver, isolation)
    }
}

fn change(update: &TrackerUpdate<'_>) -> Delivery {
    let (action, key, row) = (update.step.word(), update.key(), update.row);
    let task = file::as_json(row);
    let json = json!({ "schema_version": 1, "kind": "task", "action": action, "key": key, "task": task });
    let words = vec![action.to_owned(), row.task.id.to_string()];
    let then = Reported::Task(row.task.id.clone(), update.then.clone());
    let title = format!("everloop task {}: {action}", row.task.id);
    let report = Some(Report { words, json, then });
    Delivery { key, severity: Severity::Info, title, text: row.task.title.clone(), report, ..Delivery::default() }
}

fn status(state: &LoopState, now: Time) -> Delivery {
    let (phase, text) = (state.phase.label(), why(state, now, &|at| at.0.to_string()));
    let research = state.research.as_ref().map(|found| {
        json!({
            "experiments": found.number,
            "baseline": found.baseline,
            "best": found.champion.value(),
            "kept": found.keep_count(),
            "since_keep": found.since_keep(),
        })
    });
    let json = json!({
        "schema_version": 1,
        "kind": "status",
        "loop": state.id,
        "name": state.name,
        "phase": phase,
        "turns": state.task.turns,
        "checks": { "passing": state.progress.board.passing().len(), "total": state.progress.board.0.len() },
        "research": research,
        "text": text,
    });
    let key = format!("{}:status:{}:{phase}", state.id, state.task.turns);
    let title = format!("everloop loop {}: {phase}", state.id);
    let report = Some(Report { words: Vec::new(), json, then: Mailed::after(state) });
    Delivery { key, severity: Severity::Info, title, text, report, ..Delivery::default() }
}
