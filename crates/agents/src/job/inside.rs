//! Whether a process is part of a job of a state folder, with any environment: by its ancestors, by
//! its control group, and by the number that it inherited.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use everloop_core::planted::{self, Bug};

use super::job_log::JobLog;
use super::spec::Spec;
use super::{SHIM_ARG, brand, cgroup, key};
use crate::process;

/// The job that a process is part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InsideJob {
    /// The job in this folder; its shim is alive.
    Of(PathBuf),
    /// One without a shim by now.
    Unknown,
}

/// The job of the state folder `root` that this process is part of.
pub fn inside_job(root: &Path) -> Option<InsideJob> {
    job_of_process(root, std::process::id().cast_signed())
}

/// The job of the state folder `root` that a process is part of.
pub fn job_of_process(root: &Path, pid: i32) -> Option<InsideJob> {
    if planted::is(Bug::CallersByVariable) {
        return None;
    }
    let root = root.canonicalize().ok()?;
    let of = |pid: i32| job_of_shim(pid).filter(|dir| dir.starts_with(&root));
    // The outermost one: below it, a command can start processes under any name.
    let ancestors = process::line_of(pid);
    let above = ancestors.iter().rev().find_map(|pid| of(*pid));
    let grouped = || cgroup::shim_of(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?).and_then(of);
    let branded = || {
        let state = key::state_mark(&root).ok()?;
        let own = pid == std::process::id().cast_signed();
        let number = if own { brand::own() } else { brand::of(pid) };
        number.filter(|number| key::is_of_state(*number, &state))
    };
    let dir = above.or_else(grouped);
    // everloop's own program, which types into a pane, is a job of its own and not an agent in one.
    if dir.as_deref().is_some_and(|dir| is_command_of(pid, dir)) {
        return None;
    }
    dir.map(InsideJob::Of).or_else(|| branded().map(|_| InsideJob::Unknown))
}

/// Whether a process is exactly what a job was made to run, and that is not isolated: only programs
/// of everloop itself are not.
fn is_command_of(pid: i32, dir: &Path) -> bool {
    let spec = JobLog::read(dir).ok().and_then(|log| log.spec);
    let own = std::env::current_exe().ok().map(|exe| exe.display().to_string());
    let is_own = |spec: &Spec| spec.isolation.is_none() && spec.argv.first() == own.as_ref();
    let words: Vec<OsString> = process::command_line(pid);
    spec.filter(is_own).is_some_and(|spec| spec.argv.iter().map(OsString::from).eq(words))
}

/// The folder of the job that a process is the shim of, according to its command line.
pub(super) fn job_of_shim(pid: i32) -> Option<PathBuf> {
    match &process::command_line(pid)[..] {
        // Without the slashes in front of it that a forked shim shows.
        [_, .., word, dir] if word == SHIM_ARG => Some(Path::new(dir).components().collect()),
        _ => None,
    }
}
