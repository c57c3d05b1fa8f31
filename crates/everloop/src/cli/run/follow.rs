//! Follows a loop that another process supervises; ends when the loop does, or when that process is
//! gone. Interrupts take the same steps as in a supervisor, over its mailbox.

use std::time::Duration;

use everloop_core::ids::LoopId;
use everloop_core::op::Op;
use everloop_core::state::Phase;
use everloop_engine::error::Failure;
use everloop_engine::record::read_state;
use everloop_engine::state_folder::StateFolder;
use everloop_engine::supervisor::{Interrupt, Signals, StopStep, Watcher};
use everloop_store::{Ledger, Sqlite};
use tokio::time::sleep;

use super::watch::Foreground;
use crate::cli::VerbSession;
use crate::cli::message::send;

/// How often the ledger is read.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Records read at once.
const ROUND: usize = 200;

/// A loop that is followed.
pub struct Followed<'a> {
    pub session: &'a VerbSession,
    pub home: &'a StateFolder,
    pub id: &'a LoopId,
}

impl Followed<'_> {
    /// Prints events of the loop until it is over or its supervisor is gone. Returns the signal after
    /// which this process should end, if there was one.
    pub async fn follow(&self, watcher: &mut Foreground<'_>) -> Result<Option<Interrupt>, Failure> {
        let mut ledger = self.session.writer(self.home)?;
        let mut seen = ledger.last_seq()?;
        let mut signals = Signals::listen()?;
        let (mut interrupts, mut ended_by) = (0, None);
        loop {
            for record in ledger.journal(seen, Some(self.id), ROUND)? {
                seen = record.seq;
                watcher.say(&record);
            }
            let Some(row) = ledger.get_loop(self.id)? else { return Ok(ended_by) };
            let state = read_state(&row)?;
            watcher.beat(&state, None, self.session.now());
            if matches!(state.phase, Phase::Ended { .. }) || !self.home.is_owned() || watcher.wants_to_go() {
                return Ok(ended_by);
            }
            let interrupt = tokio::select! {
                Some(interrupt) = signals.next() => interrupt,
                () = sleep(POLL_INTERVAL) => continue,
            };
            ended_by = Some(interrupt);
            interrupts += 1;
            let step = StopStep::of(interrupts);
            if interrupt == Interrupt::Term || step == StopStep::Leave {
                watcher.leaves();
                return Ok(ended_by);
            }
            watcher.stopping(step);
            self.stop(&mut ledger, step)?;
        }
    }

    fn stop(&self, ledger: &mut Sqlite, step: StopStep) -> Result<(), Failure> {
        let Some(command) = step.command() else { return Ok(()) };
        let body = serde_json::to_string(&command).expect("a command is plain data and always has a JSON form");
        ledger.transact(self.session.now(), &[Op::Signal { to: self.id.to_string(), by: send::person(), body }])?;
        self.home.wake();
        Ok(())
    }
}
