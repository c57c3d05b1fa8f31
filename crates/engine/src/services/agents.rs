//! Which agents are installed on this machine, logged in, and how they are billed. Reads no
//! credential.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use everloop_agents::agent::probe::{Installed, Lookup, find_installed, look};
use everloop_agents::environment::Environment;
use everloop_core::spec::{AgentKind, AgentSpec, VariableSource};

/// Probes all of them at once: each program takes its time to print its version.
pub fn look_at(specs: Vec<AgentSpec>) -> Vec<(AgentSpec, Installed)> {
    let found: Vec<Installed> = std::thread::scope(|scope| {
        let looks: Vec<_> = specs.iter().map(|spec| scope.spawn(move || probe(spec, look))).collect();
        looks.into_iter().map(|look| look.join().expect("looking at a program does not panic")).collect()
    });
    specs.into_iter().zip(found).collect()
}

/// Whether an agent is installed and logged in; starts nothing.
pub fn find(agent: &AgentSpec) -> Installed {
    probe(agent, find_installed)
}

/// Those of the given CLIs that are installed, logged in ones before others.
pub fn installed(known: impl IntoIterator<Item = AgentSpec>) -> Vec<(AgentSpec, Installed)> {
    let found = known.into_iter().map(|agent| (find(&agent), agent));
    let mut there: Vec<_> =
        found.filter(|(found, _)| found.path.is_some()).map(|(found, agent)| (agent, found)).collect();
    there.sort_by_key(|(_, found)| found.hint.is_some());
    there
}

/// Whether a CLI is on the path.
pub fn is_installed(kind: AgentKind) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(kind.label()).is_file())
}

/// Whether the command of an agent is a file that runs, for a path seen from `dir`.
pub fn is_file_of(agent: &AgentSpec, dir: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let Some(program) = agent.argv.first().filter(|program| program.contains('/')) else { return false };
    dir.join(program).metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Whether its program is installed; our own agent always is.
pub fn is_there(agent: &AgentSpec, found: &Installed) -> bool {
    agent.kind == AgentKind::Api || found.path.is_some()
}

/// `claude`, or `claude@work` under an account of its own.
pub fn title(agent: &AgentSpec) -> String {
    match agent.account.as_str() {
        "" | "default" => agent.name.clone(),
        account => format!("{}@{account}", agent.name),
    }
}

/// The program of an agent.
pub fn program(agent: &AgentSpec) -> &str {
    match agent.kind {
        AgentKind::Pane => "tmux",
        _ => agent.argv.first().map_or(agent.kind.label(), String::as_str),
    }
}

/// Probes an agent with the environment of its turns.
fn probe(agent: &AgentSpec, how: fn(AgentKind, &str, Lookup<'_>) -> Installed) -> Installed {
    let seen = environment(agent);
    let key = agent.argv.last().filter(|_| agent.kind == AgentKind::Api);
    how(agent.kind, program(agent), &|name: &str| match (key, name) {
        // Our own agent has its key where its configuration puts it, and nowhere else.
        (Some(key), "ANTHROPIC_API_KEY") => seen.get(key.as_str()).cloned(),
        (Some(_), "OPENAI_API_KEY") => None,
        _ => seen.get(name).cloned(),
    })
}

/// The variables of an agent. A file with a secret is not read: its presence is enough.
fn environment(agent: &AgentSpec) -> BTreeMap<String, String> {
    let names: Vec<String> = agent.pass_env.iter().chain(&agent.login).cloned().collect();
    let ours = Environment::from_ours(&names).into_vars();
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let mut seen: BTreeMap<String, String> = ours.into_iter().filter_map(text).collect();
    for variable in &agent.env {
        let value = match &variable.source {
            VariableSource::Env(name) => std::env::var(name).ok(),
            VariableSource::File(path) => Path::new(path).is_file().then(|| "in a file".to_owned()),
            VariableSource::Plain(value) => Some(value.clone()),
        };
        seen.remove(&variable.name);
        seen.extend(value.map(|value| (variable.name.clone(), value)));
    }
    seen
}
