//! Codex, `codex exec --json`. Measured with 0.166.0.

use everloop_core::spec::{AgentKind, Permission};
use everloop_core::stream::{AgentEvent, LimitClass, Usage, VendorLimit};
use serde_json::Value;

use super::limits::{self, VendorRecord, VendorRefusal};
use super::reader::{EventSink, Parse, ProcessEnd, Unsaid, object};
use super::record::{self, Fields};
use super::rollout::{self, Rollout};
use super::{Invocation, Order, RETRIES, provider, reset};

/// Name of the provider entry through which everloop sets codex's retries.
const PROVIDER: &str = "everloop";

/// The variable from which codex reads the key of that provider.
const PROVIDER_KEY: &str = "OPENAI_API_KEY";

/// What codex logs to standard error: errors, and how long it waits before it retries a request.
const LOG: &str = "error,codex_core::responses_retry=warn";

/// Characters kept of an error message; some contain the vendor's whole response.
const MESSAGE_KEPT: usize = 2_000;

/// Windows of at least this length are counted in days and weeks, not hours.
const LONG_WINDOW_MS: u64 = 24 * 3_600_000;

/// The command line. The options stand before `resume`, which does not know all of them.
pub(super) fn invocation(order: &Order<'_>) -> Invocation {
    let agent = order.agent;
    let mut call = Invocation::of(order, "codex");
    // Either of the two would delay the end of a turn by seconds when its server is unreachable.
    call.args(["exec", "--json", "--skip-git-repo-check", "-c", "otel.metrics_exporter=none", "--disable", "plugins"]);
    match agent.permission {
        // No approval can be given in a headless turn: what the sandbox refuses stays refused.
        Permission::Edits => call.args(["--sandbox", "workspace-write", "-c", "approval_policy=never"]),
        Permission::Full => call.arg("--dangerously-bypass-approvals-and-sandbox"),
    }
    let whom = match &agent.api_base {
        Some(base) => Some(format!("name=\"{PROVIDER}\",base_url={},env_key=\"{PROVIDER_KEY}\"", toml_string(base))),
        // The built-in provider under another name, with the login of the built-in one.
        None => provider::is_usual(order).then(|| "name=\"OpenAI\",requires_openai_auth=true".to_owned()),
    };
    if let Some(whom) = whom {
        call.args(["-c", &format!("model_provider={PROVIDER}"), "-c"]);
        // Codex retries requests inside of retried streams: with both, the counts would multiply.
        call.arg(format!(
            "model_providers.{PROVIDER}={{{whom},wire_api=\"responses\",request_max_retries=0,\
             stream_max_retries={RETRIES}}}"
        ));
    }
    if let Some(model) = &agent.model {
        call.option("--model", model);
    }
    call.extra(order);
    if let Some(id) = order.resume {
        call.args(["resume", id]);
    }
    call.arg("-");
    call.set("RUST_LOG", LOG);
    call
}

/// A TOML string; JSON's escapes are a subset of TOML's.
fn toml_string(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

/// Parses the stream.
#[derive(Default)]
pub(super) struct CodexParser {
    thread: Option<String>,
    last_text: String,
    /// Tool calls that began and have not ended, newest last; codex mostly runs one at a time.
    open: Vec<String>,
    /// The message of the last failure; codex's session file is searched for details after the
    /// exit.
    failed: Option<Failure>,
    /// The retry whose delay is not known yet.
    retry: Option<(u32, Option<LimitClass>, String)>,
    /// The delay of a retry whose record has not come yet.
    delay_ms: Option<u64>,
    counted: bool,
    resumed: bool,
    /// What the session had used when it was first looked at; a resumed one counts on.
    before: Option<Usage>,
    /// Whether there was an answer or a tool call.
    worked: bool,
}

/// Bound of open calls; further ones are not tracked.
const OPEN_KEPT: usize = 256;

impl CodexParser {
    pub(super) fn new(resumed: bool) -> Self {
        Self { resumed, ..Self::default() }
    }

    fn record(&mut self, record: &Value, sink: &mut EventSink<'_>) {
        match record.text("type") {
            Some("thread.started") => {
                let id = record::name(record.text("thread_id").unwrap_or_default());
                self.thread = Some(id.clone());
                sink.say(AgentEvent::Session { id, model: None });
            }
            Some("turn.started" | "item.updated") => {}
            Some("item.started") => self.started(record.at("item"), sink),
            Some("item.completed") => self.completed(record.at("item"), sink),
            Some("turn.completed") => {
                self.counted = true;
                self.failed = None;
                sink.say(AgentEvent::UsedInAll(usage(record.at("usage"))));
                let text = std::mem::take(&mut self.last_text);
                sink.result(self.worked, &text);
            }
            Some("turn.failed") => {
                let failure = Failure::read(record.at("error").text("message").unwrap_or_default());
                let text = failure.text.clone();
                self.failed(failure, VendorRecord::Result, sink);
                sink.result(false, &text);
            }
            Some("error") => self.error(record.text("message").unwrap_or_default(), sink),
            _ => sink.unknown(),
        }
    }

    fn started(&mut self, item: &Value, sink: &mut EventSink<'_>) {
        if let Some((name, arguments)) = call(item) {
            let id = record::name(item.text("id").unwrap_or_default());
            self.worked = true;
            if self.open.len() < OPEN_KEPT {
                self.open.push(id.clone());
            }
            sink.say(AgentEvent::ToolStarted {
                id,
                fingerprint: record::fingerprint(&name, &arguments),
                input: record::brief(&arguments),
                name,
                timeout_ms: None,
                subagent: item.text("type") == Some("collab_tool_call"),
            });
        }
    }

    fn completed(&mut self, item: &Value, sink: &mut EventSink<'_>) {
        match item.text("type") {
            Some("agent_message") => {
                let text = item.text("text").unwrap_or_default();
                self.last_text = record::words(text);
                self.worked |= !self.last_text.is_empty();
                sink.text(text);
            }
            // A notice: an unknown model, a disabled guard. Failures have records of their own.
            Some("reasoning" | "todo_list" | "error") => {}
            Some(_) => {
                let id = record::name(item.text("id").unwrap_or_default());
                if !self.open.contains(&id) {
                    self.started(item, sink);
                }
                self.open.retain(|o| *o != id);
                sink.say(AgentEvent::ToolEnded { id, error: error_of(item), output: output_of(item) });
            }
            None => sink.unknown(),
        }
    }

    /// `Reconnecting... 1/5 (why)` is not a failure yet.
    fn error(&mut self, message: &str, sink: &mut EventSink<'_>) {
        let Some(rest) = message.strip_prefix("Reconnecting... ") else {
            self.failed(Failure::read(message), VendorRecord::Error, sink);
            return;
        };
        let attempt = rest.split('/').next().and_then(|n| n.parse().ok()).unwrap_or(1);
        let why = rest.split_once('(').map_or(rest, |(_, why)| why.trim_end_matches(')'));
        let failure = Failure::read(why);
        let class = limits::class(&failure.refusal(&[], VendorRecord::Retry));
        // The line on standard error came first, if there is one: it knows the delay.
        let delay = self.delay_ms.take();
        sink.retrying(attempt, delay, class, &failure.text);
        self.retry = Some((attempt, class, failure.text));
    }

    /// `… retrying sampling request (1/2 in 599.99s)... …`, which [`LOG`] enables, has the delay
    /// that the record about the same retry lacks. Either may come first.
    fn announced(&mut self, line: &str, sink: &mut EventSink<'_>) {
        let delay = line.split_once("retrying sampling request (").and_then(|(_, rest)| {
            let (seconds, _) = rest.split_once(" in ")?.1.split_once(')')?;
            reset::seconds(seconds)
        });
        let Some(delay) = delay else { return };
        let ms = (delay * 1000.0) as u64;
        match self.retry.take() {
            Some((attempt, class, text)) => sink.retrying(attempt, Some(ms), class, &text),
            None => self.delay_ms = Some(ms),
        }
    }

    /// The message gives the reset time only roughly; the session file has the exact one, which is
    /// added at the end.
    fn failed(&mut self, failure: Failure, place: VendorRecord, sink: &mut EventSink<'_>) {
        let codes = failure.codes();
        if let Some(limit) = limits::limit(&failure.refusal(&codes, place), sink.now, sink.zone.as_ref()) {
            sink.say(AgentEvent::Limit(VendorLimit { reset_at: None, ..limit }));
        }
        sink.failed(&failure.text, failure.request_id.as_deref());
        self.failed = Some(failure);
    }

    fn refine(&self, notes: &Rollout, sink: &mut EventSink<'_>) {
        let Some(failure) = &self.failed else { return };
        let (code, status) = notes.error.as_ref().map_or((None, None), |(code, status)| (Some(code.as_str()), *status));
        let codes: Vec<&str> = code.into_iter().chain(failure.codes()).collect();
        let plain = failure.refusal(&codes, VendorRecord::Result);
        let noted = VendorRefusal { status: status.or(plain.status), ..plain };
        let Some(mut limit) = limits::limit(&noted, sink.now, sink.zone.as_ref()) else { return };
        if is_plan(&limit.rule) {
            let used_up = notes.quotas.iter().filter(|q| q.used_permille >= 1000).max_by_key(|q| q.reset_at);
            limit.reset_at = used_up.and_then(|q| q.reset_at).or(limit.reset_at);
            let long = match used_up.and_then(|q| q.length_ms) {
                Some(length) => length >= LONG_WINDOW_MS,
                None => limit.reset_at.is_some_and(|t| t.since(sink.now).as_millis() > u128::from(LONG_WINDOW_MS)),
            };
            let by_length = if long { LimitClass::Weekly } else { LimitClass::Window };
            limit.class = if notes.spend_reached { LimitClass::Spend } else { by_length };
        }
        sink.say(AgentEvent::Limit(limit));
    }
}

fn is_plan(rule: &str) -> bool {
    rule == "codex.usage-limit"
}

impl Parse for CodexParser {
    fn out(&mut self, line: &str, sink: &mut EventSink<'_>) {
        match object(line) {
            Some(record) => self.record(&record, sink),
            None => sink.unknown(),
        }
    }

    fn err(&mut self, line: &str, sink: &mut EventSink<'_>) {
        self.announced(line, sink);
        let Some(error) = line.strip_prefix("Error: ") else { return };
        if error.starts_with("thread/resume") && error.contains("no rollout found") {
            sink.say(AgentEvent::SessionLost);
        }
        sink.result(false, error);
    }

    /// The stream has a sum at its end only; the session file has one after every request.
    fn unsaid(&mut self, at: &ProcessEnd<'_>) -> Unsaid {
        let notes = self.thread.as_deref().filter(|_| !self.counted).and_then(|thread| rollout::find(thread, at));
        let Rollout { in_all, model, .. } = notes.unwrap_or_default();
        let (in_all, resumed) = (in_all.unwrap_or_default(), self.resumed);
        let before = self.before.get_or_insert_with(|| if resumed { in_all } else { Usage::default() });
        Unsaid { used: in_all.since(*before), model }
    }

    fn end(&mut self, end: &ProcessEnd<'_>, sink: &mut EventSink<'_>) {
        let found = self.thread.as_deref().and_then(|thread| rollout::find(thread, end));
        let notes = found.unwrap_or_default();
        // The stream names no model.
        if let (Some(id), Some(model)) = (&self.thread, &notes.model) {
            sink.say(AgentEvent::Session { id: id.clone(), model: Some(model.clone()) });
        }
        notes.quotas.iter().for_each(|q| sink.say(AgentEvent::Quota(q.clone())));
        if let Some((used, window)) = notes.context {
            sink.say(AgentEvent::Context { used, window });
        }
        // A failed or killed turn writes no usage record of its own.
        if let Some(in_all) = notes.in_all.filter(|_| !self.counted) {
            sink.say(AgentEvent::UsedInAll(in_all));
        }
        self.refine(&notes, sink);
    }
}

/// The vendor's input count includes tokens read from a cache.
pub(crate) fn usage(usage: &Value) -> Usage {
    let count = |name| usage.number(name).unwrap_or(0);
    let (cache_read, cache_write) = (count("cached_input_tokens"), count("cache_write_input_tokens"));
    Usage {
        input: count("input_tokens").saturating_sub(cache_read).saturating_sub(cache_write),
        // The output count includes reasoning.
        output: count("output_tokens"),
        cache_read,
        cache_write,
        microusd: None,
    }
}

/// Name and arguments of an item that is a tool call.
fn call(item: &Value) -> Option<(String, Value)> {
    let kind = item.text("type")?;
    let arguments = |names: &[&str]| -> Value { names.iter().map(|n| item.at(n).clone()).collect() };
    match kind {
        "agent_message" | "reasoning" | "todo_list" | "error" => None,
        "command_execution" => Some((kind.to_owned(), arguments(&["command"]))),
        "mcp_tool_call" => {
            let (server, tool) = (item.text("server").unwrap_or_default(), item.text("tool").unwrap_or_default());
            Some((record::name(&format!("mcp__{server}__{tool}")), arguments(&["arguments"])))
        }
        "file_change" => Some((kind.to_owned(), arguments(&["changes"]))),
        "web_search" => Some((kind.to_owned(), arguments(&["query"]))),
        _ => Some((record::name(kind), arguments(&["tool", "prompt", "arguments", "query"]))),
    }
}

fn error_of(item: &Value) -> Option<u64> {
    let failed = item.text("status").is_some_and(|s| matches!(s, "failed" | "declined"))
        || item.at("exit_code").as_i64().is_some_and(|code| code != 0)
        || !item.at("error").is_null();
    failed.then(|| {
        let output = item.text("aggregated_output").unwrap_or_default();
        record::error_fingerprint(&format!("{}{}{output}", item.at("exit_code"), record::flat(item.at("error"))))
    })
}

/// The output of a command, the result of another tool, or the error.
fn output_of(item: &Value) -> String {
    let parts = [item.at("aggregated_output"), item.at("error"), item.at("result").at("content")];
    record::excerpt(&parts.iter().map(|part| record::flat(part)).find(|text| !text.is_empty()).unwrap_or_default())
}

/// A failure as codex words it.
struct Failure {
    /// The sentence, without the id of the request.
    text: String,
    /// Codes of the vendor's response.
    codes: Vec<String>,
    status: Option<u64>,
    request_id: Option<String>,
}

impl Failure {
    fn read(message: &str) -> Self {
        // Codex passes the body of a response with status 400 on as it is.
        if let Some(body) = object(message.trim()) {
            let error = body.at("error");
            let text = error.text("message").or_else(|| body.text("detail")).or_else(|| body.text("message"));
            let codes = ["type", "code"].iter().filter_map(|name| error.text(name)).map(record::name).collect();
            return Self { text: kept(text.unwrap_or(message)), codes, status: Some(400), request_id: None };
        }
        let (text, id) = match message.split_once(", request id: ") {
            Some((text, rest)) => (text, Some(rest.trim_end_matches(')'))),
            None => (message, None),
        };
        Self { text: kept(text), codes: Vec::new(), status: status_in(message), request_id: id.map(record::name) }
    }

    fn codes(&self) -> Vec<&str> {
        self.codes.iter().map(String::as_str).collect()
    }

    fn refusal<'a>(&'a self, codes: &'a [&'a str], place: VendorRecord) -> VendorRefusal<'a> {
        VendorRefusal {
            agent: AgentKind::Codex,
            record: place,
            status: self.status,
            codes,
            text: &self.text,
            reset_at: None,
        }
    }
}

fn kept(text: &str) -> String {
    text.chars().take(MESSAGE_KEPT).collect()
}

/// The HTTP status in messages such as `unexpected status 401 Unauthorized: …` or
/// `last status: 429 Too Many Requests`.
fn status_in(message: &str) -> Option<u64> {
    let (_, rest) = message.split_once("status: ").or_else(|| message.split_once("unexpected status "))?;
    rest.get(..3)?.parse().ok().filter(|s| (100..600).contains(s))
}
