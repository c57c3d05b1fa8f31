//! What a collector of OpenTelemetry gets: spans, figures and log records, made from the journal as
//! OTLP in JSON. Pure: sending and keeping the state are elsewhere.
//!
//! - here: the fold of the journal; a span is made when what it is about is over
//! - [`wire`]: the documents of OTLP
//!
//! Ids follow from the names of loops and turns, so what is sent again after a crash has the same
//! ids. Texts of agents never leave; of tickets and notes the text leaves as it is in the journal.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::{Event, Exit, Integrated, LoopEnd, Outcome};
use crate::ids::{LoopId, TurnId};
use crate::journal::JournalRecord;
use crate::state::LoopState;
use crate::time::Time;
use wire::{AttributeValue, LogSeverity, OtlpLogLine, SpanPlace, TraceSpan};

pub mod wire;

/// Most turns that are open at once; the end of one may never be journaled.
const OPEN_MAX: usize = 10_000;

/// The fold of the journal up to a record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OtlpState {
    /// The last record that is in it.
    pub after: u64,
    /// Since when the sums are counted.
    pub since: Time,
    pub sums: TelemetrySums,
    turns: BTreeMap<TurnId, OpenTurn>,
    loops: BTreeMap<LoopId, OpenLoop>,
}

/// What only grows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TelemetrySums {
    /// Turns by outcome.
    pub turns: BTreeMap<String, u64>,
    /// Tokens by type.
    pub tokens: BTreeMap<String, u64>,
    /// Millionths of a dollar.
    pub microusd: u64,
    pub tickets: u64,
    pub holds: u64,
}

/// A loop that is not over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct OpenLoop {
    name: String,
    from: Time,
    turns: u64,
}

/// A turn that is not over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct OpenTurn {
    owner: Option<LoopId>,
    number: u32,
    agent: String,
    account: String,
    from: Time,
    exited: Option<Time>,
    judged: Option<Time>,
}

/// What a step of the fold gives to a collector.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OtlpBatch {
    pub spans: Vec<TraceSpan>,
    pub logs: Vec<OtlpLogLine>,
}

impl OtlpState {
    /// A state that begins after this record, with the loops of that moment.
    pub fn beginning(after: u64, now: Time, loops: &[LoopState]) -> Self {
        let open = |state: &LoopState| {
            let turns = u64::from(state.task.turns);
            (state.id.clone(), OpenLoop { name: state.name.clone(), from: state.created_at, turns })
        };
        let loops = loops.iter().filter(|state| !state.is_over()).map(open).collect();
        Self { after, since: now, loops, ..Self::default() }
    }

    /// Takes the next record.
    pub fn take(&mut self, record: &JournalRecord, batch: &mut OtlpBatch) {
        self.after = record.seq;
        if let Some(line) = log_line(record) {
            batch.logs.push(line);
        }
        match &record.event {
            Event::LoopCreated { name, .. } => {
                let known = record.owner.clone().map(|id| (id, OpenLoop::new(name, record.at)));
                self.loops.extend(known);
            }
            Event::TurnStarted { turn, number, agent, account, .. } if self.turns.len() < OPEN_MAX => {
                let (owner, number, from) = (record.owner.clone(), *number, record.at);
                let (agent, account) = (agent.clone(), account.clone());
                let open = OpenTurn { owner, number, agent, account, from, exited: None, judged: None };
                self.turns.insert(turn.clone(), open);
            }
            Event::TurnExited { turn, exit } => self.exited(turn, exit, record.at, batch),
            Event::TurnJudged { turn, .. } => {
                let Some(open) = self.turns.get_mut(turn) else { return };
                open.judged = Some(record.at);
                let from = open.exited.unwrap_or(open.from);
                let span = open.part(turn, "checks", (from, record.at));
                batch.spans.push(span);
            }
            Event::TurnEnded { turn, outcome, integrated, settled, .. } => {
                self.sums.microusd = self.sums.microusd.saturating_add(settled.spend.microusd);
                self.ended(turn, (outcome, integrated.as_ref()), record.at, batch);
            }
            Event::TicketOpened { .. } => self.sums.tickets += 1,
            Event::Cooldown { .. } | Event::Frozen { .. } | Event::Limited { .. } => self.sums.holds += 1,
            Event::Ended { ending } => self.over(record, ending, batch),
            _ => {}
        }
    }

    fn exited(&mut self, turn: &TurnId, exit: &Exit, at: Time, batch: &mut OtlpBatch) {
        let Some(open) = self.turns.get_mut(turn) else { return };
        open.exited = Some(at);
        let mut span = open.part(turn, "invoke_agent", (open.from, at));
        span.kind = SpanPlace::Client;
        span.add("gen_ai.operation.name", AttributeValue::text("invoke_agent"));
        span.add("gen_ai.agent.name", AttributeValue::text(&open.agent));
        if let Some(report) = &exit.report {
            let used = report.used;
            for (name, value) in [("gen_ai.response.model", &report.model), ("gen_ai.conversation.id", &report.session)]
            {
                if let Some(text) = value {
                    span.add(name, AttributeValue::text(text));
                }
            }
            // The conventions count what was read from a cache as input, too.
            let input = used.input.saturating_add(used.cache_read).saturating_add(used.cache_write);
            span.add("gen_ai.usage.input_tokens", AttributeValue::count(input));
            span.add("gen_ai.usage.output_tokens", AttributeValue::count(used.output));
            let parts = [
                ("input", used.input),
                ("output", used.output),
                ("cache_read", used.cache_read),
                ("cache_write", used.cache_write),
            ];
            for (kind, tokens) in parts {
                *self.sums.tokens.entry(kind.to_owned()).or_default() += tokens;
            }
        }
        if !exit.ok() {
            span.failed(exit.describe());
        }
        batch.spans.push(span);
    }

    fn ended(
        &mut self,
        turn: &TurnId,
        (outcome, integrated): (&Outcome, Option<&Integrated>),
        at: Time,
        batch: &mut OtlpBatch,
    ) {
        *self.sums.turns.entry(outcome.label().to_owned()).or_default() += 1;
        let Some(open) = self.turns.remove(turn) else { return };
        if let Some(how) = integrated {
            let mut span = open.part(turn, "land", (open.judged.or(open.exited).unwrap_or(open.from), at));
            let commit = match how {
                Integrated::Landed { commit } | Integrated::Aside { commit, .. } => Some(commit),
                Integrated::InPlace => None,
            };
            if let Some(commit) = commit {
                span.add("everloop.commit", AttributeValue::text(commit));
            }
            batch.spans.push(span);
        }
        let trace = open.trace(turn);
        let mut span = TraceSpan::new((&trace, turn.as_str()), "turn", (open.from, at));
        if let Some(owner) = &open.owner {
            span.under(owner.as_str());
            span.add("everloop.loop.id", AttributeValue::text(owner.as_str()));
            if let Some(known) = self.loops.get_mut(owner) {
                known.turns += 1;
                span.add("everloop.loop.name", AttributeValue::text(&known.name));
            }
        }
        span.add("everloop.turn.id", AttributeValue::text(turn.as_str()));
        span.add("everloop.turn.number", AttributeValue::count(u64::from(open.number)));
        span.add("everloop.outcome", AttributeValue::text(outcome.label()));
        span.add("everloop.agent", AttributeValue::text(&open.agent));
        span.add("everloop.account", AttributeValue::text(&open.account));
        match outcome {
            Outcome::AgentFailed { why, .. } | Outcome::TaskFailed { why } => span.failed(why.clone()),
            _ => {}
        }
        batch.spans.push(span);
    }

    fn over(&mut self, record: &JournalRecord, ending: &LoopEnd, batch: &mut OtlpBatch) {
        let Some(owner) = &record.owner else { return };
        let open = self.loops.remove(owner).unwrap_or_else(|| OpenLoop::new(owner.as_str(), record.at));
        let mut span = TraceSpan::new((owner.as_str(), owner.as_str()), "loop", (open.from, record.at));
        span.add("everloop.loop.id", AttributeValue::text(owner.as_str()));
        span.add("everloop.loop.name", AttributeValue::text(&open.name));
        span.add("everloop.loop.turns", AttributeValue::count(open.turns));
        match ending {
            LoopEnd::Reached => span.add("everloop.ending", AttributeValue::text("reached")),
            LoopEnd::Exhausted { bound } => {
                span.add("everloop.ending", AttributeValue::text(&format!("{bound} used up")));
            }
            LoopEnd::Stopped { .. } => span.add("everloop.ending", AttributeValue::text("stopped")),
            LoopEnd::Failed { why } => span.failed(why.clone()),
        }
        batch.spans.push(span);
    }
}

impl OpenLoop {
    fn new(name: &str, from: Time) -> Self {
        Self { name: name.to_owned(), from, turns: 0 }
    }
}

impl OpenTurn {
    /// All turns of a loop are one trace.
    fn trace(&self, turn: &TurnId) -> String {
        self.owner.as_ref().map_or_else(|| turn.to_string(), ToString::to_string)
    }

    fn part(&self, turn: &TurnId, name: &str, time: (Time, Time)) -> TraceSpan {
        let own = format!("{turn}/{name}");
        let mut span = TraceSpan::new((&self.trace(turn), &own), name, time);
        span.under(turn.as_str());
        span.add("everloop.turn.id", AttributeValue::text(turn.as_str()));
        span
    }
}

/// The log record of a journal record; most need none, because spans and figures show them.
fn log_line(record: &JournalRecord) -> Option<OtlpLogLine> {
    let (severity, text) = match &record.event {
        Event::LoopCreated { name, .. } => (LogSeverity::Info, format!("loop {name} was made")),
        Event::Ended { ending: LoopEnd::Failed { why } } => (LogSeverity::Error, format!("the loop ended: {why}")),
        Event::Ended { .. } => (LogSeverity::Info, "the loop ended".to_owned()),
        Event::TicketOpened { key, text } => (LogSeverity::Warn, format!("ticket {key}: {text}")),
        Event::TicketClosed { key } => (LogSeverity::Info, format!("ticket {key} is closed")),
        Event::Cooldown { level, .. } => (LogSeverity::Warn, format!("Frosty cools down (level {level})")),
        Event::Frozen { .. } => (LogSeverity::Error, "Really Chill Willy holds everything in this scope".to_owned()),
        Event::Released { by, .. } => (LogSeverity::Info, format!("the hold is over: {by}")),
        Event::Limited { limit, .. } => (LogSeverity::Warn, format!("limit: {}", limit.class)),
        Event::Note { text } => (LogSeverity::Info, text.clone()),
        _ => return None,
    };
    Some(OtlpLogLine {
        at: record.at,
        severity,
        text,
        owner: record.owner.as_ref().map(ToString::to_string),
        seq: record.seq,
    })
}

#[cfg(test)]
mod tests;
