//! GitHub Copilot CLI, `copilot --output-format=json`. Measured with 1.0.102.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use everloop_core::spec::{AgentKind, Permission};
use everloop_core::stream::{AgentEvent, Usage};
use serde_json::Value;

use super::limits::{VendorRecord, VendorRefusal};
use super::reader::{EventSink, Parse, ProcessEnd, object};
use super::record::{self, Fields};
use super::{Invocation, Order};

/// Lines read of a session's file; a longer session is counted up to there.
const SESSION_LINES: usize = 200_000;

/// Codes of a call that was refused because no person was there to allow it.
const REFUSED: &[&str] = &["denied", "rejected"];

/// The command line. The prompt on standard input selects the mode without a person.
pub(super) fn invocation(order: &Order<'_>) -> Invocation {
    let agent = order.agent;
    let mut call = Invocation::of(order, "copilot");
    call.args(["--output-format=json", "--no-ask-user", "--no-color", "--no-auto-update"]);
    // Servers of the vendor, which act outside of the workspace.
    call.arg("--disable-builtin-mcps");
    if let Some(model) = &agent.model {
        call.option("--model", model);
    }
    if let Some(id) = order.resume {
        call.option("--resume", id);
    }
    match agent.permission {
        Permission::Edits => {
            call.option("--allow-tool", "write");
            agent.allow.iter().for_each(|command| call.option("--allow-tool", &format!("shell({command}:*)")));
        }
        Permission::Full => call.arg("--allow-all"),
    }
    call.extra(order);
    if let Some(base) = &agent.api_base {
        // With a vendor of its own it needs neither GitHub nor its login.
        call.set("COPILOT_OFFLINE", "true");
        call.set("COPILOT_PROVIDER_BASE_URL", base);
        if let Some(model) = &agent.model {
            call.set("COPILOT_MODEL", model);
        }
    }
    call
}

/// Parses the stream. The session's id comes with the last record only.
#[derive(Default)]
pub(super) struct CopilotParser {
    model: Option<String>,
    last_text: String,
    error: Option<String>,
    session: Option<String>,
}

impl CopilotParser {
    fn record(&mut self, record: &Value, sink: &mut EventSink<'_>) {
        let data = record.at("data");
        match record.text("type") {
            Some("session.tools_updated") => self.model = data.text("model").map(record::name),
            Some("assistant.message") => {
                let text = data.text("content").unwrap_or_default();
                if !text.is_empty() {
                    self.last_text = record::words(text);
                    sink.text(text);
                }
            }
            Some("tool.execution_start") => started(data, sink),
            Some("tool.execution_complete") => ended(data, sink),
            Some("model.call_failure") => {
                let again = data.number("retryAttempt").unwrap_or(0);
                let class = super::limits::class(&refusal(data, ""));
                let attempt = u32::try_from(again + 1).unwrap_or(u32::MAX);
                let text = String::new();
                sink.say(AgentEvent::Retrying { attempt, delay_ms: None, class, until: None, text });
            }
            Some("session.error") => {
                let message = data.text("message").unwrap_or_default();
                self.error = Some(record::saying(message));
                let codes: Vec<&str> = data.text("errorType").into_iter().collect();
                sink.refused(&VendorRefusal { codes: &codes, ..refusal(data, message) });
            }
            Some("result") => self.result(record, sink),
            Some(kind) if is_known(kind) => {}
            _ => sink.unknown(),
        }
    }

    fn result(&mut self, record: &Value, sink: &mut EventSink<'_>) {
        if let Some(id) = record.text("sessionId").map(record::name) {
            self.session = Some(id.clone());
            sink.say(AgentEvent::Session { id, model: self.model.clone() });
        }
        let ok = record.at("exitCode") == 0 && self.error.is_none() && !self.last_text.is_empty();
        let text = self.error.take().unwrap_or_else(|| std::mem::take(&mut self.last_text));
        sink.result(ok, &text);
    }
}

impl Parse for CopilotParser {
    fn out(&mut self, line: &str, sink: &mut EventSink<'_>) {
        match object(line) {
            Some(record) => self.record(&record, sink),
            None => sink.unknown(),
        }
    }

    fn err(&mut self, line: &str, sink: &mut EventSink<'_>) {
        let Some(error) = line.strip_prefix("Error: ") else { return };
        if error.starts_with("No session, task, or name matched") {
            sink.say(AgentEvent::SessionLost);
        }
        sink.refused(&refusal(&Value::Null, error));
        sink.result(false, error);
    }

    fn end(&mut self, end: &ProcessEnd<'_>, sink: &mut EventSink<'_>) {
        let used = self.session.as_deref().and_then(|session| in_all(session, end));
        if let Some(used) = used.filter(|used| !record::is_nothing(used)) {
            sink.say(AgentEvent::UsedInAll(used));
        }
    }
}

/// Records about the session that mean nothing here.
fn is_known(kind: &str) -> bool {
    let families =
        ["session.", "assistant.", "model.", "tool.", "user.", "system.", "permission.", "hook.", "subagent."];
    families.iter().any(|family| kind.starts_with(family))
}

fn started(data: &Value, sink: &mut EventSink<'_>) {
    let tool = data.text("toolName").unwrap_or_default();
    sink.say(AgentEvent::ToolStarted {
        id: record::name(data.text("toolCallId").unwrap_or_default()),
        name: record::name(tool),
        fingerprint: record::fingerprint(tool, data.at("arguments")),
        timeout_ms: data.at("arguments").number("timeout"),
        subagent: tool == "task",
        input: record::brief(data.at("arguments")),
    });
}

fn ended(data: &Value, sink: &mut EventSink<'_>) {
    let code = data.at("shellExecution").at("exitCode").as_i64().unwrap_or(0);
    let failed = data.at("success") == false || code != 0;
    let error = data.at("error");
    let said = record::flat(if error.is_null() { data.at("result").at("content") } else { error.at("message") });
    if error.text("code").is_some_and(|code| REFUSED.contains(&code)) {
        sink.say(AgentEvent::Denied { tool: record::name(data.text("toolName").unwrap_or("a tool")) });
    }
    sink.say(AgentEvent::ToolEnded {
        id: record::name(data.text("toolCallId").unwrap_or_default()),
        error: failed.then(|| record::error_fingerprint(&said)),
        output: record::excerpt(&said),
    });
}

fn refusal<'a>(data: &Value, text: &'a str) -> VendorRefusal<'a> {
    VendorRefusal {
        agent: AgentKind::Copilot,
        record: VendorRecord::Error,
        status: data.number("statusCode"),
        codes: &[],
        text,
        reset_at: None,
    }
}

/// Tokens of the whole session, which the CLI writes to its own file and prints nowhere.
fn in_all(session: &str, end: &ProcessEnd<'_>) -> Option<Usage> {
    // The id becomes a part of a path.
    if session.is_empty() || !session.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return None;
    }
    let home = end.var("COPILOT_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(end.var("HOME")?).join(".copilot")))?;
    let file = File::open(home.join("session-state").join(session).join("events.jsonl")).ok()?;
    let lines = BufReader::new(file).lines().take(SESSION_LINES).map_while(Result::ok);
    let records = lines.filter(|line| line.contains("\"session.usage_record\"")).filter_map(|line| object(&line));
    let ours = records.filter(|record| record.text("type") == Some("session.usage_record"));
    Some(ours.fold(Usage::default(), |sum, record| sum.plus(usage(record.at("data").at("usage")))))
}

/// The input count includes tokens read from a cache.
fn usage(usage: &Value) -> Usage {
    let count = |name| usage.number(name).unwrap_or(0);
    let (cache_read, cache_write) = (count("cacheReadTokens"), count("cacheWriteTokens"));
    Usage {
        input: count("inputTokens").saturating_sub(cache_read).saturating_sub(cache_write),
        output: count("outputTokens"),
        cache_read,
        cache_write,
        microusd: None,
    }
}
