//! What goes out, and how much may come in.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::Response;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use serde_json::{Value, json};

/// A whole answer; each fits into memory.
pub struct Answer {
    status: u16,
    kind: &'static str,
    allow: Option<&'static str>,
    text: String,
}

impl Answer {
    /// JSON, for programs.
    pub fn json(status: u16, value: &Value) -> Self {
        Self { status, kind: "application/json", allow: None, text: format!("{value}\n") }
    }

    /// Text in a format of its own.
    pub fn text(kind: &'static str, text: String) -> Self {
        Self { status: 200, kind, allow: None, text }
    }

    /// What was wrong.
    pub fn error(status: u16, message: &str) -> Self {
        Self::json(status, &json!({ "schema_version": 1, "error": message }))
    }

    /// Taken, and there is nothing to say.
    pub fn accepted() -> Self {
        Self { status: 202, kind: "application/json", allow: None, text: String::new() }
    }

    /// The path is right, the method is not.
    pub fn wrong_method(right: &'static str) -> Self {
        Self { allow: Some(right), ..Self::error(405, &format!("this path takes {right} only")) }
    }

    /// For the wire.
    pub fn into_response(self) -> Response<Whole> {
        let mut response = Response::new(Whole(Some(Bytes::from(self.text))));
        *response.status_mut() = self.status.try_into().expect("statuses are written in this program, all valid");
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if let Some(right) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(right));
        }
        response
    }
}

/// A body that is there at once.
pub struct Whole(Option<Bytes>);

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// Reads a body to its end, unless it is longer than `most_bytes`.
pub async fn read(mut body: Incoming, most_bytes: usize) -> Result<Vec<u8>, Answer> {
    let too_long = || Answer::error(413, &format!("a body of more than {most_bytes} bytes is not read"));
    // A length that was announced is refused before a byte of it is read.
    if body.size_hint().lower() > most_bytes as u64 {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|_| Answer::error(400, "the body did not arrive whole"))?;
        let Ok(piece) = frame.into_data() else { continue };
        if bytes.len() + piece.len() > most_bytes {
            return Err(too_long());
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}
