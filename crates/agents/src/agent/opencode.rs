//! opencode, `opencode run --format json`. Measured with 1.18.33.

use everloop_core::spec::{AgentKind, AgentSpec, Permission};
use everloop_core::stream::{AgentEvent, LimitClass, Usage};
use everloop_core::time::Time;
use serde_json::{Map, Value, json};

use super::limits::{self, VendorRecord, VendorRefusal};
use super::reader::{EventSink, Parse, ProcessEnd, object};
use super::record::{self, Fields};
use super::{Invocation, Order, reset};

/// Providers that opencode knows, so that an address is all they need.
const KNOWN: &[&str] =
    &["anthropic", "openai", "google", "openrouter", "groq", "mistral", "deepseek", "xai", "azure", "opencode"];

/// Tools of an agent that may edit files. Everything else is refused instead of prompted for: a
/// prompt without an answer ends the turn.
const EDITING: &[&str] =
    &["read", "edit", "glob", "grep", "list", "lsp", "todoread", "todowrite", "task", "skill", "doom_loop"];

/// The plugin that reports how long opencode waits for its vendor; nothing else does.
const PLUGIN: &str = include_str!("opencode/status.js");

/// Name of the plugin's file, beside the prompt.
const PLUGIN_FILE: &str = "opencode-status.js";

/// opencode fetches packages before it loads any plugin. A registry that cannot be reached would
/// delay a turn by more than a minute; the plugin removes these variables.
const NPM: &[(&str, &str)] = &[("npm_config_fetch_retries", "0"), ("npm_config_fetch_timeout", "5000")];

/// opencode's own waits double from 2 s on, with a quarter at random, five times: the longest has
/// 40 s. A longer one was requested by the vendor.
const OWN_WAIT_MS: u64 = 40_000;

/// A session that was compacted this often without text or a tool call in between never fits. The
/// CLI itself would go on for ever.
const COMPACTIONS: u32 = 3;

/// The command line.
pub(super) fn invocation(order: &Order<'_>) -> Invocation {
    let mut call = Invocation::of(order, "opencode");
    call.args(["run", "--format", "json"]);
    if let Some(model) = &order.agent.model {
        call.option("--model", model);
    }
    if let Some(id) = order.resume {
        call.option("--session", id);
    }
    call.extra(order);
    let mut settings = settings(order.agent);
    if !is_pure(order) {
        let plugin = order.prompt_file.with_file_name(PLUGIN_FILE);
        settings["plugin"] = json!([plugin]);
        call.files.push((plugin, PLUGIN));
        for (name, value) in NPM {
            call.set(name, *value);
        }
    }
    call.set("OPENCODE_CONFIG_CONTENT", settings.to_string());
    call.set("OPENCODE_DISABLE_AUTOUPDATE", "1");
    // Plugins and MCP servers of the project were perhaps written by a turn before.
    call.set("OPENCODE_DISABLE_PROJECT_CONFIG", "1");
    if order.agent.api_base.is_some() {
        // The list of models comes from a separate server, which a private address replaces.
        call.set("OPENCODE_DISABLE_MODELS_FETCH", "1");
    }
    call
}

/// Whether the configuration lets opencode run without plugins.
fn is_pure(order: &Order<'_>) -> bool {
    let by_variable = order.env.iter().any(|(name, value)| name == "OPENCODE_PURE" && !value.is_empty());
    by_variable || order.agent.argv.iter().any(|arg| arg == "--pure")
}

fn settings(agent: &AgentSpec) -> Value {
    let mut all = json!({"autoupdate": false, "share": "disabled", "permission": permission(agent)});
    if let Some(base) = &agent.api_base {
        let model = agent.model.as_deref().unwrap_or_default();
        let (provider, name) = model.split_once('/').unwrap_or(("openai", model));
        let mut entry = json!({"options": {"baseURL": base}});
        if !KNOWN.contains(&provider) {
            entry["npm"] = json!("@ai-sdk/openai-compatible");
            // opencode itself substitutes the value: no secret is written here.
            entry["options"]["apiKey"] = json!("{env:OPENAI_API_KEY}");
            entry["models"] = json!({name: {}});
        }
        all["provider"] = json!({provider: entry});
        if !model.is_empty() {
            all["small_model"] = json!(model);
        }
    }
    all
}

/// The last matching rule wins, and `*` sorts before every name.
fn permission(agent: &AgentSpec) -> Value {
    match agent.permission {
        Permission::Full => json!({"*": "allow"}),
        Permission::Edits => {
            let mut rules: Map<String, Value> = Map::new();
            rules.insert("*".to_owned(), json!("deny"));
            rules.extend(EDITING.iter().map(|tool| ((*tool).to_owned(), json!("allow"))));
            let mut bash: Map<String, Value> = Map::new();
            bash.insert("*".to_owned(), json!("deny"));
            for command in &agent.allow {
                bash.insert(command.clone(), json!("allow"));
                bash.insert(format!("{command} *"), json!("allow"));
            }
            rules.insert("bash".to_owned(), Value::Object(bash));
            Value::Object(rules)
        }
    }
}

/// Parses the stream. There is no first and no last record: the turn ends with the process.
#[derive(Default)]
pub(super) struct OpencodeParser {
    session: Option<String>,
    last_text: String,
    /// The reason of the last finished step, unless an error came after it.
    finished: Option<String>,
    error: Option<String>,
    /// Whether there was an answer or a tool call.
    worked: bool,
    compaction: Compaction,
    /// Usage after the session was given up; reported at the end of the process.
    unsaid: Usage,
}

/// How the CLI handles a session that is too long: the model summarises it and then continues.
#[derive(Default)]
struct Compaction {
    /// A summary is being written: its text is not progress.
    under_way: bool,
    /// Consecutive compactions without progress.
    in_a_row: u32,
}

impl Compaction {
    fn is_hopeless(&self) -> bool {
        self.in_a_row >= COMPACTIONS
    }

    fn overflowed(&mut self) {
        self.under_way = true;
        self.in_a_row += 1;
    }

    fn moved_on(&mut self) {
        if !self.under_way {
            self.in_a_row = 0;
        }
    }
}

impl OpencodeParser {
    fn record(&mut self, record: &Value, sink: &mut EventSink<'_>) {
        if let (None, Some(id)) = (&self.session, record.text("sessionID")) {
            let id = record::name(id);
            self.session = Some(id.clone());
            sink.say(AgentEvent::Session { id, model: None });
        }
        let part = record.at("part");
        match record.text("type") {
            // The result was already reported, and a CLI that keeps writing would never count as
            // lingering.
            Some("step_finish") if self.compaction.is_hopeless() => self.unsaid = self.unsaid.plus(usage(part)),
            Some(_) if self.compaction.is_hopeless() => {}
            Some("step_start") => {
                self.finished = None;
                self.error = None;
            }
            // A request that the CLI generated for the model is not the model's answer.
            Some("text") if part.at("synthetic") == true => {
                self.compaction.under_way &= part.at("metadata").at("compaction_continue") != true;
            }
            Some("text") => {
                let text = part.text("text").unwrap_or_default();
                self.last_text = record::words(text);
                self.worked |= !self.last_text.is_empty();
                self.compaction.moved_on();
                sink.text(text);
            }
            Some("reasoning") => {}
            Some("tool_use") => {
                self.worked = true;
                self.compaction = Compaction::default();
                tool(part, sink);
            }
            Some("step_finish") => {
                say_used(usage(part), sink);
                self.finished = part.text("reason").map(record::name);
            }
            Some("error") => self.failed(record.at("error"), sink),
            Some("session_status") => self.status(record, sink),
            _ => sink.unknown(),
        }
    }

    /// A record of [`PLUGIN`]: opencode waits for its vendor, or a wait is over.
    fn status(&self, record: &Value, sink: &mut EventSink<'_>) {
        let status = record.at("status");
        if status.text("type") != Some("retry") {
            // The model works again, although the next record may be minutes away.
            if let Some(id) = self.session.clone() {
                sink.say(AgentEvent::Session { id, model: None });
            }
            return;
        }
        let attempt = status.number("attempt").and_then(|n| u32::try_from(n).ok()).unwrap_or(1);
        let delay = status.number("next").zip(record.number("timestamp")).map(|(at, now)| at.saturating_sub(now));
        let message = status.text("message").unwrap_or_default();
        sink.retrying(attempt, delay, wait_class(status, delay), message);
    }

    fn failed(&mut self, error: &Value, sink: &mut EventSink<'_>) {
        self.finished = None;
        let message = failure(error, sink);
        self.error = Some(record::saying(&message));
        if error.text("name") == Some("ContextOverflowError") {
            self.compaction.overflowed();
        }
        if self.compaction.is_hopeless() {
            // No text: the last summary is the best that can be passed on.
            sink.result(false, "");
        }
    }
}

impl Parse for OpencodeParser {
    fn out(&mut self, line: &str, sink: &mut EventSink<'_>) {
        match object(line) {
            Some(record) => self.record(&record, sink),
            None => sink.unknown(),
        }
    }

    fn err(&mut self, line: &str, sink: &mut EventSink<'_>) {
        let line = crate::job::plain(line.as_bytes());
        if let Some(error) = line.strip_prefix("Error: ") {
            if error.starts_with("Session not found") {
                sink.say(AgentEvent::SessionLost);
            }
            self.error = Some(record::saying(error));
        }
    }

    fn end(&mut self, end: &ProcessEnd<'_>, sink: &mut EventSink<'_>) {
        if self.compaction.is_hopeless() {
            say_used(self.unsaid, sink);
            return;
        }
        let finished = self.finished.as_deref() == Some("stop");
        let ok = end.is_zero() && self.error.is_none() && finished && self.worked;
        if ok {
            sink.result(true, &self.last_text);
        } else if self.session.is_some() || self.error.is_some() {
            let text = self.error.take().unwrap_or_else(|| match &self.finished {
                Some(_) if !end.is_zero() => end.describe(),
                Some(_) if finished => "it ended without an answer".to_owned(),
                Some(reason) => format!("its last step ended with `{reason}`"),
                None => format!("{} in the middle of a step", end.describe()),
            });
            sink.result(false, &text);
        }
    }
}

/// There is one record when a call is over, and none when it begins.
fn tool(part: &Value, sink: &mut EventSink<'_>) {
    let tool = part.text("tool").unwrap_or_default();
    let (id, state) = (record::name(part.text("callID").unwrap_or_default()), part.at("state"));
    sink.say(AgentEvent::ToolStarted {
        id: id.clone(),
        name: record::name(tool),
        fingerprint: record::fingerprint(tool, state.at("input")),
        timeout_ms: state.at("input").number("timeout"),
        subagent: tool == "task",
        input: record::brief(state.at("input")),
    });
    let failed = state.text("status") == Some("error");
    let why = record::flat(state.at("error"));
    if failed && (why.contains("rejected permission") || why.contains("a rule which prevents you")) {
        sink.say(AgentEvent::Denied { tool: record::name(tool) });
    }
    let output = record::excerpt(&if failed { why.clone() } else { record::flat(state.at("output")) });
    sink.say(AgentEvent::ToolEnded { id, error: failed.then(|| record::error_fingerprint(&why)), output });
}

fn say_used(used: Usage, sink: &mut EventSink<'_>) {
    if !record::is_nothing(&used) {
        sink.say(AgentEvent::Used(used));
    }
}

fn usage(part: &Value) -> Usage {
    let tokens = part.at("tokens");
    let count = |name| tokens.number(name).unwrap_or(0);
    let cache = |name| tokens.at("cache").number(name).unwrap_or(0);
    Usage {
        input: count("input"),
        output: count("output").saturating_add(count("reasoning")),
        cache_read: cache("read"),
        cache_write: cache("write"),
        // It writes 0 when the price is unknown.
        microusd: record::microusd(part.at("cost")).filter(|m| *m > 0),
    }
}

/// The cause of a wait. The record has the vendor's message, but neither its status nor its codes.
fn wait_class(status: &Value, delay_ms: Option<u64>) -> Option<LimitClass> {
    let codes: Vec<&str> = status.at("action").text("reason").into_iter().collect();
    let known = limits::class(&VendorRefusal {
        agent: AgentKind::Opencode,
        record: VendorRecord::Retry,
        status: None,
        codes: &codes,
        text: status.text("message").unwrap_or_default(),
        reset_at: None,
    });
    let by_vendor = delay_ms.is_some_and(|ms| ms > OWN_WAIT_MS).then_some(LimitClass::Rate);
    known.filter(|class| class.holds_account()).or(by_vendor)
}

/// The record contains the vendor's response: status, headers and body.
fn failure(error: &Value, sink: &mut EventSink<'_>) -> String {
    let data = error.at("data");
    let name = error.text("name").unwrap_or_default();
    let message = data.text("message").unwrap_or(name).to_owned();
    let body: Value = data.text("responseBody").and_then(|b| serde_json::from_str(b).ok()).unwrap_or_default();
    let inner = body.at("error");
    let codes: Vec<&str> = [Some(name), inner.text("type"), inner.text("code")].into_iter().flatten().collect();
    sink.refused(&VendorRefusal {
        agent: AgentKind::Opencode,
        record: VendorRecord::Error,
        status: data.number("statusCode"),
        codes: &codes,
        text: &message,
        reset_at: reset_in(data, inner, sink.now),
    });
    let headers = data.at("responseHeaders");
    sink.failed(&message, headers.text("request-id").or_else(|| headers.text("x-request-id")));
    message
}

/// Reads `retry-after` in seconds, `retry-after-ms`, or a field of the body.
fn reset_in(data: &Value, error: &Value, now: Time) -> Option<Time> {
    let headers = data.at("responseHeaders");
    let header = |name: &str, unit: f64| {
        let number = headers.text(name).and_then(|v| v.trim().parse::<f64>().ok())?;
        reset::after(number / unit, now)
    };
    let at = || error.number("resets_at").and_then(|n| reset::term(n, now));
    header("retry-after-ms", 1000.0).or_else(|| header("retry-after", 1.0)).or_else(at)
}
