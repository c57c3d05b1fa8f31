//! Beats: polls the monitors of loops. Polls run apart from the owner task, bounded in time, and a
//! beat that finds nothing writes nothing and starts nothing. What is remembered here is lost with
//! the process; what was seen is in the loop's state.

use std::collections::BTreeMap;
use std::path::PathBuf;

use everloop_agents::monitor;
use everloop_core::action::Input;
use everloop_core::decide::Ready;
use everloop_core::ids::LoopId;
use everloop_core::op::TaskState;
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_core::watch::{self, Blind, MonitorCursor, MonitorSpec, Target, WatchReading, WatchedContent};
use everloop_store::{Ledger, Recipients};

use super::{Answer, Supervisor, Watcher};
use crate::error::Failure;
use crate::mailbox::MessageBody;

/// Messages of a mailbox that are read; it holds no more.
const MAILBOX_POLL_INTERVAL: usize = 200;

/// The polls of one loop's monitors.
#[derive(Default)]
pub(super) struct MonitorRounds {
    /// When each was last polled.
    looked: BTreeMap<String, Time>,
    /// Failed polls in a row, by monitor.
    blind: BTreeMap<String, u32>,
    /// Beats in a row without a change.
    empty: u32,
    /// A poll is under way.
    under_way: bool,
}

impl MonitorRounds {
    /// When the next beat is due; not while one is under way.
    pub(super) fn next(&self, state: &LoopState, now: Time) -> Option<Time> {
        watch::next(state, &self.looked, now).filter(|_| !self.under_way)
    }
}

impl Supervisor {
    /// The keepalive that counts, if it is open.
    pub(super) fn keepalive(&self, state: &LoopState) -> Result<Option<Ready>, Failure> {
        let Some(id) = watch::keepalive_of(state) else { return Ok(None) };
        let row = self.ledger.task(&id)?;
        let open = row.filter(|row| matches!(row.state, TaskState::Queued | TaskState::Leased { .. }));
        Ok(open.as_ref().map(Ready::from))
    }

    /// Makes all monitors of a loop due soon.
    pub(super) fn look_soon(&mut self, id: &LoopId) {
        if let Some(slot) = self.slots.get_mut(id) {
            slot.rounds.looked.clear();
            slot.rounds.empty = 0;
        }
    }

    /// Starts a poll for each loop that has a monitor due.
    pub(super) async fn beat(&mut self, watcher: &mut impl Watcher) -> Result<(), Failure> {
        if self.draining {
            return Ok(());
        }
        let now = self.clock.now();
        let is_due = |s: &super::LiveLoop| s.rounds.next(&s.state, now).is_some_and(|at| at <= now);
        let ids: Vec<LoopId> = self.slots.iter().filter(|(_, s)| is_due(s)).map(|(id, _)| id.clone()).collect();
        for id in ids {
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            let state = slot.state.clone();
            let due = watch::due(&state, &slot.rounds.looked, now);
            slot.rounds.looked.extend(due.iter().map(|m| (m.name.clone(), now)));
            let mut looks = Vec::new();
            let mut far = Vec::new();
            for monitor in due {
                if self.is_told(&state, monitor)? {
                    continue;
                }
                let seen = state.watch.seen.get(&monitor.name).cloned();
                match &monitor.target {
                    Target::Mailbox(name) => looks.push(self.look_into(name, monitor, seen.as_ref())?),
                    _ => far.push((monitor.clone(), seen)),
                }
            }
            if far.is_empty() {
                self.take_looks(&id, looks, watcher).await?;
            } else {
                self.go_and_look(&id, state.spec.workspace.dir.into(), looks, far);
            }
        }
        Ok(())
    }

    /// Whether the last change that a monitor saw still waits to be worked on.
    fn is_told(&self, state: &LoopState, monitor: &MonitorSpec) -> Result<bool, Failure> {
        let Some(task) = watch::latest_task(state, monitor) else { return Ok(false) };
        Ok(self.ledger.task(task)?.is_some_and(|row| row.state == TaskState::Queued))
    }

    fn go_and_look(
        &mut self,
        id: &LoopId,
        dir: PathBuf,
        mut looks: Vec<WatchReading>,
        far: Vec<(MonitorSpec, Option<MonitorCursor>)>,
    ) {
        let Some(slot) = self.slots.get_mut(id) else { return };
        slot.rounds.under_way = true;
        let (answers, id) = (self.answers.clone(), id.clone());
        tokio::spawn(async move {
            // A monitor that hangs delays the beat for no longer than its own timeout, not the sum
            // of all.
            let out: Vec<_> = far.into_iter().map(|(m, seen)| tokio::spawn(look(m, dir.clone(), seen))).collect();
            for one in out {
                // A poll that panicked was logged; the next beat polls again.
                looks.extend(one.await.ok());
            }
            let input = Input::Beat { looks, empty: 0 };
            let _gone = answers.send(Answer { id, input, workspace: None }).await;
        });
    }

    /// New messages in a mailbox; they stay there for their recipient.
    fn look_into(
        &self,
        name: &str,
        monitor: &MonitorSpec,
        seen: Option<&MonitorCursor>,
    ) -> Result<WatchReading, Failure> {
        let messages = self.ledger.messages(Recipients::These(&[name.to_owned()]), MAILBOX_POLL_INTERVAL)?;
        let from = seen.map(|seen| seen.cursor.clone());
        let known: u64 = from.as_ref().and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
        let last = messages.iter().map(|m| m.id).max().unwrap_or(0).max(known);
        let new: Vec<String> = messages
            .iter()
            .filter(|m| m.id > known)
            .map(|m| format!("From {}: {}", m.by, MessageBody::of(m).text))
            .collect();
        let summary = format!("{} new in {name}", crate::text::count(new.len() as u64, "message"));
        let found = WatchedContent { cursor: last.to_string(), summary, text: new.join("\n\n") };
        Ok(WatchReading { monitor: monitor.name.clone(), from, found: Ok(found) })
    }

    /// Handles the results of a poll.
    pub(super) async fn take_looks(
        &mut self,
        id: &LoopId,
        mut looks: Vec<WatchReading>,
        watcher: &mut impl Watcher,
    ) -> Result<(), Failure> {
        let Some(slot) = self.slots.get_mut(id) else { return Ok(()) };
        let rounds = &mut slot.rounds;
        rounds.under_way = false;
        if looks.is_empty() {
            return Ok(());
        }
        for look in &mut looks {
            let times = rounds.blind.entry(look.monitor.clone()).or_default();
            match &mut look.found {
                Ok(_) => *times = 0,
                Err(blind) => {
                    *times += 1;
                    blind.times = *times;
                    tracing::debug!(owner = %id, monitor = look.monitor, why = blind.why, "cannot poll the monitor");
                }
            }
        }
        rounds.empty = if looks.iter().any(WatchReading::is_news) { 0 } else { rounds.empty.saturating_add(1) };
        let empty = rounds.empty;
        self.handle(id, &Input::Beat { looks, empty }, watcher).await
    }
}

async fn look(monitor: MonitorSpec, dir: PathBuf, seen: Option<MonitorCursor>) -> WatchReading {
    let found = monitor::look(&monitor, &dir, seen.as_ref()).await;
    let found = found.map_err(|why| Blind { why, times: 0 });
    WatchReading { monitor: monitor.name, from: seen.map(|seen| seen.cursor), found }
}
