//! Which processes belong to a state folder, according to /proc. For tests that kill nodes, and for
//! proving that nothing is left.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Processes with an environment that names this state folder, as state or as place of their job.
/// Never this process.
pub fn processes_of(state: &Path) -> Vec<i32> {
    let marks =
        ["EVERLOOP_STATE_DIR=", "EVERLOOP_JOB="].map(|name| [name.as_bytes(), state.as_os_str().as_bytes()].concat());
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
