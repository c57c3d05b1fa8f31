//! `[isolation]`: what the commands of a loop may reach, typed, with the secret files of accounts
//! that its agents do not run under.

use everloop_core::isolation::{IsolationMode, IsolationSpec};
use everloop_core::spec::VariableSource;
use everloop_engine::diagnostic::Diagnostic;

use super::agent::Chosen;
use super::keys::LoopKeys;
use super::layer::{Layer, Origin};
use super::value::List;
use super::{Config, ResolveContext, account};

/// What a loop's commands may reach. Its agents are those of `among`.
pub(super) fn isolation(
    keys: &LoopKeys,
    values: &Layer,
    among: (&Config, &[Chosen], &ResolveContext),
    wrong: &mut Vec<Diagnostic>,
) -> IsolationSpec {
    let Some(set) = &keys.isolation else { return IsolationSpec::default() };
    let mut blame = |key: &str, what: String, hint: &str| {
        wrong.push(values.origin(&format!("isolation.{key}")).blame(what).hint(hint));
    };
    let mut paths = |key: &str, list: Option<&List>| {
        let paths = list.map(|list| list.0.clone()).unwrap_or_default();
        for path in paths.iter().filter(|path| !path.starts_with('/') && !path.starts_with("~/")) {
            blame(key, format!("`{path}` in `{key}` is not a whole path"), "begin it with `/` or `~/`");
        }
        paths
    };
    let (readable, mut unreadable) =
        (paths("readable", set.readable.as_ref()), paths("unreadable", set.unreadable.as_ref()));
    let writable = paths("writable", set.writable.as_ref());
    unreadable.extend(foreign_secrets(among));
    let usual = IsolationSpec::default();
    let spec = IsolationSpec {
        mode: set.mode.map_or(usual.mode, |key| key.0),
        readable,
        unreadable,
        writable,
        caches: set.caches.map_or(usual.caches, |flag| flag.0),
        check_network: set.check_network.map_or(usual.check_network, |key| key.0),
        agent_network: set.agent_network.map_or(usual.agent_network, |key| key.0),
        container: set.container.as_ref().map(|line| line.0.clone()).unwrap_or_default(),
        max_processes: set.max_processes.map_or(usual.max_processes, |limit| limit.0),
        max_memory_mb: set.max_memory_mb.map_or(usual.max_memory_mb, |limit| limit.0),
    };
    if spec.mode == IsolationMode::Container && spec.container.is_empty() {
        let hint = "set it in `[isolation]`: `container = [\"docker\", \"run\", …, \"{command}\"]`";
        blame("mode", "the mode `container` has no `container` command line".to_owned(), hint);
    }
    spec
}

/// Files with secrets of accounts that none of the loop's agents runs under.
fn foreign_secrets((config, chosen, moment): (&Config, &[Chosen], &ResolveContext)) -> Vec<String> {
    let own = |name: &str| chosen.iter().any(|agent| agent.spec.account == name);
    let names = config.accounts().into_iter().filter(|name| !own(name));
    // A mistake in an account is reported where the account is used.
    let accounts = names.filter_map(|name| account::find(config, &name, &Origin::BuiltIn, moment).ok());
    let variables = accounts.flat_map(|account| account.env);
    let files = variables.filter_map(|variable| match variable.source {
        VariableSource::File(path) => Some(path),
        VariableSource::Env(_) | VariableSource::Plain(_) => None,
    });
    files.collect()
}
