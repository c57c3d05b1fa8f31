//! Follows a loop that another process supervises; ends when the loop does, or when that process is
//! gone.

use std::time::Duration;

use everloop_core::ids::LoopId;
use everloop_core::state::Phase;
use everloop_engine::error::Failure;
use everloop_engine::record::read_state;
use everloop_engine::state_folder::StateFolder;
use everloop_engine::supervisor::Watcher;
use everloop_store::Ledger;

use super::watch::Foreground;
use crate::cli::VerbSession;

/// How often the ledger is read.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Records read at once.
const ROUND: usize = 200;

/// Prints events of the loop until it is over or its supervisor is gone.
pub fn follow(
    session: &VerbSession,
    home: &StateFolder,
    watcher: &mut Foreground<'_>,
    id: &LoopId,
) -> Result<(), Failure> {
    let ledger = session.writer(home)?;
    let mut seen = ledger.last_seq()?;
    loop {
        for record in ledger.journal(seen, Some(id), ROUND)? {
            seen = record.seq;
            watcher.say(&record);
        }
        let Some(row) = ledger.get_loop(id)? else { return Ok(()) };
        let state = read_state(&row)?;
        watcher.beat(&state, None, session.now());
        if matches!(state.phase, Phase::Ended { .. }) || !home.is_owned() || watcher.wants_to_go() {
            return Ok(());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
