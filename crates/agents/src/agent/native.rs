//! everloop's own format: one [`AgentEvent`] per line, as JSON. The API agent and pane turns write
//! it; any command may.

use std::borrow::Cow;

use everloop_core::spec::{AgentKind, AgentSpec, Permission};
use everloop_core::stream::{AgentEvent, LimitClass, Quota, VendorLimit};
use serde::Deserialize;

use crate::acp::ACP_ARG;
use crate::api::API_ARG;

use super::reader::{EventSink, Parse, ProcessEnd};
use super::{Invocation, Order, command, record, reset};

/// The subcommand that runs one turn of an interactive agent.
const PANE_ARGS: [&str; 2] = ["pane", "__turn"];

/// Exit codes of that subcommand, besides 0 for a finished turn.
const PANE_ASKS: i32 = 4;
const PANE_LIMITED: i32 = 5;

/// The invocation of everloop's own API agent.
pub(super) fn api(order: &Order<'_>) -> Invocation {
    let mut call = ours(order, API_ARG);
    if let Some(base) = &order.agent.api_base {
        call.args(["--base", base]);
    }
    if let Some(microusd) = order.left_microusd {
        call.args(["--left-microusd", &microusd.to_string()]);
    }
    if let Some(tokens) = order.left_tokens {
        call.args(["--left-tokens", &tokens.to_string()]);
    }
    if let Some(prices) = order.agent.prices {
        for (name, price) in [
            ("--price-in", prices.input),
            ("--price-out", prices.output),
            ("--price-cached", prices.cache_read),
            ("--price-cache-write", prices.cache_write),
        ] {
            call.args([name, &record::dollars(price)]);
        }
    }
    permit(&mut call, order.agent);
    call.extra(order);
    call
}

/// What the agent may do by itself.
fn permit(call: &mut Invocation, agent: &AgentSpec) {
    let permission = match agent.permission {
        Permission::Edits => "edits",
        Permission::Full => "full",
    };
    call.args(["--permission", permission]);
    for command in &agent.allow {
        call.args(["--allow", command]);
    }
}

/// The invocation for a CLI that speaks the Agent Client Protocol.
pub(super) fn acp(order: &Order<'_>) -> Invocation {
    let mut call = ours(order, ACP_ARG);
    permit(&mut call, order.agent);
    call.option("--answer-within", &format!("{}ms", order.answer_within.as_millis()));
    call.arg("--");
    call.argv.extend(order.agent.argv.iter().cloned());
    call
}

/// The invocation for an interactive agent in the configured pane.
pub(super) fn pane(order: &Order<'_>) -> Invocation {
    let mut call = Invocation { argv: vec![order.ours.display().to_string()], ..Invocation::default() };
    call.args(PANE_ARGS);
    call.option("--state-dir", &order.state_dir.display().to_string());
    call.option("--pane", pane_name(order.agent));
    call.option("--prompt-file", &order.prompt_file.display().to_string());
    call.option("--answer-within", &format!("{}ms", order.answer_within.as_millis()));
    call
}

/// The configured pane.
fn pane_name(agent: &AgentSpec) -> &str {
    agent.argv.get(1).or(agent.argv.first()).map_or("", String::as_str)
}

/// The pane of an interactive agent.
pub fn pane_of(agent: &AgentSpec) -> Option<&str> {
    (agent.kind == AgentKind::Pane).then(|| pane_name(agent))
}

fn ours(order: &Order<'_>, part: &str) -> Invocation {
    let mut call = Invocation {
        argv: vec![order.ours.display().to_string(), part.to_owned()],
        stdin: Some(order.prompt_file.to_owned()),
        ..Invocation::default()
    };
    call.args(["--state", &order.state_dir.display().to_string()]);
    if let Some(model) = &order.agent.model {
        call.args(["--model", model]);
    }
    if let Some(id) = order.resume {
        call.args(["--resume", id]);
    }
    call
}

/// The beginning of the most frequent record.
const WORDS: &str = r#"{"said":"text","#;

/// That record, borrowed: a tagged enum would copy all of it before it knows the variant.
#[derive(Deserialize)]
struct Words<'a> {
    #[serde(rename = "said")]
    _said: &'a str,
    #[serde(borrow)]
    text: Cow<'a, str>,
}

/// The text of the record, if the line is one; anything unusual is left to the full parser.
fn words(line: &str) -> Option<Cow<'_, str>> {
    let Words { text, .. } = line.starts_with(WORDS).then(|| serde_json::from_str(line).ok()).flatten()?;
    Some(text)
}

/// Parses native records, with the same caps as for other agents.
pub(super) struct NativeParser;

impl Parse for NativeParser {
    fn out(&mut self, line: &str, sink: &mut EventSink<'_>) {
        if let Some(text) = words(line) {
            sink.say(AgentEvent::Text { text: record::words(&text) });
            return;
        }
        match serde_json::from_str::<AgentEvent>(line) {
            Ok(said) => {
                let said = capped(said, sink);
                sink.say(said);
            }
            Err(_) => sink.unknown(),
        }
    }
}

/// Parses a pane's turn: native records, and an exit code. Versions before 0.3 wrote the screen as
/// plain text.
#[derive(Default)]
pub(super) struct PaneParser {
    records: command::CommandParser,
    last_line: String,
    /// The error of the turn itself; the screen of an ended program is empty.
    error: Option<String>,
}

impl Parse for PaneParser {
    fn out(&mut self, line: &str, sink: &mut EventSink<'_>) {
        self.records.out(line, sink);
        if !self.records.is_native() {
            self.last_line = record::saying(line);
        }
    }

    fn err(&mut self, line: &str, _sink: &mut EventSink<'_>) {
        if let Some(error) = line.strip_prefix("error: ") {
            self.error = Some(record::saying(error));
        }
    }

    fn end(&mut self, end: &ProcessEnd<'_>, sink: &mut EventSink<'_>) {
        if sink.last_result().is_some() {
            return;
        }
        match end.code {
            Some(PANE_ASKS) if !self.records.is_native() => {
                sink.say(AgentEvent::Asking { what: self.last_line.clone() });
            }
            Some(PANE_LIMITED) if !self.records.is_native() => sink.say(AgentEvent::Limit(VendorLimit {
                rule: "pane.limited".to_owned(),
                class: LimitClass::Window,
                reset_at: None,
                text: "the pane shows a usage limit".to_owned(),
            })),
            _ => {}
        }
        let error = self.error.take().filter(|_| !end.is_zero());
        sink.result(end.is_zero(), error.as_ref().unwrap_or(&self.last_line));
    }
}

fn capped(said: AgentEvent, sink: &EventSink<'_>) -> AgentEvent {
    let name = |s: String| record::name(&s);
    match said {
        AgentEvent::Session { id, model } => AgentEvent::Session { id: name(id), model: model.map(name) },
        AgentEvent::Text { text } => AgentEvent::Text { text: record::words(&text) },
        AgentEvent::ToolStarted { id, name: tool, fingerprint, timeout_ms, subagent, input } => {
            let input = record::brief(&input.into());
            AgentEvent::ToolStarted { id: name(id), name: name(tool), fingerprint, timeout_ms, subagent, input }
        }
        AgentEvent::ToolEnded { id, error, output } => {
            AgentEvent::ToolEnded { id: name(id), error, output: record::excerpt(&output) }
        }
        AgentEvent::Denied { tool } => AgentEvent::Denied { tool: name(tool) },
        AgentEvent::Asking { what } => AgentEvent::Asking { what: record::saying(&what) },
        AgentEvent::Limit(limit) => AgentEvent::Limit(VendorLimit {
            rule: name(limit.rule),
            class: limit.class,
            reset_at: limit.reset_at.and_then(|t| reset::sane(t, sink.now)),
            text: record::saying(&limit.text),
        }),
        AgentEvent::Quota(quota) => AgentEvent::Quota(Quota {
            window: name(quota.window),
            reset_at: quota.reset_at.and_then(|t| reset::sane(t, sink.now)),
            ..quota
        }),
        AgentEvent::Result { ok, text } => AgentEvent::Result { ok, text: record::words(&text) },
        AgentEvent::Failed { text, request_id } => {
            AgentEvent::Failed { text: record::saying(&text), request_id: request_id.map(name) }
        }
        AgentEvent::Retrying { attempt, delay_ms, class, until, text } => AgentEvent::Retrying {
            attempt,
            delay_ms,
            class,
            until: until.and_then(|t| reset::sane(t, sink.now)),
            text: record::saying(&text),
        },
        said @ (AgentEvent::SessionLost
        | AgentEvent::Used(_)
        | AgentEvent::UsedInAll(_)
        | AgentEvent::Context { .. }
        | AgentEvent::Background { .. }
        | AgentEvent::Unknown) => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fast path and the full parser agree on every line that the fast path accepts.
    #[test]
    fn words_are_the_same_either_way() {
        let lines = [
            r#"{"said":"text","text":"plain"}"#,
            r#"{"said":"text","text":"a \"quote\" and \u00e9\n"}"#,
            r#"{"said":"text","text":"with more","more":[1,{"text":"x"}]}"#,
            r#"{"said":"text","text":""}"#,
        ];
        for line in lines {
            let Ok(AgentEvent::Text { text }) = serde_json::from_str(line) else { panic!("{line}") };
            assert_eq!(words(line).as_deref(), Some(text.as_str()), "{line}");
        }
        for other in [
            r#"{"said":"text","said":"result","ok":true,"text":"x"}"#,
            r#"{"said":"text","text":"x""#,
            r#"{"said":"text","text":7}"#,
            r#"{"said":"text","words":"x"}"#,
            r#"{"said":"result","ok":true,"text":"x"}"#,
        ] {
            assert_eq!(words(other), None, "{other}");
        }
    }
}
