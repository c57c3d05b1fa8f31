//! Notifiers that are one request: Slack, ntfy, a gateway for SMS, any webhook.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use everloop_core::hex::hex;
use everloop_core::notify::{Notification, Severity, Undelivered};
use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde_json::{Map, Value, json};
use sha2::Sha256;

use super::secret::without;
use super::{Address, SecretSource};
use crate::web::{WebRequest, header, post};

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

/// How a gateway authenticates everloop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// The header `Authorization: Bearer …`.
    Bearer(SecretSource),
    /// The header `Authorization: Basic …`.
    Basic { user: String, password: SecretSource },
}

impl Address {
    /// The address, and what of it must not be seen.
    fn open(&self) -> Result<(String, Vec<String>), Undelivered> {
        match self {
            Address::Open(url) => Ok((url.clone(), Vec::new())),
            Address::Hidden(secret) => secret.value().map(|url| (url.clone(), vec![url])),
        }
    }
}

/// Everything about a message, for programs.
pub(super) fn as_json(message: &Notification) -> Value {
    json!({
        "schema_version": 1,
        "kind": "ticket",
        "key": message.key,
        "severity": message.severity,
        "title": message.title,
        "text": message.text,
        "tickets": message.tickets,
    })
}

pub(super) fn slack(url: &SecretSource, ca: Option<&Path>, message: &Notification) -> Result<(), Undelivered> {
    let url = url.value()?;
    // Slack reads these three as marks of its own.
    let plain = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let how = message.tickets.first().filter(|_| message.tickets.len() == 1);
    let how = how.map_or(String::new(), |id| format!("\n`everloop ticket answer {id} \"…\"`"));
    let text = format!("*{}*\n{}{how}", plain(&message.title), plain(&message.text));
    let body = json!({ "text": text }).to_string();
    let headers = vec![("content-type", "application/json".to_owned()), ("idempotency-key", message.key.clone())];
    let answer = post(&WebRequest { url: &url, headers, body: body.as_bytes() }, ca);
    answer.and_then(|a| a.good()).map_err(|e| without(&[&url], e))
}

pub(super) fn ntfy(
    (url, token, link): (&str, Option<&SecretSource>, Option<&str>),
    ca: Option<&Path>,
    message: &Notification,
) -> Result<(), Undelivered> {
    let (priority, tag) = match message.severity {
        Severity::Info => ("2", "information_source"),
        Severity::Warning => ("3", "warning"),
        Severity::Critical => ("5", "rotating_light"),
    };
    let title: String = header(&message.title).chars().take(TITLE_CHARS).collect();
    let mut headers = vec![
        ("title", title),
        ("priority", priority.to_owned()),
        ("tags", tag.to_owned()),
        ("idempotency-key", message.key.clone()),
    ];
    if let (Some(link), [ticket]) = (link, message.tickets.as_slice()) {
        let link = header(&link.replace("{ticket}", &ticket.to_string()));
        headers.push(("actions", format!("view, Open, {link}")));
    }
    let token = token.map(SecretSource::value).transpose()?;
    headers.extend(token.as_ref().map(|token| ("authorization", format!("Bearer {token}"))));
    let answer = post(&WebRequest { url, headers, body: message.text.as_bytes() }, ca);
    answer.and_then(|a| a.good()).map_err(|e| without(&token.iter().map(String::as_str).collect::<Vec<_>>(), e))
}

pub(super) fn sms(form: &Form, ca: Option<&Path>, message: &Notification) -> Result<(), Undelivered> {
    let (url, mut hidden) = form.url.open()?;
    let text: String = format!("{} {}", message.title, message.text).chars().take(SMS_CHARS).collect();
    let fill = |value: &str| value.replace("{to}", &form.to).replace("{key}", &message.key).replace("{text}", &text);
    let (kind, body) = if form.json {
        let fields: Map<String, Value> =
            form.fields.iter().map(|(name, value)| (name.clone(), Value::String(fill(value)))).collect();
        ("application/json", Value::Object(fields).to_string())
    } else {
        let pairs: Vec<String> =
            form.fields.iter().map(|(name, value)| format!("{}={}", percent(name), percent(&fill(value)))).collect();
        ("application/x-www-form-urlencoded", pairs.join("&"))
    };
    let mut headers = vec![("content-type", kind.to_owned()), ("idempotency-key", message.key.clone())];
    match &form.auth {
        None => {}
        Some(Auth::Bearer(token)) => {
            let token = token.value()?;
            headers.push(("authorization", format!("Bearer {token}")));
            hidden.push(token);
        }
        Some(Auth::Basic { user, password }) => {
            let password = password.value()?;
            let pair = BASE64.encode(format!("{user}:{password}"));
            headers.push(("authorization", format!("Basic {pair}")));
            hidden.extend([password, pair]);
        }
    }
    let answer = post(&WebRequest { url: &url, headers, body: body.as_bytes() }, ca);
    answer.and_then(|a| a.good()).map_err(|e| without(&hidden.iter().map(String::as_str).collect::<Vec<_>>(), e))
}

pub(super) fn webhook(
    url: &Address,
    secret: Option<&SecretSource>,
    ca: Option<&Path>,
    message: &Notification,
) -> Result<(), Undelivered> {
    let (url, mut hidden) = url.open()?;
    let body = as_json(message).to_string();
    let mut headers = vec![("content-type", "application/json".to_owned()), ("idempotency-key", message.key.clone())];
    if let Some(secret) = secret {
        let key = secret.value()?;
        headers.push(("x-everloop-signature", format!("sha256={}", signature(key.as_bytes(), body.as_bytes()))));
        hidden.push(key);
    }
    let answer = post(&WebRequest { url: &url, headers, body: body.as_bytes() }, ca);
    answer.and_then(|a| a.good()).map_err(|e| without(&hidden.iter().map(String::as_str).collect::<Vec<_>>(), e))
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
}
