//! Stands between a ledger and its hub: forwards everything until a cut is requested. Knows just
//! enough of the protocol of PostgreSQL to see a commit pass.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How connections are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyMode {
    Pass,
    /// Cut at a commit, before it reaches the hub.
    CutBeforeCommit,
    /// Cut at the response to a commit, before it reaches the node.
    CutAfterCommit,
    /// Drop everything that nodes send: the connection stays open and silent.
    Silent,
    /// Accept connections and close them at once.
    Refuse,
    /// Forward everything, with this delay.
    Slow(Duration),
}

/// The proxy; it runs until the process ends.
pub struct Proxy {
    port: u16,
    state: Arc<Mutex<State>>,
}

struct State {
    mode: ProxyMode,
    open: Vec<TcpStream>,
}

impl Proxy {
    /// In front of a local port, on loopback.
    pub fn new(target: u16) -> Self {
        Self::at(Ipv4Addr::LOCALHOST, target)
    }

    /// In front of a local port, at another local address.
    pub fn at(address: Ipv4Addr, target: u16) -> Self {
        let listener = TcpListener::bind((address, 0)).expect("an own address has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let state = Arc::new(Mutex::new(State { mode: ProxyMode::Pass, open: Vec::new() }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for node in listener.incoming().flatten() {
                // Without a hub the connection is closed, as its machine would do.
                let Ok(hub) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)) else { continue };
                // The node may have disconnected already.
                pass(node, hub, &shared).ok();
            }
        });
        Self { port, state }
    }

    /// The address of a hub, through a proxy on loopback.
    pub fn through(&self, url: &str, port: u16) -> String {
        url.replace(&format!(":{port}/"), &format!(":{}/", self.port))
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets how connections are treated from now on, also open ones.
    pub fn set(&self, mode: ProxyMode) {
        lock(&self.state).mode = mode;
    }

    /// Cuts all open connections.
    pub fn cut(&self) {
        cut(&mut lock(&self.state));
    }
}

/// A panicked thread leaves no inconsistent state in here.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pass(node: TcpStream, hub: TcpStream, shared: &Arc<Mutex<State>>) -> std::io::Result<()> {
    let mut state = lock(shared);
    if state.mode == ProxyMode::Refuse {
        return Ok(());
    }
    for stream in [&node, &hub] {
        stream.set_nodelay(true)?;
        state.open.push(stream.try_clone()?);
    }
    // Closed connections are dropped.
    state.open.retain(|stream| stream.peer_addr().is_ok());
    let (up, down) = (Arc::clone(shared), Arc::clone(shared));
    let (node2, hub2) = (node.try_clone()?, hub.try_clone()?);
    thread::spawn(move || to_hub(node, hub, &up));
    thread::spawn(move || to_node(hub2, node2, &down));
    Ok(())
}

fn cut(state: &mut State) {
    for stream in state.open.drain(..) {
        // It may already be cut.
        stream.shutdown(Shutdown::Both).ok();
    }
}

/// Statements that are a transaction by themselves.
const ALONE_ASKED: [&[u8]; 3] = [b"everloop.claim", b"everloop.finish", b"ON CONFLICT (id) DO"];
/// The hub's confirmations. Plain reads give the same ones; cutting those too does no harm.
const DONE: [&[u8]; 3] = [b"COMMIT\0", b"SELECT ", b"INSERT "];
/// The hub's message when it waits for the next statement.
const NO_TRANSACTION: &[u8] = b"Z\0\0\0\x05I";

fn has(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

fn to_hub(mut node: TcpStream, mut hub: TcpStream, state: &Mutex<State>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(n @ 1..) = node.read(&mut buffer) {
        let mut state = lock(state);
        let commits = has(&buffer[..n], b"commit\0") || ALONE_ASKED.iter().any(|part| has(&buffer[..n], part));
        match state.mode {
            ProxyMode::Silent => continue,
            ProxyMode::CutBeforeCommit if commits => return cut(&mut state),
            ProxyMode::Refuse => return cut(&mut state),
            ProxyMode::Slow(delay) => {
                drop(state);
                thread::sleep(delay);
            }
            ProxyMode::Pass | ProxyMode::CutBeforeCommit | ProxyMode::CutAfterCommit => {}
        }
        if hub.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    hub.shutdown(Shutdown::Both).ok();
}

fn to_node(mut hub: TcpStream, mut node: TcpStream, state: &Mutex<State>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(n @ 1..) = hub.read(&mut buffer) {
        let mut state = lock(state);
        let done = DONE.iter().any(|part| has(&buffer[..n], part));
        let committed = done && buffer[..n].ends_with(NO_TRANSACTION);
        if state.mode == ProxyMode::CutAfterCommit && committed {
            return cut(&mut state);
        }
        drop(state);
        if node.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    node.shutdown(Shutdown::Both).ok();
}
