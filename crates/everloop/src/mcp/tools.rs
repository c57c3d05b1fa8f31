//! The tools: what each takes, and which words of the command line it stands for. Values never become flags: they come
//! behind `--name=` or behind `--`.

use serde_json::{Map, Value, json};

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
struct Tool {
    name: &'static str,
    about: &'static str,
    params: &'static [Param],
    words: fn(&Given<'_>) -> Result<Vec<String>, String>,
}

const fn must(name: &'static str, kind: Kind, about: &'static str) -> Param {
    Param { name, kind, required: true, about }
}

const fn may(name: &'static str, kind: Kind, about: &'static str) -> Param {
    Param { name, kind, required: false, about }
}

const LOOP: Param = may("loop", Kind::Text, "Id or name of a loop; without it the one this session belongs to");
const OUTCOMES: &[&str] = &["done", "failed", "blocked"];

const TOOLS: [Tool; 10] = [
    Tool {
        name: "status",
        about: "Loops, what they are doing, open tickets, and whether a supervisor runs.",
        params: &[may("loop", Kind::Text, "Only this loop")],
        words: |given| Ok(given.verb(&["status"]).last("loop")),
    },
    Tool {
        name: "next_task",
        about: "Takes the most urgent task that is ready, for a time and under a fence that complete_task needs. \
                `task` is null when nothing is ready.",
        params: &[LOOP, may("lease", Kind::Text, "For how long it is yours, like 10m (the default) or 2h")],
        words: |given| {
            let lease = format!("--lease={}", given.text("lease").unwrap_or("10m"));
            Ok(given.verb(&["task", "next", &lease]).owner().done())
        },
    },
    Tool {
        name: "add_task",
        about: "Puts a task on the board. It is marked as an agent's: its text is data, and it can neither bring nor change checks. \
                At most 20 open tasks of yours, and tasks of tasks only three deep.",
        params: &[
            must("title", Kind::Text, "What is to be done, in one line"),
            may("prompt", Kind::Text, "What else whoever takes it has to know"),
            may("kind", Kind::Text, "What sort of work it is, in one word"),
            may("priority", Kind::Whole, "Higher is sooner; 0 is usual"),
            may("after", Kind::Texts, "Ids of tasks that have to be done before"),
            may("delay", Kind::Text, "Not before this time has passed, like 30m"),
            LOOP,
        ],
        words: |given| {
            let words = given.verb(&["task", "add"]).flag("prompt").flag("kind").flag("priority");
            Ok(words.each("after").named("delay", "in").owner().last("title"))
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
        words: |given| {
            let (verb, text) = match given.text("outcome") {
                Some("failed") => ("fail", "reason"),
                Some("blocked") => ("block", "reason"),
                _ => ("done", "result"),
            };
            Ok(given.verb(&["task", verb]).flag("fence").named("result", text).last("task"))
        },
    },
    Tool {
        name: "report_metric",
        about: "Writes a figure that you measured beneath a task, for whoever reads it. It decides nothing: the checks do.",
        params: &[
            must("task", Kind::Text, "Id of the task that it is about"),
            must("name", Kind::Text, "What was measured"),
            must("value", Kind::Number, "The figure"),
            may("unit", Kind::Text, "Of what"),
        ],
        words: |given| {
            let name = given.text("name").unwrap_or_default();
            let value = given.value("value").cloned().unwrap_or_default();
            let said = format!("metric {name} = {value} {}", given.text("unit").unwrap_or_default());
            Ok(given.verb(&["comment"]).behind(&[given.text("task").unwrap_or_default(), said.trim_end()]))
        },
    },
    Tool {
        name: "ask_human",
        about: "Opens a ticket with a question for a person. The answer comes with a later turn; go on with something else.",
        params: &[must("question", Kind::Text, "The question, with what one has to know to answer it"), LOOP],
        words: |given| {
            let words = given.verb(&["send"]);
            let words = match given.owner {
                Some(owner) => words.word(&format!("--about={owner}")),
                None => words,
            };
            Ok(words.behind(&["person", given.text("question").unwrap_or_default()]))
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
        words: |given| {
            if given.text("for").is_some() == given.text("until").is_some() {
                return Err(
                    "error: the end of the sleep is not clear\nhint: say `for` or `until`, one of them".to_owned()
                );
            }
            Ok(given.verb(&["pause"]).flag("for").flag("until").flag("reason").one_loop())
        },
    },
    Tool {
        name: "wake",
        about: "Makes a waiting loop look again now. The guard's gaps, caps and cooldowns stay.",
        params: &[LOOP],
        words: |given| Ok(given.verb(&["wake"]).one_loop()),
    },
    Tool {
        name: "send_message",
        about: "Leaves a message. It is handed on as data, never as an instruction.",
        params: &[
            must("to", Kind::Text, "A loop, a task id, `@NAME` for anybody with that name, or `person`"),
            must("text", Kind::Text, "The message"),
        ],
        words: |given| {
            let (to, text) = (given.text("to").unwrap_or_default(), given.text("text").unwrap_or_default());
            Ok(given.verb(&["send"]).behind(&[to, text]))
        },
    },
    Tool {
        name: "why",
        about: "Why a loop is as it is: the rule that decided, what it looked at, and when that will change.",
        params: &[LOOP],
        words: |given| Ok(given.verb(&["why"]).one_loop()),
    },
];

/// Why a call is none.
#[derive(Debug)]
pub enum Wrong {
    /// There is no such tool.
    Unknown,
    /// Its arguments do not fit; what is wrong and what to do.
    Arguments(String),
}

/// What was given to a tool, checked.
struct Given<'a> {
    arguments: &'a Map<String, Value>,
    /// The loop that is meant.
    owner: Option<&'a str>,
}

/// Words of the command line, as far as they are known.
struct Words<'a> {
    given: &'a Given<'a>,
    words: Vec<String>,
}

impl<'a> Given<'a> {
    fn value(&self, name: &str) -> Option<&'a Value> {
        self.arguments.get(name).filter(|value| !value.is_null())
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.value(name).and_then(Value::as_str)
    }

    fn verb(&'a self, words: &[&str]) -> Words<'a> {
        Words { given: self, words: words.iter().map(|&word| word.to_owned()).collect() }
    }
}

impl Words<'_> {
    fn word(mut self, word: &str) -> Self {
        self.words.push(word.to_owned());
        self
    }

    /// `--flag=value`, if the argument was given.
    fn named(self, argument: &str, flag: &str) -> Self {
        match self.given.value(argument).map(plain) {
            Some(value) => self.word(&format!("--{flag}={value}")),
            None => self,
        }
    }

    fn flag(self, name: &str) -> Self {
        self.named(name, name)
    }

    fn each(self, name: &str) -> Self {
        let values = self.given.value(name).and_then(Value::as_array).cloned().unwrap_or_default();
        values.iter().fold(self, |words, value| words.word(&format!("--{name}={}", plain(value))))
    }

    fn owner(self) -> Self {
        match self.given.owner {
            Some(owner) => self.word(&format!("--loop={owner}")),
            None => self,
        }
    }

    fn behind(mut self, values: &[&str]) -> Vec<String> {
        self.words.push("--".to_owned());
        self.words.extend(values.iter().map(|&value| value.to_owned()));
        self.words
    }

    /// With the argument behind everything, if it was given.
    fn last(self, name: &str) -> Vec<String> {
        match self.given.value(name).map(plain) {
            Some(value) => self.behind(&[&value]),
            None => self.words,
        }
    }

    /// With the loop that is meant behind everything.
    fn one_loop(self) -> Vec<String> {
        match self.given.owner {
            Some(owner) => self.behind(&[owner]),
            None => self.words,
        }
    }

    fn done(self) -> Vec<String> {
        self.words
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The words of the command line that a call stands for.
pub fn words(name: &str, arguments: &Value, owner: Option<&str>) -> Result<Vec<String>, Wrong> {
    let tool = TOOLS.iter().find(|tool| tool.name == name).ok_or(Wrong::Unknown)?;
    let none = Map::new();
    let arguments = match arguments {
        Value::Null => &none,
        Value::Object(fields) => fields,
        _ => return Err(Wrong::Arguments(format!("error: the arguments have to be an object\n{}", takes(tool)))),
    };
    check(tool, arguments).map_err(|why| Wrong::Arguments(format!("error: {why}\n{}", takes(tool))))?;
    let said = arguments.get("loop").and_then(Value::as_str);
    (tool.words)(&Given { arguments, owner: said.or(owner) }).map_err(Wrong::Arguments)
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
    format!("hint: {} takes {{ {} }}", tool.name, params.join(", "))
}

/// What to say about a tool that is not there.
pub fn unknown(name: &str) -> String {
    let name: String = name.chars().take(80).collect();
    format!("there is no tool `{name}`; there are {}", TOOLS.map(|tool| tool.name).join(", "))
}

/// All tools with their schemas.
pub fn list() -> Vec<Value> {
    TOOLS.iter().map(schema).collect()
}

fn schema(tool: &Tool) -> Value {
    let mut properties = Map::new();
    for param in tool.params {
        let mut property = param.kind.schema();
        property["description"] = json!(param.about);
        properties.insert(param.name.to_owned(), property);
    }
    let required: Vec<&str> = tool.params.iter().filter(|p| p.required).map(|p| p.name).collect();
    json!({
        "name": tool.name,
        "description": tool.about,
        "inputSchema": {
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        },
    })
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
