//! Accounts: which variables their agents see, and where the values come from. The values are never
//! read here.

use std::path::Path;

use everloop_core::spec::{Variable, VariableSource};
use everloop_engine::diagnostic::Diagnostic;

use super::agent::DEFAULT_ACCOUNT;
use super::keys::AccountKeys;
use super::layer::{Layer, Origin};
use super::value::nearest;
use super::{Config, ResolveContext};

/// Prefixes of secret values: keys of Anthropic and OpenAI, GitHub, Google, Slack, AWS, and signed
/// tokens.
const SECRET_BEGINNINGS: [&str; 9] = ["sk-", "ghp_", "gho_", "github_pat_", "AIza", "xoxb-", "xoxp-", "AKIA", "eyJ"];

/// An account that agents can run under.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub name: String,
    pub env: Vec<Variable>,
    /// Its keys, if it has a section.
    pub layer: Option<Layer>,
}

impl Default for Account {
    fn default() -> Self {
        Self { name: DEFAULT_ACCOUNT.to_owned(), env: Vec::new(), layer: None }
    }
}

/// How a variable is called that holds a secret, if what it holds is long and no path.
const SECRET_NAMES: [&str; 4] = ["KEY", "TOKEN", "SECRET", "PASSWORD"];

/// Shorter values are stand-ins for servers that want any key at all.
const LONG_SECRET: usize = 20;

/// Whether a value looks like a secret, which must not be in a file. Values in `set` are also kept
/// in the journal, permanently.
fn looks_secret(name: &str, value: &str) -> bool {
    let named = SECRET_NAMES.iter().any(|word| name.contains(word));
    let random = value.len() >= LONG_SECRET && !value.contains(['/', ' ']);
    SECRET_BEGINNINGS.iter().any(|beginning| value.starts_with(beginning)) || named && random
}

/// An account by its name, which stands at `origin`.
pub(super) fn find(
    config: &Config,
    name: &str,
    origin: &Origin,
    moment: &ResolveContext,
) -> Result<Account, Vec<Diagnostic>> {
    let layer = match config.account(name) {
        Some(layer) => layer,
        None if name == DEFAULT_ACCOUNT => return Ok(Account::default()),
        None => return Err(vec![unknown(config, name, origin)]),
    };
    let keys: AccountKeys = layer.typed().map_err(|one| vec![one])?;
    let none = std::collections::BTreeMap::new();
    let env = keys.env.as_ref().map_or(&none, |map| &map.0);
    let file = keys.file.as_ref().map_or(&none, |map| &map.0);
    let set = keys.set.as_ref().map_or(&none, |map| &map.0);
    let twice = |key: &str, variable: &String| {
        let message = format!("account `{name}` sets `{variable}` in two ways");
        layer.origin(key).blame(message).hint("keep one of them")
    };
    let mut wrong: Vec<Diagnostic> = Vec::new();
    wrong.extend(file.keys().filter(|v| env.contains_key(*v)).map(|v| twice("file", v)));
    wrong.extend(set.keys().filter(|v| env.contains_key(*v) || file.contains_key(*v)).map(|v| twice("set", v)));
    let open = set.iter().filter(|(variable, value)| looks_secret(variable, value));
    wrong.extend(open.map(|(variable, _)| {
        let message = format!("account `{name}`: `{variable}` in `set` looks like a secret");
        layer.origin("set").blame(message).hint("use `env` or `file`, which keep it out of files, journal and output")
    }));
    for diagnostic in &mut wrong {
        diagnostic.place.as_mut().into_iter().for_each(|place| place.hide_value());
    }
    let home = |text: &String| at_home(text, moment.home.as_deref());
    let variable = |name: &String, source: VariableSource| Variable { name: name.clone(), source };
    let mut variables: Vec<Variable> = env.iter().map(|(n, v)| variable(n, VariableSource::Env(v.clone()))).collect();
    variables.extend(file.iter().map(|(n, v)| variable(n, VariableSource::File(home(v)))));
    variables.extend(set.iter().map(|(n, v)| variable(n, VariableSource::Plain(home(v)))));
    if !wrong.is_empty() {
        return Err(wrong);
    }
    Ok(Account { name: name.to_owned(), env: variables, layer: Some(layer) })
}

fn unknown(config: &Config, name: &str, origin: &Origin) -> Diagnostic {
    let known = config.accounts();
    let hint = match nearest(name, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("add `[account.{name}]` with its variables; there are: {}", known.join(", ")),
    };
    origin.blame(format!("there is no account `{name}`")).hint(hint)
}

/// `~/x` in the operator's home.
fn at_home(text: &str, home: Option<&Path>) -> String {
    match (text.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest).display().to_string(),
        _ => text.to_owned(),
    }
}

impl Config {
    /// The keys of an account, the project's over the user's.
    pub(super) fn account(&self, name: &str) -> Option<Layer> {
        let mine = [&self.user, &self.project].map(|file| file.accounts.get(name));
        mine.iter().any(Option::is_some).then(|| {
            let mut layer = Layer::default();
            mine.into_iter().flatten().for_each(|upper| layer.lay(upper));
            layer
        })
    }

    /// The names of all accounts.
    pub fn accounts(&self) -> Vec<String> {
        let own = self.user.accounts.keys().chain(self.project.accounts.keys()).cloned();
        let mut names: Vec<String> = own.chain([DEFAULT_ACCOUNT.to_owned()]).collect();
        names.sort();
        names.dedup();
        names
    }
}
