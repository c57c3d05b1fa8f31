//! Turns that change a file: in a small repository, with the number of git processes, and in a
//! large one beside the time of `git status`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use super::{read_gaps, spread};
use crate::measure::{Times, run_times};
use crate::report::{BenchRow, heading, ms, ratio, remark};
use crate::scene::{Project, STAMPS, Scene};
use crate::{Options, Result};

/// Files of the large repository.
const FILES: u32 = 50_000;

/// Turns of which git processes are counted. Two runs of different length: what a loop starts once
/// falls out of the difference.
const COUNTED_TURNS: [u32; 2] = [4, 14];

/// Runs of `git status` before and after.
const STATUS_SAMPLES: usize = 10;

pub fn run(options: &Options) -> Result<()> {
    heading("change: each turn changes a file, which is committed, checked and kept");
    let turns = options.length.pick(100, 20);
    let scene = Scene::new(options, Project::Git)?;
    let shell = shell_loop(&scene, turns)?;
    BenchRow::new("bash loop that commits", spread(&shell)).print();
    for mode in ["none", "landlock"] {
        let gaps = measure(&Scene::new(options, Project::Git)?, turns, mode)?;
        let times = ratio(gaps.median(), shell.median());
        let mut row = BenchRow::new(format!("everloop, isolation {mode}"), spread(&gaps));
        row = row.floor("bash", &ms(shell.median()), times);
        if mode == "landlock" {
            row = row.goal("<= 30 ms", gaps.median() <= Duration::from_millis(30));
        }
        row.print();
    }
    let [few, many] = COUNTED_TURNS;
    let counted = count(options, many)?.saturating_sub(count(options, few)?);
    let each = f64::from(counted) / f64::from(many - few);
    BenchRow::new("  git processes per turn", format!("{each:.1}")).goal("<= 8", each <= 8.0).print();
    large(options)
}

fn large(options: &Options) -> Result<()> {
    let scene = Scene::new(options, Project::Large(FILES))?;
    let status = || {
        let mut git = scene.clean(Path::new("git"));
        git.arg("status").current_dir(scene.project());
        git
    };
    run_times(status, 2)?;
    let mut times = run_times(status, STATUS_SAMPLES)?.into_all();
    let gaps = measure(&scene, options.length.pick(20, 8), "auto")?;
    times.extend(run_times(status, STATUS_SAMPLES)?.into_all());
    let status = Times::new(times)?.median();
    let times = ratio(gaps.median(), status);
    BenchRow::new(format!("everloop, {FILES} files"), spread(&gaps))
        .floor("git status", &ms(status), times)
        .goal("<= 2.5x", times <= 2.5)
        .print();
    remark("git status: in the project's folder, before and after the run");
    Ok(())
}

/// The shell words of an agent that changes a file and then records its time.
fn agent(scene: &Scene, stamps: &Path) -> String {
    format!("echo more >> README; {}", scene.agent(&format!("__stamp '{}'", stamps.display())))
}

fn words(scene: &Scene, turns: u32, mode: &str) -> Vec<String> {
    let agent = agent(scene, &scene.path(STAMPS));
    let run = ["run", "x", "--check", "false", "--agent-cmd", &agent, "--min-gap=0", "-n"];
    run.into_iter().chain([&*turns.to_string(), "--isolation", mode]).map(str::to_owned).collect()
}

fn measure(scene: &Scene, turns: u32, mode: &str) -> Result<Times> {
    scene.finish(&words(scene, turns, mode).iter().map(String::as_str).collect::<Vec<_>>(), 3)?;
    read_gaps(&scene.path(STAMPS), turns)
}

/// The same agent under a shell that commits its work and runs the check.
fn shell_loop(scene: &Scene, turns: u32) -> Result<Times> {
    let stamps = scene.path("shell-stamps");
    let commit = "git add -A; git -c user.name=bench -c user.email=bench@localhost commit -q -m turn";
    let agent = agent(scene, &stamps);
    let script = format!("for ((i = 0; i < {turns}; i++)); do {agent}; {commit}; sh -c false && break; done; true");
    let status = scene.clean(Path::new("bash")).args(["-c", &script]).current_dir(scene.project()).status()?;
    if !status.success() {
        return Err(format!("the bash loop ended with {status}").into());
    }
    read_gaps(&stamps, turns)
}

/// The git processes of a whole loop, by a program of that name that counts and then becomes git.
fn count(options: &Options, turns: u32) -> Result<u32> {
    let scene = Scene::new(options, Project::Git)?;
    let (programs, list) = (scene.path("programs"), scene.path("calls"));
    std::fs::create_dir(&programs)?;
    let text = format!("#!/bin/sh\necho git >> '{}'\nPATH=$BENCH_PATH exec git \"$@\"\n", list.display());
    let text = text.replace("$BENCH_PATH", crate::scene::PATH);
    std::fs::write(programs.join("git"), text)?;
    std::fs::set_permissions(programs.join("git"), std::fs::Permissions::from_mode(0o755))?;
    let words = words(&scene, turns, "auto");
    let mut command = scene.everloop(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let status = command.env("PATH", format!("{}:{}", programs.display(), crate::scene::PATH)).status()?;
    if status.code() != Some(3) {
        return Err(format!("everloop with counted git ended with {status}").into());
    }
    Ok(u32::try_from(std::fs::read_to_string(&list)?.lines().count())?)
}
