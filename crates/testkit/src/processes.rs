//! Which processes belong to a state folder, according to /proc. For tests that kill nodes, and for
//! proving that nothing is left.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use everloop_agents::job;

/// Processes with an environment that names this state folder, or that carry the mark of one of its
/// jobs. Never this process.
pub fn processes_of(state: &Path) -> Vec<i32> {
    let mut marks = vec![[b"EVERLOOP_STATE_DIR=", state.as_os_str().as_bytes()].concat()];
    marks.extend(job::state_mark(state).ok().map(|mark| format!("{}={mark}", job::JOB_VAR).into_bytes()));
    let own = std::process::id();
    let pids = fs::read_dir("/proc")
        .expect("tests run on Linux")
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let ours = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|b| *b == 0).any(|entry| marks.iter().any(|mark| entry.starts_with(mark)))
    };
    pids.filter(|pid| *pid != own).filter(ours).map(u32::cast_signed).collect()
}
