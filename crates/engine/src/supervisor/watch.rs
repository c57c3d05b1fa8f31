//! Beats: polls the monitors of loops. Polls run apart from the owner task, bounded in time, and a
//! beat that finds nothing writes nothing and starts nothing. What is remembered here is lost with
//! the process; what was seen is in the loop's state.

use std::path::PathBuf;

use everloop_agents::monitor::{self, Probe};
use everloop_core::action::Input;
use everloop_core::ids::LoopId;
use everloop_core::isolation::Isolation;
use everloop_core::spec::LoopSpec;
use everloop_core::watch::{Blind, MonitorCursor, MonitorSpec, Target, WatchReading, WatchedContent};
use everloop_store::{Ledger, Recipients, shell};

use super::{Answer, Supervisor, Watcher};
use crate::error::Failure;
use crate::isolation;
use crate::mailbox::MessageBody;

/// Messages of a mailbox that are read; it holds no more.
const MAILBOX_POLL_INTERVAL: usize = 200;

impl Supervisor {
    /// Makes all monitors of a loop due soon.
    pub(super) fn look_soon(&mut self, id: &LoopId) {
        if let Some(slot) = self.slots.get_mut(id) {
            slot.rounds.look_soon();
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
            let due = slot.rounds.begin(&state, now);
            let mut looks = Vec::new();
            let mut far = Vec::new();
            for monitor in due {
                if shell::is_told(&self.ledger, &state, monitor)? {
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
                self.go_and_look(&id, state.spec, looks, far);
            }
        }
        Ok(())
    }

    fn go_and_look(
        &mut self,
        id: &LoopId,
        spec: LoopSpec,
        mut looks: Vec<WatchReading>,
        far: Vec<(MonitorSpec, Option<MonitorCursor>)>,
    ) {
        let Some(slot) = self.slots.get_mut(id) else { return };
        slot.rounds.wait();
        let (answers, id, state) = (self.answers.clone(), id.clone(), self.home.root().to_owned());
        let dir = PathBuf::from(&spec.workspace.dir);
        tokio::spawn(async move {
            // A monitor that hangs delays the beat for no longer than its own timeout, not the sum
            // of all.
            let far = far.into_iter().map(|(m, seen)| (isolation::of_monitor(&spec, &m, &state), m, seen));
            let out: Vec<_> =
                far.map(|(isolation, m, seen)| tokio::spawn(look((m, isolation), dir.clone(), seen))).collect();
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
        looks: Vec<WatchReading>,
        watcher: &mut impl Watcher,
    ) -> Result<(), Failure> {
        for look in &looks {
            if let Err(blind) = &look.found {
                tracing::debug!(owner = %id, monitor = look.monitor, why = blind.why, "cannot poll the monitor");
            }
        }
        match self.slots.get_mut(id).and_then(|slot| slot.rounds.end(looks)) {
            Some(beat) => self.handle(id, &beat, watcher).await,
            None => Ok(()),
        }
    }
}

async fn look(
    (monitor, isolation): (MonitorSpec, Isolation),
    dir: PathBuf,
    seen: Option<MonitorCursor>,
) -> WatchReading {
    let probe = Probe { monitor: &monitor, dir: &dir, isolation: &isolation };
    let found = monitor::look(probe, seen.as_ref()).await;
    let found = found.map_err(|why| Blind { why, times: 0 });
    WatchReading { monitor: monitor.name, from: seen.map(|seen| seen.cursor), found }
}
