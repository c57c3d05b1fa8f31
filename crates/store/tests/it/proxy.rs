//! Stands between a ledger and its hub: passes everything on until it is told to cut, and where.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What to do with the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Pass everything on.
    Pass,
    /// Cut when a commit comes along, before the hub hears of it.
    CutBeforeCommit,
    /// Cut when the hub has answered to a commit, before the node hears of it.
    CutAfterCommit,
    /// Swallow everything that nodes say: the connection is there and silent.
    Silent,
}

/// The proxy; it stands until the test ends.
pub struct Proxy {
    port: u16,
    state: Arc<Mutex<State>>,
}

struct State {
    mode: Mode,
    open: Vec<TcpStream>,
}

impl Proxy {
    /// In front of a port of this machine.
    pub fn new(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State { mode: Mode::Pass, open: Vec::new() }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for node in listener.incoming() {
                let (node, hub) = (node.unwrap(), TcpStream::connect(("127.0.0.1", target)).unwrap());
                for stream in [&node, &hub] {
                    stream.set_nodelay(true).unwrap();
                    shared.lock().unwrap().open.push(stream.try_clone().unwrap());
                }
                let (up, down) = (Arc::clone(&shared), Arc::clone(&shared));
                let (node2, hub2) = (node.try_clone().unwrap(), hub.try_clone().unwrap());
                thread::spawn(move || to_hub(node, hub, &up));
                thread::spawn(move || to_node(hub2, node2, &down));
            }
        });
        Self { port, state }
    }

    /// The address of a hub, through the proxy.
    pub fn through(&self, url: &str, port: u16) -> String {
        url.replace(&format!(":{port}/"), &format!(":{}/", self.port))
    }

    pub fn set(&self, mode: Mode) {
        self.state.lock().unwrap().mode = mode;
    }

    /// Cuts everything that is open.
    pub fn cut(&self) {
        cut(&mut self.state.lock().unwrap());
    }
}

fn cut(state: &mut State) {
    for stream in state.open.drain(..) {
        // It may be cut already.
        stream.shutdown(Shutdown::Both).ok();
    }
}

/// A statement that is a transaction by itself.
const ALONE_ASKED: &[u8] = b"UPDATE everloop.tasks";
/// What the hub says when it waits for the next one.
const NO_TRANSACTION: &[u8] = b"Z\0\0\0\x05I";

fn has(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

fn to_hub(mut node: TcpStream, mut hub: TcpStream, state: &Mutex<State>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(n @ 1..) = node.read(&mut buffer) {
        let mut state = state.lock().unwrap();
        let commits = has(&buffer[..n], b"commit\0") || has(&buffer[..n], ALONE_ASKED);
        match state.mode {
            Mode::Silent => continue,
            Mode::CutBeforeCommit if commits => return cut(&mut state),
            Mode::Pass | Mode::CutBeforeCommit | Mode::CutAfterCommit => {}
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
        let mut state = state.lock().unwrap();
        let done = has(&buffer[..n], b"COMMIT\0") || has(&buffer[..n], b"UPDATE ");
        let committed = done && buffer[..n].ends_with(NO_TRANSACTION);
        if state.mode == Mode::CutAfterCommit && committed {
            return cut(&mut state);
        }
        drop(state);
        if node.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    node.shutdown(Shutdown::Both).ok();
}
