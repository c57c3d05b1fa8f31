//! Sends documents of OpenTelemetry to a collector: OTLP over HTTP, in JSON. One attempt, with a
//! deadline; when to try again is the caller's business. No error shows the address or the token.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::channel::SecretSource;
use crate::http_client::{Access, Address, HttpClient, Timeouts, read_body};

/// Everything about one document; a collector answers at once.
const WITHIN: Duration = Duration::from_secs(10);
/// An answer is empty, or an error of a few lines.
const ANSWER_CAP: u64 = 64 << 10;

/// Where a collector is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpReceiver {
    /// The base of the three paths, like `http://127.0.0.1:4318`.
    pub endpoint: String,
    /// Sent as `Authorization: Bearer`.
    pub token: Option<SecretSource>,
    /// Certificates that are trusted besides those of the machine.
    pub ca_file: Option<PathBuf>,
}

/// The kinds of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpKind {
    Traces,
    Metrics,
    Logs,
}

impl OtlpKind {
    fn path(self) -> &'static str {
        match self {
            OtlpKind::Traces => "/v1/traces",
            OtlpKind::Metrics => "/v1/metrics",
            OtlpKind::Logs => "/v1/logs",
        }
    }
}

/// A connection to a collector.
pub struct OtlpClient {
    base: String,
    client: HttpClient,
    token: Option<SecretSource>,
}

impl OtlpClient {
    /// Prepares a client; nothing is sent.
    pub fn new(receiver: &OtlpReceiver) -> Result<Self, String> {
        let address = Address::parse(&receiver.endpoint, Access::Private).map_err(|e| e.to_string())?;
        let client = HttpClient::new(&address, receiver.ca_file.as_deref(), Timeouts::Whole(WITHIN))?;
        let base = receiver.endpoint.trim().trim_end_matches('/').to_owned();
        Ok(Self { base, client, token: receiver.token.clone() })
    }

    /// Sends a document.
    pub fn post(&self, kind: OtlpKind, document: &Value) -> Result<(), String> {
        let mut headers = vec![("content-type", "application/json".to_owned())];
        if let Some(token) = &self.token {
            headers.push(("authorization", format!("Bearer {}", token.value().map_err(|e| e.why)?)));
        }
        let url = format!("{}{}", self.base, kind.path());
        let answer = self.client.post(&url, &headers, document.to_string().as_bytes());
        let (head, body) = answer.map_err(|e| format!("the collector is away: {e}"))?.into_parts();
        let mut said = Vec::new();
        read_body(body, ANSWER_CAP, &mut said).map_err(|e| format!("the collector's answer broke off: {e}"))?;
        if head.status.is_success() { Ok(()) } else { Err(format!("the collector answers {}", head.status.as_u16())) }
    }
}
