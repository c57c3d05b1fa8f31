//! A server that responds to each request with the next act of a script, and records the requests.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// What the server does with one request.
#[derive(Clone, Debug)]
pub enum Act {
    /// These events, then the end.
    Events(Vec<Value>),
    /// These bytes as a stream of events, then the end.
    Stream(Vec<u8>),
    /// The same, and then nothing more.
    Stall(Vec<u8>),
    /// The same, with a promised length that is not reached.
    Cut(Vec<u8>),
    /// An endless stream of this piece.
    Flood(&'static [u8]),
    /// A status, headers, a body.
    Status(u16, Vec<(&'static str, String)>, String),
    /// The same with 100 MB after the body.
    Huge(u16, String),
    /// An error that echoes the request's headers.
    Echo,
    Hang,
    /// The connection is closed as soon as the request was read.
    Reset,
}

#[derive(Clone, Debug)]
pub struct Request {
    /// The first line and the headers, in lower case.
    pub head: String,
    pub body: Value,
}

/// The server; it ends with the test.
pub struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Starts serving; after the last act every response is a 418.
    pub fn start(script: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        thread::spawn(move || {
            let mut script = script.into_iter();
            // Connections that must hang stay open.
            let mut kept = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let request = read(&stream);
                seen.lock().unwrap().push(request.clone());
                let act = script.next().unwrap_or(Act::Status(418, Vec::new(), "the script is over".to_owned()));
                play(&mut stream, act, &request);
                kept.push(stream);
            }
        });
        Self { address, requests }
    }

    /// Its base URL.
    pub fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> Request {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        head.push_str(&line.to_ascii_lowercase());
    }
    let length = head.lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    Request { head, body: serde_json::from_slice(&body).unwrap_or(Value::Null) }
}

const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nconnection: close\r\n";

/// Some tests disconnect in the middle, so errors are ignored here.
fn play(stream: &mut TcpStream, act: Act, request: &Request) {
    let done = match act {
        Act::Events(events) => whole(stream, STREAM, &bytes(&events)),
        Act::Stream(bytes) => whole(stream, STREAM, &bytes),
        Act::Stall(bytes) => {
            stream.write_all(format!("{STREAM}\r\n").as_bytes()).and_then(|()| stream.write_all(&bytes)).ok();
            return;
        }
        Act::Cut(bytes) => stream
            .write_all(format!("{STREAM}content-length: {}\r\n\r\n", bytes.len() + 1000).as_bytes())
            .and_then(|()| stream.write_all(&bytes)),
        Act::Flood(piece) => flood(stream, &format!("{STREAM}\r\n"), &piece.repeat(1000)),
        Act::Status(status, headers, body) => {
            let mut head =
                format!("HTTP/1.1 {status} Whatever\r\ncontent-type: application/json\r\nconnection: close\r\n");
            for (name, value) in headers {
                head.extend([name, ": ", &value, "\r\n"]);
            }
            whole(stream, &head, body.as_bytes())
        }
        Act::Huge(status, body) => {
            let head = format!("HTTP/1.1 {status} Whatever\r\nconnection: close\r\n\r\n{body}");
            flood(stream, &head, &b" ".repeat(100_000))
        }
        Act::Echo => {
            let body = serde_json::json!({"error": {"type": "invalid_request_error", "message": request.head}});
            whole(stream, "HTTP/1.1 400 Bad\r\nconnection: close\r\n", body.to_string().as_bytes())
        }
        Act::Hang => return,
        Act::Reset => Ok(()),
    };
    if let Err(e) = done {
        assert!(matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{e}");
    }
    stream.shutdown(std::net::Shutdown::Both).ok();
}

fn whole(stream: &mut TcpStream, head: &str, body: &[u8]) -> std::io::Result<()> {
    stream.write_all(format!("{head}content-length: {}\r\n\r\n", body.len()).as_bytes())?;
    stream.write_all(body)
}

/// A hundred megabytes, or as much as the client reads.
fn flood(stream: &mut TcpStream, head: &str, piece: &[u8]) -> std::io::Result<()> {
    stream.write_all(head.as_bytes())?;
    let mut left = 100_usize << 20;
    while left > 0 {
        stream.write_all(piece)?;
        left = left.saturating_sub(piece.len());
    }
    Ok(())
}

/// Events in their wire format.
pub fn bytes(events: &[Value]) -> Vec<u8> {
    let one = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.iter().map(one).collect::<String>().into_bytes()
}
