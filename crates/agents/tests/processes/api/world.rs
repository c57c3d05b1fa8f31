//! A workspace, a state folder, a scripted server, and the agent between them. Answers of both API
//! formats in one line each.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use everloop_agents::api::{self, API_ARG, ApiFormat, ApiTurnEnd, ApiTurnOptions};
use everloop_core::spec::Permission;
use everloop_core::stream::{AgentEvent, TurnReport, VendorLimit};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::server::{Act, Request, Server};

/// The key; it must appear nowhere but in its header.
pub const CANARY: &str = "sk-canary-0123456789abcdef";
/// The variable that holds it.
pub const KEY_ENV: &str = "TEST_API_KEY";
pub const WIRES: [ApiFormat; 2] = [ApiFormat::Messages, ApiFormat::Responses];

/// The agent's own process.
pub fn agent(options: &str, prompt: &str) -> ExitCode {
    let options: ApiTurnOptions = serde_json::from_str(options).unwrap();
    let key = std::env::var(KEY_ENV).ok();
    match api::run(&options, key.as_deref(), prompt, &mut std::io::stdout().lock()) {
        ApiTurnEnd::Finished => ExitCode::SUCCESS,
        ApiTurnEnd::Short => ExitCode::FAILURE,
    }
}

/// Everything that a test needs.
pub struct World {
    home: TempDir,
    server: Server,
    /// Changed by tests before the turn.
    pub options: ApiTurnOptions,
    /// More variables for the agent.
    pub vars: Vec<(String, String)>,
}

/// The result of a turn.
pub struct Ran {
    pub code: i32,
    pub said: Vec<AgentEvent>,
    /// The stream and stderr, unparsed.
    pub raw: String,
}

impl World {
    pub fn new(wire: ApiFormat, script: Vec<Act>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let server = Server::start(script);
        let workspace = home.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        let mut options = ApiTurnOptions::new(wire, "some-model", workspace, home.path().join("state"));
        options.base = server.base();
        options.key_env = Some(KEY_ENV.to_owned());
        options.permission = Permission::Full;
        Self { home, server, options, vars: Vec::new() }
    }

    /// Takes a turn.
    pub fn run(&self, prompt: &str) -> Ran {
        self.run_with_key(prompt, CANARY)
    }

    pub fn run_with_key(&self, prompt: &str, key: &str) -> Ran {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([API_ARG, &serde_json::to_string(&self.options).unwrap(), prompt])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env(KEY_ENV, key)
            .envs(self.vars.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.options.workspace)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!err.contains("panicked"), "{err}");
        let said = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Ran { code: output.status.code().unwrap_or(-1), said, raw: format!("{out}{err}") }
    }

    /// A turn that must succeed.
    #[track_caller]
    pub fn works(&self, prompt: &str) -> Ran {
        let ran = self.run(prompt);
        assert_eq!(ran.code, 0, "{}", ran.raw);
        assert_eq!(ran.report().ok, Some(true), "{}", ran.raw);
        ran
    }

    /// The requests that the server received.
    pub fn requests(&self) -> Vec<Request> {
        self.server.requests()
    }

    /// A path in the workspace.
    pub fn path(&self, name: &str) -> PathBuf {
        self.options.workspace.join(name)
    }

    pub fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Everything in the state folder.
    pub fn stored(&self) -> String {
        let dir = self.home.path().join("state/sessions");
        let files = std::fs::read_dir(dir).unwrap().map(|f| std::fs::read_to_string(f.unwrap().path()).unwrap());
        files.collect()
    }
}

impl Ran {
    /// The report of the turn, as the supervisor builds it.
    pub fn report(&self) -> TurnReport {
        let mut report = TurnReport::default();
        self.said.iter().for_each(|said| report.take(said));
        report
    }

    /// The limit that ended it.
    #[track_caller]
    pub fn limit(&self) -> VendorLimit {
        assert_eq!(self.code, 1, "{}", self.raw);
        let report = self.report();
        assert_eq!(report.ok, Some(false), "{}", self.raw);
        report.limit.unwrap_or_else(|| panic!("no limit: {}", self.raw))
    }

    pub fn session(&self) -> String {
        self.report().session.unwrap()
    }

    pub fn text(&self) -> String {
        let text = |said: &AgentEvent| if let AgentEvent::Text { text } = said { Some(text.clone()) } else { None };
        self.said.iter().filter_map(text).collect()
    }
}

/// An answer with text.
pub fn text(wire: ApiFormat, words: &str) -> Vec<Value> {
    match wire {
        ApiFormat::Messages => {
            let (a, b) = words.split_at(words.len() / 2);
            let mut events = begun();
            events.push(
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            );
            for crumb in [a, b] {
                let delta = json!({"type": "text_delta", "text": crumb});
                events.push(json!({"type": "content_block_delta", "index": 0, "delta": delta}));
            }
            events.push(json!({"type": "content_block_stop", "index": 0}));
            ended(events, "end_turn")
        }
        ApiFormat::Responses => {
            let content = json!([{"type": "output_text", "text": words, "annotations": []}]);
            let item = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content});
            vec![
                json!({"type": "response.created", "response": {"id": "resp_1"}}),
                json!({"type": "response.output_text.delta", "delta": words}),
                json!({"type": "response.output_item.done", "item": item}),
                completed(),
            ]
        }
    }
}

/// An answer with a tool call.
pub fn call(wire: ApiFormat, name: &str, input: &Value) -> Vec<Value> {
    match wire {
        ApiFormat::Messages => {
            let input = input.to_string();
            let (a, b) = input.split_at(input.len() / 2);
            let block = json!({"type": "tool_use", "id": "call_1", "name": name, "input": {}});
            let mut events = begun();
            events.push(json!({"type": "ping"}));
            events.push(json!({"type": "content_block_start", "index": 0, "content_block": block}));
            for crumb in [a, b] {
                let delta = json!({"type": "input_json_delta", "partial_json": crumb});
                events.push(json!({"type": "content_block_delta", "index": 0, "delta": delta}));
            }
            events.push(json!({"type": "content_block_stop", "index": 0}));
            ended(events, "tool_use")
        }
        ApiFormat::Responses => {
            let item = json!({
                "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "arguments": input.to_string(),
            });
            vec![json!({"type": "response.output_item.done", "item": item}), completed()]
        }
    }
}

fn begun() -> Vec<Value> {
    let usage = json!({"input_tokens": 100, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 7, "output_tokens": 1});
    vec![json!({"type": "message_start", "message": {"id": "msg_1", "model": "some-model", "usage": usage}})]
}

fn ended(mut events: Vec<Value>, reason: &str) -> Vec<Value> {
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 20}}));
    events.push(json!({"type": "message_stop"}));
    events
}

fn completed() -> Value {
    let usage = json!({
        "input_tokens": 140, "input_tokens_details": {"cached_tokens": 40}, "output_tokens": 20, "total_tokens": 160,
    });
    json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "usage": usage}})
}

/// The script of one call and a final text.
pub fn one_call(wire: ApiFormat, name: &str, input: &Value) -> Vec<Act> {
    vec![Act::Events(call(wire, name, input)), Act::Events(text(wire, "done"))]
}

/// The tool result that the model received for its only call.
pub fn told(wire: ApiFormat, request: &Request) -> String {
    let last = match wire {
        ApiFormat::Messages => &request.body["messages"].as_array().unwrap().last().unwrap()["content"][0]["content"],
        ApiFormat::Responses => &request.body["input"].as_array().unwrap().last().unwrap()["output"],
    };
    last.as_str().unwrap().to_owned()
}
