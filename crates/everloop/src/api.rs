//! The supervisor's HTTP port, on loopback: health and figures for people and monitors, telemetry from agents.
//!
//! - here: the owner's side, and which path is answered by which file
//! - `port`: the socket: where it is found again, how many may connect and for how long
//! - `access`: who may ask; `answer`: what goes out, and how much may come in
//! - `health`: `GET /health`; `metrics`: `GET /metrics`; `look`: what both read in the ledger; `figures`: what the owner counts
//! - `telemetry`: `POST /v1/metrics` and `/v1/logs`, sorted by turn
//! - `mcp`: `POST /mcp`, the verbs of the command line for agents
//!
//! Nothing here decides, and nothing but `mcp` writes to the ledger. No request makes the owner wait: what reads the ledger does so on a
//! thread of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use everloop_agents::clock;
use everloop_core::ids::{NodeId, TurnId};
use everloop_core::time::Time;
use hyper::Request;
use hyper::body::Incoming;

use crate::state_folder::StateFolder;

mod access;
mod answer;
mod figures;
mod health;
mod look;
mod mcp;
mod metrics;
mod port;
mod telemetry;

use access::Token;
use answer::Answer;
pub use figures::{Figures, Membership, Wake};
use port::Port;
pub use telemetry::Line;
use telemetry::{Desk, Signal};

/// Where `everloop up` listens when nobody says anything.
pub const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9300);

/// Whether and where a supervisor answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Not at all.
    Off,
    /// Here, from the beginning.
    At(SocketAddr),
    /// Anywhere, once an agent has something to send.
    OnDemand,
}

/// What every answer is made from.
struct Shared {
    home: StateFolder,
    node: NodeId,
    role: &'static str,
    since: Time,
    address: SocketAddr,
    token: Token,
    figures: Arc<Figures>,
    sender: Desk,
    looked: look::Cache,
}

/// The owner's side of the port.
pub struct Api {
    listen: Listen,
    home: StateFolder,
    node: NodeId,
    role: &'static str,
    since: Time,
    /// Bound and not served yet.
    bound: Option<Port>,
    /// Served.
    shared: Option<Arc<Shared>>,
    figures: Arc<Figures>,
    sender: Desk,
}

impl Api {
    /// Takes the port, if one is wanted from the beginning. Without one the supervisor works all the same.
    pub fn new(listen: Listen, role: &'static str, node: NodeId, home: &StateFolder) -> Self {
        let mut api = Self {
            listen,
            home: home.clone(),
            node,
            role,
            since: clock::now(),
            bound: None,
            shared: None,
            figures: Arc::default(),
            sender: Desk::default(),
        };
        if let Listen::At(wanted) = listen {
            api.bind(Some(wanted));
        }
        api
    }

    /// Where it answers.
    pub fn address(&self) -> Option<SocketAddr> {
        self.bound.as_ref().map(|port| port.address).or_else(|| self.shared.as_ref().map(|shared| shared.address))
    }

    /// What the owner counts while he works.
    pub fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    fn bind(&mut self, wanted: Option<SocketAddr>) {
        match Port::bind(wanted, &self.home) {
            Ok(port) => self.bound = Some(port),
            Err(error) => {
                tracing::warn!(error, "no port for health and metrics; everything else works without");
                self.listen = Listen::Off;
            }
        }
    }

    /// Begins to answer on a port that was taken. Needs the runtime.
    pub fn serve(&mut self) {
        let Some(port) = self.bound.take() else { return };
        let token = match Token::of(&self.home) {
            Ok(token) => token,
            Err(error) => {
                tracing::warn!(error, "no token for the port; everything else works without");
                self.listen = Listen::Off;
                return;
            }
        };
        let shared = Arc::new(Shared {
            home: self.home.clone(),
            node: self.node.clone(),
            role: self.role,
            since: self.since,
            address: port.address,
            token,
            figures: Arc::clone(&self.figures),
            sender: self.sender.clone(),
            looked: look::Cache::default(),
        });
        self.shared = Some(Arc::clone(&shared));
        port.serve(shared);
    }

    /// Where a turn's agent can send its telemetry.
    pub fn line(&mut self, turn: &TurnId) -> Option<Line> {
        if self.listen == Listen::OnDemand && self.shared.is_none() {
            self.bind(None);
            self.serve();
        }
        let shared = self.shared.as_ref()?;
        Some(self.sender.open(turn, shared.address, &shared.token))
    }
}

/// Which path is answered by which file. The order of the checks is that of their cost.
async fn route(shared: &Shared, request: Request<Incoming>) -> Answer {
    if let Err(refused) = access::from_here(request.headers(), shared.address) {
        return refused;
    }
    let path = request.uri().path().to_owned();
    match (request.method().as_str(), path.as_str()) {
        ("GET", "/health") => health::health(shared).await,
        ("GET", "/metrics") => metrics::metrics(shared).await,
        ("POST", "/v1/metrics") => telemetry::take(shared, Signal::Counters, request).await,
        ("POST", "/v1/logs") => telemetry::take(shared, Signal::Events, request).await,
        ("POST", "/mcp") => mcp::mcp(shared, request).await,
        (_, "/health" | "/metrics") => Answer::wrong_method("GET"),
        (_, "/v1/metrics" | "/v1/logs" | "/mcp") => Answer::wrong_method("POST"),
        _ if shared.token.is_shown(request.headers()) => Answer::error(404, "there is nothing here"),
        _ => Answer::error(401, "send the token of the state folder: `Authorization: Bearer …`"),
    }
}
