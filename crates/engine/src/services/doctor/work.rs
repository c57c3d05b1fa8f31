//! Loops and their leftovers: missing agents, worktrees and turn folders of ended loops, processes
//! without owner.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_agents::agent::probe::LoginState;
use everloop_agents::job;
use everloop_agents::process;
use everloop_agents::workspace::{Workspace, WorkspaceOptions};
use everloop_core::ids::LoopId;
use everloop_core::spec::AgentSpec;
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::Time;
use everloop_store::{Ledger, Sqlite};

use super::{Chart, DoctorFinding, Remedy};
use crate::error::Failure;
use crate::install::watch;
use crate::record::read_state;
use crate::services::agents::{is_file_of, is_there, look_at, title};
use crate::state_folder::StateFolder;
use crate::text::count;
use crate::trust::TrustStore;

/// The output of an ended loop's turns is kept as long as a person may need it.
const OUTPUT_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

pub(super) async fn look(
    home: &StateFolder,
    ledger: Option<&Sqlite>,
    remedy: &Remedy,
    now: Time,
) -> Result<Vec<DoctorFinding>, Failure> {
    let mut chart = Chart::new("work");
    processes(&mut chart, home, remedy);
    let Some(ledger) = ledger else { return Ok(chart.findings) };
    hooks(&mut chart, home, ledger)?;
    let states: Vec<LoopState> = ledger.loops()?.iter().map(read_state).collect::<Result<_, _>>()?;
    agents(&mut chart, &states);
    worktrees(&mut chart, home, &states, remedy).await;
    turn_folders(&mut chart, home, &states, remedy, now);
    Ok(chart.findings)
}

/// Hooks that `init` wrote and that are gone, and those that a CLI skips without a word.
fn hooks(chart: &mut Chart, home: &StateFolder, ledger: &Sqlite) -> Result<(), Failure> {
    let user_home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    for (root, _) in TrustStore::read(ledger)?.folders() {
        let lost = watch::lost(home, root)?;
        for one in &lost {
            chart.fail(one.describe(), one.remedy());
        }
        for (cli, file) in watch::files(home, root)? {
            if lost.iter().any(|one| one.file == file) {
                continue;
            }
            match watch::skipped(cli, root, &user_home) {
                Some(why) => chart.warn(why, watch::trust_hint(cli)),
                None => chart.ok(format!("the hooks in {} are in place", file.display())),
            }
        }
    }
    Ok(())
}

fn agents(chart: &mut Chart, states: &[LoopState]) {
    for state in states.iter().filter(|s| !s.is_over()) {
        let dir = Path::new(&state.spec.workspace.dir);
        if !dir.is_dir() {
            chart.fail(
                format!("the folder of loop {} is gone: {}", state.id, dir.display()),
                format!("everloop stop {}", state.id),
            );
        }
        let owner = format!("loop {} ({})", state.id, state.name);
        let specs = state.spec.agents().cloned().collect();
        agents_of(chart, &owner, dir, specs);
    }
}

/// Checks that agents are installed and logged in; a command that is a path begins in `dir`.
pub(super) fn agents_of(chart: &mut Chart, owner: &str, dir: &Path, specs: Vec<AgentSpec>) {
    for (agent, found) in look_at(specs) {
        let subject = format!("agent `{}` of {owner}", title(&agent));
        let install = "install it, or give the loop another one in everloop.toml";
        match (is_there(&agent, &found) || is_file_of(&agent, dir), found.login) {
            (false, _) => chart.fail(format!("{subject} is not installed"), found.hint.unwrap_or(install)),
            (true, LoginState::NotLoggedIn) => {
                chart.warn(format!("{subject} is not logged in"), found.hint.unwrap_or("everloop agents"));
            }
            (true, LoginState::LoggedIn | LoginState::Unknown) => chart.ok(format!("{subject} is installed")),
        }
    }
}

fn folders(dir: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
        .filter_map(|e| Some((e.file_name().into_string().ok()?, e.path())))
        .collect();
    found.sort();
    found
}

/// Worktrees are recreated when they are needed, and all work is under refs: those of an ended loop
/// are only in the way.
async fn worktrees(chart: &mut Chart, home: &StateFolder, states: &[LoopState], remedy: &Remedy) {
    let Some(parent) = home.work(&LoopId::new("x")).parent().map(Path::to_owned) else { return };
    for (name, path) in folders(&parent) {
        let id = LoopId::new(name);
        let Some(state) = states.iter().find(|s| s.id == id) else {
            let hint = "no loop of this name is known; check it and remove it by hand";
            chart.warn(format!("a folder of an unknown loop: {}", path.display()), hint);
            continue;
        };
        if !state.is_over() || !(path.join("turn").exists() || path.join("git").exists()) {
            continue;
        }
        let text = format!("worktrees of the ended loop {id}: {}", path.display());
        if !remedy.mends() {
            chart.warn(text, remedy.hint());
            continue;
        }
        let options = WorkspaceOptions { owner: id.clone(), root: path.clone(), spec: state.spec.workspace.clone() };
        let cleaned = match Workspace::open(options).await {
            Ok(mut workspace) => workspace.cleanup().await,
            Err(e) => Err(e),
        };
        match cleaned {
            Ok(()) => chart.fixed(text),
            Err(e) => {
                chart.warn(format!("{text}: {e}"), "is its repository still there? if not, remove the folder by hand");
            }
        }
    }
}

fn turn_folders(chart: &mut Chart, home: &StateFolder, states: &[LoopState], remedy: &Remedy, now: Time) {
    let old = |state: &LoopState| match &state.phase {
        Phase::Ended { at, .. } => now.since(*at) > OUTPUT_KEPT,
        Phase::New | Phase::Ready | Phase::Waiting { .. } | Phase::Turn(_) => false,
    };
    let prefixes: Vec<String> = states.iter().filter(|s| old(s)).map(|s| format!("{}-", s.id)).collect();
    let stale: Vec<PathBuf> = folders(&home.turns())
        .into_iter()
        .filter(|(name, _)| prefixes.iter().any(|prefix| name.starts_with(prefix)))
        .map(|(_, path)| path)
        .collect();
    if stale.is_empty() {
        return;
    }
    let text = format!("{} of loops that ended more than a week ago", count(stale.len() as u64, "turn folder"));
    if !remedy.mends() {
        return chart.warn(text, remedy.hint());
    }
    match stale.iter().try_for_each(std::fs::remove_dir_all) {
        Ok(()) => chart.fixed(text),
        Err(e) => chart.warn(format!("{text}: {e}"), "remove them by hand"),
    }
}

/// Processes that carry a job's mark although no supervisor watches that job.
fn processes(chart: &mut Chart, home: &StateFolder, remedy: &Remedy) {
    let Ok(state_mark) = job::state_mark(home.root()) else { return };
    let jobs: BTreeMap<String, PathBuf> =
        job_folders(home).into_iter().filter_map(|dir| Some((job::mark(&dir).ok()?, dir))).collect();
    let mut orphans: BTreeMap<String, usize> = BTreeMap::new();
    let spared = process::with_ancestors(std::process::id().cast_signed());
    for pid in process::all().into_iter().filter(|pid| !spared.contains(pid)) {
        let Some(mark) = mark_of(pid).filter(|mark| mark.starts_with(&state_mark)) else { continue };
        if !jobs.get(&mark).is_some_and(|dir| is_looked_after(dir)) {
            *orphans.entry(mark).or_default() += 1;
        }
    }
    if orphans.is_empty() {
        return chart.ok("no process without owner");
    }
    for (mark, number) in orphans {
        let job = jobs.get(&mark).map_or_else(|| "its folder is gone".to_owned(), |dir| dir.display().to_string());
        let text = format!(
            "{} of a job that is over: {}",
            count(number as u64, "process").replace("processs", "processes"),
            job
        );
        if remedy.mends() {
            job::reap_marked(job::JOB_VAR, mark.as_ref());
            chart.fixed(text);
        } else {
            chart.warn(text, remedy.hint());
        }
    }
}

/// All folders of jobs in the state folder.
fn job_folders(home: &StateFolder) -> Vec<PathBuf> {
    let below = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    let checks = below(home.root().join("checks")).flat_map(below);
    below(home.turns()).chain(below(home.root().join("setup"))).chain(checks).collect()
}

fn mark_of(pid: i32) -> Option<String> {
    process::stat(pid).filter(process::Stat::is_alive)?;
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mark = format!("{}=", job::JOB_VAR);
    let value = environment.split(|b| *b == 0).find_map(|entry| entry.strip_prefix(mark.as_bytes()))?;
    String::from_utf8(value.to_vec()).ok()
}

/// Whether its shim lives, or is so young that it has not written its start record.
fn is_looked_after(job: &Path) -> bool {
    match job::started(job) {
        Ok(Some(started)) => started.shim.is_alive(),
        Ok(None) => job.is_dir(),
        Err(_) => false,
    }
}
