//! The HTTP face of the supervisor's port, on loopback: health and figures for people and monitors,
//! telemetry from agents, tools for agents.
//!
//! - here: the routes and the limits in front of them
//! - `serve`: connections: how many, for how long
//! - `access`: which requests are served; `answer`: what goes out, and how much may come in
//! - `health`: `GET /health`; `metrics`: `GET /metrics`; `look`: what both read in the ledger
//! - `telemetry`: `POST /v1/metrics` and `/v1/logs`
//! - `gateway`: `POST /signal/PERSONA` and `POST /xadd/STREAM`
//! - `mcp`: `POST /mcp`; `read`: `GET /api/VERB`, what verbs that read answer
//! - `dashboard`: pages for a person that logged in
//!
//! Nothing here decides, and nothing but `mcp`, `gateway` and the actions of `dashboard` writes to
//! the ledger. No request makes the supervisor wait: the ledger is read on threads of their own.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::error_handling::HandleErrorLayer;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::{AsHeaderName, CACHE_CONTROL, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use axum::routing::{get, post};
use axum::{BoxError, Router, middleware};
use everloop_engine::port::{PortState, ServePort};
use tokio::sync::Semaphore;
use tower::ServiceBuilder;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower_http::compression::CompressionLayer;
use tower_http::set_header::SetResponseHeaderLayer;

mod access;
mod answer;
pub mod dashboard;
mod gateway;
mod health;
mod look;
mod mcp;
mod metrics;
mod read;
mod serve;
mod telemetry;

use answer::Answer;

/// A whole request with its body, and our answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Each call holds a thread and a connection to the ledger.
const MAX_MCP_CALLS: usize = 8;
/// Each holds a thread, and may run git.
const MAX_READS: usize = 4;

/// Whether signals need the token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gateway {
    /// They need it, whichever program sends them.
    #[default]
    Token,
    /// Those of programs on this machine need none.
    Open,
}

/// Serves a supervisor's port over HTTP.
#[derive(Clone, Copy, Debug, Default)]
pub struct Http {
    pub gateway: Gateway,
}

impl ServePort for Http {
    fn serve(&self, listener: TcpListener, state: Arc<PortState>) {
        serve::spawn(listener, router(state, self.gateway));
    }
}

/// What handlers get.
struct App {
    port: Arc<PortState>,
    gateway: Gateway,
    looked: look::Cache,
    /// Permits of calls of verbs that read.
    reads: Arc<Semaphore>,
    dashboard: dashboard::Dashboard,
}

fn router(port: Arc<PortState>, gateway: Gateway) -> Router {
    let dashboard = dashboard::Dashboard::new(&port);
    let (looked, reads) = (look::Cache::default(), Arc::new(Semaphore::new(MAX_READS)));
    let app = Arc::new(App { port, gateway, looked, reads, dashboard });
    // Open to every program of this machine. These pages contain no secrets, so they may be
    // compressed.
    let open = Router::new()
        .route("/health", get(health::health))
        .route("/metrics", get(metrics::metrics))
        .layer(CompressionLayer::new());
    // With the secret of a turn, which the handlers check.
    let turns = Router::new().route("/v1/metrics", post(telemetry::metrics)).route("/v1/logs", post(telemetry::logs));
    let tools = Router::new()
        .route("/mcp", post(mcp::mcp).with_state(mcp::service(&app.port.home)))
        .route_layer(GlobalConcurrencyLimitLayer::new(MAX_MCP_CALLS));
    let private =
        tools.merge(read::routes()).route_layer(middleware::from_fn_with_state(Arc::clone(&app), access::with_token));
    let signals = gateway::routes().route_layer(middleware::from_fn_with_state(Arc::clone(&app), gateway::admitted));
    let limits = ServiceBuilder::new()
        .layer(SetResponseHeaderLayer::if_not_present(CACHE_CONTROL, HeaderValue::from_static("no-store")))
        .layer(SetResponseHeaderLayer::if_not_present(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), access::from_here))
        .layer(HandleErrorLayer::new(|_: BoxError| async { Answer::error(408, "the request took too long") }))
        .timeout(REQUEST_TIMEOUT);
    open.merge(turns)
        .merge(private)
        .merge(signals)
        .merge(dashboard::routes(&app))
        .fallback(elsewhere)
        .method_not_allowed_fallback(|| async { Answer::error(405, "this path takes another method, see Allow") })
        .layer(limits)
        .with_state(app)
}

/// Which paths there are is not for programs without the token.
async fn elsewhere(State(app): State<Arc<App>>, request: Request) -> Answer {
    if access::has_token(&app, request.headers()) {
        Answer::error(404, "there is nothing here")
    } else {
        access::no_token()
    }
}

/// A header as text; `None` when it is not there or no text.
fn text(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}
