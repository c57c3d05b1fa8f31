//! `POST /signal/PERSONA`: a signal as JSON or as plain text. Needs the token, unless the gateway is
//! open. A turn's agent gets nowhere here, with or without the token: it is known by its connection,
//! and `everloop signal` is there for it.

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
use everloop_engine::services::ServiceContext;
use everloop_engine::services::signal::{SignalAnswer, SignalRequest, signal};
use serde::Deserialize;
use serde_json::json;
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

/// The paths of the gateway.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new().route("/signal/{persona}", post(send)).route_layer(GlobalConcurrencyLimitLayer::new(MAX_CALLS))
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
    #[serde(alias = "text")]
    body: String,
    class: SignalClass,
    tags: BTreeSet<String>,
    topic: String,
    id: Option<String>,
    from: Option<String>,
}

fn requested(persona: String, headers: &HeaderMap, body: &Bytes) -> Result<SignalRequest, Answer> {
    let kind = text(headers, CONTENT_TYPE).unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let json = if kind.eq_ignore_ascii_case("application/json") {
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

async fn send(State(app): State<Arc<App>>, Path(persona): Path<String>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let wanted = match read(body, MAX_BODY_BYTES).await.and_then(|body| requested(persona, &parts.headers, &body)) {
        Ok(wanted) => wanted,
        Err(refused) => return refused,
    };
    let root = app.port.home.root().to_owned();
    // Services read and write files.
    let called = tokio::task::spawn_blocking(move || {
        let (caller, projects) = (Caller::client(CLIENT), Arc::new(FileProjects));
        let context = ServiceContext { state_dir: Some(root.clone()), dir: root, caller, projects };
        signal(&context, wanted)
    });
    match called.await {
        Ok(Ok(answer)) => taken(&answer),
        Ok(Err(failure)) => refused(&failure),
        Err(e) => Answer::error(500, &e.to_string()),
    }
}

/// The signal is in the ledger; what becomes of it is the persona's business.
fn taken(answer: &SignalAnswer) -> Answer {
    let SignalAnswer { persona, owner, id, class, repeated, .. } = answer;
    let said = json!({
        "schema_version": 1, "persona": persona, "loop": owner, "id": id, "class": class, "repeated": repeated,
    });
    Answer::json(202, &said)
}
