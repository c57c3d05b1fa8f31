//! What lies between the end of one agent and the start of the next, next to a shell loop that does as little, and to
//! shell loops that are as durable.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::measure::{Times, sync_times};
use crate::report::{Row, heading, ms, ratio, remark};
use crate::scene::{Project, Scene};
use crate::{Options, Result};

/// Turns that are looked at with strace: enough for a mean, few because each is slow.
const TRACED_TURNS: u32 = 20;

pub fn run(options: &Options) -> Result<()> {
    let turns = options.effort.pick(200, 40);
    heading(&format!(
        "turn: from one agent's exit to the next one's start, {turns} turns, gap 0, an agent that does nothing"
    ));
    let scene = Scene::new(options, Project::Plain)?;
    let sync = sync_times(&scene.path(""), 200)?;
    Row::new("this disk: append 4 KB and sync", format!("{} p90 {}", ms(sync.median()), ms(sync.p90()))).print();
    let mut shells = Vec::new();
    for syncs in [0, 2, 3] {
        let gaps = shell_loop(&scene, turns, syncs)?;
        let what = match syncs {
            0 => "bash loop".to_owned(),
            n => format!("bash loop that syncs a file {n} times"),
        };
        Row::new(what, format!("{} p90 {}", ms(gaps.median()), ms(gaps.p90()))).print();
        shells.push((syncs, gaps));
    }
    for project in [Project::Plain, Project::Git] {
        measure(options, project, turns, &sync, &shells)?;
    }
    remark("beyond syncs = median gap - synced commits x median sync; the checks run inside of it");
    remark(
        "peers, without durability: ralph-tui 11 ms, ralphy 15, sloop 20, ralphify 27, claudeloop 136, ralph-orchestrator 254",
    );
    Ok(())
}

fn measure(options: &Options, project: Project, turns: u32, sync: &Times, shells: &[(u32, Times)]) -> Result<()> {
    let scene = Scene::new(options, project)?;
    let stamps = scene.path("stamps");
    scene.finish(&arguments(&scene, turns).each_ref().map(String::as_str), 3)?;
    let gaps = read_gaps(&stamps, turns)?;
    // Every commit of the supervisor saves the loop, and every save counts its version up by one.
    let commits = scene.only_loop()?.version as f64 / f64::from(turns);
    let label = project.label();
    let bare = shells[0].1.median();
    Row::new(format!("everloop, {label}"), format!("{} p90 {}", ms(gaps.median()), ms(gaps.p90())))
        .floor("bash", &ms(bare), ratio(gaps.median(), bare))
        .print();
    for (syncs, shell) in &shells[1..] {
        let times = ratio(gaps.median(), shell.median());
        remark(&format!("{times:.2}x of the bash loop with {syncs} syncs ({})", ms(shell.median())));
    }
    Row::new(format!("  synced commits per turn, {label}"), format!("{commits:.2}"))
        .goal("<= 3", commits.round() <= 3.0)
        .print();
    let beyond = gaps.median().saturating_sub(sync.median().mul_f64(commits));
    Row::new(format!("  beyond syncs, {label}"), ms(beyond))
        .goal("<= 10 ms", beyond <= Duration::from_millis(10))
        .print();
    match traced_syncs(options, project)? {
        Some(found) => remark(&format!("sync calls per turn seen by strace: {found}")),
        None => remark("strace is not here: syncs outside of the ledger were not looked for"),
    }
    Ok(())
}

fn arguments(scene: &Scene, turns: u32) -> [String; 9] {
    let agent = scene.agent(&format!("__stamp '{}'", scene.path("stamps").display()));
    ["run", "x", "--check", "false", "--agent-cmd", &agent, "--gap=0", "-n", &turns.to_string()].map(str::to_owned)
}

/// The same agent and the same check under a shell; with `syncs` also a synced note per turn.
fn shell_loop(scene: &Scene, turns: u32, syncs: u32) -> Result<Times> {
    let stamps = scene.path(&format!("shell-stamps-{syncs}"));
    let agent = scene.agent(&format!("__stamp '{}'", stamps.display()));
    let note = match syncs {
        0 => String::new(),
        n => scene.agent(&format!("__sync '{}' {n};", scene.path("note").display())),
    };
    let script = format!("for ((i = 0; i < {turns}; i++)); do {agent}; {note} sh -c false && break; done; true");
    let status = scene.clean(Path::new("bash")).args(["-c", &script]).status()?;
    if !status.success() {
        return Err(format!("the bash loop ended with {status}").into());
    }
    read_gaps(&stamps, turns)
}

/// From each agent's exit to the next one's start.
fn read_gaps(stamps: &Path, turns: u32) -> Result<Times> {
    let text = std::fs::read_to_string(stamps)?;
    let mut lines = Vec::new();
    for line in text.lines() {
        let (start, exit) = line.split_once(' ').ok_or("a stamp has two numbers")?;
        lines.push((start.parse::<u64>()?, exit.parse::<u64>()?));
    }
    if lines.len() != turns as usize {
        return Err(format!("{} turns ran instead of {turns}", lines.len()).into());
    }
    let gap = |pair: &[(u64, u64)]| Duration::from_nanos(pair[1].0.saturating_sub(pair[0].1));
    Times::new(lines.windows(2).map(gap).collect())
}

/// Counts every sync call of everloop and its children by file; `None` without strace. The first turn's setup is in it.
fn traced_syncs(options: &Options, project: Project) -> Result<Option<String>> {
    let scene = Scene::new(options, project)?;
    let trace = scene.path("trace");
    let mut strace = scene.clean(Path::new("strace"));
    strace
        .args(["-f", "-qq", "-y", "-e", "trace=fsync,fdatasync,syncfs,sync", "-o"])
        .arg(&trace)
        .arg(&options.everloop);
    strace.arg("--state-dir").arg(scene.state()).args(arguments(&scene, TRACED_TURNS)).current_dir(scene.project());
    let Ok(status) = quiet(&mut strace).status() else { return Ok(None) };
    if status.code() != Some(3) {
        return Err(format!("everloop under strace ended with {status}").into());
    }
    let text = std::fs::read_to_string(&trace)?;
    let calls: Vec<&str> = text.lines().filter(|l| l.contains("sync") && l.contains("= 0")).collect();
    let per_turn = |needle: &str| {
        let n = calls.iter().filter(|l| l.contains(needle)).count();
        n as f64 / f64::from(TRACED_TURNS)
    };
    let (wal, database, all) = (per_turn("ledger.db-wal>"), per_turn("ledger.db>"), per_turn("sync"));
    Ok(Some(format!("{wal:.2} of the ledger's log, {database:.2} of its file, {:.2} of others", all - wal - database)))
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdout(Stdio::null()).stderr(Stdio::null())
}
