//! Which requests are served. A page in a browser of this machine can send requests here too: Host
//! and Origin distinguish it from a program, on every path and before any other check. Paths that
//! are not open to every program of this machine also need the token of the state folder.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::answer::Answer;
use super::{App, text};

/// Refuses requests that were meant for another machine, or come from a foreign page.
pub async fn from_here(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match checked(request.headers(), app.port.address) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

/// Refuses requests without the token of the state folder.
pub async fn with_token(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if has_token(&app, request.headers()) { next.run(request).await } else { no_token().into_response() }
}

/// Whether the request carries the token of the state folder.
pub fn has_token(app: &App, headers: &HeaderMap) -> bool {
    let bearer = text(headers, AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    bearer.is_some_and(|shown| app.port.token.is(shown))
}

/// The answer to a request without the token.
pub fn no_token() -> Answer {
    Answer::error(401, "send the token of the state folder: `Authorization: Bearer …`")
}

fn checked(headers: &HeaderMap, address: SocketAddr) -> Result<(), Answer> {
    // Two Host headers are read differently by different programs: neither is trusted.
    let one = |name: &HeaderName| headers.get_all(name).iter().count() <= 1;
    let given = |name: &HeaderName| headers.contains_key(name).then(|| text(headers, name).unwrap_or_default());
    // A name that a foreign page made resolve to this machine (DNS rebinding) is not ours.
    if !one(&HOST) || !given(&HOST).is_some_and(|host| is_ours(host, address)) {
        return Err(Answer::error(421, "the Host header names another machine; use 127.0.0.1 and the port"));
    }
    let foreign = |origin: &str| !origin.strip_prefix("http://").is_some_and(|host| is_ours(host, address));
    if !one(&ORIGIN) || given(&ORIGIN).is_some_and(foreign) {
        return Err(Answer::error(403, "requests of another origin are not served"));
    }
    Ok(())
}

fn is_ours(host: &str, address: SocketAddr) -> bool {
    let port = address.port();
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| *host == format!("{name}:{port}"))
        || host == address.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(pairs: &[(HeaderName, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value.parse().expect("the test writes good headers"));
        }
        checked(&headers, "127.0.0.1:9300".parse().expect("an address")).is_ok()
    }

    #[test]
    fn only_our_own_names_are_answered() {
        for good in ["127.0.0.1:9300", "localhost:9300", "[::1]:9300"] {
            assert!(served(&[(HOST, good)]), "{good}");
            assert!(served(&[(HOST, good), (ORIGIN, &format!("http://{good}"))]), "{good}");
        }
        assert!(!served(&[]));
        assert!(!served(&[(HOST, "127.0.0.1:9300"), (HOST, "evil.example:9300")]));
        for bad in
            ["127.0.0.1", "localhost:80", "evil.example:9300", "localhost.evil.example:9300", "127.0.0.1:9300.x", ""]
        {
            assert!(!served(&[(HOST, bad)]), "{bad}");
        }
        for bad in ["null", "https://127.0.0.1:9300", "http://evil.example", "http://127.0.0.1:9301", "127.0.0.1:9300"]
        {
            assert!(!served(&[(HOST, "127.0.0.1:9300"), (ORIGIN, bad)]), "{bad}");
        }
    }
}
