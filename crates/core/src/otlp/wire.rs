//! The documents of OTLP, as JSON. Nothing here knows what a loop is.

use serde_json::{Value as Json, json};

use crate::time::Time;

use super::TelemetrySums;

/// The version of the conventions that names of attributes follow.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.37.0";
/// TelemetrySums since a time, not since the last document.
const CUMULATIVE: u32 = 2;
const STATUS_ERROR: u32 = 2;

/// The sender of all documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpSender {
    pub version: String,
    /// The node: one of many with the same service.
    pub instance: String,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub struct AttributeValue(Json);

impl AttributeValue {
    /// An attribute that is a text.
    pub fn text(text: &str) -> Self {
        Self(json!({ "stringValue": text }))
    }

    /// A number; 64 bits are text in OTLP's JSON.
    pub fn count(count: u64) -> Self {
        Self(json!({ "intValue": count.to_string() }))
    }
}

/// Whether the work of a span is done here or elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanPlace {
    Internal,
    Client,
}

/// A span that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSpan {
    pub name: String,
    pub kind: SpanPlace,
    trace: String,
    own: String,
    parent: Option<String>,
    time: (Time, Time),
    attributes: Vec<(String, AttributeValue)>,
    error: Option<String>,
}

impl TraceSpan {
    /// A span by the names of its trace and of itself.
    pub fn new((trace, own): (&str, &str), name: &str, time: (Time, Time)) -> Self {
        Self {
            name: name.to_owned(),
            kind: SpanPlace::Internal,
            trace: trace.to_owned(),
            own: own.to_owned(),
            parent: None,
            time,
            attributes: Vec::new(),
            error: None,
        }
    }

    /// Puts it under the span with this name.
    pub fn under(&mut self, parent: &str) {
        self.parent = Some(parent.to_owned());
    }

    /// Adds an attribute.
    pub fn add(&mut self, name: &str, value: AttributeValue) {
        self.attributes.push((name.to_owned(), value));
    }

    /// Marks what the span is about as failed.
    pub fn failed(&mut self, why: String) {
        self.error = Some(why);
    }

    /// Names are unique in a state folder only, so ids are made of the node's name, too.
    fn document(&self, sender: &OtlpSender) -> Json {
        let id = |name: &str| format!("{:016x}", digest(1, &sender.instance, name));
        let trace = format!(
            "{:016x}{:016x}",
            digest(2, &sender.instance, &self.trace),
            digest(3, &sender.instance, &self.trace)
        );
        let kind = match self.kind {
            SpanPlace::Internal => 1,
            SpanPlace::Client => 3,
        };
        let mut span = json!({
            "traceId": trace,
            "spanId": id(&self.own),
            "name": self.name,
            "kind": kind,
            "startTimeUnixNano": nanos(self.time.0),
            "endTimeUnixNano": nanos(self.time.1.max(self.time.0)),
            "attributes": attributes(&self.attributes),
            "status": {},
        });
        if let Some(parent) = &self.parent {
            span["parentSpanId"] = json!(id(parent));
        }
        if let Some(why) = &self.error {
            span["status"] = json!({ "code": STATUS_ERROR, "message": why });
        }
        span
    }
}

/// How much a log record matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSeverity {
    Info,
    Warn,
    Error,
}

/// A log record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpLogLine {
    pub at: Time,
    pub severity: LogSeverity,
    pub text: String,
    pub owner: Option<String>,
    pub seq: u64,
}

impl OtlpLogLine {
    fn document(&self) -> Json {
        let (number, text) = match self.severity {
            LogSeverity::Info => (9, "INFO"),
            LogSeverity::Warn => (13, "WARN"),
            LogSeverity::Error => (17, "ERROR"),
        };
        let mut about = vec![("everloop.journal.seq".to_owned(), AttributeValue::count(self.seq))];
        about.extend(self.owner.iter().map(|id| ("everloop.loop.id".to_owned(), AttributeValue::text(id))));
        json!({
            "timeUnixNano": nanos(self.at),
            "severityNumber": number,
            "severityText": text,
            "body": { "stringValue": self.text },
            "attributes": attributes(&about),
        })
    }
}

/// The body for `/v1/traces`.
pub fn traces(spans: &[TraceSpan], sender: &OtlpSender) -> Json {
    let spans: Vec<Json> = spans.iter().map(|span| span.document(sender)).collect();
    json!({ "resourceSpans": [{
        "resource": resource(sender),
        "scopeSpans": [{ "scope": scope(sender), "spans": spans, "schemaUrl": SCHEMA_URL }],
    }]})
}

/// The body for `/v1/logs`.
pub fn logs(lines: &[OtlpLogLine], sender: &OtlpSender) -> Json {
    let lines: Vec<Json> = lines.iter().map(OtlpLogLine::document).collect();
    json!({ "resourceLogs": [{
        "resource": resource(sender),
        "scopeLogs": [{ "scope": scope(sender), "logRecords": lines, "schemaUrl": SCHEMA_URL }],
    }]})
}

/// The body for `/v1/metrics`.
pub fn metrics(sums: &TelemetrySums, (since, now): (Time, Time), sender: &OtlpSender) -> Json {
    let point = |key: &str, name: &str, value: u64| {
        let known = if name.is_empty() { Vec::new() } else { vec![(key.to_owned(), AttributeValue::text(name))] };
        json!({
            "attributes": attributes(&known),
            "startTimeUnixNano": nanos(since),
            "timeUnixNano": nanos(now),
            "asInt": value.to_string(),
        })
    };
    let sum = |name: &str, unit: &str, points: Vec<Json>| {
        let data = json!({ "aggregationTemporality": CUMULATIVE, "isMonotonic": true, "dataPoints": points });
        json!({ "name": name, "unit": unit, "sum": data })
    };
    let turns = sums.turns.iter().map(|(outcome, n)| point("everloop.outcome", outcome, *n)).collect();
    let tokens = sums.tokens.iter().map(|(kind, n)| point("gen_ai.token.type", kind, *n)).collect();
    let all = [
        sum("everloop.turns", "{turn}", turns),
        sum("everloop.tokens", "{token}", tokens),
        sum("everloop.cost", "{microusd}", vec![point("", "", sums.microusd)]),
        sum("everloop.tickets", "{ticket}", vec![point("", "", sums.tickets)]),
        sum("everloop.holds", "{hold}", vec![point("", "", sums.holds)]),
    ];
    json!({ "resourceMetrics": [{
        "resource": resource(sender),
        "scopeMetrics": [{ "scope": scope(sender), "metrics": all, "schemaUrl": SCHEMA_URL }],
    }]})
}

fn resource(sender: &OtlpSender) -> Json {
    let about = [
        ("service.name".to_owned(), AttributeValue::text("everloop")),
        ("service.version".to_owned(), AttributeValue::text(&sender.version)),
        ("service.instance.id".to_owned(), AttributeValue::text(&sender.instance)),
    ];
    json!({ "attributes": attributes(&about) })
}

fn scope(sender: &OtlpSender) -> Json {
    json!({ "name": "everloop", "version": sender.version })
}

fn attributes(all: &[(String, AttributeValue)]) -> Json {
    all.iter().map(|(key, AttributeValue(value))| json!({ "key": key, "value": value })).collect()
}

/// Numbers of 64 bits are text in OTLP's JSON.
fn nanos(at: Time) -> String {
    (i128::from(at.0) * 1_000_000).to_string()
}

/// FNV-1a: ids have to differ and to be the same again, not to be secret. Zero is no valid id.
fn digest(seed: u8, instance: &str, name: &str) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let bytes = [seed].into_iter().chain(instance.bytes()).chain([0]).chain(name.bytes());
    bytes.fold(BASIS, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(PRIME)).max(1)
}
