//! Gemini CLI, `gemini -o stream-json`. Measured with 0.61.0.

use everloop_core::spec::{AgentKind, Permission};
use everloop_core::stream::{AgentEvent, Usage, VendorLimit};
use serde_json::Value;

use super::limits::{self, VendorRecord, VendorRefusal};
use super::reader::{EventSink, Parse, ProcessEnd, object};
use super::record::{self, Fields};
use super::{Invocation, Order};

/// Bytes of one answer that are kept while its parts arrive.
const PIECES_CAP: usize = 32_000;

/// Exit code: the session to resume does not exist.
const EXIT_NO_SESSION: i32 = 42;

/// Exit code: not logged in.
const EXIT_NO_AUTH: i32 = 41;

/// The error for a key with a custom address when the settings do not select key login; without a
/// custom address the key is accepted.
const KEY_NOT_CHOSEN: &str = "Invalid auth method selected";

const CHOOSE_KEY: &str = "with `api_base` it takes a key only if its settings select it; hint: put \
    {\"security\":{\"auth\":{\"selectedType\":\"gemini-api-key\"}}} into ~/.gemini/settings.json";

/// Statuses that the exit code can stand for: it is the status modulo 256.
const STATUSES: &[u64] = &[400, 401, 402, 403, 404, 408, 413, 429, 500, 502, 503, 504];

/// The command line.
pub(super) fn invocation(order: &Order<'_>) -> Invocation {
    let agent = order.agent;
    let mut call = Invocation::of(order, "gemini");
    call.args(["-o", "stream-json", "--skip-trust"]);
    match agent.permission {
        Permission::Edits => {
            call.args(["--approval-mode", "auto_edit"]);
            for command in &agent.allow {
                call.option("--allowed-tools", &format!("run_shell_command({command})"));
            }
        }
        Permission::Full => call.args(["--approval-mode", "yolo"]),
    }
    if let Some(model) = &agent.model {
        call.option("--model", model);
    }
    if let Some(id) = order.resume {
        call.option("--resume", id);
    }
    call.extra(order);
    // Otherwise it starts itself a second time, and the first process does not forward signals.
    call.set("GEMINI_CLI_NO_RELAUNCH", "true");
    if let Some(base) = &agent.api_base {
        call.set("GOOGLE_GEMINI_BASE_URL", base);
    }
    call
}

/// Parses the stream.
#[derive(Default)]
pub(super) struct GeminiParser {
    /// The parts of the current answer so far.
    pieces: String,
    answer: String,
    /// The call that began last: results do not name their tool.
    last_tool: String,
    /// The reason of an early stop, which the CLI reports before it claims success.
    stopped: Option<String>,
    /// A result's error that no rule matched; its status is the exit code.
    unexplained: Option<String>,
    /// The CLI did not accept the key because its settings do not select key login.
    key_not_chosen: bool,
    /// The number in `Attempt 3 failed: …`; its delay is in the next line.
    attempt: Option<u32>,
}

impl GeminiParser {
    fn record(&mut self, record: &Value, sink: &mut EventSink<'_>) {
        let kind = record.text("type");
        let piece = kind == Some("message") && record.at("delta") == true;
        if !piece {
            self.flush(sink);
        }
        match kind {
            Some("init") => {
                let id = record::name(record.text("session_id").unwrap_or_default());
                sink.say(AgentEvent::Session { id, model: record.text("model").map(record::name) });
            }
            Some("message") if record.text("role") == Some("assistant") => {
                let room = PIECES_CAP.saturating_sub(self.pieces.len());
                self.pieces.extend(record.text("content").unwrap_or_default().chars().take(room));
                if !piece {
                    self.flush(sink);
                }
            }
            Some("message") => {}
            Some("tool_use") => {
                self.last_tool = record::name(record.text("tool_name").unwrap_or_default());
                tool(record, sink);
            }
            Some("tool_result") => {
                let failed = record.text("status").is_some_and(|s| s != "success");
                let why = || format!("{}{}", record::flat(record.at("output")), record.at("error"));
                let error = failed.then(|| record::error_fingerprint(&why()));
                if record.at("error").text("type") == Some("policy_violation") {
                    sink.say(AgentEvent::Denied { tool: self.last_tool.clone() });
                }
                let id = record::name(record.text("tool_id").unwrap_or_default());
                let said = if failed { why() } else { record::flat(record.at("output")) };
                sink.say(AgentEvent::ToolEnded { id, error, output: record::excerpt(&said) });
            }
            Some("error") => {
                let message = record.text("message").unwrap_or_default();
                if record.text("severity") == Some("error") || message.starts_with("Loop detected") {
                    self.stopped = Some(record::saying(message));
                }
            }
            Some("result") => self.result(record, sink),
            _ => sink.unknown(),
        }
    }

    fn flush(&mut self, sink: &mut EventSink<'_>) {
        let pieces = std::mem::take(&mut self.pieces);
        if !pieces.trim().is_empty() {
            self.answer = record::words(&pieces);
            sink.text(&pieces);
        }
    }

    fn result(&mut self, record: &Value, sink: &mut EventSink<'_>) {
        let used = usage(record.at("stats"));
        if !record::is_nothing(&used) {
            sink.say(AgentEvent::Used(used));
        }
        let answer = std::mem::take(&mut self.answer);
        let stopped = self.stopped.take();
        if record.text("status") == Some("success") {
            let text = stopped.clone().unwrap_or_else(|| answer.clone());
            sink.result(stopped.is_none() && !answer.is_empty(), &text);
            return;
        }
        let message = record.at("error").text("message").map(str::to_owned).or(stopped).unwrap_or_default();
        if refused(&message, record.at("error").text("type"), sink).is_none() {
            self.unexplained = Some(message.clone());
        }
        sink.result(false, &message);
    }
}

/// Reads `[API Error: {"error":{"code":401,"message":"…","status":"UNAUTHENTICATED"}}]`, or prose.
fn refused(message: &str, kind: Option<&str>, sink: &mut EventSink<'_>) -> Option<VendorLimit> {
    let body = body_in(message);
    let error = body.at("error");
    let codes: Vec<&str> = [error.text("status"), kind].into_iter().flatten().collect();
    sink.refused(&VendorRefusal {
        status: error.number("code"),
        codes: &codes,
        ..refusal(message, VendorRecord::Result)
    })
}

impl Parse for GeminiParser {
    fn out(&mut self, line: &str, sink: &mut EventSink<'_>) {
        match object(line) {
            Some(record) => self.record(&record, sink),
            None => sink.unknown(),
        }
    }

    /// Reads `Attempt 1 failed with status 429. Retrying with backoff... …`, or the pair of lines
    /// `Attempt 1 failed: You exceeded …` and
    /// `Suggested retry after 4s.. Retrying after 5652ms...`.
    fn err(&mut self, line: &str, sink: &mut EventSink<'_>) {
        if line.starts_with("Error resuming session") {
            sink.say(AgentEvent::SessionLost);
        }
        self.key_not_chosen |= line.starts_with(KEY_NOT_CHOSEN);
        if let Some(rest) = line.strip_prefix("Attempt ") {
            self.attempt = rest.split(' ').next().and_then(|n| n.parse().ok());
        }
        let Some((before, after)) = line.split_once("Retrying ") else { return };
        let Some(attempt) = self.attempt.take() else { return };
        let status = before.split_once("with status ").and_then(|(_, s)| s.get(..3)?.parse().ok());
        let why = VendorRefusal { status, ..refusal(line, VendorRecord::Retry) };
        let delay = after.strip_prefix("after ").and_then(|d| d.split_once("ms")?.0.parse().ok());
        sink.retrying(attempt, delay, limits::class(&why), before);
    }

    fn end(&mut self, end: &ProcessEnd<'_>, sink: &mut EventSink<'_>) {
        self.flush(sink);
        let Some(code) = end.code.filter(|_| end.signal.is_none()) else { return };
        match code {
            EXIT_NO_SESSION => sink.say(AgentEvent::SessionLost),
            EXIT_NO_AUTH => {
                let text = if self.key_not_chosen { CHOOSE_KEY } else { "no way to log in is set up" };
                sink.refused(&VendorRefusal { codes: &["exit-41"], ..refusal(text, VendorRecord::Exit) });
            }
            code => {
                let status = STATUSES.iter().copied().find(|s| i64::from(code) == (*s % 256) as i64);
                if let (Some(text), Some(_)) = (self.unexplained.take(), status) {
                    sink.refused(&VendorRefusal { status, ..refusal(&text, VendorRecord::Exit) });
                }
            }
        }
    }
}

fn refusal(text: &str, place: VendorRecord) -> VendorRefusal<'_> {
    VendorRefusal { agent: AgentKind::Gemini, record: place, status: None, codes: &[], text, reset_at: None }
}

fn body_in(message: &str) -> Value {
    let start = message.find('{').unwrap_or(message.len());
    let mut values = serde_json::Deserializer::from_str(&message[start..]).into_iter::<Value>();
    values.next().and_then(Result::ok).unwrap_or_default()
}

fn tool(record: &Value, sink: &mut EventSink<'_>) {
    let tool = record.text("tool_name").unwrap_or_default();
    sink.say(AgentEvent::ToolStarted {
        id: record::name(record.text("tool_id").unwrap_or_default()),
        name: record::name(tool),
        fingerprint: record::fingerprint(tool, record.at("parameters")),
        timeout_ms: None,
        subagent: matches!(tool, "delegate_to_agent" | "codebase_investigator"),
        input: record::brief(record.at("parameters")),
    });
    if tool == "ask_user" {
        sink.say(AgentEvent::Asking { what: record::name(tool) });
    }
}

/// `input_tokens` includes what came from a cache, `input` does not; thinking is only in the total.
fn usage(stats: &Value) -> Usage {
    let count = |name| stats.number(name).unwrap_or(0);
    let (read, cached) = (count("input_tokens"), count("cached"));
    Usage {
        input: stats.number("input").unwrap_or_else(|| read.saturating_sub(cached)),
        output: count("output_tokens").max(count("total_tokens").saturating_sub(read)),
        cache_read: cached,
        cache_write: 0,
        microusd: None,
    }
}
