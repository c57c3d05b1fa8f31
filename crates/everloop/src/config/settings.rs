//! How a key is declared: once, by a row of `section!` (of the guard: by a row of `settings!` in
//! `core::spec`). Its name, its meaning, its default, its variable and its flag are taken from
//! there and stand nowhere else.

use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use toml::Value;

use super::guard::GuardKeys;
use super::keys::{IsolationKeys, LoopKeys};
use super::layer::{Layer, Origin};

/// One key of a section.
#[derive(Clone, Debug)]
pub struct Setting {
    /// As it stands in the file.
    pub key: &'static str,
    /// What it means: one line.
    pub meaning: String,
    /// What it is when no layer sets it.
    pub default: Option<Value>,
    /// The environment variable that sets it for every loop.
    pub env: Option<&'static str>,
    /// The flag of `everloop run` that sets it.
    pub flag: Option<LoopFlag>,
}

/// A flag that sets a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopFlag {
    /// Without the dashes.
    pub long: String,
    /// The letter, if it has one.
    pub short: Option<char>,
    /// What stands behind it.
    pub takes: Takes,
    /// Its help, where the meaning of the key does not read as one.
    pub help: Option<&'static str>,
}

/// What stands behind a flag. A name is what the help calls the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// One value; the flag is given once.
    One(&'static str),
    /// One value; the flag may be repeated.
    Several(&'static str),
    /// Nothing: the flag stands for this value.
    Nothing(&'static str),
}

impl LoopFlag {
    /// A flag without a letter.
    pub fn new(long: &str, takes: Takes) -> Self {
        Self { long: long.to_owned(), short: None, takes, help: None }
    }

    /// The same with a letter.
    #[must_use]
    pub fn short(mut self, letter: char) -> Self {
        self.short = Some(letter);
        self
    }

    /// The same with a help of its own.
    #[must_use]
    pub fn help(mut self, help: &'static str) -> Self {
        self.help = Some(help);
        self
    }
}

/// A section of the file.
pub trait Section: DeserializeOwned + JsonSchema {
    /// Its keys, in the order of the reference.
    fn settings() -> Vec<Setting>;
}

/// Declares a section, row by row: `key: Type = default => env "VARIABLE" flag LoopFlag::…;`. The
/// comment is the meaning. Every key may be missing: the struct has the values that were set.
macro_rules! section {
    (
        $(#[$about:meta])*
        pub struct $name:ident;
        $(
            $(#[doc = $doc:literal])+
            $key:ident: $type:ty $(= $default:expr)? $(=> $(env $env:literal)? $(flag $flag:expr)?)?;
        )+
    ) => {
        #[derive(Debug, Default, PartialEq, serde::Deserialize, schemars::JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        $(#[$about])*
        pub struct $name {
            $(
                $(#[doc = $doc])+
                pub $key: Option<$type>,
            )+
        }

        impl $crate::config::settings::Section for $name {
            fn settings() -> Vec<$crate::config::settings::Setting> {
                use $crate::config::settings::{Setting, maybe, meaning_of};
                vec![$(Setting {
                    key: stringify!($key).trim_start_matches("r#"),
                    meaning: meaning_of(&[$($doc),+]),
                    default: maybe!($(toml::Value::from($default))?),
                    env: maybe!($($($env)?)?),
                    flag: maybe!($($($flag)?)?),
                }),+]
            }
        }
    };
}
pub(super) use section;

/// `Some` of what a row has, `None` of what it has not.
macro_rules! maybe {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}
pub(super) use maybe;

/// The lines of a comment as one.
pub fn meaning_of(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// The names of a section's keys.
pub fn names<T: Section>() -> Vec<&'static str> {
    T::settings().into_iter().map(|setting| setting.key).collect()
}

/// What a key means.
pub fn meaning<T: Section>(key: &str) -> Option<String> {
    T::settings().into_iter().find(|setting| setting.key == key).map(|setting| setting.meaning)
}

/// What a section has when no file sets anything.
pub fn built_in<T: Section>() -> Layer {
    let mut layer = Layer::default();
    for setting in T::settings() {
        if let Some(value) = setting.default {
            layer.set(setting.key, value, Origin::BuiltIn);
        }
    }
    layer
}

/// Every key of a loop as it is called in a layer: those of the guard as `guard.min_gap`.
pub fn of_loops() -> &'static [(String, Setting)] {
    static ALL: LazyLock<Vec<(String, Setting)>> = LazyLock::new(|| {
        let own = LoopKeys::settings().into_iter().map(|setting| (setting.key.to_owned(), setting));
        let guard = GuardKeys::settings().into_iter().map(|setting| (format!("guard.{}", setting.key), setting));
        let reach =
            IsolationKeys::settings().into_iter().map(|setting| (format!("isolation.{}", setting.key), setting));
        own.chain(guard).chain(reach).collect()
    });
    &ALL
}
