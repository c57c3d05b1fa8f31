//! The telemetry of agent CLIs, as OTLP in JSON. Measured with Claude Code 2.1.325.
//!
//! Only names and figures are read, never contents: everloop does not enable any, and what arrives
//! nevertheless is not kept.

use everloop_core::stream::Usage;
use everloop_core::telemetry::{Counter, Point, TelemetrySum, Temporality};
use serde::Deserialize;
use serde_json::Value;

use super::record::fingerprint;

/// Tokens by type; each is a counter of its own.
const TOKENS: &str = "claude_code.token.usage";
const COST: &str = "claude_code.cost.usage";
/// The prefix of every event's full name.
const PREFIX: &str = "claude_code.";

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metrics {
    resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResourceMetrics {
    scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ScopeMetrics {
    metrics: Vec<Metric>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metric {
    name: String,
    sum: Option<Sum>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Sum {
    aggregation_temporality: Value,
    data_points: Vec<DataPoint>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DataPoint {
    attributes: Vec<Attribute>,
    start_time_unix_nano: Value,
    time_unix_nano: Value,
    as_double: Value,
    as_int: Value,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Logs {
    resource_logs: Vec<ResourceLogs>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResourceLogs {
    scope_logs: Vec<ScopeLogs>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ScopeLogs {
    log_records: Vec<LogRecord>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LogRecord {
    time_unix_nano: Value,
    event_name: String,
    attributes: Vec<Attribute>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Attribute {
    key: String,
    value: Any,
}

/// The value types of a figure or a name; others are ignored.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Any {
    #[serde(rename = "stringValue")]
    text: Option<String>,
    #[serde(rename = "intValue")]
    int: Value,
    #[serde(rename = "doubleValue")]
    double: Value,
}

impl Any {
    fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    fn number(&self) -> Option<f64> {
        let text = || self.text.as_ref().and_then(|text| text.parse().ok());
        number(&self.int).or_else(|| number(&self.double)).or_else(text)
    }
}

/// Counters of a program. Returns an error if the body is not OTLP in JSON; unknown metrics are
/// counted.
pub fn metrics(body: &[u8], heard: &mut TelemetrySum) -> Result<(), serde_json::Error> {
    let sent: Metrics = serde_json::from_slice(body)?;
    let scopes = sent.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
    for metric in scopes.flat_map(|scope| scope.metrics) {
        let Some(sum) = metric.sum.filter(|_| metric.name == TOKENS || metric.name == COST) else {
            heard.unknown();
            continue;
        };
        // The numbers 1 and 2, or their names.
        let temporality = match &sum.aggregation_temporality {
            Value::String(name) if name.ends_with("CUMULATIVE") => Temporality::Cumulative,
            Value::Number(n) if n.as_u64() == Some(2) => Temporality::Cumulative,
            _ => Temporality::Delta,
        };
        for data in &sum.data_points {
            match point(&metric.name, temporality, data) {
                Some(point) => heard.point(&point),
                None => heard.unknown(),
            }
        }
    }
    Ok(())
}

fn point(metric: &str, temporality: Temporality, data: &DataPoint) -> Option<Point> {
    let value = number(&data.as_double).or_else(|| number(&data.as_int))?;
    let counter = if metric == COST {
        Counter::Microusd
    } else {
        match attribute(&data.attributes, "type").and_then(Any::text)? {
            "input" => Counter::Input,
            "output" => Counter::Output,
            "cacheRead" => Counter::CacheRead,
            "cacheCreation" => Counter::CacheWrite,
            _ => return None,
        }
    };
    let mut named: Vec<String> =
        data.attributes.iter().map(|a| format!("{}={}", a.key, a.value.text().unwrap_or_default())).collect();
    named.sort();
    Some(Point {
        counter,
        series: fingerprint(metric, &Value::from(named)),
        temporality,
        began: nanos(&data.start_time_unix_nano),
        at: nanos(&data.time_unix_nano),
        value: whole(if counter == Counter::Microusd { value * 1e6 } else { value }),
    })
}

/// Events of a program, as [`metrics`] for counters.
pub fn logs(body: &[u8], heard: &mut TelemetrySum) -> Result<(), serde_json::Error> {
    let sent: Logs = serde_json::from_slice(body)?;
    let scopes = sent.resource_logs.into_iter().flat_map(|resource| resource.scope_logs);
    for record in scopes.flat_map(|scope| scope.log_records) {
        let named = attribute(&record.attributes, "event.name").and_then(Any::text).unwrap_or(&record.event_name);
        match named.strip_prefix(PREFIX).unwrap_or(named) {
            "api_request" => heard.request(identity(&record), used(&record.attributes)),
            "api_error" => heard.error(),
            _ => heard.unknown(),
        }
    }
    Ok(())
}

fn used(attributes: &[Attribute]) -> Usage {
    let figure = |name| attribute(attributes, name).and_then(Any::number);
    let tokens = |name| figure(name).map_or(0, whole);
    Usage {
        input: tokens("input_tokens"),
        output: tokens("output_tokens"),
        cache_read: tokens("cache_read_tokens"),
        cache_write: tokens("cache_creation_tokens"),
        microusd: figure("cost_usd").map(|usd| whole(usd * 1e6)),
    }
}

/// The same event sent twice has the same id.
fn identity(record: &LogRecord) -> u64 {
    let words: Vec<String> = ["session.id", "event.sequence", "request_id"]
        .iter()
        .filter_map(|name| attribute(&record.attributes, name))
        .map(|value| value.text().map_or_else(|| format!("{:?}", value.number()), str::to_owned))
        .chain([nanos(&record.time_unix_nano).to_string()])
        .collect();
    fingerprint("request", &Value::from(words))
}

fn attribute<'a>(attributes: &'a [Attribute], name: &str) -> Option<&'a Any> {
    attributes.iter().find(|a| a.key == name).map(|a| &a.value)
}

/// A number, also one in quotes, as JSON carries large ones.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(n) => n.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn nanos(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.parse().unwrap_or(0),
        other => other.as_u64().unwrap_or(0),
    }
}

/// Negative values and NaN become zero.
fn whole(value: f64) -> u64 {
    value.round() as u64
}
