//! An agent that writes 50 MB: how long its turn takes and how much memory that costs.

use std::path::Path;
use std::time::{Duration, Instant};

use everloop_core::event::Event;
use everloop_core::time::Time;
use everloop_store::{Ledger, OpenMode};

use crate::measure::usage;
use crate::report::{BenchRow, heading, mb, ms, ratio, remark};
use crate::scene::{Project, Scene};
use crate::{Options, Result};

const FLOOD_BYTES: usize = 50_000_000;

pub fn run(options: &Options) -> Result<()> {
    heading("flood: an agent that writes 50 MB");
    let scene = Scene::new(options, Project::Plain)?;
    let floor = through_a_shell(&scene)?;
    let agent = scene.agent(&format!("__flood {FLOOD_BYTES}"));
    let args = ["run", "x", "--check", "false", "--agent-cmd", &agent, "--min-gap", "0", "-n", "1"];
    let mut supervisor = scene.everloop(&args).spawn()?;
    let mut peak_kb = 0;
    // The peak is the kernel's own; it is read until the process is gone, because it is lost
    // afterwards.
    while supervisor.try_wait()?.is_none() {
        peak_kb = usage(supervisor.id()).map_or(peak_kb, |u| u.peak_rss_kb.max(peak_kb));
        std::thread::sleep(Duration::from_millis(1));
    }
    let turn = Turn::read(&scene)?;
    if turn.out_bytes != FLOOD_BYTES as u64 {
        return Err(format!("{} bytes were counted instead of {FLOOD_BYTES}", turn.out_bytes).into());
    }
    let floor_text = ms(floor);
    BenchRow::new("turn, start to end", ms(turn.whole))
        .floor("agent | cat > file", &floor_text, ratio(turn.whole, floor))
        .goal("<= 500 ms", turn.whole <= Duration::from_millis(500))
        .print();
    remark(&format!("of that until the agent's exit was known: {}", ms(turn.until_exit)));
    let met = |kb: u64| kb * 1024 <= 20_000_000;
    BenchRow::new("peak memory of the supervisor", mb(peak_kb)).goal("<= 20 MB", met(peak_kb)).print();
    let shim_kb = shim_peak_kb(&scene.state().join("turns"))?;
    BenchRow::new("peak memory of the shim", mb(shim_kb)).goal("<= 20 MB", met(shim_kb)).print();
    remark("peers: bash 3 MB and 0.2 s, sloop 11 MB and 16 s, ralph-orchestrator 127 MB and 0.8 s, ralphy 314 MB,");
    remark("       claudeloop 351 MB and 27 s");
    Ok(())
}

/// The minimum for keeping all of it.
fn through_a_shell(scene: &Scene) -> Result<Duration> {
    let script =
        format!("{} | cat > '{}'", scene.agent(&format!("__flood {FLOOD_BYTES}")), scene.path("flood").display());
    let start = Instant::now();
    let status = scene.clean(Path::new("sh")).args(["-c", &script]).status()?;
    if !status.success() {
        return Err(format!("sh ended with {status}").into());
    }
    Ok(start.elapsed())
}

/// The turn as the journal records it.
struct Turn {
    until_exit: Duration,
    whole: Duration,
    out_bytes: u64,
}

impl Turn {
    fn read(scene: &Scene) -> Result<Self> {
        let (mut started, mut exited, mut ended, mut out_bytes) = (None, None, None, 0);
        for record in scene.ledger(OpenMode::ReadOnly)?.journal(0, None, 1000)? {
            match record.event {
                Event::TurnStarted { .. } => started = Some(record.at),
                Event::TurnExited { exit, .. } => {
                    exited = Some(record.at);
                    out_bytes = exit.out_bytes;
                }
                Event::TurnEnded { .. } => ended = Some(record.at),
                _ => {}
            }
        }
        let since = |at: Option<Time>| Some(at?.since(started?));
        let (Some(until_exit), Some(whole)) = (since(exited), since(ended)) else {
            return Err("the turn is not in the journal".into());
        };
        Ok(Self { until_exit, whole, out_bytes })
    }
}

/// What the shim recorded about itself.
fn shim_peak_kb(turns: &Path) -> Result<u64> {
    let mut peak = 0;
    for turn in std::fs::read_dir(turns)? {
        let record = everloop_agents::job::record(&turn?.path())?.ok_or("a turn left no record")?;
        peak = peak.max(record.shim_rss_kb);
    }
    Ok(peak)
}
