//! Parses an agent's output as it arrives: chunks of bytes of any size go in, [`AgentEvent`] comes
//! out.

use std::time::Duration;

use everloop_core::spec::{AgentKind, AgentSpec};
use everloop_core::stream::{AgentEvent, LimitClass, Usage, VendorLimit};
use everloop_core::time::Time;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::limits::{self, VendorRefusal};
use super::lines::{Lines, OutputLine};
use super::{claude, codex, command, copilot, gemini, native, opencode, record, reset};

/// How an agent's process ended.
#[derive(Clone, Copy, Debug)]
pub struct ProcessEnd<'a> {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub now: Time,
    /// Its environment, of which `HOME`, `CODEX_HOME` and `TZ` are read.
    pub env: &'a [(String, String)],
}

impl<'a> ProcessEnd<'a> {
    /// It exited by itself and reported success.
    pub(super) fn is_zero(&self) -> bool {
        self.code == Some(0) && self.signal.is_none()
    }

    pub(super) fn var(&self, name: &str) -> Option<&'a str> {
        self.env.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.as_str())
    }

    /// The time zone in which its program writes times; `None` when unknown.
    fn zone(&self) -> Option<TimeZone> {
        zone_of(self.var("TZ"))
    }

    pub(super) fn describe(&self) -> String {
        match (self.code, self.signal) {
            (_, Some(signal)) => format!("ended by signal {signal}"),
            (Some(code), None) => format!("exit code {code}"),
            (None, None) => "ended in an unknown way".to_owned(),
        }
    }
}

/// What is known of a turn before its program reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsaid {
    /// Usage that no record has reported as a sum yet.
    pub used: Usage,
    pub model: Option<String>,
}

/// The time zone of a program by its variable `TZ`; `None` when unknown.
pub(crate) fn zone_of(name: Option<&str>) -> Option<TimeZone> {
    match name {
        Some(name) => TimeZone::get(name.trim_start_matches(':')).or_else(|_| TimeZone::posix(name)).ok(),
        None => Some(TimeZone::system()),
    }
}

/// Interprets the output of one program. Must not panic on any input and must not grow with it.
pub(super) trait Parse: Send {
    /// A line of standard output.
    fn out(&mut self, line: &str, sink: &mut EventSink<'_>);

    /// A line of standard error.
    fn err(&mut self, _line: &str, _sink: &mut EventSink<'_>) {}

    /// What is known before the program reports it. `at` is the present.
    fn unsaid(&mut self, _at: &ProcessEnd<'_>) -> Unsaid {
        Unsaid::default()
    }

    /// The process has ended.
    fn end(&mut self, _end: &ProcessEnd<'_>, _sink: &mut EventSink<'_>) {}
}

/// Where parsers put their records.
pub(super) struct EventSink<'a> {
    /// When the line was read.
    pub now: Time,
    /// The time zone in which the program writes times.
    pub zone: Option<TimeZone>,
    memory: &'a mut Memory,
    take: &'a mut dyn FnMut(AgentEvent),
}

/// What the reader remembers of earlier records.
#[derive(Debug, Default)]
struct Memory {
    /// The limit in force.
    last_limit: Option<VendorLimit>,
    result: Option<bool>,
    session_lost: bool,
    /// The last line on standard error.
    complaint: Option<String>,
}

impl EventSink<'_> {
    pub(super) fn say(&mut self, said: AgentEvent) {
        match &said {
            AgentEvent::Result { ok, .. } => self.memory.result = Some(*ok),
            AgentEvent::SessionLost if std::mem::replace(&mut self.memory.session_lost, true) => return,
            AgentEvent::Limit(limit) => {
                if self.memory.last_limit.as_ref().is_some_and(|known| tells_nothing_new(known, limit)) {
                    return;
                }
                self.memory.last_limit = Some(limit.clone());
            }
            // New output means that the vendor serves again; a later refusal is a new one.
            AgentEvent::Text { .. } | AgentEvent::ToolStarted { .. } => self.memory.last_limit = None,
            _ => {}
        }
        (self.take)(said);
    }

    /// Reports the limit that a refusal stands for, if any.
    pub(super) fn refused(&mut self, refusal: &VendorRefusal<'_>) -> Option<VendorLimit> {
        let limit = limits::limit(refusal, self.now, self.zone.as_ref())?;
        self.say(AgentEvent::Limit(limit.clone()));
        Some(limit)
    }

    /// Reports the CLI's own sentence about a failure.
    pub(super) fn failed(&mut self, text: &str, request_id: Option<&str>) {
        let request_id = request_id.filter(|id| !id.is_empty()).map(record::name);
        let text = record::saying(text);
        if request_id.is_some() || !text.is_empty() {
            self.say(AgentEvent::Failed { text, request_id });
        }
    }

    /// Reports that the CLI itself retries a request.
    pub(super) fn retrying(&mut self, attempt: u32, delay_ms: Option<u64>, class: Option<LimitClass>, text: &str) {
        let until = delay_ms.and_then(|ms| reset::sane(self.now + Duration::from_millis(ms), self.now));
        self.say(AgentEvent::Retrying { attempt, delay_ms, class, until, text: record::saying(text) });
    }

    /// Reports text of the model.
    pub(super) fn text(&mut self, text: &str) {
        let text = record::words(text);
        if !text.is_empty() {
            self.say(AgentEvent::Text { text });
        }
    }

    pub(super) fn result(&mut self, ok: bool, text: &str) {
        self.say(AgentEvent::Result { ok, text: record::words(text) });
    }

    pub(super) fn unknown(&mut self) {
        self.say(AgentEvent::Unknown);
    }

    /// Whether the last result was a success.
    pub(super) fn last_result(&self) -> Option<bool> {
        self.memory.result
    }
}

/// CLIs write one refusal into several records, the later ones with times cut to the minute.
fn tells_nothing_new(known: &VendorLimit, limit: &VendorLimit) -> bool {
    let same_time = match (known.reset_at, limit.reset_at) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(a), Some(b)) => a.since(b).max(b.since(a)) <= Duration::from_secs(60),
    };
    known.class == limit.class && same_time
}

/// Reads the output of one turn.
pub struct Reader {
    parser: Box<dyn Parse>,
    out: Lines,
    err: Lines,
    memory: Memory,
}

impl Reader {
    /// A reader for this kind of agent. Some programs count differently when a session was resumed.
    pub fn new(kind: AgentKind, resumed: bool) -> Self {
        let parser: Box<dyn Parse> = match kind {
            AgentKind::Command => Box::new(command::CommandParser::default()),
            AgentKind::Claude => Box::new(claude::ClaudeParser::new(resumed)),
            AgentKind::Codex => Box::new(codex::CodexParser::new(resumed)),
            AgentKind::Gemini => Box::new(gemini::GeminiParser::default()),
            AgentKind::Opencode => Box::new(opencode::OpencodeParser::default()),
            AgentKind::Copilot => Box::new(copilot::CopilotParser::default()),
            AgentKind::Api | AgentKind::Acp => Box::new(native::NativeParser),
            AgentKind::Pane => Box::new(native::PaneParser::default()),
        };
        Self { parser, out: Lines::default(), err: Lines::default(), memory: Memory::default() }
    }

    /// A reader for an agent as it is configured.
    pub fn for_agent(agent: &AgentSpec, resumed: bool) -> Self {
        let mut reader = Self::new(agent.stream_kind(), resumed);
        if agent.stream_kind() == AgentKind::Command && !agent.limit_rules.is_empty() {
            reader.parser = Box::new(command::CommandParser::with_rules(agent.limit_rules.clone()));
        }
        reader
    }

    /// Takes a chunk of standard output.
    pub fn out(&mut self, bytes: &[u8], now: Time, take: &mut dyn FnMut(AgentEvent)) {
        let Self { parser, out, memory, .. } = self;
        let mut sink = EventSink { now, zone: Some(TimeZone::system()), memory, take };
        out.feed(bytes, |line| read_out(parser.as_mut(), &line, &mut sink));
    }

    /// Takes a chunk of standard error.
    pub fn err(&mut self, bytes: &[u8], now: Time, take: &mut dyn FnMut(AgentEvent)) {
        let Self { parser, err, memory, .. } = self;
        let mut sink = EventSink { now, zone: Some(TimeZone::system()), memory, take };
        err.feed(bytes, |line| read_err(parser.as_mut(), &line, &mut sink));
    }

    /// What is known so far and not reported yet.
    pub fn unsaid(&mut self, now: Time, env: &[(String, String)]) -> Unsaid {
        self.parser.unsaid(&ProcessEnd { code: None, signal: None, now, env })
    }

    /// Bytes of standard output were dropped before the next chunk.
    pub fn gap(&mut self) {
        self.out.gap();
    }

    /// Bytes of standard error were dropped before the next chunk.
    pub fn gap_err(&mut self) {
        self.err.gap();
    }

    /// The process has ended and all output was fed. A success counts only with a clean exit.
    pub fn end(&mut self, end: &ProcessEnd<'_>, take: &mut dyn FnMut(AgentEvent)) {
        let Self { parser, out, err, memory } = self;
        let mut sink = EventSink { now: end.now, zone: end.zone(), memory, take };
        out.finish(|line| read_out(parser.as_mut(), &line, &mut sink));
        err.finish(|line| read_err(parser.as_mut(), &line, &mut sink));
        parser.end(end, &mut sink);
        // A program that fails before its first record says why on standard error.
        if sink.last_result().is_none()
            && end.code.is_some_and(|code| code != 0)
            && let Some(line) = sink.memory.complaint.take()
        {
            sink.failed(&line, None);
        }
        if sink.last_result() == Some(true) && !end.is_zero() {
            sink.result(false, &format!("{} after it had reported success", end.describe()));
        }
    }

    /// Bytes that are held while a line is incomplete.
    pub fn held_bytes(&self) -> usize {
        self.out.held() + self.err.held()
    }
}

fn read_out(parser: &mut dyn Parse, line: &OutputLine<'_>, sink: &mut EventSink<'_>) {
    match line {
        OutputLine::Whole([]) => {}
        OutputLine::Whole(bytes) => parser.out(&String::from_utf8_lossy(bytes), sink),
        OutputLine::TooLong => sink.unknown(),
    }
}

/// Standard error is free text: lines without a meaning are not counted.
fn read_err(parser: &mut dyn Parse, line: &OutputLine<'_>, sink: &mut EventSink<'_>) {
    if let OutputLine::Whole(bytes) = line
        && !bytes.is_empty()
    {
        let line = String::from_utf8_lossy(bytes);
        parser.err(&line, sink);
        // `Reading the prompt...` is what it does, not what went wrong.
        if !line.ends_with("...") {
            sink.memory.complaint = Some(record::saying(&line));
        }
    }
}

/// Parses a line that is a JSON object.
pub(super) fn object(line: &str) -> Option<Value> {
    // Cheaper than an error from the parser, for programs that print plain lines.
    if !line.starts_with('{') {
        return None;
    }
    serde_json::from_str::<Value>(line).ok().filter(Value::is_object)
}
