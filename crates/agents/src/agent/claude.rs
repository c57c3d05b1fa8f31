//! Claude Code, `claude -p --output-format stream-json`. Measured with 2.1.325 and 2.1.197.

use std::collections::BTreeSet;

use everloop_core::spec::{AgentKind, Permission};
use everloop_core::stream::{AgentEvent, Quota, Usage};
use serde_json::{Map, Value, json};

use super::limits::{self, VendorRecord, VendorRefusal};
use super::reader::{EventSink, Parse, ProcessEnd, Unsaid, object};
use super::record::{self, Fields, microusd, whole};
use crate::prices;

use super::{Invocation, Order, RETRIES, Receiver, TELEMETRY_SECRET, has_telemetry, reset};

/// Denied calls that are remembered, so that none is counted twice.
const DENIALS_KEPT: usize = 1_000;

/// The beginning of a record that an old version (2.1.74) writes into the middle of another line.
/// In the model's text the quotes would be escaped with backslashes.
const STRAY: &str = r#"{"type":"rate_limit_event""#;

/// Tools that wait for a person's answer.
const QUESTIONS: &[&str] = &["AskUserQuestion", "ExitPlanMode"];

/// Tools that start another agent; `Task` was renamed `Agent`.
const SUBAGENTS: &[&str] = &["Task", "Agent"];

/// No request uses fewer tokens: instructions and tools alone are more. A cap in requests that is
/// derived from it cuts no turn short that is within its tokens.
const LEAST_TOKENS: u64 = 1_000;

/// The tool of everloop's server that answers requests for permission, in Claude Code's words.
const PERMISSION_TOOL: &str = "mcp__everloop__permission";

/// The variable that enables telemetry.
pub(super) const TELEMETRY: &str = "CLAUDE_CODE_ENABLE_TELEMETRY";

/// Export interval of events: at most this much usage of a killed turn is lost.
const EVENTS_EVERY_MS: u32 = 1_000;
/// Counters repeat what the events report, so they are exported less often.
const COUNTERS_EVERY_MS: u32 = 10_000;

/// The command line.
pub(super) fn invocation(order: &Order<'_>) -> Invocation {
    let agent = order.agent;
    let mut call = Invocation::of(order, "claude");
    call.args(["-p", "--output-format", "stream-json"]);
    if let Some(model) = &agent.model {
        call.option("--model", model);
    }
    if let Some(id) = order.resume {
        call.option("--resume", id);
    }
    if let Some(left) = order.left_microusd {
        call.option("--max-budget-usd", &record::dollars(left));
    }
    if let Some(left) = order.left_tokens {
        call.option("--max-turns", &(left / LEAST_TOKENS + 1).to_string());
    }
    match agent.permission {
        Permission::Edits => {
            call.args(["--permission-mode", "acceptEdits"]);
            if !agent.allow.is_empty() {
                call.arg("--allowedTools");
                agent.allow.iter().for_each(|command| call.arg(format!("Bash({command}:*)")));
            }
            ask_a_person(order, &mut call);
        }
        Permission::Full => {
            call.arg("--dangerously-skip-permissions");
            // Claude Code refuses root without it. Running everloop as root with full permission is
            // a deliberate choice.
            if nix::unistd::geteuid().is_root() {
                call.set("IS_SANDBOX", "1");
            }
        }
    }
    // A project's own settings, hooks and MCP servers were perhaps written by a turn before.
    call.args(["--setting-sources", "user", "--strict-mcp-config"]);
    // Required by stream-json. It also ends the list of allowed tools.
    call.arg("--verbose");
    call.extra(order);
    call.set("CLAUDE_CODE_MAX_RETRIES", RETRIES.to_string());
    call.set("DISABLE_AUTOUPDATER", "1");
    call.set("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    if let Some(base) = &agent.api_base {
        call.set("ANTHROPIC_BASE_URL", base);
    }
    if let Some(receiver) = order.telemetry.filter(|_| has_telemetry(agent)) {
        report_to(receiver, &mut call);
    }
    call
}

/// A tool of everloop's own server answers what would be denied without a person. The server has
/// this one tool, which the model does not see.
fn ask_a_person(order: &Order<'_>, call: &mut Invocation) {
    let within = order.answer_within.as_millis();
    let args =
        json!(["--state-dir", order.state_dir.display().to_string(), "mcp", format!("--permission-within={within}ms")]);
    let server = json!({ "type": "stdio", "command": order.ours.display().to_string(), "args": args });
    call.option("--mcp-config", &json!({ "mcpServers": { "everloop": server } }).to_string());
    call.option("--permission-prompt-tool", PERMISSION_TOOL);
    // The answer must not come too late because of the CLI's own limit.
    call.set("MCP_TOOL_TIMEOUT", (within + 60_000).to_string());
}

/// Figures only. Contents (`OTEL_LOG_USER_PROMPTS` and the like) are never enabled.
fn report_to(receiver: Receiver<'_>, call: &mut Invocation) {
    call.set(TELEMETRY, "1");
    call.set("OTEL_METRICS_EXPORTER", "otlp");
    call.set("OTEL_LOGS_EXPORTER", "otlp");
    call.set("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json");
    call.set("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint);
    call.set(TELEMETRY_SECRET, receiver.header);
    call.set("OTEL_LOGS_EXPORT_INTERVAL", EVENTS_EVERY_MS.to_string());
    call.set("OTEL_METRIC_EXPORT_INTERVAL", COUNTERS_EVERY_MS.to_string());
}

/// Parses the stream.
pub(super) struct ClaudeParser {
    resumed: bool,
    session: Option<String>,
    /// A hook refused the end of the turn, and the CLI ended it nevertheless.
    blocked_out: bool,
    denied: BTreeSet<String>,
    /// From the last answer in the main thread: its model and the tokens in the context at that
    /// time.
    context: Option<(String, u64)>,
    /// Totals of the last result, counted from the start of this process.
    counted: Usage,
    /// Usage of answers after the last result: all that is known if no other result follows.
    uncounted: Usage,
    last_message: String,
}

impl ClaudeParser {
    pub(super) fn new(resumed: bool) -> Self {
        Self {
            resumed,
            session: None,
            blocked_out: false,
            denied: BTreeSet::new(),
            context: None,
            counted: Usage::default(),
            uncounted: Usage::default(),
            last_message: String::new(),
        }
    }

    fn record(&mut self, record: &Value, sink: &mut EventSink<'_>) {
        match record.text("type") {
            Some("system") => self.system(record, sink),
            Some("assistant") => self.assistant(record, sink),
            Some("user") => results_of_tools(record, sink),
            Some("rate_limit_event") => allowance(record.at("rate_limit_info"), sink),
            Some("result") => self.result(record, sink),
            Some("stream_event" | "control_response" | "control_request" | "keep_alive" | "tool_progress") => {}
            _ => sink.unknown(),
        }
    }

    fn system(&mut self, record: &Value, sink: &mut EventSink<'_>) {
        match record.text("subtype") {
            Some("init") => {
                let id = record::name(record.text("session_id").unwrap_or_default());
                self.session = Some(id.clone());
                sink.say(AgentEvent::Session { id, model: record.text("model").map(record::name) });
            }
            Some("model_fallback") => {
                if let (Some(id), Some(model)) = (self.session.clone(), record.text("fallback_model")) {
                    sink.say(AgentEvent::Session { id, model: Some(record::name(model)) });
                }
            }
            Some("api_retry") => retry(record, sink),
            Some("permission_denied") => self.denied(record, sink),
            Some("background_tasks_changed") => {
                let running = u32::try_from(record.list("tasks").len()).unwrap_or(u32::MAX);
                sink.say(AgentEvent::Background { running });
            }
            Some("notification") if record.text("key") == Some("stop-hook-block-cap") => self.blocked_out = true,
            Some(_) => {}
            None => sink.unknown(),
        }
    }

    /// The event and the result both name a denied call; it is counted once.
    fn denied(&mut self, record: &Value, sink: &mut EventSink<'_>) {
        let id = record::name(record.text("tool_use_id").unwrap_or_default());
        let new = id.is_empty() || (self.denied.len() < DENIALS_KEPT && self.denied.insert(id));
        if new {
            sink.say(AgentEvent::Denied { tool: record::name(record.text("tool_name").unwrap_or_default()) });
        }
    }

    fn assistant(&mut self, record: &Value, sink: &mut EventSink<'_>) {
        let message = record.at("message");
        let made_up = message.text("model") == Some("<synthetic>") || record.at("is_api_error_message") == true;
        if made_up {
            synthetic(record, sink);
            return;
        }
        self.count(record, message);
        for part in message.list("content") {
            match part.text("type") {
                Some("text") => sink.text(part.text("text").unwrap_or_default()),
                Some("tool_use") => tool(part, sink),
                _ => {}
            }
        }
    }

    /// An answer arrives as one record per part, each with the same usage.
    fn count(&mut self, record: &Value, message: &Value) {
        let usage = usage_of(message.at("usage"));
        let id = message.text("id").unwrap_or_default();
        if !id.is_empty() && id != self.last_message {
            self.last_message = record::name(id);
            self.uncounted = self.uncounted.plus(usage);
        }
        if record.at("parent_tool_use_id").is_null() {
            let model = record::name(message.text("model").unwrap_or_default());
            self.context = Some((model, usage.tokens()));
        }
    }

    fn result(&mut self, record: &Value, sink: &mut EventSink<'_>) {
        let errors: Vec<&str> = record.list("errors").iter().filter_map(Value::as_str).collect();
        for denial in record.list("permission_denials") {
            self.denied(denial, sink);
        }
        self.used(record, sink);
        self.fill(record, sink);
        let text = record.text("result").map_or_else(|| errors.join("; "), str::to_owned);
        let failed = record.at("is_error") == true || record.text("subtype").is_some_and(|s| s.starts_with("error"));
        if failed {
            if errors.iter().any(|e| e.starts_with("No conversation found")) {
                sink.say(AgentEvent::SessionLost);
            }
            let codes = codes(record, &["api_error", "api_error_type", "terminal_reason"]);
            // A cap that everloop or the configuration set for this turn is not the vendor's
            // refusal.
            if record.text("subtype") == Some("success") || record.text("api_error").is_some() {
                sink.refused(&refusal(record, VendorRecord::Result, &codes, &text));
            }
        }
        let ended_early = record.text("terminal_reason").is_some_and(|reason| {
            reason.starts_with("aborted")
                || matches!(reason, "api_error" | "prompt_too_long" | "max_turns" | "budget_exhausted")
        });
        // A prompt that a hook refused has no turns; one that a hook kept from ending has an empty
        // result.
        let nothing = record.at("num_turns") == 0 || text.is_empty() || std::mem::take(&mut self.blocked_out);
        sink.result(!failed && !ended_early && !nothing, &text);
    }

    /// `total_cost_usd` and `modelUsage` count from the first turn of the session, also across
    /// `--resume`.
    fn used(&mut self, record: &Value, sink: &mut EventSink<'_>) {
        self.uncounted = Usage::default();
        if let Some(models) = record.object("model_usage_since_last_result") {
            say_used(sum_of(models), sink);
            return;
        }
        let Some(models) = record.object("modelUsage") else {
            say_used(usage_of(record.at("usage")), sink);
            return;
        };
        let in_all = Usage { microusd: microusd(record.at("total_cost_usd")), ..sum_of(models) };
        if self.resumed {
            sink.say(AgentEvent::UsedInAll(in_all));
        } else {
            say_used(in_all.since(self.counted), sink);
            self.counted = in_all;
        }
    }

    fn fill(&self, record: &Value, sink: &mut EventSink<'_>) {
        let Some((model, used)) = &self.context else { return };
        // Some versions append a suffix for the size of the context window.
        let named =
            |m: &Map<String, Value>| m.iter().find(|(k, _)| k.starts_with(model.as_str())).map(|(_, v)| v.clone());
        let window = record.object("modelUsage").and_then(named).and_then(|m| m.number("contextWindow"));
        if let Some(window) = window.filter(|w| *w > 0).or_else(|| prices::context_of(model)) {
            sink.say(AgentEvent::Context { used: *used, window });
        }
    }

    /// An event was written into the middle of a record: both are read.
    fn torn(&mut self, line: &str, sink: &mut EventSink<'_>) {
        let Some(start) = line.find(STRAY).filter(|_| line.starts_with('{')) else {
            sink.unknown();
            return;
        };
        let mut records = serde_json::Deserializer::from_str(&line[start..]).into_iter::<Value>();
        let Some(Ok(event)) = records.next() else {
            sink.unknown();
            return;
        };
        let rest = start + records.byte_offset();
        self.record(&event, sink);
        let mended = format!("{}{}", &line[..start], line.get(rest..).unwrap_or_default());
        match object(mended.trim()) {
            Some(record) => self.record(&record, sink),
            None if mended.trim().is_empty() => {}
            None => sink.unknown(),
        }
    }
}

impl Parse for ClaudeParser {
    fn out(&mut self, line: &str, sink: &mut EventSink<'_>) {
        match object(line) {
            Some(record) => self.record(&record, sink),
            None => self.torn(line, sink),
        }
    }

    fn err(&mut self, line: &str, sink: &mut EventSink<'_>) {
        if line.starts_with("No conversation found with session ID") {
            sink.say(AgentEvent::SessionLost);
        }
    }

    fn unsaid(&mut self, _at: &ProcessEnd<'_>) -> Unsaid {
        Unsaid { used: self.uncounted, model: None }
    }

    fn end(&mut self, _end: &ProcessEnd<'_>, sink: &mut EventSink<'_>) {
        // The process was killed before its result: the sum of the answers is a lower bound.
        say_used(std::mem::take(&mut self.uncounted), sink);
    }
}

fn say_used(usage: Usage, sink: &mut EventSink<'_>) {
    if !record::is_nothing(&usage) {
        sink.say(AgentEvent::Used(usage));
    }
}

pub(crate) fn usage_of(usage: &Value) -> Usage {
    let count = |name| usage.number(name).unwrap_or(0);
    Usage {
        input: count("input_tokens"),
        output: count("output_tokens"),
        cache_read: count("cache_read_input_tokens"),
        cache_write: count("cache_creation_input_tokens"),
        microusd: None,
    }
}

fn sum_of(models: &Map<String, Value>) -> Usage {
    models.values().fold(Usage::default(), |sum, model| {
        let count = |name| model.number(name).unwrap_or(0);
        sum.plus(Usage {
            input: count("inputTokens"),
            output: count("outputTokens"),
            cache_read: count("cacheReadInputTokens"),
            cache_write: count("cacheCreationInputTokens"),
            microusd: microusd(model.at("costUSD")),
        })
    })
}

fn tool(part: &Value, sink: &mut EventSink<'_>) {
    let tool = part.text("name").unwrap_or_default();
    let input = part.at("input");
    sink.say(AgentEvent::ToolStarted {
        id: record::name(part.text("id").unwrap_or_default()),
        name: record::name(tool),
        fingerprint: record::fingerprint(tool, input),
        timeout_ms: input.number("timeout"),
        subagent: SUBAGENTS.contains(&tool),
        input: record::brief(input),
    });
    if QUESTIONS.contains(&tool) {
        sink.say(AgentEvent::Asking { what: record::name(tool) });
    }
}

fn results_of_tools(record: &Value, sink: &mut EventSink<'_>) {
    for part in record.at("message").list("content") {
        if part.text("type") == Some("tool_result") {
            let failed = part.at("is_error") == true;
            let content = record::flat(part.at("content"));
            let error = failed.then(|| record::error_fingerprint(&content));
            let id = record::name(part.text("tool_use_id").unwrap_or_default());
            sink.say(AgentEvent::ToolEnded { id, error, output: record::excerpt(&content) });
        }
    }
}

fn retry(record: &Value, sink: &mut EventSink<'_>) {
    let codes = codes(record, &["error"]);
    let known = limits::class(&VendorRefusal {
        status: record.number("error_status"),
        ..refusal(record, VendorRecord::Retry, &codes, "")
    });
    // Without a status the server did not respond.
    let lost = record.at("error_status").is_null().then_some(everloop_core::stream::LimitClass::Network);
    let attempt = record.number("attempt").and_then(|n| u32::try_from(n).ok()).unwrap_or(1);
    sink.retrying(attempt, record.number("retry_delay_ms"), known.or(lost), record.text("error").unwrap_or_default());
}

/// Text that the CLI put in the assistant's place: an error, or a filler after an interrupted turn.
fn synthetic(record: &Value, sink: &mut EventSink<'_>) {
    let text = record::flat(record.at("message").at("content"));
    if record.at("is_api_error_message") == true || record.text("error").is_some() {
        let mut codes = codes(record, &["api_error", "api_error_type", "error"]);
        let info = record.at("api_error_params").at("rate_limit_info");
        codes.extend(info.text("rateLimitType"));
        let reset_at = info.number("resetsAt").and_then(|n| reset::term(n, sink.now));
        sink.refused(&VendorRefusal { reset_at, ..refusal(record, VendorRecord::Synthetic, &codes, &text) });
        sink.failed(&text, record.text("request_id"));
    }
}

fn codes<'a>(record: &'a Value, names: &[&str]) -> Vec<&'a str> {
    names.iter().filter_map(|name| record.text(name)).collect()
}

fn refusal<'a>(record: &'a Value, place: VendorRecord, codes: &'a [&'a str], text: &'a str) -> VendorRefusal<'a> {
    VendorRefusal {
        agent: AgentKind::Claude,
        record: place,
        status: record.number("api_error_status"),
        codes,
        text,
        reset_at: None,
    }
}

/// How much of the plan is used, and whether the allowance is exhausted.
fn allowance(info: &Value, sink: &mut EventSink<'_>) {
    let kind = info.text("rateLimitType").unwrap_or("unknown");
    let reset_at = info.number("resetsAt").and_then(|n| reset::term(n, sink.now));
    match info.object("unifiedWindows") {
        Some(windows) => windows.iter().for_each(|(name, window)| quota(name, window, sink)),
        None => quota(kind, info, sink),
    }
    if info.text("status") == Some("rejected") {
        let text = format!("the allowance `{}` is used up", record::name(kind));
        sink.refused(&VendorRefusal {
            agent: AgentKind::Claude,
            record: VendorRecord::Allowance,
            status: None,
            codes: &[kind, "rejected"],
            text: &text,
            reset_at,
        });
    }
}

fn quota(name: &str, window: &Value, sink: &mut EventSink<'_>) {
    let Some(used) = window.at("utilization").as_f64().filter(|u| u.is_finite() && *u >= 0.0) else { return };
    let hour = 3_600_000;
    let length_ms = match name {
        "five_hour" => Some(5 * hour),
        name if name.starts_with("seven_day") => Some(7 * 24 * hour),
        _ => None,
    };
    let used_permille = (used * 1000.0).round() as u32;
    let reset_at = whole(window.at("resetsAt")).and_then(|n| reset::term(n, sink.now));
    sink.say(AgentEvent::Quota(Quota { window: record::name(name), used_permille, reset_at, length_ms }));
}
