//! One POST with its answer, with a deadline. Addresses may hold secrets, so no text shows one. The
//! client itself is [`crate::http_client`].

use std::path::Path;
use std::time::Duration;

use everloop_core::outbound::{Refusal, Undelivered};

use crate::http_client::{Access, Address, HttpClient, Timeouts, header_of, read_body};

/// Everything about one request that is answered at once.
pub(super) const WITHIN: Duration = Duration::from_secs(20);
/// Longer answers are cut off.
const ANSWER_CAP: u64 = 1 << 20;
/// Shown of an answer that refuses.
const SHOWN_CHARS: usize = 200;

/// One POST with its headers and body.
pub(super) struct WebRequest<'a> {
    pub url: &'a str,
    pub headers: Vec<(&'static str, String)>,
    pub body: &'a [u8],
}

/// The response to a [`WebRequest`].
#[derive(Debug)]
pub(super) struct WebResponse {
    pub status: u16,
    pub retry_after: Option<Duration>,
    pub body: String,
}

impl WebResponse {
    /// An error unless the status is one of success.
    pub fn good(&self) -> Result<(), Undelivered> {
        if (200..300).contains(&self.status) {
            return Ok(());
        }
        Err(self.refusal(&self.body))
    }

    /// A refusal with its explanation.
    pub fn refusal(&self, said: &str) -> Undelivered {
        let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN_CHARS).collect();
        let why = format!("it answered {}: {}", self.status, said.trim());
        let refused = match self.status {
            408 | 425 | 429 | 500.. => None,
            400..500 if ![401, 403, 404, 407].contains(&self.status) => Some(Refusal::Content),
            // A redirect, missing access or a missing path: not the fault of this one delivery.
            _ => Some(Refusal::Access),
        };
        let why = why.trim_end_matches([':', ' ']).to_owned();
        Undelivered { why, retry_after: self.retry_after, refused }
    }
}

/// A client for one address; it keeps its connection for the next request.
pub(super) struct Web(HttpClient);

impl Web {
    /// For this address; everything about a request is over within this time.
    pub fn new(url: &str, ca_file: Option<&Path>, within: Duration) -> Result<Self, Undelivered> {
        let refused = |why| Undelivered::refused(why, Refusal::Access);
        let address = Address::parse(url, Access::Private).map_err(|e| refused(e.to_string()))?;
        HttpClient::new(&address, ca_file, Timeouts::Whole(within)).map(Self).map_err(refused)
    }

    pub fn post(&self, request: &WebRequest<'_>) -> Result<WebResponse, Undelivered> {
        let answer = self.0.post(request.url, &request.headers, request.body);
        let (head, body) = answer.map_err(|e| lost(&e))?.into_parts();
        let retry_after = header_of(&head.headers, "retry-after").trim().parse().ok().map(Duration::from_secs);
        let mut bytes = Vec::new();
        read_body(body, ANSWER_CAP, &mut bytes).map_err(|e| lost(&ureq::Error::from(e)))?;
        let body = String::from_utf8_lossy(&bytes).into_owned();
        Ok(WebResponse { status: head.status.as_u16(), retry_after, body })
    }
}

fn lost(error: &ureq::Error) -> Undelivered {
    // An address that cannot be used is shown by the error itself, and it may be a secret.
    let why = match error {
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => "the address or a header cannot be used".to_owned(),
        other => other.to_string(),
    };
    Undelivered::away(why)
}

/// A value for a header: one line of visible ASCII; anything else would be another header or none.
pub(super) fn header(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}
