//! Messages from other processes: commands for a loop, notices for the supervisor. Each takes
//! effect exactly once.

use std::collections::BTreeSet;

use everloop_agents::environment::Outside;
use everloop_core::action::{Input, LoopCommand};
use everloop_core::event::Event;
use everloop_core::ids::LoopId;
use everloop_core::op::{Message, Op};
use everloop_store::{Ledger, LoopRow, Recipients, shell};
use serde::{Deserialize, Serialize};

use super::{LoopSelection, Supervisor, Watcher};
use crate::brought;
use crate::error::Failure;

/// The recipient name of the supervisor itself.
pub const SUPERVISOR: &str = "*";
/// Messages read at once; the rest is read in the next round.
const ROUND: usize = 100;

/// Messages to the supervisor itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "notice", rename_all = "snake_case")]
pub enum Notice {
    /// Supervise this loop, too.
    Attend { id: LoopId },
}

impl Supervisor {
    /// The environment of a loop: that of the `run` that waits for it, or this process's own.
    pub(super) fn outside_of(&self, id: &LoopId) -> Outside {
        self.attended.get(id).and_then(Clone::clone).unwrap_or_else(|| self.ours.clone())
    }

    pub(super) fn inbox_is_empty(&self) -> Result<bool, Failure> {
        Ok(self.ledger.messages(Recipients::These(&self.recipients()), 1)?.is_empty())
    }

    /// Those of these loops that have messages. Mailboxes that are never emptied do not hide them.
    pub(super) fn addressed(&self, loops: &[LoopRow]) -> Result<BTreeSet<String>, Failure> {
        let ids: Vec<String> = loops.iter().map(|row| row.id.to_string()).collect();
        Ok(self.ledger.messages(Recipients::These(&ids), ROUND)?.into_iter().map(|m| m.to).collect())
    }

    fn recipients(&self) -> Vec<String> {
        let loops = self.slots.keys().map(ToString::to_string);
        loops.chain([SUPERVISOR.to_owned()]).collect()
    }

    /// Notices widen the reach of a supervisor that was started for certain loops only. Returns the
    /// loops that a `run` began to wait for.
    pub(super) fn read_notices(&mut self) -> Result<Vec<LoopId>, Failure> {
        let mut called = Vec::new();
        for message in self.ledger.messages(Recipients::These(&[SUPERVISOR.to_owned()]), ROUND)? {
            match serde_json::from_str(&message.body) {
                Ok(Notice::Attend { id }) => {
                    if let LoopSelection::Only(ids) = &mut self.reach {
                        ids.insert(id.clone());
                    }
                    let brought = brought::take(&self.home, &id);
                    if self.attended.insert(id.clone(), brought).is_none() {
                        called.push(id);
                    }
                }
                Err(e) => tracing::warn!(id = message.id, error = %e, "dropped an unreadable notice"),
            }
            self.ledger.transact(self.clock.now(), &[Op::Consume { ids: vec![message.id] }])?;
        }
        Ok(called)
    }

    pub(super) async fn read_commands(&mut self, watcher: &mut impl Watcher) -> Result<(), Failure> {
        let own = self.slots.keys().map(ToString::to_string).collect::<Vec<_>>();
        loop {
            let messages = self.ledger.messages(Recipients::These(&own), ROUND)?;
            if messages.is_empty() {
                return Ok(());
            }
            for message in messages {
                self.obey(&message, watcher).await?;
            }
        }
    }

    /// The command's events and the removal of the message are one transaction.
    async fn obey(&mut self, message: &Message, watcher: &mut impl Watcher) -> Result<(), Failure> {
        let id = LoopId::new(message.to.clone());
        let (input, consume) = shell::obey(message);
        match input {
            Ok(input) => self.handle_with(&id, &input, &[consume], watcher).await,
            Err(e) => {
                let text = format!("dropped an unreadable message from {}: {e}", message.by);
                let note = Op::Append { owner: None, events: vec![Event::Note { text }] };
                self.ledger.transact(self.clock.now(), &[consume, note])?;
                Ok(())
            }
        }
    }
}

/// Ctrl-C as a command.
pub fn stop_command(now: bool) -> Input {
    Input::Command { by: "interrupt".to_owned(), command: LoopCommand::Stop { now } }
}
