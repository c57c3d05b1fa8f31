//! Tells a server something: one POST of a text, for a bounded time. What it answers is not read; whether it took it is all that
//! is known.

use std::time::Duration;

use ureq::Agent;
use ureq::http::Uri;

use crate::api::http::{is_loopback, tls};
use crate::tell::Unheard;

/// One thing to tell.
#[derive(Clone, Debug)]
pub struct Post {
    /// Where to.
    pub url: String,
    /// What opens the door there.
    pub token: Option<String>,
    /// The same when it is told again.
    pub key: String,
    /// What; JSON.
    pub body: String,
}

/// What is wrong with an address: only this machine is talked to in the open. The address itself is not shown: a path or a
/// query may hold a secret.
pub fn check(url: &str) -> Result<(), String> {
    let uri: Uri = url.trim().parse().map_err(|_| "is no address; write `https://HOST[:PORT]/PATH`".to_owned())?;
    let Some(authority) = uri.authority() else { return Err("names no host; write `https://HOST[:PORT]/PATH`".into()) };
    if authority.as_str().contains('@') {
        return Err("holds a password; give it by `token_env` or `token_file`".to_owned());
    }
    match uri.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if is_loopback(authority.host()) => Ok(()),
        Some("http") => Err("would be told in the open; use `https://`".to_owned()),
        _ => Err("is neither https nor http; use `https://`".to_owned()),
    }
}

/// Posts it, apart from everybody who must not wait.
pub async fn post(post: Post, within: Duration) -> Result<(), Unheard> {
    let sent = tokio::task::spawn_blocking(move || send(&post, within)).await;
    sent.unwrap_or_else(|_| Err(Unheard::Away("it could not be sent".to_owned())))
}

fn send(post: &Post, within: Duration) -> Result<(), Unheard> {
    check(&post.url).map_err(|why| Unheard::Away(format!("the address {why}")))?;
    let host = post.url.split('/').nth(2).unwrap_or_default().to_owned();
    let config = Agent::config_builder()
        .http_status_as_error(false)
        // A redirect would take the token to somebody whom nobody named.
        .max_redirects(0)
        .user_agent(concat!("everloop/", env!("CARGO_PKG_VERSION")))
        .timeout_global(Some(within));
    let config = if post.url.trim_start().starts_with("https") {
        config.tls_config(tls(None).map_err(Unheard::Away)?)
    } else {
        config.proxy(None)
    };
    let mut request = config.build().new_agent().post(post.url.trim()).header("content-type", "application/json");
    if let Some(token) = &post.token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let answer = request.header("idempotency-key", &post.key).send(post.body.as_bytes());
    match answer.map(|answer| answer.status().as_u16()) {
        Ok(200..=299) => Ok(()),
        // It is there and does not want this one. Who does not let us in, or is not there, may change his mind.
        Ok(status @ 400..=499) if ![401, 403, 404, 407, 408, 425, 429].contains(&status) => {
            Err(Unheard::Refused(format!("`{host}` answered {status}")))
        }
        Ok(status) => Err(Unheard::Away(format!("`{host}` answered {status}"))),
        Err(e) => Err(Unheard::Away(format!("`{host}` cannot be reached: {e}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// A server that answers once with this status; what it was asked is given back.
    fn served(status: u16) -> (Result<(), Unheard>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/hooks/x?y=1", listener.local_addr().expect("it is bound"));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody comes");
            let mut asked = Vec::new();
            let mut part = [0; 1024];
            while !asked.ends_with(b"{}") {
                let n = stream.read(&mut part).expect("it says something");
                asked.extend_from_slice(&part[..n]);
            }
            let answer = format!("HTTP/1.1 {status} x\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).expect("it listens");
            String::from_utf8_lossy(&asked).into_owned()
        });
        let post = Post { url, token: Some("s3cret".to_owned()), key: "t:claim:1".to_owned(), body: "{}".to_owned() };
        (send(&post, Duration::from_secs(10)), server.join().expect("it ends"))
    }

    #[test]
    fn it_is_told_with_its_token_and_its_key() {
        let (told, asked) = served(204);
        assert_eq!(told, Ok(()));
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
            assert!(matches!(served(status).0, Err(Unheard::Away(_))), "{status}");
        }
        for status in [400, 409, 422] {
            assert!(matches!(served(status).0, Err(Unheard::Refused(_))), "{status}");
        }
        let nobody =
            Post { url: "http://127.0.0.1:1/x".into(), token: None, key: String::new(), body: "{}".to_owned() };
        assert!(matches!(send(&nobody, Duration::from_secs(5)), Err(Unheard::Away(why)) if !why.contains("/x")));
    }

    #[test]
    fn nothing_is_told_in_the_open() {
        for good in ["https://example.org/x", "http://localhost:80/x", "http://127.0.0.1:9/"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["http://example.org/x", "ftp://localhost/x", "x", "", "https://me:pw@example.org/"] {
            let why = check(bad).expect_err(bad);
            assert!(!why.contains("pw"), "{why}");
        }
    }
}
