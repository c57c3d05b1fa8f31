//! The supervisor's side of its port: when it is bound, what is served there, and which secrets
//! open it. Holds no HTTP types: a program that embeds the supervisor attaches the HTTP face
//! through [`ServePort`].
//!
//! - `bind`: the socket, and where the state folder records it

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use everloop_agents::clock;
use everloop_core::ids::{NodeId, TurnId};
use everloop_core::time::Time;

use crate::figures::Figures;
use crate::state_folder::StateFolder;
use crate::telemetry::{TelemetryLine, TurnTelemetry};

mod bind;

use crate::token::Token;
use bind::BoundPort;

/// Where `everloop up` listens by default.
pub const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9300);

/// Whether and where a supervisor serves its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Not at all.
    Off,
    /// Here, from the beginning.
    At(SocketAddr),
    /// Anywhere, once an agent has telemetry to send.
    OnDemand,
}

/// Serves a bound port. Implemented outside of the supervisor, which knows no HTTP.
pub trait ServePort: Send {
    /// Serves until the runtime ends. Called once per port, inside of the runtime.
    fn serve(&self, listener: TcpListener, state: Arc<PortState>);
}

/// What every answer of the port is made from.
pub struct PortState {
    pub home: StateFolder,
    pub node: NodeId,
    pub role: &'static str,
    pub since: Time,
    pub address: SocketAddr,
    pub token: Token,
    pub figures: Arc<Figures>,
    pub telemetry: TurnTelemetry,
}

/// The port as its supervisor sees it.
pub struct Port {
    listen: Listen,
    face: Option<Box<dyn ServePort>>,
    home: StateFolder,
    node: NodeId,
    role: &'static str,
    since: Time,
    /// Bound and not served yet.
    bound: Option<BoundPort>,
    served: Option<Arc<PortState>>,
    figures: Arc<Figures>,
    telemetry: TurnTelemetry,
}

impl Port {
    /// Binds the port, if it is wanted from the beginning. A supervisor works without one.
    pub fn new(
        listen: Listen,
        face: Option<Box<dyn ServePort>>,
        role: &'static str,
        node: NodeId,
        home: &StateFolder,
    ) -> Self {
        let mut port = Self {
            listen: if face.is_some() { listen } else { Listen::Off },
            face,
            home: home.clone(),
            node,
            role,
            since: clock::now(),
            bound: None,
            served: None,
            figures: Arc::default(),
            telemetry: TurnTelemetry::default(),
        };
        if let Listen::At(wanted) = port.listen {
            port.bind(Some(wanted));
        }
        port
    }

    /// The address that the port listens on; `None` while it is closed.
    pub fn address(&self) -> Option<SocketAddr> {
        let served = || self.served.as_ref().map(|state| state.address);
        self.bound.as_ref().map(|bound| bound.address).or_else(served)
    }

    /// What the supervisor publishes while it works, served or not.
    pub fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    fn bind(&mut self, wanted: Option<SocketAddr>) {
        match BoundPort::bind(wanted, &self.home) {
            Ok(bound) => self.bound = Some(bound),
            Err(error) => {
                tracing::warn!(error, "no port for health and metrics; everything else works without");
                self.listen = Listen::Off;
            }
        }
    }

    /// Serves a port that was bound. Needs the runtime.
    pub fn serve(&mut self) {
        let (Some(bound), Some(face)) = (self.bound.take(), &self.face) else { return };
        let token = match Token::of(&self.home) {
            Ok(token) => token,
            Err(error) => {
                tracing::warn!(error, "no token for the port; everything else works without");
                self.listen = Listen::Off;
                return;
            }
        };
        let state = Arc::new(PortState {
            home: self.home.clone(),
            node: self.node.clone(),
            role: self.role,
            since: self.since,
            address: bound.address,
            token,
            figures: Arc::clone(&self.figures),
            telemetry: self.telemetry.clone(),
        });
        self.served = Some(Arc::clone(&state));
        face.serve(bound.listener, state);
    }

    /// Where a turn's agent can send its telemetry.
    pub fn line(&mut self, turn: &TurnId) -> Option<TelemetryLine> {
        if self.listen == Listen::OnDemand && self.served.is_none() {
            self.bind(None);
            self.serve();
        }
        let state = self.served.as_ref()?;
        Some(self.telemetry.open(turn, state.address, &state.token))
    }
}
