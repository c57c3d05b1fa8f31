//! Completion signs in a turn that has ended: its output and its files. Each wakes the loop once,
//! with an event; only the checks decide whether the goal is reached.

use std::path::PathBuf;

use everloop_agents::workspace::Workspace;
use everloop_core::action::{Input, LoopCommand, TurnTrace};
use everloop_core::event::Exit;
use everloop_core::ids::LoopId;
use everloop_core::op::Op;
use everloop_core::state::Phase;
use everloop_store::{Error, Ledger};

use super::Supervisor;
use crate::completion::{self, CompletionInputs};
use crate::error::Failure;

impl Supervisor {
    /// Looks for signs when a turn has ended; returns whether the loop has a message now. After a
    /// crash the same signs are known already. Without a rule of the project this costs nothing.
    pub(super) fn look_for_signs(&mut self, id: &LoopId, input: &Input) -> Result<bool, Failure> {
        let (Input::Exited { exit, .. } | Input::Recovered { found: TurnTrace::Exited(exit) }) = input else {
            return Ok(false);
        };
        let Some(slot) = self.slots.get(id) else { return Ok(false) };
        let Phase::Turn(turn) = &slot.state.phase else { return Ok(false) };
        let (by, name) = (format!("turn {}", turn.id), slot.state.name.clone());
        let dir: Option<PathBuf> = slot.workspace.as_ref().map(Workspace::turn_dir);
        let project = PathBuf::from(&slot.state.spec.workspace.dir);
        let rules = self.outbound_of(&project).completions;
        if rules.is_empty() {
            return Ok(false);
        }
        let scene =
            CompletionInputs { owner: id.as_str(), name: &name, dir: dir.as_deref(), by: &by, said: last_words(exit) };
        let (told, gone) = completion::look(&self.ledger, &rules, &scene, self.clock.now())?;
        let mut any = false;
        for op in gone {
            self.write_sign(&[op])?;
        }
        for sign in told {
            let body = serde_json::to_string(&LoopCommand::Wake).expect("a command is plain data");
            let wake = Op::Signal { to: id.to_string(), by: sign.waker(), body };
            any |= self.write_sign(&[sign.remember, wake])?;
        }
        Ok(any)
    }

    /// Whether this process was the first to report it: a session in the same project may have seen
    /// it, too.
    fn write_sign(&mut self, batch: &[Op]) -> Result<bool, Failure> {
        match self.ledger.transact(self.clock.now(), batch) {
            Ok(_) => Ok(true),
            Err(Error::Refused(refusal)) => {
                tracing::debug!(%refusal, "another process reported the completion sign");
                Ok(false)
            }
            // A lost sign must not fail a loop.
            Err(e @ Error::Full { .. }) => {
                tracing::warn!(error = %e, "cannot report a completion sign");
                Ok(false)
            }
            Err(e) => Err(e.into()),
        }
    }
}

/// The agent's last words: from its stream, or the end of its output.
fn last_words(exit: &Exit) -> &str {
    exit.report.as_ref().map(|report| report.last_text.as_str()).filter(|text| !text.is_empty()).unwrap_or(&exit.tail)
}
