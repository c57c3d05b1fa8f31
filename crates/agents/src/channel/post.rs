//! Channels that are one request: Slack, ntfy, a gateway for SMS, any webhook.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use everloop_core::hex::hex;
use everloop_core::outbound::tickets::Severity;
use everloop_core::outbound::{Delivery, Undelivered};
use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde_json::{Map, Value, json};
use sha2::Sha256;

use super::secret::without;
use super::web::{WITHIN, Web, WebRequest, header};
use super::{Address, SecretSource};

/// Two SMS; gateways bill the third too.
const SMS_CHARS: usize = 300;
/// What a header may take of a title.
const TITLE_CHARS: usize = 120;

/// A request of a gateway for SMS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    pub url: Address,
    /// Names and values; `{text}`, `{to}` and `{key}` are replaced in values.
    pub fields: Vec<(String, String)>,
    /// The recipient, for `{to}`.
    pub to: String,
    /// Whether the fields travel as JSON; else as a form.
    pub json: bool,
    pub auth: Option<Auth>,
}

/// How a server authenticates everloop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// The header `Authorization: Bearer …`.
    Bearer(SecretSource),
    /// The header `Authorization: Basic …`.
    Basic { user: String, password: SecretSource },
    /// The header `X-Everloop-Signature: sha256=…`, an HMAC of the body.
    Signature(SecretSource),
}

impl Auth {
    /// The header for this body, and what must not be seen in any text.
    fn header(&self, body: &str) -> Result<((&'static str, String), Vec<String>), Undelivered> {
        match self {
            Auth::Bearer(token) => {
                let token = token.value()?;
                Ok((("authorization", format!("Bearer {token}")), vec![token]))
            }
            Auth::Basic { user, password } => {
                let password = password.value()?;
                let pair = BASE64.encode(format!("{user}:{password}"));
                Ok((("authorization", format!("Basic {pair}")), vec![password, pair]))
            }
            Auth::Signature(secret) => {
                let key = secret.value()?;
                let signed = format!("sha256={}", signature(key.as_bytes(), body.as_bytes()));
                Ok((("x-everloop-signature", signed), vec![key]))
            }
        }
    }
}

/// One POST of a channel.
struct Post<'a> {
    url: &'a Address,
    auth: Option<&'a Auth>,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Post<'_> {
    fn send(self, ca: Option<&Path>, delivery: &Delivery) -> Result<(), Undelivered> {
        let (url, mut hidden) = match self.url {
            Address::Open(url) => (url.clone(), Vec::new()),
            Address::Hidden(secret) => secret.value().map(|url| (url.clone(), vec![url]))?,
        };
        let mut headers = self.headers;
        headers.push(("idempotency-key", delivery.key.clone()));
        if let Some(auth) = self.auth {
            let (header, secrets) = auth.header(&self.body)?;
            headers.push(header);
            hidden.extend(secrets);
        }
        let request = WebRequest { url: &url, headers, body: self.body.as_bytes() };
        let answer = Web::new(&url, ca, WITHIN).and_then(|web| web.post(&request));
        answer.and_then(|a| a.good()).map_err(|e| without(&hidden, e))
    }
}

fn content(kind: &str) -> Vec<(&'static str, String)> {
    vec![("content-type", kind.to_owned())]
}

const JSON: &str = "application/json";

/// Everything about a delivery, for programs.
pub(super) fn as_json(delivery: &Delivery) -> Value {
    match &delivery.report {
        Some(report) => report.json.clone(),
        None => json!({
            "schema_version": 1,
            "kind": "ticket",
            "key": delivery.key,
            "severity": delivery.severity,
            "title": delivery.title,
            "text": delivery.text,
            "tickets": delivery.tickets,
        }),
    }
}

pub(super) fn slack(url: &SecretSource, ca: Option<&Path>, message: &Delivery) -> Result<(), Undelivered> {
    // Slack reads these three as marks of its own.
    let plain = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let how = message.tickets.first().filter(|_| message.tickets.len() == 1);
    let how = how.map_or(String::new(), |id| format!("\n`everloop ticket answer {id} \"…\"`"));
    let text = format!("*{}*\n{}{how}", plain(&message.title), plain(&message.text));
    let body = json!({ "text": text }).to_string();
    Post { url: &Address::Hidden(url.clone()), auth: None, headers: content(JSON), body }.send(ca, message)
}

pub(super) fn ntfy(
    (url, token, link): (&str, Option<&SecretSource>, Option<&str>),
    ca: Option<&Path>,
    message: &Delivery,
) -> Result<(), Undelivered> {
    let (priority, tag) = match message.severity {
        Severity::Info => ("2", "information_source"),
        Severity::Warning => ("3", "warning"),
        Severity::Critical => ("5", "rotating_light"),
    };
    let title: String = header(&message.title).chars().take(TITLE_CHARS).collect();
    let mut headers = vec![("title", title), ("priority", priority.to_owned()), ("tags", tag.to_owned())];
    if let (Some(link), [ticket]) = (link, message.tickets.as_slice()) {
        let link = header(&link.replace("{ticket}", &ticket.to_string()));
        headers.push(("actions", format!("view, Open, {link}")));
    }
    let (url, auth) = (Address::Open(url.to_owned()), token.cloned().map(Auth::Bearer));
    Post { url: &url, auth: auth.as_ref(), headers, body: message.text.clone() }.send(ca, message)
}

pub(super) fn sms(form: &Form, ca: Option<&Path>, message: &Delivery) -> Result<(), Undelivered> {
    let text: String = format!("{} {}", message.title, message.text).chars().take(SMS_CHARS).collect();
    let fill = |value: &str| value.replace("{to}", &form.to).replace("{key}", &message.key).replace("{text}", &text);
    let (kind, body) = if form.json {
        let fields: Map<String, Value> =
            form.fields.iter().map(|(name, value)| (name.clone(), Value::String(fill(value)))).collect();
        (JSON, Value::Object(fields).to_string())
    } else {
        let pairs: Vec<String> =
            form.fields.iter().map(|(name, value)| format!("{}={}", percent(name), percent(&fill(value)))).collect();
        ("application/x-www-form-urlencoded", pairs.join("&"))
    };
    Post { url: &form.url, auth: form.auth.as_ref(), headers: content(kind), body }.send(ca, message)
}

pub(super) fn webhook(
    url: &Address,
    auth: Option<&Auth>,
    ca: Option<&Path>,
    delivery: &Delivery,
) -> Result<(), Undelivered> {
    let body = as_json(delivery).to_string();
    Post { url, auth, headers: content(JSON), body }.send(ca, delivery)
}

/// HMAC-SHA256 in hexadecimal.
fn signature(key: &[u8], text: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of every length");
    mac.update(text);
    hex(&mac.finalize().into_bytes())
}

/// All that is not unreserved in RFC 3986.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A value of a form.
fn percent(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, ESCAPED)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use everloop_core::outbound::reports::Reported;
    use everloop_core::outbound::{Refusal, Report};

    use super::*;

    #[test]
    fn signatures_are_as_in_rfc_4231() {
        assert_eq!(
            signature(b"Jefe", b"what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let long = signature(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(long, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }

    #[test]
    fn a_value_of_a_form_stays_one_value() {
        assert_eq!(percent("a&b=c d\n+é").to_string(), "a%26b%3Dc%20d%0A%2B%C3%A9");
    }

    /// The result of a report to a server that answers once with this status, and its request.
    fn served(status: u16) -> (Result<(), Undelivered>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/hooks/x?y=1", listener.local_addr().expect("it is bound"));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client connects");
            let mut asked = Vec::new();
            let mut part = [0; 1024];
            while !asked.ends_with(b"{}") {
                let n = stream.read(&mut part).expect("a request arrives");
                asked.extend_from_slice(&part[..n]);
            }
            let answer = format!("HTTP/1.1 {status} x\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).expect("it listens");
            String::from_utf8_lossy(&asked).into_owned()
        });
        (report(url), server.join().expect("it ends"))
    }

    fn report(url: String) -> Result<(), Undelivered> {
        let dir = tempfile::tempdir().expect("a folder");
        let token = dir.path().join("token");
        std::fs::write(&token, "s3cret\n").expect("it can be written");
        let then = Reported::Status { turns: 1, over: false };
        let report = Some(Report { words: Vec::new(), json: json!({}), then });
        let delivery = Delivery { key: "t:claim:1".to_owned(), report, ..Delivery::default() };
        webhook(&Address::Open(url), Some(&Auth::Bearer(SecretSource::OpenFile(token))), None, &delivery)
    }

    #[test]
    fn it_is_told_with_its_token_and_its_key() {
        let (told, asked) = served(204);
        assert_eq!(told, Ok(()));
        assert_eq!(WITHIN.as_secs(), 20, "as the guide says");
        let asked = asked.to_ascii_lowercase();
        assert!(asked.starts_with("post /hooks/x?y=1 http/1.1"), "{asked}");
        assert!(
            asked.contains("authorization: bearer s3cret") && asked.contains("idempotency-key: t:claim:1"),
            "{asked}"
        );
    }

    #[test]
    fn who_is_away_is_told_later_and_who_refuses_is_not() {
        for status in [500, 503, 401, 404, 429, 302] {
            let how = served(status).0.expect_err("it did not take it");
            assert_ne!(how.refused, Some(Refusal::Content), "{status}");
        }
        for status in [401, 403, 404] {
            assert_eq!(served(status).0.expect_err("it did not take it").refused, Some(Refusal::Access), "{status}");
        }
        for status in [400, 409, 422] {
            let how = served(status).0.expect_err("it did not take it");
            assert_eq!(how.refused, Some(Refusal::Content), "{status}");
        }
        let away = report("http://127.0.0.1:1/x".to_owned()).expect_err("no server listens there");
        assert!(away.refused.is_none() && !away.why.contains("/x"), "{}", away.why);
    }
}
