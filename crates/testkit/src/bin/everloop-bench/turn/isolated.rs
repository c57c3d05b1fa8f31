//! What isolation adds to a command: the same no-op turns without it and under each means, in turn,
//! so that a busy moment of the machine meets all of them.

use std::time::Duration;

use super::{arguments, read_gaps, spread};
use crate::measure::Times;
use crate::report::{BenchRow, heading, ms, remark};
use crate::scene::{Project, STAMPS, Scene};
use crate::{Options, Result};

/// Commands between two agents that are isolated: the check and the next agent.
const COMMANDS: u32 = 2;

/// How often the means take turns.
const ROUNDS: u32 = 5;

pub fn run(options: &Options, turns: u32) -> Result<()> {
    heading("isolation: the same no-op turns in a git repository, without and with it");
    let bubblewrap = std::process::Command::new("bwrap").arg("--version").output().is_ok();
    let modes: &[&str] = if bubblewrap { &["none", "landlock", "bubblewrap"] } else { &["none", "landlock"] };
    let mut gaps = vec![Vec::new(); modes.len()];
    let turns = turns / ROUNDS;
    for _ in 0..ROUNDS {
        for (mode, gaps) in modes.iter().zip(&mut gaps) {
            let scene = Scene::new(options, Project::Git)?;
            let mut words = arguments(&scene, turns).to_vec();
            words.extend(["--isolation", mode].map(str::to_owned));
            scene.finish(&words.iter().map(String::as_str).collect::<Vec<_>>(), 3)?;
            gaps.extend(read_gaps(&scene.path(STAMPS), turns)?.into_all());
        }
    }
    let mut without = None;
    for (mode, gaps) in modes.iter().zip(gaps) {
        let times = Times::new(gaps)?;
        let mut row = BenchRow::new(format!("everloop, isolation {mode}"), spread(&times));
        match without {
            None => without = Some(times.median()),
            Some(without) => {
                let added = times.median().saturating_sub(without) / COMMANDS;
                let goal = if *mode == "landlock" { Some(Duration::from_millis(2)) } else { None };
                row = row.floor("none", &ms(without), crate::report::ratio(times.median(), without));
                row.print();
                row = BenchRow::new("  added per command", ms(added));
                row = goal.map_or(row.clone(), |goal| row.goal("<= 2 ms", added <= goal));
            }
        }
        row.print();
    }
    if !bubblewrap {
        remark("bubblewrap is not installed");
    }
    Ok(())
}
