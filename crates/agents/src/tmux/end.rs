//! Ends a pane of everloop with all processes of its program.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::call::TmuxCommand;
use super::pane::{Pane, PaneOrigin};
use super::{PaneError, TmuxServer};
use crate::process::{self, Identity};

/// Agents save their session and run their last hooks after SIGTERM; measured well under a second.
const GRACE: Duration = Duration::from_secs(5);
/// What survives that is killed; the kernel needs a moment to remove it.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// Poll interval while waiting for the end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl TmuxServer {
    /// Ends a pane that everloop started and removes its record. An adopted one is only released:
    /// its program belongs to a person.
    pub fn kill(&self, name: &str) -> Result<Pane, PaneError> {
        let _lock = self.files.lock(&self.pane(name)?.name)?;
        let pane = self.pane(name)?;
        if matches!(pane.origin, PaneOrigin::Started(_)) && self.snapshot(&pane)?.is_some() {
            self.end_program(&pane)?;
            let script = TmuxCommand::new(&format!("kill-pane -t {}", pane.id()));
            script.run(self.socket(), "close a pane")?;
        }
        self.files.forget(&pane.name)?;
        Ok(pane)
    }

    /// Ends the program and its descendants: agents put their tools into sessions of their own, so
    /// neither tmux nor a process group reaches them.
    #[expect(
        clippy::unused_self,
        reason = "only a server knows that a pane is its own; it checks before it calls this"
    )]
    pub(super) fn end_program(&self, pane: &Pane) -> Result<(), PaneError> {
        if !pane.process.is_alive() {
            return Ok(());
        }
        let mut family: Vec<Identity> =
            process::descendants(pane.process.pid).iter().map(process::Stat::identity).collect();
        family.push(pane.process.clone());
        signal(std::slice::from_ref(&pane.process), Signal::SIGTERM);
        wait_for_end(&family, GRACE);
        // Children that were started after the first scan; those of an ended program can no longer
        // be found.
        family.extend(process::descendants(pane.process.pid).iter().map(process::Stat::identity));
        family.retain(Identity::is_alive);
        signal(&family, Signal::SIGKILL);
        if wait_for_end(&family, KILL_LIMIT) {
            return Ok(());
        }
        Err(PaneError::Refused { what: "end the program", said: "it survived SIGKILL".to_owned() })
    }
}

fn signal(family: &[Identity], signal: Signal) {
    for one in family {
        // Best effort: success is determined by polling.
        one.signal(signal).ok();
    }
}

fn wait_for_end(family: &[Identity], limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        if !family.iter().any(Identity::is_alive) {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
