//! Follows a loop that another process supervises; ends when the loop does, or when that process is
//! gone. Interrupts take the same steps as in a supervisor, over its mailbox.

use std::time::Duration;

use everloop_core::ids::LoopId;
use everloop_core::op::Op;
use everloop_engine::error::Failure;
use everloop_engine::record::read_state;
use everloop_engine::research::with_findings;
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
    /// The workers of a research run, or the loop alone.
    pub team: &'a [LoopId],
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
            seen = self.print_new(&ledger, seen, watcher)?;
            let Some(row) = ledger.get_loop(self.id)? else { return Ok(ended_by) };
            let state = with_findings(&ledger, read_state(&row)?)?;
            watcher.beat(&state, None, self.session.now());
            if self.is_over(&ledger)? || !self.home.is_owned() || watcher.wants_to_go() {
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

    /// Prints what was recorded after `seen`; returns the last record.
    fn print_new(&self, ledger: &Sqlite, seen: u64, watcher: &mut Foreground<'_>) -> Result<u64, Failure> {
        let mut records = Vec::new();
        for id in self.team {
            records.extend(ledger.journal(seen, Some(id), ROUND)?);
        }
        records.sort_by_key(|record| record.seq);
        // A worker with many records may have more of them before the next one's.
        records.truncate(ROUND);
        for record in &records {
            watcher.say(record);
        }
        Ok(records.last().map_or(seen, |record| record.seq))
    }

    fn is_over(&self, ledger: &Sqlite) -> Result<bool, Failure> {
        for id in self.team {
            if ledger.get_loop(id)?.is_some_and(|row| !row.is_over()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn stop(&self, ledger: &mut Sqlite, step: StopStep) -> Result<(), Failure> {
        let Some(command) = step.command() else { return Ok(()) };
        let body = serde_json::to_string(&command).expect("a command is plain data and always has a JSON form");
        let signal = |id: &LoopId| Op::Signal { to: id.to_string(), by: send::person(), body: body.clone() };
        let signals: Vec<Op> = self.team.iter().map(signal).collect();
        ledger.transact(self.session.now(), &signals)?;
        self.home.wake();
        Ok(())
    }
}
