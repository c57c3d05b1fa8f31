//! The time between the end of one agent and the start of the next, beside a shell loop that does
//! as little, and shell loops that are as durable.
//!
//! - `isolated`: the same under each means of isolation; `change`: turns that change a file

mod change;
mod isolated;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::measure::{Times, sync_times};
use crate::report::{BenchRow, heading, ms, ratio, remark};
use crate::scene::{Project, STAMPS, Scene};
use crate::{Options, Result};

/// Turns that run under strace: enough for a mean, few because each is slow.
const TRACED_TURNS: u32 = 20;
/// Syncs that are timed: enough for a median, done in a second on a slow disk.
const SYNC_SAMPLES: usize = 200;

pub fn run(options: &Options) -> Result<()> {
    let turns = options.length.pick(200, 40);
    heading(&format!("turn: from one agent's exit to the next one's start, {turns} turns, gap 0, a no-op agent"));
    let scene = Scene::new(options, Project::Plain)?;
    let sync = sync_times(&scene.path(""), SYNC_SAMPLES)?;
    BenchRow::new("this disk: append 4 KB and sync", spread(&sync)).print();
    let bare = shell_loop(&scene, turns, 0)?;
    BenchRow::new("bash loop", spread(&bare)).print();
    let mut durable = Vec::new();
    for syncs in [2, 3] {
        let gaps = shell_loop(&scene, turns, syncs)?;
        BenchRow::new(format!("bash loop that syncs a file {syncs} times"), spread(&gaps)).print();
        durable.push((syncs, gaps.median()));
    }
    let floors = Floors { bare: bare.median(), durable };
    for project in [Project::Plain, Project::Git] {
        measure(options, project, turns, &floors)?;
    }
    isolated::run(options, turns)?;
    change::run(options)?;
    remark("beyond commits = median gap - synced commits x median sync; the check runs inside of it");
    remark("peers, without durability: ralph-tui 11 ms, ralphy 15, sloop 20, ralphify 27, claudeloop 136,");
    remark("       ralph-orchestrator 254");
    Ok(())
}

/// The same agent and check in shell loops: as little as possible, and with this many syncs per
/// turn.
struct Floors {
    bare: Duration,
    durable: Vec<(u32, Duration)>,
}

fn measure(options: &Options, project: Project, turns: u32, floors: &Floors) -> Result<()> {
    let scene = Scene::new(options, project)?;
    // Beside the run and not once for all: the time of a sync depends on the load of the disk.
    let before = sync_times(&scene.path(""), SYNC_SAMPLES)?.median();
    scene.finish(&arguments(&scene, turns).each_ref().map(String::as_str), 3)?;
    let after = sync_times(&scene.path(""), SYNC_SAMPLES)?.median();
    let sync = (before + after) / 2;
    let gaps = read_gaps(&scene.path(STAMPS), turns)?;
    // Every commit of the supervisor saves the loop, and every save increments its version.
    let commits = scene.only_loop()?.version as f64 / f64::from(turns);
    let label = project.label();
    BenchRow::new(format!("everloop, {label}"), spread(&gaps))
        .floor("bash", &ms(floors.bare), ratio(gaps.median(), floors.bare))
        .print();
    for (syncs, shell) in &floors.durable {
        let times = ratio(gaps.median(), *shell);
        remark(&format!("{times:.2}x of the bash loop with {syncs} syncs ({})", ms(*shell)));
    }
    BenchRow::new("  synced commits per turn", format!("{commits:.2}")).goal("<= 3", commits.round() <= 3.0).print();
    let beyond = gaps.median().saturating_sub(sync.mul_f64(commits));
    let met = beyond <= Duration::from_millis(10);
    BenchRow::new("  beyond commits", ms(beyond)).goal("<= 10 ms", met).print();
    remark(&format!("with {} per sync, measured before and after the run", ms(sync)));
    match traced_syncs(options, project)? {
        Some(found) => remark(&format!("sync calls per turn seen by strace: {found}")),
        None => remark("strace is not installed: syncs outside of the ledger were not counted"),
    }
    Ok(())
}

fn spread(times: &Times) -> String {
    format!("{} p90 {}", ms(times.median()), ms(times.p90()))
}

fn arguments(scene: &Scene, turns: u32) -> [String; 9] {
    let agent = scene.agent(&format!("__stamp '{}'", scene.path(STAMPS).display()));
    ["run", "x", "--check", "false", "--agent-cmd", &agent, "--min-gap=0", "-n", &turns.to_string()].map(str::to_owned)
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
pub fn read_gaps(stamps: &Path, turns: u32) -> Result<Times> {
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

/// Counts every sync call of everloop and its children from the first agent's start to the last
/// one's, by file; `None` without strace.
fn traced_syncs(options: &Options, project: Project) -> Result<Option<String>> {
    let scene = Scene::new(options, project)?;
    let trace = scene.path("trace");
    let mut strace = scene.clean(Path::new("strace"));
    strace.args(["-f", "-qq", "-y", "-s", "4096", "-e", "trace=execve,fsync,fdatasync,syncfs,sync", "-o"]).arg(&trace);
    strace.arg(&options.everloop).arg("--state-dir").arg(scene.state()).args(arguments(&scene, TRACED_TURNS));
    strace.arg("--writable").arg(scene.path(STAMPS));
    strace.current_dir(scene.project()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(status) = strace.status() else { return Ok(None) };
    if status.code() != Some(3) {
        return Err(format!("everloop under strace ended with {status}").into());
    }
    let text = std::fs::read_to_string(&trace)?;
    let lines: Vec<&str> = text.lines().collect();
    let is_agent = |l: &&str| l.contains("execve(") && l.contains("\"__stamp\", ") && !l.contains("--agent-cmd");
    let (Some(first), Some(last)) = (lines.iter().position(is_agent), lines.iter().rposition(is_agent)) else {
        return Err("strace saw no agent".into());
    };
    // A call that another thread interrupts is printed on two lines; only the first has the file's
    // name.
    let calls: Vec<&str> = lines[first..last].iter().filter(|l| l.contains("sync(")).copied().collect();
    let per_turn = |needle: &str| {
        let n = calls.iter().filter(|l| l.contains(needle)).count();
        n as f64 / f64::from(TRACED_TURNS - 1)
    };
    let (wal, database, all) = (per_turn("ledger.db-wal>"), per_turn("ledger.db>"), per_turn("sync("));
    let others = all - wal - database;
    Ok(Some(format!("{wal:.2} of the ledger's log, {database:.2} of its file, {others:.2} of other files")))
}
