//! One request and the beginning of its answer. Owns addresses, timeouts and which failures are tried once more; knows
//! nothing of what is asked.

use std::io::{self, Read};
use std::time::Duration;

use everloop_core::stream::LimitClass;
use ureq::http::{HeaderMap, Uri};
use ureq::{Agent, Body, BodyReader};

use super::options::{ApiFormat, ApiTurnOptions};
use super::reply::ApiRefusal;
use crate::web::{is_loopback, quiet, tls};

/// A request is at most some megabytes; a line that takes longer is no line.
const SEND_WITHIN: Duration = Duration::from_secs(120);
/// Everything about one request: the longest answer of the slowest model takes minutes.
const CALL_WITHIN: Duration = Duration::from_secs(3600);
/// An error says what it has to say in less.
const ERROR_BODY: u64 = 64 << 10;
/// The version of the Messages API that this was written for.
const MESSAGES_VERSION: &str = "2023-06-01";

/// The other side.
pub(super) struct Client {
    agent: Agent,
    url: String,
    wire: ApiFormat,
    key: Option<String>,
}

/// What the other side said first.
pub(super) enum HttpReply {
    /// A stream of events.
    Stream(BodyReader<'static>),
    /// No.
    Error {
        /// The status.
        status: u16,
        /// What may say when to come back.
        headers: HeaderMap,
        /// The beginning of what it said.
        body: String,
    },
}

/// A request that was not answered.
pub(super) enum Failed {
    /// The connection broke before anything was heard: nothing is known to have happened, so it may be tried again.
    Reset(ApiRefusal),
    /// Anything else.
    Other(ApiRefusal),
}

impl Client {
    pub(super) fn new(options: &ApiTurnOptions, key: Option<&str>) -> Result<Self, ApiRefusal> {
        let (url, scheme) = address(&options.base, options.wire)?;
        let times = options.timeouts;
        let config = quiet()
            .timeout_resolve(Some(times.connect))
            .timeout_connect(Some(times.connect))
            .timeout_send_request(Some(SEND_WITHIN))
            .timeout_send_body(Some(SEND_WITHIN))
            .timeout_recv_response(Some(times.first_byte))
            .timeout_per_read(Some(times.idle))
            .timeout_per_call(Some(CALL_WITHIN));
        let config = match scheme {
            // Nothing that is not encrypted leaves this machine, not even to a proxy.
            Scheme::Loopback => config.proxy(None),
            Scheme::Tls => config.tls_config(tls(options.ca_file.as_deref()).map_err(ApiRefusal::plain)?),
        };
        Ok(Self { agent: config.build().new_agent(), url, wire: options.wire, key: key.map(str::to_owned) })
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) fn post(&self, body: &[u8]) -> Result<HttpReply, Failed> {
        let mut request =
            self.agent.post(&self.url).header("content-type", "application/json").header("accept", "text/event-stream");
        if self.wire == ApiFormat::Messages {
            request = request.header("anthropic-version", MESSAGES_VERSION);
        }
        if let Some(key) = &self.key {
            request = match self.wire {
                ApiFormat::Messages => request.header("x-api-key", key),
                ApiFormat::Responses => request.header("authorization", format!("Bearer {key}")),
            };
        }
        let (head, body) = request.send(body).map_err(failed)?.into_parts();
        let status = head.status.as_u16();
        let kind = head.headers.get("content-type").and_then(|v| v.to_str().ok()).unwrap_or_default();
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
    body.into_reader().take(ERROR_BODY).read_to_end(&mut bytes).ok();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Loopback,
    Tls,
}

/// Where to post to: with or without `/v1` in the base, as both are usual.
fn address(base: &str, wire: ApiFormat) -> Result<(String, Scheme), ApiRefusal> {
    let bad = |why: &str| ApiRefusal::plain(format!("the API's address `{}` {why}", super::clip(base)));
    let uri: Uri = base.trim().parse().map_err(|_| bad("cannot be read; hint: write `https://HOST[:PORT][/PATH]`"))?;
    let authority = uri.authority().ok_or_else(|| bad("names no host; hint: write `https://HOST[:PORT][/PATH]`"))?;
    if authority.as_str().contains('@') {
        // Not even its beginning may be shown.
        return Err(ApiRefusal::plain("the API's address holds a password; hint: give the key by `--key-env NAME`"));
    }
    if uri.query().is_some() {
        return Err(bad("has a query; hint: leave out everything from the `?` on"));
    }
    let scheme = match uri.scheme_str() {
        Some("https") => Scheme::Tls,
        Some("http") if is_loopback(authority.host()) => Scheme::Loopback,
        Some("http") => return Err(bad("would send the key unencrypted; hint: use `https://`")),
        _ => return Err(bad("is neither https nor http; hint: use `https://`")),
    };
    let path = uri.path().trim_end_matches('/');
    let version = if path.ends_with("/v1") { "" } else { "/v1" };
    let name = uri.scheme_str().unwrap_or("https");
    Ok((format!("{name}://{authority}{path}{version}/{}", wire.path()), scheme))
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
            assert_eq!(address(base, ApiFormat::Messages).unwrap().0, url);
        }
    }

    #[test]
    fn a_key_is_never_sent_in_the_open() {
        for base in ["http://api.example", "http://10.0.0.1", "http://localhost.example", "ftp://localhost", "api", ""]
        {
            let refusal = address(base, ApiFormat::Responses).unwrap_err();
            assert!(refusal.limit.is_none() && refusal.text.contains("hint: "), "{base}: {refusal:?}");
        }
        let refusal = address("https://me:sk-secret@api.example", ApiFormat::Responses).unwrap_err();
        assert!(!refusal.text.contains("sk-secret"), "{refusal:?}");
    }
}
