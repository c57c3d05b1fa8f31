//! Arguments of tools: what each has to be, and what a call gave.

use std::time::Duration;

use everloop_core::ids::TaskId;
use everloop_core::time::{Time, parse_duration};
use everloop_engine::error::Failure;
use serde_json::{Map, Value, json};

use crate::config::point_in_time;

/// What an argument has to be.
#[derive(Clone, Copy)]
pub enum Kind {
    Text,
    Whole,
    Natural,
    Number,
    Texts,
    OneOf(&'static [&'static str]),
}

/// An argument of a tool.
pub struct Param {
    pub name: &'static str,
    pub kind: Kind,
    pub required: bool,
    pub about: &'static str,
}

/// One that a call has to give.
pub const fn must(name: &'static str, kind: Kind, about: &'static str) -> Param {
    Param { name, kind, required: true, about }
}

/// One that a call may leave out.
pub const fn may(name: &'static str, kind: Kind, about: &'static str) -> Param {
    Param { name, kind, required: false, about }
}

/// What was given to a tool, checked.
pub struct Given<'a> {
    pub arguments: &'a Map<String, Value>,
    /// The loop that is meant.
    pub owner: Option<&'a str>,
}

impl<'a> Given<'a> {
    pub fn value(&self, name: &str) -> Option<&'a Value> {
        self.arguments.get(name).filter(|value| !value.is_null())
    }

    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.value(name).and_then(Value::as_str)
    }

    pub fn string(&self, name: &str) -> String {
        self.text(name).unwrap_or_default().to_owned()
    }

    pub fn texts(&self, name: &str) -> Vec<String> {
        let values = self.value(name).and_then(Value::as_array).into_iter().flatten();
        values.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    pub fn whole(&self, name: &str) -> i32 {
        self.value(name).and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok()).unwrap_or_default()
    }

    pub fn task(&self) -> TaskId {
        TaskId::new(self.string("task"))
    }

    pub fn owner(&self) -> Option<String> {
        self.owner.map(str::to_owned)
    }

    pub fn duration(&self, name: &str) -> Result<Option<Duration>, Failure> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let wrong = |why| Failure::usage(format!("invalid value '{text}' for `{name}`: {why}")).hint("like 30m or 2h");
        parse_duration(text).map(Some).map_err(wrong)
    }

    /// The end of a sleep.
    pub fn end(&self, now: Time) -> Result<Option<Time>, Failure> {
        match (self.duration("for")?, self.text("until")) {
            (Some(span), None) => Ok(Some(now + span)),
            (None, Some(text)) => {
                point_in_time(text).map_err(|why| Failure::usage(why).hint("or give `for`, like 10m"))
            }
            _ => Err(Failure::usage("the end of the sleep is not clear").hint("give `for` or `until`, one of them")),
        }
    }
}

/// What is wrong with the arguments of a call.
pub fn check(params: &[Param], arguments: &Map<String, Value>) -> Result<(), String> {
    if let Some(name) = arguments.keys().find(|name| !params.iter().any(|p| p.name == *name)) {
        return Err(format!("there is no argument `{name}`"));
    }
    for param in params {
        match arguments.get(param.name).filter(|value| !value.is_null()) {
            None if param.required => return Err(format!("`{}` is missing", param.name)),
            Some(value) if !param.kind.takes(value) => {
                return Err(format!("`{}` has to be {}", param.name, param.kind.describe()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// What a tool takes, in a line.
pub fn takes(name: &str, params: &[Param]) -> String {
    let params: Vec<String> = params
        .iter()
        .map(|p| format!("{}{}: {}", p.name, if p.required { "" } else { "?" }, p.kind.describe()))
        .collect();
    format!("{name} takes {{ {} }}", params.join(", "))
}

/// The same as a closed JSON schema.
pub fn schema(params: &[Param]) -> Map<String, Value> {
    let mut properties = Map::new();
    for param in params {
        let mut property = param.kind.schema();
        property["description"] = json!(param.about);
        properties.insert(param.name.to_owned(), property);
    }
    let required: Vec<&str> = params.iter().filter(|p| p.required).map(|p| p.name).collect();
    let closed = [
        ("type", json!("object")),
        ("properties", Value::Object(properties)),
        ("required", json!(required)),
        ("additionalProperties", json!(false)),
    ];
    closed.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

impl Kind {
    fn takes(self, value: &Value) -> bool {
        match self {
            Kind::Text => value.is_string(),
            Kind::Whole => value.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
            Kind::Natural => value.is_u64(),
            Kind::Number => value.is_number(),
            Kind::Texts => value.as_array().is_some_and(|all| all.iter().all(Value::is_string)),
            Kind::OneOf(words) => value.as_str().is_some_and(|word| words.contains(&word)),
        }
    }

    fn describe(self) -> String {
        match self {
            Kind::Text => "a text".to_owned(),
            Kind::Whole => "a whole number".to_owned(),
            Kind::Natural => "a whole number from 0".to_owned(),
            Kind::Number => "a number".to_owned(),
            Kind::Texts => "a list of texts".to_owned(),
            Kind::OneOf(words) => format!("one of {}", words.join(", ")),
        }
    }

    fn schema(self) -> Value {
        match self {
            Kind::Text => json!({ "type": "string" }),
            Kind::Whole => json!({ "type": "integer" }),
            Kind::Natural => json!({ "type": "integer", "minimum": 0 }),
            Kind::Number => json!({ "type": "number" }),
            Kind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
            Kind::OneOf(words) => json!({ "type": "string", "enum": words }),
        }
    }
}
