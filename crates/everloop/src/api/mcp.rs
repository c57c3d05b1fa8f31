//! `POST /mcp`: the tools of `everloop mcp` over HTTP, a message per request and an answer per message. Needs the token.
//!
//! The only path that writes to the ledger, and it does so as a verb of the command line would: on a thread of its own, with
//! the owner told by the bell.

use hyper::Request;
use hyper::body::Incoming;

use super::Shared;
use super::answer::{Answer, read};
use crate::mcp::{REQUEST_MAX_BYTES, Server};

pub async fn mcp(shared: &Shared, request: Request<Incoming>) -> Answer {
    if !shared.token.is_shown(request.headers()) {
        return Answer::error(401, "send the token of the state folder: `Authorization: Bearer …`");
    }
    let body = match read(request.into_body(), REQUEST_MAX_BYTES).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let root = shared.home.root().to_owned();
    let answer = tokio::task::spawn_blocking(move || {
        // A client on the other end of a socket is in no folder: loops are meant by name.
        Server::new(root.clone(), Some(root), None).answer(&body)
    });
    match answer.await {
        Ok(Some(answer)) => Answer::json(200, &answer),
        // There is nothing to say to what only tells us something.
        Ok(None) => Answer::accepted(),
        Err(error) => Answer::error(500, &error.to_string()),
    }
}
