//! Kills what a command left behind: background processes, daemons, fork bombs. Ends when nothing is left.
//!
//! The shim adopts every orphan below it, so "no child left" is the whole truth about the tree.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use super::super::cgroup::Cgroup;
use super::super::tree::ProcessTree;
use super::isolate::Signals;
use super::pump::Pump;

/// How long a leftover may take to end by itself once it was asked to.
pub(super) const GENTLE: Duration = Duration::from_millis(1500);
/// More leftovers than this are no helpers that want to tidy up.
const MANY: usize = 64;
/// How often to look again; children tell us by a signal, their children do not.
const RECHECK_INTERVAL: Duration = Duration::from_millis(20);
/// A process that SIGKILL does not end sits in the kernel; nobody can help.
const GIVE_UP: Duration = Duration::from_secs(10);

/// What was left behind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Swept {
    /// Processes that had to be ended.
    pub(super) leftovers: u32,
    /// Processes that are still there.
    pub(super) survivors: u32,
}

/// Waits for all children that have ended; tells `ended` about each. Whether any are left.
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

/// Ends everything in the tree: SIGTERM first, SIGKILL after `gentle`. Goes on reading meanwhile: whoever tidies up
/// and says so must not die of a closed pipe.
pub(super) fn sweep(tree: &ProcessTree, signals: &Signals, pump: &mut Pump, gentle: Duration) -> Swept {
    let begun = Instant::now();
    let mut seen = BTreeSet::new();
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
