//! The parsers of agents' output. How fast they read recorded output; then garbage, mutated lines
//! of recorded runs, ten million of them: a panic ends the program with the seed of its run, and
//! memory is checked at the end.

#[path = "../../../../agents/tests/it/streams/mutate.rs"]
mod mutate;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use everloop_agents::agent::{LINE_CAP, Reader};
use everloop_agents::clock;
use everloop_core::phase::Phases;
use everloop_core::spec::AgentKind;
use everloop_core::stream::TurnReport;
use nix::time::{ClockId, clock_gettime};

use crate::report::{BenchRow, heading, mb};
use crate::{Options, Result};
use mutate::{Corpus, Run};

/// Lines per reader: enough for records to interact.
const LINES: u64 = 100;

/// A record of a megabyte as a tree of values takes some tens of it; more would mean that something
/// is kept.
const RSS_GOAL_KB: u64 = 128 << 10;

/// Output of an agent in its last moment.
const BURST: usize = 10_000_000;
/// How often it is read; the fastest counts.
const READS: usize = 15;
/// Bytes per read, as in the supervisor.
const CHUNK: usize = 64 << 10;

/// The seed of the current run.
static SEED: AtomicU64 = AtomicU64::new(0);

pub fn run(options: &Options) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agents/tests/it/streams/fixtures");
    heading("parsers: 10 MB of recorded runs, as the supervisor reads them");
    for kind in [AgentKind::Claude, AgentKind::Codex, AgentKind::Gemini, AgentKind::Opencode, AgentKind::Api] {
        whole(kind, &folder)?;
    }
    heading("parsers: mutated lines of recorded runs");
    let corpus = Corpus::read(&folder).map_err(|e| format!("`{}`: {e}", folder.display()))?;
    let runs: u64 = options.length.pick(10_000_000, 200_000) / LINES;
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
    BenchRow::new("cases without a panic", format!("{cases}")).print();
    BenchRow::new("cases per second", format!("{:.0}", cases as f64 / seconds)).print();
    BenchRow::new("read", format!("{:.1} GB, {:.0} MB/s", bytes / 1e9, bytes / 1e6 / seconds)).print();
    BenchRow::new("records understood", format!("{}", sum.understood)).print();
    BenchRow::new("records counted as unknown", format!("{}", sum.unknown)).print();
    let within = sum.held <= 2 * LINE_CAP;
    BenchRow::new("most bytes held for lines", format!("{}", sum.held)).goal("2 MiB", within).print();
    let peak = peak_rss_kb()?;
    BenchRow::new("peak memory", mb(peak)).goal("128 MiB", peak <= RSS_GOAL_KB).print();
    Ok(())
}

/// Reads a program's recorded output repeatedly, and for the native format text of a usual length.
fn whole(kind: AgentKind, folder: &Path) -> Result<()> {
    let mut said = Vec::new();
    if kind == AgentKind::Api {
        said.extend_from_slice(format!("{{\"said\":\"text\",\"text\":\"{}\"}}\n", "x".repeat(400)).as_bytes());
    } else {
        for entry in std::fs::read_dir(folder.join(kind.label()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "jsonl") {
                said.extend(std::fs::read(path)?);
            }
        }
    }
    let stream = said.repeat(BURST.div_ceil(said.len()));
    let seconds = (0..READS).map(|_| read(kind, &stream)).fold(f64::INFINITY, f64::min);
    let speed = format!("{:.0} ms, {:.0} MB/s", seconds * 1e3, stream.len() as f64 / 1e6 / seconds);
    BenchRow::new(kind.label(), speed).print();
    Ok(())
}

/// CPU time in seconds: other load on the machine does not count.
fn read(kind: AgentKind, stream: &[u8]) -> f64 {
    let (mut reader, mut report) = (Reader::new(kind, false), TurnReport::default());
    let now = clock::now();
    let mut phases = Phases::new(now);
    let began = thread_seconds();
    for piece in stream.chunks(CHUNK) {
        reader.out(piece, now, &mut |said| {
            report.take(&said);
            phases.take(&said, now);
        });
    }
    thread_seconds() - began
}

fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    Duration::from(time).as_secs_f64()
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
