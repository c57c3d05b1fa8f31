//! One run of the real binary on a problem of the arena: what it adds to agent and metric, and that
//! it decides as the code in this process does.

use super::arena::{ARENA, Place};
use super::decided;
use crate::report::{BenchRow, ms, remark};
use crate::research::{METRIC, METRIC_STAMPS, costs};
use crate::scene::{Project, STAMPS, Scene};
use crate::{Options, Result};

const LANDSCAPE: &str = "rastrigin";
const SEED: u32 = 0;

pub fn run(options: &Options, place: &Place) -> Result<()> {
    let experiments: u32 = options.length.pick(100, 20);
    let scene = Scene::new(options, Project::Git)?;
    let seed = SEED.to_string();
    let python = |words: &str| format!("python3 '{ARENA}' {words}");
    let begin = scene.clean("sh".as_ref()).args(["-c", &python(&format!("begin {LANDSCAPE} {seed}"))]).output()?;
    std::fs::write(scene.project().join("point"), begin.stdout)?;
    let timed = |stamps: &str, words: &str| {
        scene.agent(&format!("__timed '{}' {}", scene.path(stamps).display(), python(words)))
    };
    let agent = timed(STAMPS, &format!("edit {LANDSCAPE} {seed} point {{prompt_file}}"));
    scene.measured_by(&timed(METRIC_STAMPS, &format!("measure {LANDSCAPE} point")))?;
    let count = experiments.to_string();
    let words = ["research", "a lower value", "--metric", METRIC, "--direction", "lower", "--agent-cmd", &agent];
    let writable = scene.path(METRIC_STAMPS).display().to_string();
    let took = scene.finish(&[&words[..], &["--min-gap=0", "-n", &count, "--writable", &writable]].concat(), 3)?;
    let costs = costs(&scene, experiments)?;
    BenchRow::new(format!("everloop itself, {LANDSCAPE}, {experiments} experiments"), ms(costs.median())).print();
    remark(&format!("per evaluation, beyond agent and metric; the whole run took {:.1} s", took.as_secs_f64()));
    let state: serde_json::Value = serde_json::from_str(&scene.only_loop()?.state)?;
    let samples = state["research"]["champion"]["samples"].as_array().ok_or("a champion has a value")?.clone();
    let real = samples.first().and_then(serde_json::Value::as_f64).ok_or("a champion has a value")?;
    let (most, higher) = (experiments as usize + 3, false);
    let expected = decided::play(place, (LANDSCAPE, higher), SEED, most)?.after(most).ok_or("it was played")?;
    let equal = (real - expected).abs() <= 1e-9 * expected.abs();
    BenchRow::new("  its champion", format!("{real:.6}"))
        .goal(&format!("{expected:.6}, as decided in this process"), equal)
        .print();
    Ok(())
}
