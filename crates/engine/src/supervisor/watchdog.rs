//! Reports to the service manager (`sd_notify`): the supervisor is ready, its loop runs, it stops.
//!
//! The heartbeat is sent by the loop itself, never by a timer beside it: a loop that hangs is
//! silent, and is restarted.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

/// The manager's socket; set by the manager.
const SOCKET: &str = "NOTIFY_SOCKET";
/// The watchdog timeout, in microseconds.
const PERIOD: &str = "WATCHDOG_USEC";

/// The connection to the service manager; absent without one.
pub(super) struct Watchdog {
    socket: Option<UnixDatagram>,
    period: Option<Duration>,
    told: Option<Instant>,
}

impl Watchdog {
    /// From the environment.
    pub fn new() -> Self {
        let socket = std::env::var(SOCKET).ok().filter(|name| !name.is_empty()).and_then(|name| {
            connect(&name).inspect_err(|e| tracing::warn!(error = %e, "cannot connect to the service manager")).ok()
        });
        let period = std::env::var(PERIOD).ok().and_then(|text| text.parse().ok()).map(Duration::from_micros);
        Self { period: period.filter(|_| socket.is_some()), socket, told: None }
    }

    /// The longest sleep after which a heartbeat still comes in time.
    pub fn nap(&self) -> Option<Duration> {
        self.period.map(|period| period / 3)
    }

    /// All loops were picked up once.
    pub fn ready(&self) {
        self.say("READY=1");
    }

    /// Reports a round of the loop; at most a few per timeout.
    pub fn alive(&mut self) {
        let Some(period) = self.period else { return };
        if self.told.is_none_or(|at| at.elapsed() >= period / 6) {
            self.told = Some(Instant::now());
            self.say("WATCHDOG=1");
        }
    }

    /// Reports to the service manager that the supervisor stops.
    pub fn stopping(&self) {
        self.say("STOPPING=1");
    }

    fn say(&self, what: &str) {
        if let Some(Err(error)) = self.socket.as_ref().map(|socket| socket.send(what.as_bytes())) {
            tracing::debug!(%error, what, "cannot notify the service manager");
        }
    }
}

/// A path, or with `@` a name of Linux' abstract namespace.
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
