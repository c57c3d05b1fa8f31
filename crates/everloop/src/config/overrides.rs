//! What the environment and the command line set: the two uppermost layers. Which variables and
//! flags there are is declared with the keys ([`super::settings`]).

use std::collections::BTreeMap;

use clap::{Arg, ArgAction, ArgMatches, Command};
use everloop_engine::diagnostic::Diagnostic;
use toml::Value;

use super::keys::LoopKeys;
use super::layer::{AGENT_KEYS, Layer, Origin};
use super::read::fits;
use super::settings::{LoopFlag, Setting, Takes, of_loops};

/// What lies above the files.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The environment; names that no key declares are left alone.
    pub env: BTreeMap<String, String>,
    /// The command line.
    pub flags: Flags,
}

/// Flags that change a loop, as they were typed, by their long names.
#[derive(Clone, Debug, Default)]
pub struct Flags(BTreeMap<&'static str, Vec<String>>);

impl Flags {
    /// Adds a flag as if it had been typed.
    #[must_use]
    pub fn with(mut self, long: &'static str, value: impl Into<String>) -> Self {
        self.0.entry(long).or_default().push(value.into());
        self
    }

    /// Whether a flag was typed.
    pub fn has(&self, long: &str) -> bool {
        self.0.contains_key(long)
    }

    /// Adds a flag unless it was typed.
    #[must_use]
    pub fn with_default(self, long: &'static str, value: &str) -> Self {
        if self.has(long) { self } else { self.with(long, value) }
    }

    /// The flags as words of a command line.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        for (_, _, flag) in flagged() {
            for text in self.0.get(flag.long.as_str()).into_iter().flatten() {
                words.push(format!("--{}", flag.long));
                if !matches!(flag.takes, Takes::Nothing(_)) {
                    words.push(text.clone());
                }
            }
        }
        words
    }
}

impl Overrides {
    /// The process's own environment and these flags.
    pub fn new(flags: Flags) -> Self {
        let there = |name: &str| std::env::var(name).ok().map(|value| (name.to_owned(), value));
        Self { env: variables().filter_map(|(name, _)| there(name)).collect(), flags }
    }

    /// Both as layers, environment first.
    pub(super) fn layers(&self) -> (Layer, Layer, Vec<Diagnostic>) {
        let (mut env, mut flags, mut diagnostics) = (Layer::default(), Layer::default(), Vec::new());
        for (key, setting) in of_loops() {
            let Some(name) = setting.env else { continue };
            if let Some(text) = self.env.get(name).filter(|text| !text.is_empty()) {
                let is_list = setting.flag.as_ref().is_some_and(|flag| matches!(flag.takes, Takes::Several(_)));
                let readings = if is_list { vec![list(text)] } else { readings(text) };
                let read = put(&mut env, key, readings, Origin::Env(name));
                read.unwrap_or_else(|wrong| diagnostics.push(wrong));
            }
        }
        for (key, flag, texts) in
            flagged().filter_map(|(key, _, flag)| Some((key, flag, self.flags.0.get(flag.long.as_str())?)))
        {
            let origin = Origin::Flag(format!("--{}", flag.long));
            let (key, readings) = match (flag.takes, texts.as_slice()) {
                // One agent is written as one, so that `config show` shows what was meant.
                (Takes::Several(_), [only]) if key == "agents" => ("agent", vec![Value::from(only.as_str())]),
                (Takes::Several(_), several) => (key, vec![Value::from(several.to_vec())]),
                (Takes::One(_) | Takes::Nothing(_), texts) => {
                    (key, texts.last().map_or_else(Vec::new, |t| readings(t)))
                }
            };
            put(&mut flags, key, readings, origin).unwrap_or_else(|wrong| diagnostics.push(wrong));
        }
        for layer in [&env, &flags] {
            let ways: Vec<&Origin> = AGENT_KEYS.iter().filter_map(|key| layer.0.get(*key)).map(|s| &s.origin).collect();
            if let [one, other, ..] = ways.as_slice() {
                diagnostics
                    .push(Diagnostic::new(format!("`{one}` and `{other}` are both set")).hint("keep one of them"));
            }
        }
        (env, flags, diagnostics)
    }
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        command.args(flagged().map(|(_, setting, flag)| argument(setting, flag)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut found = BTreeMap::new();
        for (_, _, flag) in flagged() {
            let texts: Vec<String> = match flag.takes {
                Takes::Nothing(word) => matches.get_flag(&flag.long).then(|| word.to_owned()).into_iter().collect(),
                Takes::One(_) | Takes::Several(_) => {
                    matches.get_many::<String>(&flag.long).into_iter().flatten().cloned().collect()
                }
            };
            if !texts.is_empty() {
                found.insert(flag.long.as_str(), texts);
            }
        }
        Ok(Self(found))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The variables, and the keys they stand for.
pub fn variables() -> impl Iterator<Item = (&'static str, &'static str)> {
    of_loops().iter().filter_map(|(key, setting)| Some((setting.env?, key.as_str())))
}

/// The keys that have a flag.
fn flagged() -> impl Iterator<Item = (&'static str, &'static Setting, &'static LoopFlag)> {
    of_loops().iter().filter_map(|(key, setting)| Some((key.as_str(), setting, setting.flag.as_ref()?)))
}

fn argument(setting: &'static Setting, flag: &'static LoopFlag) -> Arg {
    let default = setting.default.as_ref().filter(|_| !matches!(flag.takes, Takes::Nothing(_)));
    let default = default.map_or_else(String::new, |value| match value.as_str() {
        Some(text) => format!(" [default: {text}]"),
        None => format!(" [default: {value}]"),
    });
    let help = format!("{}{default}", flag.help.unwrap_or(setting.meaning.trim_end_matches('.')));
    let mut arg = Arg::new(flag.long.as_str()).long(flag.long.as_str()).help(help);
    if let Some(letter) = flag.short {
        arg = arg.short(letter);
    }
    match flag.takes {
        Takes::One(name) => arg.value_name(name),
        Takes::Several(name) => arg.value_name(name).action(ArgAction::Append),
        Takes::Nothing(_) => arg.action(ArgAction::SetTrue),
    }
}

/// What a text without quotes can mean, the likeliest first: a number or a word. Never a list: a
/// command that is refused as a text must not be taken as the list of one word.
fn readings(text: &str) -> Vec<Value> {
    let word = text.parse().map(Value::Boolean).ok();
    let number = text.parse().map(Value::Integer).or_else(|_| text.parse().map(Value::Float)).ok();
    word.into_iter().chain(number).chain([Value::from(text)]).collect()
}

/// A list has commas between its items.
fn list(text: &str) -> Value {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    Value::from(items.map(Value::from).collect::<Vec<_>>())
}

/// Sets a key to the first reading that fits it; if none fits, returns the error of the first.
fn put(layer: &mut Layer, key: &str, readings: Vec<Value>, origin: Origin) -> Result<(), Diagnostic> {
    let mut wrong = None;
    for value in readings {
        match check(key, &value) {
            Ok(()) => {
                layer.set(key, value, origin);
                return Ok(());
            }
            Err(what) => wrong = wrong.or(Some(what)),
        }
    }
    let Some((what, hint)) = wrong else { return Ok(()) };
    let mut diagnostic = origin.blame(what);
    // On the command line there are no quotes to write.
    diagnostic.hint = hint.map(|h| h.replace("`\"", "`").replace("\"`", "`"));
    Err(diagnostic)
}

fn check(key: &str, value: &Value) -> Result<(), (String, Option<String>)> {
    match key.split_once('.') {
        None => fits::<LoopKeys>(key, value),
        Some((section, inner)) => {
            let table = toml::Table::from_iter([(inner.to_owned(), value.clone())]);
            fits::<LoopKeys>(section, &Value::Table(table))
        }
    }
}
