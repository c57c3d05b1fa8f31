//! Accounts: which variables their agents see, and where the values come from. Values themselves are never read here.

use std::path::Path;

use everloop_core::spec::{Source, Variable};

use super::agent::DEFAULT_ACCOUNT;
use super::diagnostic::Diagnostic;
use super::keys::AccountKeys;
use super::layer::{Layer, Origin};
use super::value::nearest;
use super::{Config, Moment};

/// How values begin that are secrets: keys of Anthropic and OpenAI, GitHub, Google, Slack, AWS, and signed tokens.
const SECRET_BEGINNINGS: [&str; 9] = ["sk-", "ghp_", "gho_", "github_pat_", "AIza", "xoxb-", "xoxp-", "AKIA", "eyJ"];

/// An account that agents can run under.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub name: String,
    pub env: Vec<Variable>,
    /// Its keys, if it has a section.
    pub layer: Option<Layer>,
    pub warnings: Vec<String>,
}

impl Default for Account {
    fn default() -> Self {
        Self { name: DEFAULT_ACCOUNT.to_owned(), env: Vec::new(), layer: None, warnings: Vec::new() }
    }
}

/// Whether a value looks as if it should not stand in a file.
pub(super) fn looks_secret(value: &str) -> bool {
    SECRET_BEGINNINGS.iter().any(|beginning| value.starts_with(beginning))
}

/// An account by its name, which stands at `origin`.
pub(super) fn find(config: &Config, name: &str, origin: &Origin, moment: &Moment) -> Result<Account, Vec<Diagnostic>> {
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
    for diagnostic in &mut wrong {
        diagnostic.place.as_mut().into_iter().for_each(|place| place.hide_value());
    }
    let home = |text: &String| at_home(text, moment.home.as_deref());
    let variable = |name: &String, source: Source| Variable { name: name.clone(), source };
    let mut variables: Vec<Variable> = env.iter().map(|(n, v)| variable(n, Source::Env(v.clone()))).collect();
    variables.extend(file.iter().map(|(n, v)| variable(n, Source::File(home(v)))));
    variables.extend(set.iter().map(|(n, v)| variable(n, Source::Plain(home(v)))));
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let open = set.iter().filter(|(_, value)| looks_secret(value));
    let warning = |(variable, _): (&String, &String)| {
        let instead = "use `env` or `file`, which keep secrets out of files, journal and output";
        format!("account `{name}`: `{variable}` in `set` looks like a secret; {instead}")
    };
    let warnings = open.map(warning).collect();
    Ok(Account { name: name.to_owned(), env: variables, layer: Some(layer), warnings })
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
