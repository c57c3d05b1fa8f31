//! `POST /mcp`: the tools of `everloop mcp` over streamable HTTP, without sessions: every request
//! stands for itself and is answered with one JSON message. Needs the token.
//!
//! It writes to the ledger as a verb of the command line would: on a thread of its own, with a hint
//! to the supervisor.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, HeaderValue};
use axum::response::{IntoResponse, Response};
use everloop_engine::state_folder::StateFolder;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};

use super::answer::{Answer, read};
use crate::mcp::{Identity, MAX_MESSAGE_BYTES, Server};

/// Serves messages of MCP.
pub type McpService = StreamableHttpService<Server, NeverSessionManager>;

/// The service for a state folder.
pub fn service(home: &StateFolder) -> McpService {
    let root = home.root().to_owned();
    // A client on the other end of a socket is in no folder: loops are meant by name.
    let server = move || Ok(Server::new(root.clone(), Some(root.clone()), None, Identity::Request));
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(MAX_MESSAGE_BYTES)
        // `access` checked Host and Origin already, and more strictly: with the port.
        .disable_allowed_hosts();
    StreamableHttpService::new(server, Arc::new(NeverSessionManager::default()), config)
}

/// Answers one message.
pub async fn mcp(State(service): State<McpService>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let body = match read(body, MAX_MESSAGE_BYTES).await {
        Ok(body) => body,
        Err(refused) => return refused.into_response(),
    };
    if let Err(e) = serde_json::from_slice::<Value>(&body) {
        let error = json!({ "code": -32700, "message": format!("not JSON: {e}") });
        return Answer::json(200, &json!({ "jsonrpc": "2.0", "id": null, "error": error })).into_response();
    }
    // The answer is JSON for every client, so a missing wish for a stream is no reason to refuse.
    parts.headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    service.handle(Request::from_parts(parts, Body::from(body))).await.into_response()
}
