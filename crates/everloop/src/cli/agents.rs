//! `everloop agents`: which agents are installed, logged in, and how they are billed. Reads no
//! credential.

use std::collections::BTreeMap;

use everloop_agents::agent::probe::{Installed, look};
use everloop_agents::environment::Environment;
use everloop_core::spec::{AgentKind, AgentSpec, VariableSource};
use everloop_engine::error::{Code, Failure};
use serde_json::{Value, json};

use super::{VerbSession, config as config_verb};
use crate::config::{self, BUILT_IN};
use crate::ui::agents::{agents_table, billing, is_there, login};

const HELP: &str = "Examples:
  everloop agents
  everloop agents --json
  everloop run \"GOAL\" --check 'CMD' --agent claude";

/// Lists the agents that everloop knows and those of everloop.toml, each under its account:
/// installed, version, logged in, billing.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct AgentsArgs {}

pub fn agents(_: &AgentsArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let specs = config_verb::load(session)?.all_agents(&config_verb::this_moment(session))?;
    let found = look_at(specs);
    let rows: Vec<Value> = found.iter().map(as_json).collect();
    let lines = agents_table(&found, session.ui.paint(), session.ui.width());
    session.ui.answer(&lines, &json!({ "agents": rows }))?;
    Ok(Code::Ok)
}

/// Probes all of them at once: each program takes its time to print its version.
pub(super) fn look_at(specs: Vec<AgentSpec>) -> Vec<(AgentSpec, Installed)> {
    let found: Vec<Installed> = std::thread::scope(|scope| {
        let looks: Vec<_> = specs.iter().map(|spec| scope.spawn(move || look_as(spec))).collect();
        looks.into_iter().map(|look| look.join().expect("looking at a program does not panic")).collect()
    });
    specs.into_iter().zip(found).collect()
}

/// The first CLI that is installed here, logged in ones before others.
pub(super) fn installed() -> Option<AgentKind> {
    let known = BUILT_IN.into_iter().filter(|kind| *kind != AgentKind::Api);
    let found = look_at(known.map(config::built_in).collect());
    let mut there: Vec<_> = found.into_iter().filter(|(_, found)| found.path.is_some()).collect();
    there.sort_by_key(|(_, found)| found.hint.is_some());
    there.first().map(|(agent, _)| agent.kind)
}

/// Whether a CLI is on the path; starts nothing.
pub(super) fn is_installed(kind: AgentKind) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(kind.label()).is_file())
}

/// Probes an agent with the environment of its turns.
fn look_as(agent: &AgentSpec) -> Installed {
    let seen = environment(agent);
    let program = match agent.kind {
        AgentKind::Pane => "tmux",
        _ => agent.argv.first().map_or(agent.kind.label(), String::as_str),
    };
    let key = agent.argv.last().filter(|_| agent.kind == AgentKind::Api);
    look(agent.kind, program, &|name: &str| match (key, name) {
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
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let mut seen: BTreeMap<String, String> = ours.into_iter().filter_map(text).collect();
    for variable in &agent.env {
        let value = match &variable.source {
            VariableSource::Env(name) => std::env::var(name).ok(),
            VariableSource::File(path) => std::path::Path::new(path).is_file().then(|| "in a file".to_owned()),
            VariableSource::Plain(value) => Some(value.clone()),
        };
        seen.remove(&variable.name);
        seen.extend(value.map(|value| (variable.name.clone(), value)));
    }
    seen
}

fn as_json((agent, found): &(AgentSpec, Installed)) -> Value {
    let word = |text: &str| (text != "-").then(|| text.replace(' ', "_"));
    json!({
        "name": agent.name,
        "kind": agent.kind,
        "account": agent.account,
        "model": agent.model,
        "permission": agent.permission,
        "installed": is_there(agent, found),
        "path": found.path,
        "version": found.version,
        "login": word(login(found.login)),
        "billing": word(billing(found.billing)),
        "hint": found.hint,
    })
}
