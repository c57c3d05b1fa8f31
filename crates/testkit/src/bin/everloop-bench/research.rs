//! The own cost of an experiment: from an agent's end to the next one's start, without the metric,
//! in a repository of 2,000 files; at the beginning of a run and after many rows.

use std::path::Path;
use std::time::Duration;

use crate::measure::Times;
use crate::report::{BenchRow, heading, ms, remark};
use crate::scene::{Project, STAMPS, Scene};
use crate::{Options, Result};

/// The command of the metric.
pub const METRIC: &str = "sh metric.sh";
/// The file in which metrics leave their times.
pub const METRIC_STAMPS: &str = "metric-stamps";
const FILES: u32 = 2_000;
/// Experiments of the run.
const ROWS: (u32, u32) = (10_000, 300);
/// Experiments at each end of the run whose median is compared.
const COMPARED: usize = 100;
/// The first ones of a run find cold caches.
const WARM: usize = 10;
const GOAL: Duration = Duration::from_millis(60);
/// How much more the last experiments may cost than the first.
const MORE: f64 = 1.1;

pub fn run(options: &Options) -> Result<()> {
    let rows = options.length.pick(ROWS.0, ROWS.1);
    heading(&format!("research: own cost of an experiment, {FILES} files, {rows} experiments"));
    let scene = Scene::new(options, Project::Large(FILES))?;
    let stamp = |name: &str| scene.path(name).display().to_string();
    // Nearly all of them are discarded, as in a long run: the number is the checksum of a random text.
    let agent = format!("date +%s%N > README; {}", scene.agent(&format!("__stamp '{}'", stamp(STAMPS))));
    let metric = scene.agent(&format!("__timed '{}' cksum README", stamp(METRIC_STAMPS)));
    scene.measured_by(&format!("set -- $({metric}); echo $1"))?;
    let count = rows.to_string();
    let words = ["research", "x", "--metric", METRIC, "--direction", "lower", "--agent-cmd", &agent, "--min-gap=0"];
    let writable = stamp(METRIC_STAMPS);
    scene.finish(&[&words[..], &["-n", &count, "--writable", &writable, "--no-simplicity"]].concat(), 3)?;
    let all = gaps(&scene, rows)?;
    let first = Times::new(all[WARM..(WARM + COMPARED).min(all.len())].to_vec())?;
    let last = Times::new(all[all.len().saturating_sub(COMPARED)..].to_vec())?;
    BenchRow::new("own cost per experiment", format!("{} p90 {}", ms(first.median()), ms(first.p90())))
        .goal("<= 60 ms", first.median() <= GOAL)
        .print();
    let more = last.median().as_secs_f64() / first.median().as_secs_f64().max(1e-9);
    BenchRow::new(format!("  after {rows} rows"), format!("{} p90 {}", ms(last.median()), ms(last.p90())))
        .goal("<= 10 % more", more <= MORE)
        .print();
    remark("from an agent's exit to the next one's start, without the time of the metric's own process");
    Ok(())
}

/// The costs of all experiments, sorted.
pub fn costs(scene: &Scene, experiments: u32) -> Result<Times> {
    Times::new(gaps(scene, experiments)?)
}

/// From each agent's end to the next one's start, without the metric between them.
fn gaps(scene: &Scene, experiments: u32) -> Result<Vec<Duration>> {
    let agents = stamps(&scene.path(STAMPS))?;
    if agents.len() != experiments as usize {
        return Err(format!("{} turns ran instead of {experiments}", agents.len()).into());
    }
    let metrics = stamps(&scene.path(METRIC_STAMPS))?;
    let between = |pair: &[(u64, u64)]| {
        let (from, to) = (pair[0].1, pair[1].0);
        let measuring: u64 = metrics.iter().filter(|m| m.0 >= from && m.1 <= to).map(|m| m.1 - m.0).sum();
        Duration::from_nanos(to.saturating_sub(from).saturating_sub(measuring))
    };
    Ok(agents.windows(2).map(between).collect())
}

fn stamps(file: &Path) -> Result<Vec<(u64, u64)>> {
    let mut lines = Vec::new();
    for line in std::fs::read_to_string(file)?.lines() {
        let (start, exit) = line.split_once(' ').ok_or("a stamp has two numbers")?;
        lines.push((start.parse()?, exit.parse()?));
    }
    Ok(lines)
}
