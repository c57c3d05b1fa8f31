//! One request of the API agent and the beginning of its answer. Owns where it goes, what names us
//! there and which failures are tried once more.

use std::io;

use everloop_core::stream::LimitClass;
use ureq::http::HeaderMap;
use ureq::{Body, BodyReader};

use super::options::{ApiFormat, ApiTurnOptions};
use super::reply::ApiRefusal;
use crate::http_client::{Access, Address, BadAddress, HttpClient, Timeouts, header_of, read_body};

/// Longer errors are cut off.
const ERROR_BODY: u64 = 64 << 10;
/// The version of the Messages API that this was written for.
const MESSAGES_VERSION: &str = "2023-06-01";

/// The other side.
pub(super) struct Client {
    http: HttpClient,
    url: String,
    wire: ApiFormat,
    key: Option<String>,
}

/// The beginning of a response.
pub(super) enum HttpReply {
    /// A stream of events.
    Stream(BodyReader<'static>),
    /// The server refuses the request.
    Error {
        status: u16,
        /// They may hold the time of the next attempt.
        headers: HeaderMap,
        /// The beginning of its body.
        body: String,
    },
}

/// A request without a response.
pub(super) enum Failed {
    /// The connection broke before any response: nothing is known to have happened, so the request
    /// may be sent again.
    Reset(ApiRefusal),
    /// All other failures: a second attempt would not help.
    Other(ApiRefusal),
}

impl Client {
    pub(super) fn new(options: &ApiTurnOptions, key: Option<&str>) -> Result<Self, ApiRefusal> {
        let address = address(&options.base)?;
        let times = options.timeouts;
        let timeouts = Timeouts::Stream { connect: times.connect, first_byte: times.first_byte, idle: times.idle };
        let http = HttpClient::new(&address, options.ca_file.as_deref(), timeouts).map_err(ApiRefusal::plain)?;
        Ok(Self { http, url: target(&address, options.wire), wire: options.wire, key: key.map(str::to_owned) })
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) fn post(&self, body: &[u8]) -> Result<HttpReply, Failed> {
        let mut headers =
            vec![("content-type", "application/json".to_owned()), ("accept", "text/event-stream".to_owned())];
        if self.wire == ApiFormat::Messages {
            headers.push(("anthropic-version", MESSAGES_VERSION.to_owned()));
        }
        headers.extend(self.key.as_ref().map(|key| match self.wire {
            ApiFormat::Messages => ("x-api-key", key.clone()),
            ApiFormat::Responses => ("authorization", format!("Bearer {key}")),
        }));
        let (head, body) = self.http.post(&self.url, &headers, body).map_err(failed)?.into_parts();
        let status = head.status.as_u16();
        let kind = header_of(&head.headers, "content-type");
        if status == 200 && kind.starts_with("text/event-stream") {
            return Ok(HttpReply::Stream(body.into_reader()));
        }
        if status == 200 {
            let text = format!("the answer is no stream of events but `{}`", super::clip(kind));
            return Err(Failed::Other(ApiRefusal::seen("api.no-stream", LimitClass::Overload, text)));
        }
        Ok(HttpReply::Error { status, headers: head.headers, body: beginning(body) })
    }
}

/// What fits of an error's body; half of it is better than nothing.
fn beginning(body: Body) -> String {
    let mut bytes = Vec::new();
    // What came before it broke is in there.
    read_body(body, ERROR_BODY, &mut bytes).ok();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The base of the API: encrypted or on this machine, because the key goes there.
fn address(base: &str) -> Result<Address, ApiRefusal> {
    let bad = |why: &str| ApiRefusal::plain(format!("the API's address `{}` {why}", super::clip(base)));
    let address = Address::parse(base, Access::Private).map_err(|e| match e {
        BadAddress::Unreadable => bad("cannot be read; hint: write `https://HOST[:PORT][/PATH]`"),
        BadAddress::NoHost => bad("names no host; hint: write `https://HOST[:PORT][/PATH]`"),
        // Not even its beginning may be shown.
        BadAddress::Password => {
            ApiRefusal::plain("the API's address holds a password; hint: give the key by `--key-env NAME`")
        }
        BadAddress::Unencrypted => bad("would send the key unencrypted; hint: use `https://`"),
        BadAddress::Scheme => bad("is neither https nor http; hint: use `https://`"),
    })?;
    if address.uri.query().is_some() {
        return Err(bad("has a query; hint: leave out everything from the `?` on"));
    }
    Ok(address)
}

/// Where to post to: with or without `/v1` in the base, as both are usual.
fn target(base: &Address, wire: ApiFormat) -> String {
    let uri = &base.uri;
    let (scheme, authority) = (uri.scheme_str().unwrap_or("https"), uri.authority().map_or("", |a| a.as_str()));
    let path = uri.path().trim_end_matches('/');
    let version = if path.ends_with("/v1") { "" } else { "/v1" };
    format!("{scheme}://{authority}{path}{version}/{}", wire.path())
}

fn failed(error: ureq::Error) -> Failed {
    match error {
        ureq::Error::Io(e) if is_reset(&e) => {
            let text = format!("the connection broke before an answer: {e}");
            Failed::Reset(ApiRefusal::seen("api.reset", LimitClass::Network, text))
        }
        ureq::Error::Io(e) if is_certificate(&e) => {
            let hint = "hint: `ca_file` of the agent names a root that is trusted besides";
            Failed::Other(ApiRefusal::seen(
                "api.tls",
                LimitClass::Network,
                format!("no trusted connection: {e}; {hint}"),
            ))
        }
        other => Failed::Other(network(&other)),
    }
}

/// A failure below HTTP, in words and as a limit.
pub(super) fn network(error: &ureq::Error) -> ApiRefusal {
    let rule = match error {
        ureq::Error::Timeout(_) => "api.timeout",
        ureq::Error::HostNotFound => "api.dns",
        ureq::Error::Rustls(_) | ureq::Error::Tls(_) => "api.tls",
        ureq::Error::Io(_) | ureq::Error::ConnectionFailed => "api.connect",
        _ => "api.protocol",
    };
    ApiRefusal::seen(rule, LimitClass::Network, format!("the API cannot be reached: {error}"))
}

/// A failure while the answer was read.
pub(super) fn broken(error: io::Error) -> ApiRefusal {
    match ureq::Error::from(error) {
        timeout @ ureq::Error::Timeout(_) => network(&timeout),
        ureq::Error::Io(e) if e.kind() == io::ErrorKind::TimedOut => {
            ApiRefusal::seen("api.timeout", LimitClass::Network, format!("the answer stopped coming: {e}"))
        }
        other => ApiRefusal::seen("api.cut", LimitClass::Network, format!("the answer was cut off: {other}")),
    }
}

fn is_reset(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), ConnectionReset | ConnectionAborted | BrokenPipe | UnexpectedEof)
}

/// The handshake reports what it thinks of a certificate through the stream that it reads from.
fn is_certificate(error: &io::Error) -> bool {
    error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_with_and_without_a_version_is_the_same() {
        for (base, url) in [
            ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
            ("https://api.anthropic.com/", "https://api.anthropic.com/v1/messages"),
            ("https://gate.example/llm/v1/", "https://gate.example/llm/v1/messages"),
            ("http://127.0.0.1:9", "http://127.0.0.1:9/v1/messages"),
            ("http://[::1]:9/x", "http://[::1]:9/x/v1/messages"),
            ("http://localhost", "http://localhost/v1/messages"),
        ] {
            assert_eq!(target(&address(base).unwrap(), ApiFormat::Messages), url);
        }
    }

    #[test]
    fn a_key_is_never_sent_in_the_open() {
        for base in ["http://api.example", "http://10.0.0.1", "http://localhost.example", "ftp://localhost", "api", ""]
        {
            let refusal = address(base).unwrap_err();
            assert!(refusal.limit.is_none() && refusal.text.contains("hint: "), "{base}: {refusal:?}");
        }
        let refusal = address("https://me:sk-secret@api.example").unwrap_err();
        assert!(!refusal.text.contains("sk-secret"), "{refusal:?}");
    }
}
