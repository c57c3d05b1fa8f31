//! `POST /v1/metrics` and `/v1/logs`: OTLP in JSON from the agents of turns, for
//! `everloop_engine::telemetry`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use everloop_engine::telemetry::{HEADER, Signal, Visit};
use serde_json::json;

use super::answer::{Answer, read};
use super::{App, text};

/// What an exporter puts into one request by default is far below.
const MAX_BODY_BYTES: usize = 4 << 20;
/// What is longer is parsed on another thread: the runtime's has the supervisor on it.
const MAX_INLINE_BYTES: usize = 64 << 10;

/// `POST /v1/metrics`.
pub async fn metrics(State(app): State<Arc<App>>, request: Request) -> Answer {
    take(&app, Signal::Counters, request).await
}

/// `POST /v1/logs`.
pub async fn logs(State(app): State<Arc<App>>, request: Request) -> Answer {
    take(&app, Signal::Events, request).await
}

async fn take(app: &App, signal: Signal, request: Request) -> Answer {
    let Some(turn) = app.port.token.turn_of(text(request.headers(), HEADER).unwrap_or_default()) else {
        return Answer::error(401, "this is for the agents of this supervisor");
    };
    let Some(visit) = app.port.telemetry.visit(&turn) else {
        return Answer::error(404, "the turn is over");
    };
    if let Err(refused) = readable(request.headers()) {
        return refused;
    }
    let body = match read(request.into_body(), MAX_BODY_BYTES).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    if body.len() <= MAX_INLINE_BYTES {
        return parse(visit, signal, &body);
    }
    let parsed = tokio::task::spawn_blocking(move || parse(visit, signal, &body));
    parsed.await.unwrap_or_else(|_| Answer::error(500, "it could not be read"))
}

fn parse(visit: Visit, signal: Signal, body: &[u8]) -> Answer {
    match visit.read(signal, body) {
        Err(e) => Answer::error(400, &format!("not OTLP in JSON: {e}")),
        // OTLP's way to answer that nothing was rejected.
        Ok(()) => Answer::json(200, &json!({})),
    }
}

fn readable(headers: &HeaderMap) -> Result<(), Answer> {
    let kind = text(headers, CONTENT_TYPE).unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err(Answer::error(415, "send OTLP as JSON: OTEL_EXPORTER_OTLP_PROTOCOL=http/json"));
    }
    if !matches!(text(headers, CONTENT_ENCODING), None | Some("" | "identity")) {
        return Err(Answer::error(415, "send it without compression: OTEL_EXPORTER_OTLP_COMPRESSION=none"));
    }
    Ok(())
}
