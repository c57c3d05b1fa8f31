//! `POST /signal/PERSONA`: a signal as JSON or as plain text. `POST /xadd/STREAM`: an entry of a
//! stream, as `field:value`, as a form or as JSON. Needs the token, unless the gateway is
//! open. A turn's agent gets nowhere here, with or without the token: it is known by its connection,
//! and `everloop signal` is there for it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use everloop_core::rhythm::signal::{BODY_MAX_BYTES, SignalClass};
use everloop_engine::caller::{Caller, Peer};
use everloop_engine::error::Failure;
use everloop_engine::services::ServiceContext;
use everloop_engine::services::persona::is_known;
use everloop_engine::services::signal::{SignalRequest, signal};
use everloop_engine::services::stream::{EntryRequest, add};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tower::limit::GlobalConcurrencyLimitLayer;

use super::answer::{Answer, read};
use super::read::{CLIENT, refused};
use super::serve::PeerAddress;
use super::{App, Gateway, access, text};
use crate::config::FileProjects;

/// Each call holds a thread and a connection to the ledger.
const MAX_CALLS: usize = 4;
/// JSON may need more than the body of its signal: escapes and the other keys.
const MAX_BODY_BYTES: usize = 4 * BODY_MAX_BYTES;

/// Characters of a part that an error repeats.
const SHOWN_CHARS: usize = 40;

/// The paths of the gateway.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/signal/{persona}", post(send))
        .route("/xadd/{stream}", post(xadd))
        .route_layer(GlobalConcurrencyLimitLayer::new(MAX_CALLS))
}

/// Refuses programs that may not send signals.
pub(super) async fn admitted(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let has_token = access::has_token(&app, request.headers());
    if !has_token && app.gateway == Gateway::Token {
        return access::no_token().into_response();
    }
    let address = request.extensions().get::<PeerAddress>().copied();
    let (home, here) = (app.port.home.clone(), app.port.address);
    // The tables of the kernel are files.
    let peer = tokio::task::spawn_blocking(move || {
        address.map_or(Peer::Unknown, |PeerAddress(address)| Peer::of(&home, address, here))
    });
    match peer.await.unwrap_or(Peer::Unknown) {
        Peer::Job(name) => {
            let what = format!("this program belongs to turn {name}, which sends signals with `everloop signal`");
            Answer::error(403, &what).into_response()
        }
        Peer::Unknown if !has_token => {
            let what = "it is not known which program this is; send the token of the state folder";
            Answer::error(403, what).into_response()
        }
        Peer::Unknown | Peer::Program => next.run(request).await,
    }
}

/// A signal as JSON.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SignalJson {
    body: String,
    class: SignalClass,
    tags: BTreeSet<String>,
    topic: String,
    id: Option<String>,
    from: Option<String>,
}

/// Whether a body says that it is JSON.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = text(headers, CONTENT_TYPE).unwrap_or_default().split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

fn requested(persona: String, headers: &HeaderMap, body: &Bytes) -> Result<SignalRequest, Answer> {
    let json = if is_json(headers) {
        let hint = "an object with `body`, `class`, `tags`, `topic`, `id` and `from`";
        serde_json::from_slice(body).map_err(|e| Answer::error(400, &format!("not a signal: {e}; hint: {hint}")))?
    } else {
        let Ok(body) = std::str::from_utf8(body) else { return Err(Answer::error(400, "the text is not UTF-8")) };
        SignalJson { body: body.to_owned(), ..SignalJson::default() }
    };
    let SignalJson { body, class, tags, topic, id, from } = json;
    let from = Some(from.unwrap_or_else(|| CLIENT.to_owned()));
    Ok(SignalRequest { persona, text: body, class, tags, topic, id, from })
}

/// The fields of an entry. The parts of a form are `field:value`, taken as they are, or `field=value`
/// with the escapes of forms.
fn fields(headers: &HeaderMap, body: &Bytes) -> Result<Vec<(String, String)>, Answer> {
    if is_json(headers) {
        let found: Map<String, Value> = serde_json::from_slice(body)
            .map_err(|e| Answer::error(400, &format!("not an entry: {e}; hint: an object with the fields")))?;
        let plain = |value: Value| if let Value::String(text) = value { text } else { value.to_string() };
        return Ok(found.into_iter().map(|(name, value)| (name, plain(value))).collect());
    }
    let Ok(body) = std::str::from_utf8(body) else { return Err(Answer::error(400, "the body is not UTF-8")) };
    body.split('&').filter(|part| !part.is_empty()).map(field).collect()
}

fn field(part: &str) -> Result<(String, String), Answer> {
    let wrong = || {
        let shown: String = part.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
        Answer::error(400, &format!("`{shown}` is no field; hint: field:value or field=value"))
    };
    let at = part.find([':', '=']).ok_or_else(wrong)?;
    let (name, value) = (&part[..at], &part[at + 1..]);
    if part.as_bytes()[at] == b':' {
        return Ok((name.to_owned(), value.to_owned()));
    }
    Ok((unescaped(name).ok_or_else(wrong)?, unescaped(value).ok_or_else(wrong)?))
}

/// A part of a form without its escapes; `None` if one is broken.
pub(super) fn unescaped(text: &str) -> Option<String> {
    let is_digits = |rest: &str| rest.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    if !text.split('%').skip(1).all(is_digits) {
        return None;
    }
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().ok().map(Cow::into_owned)
}

async fn xadd(State(app): State<Arc<App>>, Path(stream): Path<String>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let fields = match read(body, MAX_BODY_BYTES).await.and_then(|body| fields(&parts.headers, &body)) {
        Ok(fields) => fields,
        Err(refused) => return refused,
    };
    let id = text(&parts.headers, "idempotency-key").map(str::to_owned);
    let added = call(&app, move |context| add(context, EntryRequest { stream, fields, id })).await;
    added.map_or_else(|refused| refused, |answer| accepted(&answer))
}

async fn send(State(app): State<Arc<App>>, Path(persona): Path<String>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let wanted = match read(body, MAX_BODY_BYTES).await.and_then(|body| requested(persona, &parts.headers, &body)) {
        Ok(wanted) => wanted,
        Err(refused) => return refused,
    };
    let name = wanted.persona.clone();
    match call(&app, move |context| signal(context, wanted)).await {
        Ok(answer) => accepted(&answer),
        Err(refused) => {
            let known = call(&app, move |context| is_known(context, &name)).await;
            if known.is_ok_and(|known| !known) { refused.with_status(404) } else { refused }
        }
    }
}

/// Calls a service. Services read and write files, so each call gets a thread.
async fn call<T: Send + 'static>(
    app: &App,
    service: impl FnOnce(&ServiceContext) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Answer> {
    let root = app.port.home.root().to_owned();
    let called = tokio::task::spawn_blocking(move || {
        let (caller, projects) = (Caller::client(CLIENT), Arc::new(FileProjects));
        let context = ServiceContext { state_dir: Some(root.clone()), dir: root, caller, projects };
        service(&context)
    });
    match called.await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(failure)) => Err(refused(&failure)),
        Err(e) => Err(Answer::error(500, &e.to_string())),
    }
}

/// It is in the ledger; what becomes of it is the persona's business.
fn accepted(answer: &impl Serialize) -> Answer {
    let mut said = serde_json::to_value(answer).expect("answers are plain data and always have a JSON form");
    said["schema_version"] = json!(1);
    Answer::json(202, &said)
}

#[cfg(test)]
mod tests {
    use everloop_core::jitter::mix;
    use everloop_testkit::budget::Budget;

    use super::*;

    /// Bodies of pieces that mean something and of any bytes: no case panics, and what is read has no
    /// escape left that was not written.
    #[test]
    fn long_no_body_breaks_the_gateway() {
        const PIECES: &[&[u8]] = &[
            b"status",
            b":",
            b"=",
            b"&",
            b"%",
            b"%2",
            b"%26",
            b"%zz",
            b"%ff",
            b"%C3%A4",
            b"+",
            b"{",
            b"}",
            b"\"",
            b",",
            b"body",
            b"class",
            b"high",
            b"\\u0000",
            b"[",
            b"1e999",
            b"\0",
            b"\xff",
            b"\xc3",
            "ä€".as_bytes(),
            b"\r\n",
        ];
        const CASES: u64 = 1_000_000;
        /// Cases of one seed.
        const BATCH: u64 = 1_000;
        let mut json = HeaderMap::new();
        json.insert(CONTENT_TYPE, "application/json; charset=utf-8".parse().expect("a type"));
        let try_one = |case: u64| {
            let piece = |n| PIECES[(mix(case, n) % PIECES.len() as u64) as usize];
            let body: Vec<u8> = (1..=mix(case, 0) % 12).flat_map(piece).copied().collect();
            let headers = if mix(case, 99).is_multiple_of(2) { json.clone() } else { HeaderMap::new() };
            let bytes = Bytes::from(body.clone());
            if let Ok(read) = fields(&headers, &bytes) {
                let wide = read.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
                assert!(wide <= 6 * body.len(), "case {case}: {read:?} of {body:?}");
            }
            if let Ok(wanted) = requested("echo".to_owned(), &headers, &bytes) {
                assert!(wanted.text.len() <= body.len(), "case {case}: {:?} of {body:?}", wanted.text);
            }
        };
        let seeds = Budget::new(CASES / BATCH).seeds(|seed| (seed * BATCH..(seed + 1) * BATCH).for_each(try_one));
        assert!(seeds.end - seeds.start >= CASES / BATCH);
    }

    #[test]
    fn fields_are_read_as_curl_and_forms_send_them() {
        let read = |body: &str| fields(&HeaderMap::new(), &Bytes::from(body.to_owned())).ok();
        let pairs = |all: &[(&str, &str)]| Some(all.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect());
        assert_eq!(read("at:12:30&status:A=B"), pairs(&[("at", "12:30"), ("status", "A=B")]));
        assert_eq!(read("a+b=c%26d&e=1:2&"), pairs(&[("a b", "c&d"), ("e", "1:2")]));
        assert_eq!(read("x:"), pairs(&[("x", "")]));
        for bad in ["plain", "a=%", "a=%2", "a=%zz", "a=%ff", "a:b&c"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
