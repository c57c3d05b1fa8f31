//! Telemetry as Claude Code 2.1.325 sent it for one turn of three requests (and, at the end of the
//! events, one that failed in another turn), and what others could send.

use everloop_agents::agent::otlp;
use everloop_core::stream::Usage;
use everloop_core::telemetry::TelemetrySum;
use serde_json::{Value, json};

const LOGS: &str = include_str!("fixtures/claude-otlp-logs.json");
const METRICS: &str = include_str!("fixtures/claude-otlp-metrics.json");

/// The usage in the `result` of the same turn's stream.
const USED: Usage = Usage { input: 33, output: 21, cache_read: 3000, cache_write: 300, microusd: Some(2652) };

fn counters(bodies: &[&str]) -> TelemetrySum {
    let mut heard = TelemetrySum::default();
    for body in bodies {
        otlp::metrics(body.as_bytes(), &mut heard).expect("it is OTLP");
    }
    heard
}

#[test]
fn events_counters_and_the_stream_say_the_same() {
    let mut events = TelemetrySum::default();
    otlp::logs(LOGS.as_bytes(), &mut events).expect("it is OTLP");
    assert_eq!(events.used(), Some(USED));
    assert_eq!((events.requests(), events.errors(), events.unknowns()), (3, 1, 1));
    let counted = counters(&[METRICS]);
    assert_eq!(counted.used(), Some(USED));
    assert_eq!(counted.unknowns(), 4, "sessions, lines, decisions, time");
}

#[test]
fn what_is_sent_twice_counts_once() {
    let mut heard = counters(&[METRICS, METRICS]);
    for _ in 0..2 {
        otlp::logs(LOGS.as_bytes(), &mut heard).expect("it is OTLP");
    }
    assert_eq!(heard.used(), Some(USED));
}

#[test]
fn counters_that_go_on_counting_are_understood_too() {
    let cumulative = METRICS.replace("\"aggregationTemporality\":1", "\"aggregationTemporality\":2");
    let later =
        cumulative.replace("1794800857828000000", "1794800858828000000").replace("\"asDouble\":33", "\"asDouble\":44");
    assert_ne!(later, cumulative);
    assert_eq!(counters(&[&cumulative, &later]).used(), Some(Usage { input: 44, ..USED }));
    let named = METRICS
        .replace("\"aggregationTemporality\":1", "\"aggregationTemporality\":\"AGGREGATION_TEMPORALITY_CUMULATIVE\"");
    assert_eq!(counters(&[&named, &named]).used(), Some(USED));
}

#[test]
fn contents_are_not_asked_for() {
    let parsed: Value = serde_json::from_str(LOGS).expect("it is JSON");
    let prompt = parsed.to_string().contains("do it");
    assert!(!prompt && LOGS.contains("<REDACTED>"));
}

#[test]
fn odd_figures_do_no_harm() {
    let point = |value: Value| {
        let attributes = json!([{ "key": "type", "value": { "stringValue": "input" } }]);
        let data = json!({ "attributes": attributes, "timeUnixNano": "5", "asDouble": value });
        let metric =
            json!({ "name": "claude_code.token.usage", "sum": { "aggregationTemporality": 1, "dataPoints": [data] } });
        json!({ "resourceMetrics": [{ "scopeMetrics": [{ "metrics": [metric] }] }] }).to_string()
    };
    assert_eq!(counters(&[&point(json!("12"))]).used().map(|u| u.input), Some(12));
    for (odd, used) in [(json!(-3), None), (json!("x"), None), (json!(null), None), (json!(1e300), Some(u64::MAX))] {
        assert_eq!(counters(&[&point(odd.clone())]).used().map(|u| u.input), used, "{odd}");
    }
    for broken in ["", "3", "{\"resourceMetrics\":3}", "{\"resourceMetrics\":[{\"scopeMetrics\":[1]}]}"] {
        assert!(otlp::metrics(broken.as_bytes(), &mut TelemetrySum::default()).is_err(), "{broken}");
    }
    assert!(otlp::logs(b"{}", &mut TelemetrySum::default()).is_ok());
    let deep = format!("{}{}", "{\"resourceLogs\":".repeat(1000), "}".repeat(1000));
    assert!(otlp::logs(deep.as_bytes(), &mut TelemetrySum::default()).is_err());
}
