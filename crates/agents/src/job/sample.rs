//! Liveness of a running job, cheap enough to sample every few seconds. Its meaning is decided in
//! the core.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::capture::Stream;
use super::cgroup::Cgroup;
use super::control::known_start;
use super::error::JobError;
use super::job_log::Started;
use super::link::LiveJob;
use super::output::KeptOutput;
use super::tree::ProcessTree;
use crate::process::{self, Identity};

/// One sample of a job. Any change between two samples is a sign of life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LivenessSample {
    /// Bytes written so far, after redaction.
    pub out_bytes: u64,
    /// CPU used so far by the command and its descendants.
    pub cpu_ms: u64,
    /// Number of its processes.
    pub processes: u32,
    /// The shim, if it is alive.
    pub identity: Option<Identity>,
}

/// Takes a sample. Reads sizes and counters only, never the output.
pub fn sample(dir: &Path) -> Result<LivenessSample, JobError> {
    let started = known_start(dir)?;
    let out_bytes = KeptOutput::find(dir, Stream::Out)?.total() + KeptOutput::find(dir, Stream::Err)?.total();
    let Some(Started { shim, cgroup, .. }) = started.filter(|s| s.shim.is_alive()) else {
        return Ok(LivenessSample { out_bytes, ..LivenessSample::default() });
    };
    let cgroup = cgroup.as_deref().and_then(Cgroup::recorded);
    let tree = ProcessTree { root: shim.pid, cgroup };
    let alive = tree.alive();
    if let Some(live) = LiveJob::find(dir) {
        live.see(&alive);
    }
    let grouped = tree.cgroup.as_ref().and_then(Cgroup::cpu_ms);
    let cpu_ms = grouped.unwrap_or_else(|| {
        // CPU of children that the shim has waited for counts as well, or the sum would fall when a
        // child ends.
        let waited = process::stat(shim.pid).map_or(0, |s| s.waited_ticks);
        ticks_to_ms(waited + alive.iter().map(|s| s.own_ticks + s.waited_ticks).sum::<u64>())
    });
    Ok(LivenessSample { out_bytes, cpu_ms, processes: alive.len() as u32, identity: Some(shim) })
}

/// `/proc` counts in hundredths of a second on every Linux that is still in use (USER_HZ).
fn ticks_to_ms(ticks: u64) -> u64 {
    ticks * 10
}
