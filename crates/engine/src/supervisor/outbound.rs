//! Outbound reports: a status every few turns (`[mailbox]`), and changes of tasks (`[tracker]`).
//! Nothing waits for them: they are sent apart from the owner, for a bounded time. What is due is
//! derived from the current state and from what was sent last, which is in the ledger: so reports
//! catch up after a crash, and after the receiver was away.
//!
//! A crash between the sending and its record sends the same again, under the same key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_agents::exchange::{DeliveryError, tell};
use everloop_agents::post::{Post, post};
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::op::{Op, TaskRow};
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_core::tracker::{MAILBOX, Mailed, TOLD_VERSION, TRACKER, TrackedTask, TrackerState, wait};
use everloop_core::why::why;
use everloop_store::Ledger;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::account;
use crate::board::file;
use crate::error::Failure;
use crate::projects::OutboundTarget;

/// Reports sent in one go; the rest comes after it.
const BATCH: usize = 64;
/// Results that wait for the owner; a sender of one more waits.
const ANSWERS: usize = 64;
/// A receiver that takes longer counts as away.
const WITHIN: Duration = Duration::from_secs(20);
/// How long an ending supervisor waits for deliveries.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(2);

/// The connection to a receiver.
#[derive(Debug, Default)]
struct Line {
    /// A report is being sent now.
    busy: bool,
    /// Failures in a row.
    failures: u32,
    /// Nothing is sent before this.
    until: Time,
}

impl Line {
    fn is_free(&self, now: Time) -> bool {
        !self.busy && self.until <= now
    }
}

/// One report to send.
struct Call {
    /// Arguments appended to the program's own.
    words: Vec<String>,
    key: String,
    input: Value,
}

/// The record to write after the delivery.
enum Then {
    Task(TaskId, TrackedTask),
    Mail(Mailed),
}

/// The result of a delivery.
pub(super) struct DeliveryResult {
    line: String,
    /// What was delivered, or refused.
    then: Vec<Then>,
    /// Why the rest was not.
    error: Option<String>,
}

/// The connections to all receivers.
pub(super) struct Outbound {
    sender: mpsc::Sender<DeliveryResult>,
    /// Results of deliveries.
    pub(super) heard: mpsc::Receiver<DeliveryResult>,
    lines: BTreeMap<String, Line>,
    trackers: BTreeMap<String, (u64, TrackerState)>,
    mailed: BTreeMap<LoopId, (u64, Mailed)>,
    /// Whether loops that ended without a supervisor were checked.
    looked_back: bool,
}

impl Default for Outbound {
    fn default() -> Self {
        let (sender, heard) = mpsc::channel(ANSWERS);
        let (lines, trackers, mailed) = Default::default();
        Self { sender, heard, lines, trackers, mailed, looked_back: false }
    }
}

impl Outbound {
    /// Sends the status of a loop, if that is due and configured.
    pub(super) fn status(
        &mut self,
        ledger: &mut impl Ledger,
        (sink, every): (&OutboundTarget, u32),
        state: &LoopState,
        now: Time,
    ) -> Result<(), Failure> {
        if !self.mailed.contains_key(&state.id) {
            let found = read(ledger, MAILBOX, state.id.as_str())?;
            // From now on a supervisor that starts later knows that this loop's end must be
            // reported.
            let first =
                found.map_or_else(|| write(ledger, (MAILBOX, state.id.as_str()), 0, &Mailed::default(), now), Ok)?;
            self.mailed.insert(state.id.clone(), first);
        }
        let (_, told) = &self.mailed[&state.id];
        let line = self.lines.entry(mail_line(&state.id)).or_default();
        if !told.is_due(state, every) || !line.is_free(now) {
            return Ok(());
        }
        line.busy = true;
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
        let key = format!("{}:status:{}:{}", state.id, state.turns, state.phase.label());
        let call = Call { words: Vec::new(), key, input };
        let dir = PathBuf::from(&state.spec.workspace.dir);
        self.send((mail_line(&state.id), sink.clone(), dir), vec![(call, Then::Mail(Mailed::of(state)))]);
        Ok(())
    }

    /// Ids of loops with an end that was never reported; returns them once.
    pub(super) fn look_back(&mut self, ledger: &impl Ledger) -> Result<Vec<LoopId>, Failure> {
        if std::mem::replace(&mut self.looked_back, true) {
            return Ok(Vec::new());
        }
        let open = |body: &str| serde_json::from_str::<Mailed>(body).is_ok_and(|mailed| !mailed.over);
        let rows = ledger.docs(MAILBOX)?.into_iter().filter(|row| open(&row.body));
        Ok(rows.map(|row| LoopId::new(row.key)).collect())
    }

    /// Sends a project's tracker the changes of its tasks and of those without a loop.
    pub(super) fn tasks(
        &mut self,
        ledger: &mut impl Ledger,
        (dir, sink): (&Path, &OutboundTarget),
        is_here: impl Fn(&LoopId) -> bool,
        now: Time,
    ) -> Result<(), Failure> {
        let name = dir.display().to_string();
        if !self.lines.entry(track_line(&name)).or_default().is_free(now) {
            return Ok(());
        }
        let mut rows: Vec<TaskRow> = file::rows(ledger)?;
        rows.retain(|row| row.task.owner.as_ref().is_none_or(&is_here));
        if !self.trackers.contains_key(&name) {
            let found = read(ledger, TRACKER, &name)?;
            let first = found
                .map_or_else(|| write(ledger, (TRACKER, name.as_str()), 0, &TrackerState::begin(&rows), now), Ok)?;
            self.trackers.insert(name.clone(), first);
        }
        let Some((version, told)) = self.trackers.get_mut(&name) else { return Ok(()) };
        let due = told.due(&rows, BATCH);
        if due.is_empty() {
            if told.settle(&rows) {
                *version = write(ledger, (TRACKER, name.as_str()), *version, told, now)?.0;
            }
            return Ok(());
        }
        let calls = due.into_iter().map(|change| {
            let (action, task) = (change.step.word(), file::as_json(change.row));
            let input =
                json!({ "schema_version": 1, "kind": "task", "action": action, "key": change.key(), "task": task });
            let words = vec![action.to_owned(), change.row.task.id.to_string()];
            let then = Then::Task(change.row.task.id.clone(), change.then.clone());
            (Call { words, key: change.key(), input }, then)
        });
        let calls: Vec<(Call, Then)> = calls.collect();
        self.lines.entry(track_line(&name)).or_default().busy = true;
        self.send((track_line(&name), sink.clone(), dir.to_owned()), calls);
        Ok(())
    }

    /// Records what was delivered.
    pub(super) fn take(&mut self, ledger: &mut impl Ledger, heard: DeliveryResult, now: Time) -> Result<(), Failure> {
        let line = self.lines.entry(heard.line.clone()).or_default();
        line.busy = false;
        match heard.error {
            Some(error) => {
                line.failures = line.failures.saturating_add(1);
                line.until = now + wait(line.failures);
                if line.failures == 1 {
                    tracing::warn!(error, "cannot deliver an outbound report; the loops go on, and it is sent later");
                }
            }
            None => *line = Line::default(),
        }
        if let Some(name) = heard.line.strip_prefix(TRACK)
            && let Some((version, told)) = self.trackers.get_mut(name)
            && !heard.then.is_empty()
        {
            for then in heard.then {
                if let Then::Task(task, known) = then {
                    told.take(task, known);
                }
            }
            *version = write(ledger, (TRACKER, name), *version, told, now)?.0;
        } else if let Some(id) = heard.line.strip_prefix(MAIL)
            && let Some((version, told)) = self.mailed.get_mut(&LoopId::new(id))
            && let Some(Then::Mail(mailed)) = heard.then.into_iter().next()
        {
            *told = mailed;
            *version = write(ledger, (MAILBOX, id), *version, told, now)?.0;
            // An ended loop is no longer followed; if it goes on, the ledger knows what was sent.
            if told.over {
                self.mailed.remove(&LoopId::new(id));
                self.lines.remove(&heard.line);
            }
        }
        Ok(())
    }

    /// The next result of a delivery under way, as long as there is time.
    pub(super) async fn next(&mut self, end: Instant) -> Option<DeliveryResult> {
        if !self.lines.values().any(|line| line.busy) {
            return None;
        }
        timeout_at(end, self.heard.recv()).await.ok().flatten()
    }

    /// Whether a connection waits for its next attempt.
    pub(super) fn waits(&self) -> bool {
        self.lines.values().any(|line| line.failures > 0)
    }

    /// Loops with a configured status receiver, as far as they are known here.
    pub(super) fn mails(&self) -> Vec<LoopId> {
        self.mailed.keys().cloned().collect()
    }

    /// One after the other, so that reports arrive in order; a receiver that is away does not get
    /// the rest.
    fn send(&self, (line, sink, dir): (String, OutboundTarget, PathBuf), calls: Vec<(Call, Then)>) {
        let sender = self.sender.clone();
        tokio::spawn(async move {
            let (mut done, mut error) = (Vec::new(), None);
            for (call, then) in calls {
                match say(&sink, &dir, call).await {
                    Ok(()) => done.push(then),
                    Err(DeliveryError::Refused(why)) => {
                        tracing::warn!(why, "a receiver refused an outbound report");
                        done.push(then);
                    }
                    Err(DeliveryError::Away(why)) => {
                        error = Some(why);
                        break;
                    }
                }
            }
            // The channel is closed only when the supervisor is gone; then it is sent again.
            let _gone = sender.send(DeliveryResult { line, then: done, error }).await;
        });
    }
}

async fn say(sink: &OutboundTarget, dir: &Path, call: Call) -> Result<(), DeliveryError> {
    let text = format!("{}\n", call.input);
    match sink {
        OutboundTarget::Command(argv) => tell(&[argv.as_slice(), &call.words].concat(), dir, &text, WITHIN).await,
        OutboundTarget::Http { url, token } => {
            let token = token.as_ref().map(account::from).transpose().map_err(DeliveryError::Away)?;
            let token = token.map(|token| token.to_string_lossy().into_owned());
            post(Post { url: url.clone(), token, key: call.key, body: text }, WITHIN).await
        }
    }
}

const TRACK: &str = "tracker ";
const MAIL: &str = "mailbox ";

fn track_line(name: &str) -> String {
    format!("{TRACK}{name}")
}

fn mail_line(id: &LoopId) -> String {
    format!("{MAIL}{id}")
}

/// An unreadable or newer record is an error and not a reason to send everything again.
fn read<T: DeserializeOwned>(ledger: &impl Ledger, kind: &str, key: &str) -> Result<Option<(u64, T)>, Failure> {
    let Some(row) = ledger.doc(kind, key)? else { return Ok(None) };
    let broken = |why: String| Failure::failed(format!("cannot read what the {kind} was sent: {why}"));
    let value: Value = serde_json::from_str(&row.body).map_err(|e| broken(e.to_string()))?;
    if value["told_version"].as_u64().is_none_or(|version| version > u64::from(TOLD_VERSION)) {
        return Err(broken("a newer everloop wrote it".to_owned()));
    }
    Ok(Some((row.version, serde_json::from_value(value).map_err(|e| broken(e.to_string()))?)))
}

fn write<T: Serialize + Clone>(
    ledger: &mut impl Ledger,
    (kind, key): (&str, &str),
    version: u64,
    told: &T,
    now: Time,
) -> Result<(u64, T), Failure> {
    let body = serde_json::to_string(told).expect("a record is plain data and always has a JSON form");
    let save = Op::SaveDoc { kind: kind.to_owned(), key: key.to_owned(), version, body };
    let replies = ledger.transact(now, &[save])?;
    let saved = replies.first().and_then(everloop_core::op::Reply::version).unwrap_or(version + 1);
    Ok((saved, told.clone()))
}
