//! Garbage for the parsers of agents' output: spoiled lines of recorded runs, ten million of them. A panic ends the
//! program, with the seed of its run; memory is looked at in the end.

#[path = "../../../../agents/tests/streams/mutate.rs"]
mod mutate;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use everloop_agents::agent::LINE_CAP;

use crate::report::{Row, heading, mb};
use crate::{Options, Result};
use mutate::{Corpus, Run};

/// Lines that one reader gets: enough for records to meet.
const LINES: u64 = 100;

/// A record of a megabyte as a tree of values is some tens of it; more would mean that something is kept.
const RSS_GOAL_KB: u64 = 128 << 10;

/// The run that is going on.
static SEED: AtomicU64 = AtomicU64::new(0);

pub fn run(options: &Options) -> Result<()> {
    heading("parsers: spoiled lines of recorded runs");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agents/tests/streams/fixtures");
    let corpus = Corpus::read(&folder).map_err(|e| format!("`{}`: {e}", folder.display()))?;
    let runs: u64 = options.effort.pick(10_000_000, 200_000) / LINES;
    let began = Instant::now();
    let mut sum = Run::default();
    name_the_seed();
    for seed in 0..runs {
        SEED.store(seed, Ordering::Relaxed);
        let run = mutate::run(seed, LINES, &corpus);
        sum.understood += run.understood;
        sum.unknown += run.unknown;
        sum.bytes += run.bytes;
        sum.held = sum.held.max(run.held);
    }
    let (cases, seconds, bytes) = (runs * LINES, began.elapsed().as_secs_f64(), sum.bytes as f64);
    Row::new("cases without a panic", format!("{cases}")).print();
    Row::new("cases per second", format!("{:.0}", cases as f64 / seconds)).print();
    Row::new("read", format!("{:.1} GB, {:.0} MB/s", bytes / 1e9, bytes / 1e6 / seconds)).print();
    Row::new("records understood", format!("{}", sum.understood)).print();
    Row::new("records counted as unknown", format!("{}", sum.unknown)).print();
    let within = sum.held <= 2 * LINE_CAP;
    Row::new("most bytes held for lines", format!("{}", sum.held)).goal("2 MiB", within).print();
    let peak = peak_rss_kb()?;
    Row::new("peak memory", mb(peak)).goal("128 MiB", peak <= RSS_GOAL_KB).print();
    Ok(())
}

/// A release build ends at a panic without unwinding; the hook still runs.
fn name_the_seed() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        eprintln!("the run with seed {} panicked", SEED.load(Ordering::Relaxed));
        usual(info);
    }));
}

fn peak_rss_kb() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).ok_or("no VmHWM in /proc/self/status")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
