//! Sends a text to a server: one POST, for a bounded time. Only the status of the answer counts.

use std::time::Duration;

use everloop_core::notify::Undelivered;

use crate::exchange::DeliveryError;
use crate::web::{Web, WebRequest};

/// One POST.
#[derive(Clone, Debug)]
pub struct Post {
    /// The address.
    pub url: String,
    /// The bearer token.
    pub token: Option<String>,
    /// The idempotency key: the same in every attempt.
    pub key: String,
    /// JSON.
    pub body: String,
}

/// Sends it in a thread for blocking work.
pub async fn post(post: Post, within: Duration) -> Result<(), DeliveryError> {
    let sent = tokio::task::spawn_blocking(move || send(&post, within)).await;
    sent.unwrap_or_else(|_| Err(DeliveryError::Away("it could not be sent".to_owned())))
}

fn send(post: &Post, within: Duration) -> Result<(), DeliveryError> {
    let host = post.url.split('/').nth(2).unwrap_or_default().to_owned();
    let lost = |e: Undelivered| DeliveryError::Away(format!("`{host}` cannot be reached: {}", e.why));
    let mut headers = vec![("content-type", "application/json".to_owned()), ("idempotency-key", post.key.clone())];
    headers.extend(post.token.as_ref().map(|token| ("authorization", format!("Bearer {token}"))));
    let request = WebRequest { url: &post.url, headers, body: post.body.as_bytes() };
    let answer = Web::new(&post.url, None, within).and_then(|web| web.post(&request)).map_err(lost)?;
    match answer.status {
        200..=299 => Ok(()),
        // The server refuses this one for good. A missing right or address may be repaired, so
        // those are tried again.
        status @ 400..=499 if ![401, 403, 404, 407, 408, 425, 429].contains(&status) => {
            Err(DeliveryError::Refused(format!("`{host}` answered {status}")))
        }
        status => Err(DeliveryError::Away(format!("`{host}` answered {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// A server that answers once with this status; the request is given back.
    fn served(status: u16) -> (Result<(), DeliveryError>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/hooks/x?y=1", listener.local_addr().expect("it is bound"));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client connects");
            let mut asked = Vec::new();
            let mut part = [0; 1024];
            while !asked.ends_with(b"{}") {
                let n = stream.read(&mut part).expect("it sends something");
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
            assert!(matches!(served(status).0, Err(DeliveryError::Away(_))), "{status}");
        }
        for status in [400, 409, 422] {
            assert!(matches!(served(status).0, Err(DeliveryError::Refused(_))), "{status}");
        }
        let nobody =
            Post { url: "http://127.0.0.1:1/x".into(), token: None, key: String::new(), body: "{}".to_owned() };
        assert!(matches!(send(&nobody, Duration::from_secs(5)), Err(DeliveryError::Away(why)) if !why.contains("/x")));
    }
}
