//! Clocks, quantiles and /proc. Prints nothing.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use crate::Result;

/// Nanoseconds of CLOCK_MONOTONIC: the same clock in every process, which `Instant` does not
/// promise.
pub fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("CLOCK_MONOTONIC exists on every Linux");
    u64::try_from(Duration::from(time).as_nanos()).unwrap_or(u64::MAX)
}

/// Measured durations, sorted.
#[derive(Clone, Debug)]
pub struct Times(Vec<Duration>);

impl Times {
    /// At least one is needed.
    pub fn new(mut all: Vec<Duration>) -> Result<Self> {
        if all.is_empty() {
            return Err("nothing was measured".into());
        }
        all.sort();
        Ok(Self(all))
    }

    /// All of them, to be joined with others.
    pub fn into_all(self) -> Vec<Duration> {
        self.0
    }

    pub fn median(&self) -> Duration {
        self.quantile(0.5)
    }

    pub fn max(&self) -> Duration {
        self.0[self.0.len() - 1]
    }

    pub fn p90(&self) -> Duration {
        self.quantile(0.9)
    }

    pub fn p99(&self) -> Duration {
        self.quantile(0.99)
    }

    fn quantile(&self, q: f64) -> Duration {
        let last = self.0.len() - 1;
        self.0[((last as f64) * q).round() as usize]
    }
}

/// Appends one page and waits until the disk has it.
pub fn synced_append(file: &mut File) -> std::io::Result<()> {
    file.write_all(&[b'.'; 4096])?;
    file.sync_all()
}

/// How long this disk takes for that.
pub fn sync_times(dir: &Path, samples: usize) -> Result<Times> {
    let mut file = File::create(dir.join("sync-probe"))?;
    let mut all = Vec::with_capacity(samples);
    for _ in 0..samples {
        let start = Instant::now();
        synced_append(&mut file)?;
        all.push(start.elapsed());
    }
    Times::new(all)
}

/// How long `command` takes from start to end, `samples` times. Its exit code is ignored.
pub fn run_times(mut command: impl FnMut() -> Command, samples: usize) -> Result<Times> {
    let mut all = Vec::with_capacity(samples);
    for _ in 0..samples {
        let mut command = command();
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        let start = Instant::now();
        command.status()?;
        all.push(start.elapsed());
    }
    Times::new(all)
}

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessUsage {
    pub rss_kb: u64,
    /// Heap and stacks. The rest is the mapped binary, which the kernel can drop and read again.
    pub anon_kb: u64,
    /// Its share of pages that other processes map too; the fairer figure for a binary that runs
    /// twice.
    pub pss_kb: u64,
    /// Pages of its own that it wrote to, also those of mapped files.
    pub private_dirty_kb: u64,
    pub peak_rss_kb: u64,
    pub cpu: Duration,
    /// Voluntary context switches, and so wake-ups.
    pub naps: u64,
    pub write_calls: u64,
}

/// Reads /proc; an error when the process is gone.
pub fn usage(pid: u32) -> Result<ProcessUsage> {
    let proc = Path::new("/proc").join(pid.to_string());
    let status = std::fs::read_to_string(proc.join("status"))?;
    // Only for the owner of the process, and not in every container.
    let rollup = std::fs::read_to_string(proc.join("smaps_rollup")).unwrap_or_default();
    let io = std::fs::read_to_string(proc.join("io")).unwrap_or_default();
    Ok(ProcessUsage {
        rss_kb: field(&status, "VmRSS:").unwrap_or(0),
        anon_kb: field(&status, "RssAnon:").unwrap_or(0),
        pss_kb: field(&rollup, "Pss:").unwrap_or(0),
        private_dirty_kb: field(&rollup, "Private_Dirty:").unwrap_or(0),
        peak_rss_kb: field(&status, "VmHWM:").unwrap_or(0),
        cpu: cpu(pid)?,
        naps: field(&status, "voluntary_ctxt_switches:").unwrap_or(0),
        write_calls: field(&io, "syscw:").unwrap_or(0),
    })
}

/// CPU of all threads, also of ended ones, in nanoseconds: `stat` counts in steps of 10 ms, too
/// coarse for an idle minute.
fn cpu(pid: u32) -> Result<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid)?))?;
    Ok(Duration::from(clock_gettime(clock)?))
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Cores and load: a busy machine explains strange figures.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("{cores} cores, load {}", load.split(' ').next().unwrap_or("unknown"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seen_as_cpu_time_and_memory() {
        let pid = std::process::id();
        let before = usage(pid).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while usage(pid).unwrap().cpu < before.cpu + Duration::from_millis(10) {
            assert!(Instant::now() < deadline, "the meter does not move: {before:?}");
        }
        let ended = usage(pid).unwrap().cpu;
        let spin = move || while usage(pid).unwrap().cpu < ended + Duration::from_millis(10) {};
        std::thread::spawn(spin).join().unwrap();
        assert!(usage(pid).unwrap().cpu >= ended + Duration::from_millis(10), "a thread that ended is forgotten");
        assert!(before.rss_kb > 0 && before.peak_rss_kb >= before.anon_kb && before.anon_kb > 0, "{before:?}");
    }

    #[test]
    fn quantiles_are_taken_from_sorted_times() {
        let times = Times::new((1..=11).rev().map(Duration::from_millis).collect()).unwrap();
        assert_eq!((times.median(), times.p90()), (Duration::from_millis(6), Duration::from_millis(10)));
        assert!(Times::new(Vec::new()).is_err());
    }
}
