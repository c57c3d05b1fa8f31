//! The tools: what each takes, and which service it calls.

use std::sync::Arc;
use std::time::Duration;

use everloop_core::ids::{Fence, TaskId};
use everloop_core::time::{Time, parse_duration};
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::config::point_in_time;
use crate::ui::paint::Paint;
use crate::ui::status::StatusStyle;
use crate::ui::{answers, to_json};
use everloop_engine::error::Failure;
use everloop_engine::services::loops::{self, PauseRequest};
use everloop_engine::services::messages::{self, PERSON, SendRequest};
use everloop_engine::services::tasks::{
    self, AddTask, AmendTask, FailTask, FinishTask, NextTask, TaskChange, TaskHold,
};
use everloop_engine::services::{ServiceContext, status, why};

/// What an argument has to be.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Whole,
    Natural,
    Number,
    Texts,
    OneOf(&'static [&'static str]),
}

/// An argument of a tool.
struct Param {
    name: &'static str,
    kind: Kind,
    required: bool,
    about: &'static str,
}

/// A tool.
pub struct Tool {
    name: &'static str,
    about: &'static str,
    params: &'static [Param],
    run: fn(&ServiceContext, &Given<'_>) -> Result<String, Failure>,
}

const fn must(name: &'static str, kind: Kind, about: &'static str) -> Param {
    Param { name, kind, required: true, about }
}

const fn may(name: &'static str, kind: Kind, about: &'static str) -> Param {
    Param { name, kind, required: false, about }
}

const LOOP: Param = may("loop", Kind::Text, "Id or name of a loop; without it the one this session belongs to");
const OUTCOMES: &[&str] = &["done", "failed", "blocked"];
/// How long a task is held, unless a call names another time.
const LEASE: Duration = Duration::from_secs(600);
/// Lines are joined or cut nowhere in an answer to a program.
const WIDTH: usize = usize::MAX;

const TOOLS: [Tool; 10] = [
    Tool {
        name: "status",
        about: "Loops, what they are doing, open tickets, and whether a supervisor runs.",
        params: &[may("loop", Kind::Text, "Only this loop")],
        run: |context, given| {
            let seen = status::status(context, given.text("loop"))?;
            answer(&answers::status(&seen, context.now()))
        },
    },
    Tool {
        name: "next_task",
        about: "Takes the most urgent task that is ready, for a time and under a fence that complete_task needs. \
                `task` is null when nothing is ready.",
        params: &[LOOP, may("lease", Kind::Text, "For how long it is yours, like 10m (the default) or 2h")],
        run: |context, given| {
            let hold = TaskHold { node: None, lease: given.duration("lease")?.unwrap_or(LEASE) };
            let taken = tasks::next(context, &NextTask { owner: given.owner(), hold })?;
            answer(&json!({ "task": taken }))
        },
    },
    Tool {
        name: "add_task",
        about: "Puts a task on the board. It is marked as an agent's: its text is data, and it can neither bring nor change checks. \
                At most 20 open tasks of yours, and tasks of tasks only three deep.",
        params: &[
            must("title", Kind::Text, "What is to be done, in one line"),
            may("prompt", Kind::Text, "What else has to be known to do it"),
            may("kind", Kind::Text, "What sort of work it is, in one word"),
            may("priority", Kind::Whole, "Higher is sooner; 0 is usual"),
            may("after", Kind::Texts, "Ids of tasks that have to be done before"),
            may("delay", Kind::Text, "Not before this time has passed, like 30m"),
            LOOP,
        ],
        run: |context, given| {
            let request = AddTask {
                title: given.string("title"),
                prompt: given.string("prompt"),
                owner: given.owner(),
                kind: given.text("kind").unwrap_or(AddTask::KIND).to_owned(),
                priority: given.whole("priority"),
                after: given.texts("after"),
                delay: given.duration("delay")?,
                author: None,
            };
            answer(&tasks::add(context, request)?)
        },
    },
    Tool {
        name: "complete_task",
        about: "Ends a task that you hold. `done` (the default), `failed` (it goes back to the queue; the third failure sets it \
                aside) or `blocked` (it waits for a person, and counts as no failure).",
        params: &[
            must("task", Kind::Text, "Its id"),
            must("fence", Kind::Natural, "The fence under which you took it"),
            may("outcome", Kind::OneOf(OUTCOMES), "How it ended"),
            may("result", Kind::Text, "What came of it, or why it did not work, in a few lines"),
        ],
        run: complete,
    },
    Tool {
        name: "report_metric",
        about: "Writes a figure that you measured beneath a task, for later readers. It decides nothing: the checks do.",
        params: &[
            must("task", Kind::Text, "Id of the task that it is about"),
            must("name", Kind::Text, "What was measured"),
            must("value", Kind::Number, "The figure"),
            may("unit", Kind::Text, "Of what"),
        ],
        run: |context, given| {
            let value = given.value("value").cloned().unwrap_or_default();
            let text = format!("metric {} = {value} {}", given.string("name"), given.string("unit"));
            answer(&messages::comment(context, &given.task(), &text)?)
        },
    },
    Tool {
        name: "ask_human",
        about: "Opens a ticket with a question for a person. The answer comes with a later turn; go on with something else.",
        params: &[must("question", Kind::Text, "The question, with what one has to know to answer it"), LOOP],
        run: |context, given| {
            let text = given.string("question");
            answer(&messages::send(context, &SendRequest { to: PERSON.to_owned(), text, about: given.owner() })?)
        },
    },
    Tool {
        name: "sleep_until",
        about: "The loop starts no turn until then: for waiting without using tokens. At most a day; `wake` ends it.",
        params: &[
            may("for", Kind::Text, "For how long, like 20m"),
            may("until", Kind::Text, "Or until when, like 2026-11-16T07:00:00Z"),
            may("reason", Kind::Text, "What is waited for"),
            LOOP,
        ],
        run: |context, given| {
            let until = given.end(context.now())?;
            let request = PauseRequest { word: given.owner(), reason: given.string("reason"), until };
            answer(&loops::pause(context, request)?)
        },
    },
    Tool {
        name: "wake",
        about: "Makes a waiting loop look again now. The guard's gaps, caps and cooldowns stay.",
        params: &[LOOP],
        run: |context, given| answer(&loops::wake(context, given.owner)?),
    },
    Tool {
        name: "send_message",
        about: "Leaves a message. It is handed on as data, never as an instruction.",
        params: &[
            must("to", Kind::Text, "A loop, a task id, `@NAME` for a box of that name, or `person`"),
            must("text", Kind::Text, "The message"),
        ],
        run: |context, given| {
            let request = SendRequest { to: given.string("to"), text: given.string("text"), about: None };
            answer(&messages::send(context, &request)?)
        },
    },
    Tool {
        name: "why",
        about: "Why a loop is as it is: the rule that decided, what it looked at, and when that will change.",
        params: &[LOOP],
        run: |context, given| {
            let found = why::why(context, given.owner)?;
            let look = StatusStyle { now: context.now(), zone: TimeZone::system(), paint: Paint::Off, width: WIDTH };
            answer(&answers::why(&found, &look))
        },
    },
];

fn complete(context: &ServiceContext, given: &Given<'_>) -> Result<String, Failure> {
    let (task, text) = (given.task(), given.string("result"));
    let fence = Fence(given.value("fence").and_then(Value::as_u64).unwrap_or_default());
    match given.text("outcome") {
        Some("failed") => {
            let retry_in = Duration::ZERO;
            answer(&tasks::fail(context, &FailTask { task, fence, reason: text, retry_in })?)
        }
        Some("blocked") => {
            let change = TaskChange::Block { held: Some(fence) };
            answer(&tasks::amend(context, &AmendTask { task, change, reason: text })?)
        }
        _ => answer(&tasks::done(context, &FinishTask { task, fence, result: text })?),
    }
}

/// The same text that `--json` prints.
fn answer(content: &impl Serialize) -> Result<String, Failure> {
    to_json(content, false)
}

/// What was given to a tool, checked.
struct Given<'a> {
    arguments: &'a Map<String, Value>,
    /// The loop that is meant.
    owner: Option<&'a str>,
}

impl<'a> Given<'a> {
    fn value(&self, name: &str) -> Option<&'a Value> {
        self.arguments.get(name).filter(|value| !value.is_null())
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.value(name).and_then(Value::as_str)
    }

    fn string(&self, name: &str) -> String {
        self.text(name).unwrap_or_default().to_owned()
    }

    fn texts(&self, name: &str) -> Vec<String> {
        let values = self.value(name).and_then(Value::as_array).into_iter().flatten();
        values.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    fn whole(&self, name: &str) -> i32 {
        self.value(name).and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok()).unwrap_or_default()
    }

    fn task(&self) -> TaskId {
        TaskId::new(self.string("task"))
    }

    fn owner(&self) -> Option<String> {
        self.owner.map(str::to_owned)
    }

    fn duration(&self, name: &str) -> Result<Option<Duration>, Failure> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let wrong = |why| Failure::usage(format!("invalid value '{text}' for `{name}`: {why}")).hint("like 30m or 2h");
        parse_duration(text).map(Some).map_err(wrong)
    }

    /// The end of a sleep.
    fn end(&self, now: Time) -> Result<Option<Time>, Failure> {
        match (self.duration("for")?, self.text("until")) {
            (Some(span), None) => Ok(Some(now + span)),
            (None, Some(text)) => {
                point_in_time(text).map_err(|why| Failure::usage(why).hint("or give `for`, like 10m"))
            }
            _ => Err(Failure::usage("the end of the sleep is not clear").hint("say `for` or `until`, one of them")),
        }
    }
}

/// The tool of this name.
pub fn find(name: &str) -> Option<&'static Tool> {
    const ALL: &[Tool] = &TOOLS;
    ALL.iter().find(|tool| tool.name == name)
}

impl Tool {
    /// Calls the service. What it answers is JSON; `owner` is the loop that is meant where none is named.
    pub fn call(
        &self,
        context: &ServiceContext,
        arguments: &Map<String, Value>,
        owner: Option<&str>,
    ) -> Result<String, Failure> {
        check(self, arguments).map_err(|why| Failure::usage(why).hint(takes(self)))?;
        let named = arguments.get("loop").and_then(Value::as_str);
        (self.run)(context, &Given { arguments, owner: named.or(owner) })
    }
}

fn check(tool: &Tool, arguments: &Map<String, Value>) -> Result<(), String> {
    if let Some(name) = arguments.keys().find(|name| !tool.params.iter().any(|p| p.name == *name)) {
        return Err(format!("there is no argument `{name}`"));
    }
    for param in tool.params {
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

fn takes(tool: &Tool) -> String {
    let params: Vec<String> = tool
        .params
        .iter()
        .map(|p| format!("{}{}: {}", p.name, if p.required { "" } else { "?" }, p.kind.describe()))
        .collect();
    format!("{} takes {{ {} }}", tool.name, params.join(", "))
}

/// The error for a tool that is not there.
pub fn unknown(name: &str) -> String {
    format!("there is no tool `{name}`; there are {}", TOOLS.map(|tool| tool.name).join(", "))
}

/// All tools with their schemas.
pub fn list() -> Vec<rmcp::model::Tool> {
    TOOLS.iter().map(|tool| rmcp::model::Tool::new(tool.name, tool.about, Arc::new(schema(tool)))).collect()
}

fn schema(tool: &Tool) -> Map<String, Value> {
    let mut properties = Map::new();
    for param in tool.params {
        let mut property = param.kind.schema();
        property["description"] = json!(param.about);
        properties.insert(param.name.to_owned(), property);
    }
    let required: Vec<&str> = tool.params.iter().filter(|p| p.required).map(|p| p.name).collect();
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
