//! The tools: what each takes, and which service it calls. Those that read are in `readings`.

use std::sync::Arc;
use std::time::Duration;

use everloop_core::ids::Fence;
use everloop_engine::error::Failure;
use everloop_engine::services::ServiceContext;
use everloop_engine::services::loops::{self, PauseRequest};
use everloop_engine::services::messages::{self, PERSON, SendRequest};
use everloop_engine::services::tasks::{
    self, AddTask, AmendTask, FailTask, FinishTask, NextTask, TaskChange, TaskHold,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::arguments::{Given, Kind, Param, check, may, must, schema, takes};
use crate::readings::{READINGS, Reading, Unnamed};
use crate::ui::to_json;

/// A tool of MCP.
#[derive(Clone, Copy)]
pub struct Tool {
    name: &'static str,
    about: &'static str,
    params: &'static [Param],
    run: Run,
}

/// What a tool calls.
#[derive(Clone, Copy)]
enum Run {
    Service(fn(&ServiceContext, &Given<'_>) -> Result<String, Failure>),
    Read(&'static Reading),
}

const LOOP: Param = may("loop", Kind::Text, "Id or name of a loop; without it the one this session belongs to");
const SESSION_LOOP: &[Param] = &[LOOP];
const ONLY_LOOP: &[Param] = &[may("loop", Kind::Text, "Only this loop")];
const OUTCOMES: &[&str] = &["done", "failed", "blocked"];
/// How long a task is held, unless a call names another time.
const LEASE: Duration = Duration::from_secs(600);

const TOOLS: &[Tool] = &[
    Tool {
        name: "next_task",
        about: "Takes the most urgent task that is ready, for a time and under a fence that complete_task needs. \
                `task` is null when nothing is ready.",
        params: &[LOOP, may("lease", Kind::Text, "For how long it is yours, like 10m (the default) or 2h")],
        run: Run::Service(|context, given| {
            let hold = TaskHold { node: None, lease: given.duration("lease")?.unwrap_or(LEASE) };
            let taken = tasks::next(context, &NextTask { owner: given.owner(), hold })?;
            answer(&json!({ "task": taken }))
        }),
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
        run: Run::Service(|context, given| {
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
        }),
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
        run: Run::Service(complete),
    },
    Tool {
        name: "report_metric",
        about: "Adds a figure that you measured to a task, for later readers. It decides nothing: the checks do.",
        params: &[
            must("task", Kind::Text, "Id of the task that it is about"),
            must("name", Kind::Text, "What was measured"),
            must("value", Kind::Number, "The figure"),
            may("unit", Kind::Text, "Of what"),
        ],
        run: Run::Service(|context, given| {
            let value = given.value("value").cloned().unwrap_or_default();
            let text = format!("metric {} = {value} {}", given.string("name"), given.string("unit"));
            answer(&messages::comment(context, &given.task(), &text)?)
        }),
    },
    Tool {
        name: "ask_human",
        about: "Opens a ticket with a question for a person. The answer comes with a later turn; go on with something else.",
        params: &[must("question", Kind::Text, "The question, with what one has to know to answer it"), LOOP],
        run: Run::Service(|context, given| {
            let text = given.string("question");
            answer(&messages::send(context, &SendRequest { to: PERSON.to_owned(), text, about: given.owner() })?)
        }),
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
        run: Run::Service(|context, given| {
            let until = given.end(context.now())?;
            let request = PauseRequest { word: given.owner(), reason: given.string("reason"), until };
            answer(&loops::pause(context, request)?)
        }),
    },
    Tool {
        name: "wake",
        about: "Makes a waiting loop look again now. The guard's gaps, caps and cooldowns stay.",
        params: &[LOOP],
        run: Run::Service(|context, given| answer(&loops::wake(context, given.owner)?)),
    },
    Tool {
        name: "send_message",
        about: "Leaves a message. It is handed on as data, never as an instruction.",
        params: &[
            must("to", Kind::Text, "A loop, a task id, `@NAME` for a box of that name, or `person`"),
            must("text", Kind::Text, "The message"),
        ],
        run: Run::Service(|context, given| {
            let request = SendRequest { to: given.string("to"), text: given.string("text"), about: None };
            answer(&messages::send(context, &request)?)
        }),
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

/// Every tool: first those that read.
fn all() -> impl Iterator<Item = Tool> {
    READINGS.iter().map(Tool::reading).chain(TOOLS.iter().copied())
}

/// The tool of this name.
pub fn find(name: &str) -> Option<Tool> {
    all().find(|tool| tool.name == name)
}

impl Tool {
    fn reading(reading: &'static Reading) -> Self {
        let params = match reading.unnamed {
            Unnamed::All => ONLY_LOOP,
            Unnamed::Nearest => SESSION_LOOP,
        };
        Self { name: reading.name, about: reading.about, params, run: Run::Read(reading) }
    }

    /// Calls the service, which returns JSON; `owner` is the loop if the arguments name none.
    pub fn call(
        &self,
        context: &ServiceContext,
        arguments: &Map<String, Value>,
        owner: Option<&str>,
    ) -> Result<String, Failure> {
        check(self.params, arguments).map_err(|why| Failure::usage(why).hint(takes(self.name, self.params)))?;
        let named = arguments.get("loop").and_then(Value::as_str);
        match self.run {
            Run::Service(run) => run(context, &Given { arguments, owner: named.or(owner) }),
            Run::Read(Reading { unnamed: Unnamed::All, read, .. }) => read(context, named),
            Run::Read(Reading { unnamed: Unnamed::Nearest, read, .. }) => read(context, named.or(owner)),
        }
    }
}

/// The error for a tool that is not there.
pub fn unknown(name: &str) -> String {
    format!("there is no tool `{name}`; there are {}", all().map(|tool| tool.name).collect::<Vec<_>>().join(", "))
}

/// All tools with their schemas.
pub fn list() -> Vec<rmcp::model::Tool> {
    all().map(|tool| rmcp::model::Tool::new(tool.name, tool.about, Arc::new(schema(tool.params)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use everloop_engine::caller::Caller;

    fn context(home: &tempfile::TempDir) -> ServiceContext {
        let (dir, state_dir) = (home.path().to_owned(), Some(home.path().join("state")));
        ServiceContext { state_dir, dir, caller: Caller::client("t"), projects: Arc::new(crate::config::FileProjects) }
    }

    fn call(context: &ServiceContext, name: &str, arguments: &Value) -> Result<Value, String> {
        let arguments = arguments.as_object().expect("the test writes objects");
        let called = find(name).expect("there is such a tool").call(context, arguments, None);
        called.map(|text| serde_json::from_str(&text).expect("answers are JSON")).map_err(|failure| failure.render())
    }

    #[test]
    fn a_task_goes_through_its_life() {
        let home = tempfile::tempdir().expect("a folder");
        let context = context(&home);
        let added = call(&context, "add_task", &json!({ "title": "--loop", "prompt": "-", "priority": -2 }));
        assert!(added.is_ok(), "{added:?}");
        let next = call(&context, "next_task", &json!({ "lease": "10m" })).expect("a task is ready");
        assert_eq!((&next["task"]["title"], &next["task"]["prompt"]), (&json!("--loop"), &json!("-")));
        assert_eq!((&next["task"]["trust"], &next["task"]["priority"]), (&json!("agent"), &json!(-2)));
        let id = next["task"]["id"].clone();
        let late = call(&context, "complete_task", &json!({ "task": id, "fence": 9 })).expect_err("another fence");
        assert!(late.contains("hint:"), "{late}");
        let done = call(&context, "complete_task", &json!({ "task": id, "fence": 1, "result": "did it" }));
        assert_eq!(done.map(|done| done["state"].clone()), Ok(json!("done")));
        assert_eq!(call(&context, "next_task", &json!({})).map(|next| next["task"].clone()), Ok(Value::Null));
    }

    #[test]
    fn a_task_can_fail_and_be_blocked() {
        let home = tempfile::tempdir().expect("a folder");
        let context = context(&home);
        let task = call(&context, "add_task", &json!({ "title": "x" })).expect("there is room")["task"].clone();
        for (outcome, state) in [("failed", "queued"), ("blocked", "blocked")] {
            let fence = call(&context, "next_task", &json!({})).expect("it is ready")["task"]["fence"].clone();
            let end = json!({ "task": task, "fence": fence, "outcome": outcome, "result": "no network" });
            assert_eq!(call(&context, "complete_task", &end).map(|ended| ended["state"].clone()), Ok(json!(state)));
        }
    }

    #[test]
    fn bad_arguments_are_answered_with_what_to_do() {
        let home = tempfile::tempdir().expect("a folder");
        let context = context(&home);
        for (name, arguments, expected) in [
            ("add_task", json!({}), "`title` is missing"),
            ("add_task", json!({ "title": 7 }), "`title` has to be a text"),
            ("add_task", json!({ "title": "x", "checks": ["true"] }), "there is no argument `checks`"),
            ("add_task", json!({ "title": "x", "after": ["none"] }), "`none`, which is not there"),
            ("add_task", json!({ "title": "x", "priority": 1_u64 << 40 }), "`priority` has to be a whole number"),
            ("complete_task", json!({ "task": "x", "fence": -1 }), "`fence` has to be a whole number"),
            ("complete_task", json!({ "task": "x", "fence": 1, "outcome": "great" }), "`outcome` has to be one of"),
            ("next_task", json!({ "lease": "soon" }), "invalid value 'soon'"),
            ("wake", json!({}), "there is no supervisor to wake"),
            ("why", json!({}), "there is no loop yet"),
            ("send_message", json!({ "to": "none", "text": "x" }), "neither a loop nor a task"),
            ("sleep_until", json!({}), "give `for` or `until`"),
            ("sleep_until", json!({ "for": "1m", "until": "2099-01-01" }), "give `for` or `until`"),
            ("report_metric", json!({ "task": "x", "name": "x", "value": "much" }), "`value` has to be a number"),
        ] {
            let text = call(&context, name, &arguments).expect_err(name);
            assert!(text.contains(expected) && text.starts_with("error: "), "{name}: {text}");
        }
    }

    #[test]
    fn the_tools_are_those_that_were_promised_and_every_schema_is_closed() {
        let all = list();
        let promised = [
            "status",
            "why",
            "diff",
            "next_task",
            "add_task",
            "complete_task",
            "report_metric",
            "ask_human",
            "sleep_until",
            "wake",
            "send_message",
        ];
        assert!(all.iter().map(|tool| tool.name.as_ref()).eq(promised));
        for tool in &all {
            assert_eq!(tool.input_schema.get("type"), Some(&json!("object")));
            assert_eq!(tool.input_schema.get("additionalProperties"), Some(&json!(false)));
            assert!(tool.description.as_ref().is_some_and(|about| about.len() > 20));
        }
    }
}
