//! The machine: git, containment of jobs, free disk space, the clock.

use std::path::Path;
use std::time::Duration;

use everloop_agents::environment::Environment;
use everloop_agents::git::Git;
use everloop_agents::isolation::Means;
use everloop_agents::job::{self, JobEnd, Spec};
use everloop_core::ids::LoopId;
use everloop_core::isolation::IsolationMode;
use everloop_core::time::Time;
use nix::sys::statvfs::statvfs;

use super::{Chart, DoctorFinding};
use crate::error::Failure;
use crate::services::runtime::own_shim;
use crate::state_folder::StateFolder;

/// From here on `git merge-tree` works in worktrees, with every option that is used.
const GIT_LEAST: (u32, u32) = (2, 34);
/// Below this even a journal record may not fit.
const DISK_LEAST_MB: u64 = 100;
/// A turn may keep 64 MB of output, and builds in worktrees need more.
const DISK_GOOD_MB: u64 = 1024;
/// The program did not exist before; a clock that shows an earlier time is wrong.
const CLOCK_LEAST: Time = Time(1_735_689_600_000); // 2025-01-01
/// A trial job that takes longer means that the machine is stuck.
const TRIAL: Duration = Duration::from_secs(20);

pub(super) async fn look(home: &StateFolder, now: Time) -> Result<Vec<DoctorFinding>, Failure> {
    let mut chart = Chart::new("machine");
    git(&mut chart, home.root()).await;
    containment(&mut chart, home).await?;
    isolation(&mut chart);
    disk(&mut chart, home.root());
    clock(&mut chart, now);
    Ok(chart.findings)
}

async fn git(chart: &mut Chart, dir: &Path) {
    let install = "install git 2.34 or newer; without it loops only work in place";
    match Git::operators(dir).line(&["version"]).await {
        Err(e) => chart.fail(format!("cannot run git: {e}"), install),
        Ok(line) => match version(&line) {
            Some(found) if found < GIT_LEAST => {
                chart.fail(format!("{line} is older than {}.{}", GIT_LEAST.0, GIT_LEAST.1), install);
            }
            Some(_) => chart.ok(line),
            None => chart.warn(format!("`{line}` does not contain git's version"), install),
        },
    }
}

/// The first two numbers of `git version 2.43.0 (Apple Git-1)`.
fn version(line: &str) -> Option<(u32, u32)> {
    let mut numbers = line.strip_prefix("git version ")?.split(['.', ' ', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Runs a real job, as a turn is run, and checks its containment.
async fn containment(chart: &mut Chart, home: &StateFolder) -> Result<(), Failure> {
    let dir = home.checks(&LoopId::new(format!("doctor-{}", std::process::id())));
    let spec = Spec { wall: TRIAL, ..Spec::new(vec!["true".to_owned()], "/") };
    let shim = own_shim()?;
    let trial = async {
        job::prepare(&dir, &spec)?;
        let mut running = job::start(&shim, &dir, Environment::from_ours(&[]).into_vars())?;
        let ended = running.wait().await?;
        Ok::<_, job::JobError>((ended, job::started(&dir)?))
    };
    match trial.await {
        Ok((JobEnd::Exited(exit), started)) if exit.ok() => match started.and_then(|s| s.cgroup) {
            Some(_) => chart.ok("jobs run in control groups of their own"),
            None => chart.ok("jobs are contained by their process tree (control groups cannot be created here)"),
        },
        Ok((JobEnd::Exited(exit), _)) => {
            chart.fail(format!("a trial job failed: {}", exit.describe()), "is `true` in PATH?");
        }
        Ok((JobEnd::Gone | JobEnd::Overdue, _)) => {
            chart.fail("a trial job vanished", "does something kill background processes here?");
        }
        Err(e) => {
            chart.fail(format!("cannot run a trial job: {e}"), "does its disk allow locks?");
        }
    }
    match std::fs::remove_dir_all(&dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e.into()),
        _ => Ok(()),
    }
}

/// What runs isolated by default.
const ISOLATED: &str = "turns, checks and commands of monitors, notifiers, mailboxes and trackers";

/// Names the means that isolate commands by default, and what they leave open.
fn isolation(chart: &mut Chart) {
    let means = Means::of(IsolationMode::Auto);
    let text = format!("{ISOLATED} are isolated by {}; not covered: {}", means.describe(), means.gaps().join("; "));
    if means.holds() {
        chart.ok(text);
    } else {
        let hint = "use a kernel with Landlock (6.2 or newer), or install bubblewrap";
        chart.warn(format!("isolation: {}", means.describe()), hint);
    }
}

fn disk(chart: &mut Chart, dir: &Path) {
    match statvfs(dir) {
        Err(e) => chart.warn(format!("cannot read the free disk space: {e}"), "df -h"),
        Ok(stat) => {
            let free_mb = stat.blocks_available().saturating_mul(stat.fragment_size()) >> 20;
            let text = format!("{free_mb} MB free for {}", dir.display());
            match free_mb {
                0..DISK_LEAST_MB => chart.fail(text, "free some space; finished work waits for it and is not lost"),
                DISK_LEAST_MB..DISK_GOOD_MB => chart.warn(text, "a single turn may need more: free some space"),
                _ => chart.ok(text),
            }
        }
    }
}

fn clock(chart: &mut Chart, now: Time) {
    if now < CLOCK_LEAST {
        chart.fail(
            "the clock is wrong: it shows a time before 2025",
            "set the clock; waits and leases are counted with it",
        );
    } else {
        chart.ok("the clock shows a plausible time");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_git_are_read() {
        assert_eq!(version("git version 2.43.0"), Some((2, 43)));
        assert_eq!(version("git version 2.39.3 (Apple Git-145)"), Some((2, 39)));
        assert_eq!(version("git version 2.50-rc1"), Some((2, 50)));
        assert_eq!(version("gitt"), None);
    }
}
