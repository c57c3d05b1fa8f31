//! Latency for a person: `--version`, and `status` over a long journal.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use everloop_core::event::Event;
use everloop_core::op::Op;
use everloop_core::time::Time;
use everloop_store::{Ledger, OpenMode};

use crate::measure::run_times;
use crate::report::{BenchRow, heading, ms, ratio, remark};
use crate::scene::{Project, Scene};
use crate::{Options, Result};

const ROWS: usize = 100_000;
const BATCH: usize = 1_000;

pub fn run(options: &Options) -> Result<()> {
    heading("cold start");
    let scene = Scene::new(options, Project::Plain)?;
    let samples = options.length.pick(50, 20);
    let floor = run_times(|| scene.clean(Path::new("/bin/true")), samples)?.median();
    let row = |what: &str, took: &crate::measure::Times, goal_ms: u64| {
        let met = took.median() <= Duration::from_millis(goal_ms);
        BenchRow::new(what, format!("{} p90 {}", ms(took.median()), ms(took.p90())))
            .floor("/bin/true", &ms(floor), ratio(took.median(), floor))
            .goal(&format!("<= {goal_ms} ms"), met)
            .print();
    };
    row("everloop --version", &run_times(|| plain(&scene, options, &["--version"]), samples)?, 10);
    let rows = fill(&scene, options)?;
    row(&format!("everloop status, {rows} journal rows"), &run_times(|| scene.everloop(&["status"]), samples)?, 30);
    let logs = run_times(|| scene.everloop(&["logs"]), samples)?;
    BenchRow::new("everloop logs, same journal", format!("{} p90 {}", ms(logs.median()), ms(logs.p90()))).print();
    remark("peers, --version: sloop 12.5 ms, ralph-orchestrator 18, ralphify 676, claudeloop 1973");
    Ok(())
}

fn plain(scene: &Scene, options: &Options, args: &[&str]) -> Command {
    let mut command = scene.clean(&options.everloop);
    command.args(args);
    command
}

/// A real loop with one finished turn, and a journal that makes it look old.
fn fill(scene: &Scene, options: &Options) -> Result<u64> {
    let agent = scene.agent("__flood 100");
    scene.finish(&["run", "x", "--check", "false", "--agent-cmd", &agent, "--min-gap", "0", "-n", "1"], 3)?;
    let owner = scene.only_loop()?.id;
    let mut ledger = scene.ledger(OpenMode::ReadWrite)?;
    let events: Vec<Event> = (0..BATCH).map(|i| Event::Woken { by: format!("bench {i}") }).collect();
    for _ in 0..options.length.pick(ROWS, ROWS / 5) / BATCH {
        ledger.transact(Time(1), &[Op::Append { owner: Some(owner.clone()), events: events.clone() }])?;
    }
    Ok(ledger.last_seq()?)
}
