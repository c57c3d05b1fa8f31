//! Kills what a command left behind: background processes, daemons, fork bombs. Ends when nothing
//! is left.
//!
//! The shim adopts every orphan below it, so when it has no child left the tree is empty.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use everloop_core::planted::{self, Bug};
use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use super::super::cgroup::Cgroup;
use super::super::tree::ProcessTree;
use super::isolate::Signals;
use super::pump::Pump;

/// Grace period of a leftover between SIGTERM and SIGKILL.
pub(super) const GENTLE: Duration = Duration::from_millis(1500);
/// More leftovers than this are killed without a grace period.
const MANY: usize = 64;
/// Poll interval; children announce their end by a signal, their children do not.
const RECHECK_INTERVAL: Duration = Duration::from_millis(20);
/// A process that SIGKILL does not end hangs in the kernel.
const GIVE_UP: Duration = Duration::from_secs(10);

/// The processes that were left behind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Swept {
    /// Processes that had to be ended.
    pub(super) leftovers: u32,
    /// Processes that are still there.
    pub(super) survivors: u32,
}

/// Waits for all children that have ended and passes each to `ended`. Returns whether any are left.
pub(super) fn reap(mut ended: impl FnMut(WaitStatus)) -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return true,
            Ok(status) => ended(status),
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

/// Ends everything in the tree: SIGTERM first, SIGKILL after `gentle`. Keeps reading meanwhile: a
/// process that cleans up and writes must not die of a closed pipe.
pub(super) fn sweep(tree: &ProcessTree, signals: &Signals, pump: &mut Pump, gentle: Duration) -> Swept {
    let begun = Instant::now();
    let mut seen = BTreeSet::new();
    if planted::is(Bug::KillsOnlyTheParent) {
        return Swept { leftovers: 0, survivors: 0 };
    }
    loop {
        let grouped = tree.cgroup.as_ref().is_some_and(|c| !Cgroup::is_empty(c));
        if !reap(|_| {}) && !grouped {
            return Swept { leftovers: seen.len() as u32, survivors: 0 };
        }
        let alive = tree.alive();
        if begun.elapsed() >= GIVE_UP {
            return Swept { leftovers: seen.len() as u32, survivors: alive.len() as u32 };
        }
        if begun.elapsed() >= gentle || alive.len() > MANY {
            seen.extend(tree.kill().iter().map(|s| (s.pid, s.start_ticks)));
        } else {
            tree.terminate(|s| seen.insert((s.pid, s.start_ticks)));
        }
        signals.wait(RECHECK_INTERVAL);
        pump.read();
    }
}
