//! What goes out, and how much may come in.

use std::error::Error;

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use everloop_engine::error::Failure;
use http_body_util::LengthLimitError;
use serde_json::{Value, json};

/// A whole answer; each fits into memory.
pub struct Answer {
    status: u16,
    kind: &'static str,
    text: String,
}

impl Answer {
    /// The same with another status.
    pub fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// JSON, for programs.
    pub fn json(status: u16, value: &Value) -> Self {
        Self { status, kind: "application/json", text: format!("{value}\n") }
    }

    /// Text in a format of its own.
    pub fn text(kind: &'static str, text: String) -> Self {
        Self { status: 200, kind, text }
    }

    /// What was wrong.
    pub fn error(status: u16, message: &str) -> Self {
        Self::json(status, &json!({ "schema_version": 1, "error": message }))
    }

    /// Why a service failed, as `--json` prints it.
    pub fn failure(status: u16, failure: &Failure) -> Self {
        let mut body = failure.to_json();
        body["schema_version"] = json!(1);
        Self::json(status, &body)
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).expect("statuses are written in this program, all valid");
        (status, [(CONTENT_TYPE, self.kind)], self.text).into_response()
    }
}

/// Reads a body to its end, unless it is longer than `max_bytes`.
pub async fn read(body: Body, max_bytes: usize) -> Result<Bytes, Answer> {
    let too_long = || Answer::error(413, &format!("a body of more than {max_bytes} bytes is not read"));
    // A length that was announced is refused before a byte of it is read.
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(too_long());
    }
    to_bytes(body, max_bytes).await.map_err(|error| match error.source() {
        Some(cause) if cause.is::<LengthLimitError>() => too_long(),
        _ => Answer::error(400, "the body did not arrive whole"),
    })
}
