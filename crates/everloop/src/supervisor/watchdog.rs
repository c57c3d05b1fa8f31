//! What the service manager is told (`sd_notify`): that the supervisor is ready, that its loop goes round, that it goes.
//!
//! The sign of life is sent by the loop itself, never by a timer beside it: a loop that hangs is silent, and is started again.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

/// Where to; set by the manager.
const SOCKET: &str = "NOTIFY_SOCKET";
/// How long it waits for a sign of life, in microseconds.
const PERIOD: &str = "WATCHDOG_USEC";

/// The line to the service manager; nothing when nobody listens.
pub(super) struct Watchdog {
    socket: Option<UnixDatagram>,
    period: Option<Duration>,
    told: Option<Instant>,
}

impl Watchdog {
    /// As the environment says.
    pub fn new() -> Self {
        let socket = std::env::var(SOCKET).ok().filter(|name| !name.is_empty()).and_then(|name| {
            connect(&name)
                .inspect_err(|e| tracing::warn!(error = %e, "the service manager cannot be told anything"))
                .ok()
        });
        let period = std::env::var(PERIOD).ok().and_then(|text| text.parse().ok()).map(Duration::from_micros);
        Self { period: period.filter(|_| socket.is_some()), socket, told: None }
    }

    /// The longest sleep after which a sign of life still comes in time.
    pub fn nap(&self) -> Option<Duration> {
        self.period.map(|period| period / 3)
    }

    /// All loops were looked at once.
    pub fn ready(&self) {
        self.say("READY=1");
    }

    /// The loop goes round. A busy one does not say so every time.
    pub fn alive(&mut self) {
        let Some(period) = self.period else { return };
        if self.told.is_none_or(|at| at.elapsed() >= period / 6) {
            self.told = Some(Instant::now());
            self.say("WATCHDOG=1");
        }
    }

    /// It goes.
    pub fn stopping(&self) {
        self.say("STOPPING=1");
    }

    fn say(&self, what: &str) {
        if let Some(Err(error)) = self.socket.as_ref().map(|socket| socket.send(what.as_bytes())) {
            tracing::debug!(%error, what, "the service manager did not hear it");
        }
    }
}

/// A path, or with `@` a name of Linux' own.
fn connect(name: &str) -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not stop the loop.
    socket.set_nonblocking(true)?;
    match name.strip_prefix('@') {
        None => socket.connect(name)?,
        #[cfg(target_os = "linux")]
        Some(hidden) => {
            use std::os::linux::net::SocketAddrExt;
            use std::os::unix::net::SocketAddr;
            socket.connect_addr(&SocketAddr::from_abstract_name(hidden)?)?;
        }
        #[cfg(not(target_os = "linux"))]
        Some(_) => return Err(std::io::ErrorKind::Unsupported.into()),
    }
    Ok(socket)
}
