//! `[isolation]`: what the commands of a loop may reach, typed, with the secret files of accounts
//! that its agents do not run under. And the keys by which a monitor, a notifier, a mailbox or a
//! tracker opens more for its own command.

use everloop_agents::channel::ReceiverAccess;
use everloop_core::isolation::{CommandAccess, IsolationMode, IsolationSpec};
use everloop_core::spec::VariableSource;
use everloop_engine::diagnostic::Diagnostic;

use super::agent::Chosen;
use super::keys::{AccountKeys, LoopKeys};
use super::layer::{Layer, Origin};
use super::value::{IsolationModeKey, List};
use super::{Config, ResolveContext, account};

/// The keys of a section that open more for its command.
pub(super) const ACCESS_KEYS: [&str; 3] = ["readable", "writable", "isolation"];

/// The values of these keys in one section.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AccessKeys<'a> {
    pub readable: Option<&'a List>,
    pub writable: Option<&'a List>,
    pub isolation: Option<IsolationModeKey>,
}

impl AccessKeys<'_> {
    /// The name of one that is set.
    pub(super) fn first(&self) -> Option<&'static str> {
        let set = [self.readable.is_some(), self.writable.is_some(), self.isolation.is_some()];
        ACCESS_KEYS.into_iter().zip(set).find(|(_, set)| *set).map(|(key, _)| key)
    }

    /// What they open; the error is the key and what is wrong with it.
    pub(super) fn access(&self) -> Result<CommandAccess, (&'static str, String)> {
        let paths = |key: &'static str, list: Option<&List>| {
            let paths = list.map(|list| list.0.clone()).unwrap_or_default();
            match paths.iter().find(|path| !is_whole(path)) {
                Some(path) => Err((key, not_whole(key, path))),
                None => Ok(paths),
            }
        };
        Ok(CommandAccess {
            readable: paths("readable", self.readable)?,
            writable: paths("writable", self.writable)?,
            mode: self.isolation.map(|key| key.0),
        })
    }
}

/// How a path has to be written.
pub(super) const WHOLE_PATH: &str = "begin it with `/` or `~/`";

fn is_whole(path: &str) -> bool {
    path.starts_with('/') || path.starts_with("~/")
}

fn not_whole(key: &str, path: &str) -> String {
    format!("`{path}` in `{key}` is not a whole path")
}

impl Config {
    /// What the command of a notifier, a mailbox or a tracker may reach. A container is for the
    /// work of agents; these commands run on this machine.
    pub(super) fn receiver_access(&self, own: CommandAccess) -> ReceiverAccess {
        let mut values = Layer::default();
        for upper in [&self.user.defaults, &self.project.defaults, &self.env] {
            values.lay(upper);
        }
        let keys = values.typed::<LoopKeys>().unwrap_or_default().isolation;
        let mode = keys.and_then(|keys| keys.mode).map(|key| key.0).filter(|mode| *mode != IsolationMode::Container);
        let around = IsolationSpec {
            mode: mode.unwrap_or_default(),
            unreadable: self.secret_files(),
            ..IsolationSpec::default()
        };
        ReceiverAccess { own, around }
    }

    /// All files that accounts, notifiers, the mailbox, the tracker and the hub name as secrets.
    fn secret_files(&self) -> Vec<String> {
        let of_account = |name: &String| self.account(name)?.typed::<AccountKeys>().ok()?.file;
        let mut files: Vec<String> =
            self.accounts().iter().filter_map(of_account).flat_map(|map| map.0.into_values()).collect();
        files.extend(self.secrets_of_sections());
        files
    }

    /// Those of notifiers, mailbox, tracker and hub.
    fn secrets_of_sections(&self) -> Vec<String> {
        let sections = [&self.user, &self.project].into_iter().flat_map(|file| {
            let notifiers = file.notify.iter().map(|(layer, _)| layer);
            notifiers.chain([&file.mailbox, &file.tracker, &file.hub])
        });
        let keys = sections.flat_map(|layer| &layer.0);
        let named = keys.filter(|(key, _)| key.ends_with("_file") && *key != "ca_file");
        let paths = named.filter_map(|(_, sourced)| sourced.value.as_str());
        paths
            .map(|path| if is_whole(path) { path.to_owned() } else { self.dir.join(path).display().to_string() })
            .collect()
    }
}

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
        for path in paths.iter().filter(|path| !is_whole(path)) {
            blame(key, not_whole(key, path), WHOLE_PATH);
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

/// Files with secrets of accounts that none of the loop's agents runs under, and of what sends to
/// people.
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
    files.chain(config.secrets_of_sections()).collect()
}
