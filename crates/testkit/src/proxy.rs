//! Stands between a ledger and its hub: passes everything on until it is told to cut, and where. Knows just enough of the
//! protocol of PostgreSQL to see a commit go by.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// What to do with the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyMode {
    /// Pass everything on.
    Pass,
    /// Cut when a commit comes along, before the hub hears of it.
    CutBeforeCommit,
    /// Cut when the hub has answered to a commit, before the node hears of it.
    CutAfterCommit,
    /// Swallow everything that nodes say: the connection is there and silent.
    Silent,
    /// Take connections and close them at once.
    Refuse,
    /// Pass everything on, so much later.
    Slow(Duration),
}

/// The proxy; it stands until the process ends.
pub struct Proxy {
    port: u16,
    state: Arc<Mutex<State>>,
}

struct State {
    mode: ProxyMode,
    open: Vec<TcpStream>,
}

impl Proxy {
    /// In front of a port of this machine, on loopback.
    pub fn new(target: u16) -> Self {
        Self::at(Ipv4Addr::LOCALHOST, target)
    }

    /// In front of a port of this machine, at another of its addresses.
    pub fn at(address: Ipv4Addr, target: u16) -> Self {
        let listener = TcpListener::bind((address, 0)).expect("an own address has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let state = Arc::new(Mutex::new(State { mode: ProxyMode::Pass, open: Vec::new() }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for node in listener.incoming().flatten() {
                // A hub that is away lets nobody in: the connection is closed, as its machine would do.
                let Ok(hub) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)) else { continue };
                // Whoever hangs up before it began needs nobody to pass anything on.
                pass(node, hub, &shared).ok();
            }
        });
        Self { port, state }
    }

    /// The address of a hub, through a proxy on loopback.
    pub fn through(&self, url: &str, port: u16) -> String {
        url.replace(&format!(":{port}/"), &format!(":{}/", self.port))
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What becomes of the connections from now on, also of those that are open.
    pub fn set(&self, mode: ProxyMode) {
        lock(&self.state).mode = mode;
    }

    /// Cuts everything that is open.
    pub fn cut(&self) {
        cut(&mut lock(&self.state));
    }
}

/// A thread that panicked has left nothing half done in here.
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
    // Those that are over need no cutting.
    state.open.retain(|stream| stream.peer_addr().is_ok());
    let (up, down) = (Arc::clone(shared), Arc::clone(shared));
    let (node2, hub2) = (node.try_clone()?, hub.try_clone()?);
    thread::spawn(move || to_hub(node, hub, &up));
    thread::spawn(move || to_node(hub2, node2, &down));
    Ok(())
}

fn cut(state: &mut State) {
    for stream in state.open.drain(..) {
        // It may be cut already.
        stream.shutdown(Shutdown::Both).ok();
    }
}

/// Statements that are a transaction by themselves.
const ALONE_ASKED: [&[u8]; 3] = [b"everloop.claim", b"everloop.finish", b"ON CONFLICT (id) DO"];
/// How the hub says that something was done. What only reads says the same; nobody is worse off for that.
const DONE: [&[u8]; 3] = [b"COMMIT\0", b"SELECT ", b"INSERT "];
/// What the hub says when it waits for the next one.
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
