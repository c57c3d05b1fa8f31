//! An account's variables: looked up when a turn starts, handed to that turn alone, kept nowhere.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use everloop_agents::environment::Environment;
use everloop_core::spec::{AgentSpec, Source, Variable};

/// A key is a line; a file with a longer one is not a key.
const VALUE_CAP: u64 = 64 << 10;

/// Everything that an agent sees of our environment and of its account.
pub(super) fn environment(agent: &AgentSpec) -> Result<Environment, String> {
    let mut env = Environment::from_ours(&agent.pass_env);
    for variable in &agent.env {
        let value = value(variable).map_err(|why| format!("account `{}`: {}: {why}", agent.account, variable.name))?;
        env = env.with(&variable.name, value);
    }
    Ok(env)
}

/// Names of variables whose values must not be seen in any output.
pub(super) fn secrets(agent: &AgentSpec) -> Vec<String> {
    let is_secret = |v: &&Variable| !matches!(v.source, Source::Plain(_));
    let own = agent.env.iter().filter(is_secret).map(|v| v.name.clone());
    agent.pass_env.iter().cloned().chain(own).collect()
}

fn value(variable: &Variable) -> Result<OsString, String> {
    match &variable.source {
        Source::Plain(text) => Ok(at_home(text).into()),
        Source::Env(name) => std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .ok_or_else(|| format!("the variable `{name}` is not set where the supervisor was started")),
        Source::File(path) => first_line(&at_home(path)).map_err(|e| format!("cannot read `{path}`: {e}")),
    }
}

fn first_line(path: &std::path::Path) -> std::io::Result<OsString> {
    let mut line = String::new();
    BufReader::new(File::open(path)?.take(VALUE_CAP)).read_line(&mut line)?;
    Ok(line.trim().into())
}

/// `~/x` is in the home folder of whoever runs the supervisor.
fn at_home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => PathBuf::from(path),
    }
}
