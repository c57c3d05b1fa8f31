//! An account's variables: read when a turn starts, handed to that turn alone, kept nowhere.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use everloop_agents::environment::{Environment, Hidden};
use everloop_core::spec::{AgentSpec, Variable, VariableSource};

/// A key is a line; a file with a longer one is not a key.
const VALUE_CAP: u64 = 64 << 10;

/// The variables of our environment and of its account that an agent gets.
pub(super) fn environment(agent: &AgentSpec) -> Result<Environment, String> {
    let names: Vec<String> = agent.pass_env.iter().chain(&agent.login).cloned().collect();
    let mut env = Environment::from_ours(&names);
    for variable in &agent.env {
        let value = value(variable).map_err(|why| format!("account `{}`: {}: {why}", agent.account, variable.name))?;
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
pub fn hidden<'a>(agents: impl Iterator<Item = &'a AgentSpec>) -> Vec<Hidden> {
    let mut hidden = Vec::new();
    for agent in agents {
        let own = agent.env.iter().filter(|v| is_secret(v));
        hidden.extend(own.filter_map(|v| Some(Hidden { name: v.name.clone(), value: value(v).ok()? })));
        let login = agent.login.iter().filter(|name| holds_key(name));
        hidden.extend(login.filter_map(|name| Some(Hidden { name: name.clone(), value: std::env::var_os(name)? })));
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

fn value(variable: &Variable) -> Result<OsString, String> {
    match &variable.source {
        VariableSource::Plain(text) => Ok(at_home(text).into()),
        VariableSource::Env(name) => std::env::var_os(name)
            .filter(|v| !v.is_empty())
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
