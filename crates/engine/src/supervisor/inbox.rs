//! Messages from other processes: commands for a loop, notices for the supervisor. Each takes
//! effect exactly once.

use everloop_agents::environment::Outside;
use everloop_core::action::{Input, LoopCommand};
use everloop_core::event::Event;
use everloop_core::ids::LoopId;
use everloop_core::op::{Message, Op};
use everloop_store::{Ledger, Recipients, shell};
use serde::{Deserialize, Serialize};

use super::{LoopSelection, Supervisor, Watcher};
use crate::brought;
use crate::error::Failure;

/// The recipient name of the supervisor itself.
pub const SUPERVISOR: &str = "*";
/// Messages read at once; the rest is read in the next round.
pub(super) const ROUND: usize = 100;

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

    /// Takes some messages; the next round takes more, so that a storm of them holds up neither
    /// timers nor the ends of turns.
    pub(super) async fn read_commands(&mut self, watcher: &mut impl Watcher) -> Result<(), Failure> {
        let messages = self.next_commands(watcher).await?;
        self.census.messages_left = !messages.is_empty();
        for message in messages {
            self.obey(&message, watcher).await?;
        }
        Ok(())
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
