//! Research with several workers: how much of the ideal throughput is left with a metric that takes
//! half a second and an agent that takes next to nothing.

use std::time::Duration;

use everloop_core::event::Event;
use everloop_core::research::state::ExperimentStep;
use everloop_core::time::Time;
use everloop_store::{Ledger, OpenMode};

use crate::report::{BenchRow, heading, remark};
use crate::scene::{Project, Scene};
use crate::{Options, Result};

/// Time of one measurement.
const EVALUATION: Duration = Duration::from_millis(500);
/// Workers that are measured.
const WORKERS: [u32; 3] = [1, 4, 8];
/// Share of the ideal throughput.
const GOAL: f64 = 0.96;
/// Records of the journal that are read at once.
const PAGE: usize = 1_000;

pub fn run(options: &Options) -> Result<()> {
    heading("research-workers");
    let each = options.length.pick(40, 5);
    remark(&format!("metric `sleep 0.5; echo 1`, {each} experiments per worker, from the baseline to the last row"));
    for workers in WORKERS {
        let experiments = each * workers;
        let wall = measure(options, workers, experiments)?;
        let ideal = EVALUATION.as_secs_f64() * f64::from(experiments) / f64::from(workers);
        let efficiency = ideal / wall.as_secs_f64();
        let own = wall.as_secs_f64() * f64::from(workers) / f64::from(experiments) - EVALUATION.as_secs_f64();
        let text = format!("{efficiency:.3} of ideal, {:.0} ms each beside", own * 1e3);
        let row = BenchRow::new(format!("research, {workers} workers, {experiments} experiments"), text);
        row.goal(&format!(">= {GOAL}"), efficiency >= GOAL).print();
    }
    Ok(())
}

/// The time from the baseline to the last row.
fn measure(options: &Options, workers: u32, experiments: u32) -> Result<Duration> {
    let scene = Scene::new(options, Project::Git)?;
    let (workers, count) = (workers.to_string(), experiments.to_string());
    let words = ["research", "faster", "--metric", "sleep 0.5; echo 1", "--direction", "lower", "--min-gap", "0"];
    let agent = ["--agent-cmd", "echo $EVERLOOP_TURN > change", "-n", &count, "--workers", &workers];
    scene.finish(&[&words[..], &agent[..]].concat(), 3)?;
    let ledger = scene.ledger(OpenMode::ReadOnly)?;
    let (mut from, mut to, mut after, mut rows) = (Time::default(), Time::default(), 0, 0);
    loop {
        let page = ledger.journal(after, None, PAGE)?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for record in &page {
            let Event::Experiment { step } = &record.event else { continue };
            match **step {
                ExperimentStep::Baseline { .. } => from = record.at,
                ExperimentStep::Decided { .. } => (to, rows) = (record.at, rows + 1),
                _ => {}
            }
        }
    }
    if rows != experiments {
        return Err(format!("{rows} rows instead of {experiments}").into());
    }
    Ok(to.since(from))
}
