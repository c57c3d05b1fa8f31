//! Any command. Its output has no meaning to everloop, unless it is in the native format from its
//! first line on, or its configuration names sentences that are limits.

use std::collections::VecDeque;

use everloop_core::spec::TextLimit;
use everloop_core::stream::{AgentEvent, VendorLimit};

use super::reader::{EventSink, Parse, ProcessEnd};
use super::{Invocation, Order, native, record, reset};

/// `{prompt}` and `{prompt_file}` are replaced; with neither, the prompt arrives on standard input.
pub(super) fn invocation(order: &Order<'_>) -> Invocation {
    let file = order.prompt_file.display().to_string();
    let argv = &order.agent.argv;
    let by_argument = argv.iter().any(|a| a.contains("{prompt}") || a.contains("{prompt_file}"));
    Invocation {
        argv: argv.iter().map(|a| a.replace("{prompt_file}", &file).replace("{prompt}", order.prompt)).collect(),
        stdin: (!by_argument).then(|| order.prompt_file.to_owned()),
        ..Invocation::default()
    }
}

/// Lines of a failed command that are searched for a limit: its last words, on either stream.
const LINES_KEPT: usize = 40;

/// Accepts the native format only when the stream begins with such a record. A record further down
/// may have been printed by the agent itself and is ignored. Of plain text only the configured
/// sentences count, and only at the end of a run that failed.
#[derive(Default)]
pub(super) struct CommandParser {
    form: Form,
    rules: Vec<TextLimit>,
    last: VecDeque<String>,
}

/// What the first line was.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Form {
    /// No line was read yet.
    #[default]
    Silent,
    /// A native record.
    Native,
    /// Neither: plain text.
    Plain,
}

impl CommandParser {
    pub(super) fn with_rules(rules: Vec<TextLimit>) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Whether the stream is in the native format.
    pub(super) fn is_native(&self) -> bool {
        self.form == Form::Native
    }

    fn keep(&mut self, line: &str) {
        if self.rules.is_empty() {
            return;
        }
        self.last.push_back(record::saying(line));
        if self.last.len() > LINES_KEPT {
            self.last.pop_front();
        }
    }

    /// The first rule that one of the last lines fulfils, most recent line first.
    fn limit(&self) -> Option<(&TextLimit, &String)> {
        self.last.iter().rev().find_map(|line| {
            let lower = line.to_lowercase();
            let rule = self.rules.iter().find(|rule| lower.contains(&rule.says.to_lowercase()))?;
            Some((rule, line))
        })
    }
}

impl Parse for CommandParser {
    fn out(&mut self, line: &str, sink: &mut EventSink<'_>) {
        if self.form == Form::Silent {
            let ours = line.starts_with('{') && serde_json::from_str::<AgentEvent>(line).is_ok();
            self.form = if ours { Form::Native } else { Form::Plain };
        }
        match self.form {
            Form::Native => native::NativeParser.out(line, sink),
            Form::Silent | Form::Plain => self.keep(line),
        }
    }

    fn err(&mut self, line: &str, _sink: &mut EventSink<'_>) {
        self.keep(line);
    }

    fn end(&mut self, end: &ProcessEnd<'_>, sink: &mut EventSink<'_>) {
        if self.is_native() {
            return native::NativeParser.end(end, sink);
        }
        let Some((rule, line)) = self.limit().filter(|_| !end.is_zero()) else { return };
        let reset_at = reset::told(line, sink.now, sink.zone.as_ref());
        let limit = VendorLimit { rule: "command.text".to_owned(), class: rule.class, reset_at, text: line.clone() };
        let text = line.clone();
        sink.say(AgentEvent::Limit(limit));
        sink.result(false, &text);
    }
}

#[cfg(test)]
mod tests {
    use everloop_core::spec::{AgentKind, AgentSpec};
    use everloop_core::stream::LimitClass;
    use everloop_core::time::Time;

    use super::super::Reader;
    use super::*;

    fn limits(out: &str, code: i32) -> Vec<(LimitClass, Option<Time>)> {
        let rule = |class, says: &str| TextLimit { says: says.to_owned(), class };
        let rules = vec![rule(LimitClass::Rate, "RateLimitError"), rule(LimitClass::Auth, "AuthenticationError")];
        let agent = AgentSpec { kind: AgentKind::Command, limit_rules: rules, ..AgentSpec::default() };
        let mut reader = Reader::for_agent(&agent, false);
        let mut all = Vec::new();
        let mut take = |said| {
            if let AgentEvent::Limit(limit) = said {
                all.push((limit.class, limit.reset_at));
            }
        };
        reader.out(out.as_bytes(), Time(0), &mut take);
        reader.end(&ProcessEnd { code: Some(code), signal: None, now: Time(0), env: &[] }, &mut take);
        all
    }

    #[test]
    fn the_last_words_of_a_failed_command_may_be_a_limit() {
        let limited = "working\nlitellm.RateLimitError: slow down, try again in 20s\n";
        assert_eq!(limits(limited, 1), [(LimitClass::Rate, Some(Time(20_000)))]);
        assert_eq!(limits(limited, 0), [], "it went on and ended well");
        assert_eq!(limits("litellm.authenticationerror: no key\n", 1), [(LimitClass::Auth, None)]);
        let long_ago = format!("RateLimitError\n{}", "line\n".repeat(LINES_KEPT));
        assert_eq!(limits(&long_ago, 1), [], "it was overcome long before the end");
        assert_eq!(limits("anything else\n", 1), []);
    }
}
