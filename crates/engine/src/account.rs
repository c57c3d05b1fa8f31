//! An account's variables: read when a turn starts, handed to that turn alone, kept nowhere.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use everloop_agents::environment::{Environment, Hidden, Outside};
use everloop_core::spec::{AgentSpec, Variable, VariableSource};

/// A key is a line; a file with a longer one is not a key.
const VALUE_CAP: u64 = 64 << 10;

/// Names of variables of the environment that an agent is given.
pub(super) fn names(agent: &AgentSpec) -> Vec<String> {
    let of_account = agent.env.iter().filter_map(|variable| match &variable.source {
        VariableSource::Env(name) => Some(name),
        VariableSource::Plain(_) | VariableSource::File(_) => None,
    });
    agent.pass_env.iter().chain(&agent.login).chain(of_account).cloned().collect()
}

/// The variables of the environment and of its account that an agent gets.
pub(super) fn environment(agent: &AgentSpec, outside: &Outside) -> Result<Environment, String> {
    let names: Vec<String> = agent.pass_env.iter().chain(&agent.login).cloned().collect();
    let mut env = Environment::from(outside, &names);
    for variable in &agent.env {
        let value =
            value(variable, outside).map_err(|why| format!("account `{}`: {}: {why}", agent.account, variable.name))?;
        env = env.with(&variable.name, value);
    }
    Ok(env)
}

/// Names of variables with values to redact from the agent's output.
pub(super) fn secrets(agent: &AgentSpec) -> Vec<String> {
    let own = agent.env.iter().filter(|v| is_secret(v)).map(|v| v.name.clone());
    let login = agent.login.iter().filter(|name| holds_key(name)).cloned();
    agent.pass_env.iter().cloned().chain(own).chain(login).collect()
}

/// Secrets to redact from the output of checks and setups, whichever of the loop's agents wrote
/// them down.
pub fn hidden<'a>(agents: impl Iterator<Item = &'a AgentSpec>, outside: &Outside) -> Vec<Hidden> {
    let mut hidden = Vec::new();
    for agent in agents {
        let own = agent.env.iter().filter(|v| is_secret(v));
        hidden.extend(own.filter_map(|v| Some(Hidden { name: v.name.clone(), value: value(v, outside).ok()? })));
        let login = agent.login.iter().filter(|name| holds_key(name));
        hidden.extend(login.filter_map(|name| Some(Hidden { name: name.clone(), value: outside.get(name)?.clone() })));
    }
    hidden
}

fn is_secret(variable: &Variable) -> bool {
    !matches!(variable.source, VariableSource::Plain(_))
}

/// A login is a key or a path; only the former is a secret.
fn holds_key(name: &str) -> bool {
    ["KEY", "TOKEN", "SECRET", "PASSWORD"].iter().any(|word| name.contains(word))
}

fn value(variable: &Variable, outside: &Outside) -> Result<OsString, String> {
    match &variable.source {
        VariableSource::Plain(text) => Ok(at_home(text).into()),
        VariableSource::Env(name) => outside
            .get(name)
            .filter(|v| !v.is_empty())
            .cloned()
            .ok_or_else(|| format!("the variable `{name}` is not set where the supervisor was started")),
        VariableSource::File(path) => first_line(&at_home(path)).map_err(|e| format!("cannot read `{path}`: {e}")),
    }
}

fn first_line(path: &std::path::Path) -> std::io::Result<OsString> {
    let mut line = String::new();
    BufReader::new(File::open(path)?.take(VALUE_CAP)).read_line(&mut line)?;
    Ok(line.trim().into())
}

/// Expands `~/x` to the home folder of the supervisor's user.
fn at_home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => PathBuf::from(path),
    }
}
