//! `[loop.NAME.guard]`: the settings that `core::spec` declares, as keys of the file.

use std::borrow::Cow;

use everloop_core::spec::{GuardField, GuardSetting, GuardSpec, guard_settings};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use toml::{Table, Value};

use super::layer::{Layer, Origin};
use super::settings::{LoopFlag, Section, Setting, Takes, meaning_of};
use super::value::{Count, CountLimit, Dollars, Flag, Gap, Span, TimeLimit, write_duration};

/// The values of the guard that were set; each fits its key.
#[derive(Debug, Default, PartialEq)]
pub struct GuardKeys(Table);

impl GuardKeys {
    /// Changes what was set.
    pub fn apply(&self, spec: &mut GuardSpec) -> Result<(), String> {
        self.0.iter().try_for_each(|(key, value)| write(declared(key)?, spec, value))
    }
}

impl<'de> Deserialize<'de> for GuardKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let keys = Self(Table::deserialize(deserializer)?);
        keys.apply(&mut GuardSpec::default()).map_err(D::Error::custom)?;
        Ok(keys)
    }
}

impl JsonSchema for GuardKeys {
    fn schema_name() -> Cow<'static, str> {
        "GuardKeys".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut properties = serde_json::Map::new();
        for setting in guard_settings() {
            let mut one = schema(setting.field, generator);
            one.insert("description".to_owned(), meaning_of(setting.doc).into());
            properties.insert(setting.key.to_owned(), one.to_value());
        }
        json_schema!({
            "description": "When a turn may start.",
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
        })
    }
}

impl Section for GuardKeys {
    fn settings() -> Vec<Setting> {
        let usual = GuardSpec::default();
        let setting = |declared: &GuardSetting| Setting {
            key: declared.key,
            meaning: meaning_of(declared.doc),
            default: read(declared.field, &usual),
            env: declared.env,
            flag: declared.flag.map(|name| {
                let takes =
                    if let GuardField::Switch(_) = declared.field { Takes::Nothing("true") } else { Takes::One(name) };
                LoopFlag::new(&declared.key.replace('_', "-"), takes)
            }),
        };
        guard_settings().map(setting).collect()
    }
}

/// The numbers of a guard as a layer.
pub fn guard_layer(guard: &GuardSpec, origin: &Origin) -> Layer {
    let mut layer = Layer::default();
    for setting in guard_settings() {
        if let Some(value) = read(setting.field, guard) {
            layer.set(format!("guard.{}", setting.key), value, origin.clone());
        }
    }
    layer
}

fn declared(key: &str) -> Result<&'static GuardSetting, String> {
    guard_settings().find(|setting| setting.key == key).ok_or_else(|| format!("unknown key `{key}`"))
}

/// Puts a value of the file into its place.
fn write(setting: &GuardSetting, spec: &mut GuardSpec, value: &Value) -> Result<(), String> {
    match setting.field {
        GuardField::Span(at) => *at(spec) = typed::<Span>(value)?.0,
        GuardField::SpanOrZero(at) => *at(spec) = typed::<Gap>(value)?.0,
        GuardField::SpanOrNone(at) => *at(spec) = typed::<TimeLimit>(value)?.0,
        GuardField::Count(at) => *at(spec) = typed::<Count>(value)?.0,
        GuardField::CountOrNone(at) => {
            *at(spec) = typed::<CountLimit>(value)?.0.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        }
        GuardField::DollarsOrNone(at) => *at(spec) = typed::<Dollars>(value)?.0,
        GuardField::Switch(at) => *at(spec) = typed::<Flag>(value)?.0,
    }
    Ok(())
}

/// A value as it would stand in the file; `None` for a number that has no default.
fn read(field: GuardField, spec: &GuardSpec) -> Option<Value> {
    let spec = &mut spec.clone();
    let none = || Value::from("none");
    match field {
        GuardField::Span(at) => Some(*at(spec)).filter(|span| !span.is_zero()).map(|span| write_duration(span).into()),
        GuardField::SpanOrZero(at) => Some(write_duration(*at(spec)).into()),
        GuardField::SpanOrNone(at) => Some(at(spec).map_or_else(none, |span| write_duration(span).into())),
        GuardField::Count(at) => Some(*at(spec)).filter(|count| *count > 0).map(|count| i64::from(count).into()),
        GuardField::CountOrNone(at) => Some(at(spec).map_or_else(none, |count| i64::from(count).into())),
        GuardField::DollarsOrNone(at) => Some(at(spec).map_or_else(none, |microusd| (microusd as f64 / 1e6).into())),
        GuardField::Switch(at) => Some((*at(spec)).into()),
    }
}

fn typed<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    T::deserialize(value.clone()).map_err(|error| error.message().to_owned())
}

fn schema(field: GuardField, generator: &mut SchemaGenerator) -> Schema {
    match field {
        GuardField::Span(_) => Span::json_schema(generator),
        GuardField::SpanOrZero(_) => Gap::json_schema(generator),
        GuardField::SpanOrNone(_) => TimeLimit::json_schema(generator),
        GuardField::Count(_) => Count::json_schema(generator),
        GuardField::CountOrNone(_) => CountLimit::json_schema(generator),
        GuardField::DollarsOrNone(_) => Dollars::json_schema(generator),
        GuardField::Switch(_) => Flag::json_schema(generator),
    }
}
