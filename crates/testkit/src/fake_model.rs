//! A model server on loopback that plays a script, well enough for the real agent programs to work
//! against it.
//!
//! Owns the server and its threads. [`script`] is the language, [`request`] the parsed request,
//! [`message`] the content of an answer, [`dialect`] the format of each vendor, [`reply`] the
//! response, [`http`] the wire, [`log`] the records.
//!
//! Only main requests, those that offer tools, play the script; titles, topics and token counts get
//! a plain answer.

pub mod dialect;
pub mod http;
pub mod log;
pub mod message;
pub mod reply;
pub mod request;
pub mod script;

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use http::ResponseHead;
use log::{Log, RequestKind, RequestRecord};
use message::ModelMessage;
use reply::{PlayedReply, ReplyEnd};
use request::Ask;
use script::Script;

/// More connections than a few agents make: further ones are closed at once.
const MAX_CONNECTIONS: usize = 256;
/// A client that does not read its response or send its request for this long is gone; hanging on
/// purpose is not reading.
const IO_TIMEOUT: Duration = Duration::from_secs(120);

/// Configuration of a server.
#[derive(Debug)]
pub struct FakeModelOptions {
    pub script: Script,
    /// Its port on loopback; 0 takes a free one.
    pub port: u16,
    /// The file to which records are also written.
    pub log: Option<PathBuf>,
}

/// A running server; it ends with its handle.
#[derive(Debug)]
pub struct FakeModel {
    shared: Arc<Shared>,
    address: SocketAddr,
    listener: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    script: Mutex<Script>,
    log: Log,
    answers: AtomicU64,
    stopping: AtomicBool,
    connections: Mutex<Connections>,
    /// Notified when the server stops, for threads that wait between two pieces.
    stopped: Condvar,
}

#[derive(Debug, Default)]
struct Connections {
    streams: HashMap<u64, TcpStream>,
    threads: Vec<JoinHandle<()>>,
    next: u64,
}

impl FakeModel {
    /// Plays `script` on a free port.
    pub fn start(script: &str) -> io::Result<Self> {
        let script = Script::parse(script).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        Self::with(FakeModelOptions { script, port: 0, log: None })
    }

    /// Starts a server.
    pub fn with(options: FakeModelOptions) -> io::Result<Self> {
        // It may contain prompts, so it is readable for the owner only.
        let open = |path| OpenOptions::new().create(true).append(true).mode(0o600).open(path);
        let file = options.log.map(open).transpose()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            script: Mutex::new(options.script),
            log: Log::new(file),
            answers: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            connections: Mutex::default(),
            stopped: Condvar::new(),
        });
        let serving = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("fake-model".to_owned()).spawn(move || accept(&listener, &serving))?;
        Ok(Self { shared, address, listener: Some(thread) })
    }

    /// Its address as `http://127.0.0.1:PORT`, without a path.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.shared.log.records()
    }

    /// How many main requests there were.
    pub fn main_calls(&self) -> usize {
        self.shared.log.main_calls()
    }

    /// Waits for the main request number `calls`; false when it did not come within `patience`.
    pub fn wait_for_main_calls(&self, calls: usize, patience: Duration) -> bool {
        self.shared.log.wait_for_main_calls(calls, patience)
    }

    /// Plays `script` from its beginning from now on.
    pub fn play(&self, script: &str) -> Result<(), script::ScriptError> {
        let script = Script::parse(script)?;
        *self.shared.script.lock().unwrap_or_else(PoisonError::into_inner) = script;
        Ok(())
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        let threads = self.shared.stop();
        // A connection wakes the listener; when that fails, its socket is gone and so is the wait
        // on it.
        drop(TcpStream::connect(self.address));
        for thread in self.listener.take().into_iter().chain(threads) {
            // A panicked thread has printed the reason on stderr.
            drop(thread.join());
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let Some(id) = shared.enter(&stream) else { continue };
        let serving = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("fake-model-answer".to_owned()).spawn(move || {
            // Half of the scripts make clients disconnect in the middle.
            drop(serving.serve(&stream));
            // Closed by dropping both handles, not by a shutdown: that would turn a reset into an
            // ordinary end.
            serving.leave(id);
        });
        if let Ok(thread) = thread {
            shared.connections().threads.push(thread);
        }
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a connection, so that stopping can end it; `None` when there are too many or the
    /// server stops.
    fn enter(&self, stream: &TcpStream) -> Option<u64> {
        let ready = stream.set_read_timeout(Some(IO_TIMEOUT)).and_then(|()| stream.set_write_timeout(Some(IO_TIMEOUT)));
        let copy = ready.and_then(|()| stream.set_nodelay(true)).and_then(|()| stream.try_clone()).ok()?;
        let mut connections = self.connections();
        connections.threads.retain(|thread| !thread.is_finished());
        if self.stopping.load(Ordering::SeqCst) || connections.streams.len() >= MAX_CONNECTIONS {
            return None;
        }
        connections.next += 1;
        let id = connections.next;
        connections.streams.insert(id, copy);
        Some(id)
    }

    fn leave(&self, id: u64) {
        self.connections().streams.remove(&id);
    }

    fn stop(&self) -> Vec<JoinHandle<()>> {
        self.stopping.store(true, Ordering::SeqCst);
        let mut connections = self.connections();
        for stream in connections.streams.values() {
            // A closed connection needs no shutdown.
            drop(stream.shutdown(Shutdown::Both));
        }
        self.stopped.notify_all();
        std::mem::take(&mut connections.threads)
    }

    /// Waits unless the server stops.
    fn rest(&self, time: Duration) {
        let connections = self.connections();
        let running = |_: &mut Connections| !self.stopping.load(Ordering::SeqCst);
        drop(self.stopped.wait_timeout_while(connections, time, running));
    }

    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        let Some(request) = http::HttpRequest::read(stream)? else { return Ok(()) };
        let now = SystemTime::now();
        let Some(ask) = Ask::of(&request) else {
            let (kind, head, body) = beside(&request);
            self.log.add(RequestRecord { kind, status: Some(head.status), ..record(&request, now) })?;
            return http::answer(stream, &head, body.to_string().as_bytes());
        };
        let number = self.answers.fetch_add(1, Ordering::SeqCst);
        let mut record = record(&request, now);
        let mut wait = Duration::ZERO;
        let reply = if ask.kind == RequestKind::Main {
            let play = self.script.lock().unwrap_or_else(PoisonError::into_inner).next(now);
            record.step = Some(play.step.source.clone());
            record.index = Some(play.index);
            wait = Duration::from_millis(play.step.number("wait").unwrap_or(0));
            PlayedReply::of(&play, &ask, number, now)
        } else {
            PlayedReply::said(&ModelMessage::plain(number), &ask)
        };
        record.kind = ask.kind;
        record.status = reply.status();
        record.model = Some(ask.model);
        record.tools = ask.tools;
        record.last_user = ask.last_user;
        record.has_tool_result = ask.has_tool_result;
        self.log.add(record)?;
        self.rest(wait);
        self.send(stream, &reply)
    }

    fn send(&self, stream: &TcpStream, reply: &PlayedReply) -> io::Result<()> {
        match reply {
            PlayedReply::Document(head, body) => http::answer(stream, head, body.to_string().as_bytes()),
            PlayedReply::Pieces { head, pieces, pace, end } => {
                http::begin(stream, head)?;
                for piece in pieces {
                    http::chunk(stream, piece)?;
                    self.rest(*pace);
                }
                match end {
                    ReplyEnd::Whole => http::end(stream),
                    ReplyEnd::Silence => until_closed(stream),
                    ReplyEnd::Cut => Ok(()),
                }
            }
            PlayedReply::Silence => until_closed(stream),
            PlayedReply::Reset => reset(stream),
        }
    }
}

/// Keeps a connection open until the client or the server closes it.
fn until_closed(mut stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(None)?;
    let mut scrap = [0; 1024];
    while stream.read(&mut scrap)? > 0 {}
    Ok(())
}

/// Makes the close that follows a reset.
fn reset(stream: &TcpStream) -> io::Result<()> {
    let at_once = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    nix::sys::socket::setsockopt(stream, nix::sys::socket::sockopt::Linger, &at_once).map_err(io::Error::from)
}

/// Requests without a model: counts and lists that clients fetch before they begin.
fn beside(request: &http::HttpRequest) -> (RequestKind, ResponseHead, Value) {
    let path = request.target.split('?').next().unwrap_or_default();
    let head = |status| ResponseHead::new(status).with("content-type", "application/json");
    if path.ends_with("/count_tokens") {
        return (RequestKind::Side, head(200), json!({ "input_tokens": request.body.len() / 4 }));
    }
    if path.ends_with(":countTokens") {
        return (RequestKind::Side, head(200), json!({ "totalTokens": request.body.len() / 4 }));
    }
    if path.ends_with("/models") {
        let model = json!({ "id": "fake-model", "object": "model", "owned_by": "fake" });
        return (RequestKind::Side, head(200), json!({ "object": "list", "data": [model] }));
    }
    (RequestKind::Other, head(404), json!({ "error": { "message": format!("the fake model has no `{path}`") } }))
}

fn record(request: &http::HttpRequest, now: SystemTime) -> RequestRecord {
    let telling = |name: &str| {
        ["session", "conversation", "thread"].iter().any(|word| name.contains(word)) || name == "user-agent"
    };
    let auth = match request.header("authorization") {
        Some(_) => "bearer",
        None => ["x-api-key", "x-goog-api-key"].into_iter().find(|n| request.header(n).is_some()).unwrap_or("none"),
    };
    RequestRecord {
        at_ms: now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64,
        method: request.method.clone(),
        // Gemini's older clients put the key into the query.
        path: request.target.split("key=").next().unwrap_or_default().to_owned(),
        kind: RequestKind::Other,
        step: None,
        index: None,
        status: None,
        model: None,
        auth: auth.to_owned(),
        headers: request.headers.iter().filter(|(name, _)| telling(name)).cloned().collect(),
        tools: Vec::new(),
        last_user: String::new(),
        has_tool_result: false,
        body_bytes: request.body.len(),
        body: String::from_utf8_lossy(&request.body).into_owned(),
    }
}
