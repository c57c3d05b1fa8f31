//! Agents that print records: the time between an agent's last record and the next one's start, and
//! whether the supervisor's memory stays flat whatever the amount of output.

use std::time::Duration;

use crate::measure::{Times, usage};
use crate::report::{BenchRow, heading, mb, ms, remark};
use crate::scene::{Project, STAMPS, Scene};
use crate::turn::read_gaps;
use crate::{Options, Result};

/// Output of a real agent's turn, roughly.
const TALK_BYTES: usize = 100_000;
/// Output of an agent that floods, all of it in its last moment.
const FLOOD_BYTES: usize = 10_000_000;
/// Turns after which the supervisor's memory counts as settled.
const WARM: usize = 20;

pub fn run(options: &Options) -> Result<()> {
    let turns = options.length.pick(1000, 60);
    heading(&format!("stream: {turns} turns of agents that print records"));
    let (gaps, _) = talk(options, turns, TALK_BYTES)?;
    let met = gaps.median() <= Duration::from_millis(50);
    BenchRow::new("from the last record to the next start, 0.1 MB", spread(&gaps)).goal("<= 50 ms", met).print();
    let (gaps, (low, high)) = talk(options, turns, FLOOD_BYTES)?;
    BenchRow::new("the same, 10 MB at once", spread(&gaps)).print();
    let flat = (high - low) * 1024 <= 10_000_000;
    BenchRow::new("supervisor's memory from then on", format!("{} to {}", mb(low), mb(high)))
        .goal("+-5 MB", flat)
        .print();
    remark("the check, two synced commits and reading the stream are in that time");
    Ok(())
}

fn spread(gaps: &Times) -> String {
    format!("{} p90 {}", ms(gaps.median()), ms(gaps.p90()))
}

/// The gaps between turns with this much output, and the least and most memory of the supervisor,
/// in KB.
fn talk(options: &Options, turns: u32, bytes: usize) -> Result<(Times, (u64, u64))> {
    let scene = Scene::new(options, Project::Plain)?;
    let stamps = scene.path(STAMPS);
    let agent = scene.agent(&format!("__talk '{}' {bytes}", stamps.display()));
    let count = turns.to_string();
    let args = ["run", "x", "--check", "false", "--agent-cmd", &agent, "--min-gap", "0", "-n", &count];
    let mut supervisor = scene.everloop(&args).spawn()?;
    let mut seen = Vec::new();
    while supervisor.try_wait()?.is_none() {
        let done = std::fs::read_to_string(&stamps).map_or(0, |text| text.lines().count());
        if done > WARM
            && let Ok(now) = usage(supervisor.id())
        {
            seen.push(now.rss_kb);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let bounds = (seen.iter().min().copied().unwrap_or(0), seen.iter().max().copied().unwrap_or(0));
    Ok((read_gaps(&stamps, turns)?, bounds))
}
