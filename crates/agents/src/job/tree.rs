//! Signals everything that belongs to a job: the tree below its shim and its control group.
//!
//! Owns *how* to reach all processes; the shim and [`super::control`] decide when.

use std::collections::BTreeSet;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::cgroup::Cgroup;
use crate::process::{self, Stat};

/// The processes of a job: everything below `root` and everything in its group.
#[derive(Clone, Debug)]
pub(super) struct ProcessTree {
    /// The shim. Never signalled from here.
    pub(super) root: i32,
    /// The command's control group, if there is one.
    pub(super) cgroup: Option<Cgroup>,
}

impl ProcessTree {
    /// All processes that are alive.
    pub(super) fn alive(&self) -> Vec<Stat> {
        let mut found = process::descendants(self.root);
        let known: BTreeSet<i32> = found.iter().map(|s| s.pid).collect();
        let grouped = self.cgroup.as_ref().map(Cgroup::pids).unwrap_or_default();
        found.extend(
            grouped.into_iter().filter(|pid| *pid != self.root && !known.contains(pid)).filter_map(process::stat),
        );
        found.retain(Stat::is_alive);
        found
    }

    /// Sends SIGTERM to each process that `chosen` selects.
    pub(super) fn terminate(&self, mut chosen: impl FnMut(&Stat) -> bool) {
        for stat in self.alive().iter().filter(|s| chosen(s)) {
            // Best effort: a process that ignores it is killed later.
            stat.identity().signal(Signal::SIGTERM).ok();
        }
    }

    /// Sends SIGKILL to all; returns those it was sent to. Has to be repeated until none is left.
    pub(super) fn kill(&self) -> Vec<Stat> {
        let alive = self.alive();
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
        }
        // A process group is killed in one step, so that members cannot fork away between two
        // signals.
        let groups: BTreeSet<i32> = alive.iter().map(|s| s.group).collect();
        for group in groups.difference(&self.forbidden_groups()) {
            killpg(Pid::from_raw(*group), Signal::SIGKILL).ok();
        }
        for stat in &alive {
            stat.identity().signal(Signal::SIGKILL).ok();
        }
        alive
    }

    /// Groups that hold other processes than the job's: this process's and the shim's.
    fn forbidden_groups(&self) -> BTreeSet<i32> {
        let of = |pid| process::stat(pid).map(|s| s.group);
        [of(self.root), of(std::process::id() as i32), Some(0), Some(1)].into_iter().flatten().collect()
    }
}
